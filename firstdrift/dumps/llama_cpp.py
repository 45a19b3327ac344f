"""Read a log of llama.cpp's evaluation callback: what each operator of the graph gave.

    ffn_out-1 = (f32) MUL_MAT(blk.1.ffn_down.weight{…}, ffn_swiglu-1{…}}) = {32, 5, 1, 1}

    blk.1.ffn_out   MUL_MAT    input.1 is what was printed of ffn_swiglu-1    output.0 (5, 32)

A tensor has its name for its node, in the layer whose number it ends in; one that is printed again is of the
next call. Where the graph begins anew, so does a pass.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from firstdrift.dumps.containers.contents import Contents, DamagedError, file_contents
from firstdrift.dumps.containers.ggml_log import (
    Printed,
    Source,
    first_name,
    layout_of_values,
    printed_in,
    values_at,
)
from firstdrift.dumps.reader import FilesReader, several_at
from firstdrift.dumps.recorded_calls import Recorded, nodes_of
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import beginning_of, printable
from firstdrift.errors import DumpUnreadableError
from firstdrift.model.slice import Coordinates, Dump, Slice, SliceListing
from firstdrift.model.tensor import DataLocation, Role, TensorRecord
from firstdrift.wording.message import Message

_BEGINNING: Final = 256 * 1024
"""Bytes of a file in which a tensor is looked for: llama.cpp says much of the model before the first."""

_IN_LAYER: Final = re.compile(r"(?P<name>.+?)-(?P<layer>[0-9]{1,9})(?P<rest> .*)?", re.DOTALL)
_COPY: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*#(?P<name>.+)#[0-9]+", re.DOTALL)
_SHAPE: Final = "shape"
_NOT_PRINTED: Final = Message.of("dumps.llama_cpp.not_printed")
_CUT_SHORT: Final = Message.of("dumps.ggml_log.cut_short")


class LlamaCppReader(FilesReader):
    """The `DumpReader` of logs of llama.cpp's evaluation callback."""

    format = "llama-cpp"
    title = Message.of("dumps.llama_cpp.title")
    suffixes = frozenset({".log", ".txt", ".out"})
    most_entries, most_files = 200, 20

    def is_one(self, file: Path) -> bool:
        """Tell whether a tensor was printed in the beginning of a file."""
        return bool(_first_tensor(file))

    def recognise(self, path: Path) -> tuple[Message, ...]:
        """Return the evidence that a path is such a log, or holds one; empty if it does not."""
        found = ((printable(log.name), printable(_first_tensor(log))) for log in self.files(path))
        return tuple(Message.of("dumps.llama_cpp.log", file=log, tensor=tensor) for log, tensor in found)

    def open_dump(self, path: Path) -> Dump:
        """List the passes of a log."""
        logs = self.files_at(path)
        if len(logs) > 1:
            raise several_at(path, logs, len(logs))
        log = Bounds.around(path).require(logs[0])
        passes = _passes(_read(log)[1])
        steps = range(len(passes)) if len(passes) > 1 else [None]
        listings = [SliceListing(Coordinates(step), log) for step in steps]
        return self.dump(path, listings, attributes={"framework": "llama.cpp"})

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read what was printed in a pass."""
        log = Bounds.around(dump.path).require(listing.directory)
        contents, printed = _read(log)
        passes = _passes(printed)
        step = listing.coordinates.step or 0
        if step >= len(passes):
            raise DumpUnreadableError(Message.of("dumps.plain.files_gone"), path=log)
        work = _Reading(log, contents)
        return Slice(listing, nodes_of(recorded for one in passes[step] for recorded in work.read(one)))


def _first_tensor(log: Path) -> str:
    """Return the name of the first tensor that was printed; "" if there is none in the beginning."""
    return first_name(beginning_of(log, _BEGINNING)) or ""


def _read(log: Path) -> tuple[Contents, list[Printed]]:
    try:
        contents = file_contents(log)
        return contents, printed_in(contents)
    except DamagedError as exc:
        raise DumpUnreadableError(exc.message, path=log) from exc


def _passes(blocks: Sequence[Printed]) -> list[list[Printed]]:
    """Part a log where its graph begins anew: where the tensor is made again that was made first."""
    first = _identity(blocks[0]) if blocks else ()
    starts = [at for at, printed in enumerate(blocks) if _identity(printed) == first]
    return [list(blocks[start:end]) for start, end in pairwise([*starts, len(blocks)])]


def _identity(printed: Printed) -> tuple[str, ...]:
    return printed.name, printed.operator, *(source.name for source in printed.sources)


class _Reading:
    """Makes what was recorded of the tensors of a pass, one after another."""

    def __init__(self, log: Path, contents: Contents) -> None:
        self._log, self._contents = log, contents
        self._known: dict[str, Printed] = {}
        self._has_sums = False

    def read(self, printed: Printed) -> Iterator[Recorded]:
        """Yield the tensors that an operator took, as far as they were printed, and the one that it gave."""
        path = _path(printable(printed.name))
        for place, source in enumerate(printed.sources):
            tensors = tuple(self._taken(place, source))
            if tensors:
                yield Recorded(path, Role.INPUT, str(place), tensors, type_name=printed.operator)
        given = tuple(self._records(printed, Role.OUTPUT, "0"))
        yield Recorded(path, Role.OUTPUT, "0", given, type_name=printed.operator)
        self._known[printed.name] = printed

    def _taken(self, place: int, source: Source) -> Iterator[TensorRecord]:
        """Yield what was printed of a tensor when it was made; nothing of weights, which are not."""
        copy = _COPY.fullmatch(source.name)
        printed = self._known.get(copy["name"] if copy else source.name)
        if printed is not None and printed.shape == source.shape:
            yield from self._records(printed, Role.INPUT, str(place))

    def _records(self, printed: Printed, role: Role, key: str) -> Iterator[TensorRecord]:
        """Yield what was printed of a tensor, and its shape, which that does not tell."""
        shape = str(list(printed.shape))
        yield TensorRecord(role, f"{key}.{_SHAPE}", "str", (), scalar=shape)
        record = TensorRecord(role, key, printable(printed.dtype), None)
        try:
            values = values_at(self._contents, printed)
        except DamagedError as exc:
            yield replace(record, problem=exc.message)
            return
        is_printed = bool(values.elements) or values.total is not None
        if printed.size and not is_printed:
            yield replace(record, problem=_NOT_PRINTED)
        elif values.total is None and self._has_sums:
            yield replace(record, problem=_CUT_SHORT)
        else:
            self._has_sums = values.total is not None
            dtype, count = layout_of_values(printed, values)
            place = DataLocation(self._log, "ggml_log", printed.entry)
            yield replace(record, dtype=dtype, shape=count, location=place)


def _path(name: str) -> str:
    """Return the path of a tensor: "ffn_out-1" lies in "blk.1", as the weights of its layer do."""
    match = _IN_LAYER.fullmatch(name)
    if match is None:
        return name.replace(".", "_")
    return f"blk.{match['layer']}.{(match['name'] + (match['rest'] or '')).replace('.', '_')}"
