"""Measure one pair of tensors, by whatever was recorded of the two.

data and data                   element by element
statistics and statistics       by their differences; data stands in for statistics
digest and digest               equal or not
scalar and scalar               equal or not
empty and empty                 equal if their shapes are, whatever was recorded
anything else                   incomparable, and why

numpy is imported with the first values to be read: of dumps of statistics alone, none are.
"""

import math
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from firstdrift.metrics.comparability import IncomparableError, Shape, shapes_differ
from firstdrift.metrics.digests import measure_digests, measure_scalars
from firstdrift.metrics.measurement import Measurement, SideSummary, incomparable
from firstdrift.metrics.statistics import measure_statistics
from firstdrift.model.tensor import Statistics, TensorRecord
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named

if TYPE_CHECKING:
    from firstdrift.metrics.arrays import Load


_NONE_RECORDED: Final = Statistics()


def measure_pair(
    golden: TensorRecord,
    target: TensorRecord,
    load: "Load",
    may_reshape: bool = False,
    logits: bool = False,
    *,
    scores: bool = False,
) -> Measurement:
    """Measure a golden tensor against a target tensor; what a dump holds never makes it raise.

    Args:
        golden: the trusted tensor.
        target: the tensor under suspicion.
        load: reads the values of a tensor; raises TensorUnreadableError where it cannot.
        may_reshape: whether the tensors may be reshaped to each other, whatever their shapes.
        logits: whether the last dimension is the vocabulary.
        scores: whether experts may be chosen by the largest of each row.
    """
    try:
        measured = _measure(golden, target, load, may_reshape, logits)
        return _with_choices(measured, golden, target, load) if scores else measured
    except IncomparableError as error:
        return incomparable(error.message)


def _measure(
    golden: TensorRecord, target: TensorRecord, load: "Load", may_reshape: bool, logits: bool
) -> Measurement:
    _require_one_kind(golden, target)
    if not golden.is_tensor:
        return measure_scalars(golden, target)
    if golden.location and target.location:
        from firstdrift.metrics.arrays import measure_values

        return measure_values(golden.location, target.location, load, may_reshape, logits)
    if empty := _empty_shapes(golden.shape, target.shape):
        from firstdrift.metrics.arrays import measure_empty

        return measure_empty(*empty, may_reshape)
    if _has_statistics(golden) and _has_statistics(target):
        return _with_digests(measure_statistics(golden, target), golden, target)
    if golden.digest and target.digest:
        return measure_digests(golden, target)
    return measure_statistics(_statistics(golden, "golden", load), _statistics(target, "target", load))


def _empty_shapes(golden: Shape | None, target: Shape | None) -> tuple[Shape, Shape] | None:
    """Return the shapes of two tensors without elements; None if they have some, or that is not known."""
    if golden is None or target is None:
        return None
    # Neither statistics nor digests depend on how the same elements are arranged in dimensions.
    size = math.prod(golden)
    if golden != target and size != math.prod(target):
        raise IncomparableError(shapes_differ(golden, target))
    return None if size else (golden, target)


def _require_one_kind(golden: TensorRecord, target: TensorRecord) -> None:
    if golden.problem is not None or target.problem is not None:
        side, problem = ("target", target.problem) if golden.problem is None else ("golden", golden.problem)
        raise IncomparableError(Message.of("metrics.of_side", side=side_named(side), problem=problem))
    if golden.is_tensor != target.is_tensor:
        raise IncomparableError(
            Message.of("metrics.against", golden=_describe(golden), target=_describe(target))
        )


def _with_choices(
    measured: Measurement, golden: TensorRecord, target: TensorRecord, load: "Load"
) -> Measurement:
    if measured.errors is None or measured.equal or golden.location is None or target.location is None:
        return measured
    from firstdrift.metrics.elementwise.rows import swapped_choices

    sides = load(golden.location), load(target.location)
    return replace(measured, swapped=swapped_choices(sides[0], sides[1].reshape(sides[0].shape)))


def _describe(record: TensorRecord) -> Message:
    if record.is_tensor:
        return Message.of("metrics.tensor")
    return Message.of("metrics.scalar", type=record.dtype or "scalar", value=record.scalar)


def _has_statistics(record: TensorRecord) -> bool:
    return record.statistics is not None and record.statistics != _NONE_RECORDED


def _statistics(record: TensorRecord, side: str, load: "Load") -> TensorRecord | SideSummary:
    if _has_statistics(record):
        return record
    if record.location:
        from firstdrift.metrics.arrays import summarise_values

        return summarise_values(record.location, side, load)
    if record.digest:
        raise IncomparableError(Message.of("metrics.only_digest", side=side_named(side)))
    raise IncomparableError(Message.of("metrics.only_shape", side=side_named(side)))


def _with_digests(measured: Measurement, golden: TensorRecord, target: TensorRecord) -> Measurement:
    """Let digests overrule statistics that agree by chance."""
    if not measured.equal or not golden.digest or not target.digest:
        return measured
    digests = measure_digests(golden, target)
    if digests.equal is not False:
        return measured
    return replace(measured, equal=False, reason=Message.of("metrics.digests_overrule"))
