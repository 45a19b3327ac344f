"""Read a log of llama.cpp's evaluation callback: what each operator of the graph gave.

    ffn_out-1 = (f32) MUL_MAT(blk.1.ffn_down.weight{…}, ffn_swiglu-1{…}}) = {32, 5, 1, 1}

    blk.1.ffn_out   MUL_MAT    input.1 is what was printed of ffn_swiglu-1    output.0 (5, 32)

A tensor has its name for its node, in the layer whose number it ends in; one that is printed again is of the
next call. Where the graph begins anew, so does a pass.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
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
from firstdrift.dumps.reader import DumpReader
from firstdrift.dumps.recorded_calls import Recorded, nodes_of
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import files_in, is_file, printable
from firstdrift.errors import DumpNotRecognisedError, DumpUnreadableError
from firstdrift.files import open_regular
from firstdrift.model.slice import Coordinates, Dump, Slice, SliceListing
from firstdrift.model.tensor import DataLocation, Role, TensorRecord
from firstdrift.wording.message import Message

_SUFFIXES: Final = frozenset({".log", ".txt", ".out"})
_MOST_FILES: Final = 20
_BEGINNING: Final = 256 * 1024
"""Bytes of a file in which a tensor is looked for: llama.cpp says much of the model before the first."""

_IN_LAYER: Final = re.compile(r"(?P<name>.+?)-(?P<layer>[0-9]{1,9})(?P<rest> .*)?", re.DOTALL)
_COPY: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*#(?P<name>.+)#[0-9]+", re.DOTALL)
_SHAPE: Final = "shape"
_NOT_PRINTED: Final = Message.of("dumps.llama_cpp.not_printed")
_CUT_SHORT: Final = Message.of("dumps.ggml_log.cut_short")


class LlamaCppReader(DumpReader):
    """The `DumpReader` of logs of llama.cpp's evaluation callback."""

    format = "llama-cpp"
    title = Message.of("dumps.llama_cpp.title")

    def recognise(self, path: Path) -> tuple[Message, ...]:
        """Return the evidence that a path is such a log, or holds one; empty if it does not."""
        found = ((log, _first_tensor(log)) for log in _logs(path))
        return tuple(
            Message.of("dumps.llama_cpp.log", file=printable(log.name), tensor=printable(name))
            for log, name in found
            if name
        )

    def is_marked(self, folder: Path) -> bool:
        """Tell whether such a log lies in a folder."""
        return any(map(_first_tensor, _logs(folder)))

    def open_dump(self, path: Path) -> Dump:
        """List the passes of a log."""
        logs = [log for log in _logs(path) if _first_tensor(log)]
        if not logs:
            raise self.none_at(path)
        if len(logs) > 1:
            names = tuple(printable(log.name) for log in logs)
            raise DumpNotRecognisedError(
                Message.of("dumps.several", dumps=names), path=path, hint=Message.of("dumps.choose_one")
            )
        (log,) = logs
        Bounds.around(path).require(log)
        passes = _passes(_read(log)[1])
        is_only = len(passes) == 1
        listings = [
            SliceListing(Coordinates() if is_only else Coordinates(step), log) for step in range(len(passes))
        ]
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


def _logs(path: Path) -> list[Path]:
    if is_file(path):
        return [path] if path.suffix in _SUFFIXES else []
    logs = [file for file in files_in(path, _MOST_FILES * 10) if file.suffix in _SUFFIXES]
    return logs[:_MOST_FILES]


def _first_tensor(log: Path) -> str | None:
    """Return the name of the first tensor that was printed; None if there is none in the beginning."""
    try:
        with open_regular(log) as opened:
            return first_name(opened.read(_BEGINNING))
    except OSError:
        return None


class _Block(Struct, frozen=True):
    """What was printed of a tensor, and where that ends in the file."""

    printed: Printed
    end: int


def _read(log: Path) -> tuple[Contents, list[_Block]]:
    try:
        contents = file_contents(log)
        printed = list(printed_in(contents))
    except DamagedError as exc:
        raise DumpUnreadableError(exc.message, path=log) from exc
    ends = [*(one.start for one in printed[1:]), len(contents)]
    return contents, [_Block(one, end) for one, end in zip(printed, ends, strict=True)]


def _passes(blocks: Sequence[_Block]) -> list[list[_Block]]:
    """Part a log where its graph begins anew: where the tensor is made again that was made first."""
    passes: list[list[_Block]] = []
    for block in blocks:
        if not passes or _identity(block) == _identity(blocks[0]):
            passes.append([])
        passes[-1].append(block)
    return passes


def _identity(block: _Block) -> tuple[str, ...]:
    printed = block.printed
    return printed.name, printed.operator, *(source.name for source in printed.sources)


class _Reading:
    """Makes what was recorded of the tensors of a pass, one after another."""

    def __init__(self, log: Path, contents: Contents) -> None:
        self._log, self._contents = log, contents
        self._known: dict[str, _Block] = {}
        self._has_sums = False

    def read(self, block: _Block) -> Iterator[Recorded]:
        """Yield the tensors that an operator took, as far as they were printed, and the one that it gave."""
        printed = block.printed
        path = _path(printable(printed.name))
        for place, source in enumerate(printed.sources):
            tensors = tuple(self._taken(place, source))
            if tensors:
                yield Recorded(path, Role.INPUT, str(place), tensors, type_name=printed.operator)
        given = tuple(self._records(block, Role.OUTPUT, "0"))
        yield Recorded(path, Role.OUTPUT, "0", given, type_name=printed.operator)
        self._known[printed.name] = block

    def _taken(self, place: int, source: Source) -> Iterator[TensorRecord]:
        """Yield what was printed of a tensor when it was made; nothing of weights, which are not."""
        copy = _COPY.fullmatch(source.name)
        block = self._known.get(copy["name"] if copy else source.name)
        if block is not None and block.printed.shape == source.shape:
            yield from self._records(block, Role.INPUT, str(place))

    def _records(self, block: _Block, role: Role, key: str) -> Iterator[TensorRecord]:
        """Yield what was printed of a tensor, and its shape, which that does not tell."""
        printed = block.printed
        shape = str(list(printed.shape))
        yield TensorRecord(role, f"{key}.{_SHAPE}", "str", (), scalar=shape)
        record = TensorRecord(role, key, printable(printed.dtype), None)
        try:
            values = values_at(self._contents, printed, block.end)
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
            place = DataLocation(self._log, "ggml_log", str(printed.start))
            yield replace(record, dtype=dtype, shape=count, location=place)


def _path(name: str) -> str:
    """Return the path of a tensor: "ffn_out-1" lies in "blk.1", as the weights of its layer do."""
    match = _IN_LAYER.fullmatch(name)
    if match is None:
        return name.replace(".", "_")
    return f"blk.{match['layer']}.{(match['name'] + (match['rest'] or '')).replace('.', '_')}"
