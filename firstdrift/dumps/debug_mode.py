"""Read what PyTorch's DebugMode wrote down of a run: each operator that was dispatched, with hashes.

    with DebugMode(record_nn_module=True) as mode, DebugMode.log_tensor_hashes(hash_inputs=True):
        model(batch)
    Path("golden.log").write_text(mode.debug_string())

    [nn.Mod] Llama.model.layers.0
      aten::addmm(t$2: f32[8], t$3: f32[2, 4], t$1: f32[4, 8])  ->  t$4: f32[2, 8]  # {'hash': 4.57, …}

`hash` is the sum of the absolute values of a tensor (a fraction), or the exclusive or of its bits (a whole
number); `input_hash` has the same of its arguments: `((2.5, 3.7, None), {'dim': None})`. The sum is the only
value that is known of a tensor: relative to it, it is off by no more than the tensor is. The exclusive or is
a checksum.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.nodes import Tensors, distinct, with_distinct_keys
from firstdrift.dumps.reader import FilesReader, several_at
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import (
    beginning_of,
    number_in_name,
    printable,
    ranks_of,
    read_whole,
)
from firstdrift.errors import DumpUnreadableError
from firstdrift.groups import known
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Dump, Slice, SliceListing
from firstdrift.model.tensor import DataLocation, Role, TensorRecord
from firstdrift.wording.message import Message

_LONGEST: Final = 200_000
_BITS_OF_HASH: Final = 64
_MODULE: Final = re.compile(r"(?P<indent> *)\[nn\.Mod\] (?P<path>\S.*)")
_CALL: Final = re.compile(
    r"(?P<indent> *)(?P<name>(?:\[triton\] )?[A-Za-z_][\w.:]*)\((?P<rest>.*)", re.DOTALL
)
_TENSOR: Final = re.compile(
    r"(?:(?P<key>[A-Za-z_]\w*)=)?(?:dt|ft|lt|t)(?:\$\d+)?: (?P<dtype>[a-z]+\d*\w*)\[(?P<shape>[0-9, ]*)\]"
    r"(?P<placement>\|.*)?",
    re.DOTALL,
)
_ARGUMENT: Final = re.compile(r"(?P<key>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)
_NOT_FINITE: Final = re.compile(r"\b(nan|inf)\b")
_ARROW: Final = "  ->  "
_LOG: Final = "  # {"
MARK: Final = re.compile(
    rb"^ *(?:\[nn\.Mod\] \S|[a-z_]+::[\w.]{1,80}\((?:[^\n]{0,200}?\b)?(?:dt|ft|lt|t)(?:\$\d+)?: [a-z]+\d+\[)",
    re.MULTILINE,
)

_DTYPES: Final = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "b8": "bool",
    "c64": "complex64",
    "c128": "complex128",
}


class Value(Struct, frozen=True):
    """A tensor or an argument of a call.

    Attributes:
        key: its place or name.
        dtype: numpy's name of a tensor's; "" for an argument.
        shape: of a tensor, as it is written.
        text: an argument as it is written; of a tensor how it is dealt out over ranks.
        hash: what was recorded of a tensor's values: a number as text; None if nothing was.
    """

    key: str
    dtype: str
    shape: str
    text: str
    hash: str | None = None


class Line(Struct, frozen=True):
    """A line of a log: a module that is entered, or a call.

    Attributes:
        indent: how many blanks it begins with.
        name: path of the module, or name of the operator.
        is_module: which of the two.
        inputs: what the call takes.
        outputs: what it gives.
    """

    indent: int
    name: str
    is_module: bool
    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()


def parse_line(text: str) -> Line | None:
    """Take a line apart; None if it is neither a module nor a call."""
    text = text.rstrip()
    if len(text) > _LONGEST:
        return None
    if match := _MODULE.fullmatch(text):
        return Line(len(match["indent"]), match["path"], is_module=True)
    match = _CALL.fullmatch(text)
    if match is None:
        return None
    rest, _, log = match["rest"].rpartition(_LOG) if _LOG in match["rest"] else (match["rest"], "", "")
    given, _, made = rest.partition(_ARROW)
    if not given.rstrip().endswith(")"):
        return None
    hashes = _hashes("{" + log) if log else {}
    inputs = _values(given.rstrip()[:-1], *_of_inputs(hashes.get("input_hash")))
    outputs = _without_list(_values(made.strip(), hashes.get("hash"), {}))
    return Line(len(match["indent"]), match["name"], is_module=False, inputs=inputs, outputs=outputs)


def _without_list(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return the outputs of a call that gave a list of them by their places in it."""
    is_list = all(value.key.startswith("0.") for value in values)
    return tuple(replace(value, key=value.key[2:]) for value in values) if is_list else values


def _of_inputs(recorded: object) -> tuple[object, dict[Any, Any]]:
    match recorded:
        case (list() | tuple() as places, dict(names)):
            return list(places), names
    return None, {}


def _hashes(text: str) -> dict[str, Any]:
    try:
        value = ast.literal_eval(_NOT_FINITE.sub(r"'\1'", text))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _values(text: str, hashes: object, by_name: dict[Any, Any]) -> tuple[Value, ...]:
    """Return what stands between commas, lists opened, each with its hash."""
    parts = list(_split(text))
    single = len(parts) == 1 and (not isinstance(hashes, list | tuple) or parts[0][:1] in "[(")
    of_places = chain([hashes] if single else _listed(hashes), repeat(None))
    found: list[Value] = []
    for at, (part, own) in enumerate(zip(parts, of_places, strict=False)):
        named = _ARGUMENT.fullmatch(part)
        key = named["key"] if named else str(at)
        found += _opened(key, named["value"] if named else part, by_name.get(key, own))
    return tuple(found)


def _listed(values: object) -> list[object]:
    return list(values) if isinstance(values, list | tuple) else []


def _opened(key: str, text: str, own: object) -> Iterator[Value]:
    """Yield a value, or the tensors of a list with their places behind the key."""
    is_list = text[:1] in "[(" and text[-1:] in "])" and _TENSOR.search(text)
    if match := _TENSOR.fullmatch(text):
        yield _tensor(key, match, own)
    elif is_list:
        inner = chain(_listed(own), repeat(None))
        for at, (part, recorded) in enumerate(zip(_split(text[1:-1]), inner, strict=False)):
            if match := _TENSOR.fullmatch(part.strip("'")):
                yield _tensor(f"{key}.{at}", match, recorded)
    elif text:
        yield Value(key, "", "", text)


def _tensor(key: str, match: re.Match[str], recorded: object) -> Value:
    dtype = _DTYPES.get(match["dtype"], match["dtype"])
    return Value(key, dtype, match["shape"], match["placement"] or "", _hash(recorded))


def _hash(recorded: object) -> str | None:
    if isinstance(recorded, bool) or not isinstance(recorded, int | float | str):
        return None
    if isinstance(recorded, int) and recorded.bit_length() > _BITS_OF_HASH:
        return None
    return str(recorded) if not isinstance(recorded, str) or recorded in ("nan", "inf") else None


def _split(text: str) -> Iterator[str]:
    """Yield what stands between the commas that are in no bracket."""
    depth, start = 0, 0
    for at, sign in enumerate(text):
        if sign in "[({":
            depth += 1
        elif sign in "])}":
            depth -= 1
        elif sign == "," and depth <= 0:
            yield text[start:at].strip()
            start = at + 1
    if text[start:].strip():
        yield text[start:].strip()


_RANK: Final = re.compile(r"(?:.*[^a-z])?rank[_-]?(?P<rank>[0-9]{1,9})(?:[^0-9].*)?", re.ASCII)
_BEGINNING: Final = 64 * 1024
_LARGEST: Final = 512 * 2**20
_DEEPEST: Final = 400
_NO_HASH: Final = Message.of("dumps.debug_mode.no_hash")


class DebugModeReader(FilesReader):
    """The `DumpReader` of logs of DebugMode."""

    format = "debug-mode"
    title = Message.of("dumps.debug_mode.title")
    evidence = "dumps.debug_mode.logs"
    suffixes = frozenset({".log", ".txt", ".out"})
    most_entries = most_files = 200

    def is_one(self, file: Path) -> bool:
        """Tell such a log by a line in its beginning."""
        return MARK.search(beginning_of(file, _BEGINNING)) is not None

    def open_dump(self, path: Path) -> Dump:
        """List the logs of ranks, or the only log."""
        logs = self.files_at(path)
        numbers = [number_in_name(log.stem, _RANK) for log in logs]
        if len(logs) > 1 and len(set(known(numbers))) < len(logs):
            raise several_at(path, logs)
        listings = map(SliceListing, map(partial(Coordinates, None), ranks_of(numbers)), logs)
        return self.dump(path, listings, attributes={"framework": "pytorch"})

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read the calls of a log, modules after what they contain."""
        log = Bounds.around(dump.path).require(listing.directory)
        text = read_whole(log, _LARGEST).decode("utf-8", "backslashreplace")
        nodes = tuple(_Tree(log).read(known(map(parse_line, text.splitlines()))))
        if not nodes:
            raise DumpUnreadableError(Message.of("dumps.debug_mode.no_call"), path=log)
        return Slice(listing, nodes)


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
        name, call = self._called(line)
        self._open.append(_Open(line.indent, name, printable(line.name).partition(".")[2], call))

    def _operator(self, line: Line) -> Node:
        name, call = self._called(line)
        operator = _as_registered(printable(line.name))
        tensors = with_distinct_keys(
            _record(role, value, self._log)
            for role, values in ((Role.INPUT, line.inputs), (Role.OUTPUT, line.outputs))
            for value in values
        )
        return self._node(name, operator, NodeKind.API, operator, call, tensors)

    def _called(self, line: Line) -> tuple[str, int]:
        """Return a name for the node of a line that no other has, and which call it is."""
        written = printable(line.name)
        call = self._calls[written]
        self._calls[written] += 1
        return distinct(f"{written} (call {call})" if call else written, self._taken), call

    def _node(
        self, name: str, path: str, kind: NodeKind, type_name: str, call: int, tensors: Tensors
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
