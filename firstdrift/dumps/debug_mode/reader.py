"""Read what PyTorch's DebugMode wrote down of a run: each operator that was dispatched, with hashes.

    with DebugMode(record_nn_module=True) as mode, DebugMode.log_tensor_hashes(hash_inputs=True):
        model(batch)
    Path("golden.log").write_text(mode.debug_string())

A hash is the sum of the absolute values of a tensor: relative to it, it is off by no more than the tensor is.
It is the only value that is known of a tensor. The exclusive or of its bits is a checksum.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from firstdrift.dumps.debug_mode.lines import MARK, Line, Value, parse_line
from firstdrift.dumps.nodes import distinct, with_distinct_keys
from firstdrift.dumps.reader import DumpReader
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import files_in, first_names, is_file, printable
from firstdrift.errors import DumpNotRecognisedError, DumpUnreadableError
from firstdrift.files import open_regular, read_regular, said_by_system
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Dump, Slice, SliceListing
from firstdrift.model.tensor import DataLocation, Role, TensorRecord
from firstdrift.wording.message import Message

_SUFFIXES: Final = frozenset({".log", ".txt", ".out"})
_RANK: Final = re.compile(r"(?:.*[^a-z])?rank[_-]?(?P<rank>[0-9]{1,9})(?:[^0-9].*)?", re.ASCII)
_BEGINNING: Final = 64 * 1024
_LARGEST: Final = 512 * 2**20
_MOST_FILES: Final = 200
_DEEPEST: Final = 400
_NO_HASH: Final = Message.of("dumps.debug_mode.no_hash")


class DebugModeReader(DumpReader):
    """The `DumpReader` of logs of DebugMode."""

    format = "debug-mode"
    title = Message.of("dumps.debug_mode.title")

    def recognise(self, path: Path) -> tuple[Message, ...]:
        """Return the evidence that a path is such a log, or holds some; empty if it does not."""
        names = first_names([log.name for log in _logs(path)])
        return (Message.of("dumps.debug_mode.logs", files=names),) if names else ()

    def is_marked(self, folder: Path) -> bool:
        """Tell whether such a log lies in a folder."""
        return bool(_logs(folder))

    def open_dump(self, path: Path) -> Dump:
        """List the logs of ranks, or the only log."""
        logs = _logs(path)
        if not logs:
            raise self.none_at(path)
        matches = [_RANK.fullmatch(log.stem) for log in logs]
        ranks = [int(match["rank"]) for match in matches if match]
        if len(logs) > 1 and len(set(ranks)) < len(logs):
            several = Message.of("dumps.several", dumps=first_names([log.name for log in logs]))
            raise DumpNotRecognisedError(several, path=path, hint=Message.of("dumps.choose_one"))
        places = [Coordinates(rank=rank) for rank in ranks] if len(logs) > 1 else [Coordinates()]
        listings = [SliceListing(at, log) for at, log in zip(places, logs, strict=True)]
        return self.dump(path, listings, attributes={"framework": "pytorch"})

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read the calls of a log, modules after what they contain."""
        log = Bounds.around(dump.path).require(listing.directory)
        try:
            text = read_regular(log, most=_LARGEST).decode("utf-8", "backslashreplace")
        except OSError as exc:
            unreadable = Message.of("dumps.file.unreadable", error=said_by_system(exc))
            raise DumpUnreadableError(unreadable, path=log) from exc
        lines = (line for line in map(parse_line, text.splitlines()) if line is not None)
        nodes = tuple(_Tree(log).read(lines))
        if not nodes:
            raise DumpUnreadableError(Message.of("dumps.debug_mode.no_call"), path=log)
        return Slice(listing, nodes)


def _logs(path: Path) -> list[Path]:
    candidates = [path] if is_file(path) else files_in(path, _MOST_FILES)
    return [file for file in candidates if file.suffix in _SUFFIXES and _is_log(file)]


def _is_log(file: Path) -> bool:
    try:
        with open_regular(file) as opened:
            return MARK.search(opened.read(_BEGINNING)) is not None
    except OSError:
        return False


class _Open(Struct, frozen=True):
    """A module that is not left yet."""

    indent: int
    name: str
    path: str
    call: int


class _Tree:
    """Turns lines into nodes: what is indented further than a module lies in it."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._open: list[_Open] = []
        self._calls: Counter[str] = Counter()
        self._taken: set[str] = set()
        self._order = 0

    def read(self, lines: Iterable[Line]) -> Iterator[Node]:
        """Yield nodes in the order in which they end."""
        for line in lines:
            yield from self._leave(line.indent)
            if line.is_module:
                self._enter(line)
            else:
                yield self._operator(line)
        yield from self._leave(-1)

    def _leave(self, indent: int) -> Iterator[Node]:
        while self._open and self._open[-1].indent >= indent:
            module = self._open.pop()
            yield self._node(module.name, module.path, NodeKind.MODULE, "", module.call, ())

    def _enter(self, line: Line) -> None:
        if len(self._open) >= _DEEPEST:
            raise DumpUnreadableError(Message.of("dumps.record.nested_too_deeply"), path=self._log)
        written = printable(line.name)
        call = self._calls[written]
        self._calls[written] += 1
        name = distinct(f"{written} (call {call})" if call else written, self._taken)
        self._open.append(_Open(line.indent, name, written.partition(".")[2], call))

    def _operator(self, line: Line) -> Node:
        written = printable(line.name)
        call = self._calls[written]
        self._calls[written] += 1
        name = distinct(f"{written} (call {call})" if call else written, self._taken)
        operator = _as_registered(written)
        tensors = with_distinct_keys(
            [
                *(_record(Role.INPUT, value, self._log) for value in line.inputs),
                *(_record(Role.OUTPUT, value, self._log) for value in line.outputs),
            ]
        )
        return self._node(name, operator, NodeKind.API, operator, call, tensors)

    def _node(
        self,
        name: str,
        path: str,
        kind: NodeKind,
        type_name: str,
        call: int,
        tensors: tuple[TensorRecord, ...],
    ) -> Node:
        parent = self._open[-1].name if self._open else None
        order, self._order = self._order, self._order + 1
        return Node(name, path, kind, type_name, Direction.FORWARD, call, order, parent, tensors)


def _as_registered(name: str) -> str:
    """Return the name of an operator as other dumps have it: "aten::add.Tensor" is "Aten.add"."""
    library, found, operator = name.partition("::")
    return f"{library.capitalize()}.{operator.partition('.')[0]}" if found else name


def _record(role: Role, value: Value, log: Path) -> TensorRecord:
    key = printable(value.key)
    if not value.dtype:
        return TensorRecord(role, key, "str", (), scalar=printable(value.text))
    if value.hash is None:
        return TensorRecord(role, key, value.dtype, None, problem=_NO_HASH)
    if value.hash.lstrip("-").isdecimal():
        return TensorRecord(role, key, value.dtype, None, digest=f"xor:{value.hash}")
    return TensorRecord(role, key, value.dtype, (1,), location=DataLocation(log, "number", value.hash))
