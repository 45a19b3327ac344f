"""Load a pair of tensors to look at from near, or say why there is nothing to look at."""

from collections.abc import Iterator
from itertools import chain
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import TensorUnreadableError
from firstdrift.matching.plan import TensorPair
from firstdrift.matching.structure.statistics_similarity import bare_shape
from firstdrift.metrics.comparability import ReasonedError, common_shape, shapes_differ
from firstdrift.metrics.measurement import Measurement, MeasurementKind, SideSummary
from firstdrift.model.tensor import DataLocation, TensorRecord, is_part_of_rank
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named

if TYPE_CHECKING:
    from firstdrift.metrics.dtypes import Array

LARGEST_COPY: Final = 2**25
"""Elements of a tensor that is put together in memory; one that lies in its file may have any number."""


class NothingToSeeError(ReasonedError):
    """There are no values of both sides to look at."""


class LoadedPair(Struct, frozen=True):
    """Both tensors of a pair, in the shape in which they are compared, read-only.

    They are mapped from their files where that is possible.

    Attributes:
        fine: the same elements in more dimensions, if one side has them so.
        shapes: of golden and target, as they were read.
        notes: what was done to compare them.
    """

    golden: "Array"
    target: "Array"
    fine: tuple[int, ...] | None
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    notes: tuple[Message, ...] = ()


def files_of(pair: TensorPair) -> tuple[Path, ...]:
    """List the files that the values of a pair are read from, each once."""
    records = (pair.golden, pair.target, *pair.golden_parts, *pair.target_parts, *chain(*pair.witnesses))
    files = (file for record in records if record.location for file in _files(record.location))
    return tuple(dict.fromkeys(files))


def _files(location: DataLocation) -> Iterator[Path]:
    yield location.file
    seen_with = chain.from_iterable(step.other for step in location.view)
    for other in (*location.shards, *seen_with):
        yield from _files(other)
    if location.container == "quantised":
        from firstdrift.dumps.checkpoint import description_of

        if (said := description_of(location.entry)) is not None:
            parts = filter(None, (said.weight, said.scale, said.offset))
            yield from (location.file.parent / part.file for part in parts)


def load_pair(pair: TensorPair, measured: Measurement) -> LoadedPair:
    """Load both tensors of a pair, of which this was measured.

    Raises:
        NothingToSeeError: there are no values of both, or they cannot be laid over each other.
    """
    if (reason := why_not(pair, measured)) is not None:
        raise NothingToSeeError(reason)
    if pair.golden_parts or pair.target_parts:
        golden, target, how = _load_joined(pair)
    else:
        golden, target, how = _load(pair.golden, "golden"), _load(pair.target, "target"), None
    _require_as_measured(measured.golden, golden, "golden")
    _require_as_measured(measured.target, target, "target")
    shapes = golden.shape, target.shape
    shape = common_shape(*shapes, may_reshape=bool(pair.transform))
    if shape is None:
        raise NothingToSeeError(shapes_differ(*shapes))
    notes = [*pair.transform, *filter(None, [how])]
    if not pair.transform and golden.shape != target.shape:
        notes.append(Message.of("closeup.reshaped", golden=golden.shape, target=target.shape, shape=shape))
    fine = max(shapes, key=lambda each: len(bare_shape(each)))
    has_more = len(bare_shape(fine)) > len(bare_shape(shape))
    both = _reshaped(golden, shape), _reshaped(target, shape)
    return LoadedPair(*both, fine if has_more else None, shapes, tuple(notes))


def why_not(pair: TensorPair, measured: Measurement) -> Message | None:
    """Say why there is nothing to look at, as far as is known without reading; None if there may be."""
    if pair.incomparable is not None:
        return pair.incomparable
    if measured.kind is MeasurementKind.SCALAR:
        return Message.of("closeup.scalars")
    if measured.kind is MeasurementKind.INCOMPARABLE:
        return measured.reason or Message.of("closeup.incomparable")
    if any(map(is_part_of_rank, (pair.golden, pair.target))):
        return Message.of("closeup.part_of_rank")
    return _without_values(pair, measured) if pair.without_values else None


def _without_values(pair: TensorPair, measured: Measurement) -> Message:
    if pair.golden.shards is not None or pair.target.shards is not None:
        return Message.of("closeup.shards")
    of_digests = measured.kind is MeasurementKind.DIGEST
    what = Message.of("closeup.digests" if of_digests else "closeup.statistics")
    side, *others = pair.without_values
    if others:
        return Message.of("closeup.without_values", what=what)
    return Message.of("closeup.side_without_values", side=side_named(side), what=what)


def _load_joined(pair: TensorPair) -> "tuple[Array, Array, Message | None]":
    from firstdrift.metrics.joined import load_joined

    parts = pair.parts
    whole = _load(pair.target, "target") if parts.are_golden else _load(pair.golden, "golden")
    for part in (*(() if parts.rearranged else parts.records), pair.golden, pair.target):
        _require_small(part)
    try:
        joined, said, _ = load_joined(parts, whole, load_tensor)
    except TensorUnreadableError as error:
        raise NothingToSeeError(error.whole()) from error
    return (joined, whole, said) if parts.are_golden else (whole, joined, said)


def _load(record: TensorRecord, side: str) -> "Array":
    from firstdrift.metrics.dtypes import number_kind

    location = record.location
    if location is None:
        raise NothingToSeeError(Message.of("closeup.nothing_recorded", side=side_named(side)))
    if location.shards or location.view or location.container == "quantised":
        _require_small(record)
    try:
        array = load_tensor(location)
    except TensorUnreadableError as error:
        name, why = location.file.name, error.message
        unreadable = Message.of("closeup.unreadable", side=side_named(side), file=name, reason=why)
        raise NothingToSeeError(unreadable) from error
    if number_kind(array.dtype) is None:
        no_numbers = Message.of("metrics.side_no_numbers", side=side_named(side), dtype=str(array.dtype))
        raise NothingToSeeError(no_numbers)
    return array


def _require_small(record: TensorRecord) -> None:
    if (size := prod(record.shape or ())) > LARGEST_COPY:
        raise NothingToSeeError(Message.of("closeup.too_large_to_join", size=size))


def _require_as_measured(summary: SideSummary | None, array: "Array", side: str) -> None:
    if summary is not None and summary.size not in (None, array.size):
        now, then = array.size, summary.size
        raise NothingToSeeError(Message.of("closeup.changed", side=side_named(side), now=now, then=then))


def _reshaped(array: "Array", shape: tuple[int, ...]) -> "Array":
    """Give an array another shape; one that would be copied for that must not be large."""
    is_copied = bare_shape(array.shape) != bare_shape(shape) and not array.flags.c_contiguous
    if is_copied and array.size > LARGEST_COPY:
        raise NothingToSeeError(Message.of("closeup.too_large_to_reorder", size=array.size))
    return array.reshape(shape)
