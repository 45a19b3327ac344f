"""Read the dumps of msprobe (levels L0, L1 and mix).

    DUMP/step0/rank0/dump.json            values: {"task", "level", "framework", "data": {name: record}}
                    /construct.json       {name: name of the module around it}
                    /stack.json           call stacks
                    /dump_tensor_data/    tensors, where they were saved

Any directory from the dump down to the one that holds dump.json may be given, or dump.json itself.

What was saved at single points of a program (level debug, `debugger.save(value, name)`) has another file:

    DUMP/step0/rank0/debug.json           {"task", "level": "debug", "framework", "data": {name: value}}

    "logits.1.debug"         what was saved as "logits" for the second time in this step
    "logits_grad.1.debug"    its gradient, which came later, in the backward pass

There is no tree: each value that was saved is a node of its own, in the order of the calls of `save`.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.msprobe.layout import (
    DUMP_FILE,
    DUMP_MARK,
    JsonDumpReader,
    SliceFiles,
    mark_of,
    read_header,
    read_record,
    said_of,
)
from firstdrift.dumps.msprobe.records import DATA_FOLDER, Record, RecordReader
from firstdrift.dumps.msprobe.tree import (
    RECOMPUTED,
    Construct,
    Stacks,
    parse_construct,
    quick_construct,
    tree_of,
    tree_without_stacks,
)
from firstdrift.dumps.msprobe.typed_records import typed_dump
from firstdrift.dumps.nodes import call_node, module_node
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import is_file
from firstdrift.dumps.storage.json_file import read_json_if_present
from firstdrift.errors import DumpUnreadableError
from firstdrift.model.names import holds_gradients
from firstdrift.model.node import Direction
from firstdrift.model.slice import RECORDED_ORDER, Dump, OrderOrigin, OrderSource, Slice, SliceListing
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.wording.message import Message, joined

CONSTRUCT_FILE: Final = "construct.json"
STACK_FILE: Final = "stack.json"

_NO_CONSTRUCT: Final = Construct()
_TREE_FROM_NAMES: Final = Message.of("dumps.msprobe.tree_from_names")


class MsprobeReader(JsonDumpReader):
    """The `DumpReader` of msprobe's format."""

    format = "msprobe"
    title = Message.of("dumps.msprobe.title")
    marks = (DUMP_FILE,)
    mark = DUMP_MARK

    def recognise(self, path: Path) -> tuple[Message, ...]:
        """Return the evidence that a path is an msprobe dump; empty if it is not."""
        bounds = Bounds.around(path)
        reasons = (self._evidence(listing.directory, path, bounds) for listing in self.layout(path).slices)
        return next(((reason,) for reason in reasons if reason), ())

    def _evidence(self, folder: Path, path: Path, bounds: Bounds) -> Message | None:
        file = folder / DUMP_FILE
        where = self.shown(file, path)
        if bounds.refusal(file):
            return Message.of("dumps.msprobe.file_is_a_link", file=where)
        header = read_header(file)
        if header is not None:
            which = "file_with_data" if header else "file_with_bare_data"
            return Message.of(f"dumps.msprobe.{which}", file=where, header=said_of(header))
        beside = tuple(name for name in (CONSTRUCT_FILE, STACK_FILE) if is_file(folder / name))
        return Message.of("dumps.msprobe.files_beside", files=beside, file=where) if beside else None

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read the nodes and tensors of a slice, without tensor data."""
        return _SliceReader(self, dump, listing).read(listing)

    def read_stacks(self, dump: Dump, listing: SliceListing) -> Mapping[str, tuple[str, ...]]:
        """Return the call stack of each forward node, innermost frame first; {} where none were recorded."""
        return _read_stacks(listing.directory / STACK_FILE, Bounds.around(dump.path))


def _read_stacks(file: Path, bounds: Bounds) -> Stacks:
    read = read_json_if_present(bounds.require(file))
    return parse_stacks(read.value) if read else {}


def parse_stacks(recorded: object) -> Stacks:
    """Take the contents of stack.json apart: `{name: [frame]}` or, since 8.3.3, `{n: [[name], [frame]]}`."""
    found: dict[str, tuple[str, ...]] = {}
    for key, value in recorded.items() if isinstance(recorded, dict) else ():
        match value:
            case [[*names], [*frames]]:
                shared = tuple(map(str, frames))
                found.update((str(name), shared) for name in names)
            case [*frames]:
                found[key] = tuple(map(str, frames))
    return found


class _SliceReader(SliceFiles):
    """Reads one slice: its nodes, the tree around them, and their tensors."""

    @cached_property
    def _tensors(self) -> RecordReader:
        return RecordReader(self.folder / DATA_FOLDER, self.bounds)

    def read(self, listing: SliceListing) -> Slice:
        header = self.read_data(partial(typed_dump, self._read_record))
        records = {name: self._read_record(name, found) for name, found in header["data"].items()}
        construct = self._read_construct(header)
        recomputed = frozenset(name for name, record in records.items() if record.is_recomputed)
        given = construct, tuple(records), recomputed
        tree = tree_without_stacks(*given) or tree_of(*given, self._read_stacks)
        self.report(CONSTRUCT_FILE, tree.circles)
        self.report(DUMP_FILE, chain.from_iterable(record.problems for record in records.values()))
        nodes = tuple(
            call_node(
                name,
                tree.names[name],
                index,
                tree.parents[name],
                records[name].tensors if name in records else (),
                tree.micro_steps.get(name),
            )
            for index, name in enumerate(tree.order)
        )
        if not nodes:
            self.report(DUMP_FILE, [Message.of("dumps.msprobe.no_records")])
        return Slice(listing, nodes, tree.origin, tuple(self.problems))

    def _read_record(self, name: str, recorded: object) -> Record:
        if isinstance(recorded, Record):
            return recorded
        read = self._tensors.gradients_of if holds_gradients(name) else self._tensors.tensors_of
        tensors, problems = read_record(name, partial(read, recorded))
        again = isinstance(recorded, dict) and recorded.get(RECOMPUTED) is True
        return Record(tensors, problems, is_recomputed=again)

    def _read_construct(self, header: Mapping[str, Any]) -> Construct:
        try:
            read = read_json_if_present(self.bounds.require(self.folder / CONSTRUCT_FILE), quick_construct)
        except DumpUnreadableError as error:
            return self._without_construct(error.message)
        if read is None:
            missing = None if header.get("level") == "L1" else Message.of("dumps.file.missing")
            return self._without_construct(missing)
        construct = read.value if isinstance(read.value, Construct) else parse_construct(read.value)
        self.report_repeated(CONSTRUCT_FILE, read)
        self.report(CONSTRUCT_FILE, construct.problems)
        return construct

    def _without_construct(self, reason: Message | None) -> Construct:
        self.report(CONSTRUCT_FILE, [joined(reason, _TREE_FROM_NAMES)] if reason else [])
        return _NO_CONSTRUCT

    def _read_stacks(self) -> Stacks:
        try:
            return _read_stacks(self.folder / STACK_FILE, self.bounds)
        except DumpUnreadableError as error:
            self.report(STACK_FILE, [error.message])
            return {}


DEBUG_FILE: Final = "debug.json"

_SAVED: Final = re.compile(r"(?P<name>.+)\.(?P<count>0|[1-9][0-9]{0,17})\.debug", re.ASCII | re.DOTALL)
_GRADIENT: Final = "_grad"
_GRADIENTS_LAST: Final = OrderOrigin(OrderSource.RECORDED, Message.of("dumps.order.gradients_last"))


class _Saved(Struct, frozen=True):
    """What the name of a saved value says.

    Attributes:
        name: as `save` was told it.
        count: how often it had been saved in this step before.
        is_gradient: whether it is the gradient of what was saved under this name.
    """

    name: str
    count: int
    is_gradient: bool


class MsprobeDebugReader(JsonDumpReader):
    """The `DumpReader` of single points."""

    format = "msprobe-debug"
    title = Message.of("dumps.msprobe.debug_title")
    marks = (DEBUG_FILE,)
    mark = mark_of(DEBUG_FILE)

    def recognise(self, path: Path) -> tuple[Message, ...]:
        """Return the evidence that values were saved at single points; empty if there is none."""
        slices = self.layout(path).slices
        return (self._evidence(slices[0].directory / DEBUG_FILE, path),) if slices else ()

    def _evidence(self, file: Path, path: Path) -> Message:
        shown = self.shown(file, path)
        if Bounds.around(path).refusal(file):
            return Message.of("dumps.msprobe.file_is_a_link", file=shown)
        if header := read_header(file):
            return Message.of("dumps.msprobe.file_with_header", file=shown, header=said_of(header))
        return Message.of("dumps.msprobe.file", file=shown)

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read the values of a slice, without tensor data."""
        files = SliceFiles(self, dump, listing)
        data = files.read_data()["data"]
        reader = RecordReader(files.folder / DATA_FOLDER, files.bounds)
        saved = _taken_apart(data)

        def read(name: str, problems: list[Message]) -> tuple[TensorRecord, ...]:
            return _tensors(reader, data[name], saved[name], problems)

        tensors = files.read_records(data, read)
        if not data:
            files.report(DEBUG_FILE, [Message.of("dumps.msprobe.nothing_saved")])
        nodes = tuple(
            module_node(
                name,
                saved[name].name,
                order,
                None,
                tensors.get(name, ()),
                direction=Direction.BACKWARD if saved[name].is_gradient else Direction.NONE,
                call=saved[name].count,
            )
            for order, name in enumerate(_in_order(saved))
        )
        has_gradients = any(value.is_gradient for value in saved.values())
        order = _GRADIENTS_LAST if has_gradients else RECORDED_ORDER
        return Slice(listing, nodes, order, tuple(files.problems))


def _taken_apart(names: Iterable[str]) -> dict[str, _Saved]:
    """Say what each name stands for; "x_grad" is a gradient where "x" was saved as often."""
    known = {name: _SAVED.fullmatch(name) for name in names}
    saved: dict[str, _Saved] = {}
    for whole, match in known.items():
        name, count = (match["name"], int(match["count"])) if match else (whole, 0)
        of = name.removesuffix(_GRADIENT)
        is_gradient = of != name and f"{of}.{count}.debug" in known
        saved[whole] = _Saved(of if is_gradient else name, count, is_gradient)
    return saved


def _tensors(
    reader: RecordReader, value: object, saved: _Saved, problems: list[Message]
) -> tuple[TensorRecord, ...]:
    holds_several = isinstance(value, list) or (
        isinstance(value, dict) and not isinstance(value.get("type"), str)
    )
    tensors = reader.tensors_of({"output": value if holds_several else [value]}, problems)
    return tuple(replace(tensor, role=Role.GRADIENT) for tensor in tensors) if saved.is_gradient else tensors


def _in_order(saved: Mapping[str, _Saved]) -> list[str]:
    """Put gradients after all else, in the opposite order: msprobe lists each beside its value."""
    forward = [name for name, value in saved.items() if not value.is_gradient]
    backward = [name for name, value in saved.items() if value.is_gradient]
    return forward + backward[::-1]
