"""The stages of a comparison before anything is judged, each a function of what the one before it gave.

    plan_slices ─▶ plan_slice, for each pair of slices ─▶ measure_pairs

The worker runs them apart, and a test can look in between.
"""

from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from firstdrift.comparison.levels import at_level
from firstdrift.comparison.report import Options, SliceResult
from firstdrift.comparison.session import Planned
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import SettingsError
from firstdrift.groups import not_in
from firstdrift.matching.implementations.element_order import may_lie_otherwise
from firstdrift.matching.match import match_slices
from firstdrift.matching.plan import SlicePairing, SlicePlan, TensorPair
from firstdrift.matching.ranks.missing_ranks import Read
from firstdrift.matching.slices import pair_slices
from firstdrift.metrics.measure import measure_pair
from firstdrift.metrics.measurement import FITS_NOT, IN_OTHER_ORDER, INCOMPARABLE, Measurement
from firstdrift.model.slice import Coordinates, Dump, Slice, SliceListing
from firstdrift.model.tensor import is_part_of_rank
from firstdrift.verdict.logits import is_file_of_logits, is_logits
from firstdrift.verdict.router_ties import may_be_scores
from firstdrift.verdict.tree import build_rows
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named

Key = TypeVar("Key", bound=Hashable)

Measure = Callable[[SlicePlan, int, int], list[Measurement]]
"""Measures the pairs start..stop-1 of a plan, as `measure_pairs` does."""


def plan_slices(golden: Dump, target: Dump, options: Options, read: Read) -> SlicePairing:
    """Say which slices of the two dumps are compared; some are read to see whether ranks hold the same.

    Those that are still being written are not, and the notes say so.
    """
    pairing = pair_slices(golden, target, options.matching, read)
    growing = (
        one.said(side_named(side))
        for side, dump in (("golden", golden), ("target", target))
        for one in dump.unfinished
    )
    return replace(pairing, notes=(*pairing.notes, *growing))


def without_noise(pairing: SlicePairing, known: Container[Coordinates]) -> list[Coordinates]:
    """List the golden slices of which a healthy run shows nothing.

    Raises:
        SettingsError: it shows nothing of any that is compared.
    """
    unknown = [golden.coordinates for golden, _ in pairing.pairs if golden.coordinates not in known]
    if unknown and len(unknown) == len(pairing.pairs):
        raise SettingsError(
            Message.of("comparison.options.baseline_elsewhere"),
            hint=Message.of("comparison.options.choose_baseline"),
        )
    return unknown


def plan_slice(golden: Slice, target: Slice, options: Options) -> Planned:
    """Say which nodes and tensors of two slices are compared, and lay the two trees over each other."""
    plan = at_level(match_slices(golden, target, options.matching), golden, target, options.level)
    return Planned(plan, build_rows(golden, target, plan))


def measure_pairs(plan: SlicePlan, start: int, stop: int) -> list[Measurement]:
    """Measure the pairs start..stop-1 of a plan; a pair that cannot be measured says why."""
    return list(map(_measure, plan.pairs[start:stop]))


def _measure(pair: TensorPair) -> Measurement:
    measured = _measure_as_it_lies(pair)
    if measured.errors is not None and _lies_otherwise(pair, measured.errors.relative_l2):
        return Measurement(INCOMPARABLE, IN_OTHER_ORDER)
    return measured


def _lies_otherwise(pair: TensorPair, difference: float) -> bool:
    """Tell whether two tensors that are `difference` apart hold the same numbers in another order."""
    golden, target = pair.golden.location, pair.target.location
    if golden is None or target is None or not may_lie_otherwise(pair, difference):
        return False
    from firstdrift.metrics.rearrangement import hold_the_same_numbers

    return hold_the_same_numbers(load_tensor(golden), load_tensor(target), difference)


def _measure_as_it_lies(pair: TensorPair) -> Measurement:
    if pair.incomparable is not None:
        return Measurement(INCOMPARABLE, pair.incomparable)
    if pair.golden_parts or pair.target_parts:
        from firstdrift.metrics.joined import measure_joined

        return measure_joined(pair.golden, pair.target, pair.parts, load_tensor, bool(pair.transform))
    sides = pair.golden, pair.target
    may_reshape = bool(pair.transform)
    if pair.golden.location is None or any(map(is_part_of_rank, sides)):
        measure = partial(measure_pair, may_reshape=may_reshape)
    else:
        measure = partial(
            measure_pair,
            may_reshape=may_reshape,
            logits=is_logits(pair) or is_file_of_logits(pair),
            scores=may_be_scores(pair),
        )
    if pair.golden.shards is None and pair.target.shards is None:
        return measure(*sides, load_tensor)
    from firstdrift.metrics.ranks.merged import measure_shards

    return measure_shards(*sides, measure, load_tensor)


def measure_missing(
    plan: SlicePlan, keys: Sequence[Key], known: Mapping[Key, Measurement], measure: Measure = measure_pairs
) -> list[Measurement]:
    """Return the measurement of each pair of a plan; only those whose keys are not known are made."""
    new = {key: pair for key, pair in zip(keys, plan.pairs, strict=True) if key not in known}
    made = measure(replace(plan, pairs=tuple(new.values())), 0, len(new)) if new else []
    found = {**known, **dict(zip(new, made, strict=True))}
    return [found[key] for key in keys]


def left_over(pairing: SlicePairing, unread: Sequence[tuple[SliceListing, SliceListing]]) -> SlicePairing:
    """Move slices that turned out to be damaged to what could not be compared."""
    return replace(
        pairing,
        pairs=tuple(not_in(pairing.pairs, unread)),
        unmatched_golden=pairing.unmatched_golden + tuple(golden.coordinates for golden, _ in unread),
        unmatched_target=pairing.unmatched_target + tuple(target.coordinates for _, target in unread),
    )


def count_unreadable(result: SliceResult) -> int:
    """Count the pairs whose values were saved, and are missing, damaged or not as recorded."""
    return sum(map(_is_unreadable, result.plan.pairs, result.measurements))


def _is_unreadable(pair: TensorPair, measured: Measurement) -> bool:
    if measured.kind is not INCOMPARABLE or pair.incomparable is not None:
        return False
    if measured.reason is not None and measured.reason.id in FITS_NOT:
        return False
    return any(side.problem is not None or side.location is not None for side in (pair.golden, pair.target))
