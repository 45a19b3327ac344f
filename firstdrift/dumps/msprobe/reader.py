"""Read the dumps of msprobe (levels L0, L1 and mix).

    DUMP/step0/rank0/dump.json            values: {"task", "level", "framework", "data": {name: record}}
                    /construct.json       {name: name of the module around it}
                    /stack.json           call stacks
                    /dump_tensor_data/    tensors, where they were saved

Any directory from the dump down to the one that holds dump.json may be given, or dump.json itself.
"""

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final

from firstdrift.dumps.msprobe.json_dump import JsonDumpReader, SliceFiles
from firstdrift.dumps.msprobe.layout import DUMP_FILE, DUMP_MARK, read_header, said_of
from firstdrift.dumps.msprobe.recomputed import recomputed_in, without_recomputed
from firstdrift.dumps.msprobe.records import DATA_FOLDER, RecordReader
from firstdrift.dumps.msprobe.tree import (
    Construct,
    Stacks,
    finish_order,
    last_positions,
    micro_steps,
    parse_construct,
    repair_parents,
)
from firstdrift.dumps.nodes import call_node
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import is_file
from firstdrift.dumps.storage.json_file import read_json_if_present
from firstdrift.errors import DumpUnreadableError
from firstdrift.model.names import NameParts, parse_name
from firstdrift.model.slice import RECORDED_ORDER, Dump, OrderOrigin, OrderSource, Slice, SliceListing
from firstdrift.model.tensor import TensorRecord
from firstdrift.wording.message import Message, joined

CONSTRUCT_FILE: Final = "construct.json"
STACK_FILE: Final = "stack.json"

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

    def read(self, listing: SliceListing) -> Slice:
        header = self.read_data()
        data = header["data"]
        construct = self._read_construct(header)
        names = {name: parse_name(name) for name in _all_names(construct, data)}
        recomputed = recomputed_in(data)
        parents, circles = repair_parents(names, construct, data, self._read_stacks, recomputed)
        self.report(CONSTRUCT_FILE, circles)
        positions = {name: position for position, name in enumerate(data)}
        last = last_positions(parents, positions)
        order = finish_order(parents, last)
        steps = micro_steps(order, parents, names, construct.micro_steps)
        tensors = self._read_tensors(data, names)
        names_of_calls = without_recomputed(names, recomputed)
        nodes = tuple(
            call_node(
                name, names_of_calls[name], index, parents[name], tensors.get(name, ()), steps.get(name)
            )
            for index, name in enumerate(order)
        )
        if not nodes:
            self.report(DUMP_FILE, [Message.of("dumps.msprobe.no_records")])
        return Slice(listing, nodes, _order_origin(names, positions, last), tuple(self.problems))

    def _read_construct(self, header: Mapping[str, Any]) -> Construct:
        try:
            read = read_json_if_present(self.bounds.require(self.folder / CONSTRUCT_FILE))
        except DumpUnreadableError as error:
            return self._without_construct(error.message)
        if read is None:
            missing = None if header.get("level") == "L1" else Message.of("dumps.file.missing")
            return self._without_construct(missing)
        construct = parse_construct(read.value)
        self.report_repeated(CONSTRUCT_FILE, read)
        self.report(CONSTRUCT_FILE, construct.problems)
        return construct

    def _without_construct(self, reason: Message | None) -> Construct:
        self.report(CONSTRUCT_FILE, [joined(reason, _TREE_FROM_NAMES)] if reason else [])
        return Construct()

    def _read_stacks(self) -> Stacks:
        try:
            return _read_stacks(self.folder / STACK_FILE, self.bounds)
        except DumpUnreadableError as error:
            self.report(STACK_FILE, [error.message])
            return {}

    def _read_tensors(
        self, data: Mapping[str, object], names: Mapping[str, NameParts]
    ) -> dict[str, tuple[TensorRecord, ...]]:
        reader = RecordReader(self.folder / DATA_FOLDER, self.bounds)

        def read(name: str, problems: list[Message]) -> tuple[TensorRecord, ...]:
            of_kind = reader.gradients_of if names[name].holds_gradients else reader.tensors_of
            return of_kind(data[name], problems)

        return self.read_records(data, read)


def _all_names(construct: Construct, data: Mapping[str, object]) -> dict[str, None]:
    around = (parent for parent in construct.parents.values() if parent is not None)
    return dict.fromkeys(chain(construct.parents, data, around))


def _order_origin(
    names: Mapping[str, NameParts], positions: Mapping[str, int], last: Mapping[str, int]
) -> OrderOrigin:
    if not positions:
        return OrderOrigin(OrderSource.DERIVED, Message.of("dumps.order.from_beginnings"))
    if any(last[name] != at and names[name].direction == "forward" for name, at in positions.items()):
        return OrderOrigin(OrderSource.RECORDED, Message.of("dumps.order.recorded_at_beginning"))
    return RECORDED_ORDER
