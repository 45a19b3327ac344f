"""Load a pair of tensors to look at from near, or say in a sentence why there is nothing to look at."""

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import TensorUnreadableError
from firstdrift.matching.plan import TensorPair
from firstdrift.metrics.comparability import common_shape
from firstdrift.metrics.measurement import Measurement, MeasurementKind, SideSummary
from firstdrift.model.tensor import DataLocation, TensorRecord, is_part_of_rank

if TYPE_CHECKING:
    from firstdrift.metrics.dtypes import Array

LARGEST_COPY: Final = 2**25
"""Elements of a tensor that is put together in memory; one that lies in its file may have any number."""


class NothingToSeeError(Exception):
    """There are no values of both sides to look at; the text is the reason, a clause without full stop."""


class LoadedPair(Struct, frozen=True):
    """Both tensors of a pair, in the shape in which they are compared.

    Attributes:
        golden: the trusted tensor, read-only, mapped from its file where that is possible.
        target: the tensor under suspicion, likewise.
        fine: the same elements in more dimensions, if one side has them so.
        shapes: of golden and target, as they were read.
        notes: what was done to compare them, in clauses.
    """

    golden: "Array"
    target: "Array"
    fine: tuple[int, ...] | None
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    notes: tuple[str, ...] = ()


def files_of(pair: TensorPair) -> tuple[Path, ...]:
    """List the files that the values of a pair are read from, each once."""
    records = (pair.golden, pair.target, *pair.golden_parts, *pair.target_parts)
    files = (file for record in records if record.location for file in _files(record.location))
    return tuple(dict.fromkeys(files))


def _files(location: DataLocation) -> Iterator[Path]:
    yield location.file
    for other in (*location.shards, location.left, location.right):
        if other is not None:
            yield from _files(other)
    if location.container == "quantised":
        from firstdrift.dumps.checkpoint import description_of

        said = description_of(location.entry)
        parts = (said.weight, said.scale, said.offset) if said is not None else ()
        yield from (location.file.parent / part.file for part in parts if part is not None)


def load_pair(pair: TensorPair, measured: Measurement) -> LoadedPair:
    """Load both tensors of a pair.

    Args:
        pair: what is compared.
        measured: what was measured of it.

    Raises:
        NothingToSeeError: there are no values of both, or they cannot be laid over each other.
    """
    if (reason := why_not(pair, measured)) is not None:
        raise NothingToSeeError(reason)
    notes = [pair.transform] if pair.transform else []
    if pair.golden_parts or pair.target_parts:
        golden, target, said = _load_joined(pair)
        notes += [said] if said else []
    else:
        golden, target = _load(pair.golden, "golden"), _load(pair.target, "target")
    _require_as_measured(measured.golden, golden, "golden")
    _require_as_measured(measured.target, target, "target")
    shapes = golden.shape, target.shape
    shape = common_shape(*shapes, pair.transform)
    if shape is None:
        raise NothingToSeeError(f"shapes differ: {list(golden.shape)} and {list(target.shape)}")
    if not pair.transform and golden.shape != target.shape:
        notes.append(f"{list(golden.shape)} and {list(target.shape)} are compared as {list(shape)}")
    fine = max((golden.shape, target.shape), key=lambda each: sum(size != 1 for size in each))
    has_more = sum(size != 1 for size in fine) > sum(size != 1 for size in shape)
    reshaped = _reshaped(golden, shape), _reshaped(target, shape)
    return LoadedPair(*reshaped, fine if has_more else None, shapes, tuple(notes))


def why_not(pair: TensorPair, measured: Measurement) -> str | None:
    """Say why there is nothing to look at, as far as is known without reading; None if there may be."""
    if pair.incomparable is not None:
        return pair.incomparable
    if measured.kind is MeasurementKind.SCALAR:
        return "both are Python arguments, not tensors"
    if measured.kind is MeasurementKind.INCOMPARABLE:
        return measured.reason or "the two cannot be compared"
    if any(is_part_of_rank(record) for record in (pair.golden, pair.target)):
        return "it is what one rank holds, which is compared with its part of the whole"
    without = pair.without_values
    if not without:
        return None
    if any(record.shards is not None for record in (pair.golden, pair.target)):
        return "several ranks hold copies or parts of it, which are compared one by one"
    what = "digests" if measured.kind is MeasurementKind.DIGEST else "statistics"
    if len(without) == 1:
        return f"only {what} were recorded of the {without[0]} side, no values"
    return f"only {what} were recorded, no values"


def _load_joined(pair: TensorPair) -> "tuple[Array, Array, str]":
    from firstdrift.metrics.joined import load_joined

    parts = pair.parts
    whole = _load(pair.target, "target") if parts.are_golden else _load(pair.golden, "golden")
    for part in (*parts.records, pair.golden, pair.target):
        _require_small(part)
    try:
        joined, said = load_joined(parts, whole, load_tensor)
    except TensorUnreadableError as error:
        raise NothingToSeeError(str(error).removesuffix(".")) from error
    return (joined, whole, said) if parts.are_golden else (whole, joined, said)


def _load(record: TensorRecord, side: str) -> "Array":
    from firstdrift.metrics.dtypes import number_kind

    location = record.location
    if location is None:
        raise NothingToSeeError(f"no values were recorded of the {side} side")
    if location.shards or location.left or location.right or location.container == "quantised":
        _require_small(record)
    try:
        array = load_tensor(location)
    except TensorUnreadableError as error:
        why = f"{location.file.name}: {error.reason}"
        raise NothingToSeeError(f"the values of the {side} side cannot be read ({why})") from error
    if number_kind(array.dtype) is None:
        raise NothingToSeeError(f"the values of the {side} side are of dtype {array.dtype}, not numbers")
    return array


def _require_small(record: TensorRecord) -> None:
    if prod(record.shape or ()) > LARGEST_COPY:
        size = f"{prod(record.shape or ()):,} elements"
        raise NothingToSeeError(f"it would have to be put together in memory, and has {size}")


def _require_as_measured(summary: SideSummary | None, array: "Array", side: str) -> None:
    if summary is not None and summary.size not in (None, array.size):
        now, then = f"{array.size:,} elements", f"{summary.size:,}"
        raise NothingToSeeError(f"the file of the {side} side has changed: it has {now}, and had {then}")


def _reshaped(array: "Array", shape: tuple[int, ...]) -> "Array":
    """Give an array another shape; one that would be copied for that must not be large."""
    bare = [tuple(size for size in each if size != 1) for each in (array.shape, shape)]
    if bare[0] != bare[1] and not array.flags.c_contiguous and array.size > LARGEST_COPY:
        size = f"{array.size:,} elements"
        raise NothingToSeeError(f"its dimensions do not lie in order in the file, and it has {size}")
    return array.reshape(shape)
