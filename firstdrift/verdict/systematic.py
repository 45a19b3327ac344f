"""Differences that a whole run has: each is said once, and no node of it is called the first bad one.

    rounded      every weight is that of the other run, rounded to bfloat16 or float16
    scaled       every weight is that of the golden run times one number
    quantised    every weight is off, and keeps its largest element: it was stored in few bits
    replaced     nearly every weight is another
    products     every product of float32 is as coarse as TF32 or bfloat16: healthy
    dropout      dropout is on in one run alone, or drew other numbers

The first entry that holds of nearly all that it looks at is said. It explains its own size and no more: the
run is then held against what is left, as if each number were rounded to that level.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, takewhile
from statistics import median
from typing import ClassVar, Final, NamedTuple, TypeAlias

from msgspec import Struct

from firstdrift.groups import known
from firstdrift.matching.plan import SlicePlan, TensorPair
from firstdrift.metrics.measurement import Measurement, SideSummary
from firstdrift.model.tensor import ROUNDING
from firstdrift.verdict.fixed_thresholds import (
    BEYOND_LEVEL,
    BITS_LEFT,
    LEAST_WEIGHTS,
    NEARLY_ALL,
    STATISTICS_ROUNDING,
    UNKNOWN_LEVEL,
)
from firstdrift.verdict.pair_error import PairError
from firstdrift.verdict.rule import Rule
from firstdrift.wording.message import Message

_PLACE: Final = "Systematic differences"
_DIGITS: Final = 2.0**-15
"""Numbers that are so near to each other, relative to them, are the same to four digits or five."""

_SAME: Final = STATISTICS_ROUNDING.value * ROUNDING["float32"]


class SystematicRule(Rule, frozen=True, kw_only=True):
    """A difference that a whole run may have.

    Attributes:
        of: what nearly all of which must have it: "weights", "products" or "dropouts".
        is_fault: whether a user must know of it; else it is healthy, and said.
    """

    of: str
    is_fault: bool = True

    kind: ClassVar[str] = "systematic"


class Weight(NamedTuple):
    """A parameter that was compared.

    Attributes:
        pair: its place in the plan.
        measured: what is known of both sides.
        error: how far apart they are; from statistics, at least.
        roundoff: unit roundoff of the coarser of its dtypes.
        is_matrix: whether it has more than one dimension: vectors of ones tell nothing.
    """

    pair: int
    measured: Measurement
    error: float
    roundoff: float
    is_matrix: bool


def weights_of(
    at: Iterable[int],
    plan: SlicePlan,
    measurements: Sequence[Measurement],
    errors: Sequence[PairError],
) -> list[Weight]:
    """List the parameters among some pairs that have a finite error."""
    return [
        Weight(pair, measurements[pair], value, errors[pair].roundoff, _has_dimensions(plan.pairs[pair]))
        for pair in at
        if (value := errors[pair].value) is not None and math.isfinite(value) and not errors[pair].discrete
    ]


def _has_dimensions(pair: TensorPair) -> bool:
    return len(pair.golden.shape or ()) > 1


class SystematicWeights(Struct, frozen=True):
    """What all weights of a slice have.

    Attributes:
        rule: the entry that holds.
        said: the sentence.
        level: how far off it makes each of them.
        pairs: those that have it.
    """

    rule: SystematicRule
    said: Message
    level: float
    pairs: frozenset[int]


ROUNDED: Final = SystematicRule("rounded", _PLACE, of="weights")
SCALED: Final = SystematicRule("scaled", _PLACE, of="weights")
QUANTISED: Final = SystematicRule("quantised", _PLACE, of="weights")
REPLACED: Final = SystematicRule("replaced", _PLACE, of="weights")
PRODUCTS: Final = SystematicRule("products", _PLACE, of="products", is_fault=False)
DROPOUT: Final = SystematicRule("dropout", _PLACE, of="dropouts")

SYSTEMATIC_RULES: Final = (ROUNDED, SCALED, QUANTISED, REPLACED, PRODUCTS, DROPOUT)
"""In the order in which they are asked."""

OF_WEIGHTS: Final = frozenset(rule.name for rule in SYSTEMATIC_RULES if rule.of == "weights")
"""Names of those that are found in weights."""


def in_weights(
    weights: Sequence[Weight], parameter_floor: float, stored: float = 0.0, *, may_be_trained: bool = False
) -> SystematicWeights | None:
    """Say what all weights have that differ; None where it is not nearly all of them.

    Args:
        weights: all that were compared.
        parameter_floor: parameters that are so many roundings apart differ; from statistics, twice as many.
        stored: unit roundoff of the format that the values of the run were stored from.
        may_be_trained: a step of training may have made weights others, and left most of the largest alone.
    """
    least = 2.0 * parameter_floor
    differing = [one for one in weights if one.error > max(least * max(one.roundoff, stored), _SAME)]
    known = sum(weight.is_matrix for weight in weights)
    among = _Among(differing, known)
    if known < LEAST_WEIGHTS.value or not among.nearly_all(differing):
        return None
    found = _rounded(among) or _scaled(among)
    return found or (None if may_be_trained else _quantised(among) or _replaced(among))


class _Among(NamedTuple):
    """The weights that differ, and how many matrices were compared."""

    differing: Sequence[Weight]
    known: int

    def nearly_all(self, having: Sequence[Weight]) -> bool:
        """Tell whether nearly all matrices that were compared are among some weights."""
        return sum(weight.is_matrix for weight in having) >= NEARLY_ALL.value * self.known

    def amount(self, having: Sequence[Weight]) -> Mapping[str, int | Message]:
        """Say how many matrices have a difference, of how many, and how far off they are."""
        matrices = [weight for weight in having if weight.is_matrix]
        size = "size.number" if _are_exact(matrices) else "size.at_least"
        said = Message.of(size, error=_middle(matrices))
        return {"count": len(matrices), "known": self.known, "size": said}


class _Format(NamedTuple):
    """A format that numbers are rounded to: its name, the bits of its mantissa, its least number."""

    name: str
    bits: int
    least: float

    def nearest(self, number: float) -> float:
        """Round a number as the format does: half of the time up, to even."""
        if not number or not math.isfinite(number):
            return number
        spacing = max(math.ldexp(1.0, math.frexp(number)[1] - self.bits), self.least)
        return round(number / spacing) * spacing


_FORMATS: Final = (_Format("float16", 11, 2.0**-24), _Format("bfloat16", 8, 2.0**-133))
"""Finer first: what fits a finer one fits coarser ones only by chance."""


def _rounded(among: _Among) -> SystematicWeights | None:
    """Look for a format: rounding keeps order, so it rounds the largest and the smallest element as well."""
    for one in _FORMATS:
        for side in ("target", "golden"):
            fitting = [weight for weight in among.differing if _is_rounded(weight, one, side)]
            having = list(filter(_has_other_ends, fitting))
            if among.nearly_all(having):
                said = Message.of(f"systematic.rounded_{side}", dtype=one.name, **among.amount(having))
                return _found(ROUNDED, said, max(ROUNDING[one.name], _middle(having)), fitting)
    return None


def _is_rounded(weight: Weight, to: _Format, side: str) -> bool:
    if weight.roundoff >= ROUNDING[to.name]:  # its dtype says so already
        return False
    ends = _ends(weight.measured)
    if side == "golden":
        ends = [(target, golden) for golden, target in ends]
    return bool(ends) and all(abs(to.nearest(one) - other) <= _SAME * abs(one) for one, other in ends)


def _has_other_ends(weight: Weight) -> bool:
    return any(abs(one - other) > _SAME * abs(one) for one, other in _ends(weight.measured))


def _quantised(among: _Among) -> SystematicWeights | None:
    """Look for weights of which the largest element is kept, as scales are made of it."""
    having = list(filter(_keeps_its_largest, among.differing))
    if not among.nearly_all(having):
        return None
    steps = [step for weight in having if weight.is_matrix and (step := _steps(weight)) is not None]
    bits = next((bits for bits in (8, 4) if steps and _fits(median(steps), bits)), None)
    said = "systematic.quantised" if bits is None else "systematic.quantised_to"
    level = _middle(having) if _are_exact(having) else median(map(_of_eight_bits, having))
    return _found(QUANTISED, Message.of(said, bits=bits or 0, **among.amount(having)), level, having)


def _keeps_its_largest(weight: Weight) -> bool:
    ends = _ends(weight.measured)
    golden, target = (max((abs(pair[side]) for pair in ends), default=0.0) for side in (0, 1))
    return golden > 0.0 and abs(golden - target) <= _SAME * golden


def _steps(weight: Weight) -> float | None:
    """Return in how many steps the largest element was cut: a step makes an error of 1 / sqrt(12) of it."""
    errors, largest = weight.measured.errors, _largest_over_rms(weight.measured.golden)
    if errors is None or largest is None or not errors.relative_l2:
        return None
    return largest / (errors.relative_l2 * math.sqrt(12.0))


def _fits(steps: float, bits: int) -> bool:
    """Tell whether numbers of so many bits make such steps; those of each row for itself are smaller."""
    most: int = 2 ** (bits - 1) - 1
    return most / BITS_LEFT.value <= steps <= most * BITS_LEFT.value


def _of_eight_bits(weight: Weight) -> float:
    return (_largest_over_rms(weight.measured.golden) or UNKNOWN_LEVEL.value) / (127.0 * math.sqrt(12.0))


def _largest_over_rms(side: SideSummary | None) -> float | None:
    if side is None or not side.size or not side.norm:
        return None
    largest = max(abs(side.maximum or 0.0), abs(side.minimum or 0.0))
    return largest / _rms(side.size, side.norm)


def _rms(size: int, norm: float) -> float:
    return abs(norm) / math.sqrt(size)


def _scaled(among: _Among) -> SystematicWeights | None:
    """Look for one number that all weights were multiplied by."""
    scales = {
        weight.pair: scale for weight in among.differing if (scale := _scale(weight.measured)) is not None
    }
    known = [scales[weight.pair] for weight in among.differing if weight.is_matrix and weight.pair in scales]
    if not known:
        return None
    scale = median(known)
    if abs(scale - 1.0) <= 4.0 * _SAME:  # the ends of what training has moved may agree
        return None
    having = [
        weight for weight in among.differing if abs(scales.get(weight.pair, math.inf) - scale) <= 4.0 * _SAME
    ]
    if not among.nearly_all(having):
        return None
    said = Message.of("systematic.scaled", scale=scale, **among.amount(having))
    return _found(SCALED, said, abs(scale - 1.0), having)


def _scale(measured: Measurement) -> float | None:
    """Return the number that both ends of a weight, and its norm, were multiplied by."""
    golden, target = measured.golden, measured.target
    norms = [(golden.norm, target.norm)] if golden is not None and target is not None else []
    both = [*_ends(measured), *((one, other) for one, other in norms if one and other)]
    scales = [other / one for one, other in both if one]
    if len(scales) < 2 or max(scales) - min(scales) > 4.0 * _SAME * abs(scales[0]):  # noqa: PLR2004
        return None
    return scales[0]


def _replaced(among: _Among) -> SystematicWeights | None:
    """Take what is left for other weights, unless most are those of other modules: these changed places."""
    having = among.differing
    there = sorted(filter(None, (_told(weight.measured.golden) for weight in having)))
    if sum(_is_among(_told(weight.measured.target), there) for weight in having) > len(having) / 2:
        return None
    level = _middle(having) if _are_exact(having) else UNKNOWN_LEVEL.value
    return _found(REPLACED, Message.of("systematic.replaced", **among.amount(having)), level, having)


_Told: TypeAlias = tuple[float, ...]
"""What tells one weight from others: its norm first, where that is known."""


def _told(side: SideSummary | None) -> _Told:
    numbers = known((side.norm, side.maximum, side.minimum)) if side is not None else []
    return tuple(numbers) if all(map(math.isfinite, numbers)) else ()


def _is_among(told: _Told, sorted_: Sequence[_Told]) -> bool:
    """Tell whether one of some weights has these numbers, to some digits."""
    if not told:
        return False
    reach = _DIGITS * abs(told[0])
    start = bisect_left(sorted_, (told[0] - reach,))
    near = takewhile(lambda one: one[0] <= told[0] + reach, islice(sorted_, start, None))
    return any(_are_alike(told, one) for one in near)


def _are_alike(told: _Told, other: _Told) -> bool:
    if len(told) != len(other):
        return False
    return all(abs(one - its) <= _DIGITS * abs(its) for one, its in zip(told, other, strict=True))


def _found(rule: SystematicRule, said: Message, level: float, having: Sequence[Weight]) -> SystematicWeights:
    most = math.inf if rule is REPLACED else BEYOND_LEVEL.value * level
    return SystematicWeights(rule, said, level, frozenset(one.pair for one in having if one.error <= most))


def _are_exact(weights: Sequence[Weight]) -> bool:
    return all(weight.measured.errors is not None for weight in weights)


def _middle(weights: Sequence[Weight]) -> float:
    return median(weight.error for weight in weights)


def _ends(measured: Measurement) -> list[tuple[float, float]]:
    golden, target = measured.golden, measured.target
    if golden is None or target is None:
        return []
    both = ((golden.maximum, target.maximum), (golden.minimum, target.minimum))
    return [(one, other) for one, other in both if one is not None and other is not None]
