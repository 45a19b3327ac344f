"""Which part of a joined tensor is off by a factor, where statistics alone were recorded.

parts    q  norm 3, maximum 1.0     k  norm 4, maximum 2.0
whole       norm 6, maximum 2.6     k times 1.3 has norm 5.2 and maximum 2.6: with q that is the whole

One part alone that explains all statistics of the whole, times a factor, is that which is off: for any other
one maximum, minimum and mean would have to fit by chance.
"""

from collections.abc import Sequence
from math import sqrt

from msgspec.structs import replace

from firstdrift.matching.plan import Joining, TensorPair
from firstdrift.matching.structure.statistics_similarity import value_distance
from firstdrift.model.tensor import Statistics, TensorRecord, coarsest_roundoff, join_statistics
from firstdrift.verdict.fixed_thresholds import PART_EXPLAINS


def scaled_part(pair: TensorPair) -> tuple[int, float] | None:
    """Return which part alone, times which factor, makes up the other tensor; None unless just one does."""
    parts, whole = pair.golden_parts or pair.target_parts, pair.target if pair.golden_parts else pair.golden
    if pair.joining is not Joining.CONCATENATED:
        return None
    factors = {
        at: factor
        for at in range(len(parts))
        for factor in _possible_factors(parts, at, whole)
        if _is_whole([*parts[:at], _times(parts[at], factor), *parts[at + 1 :]], whole)
    }
    return factors.popitem() if len(factors) == 1 else None


def _possible_factors(parts: Sequence[TensorRecord], at: int, whole: TensorRecord) -> tuple[float, ...]:
    """Return by which factors a part may be off, as norms tell: of either sign."""
    own, total = _norm(parts[at]), _norm(whole)
    others = [_norm(part) for part in (*parts[:at], *parts[at + 1 :])]
    if not own or total is None or None in others:
        return ()
    left = total**2 - sum((norm or 0.0) ** 2 for norm in others)
    if left <= PART_EXPLAINS.value * coarsest_roundoff(whole.dtype) * total**2:
        return (0.0,)
    return sqrt(left) / own, -sqrt(left) / own


def _norm(record: TensorRecord) -> float | None:
    return None if record.statistics is None else record.statistics.norm


def _times(record: TensorRecord, factor: float) -> TensorRecord:
    """Return a tensor times a factor, as far as its statistics tell."""
    told = record.statistics
    if told is None or None in (told.maximum, told.minimum, told.norm):
        return replace(record, statistics=None)
    low, high = sorted((factor * (told.minimum or 0.0), factor * (told.maximum or 0.0)))
    mean = None if told.mean is None else factor * told.mean
    return replace(record, statistics=Statistics(high, low, mean, abs(factor) * (told.norm or 0.0)))


def _is_whole(parts: Sequence[TensorRecord], whole: TensorRecord) -> bool:
    """Tell whether the statistics of all parts together are those of the whole, but for rounding."""
    joined = replace(whole, statistics=join_statistics(parts), digest=None)
    distance = value_distance(joined, whole)
    rounding = coarsest_roundoff(whole.dtype, *(part.dtype for part in parts))
    return distance is not None and distance <= PART_EXPLAINS.value * rounding
