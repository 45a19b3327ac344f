"""Read the dumps of msprobe (levels L0, L1 and mix).

    DUMP/step0/rank0/dump.json            values: {"task", "level", "framework", "data": {name: record}}
                    /construct.json       {name: name of the module around it}
                    /stack.json           call stacks
                    /dump_tensor_data/    tensors, where they were saved

Any directory from the dump down to the one that holds dump.json may be given, or dump.json itself.
"""

import os
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final

from firstdrift.dumps.msprobe.layout import DUMP_FILE, find_slices, read_header, said_of
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
from firstdrift.dumps.reader import DumpReader
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import is_file
from firstdrift.dumps.storage.json_file import read_json, read_json_if_present
from firstdrift.dumps.storage.listed_files import problem_of_file
from firstdrift.errors import DumpNotFoundError, DumpNotRecognisedError, DumpUnreadableError
from firstdrift.model.names import NameParts, parse_name
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import (
    RECORDED_ORDER,
    Dump,
    OrderOrigin,
    OrderSource,
    Problem,
    Slice,
    SliceListing,
)
from firstdrift.model.tensor import TensorRecord
from firstdrift.wording.message import Message, joined

CONSTRUCT_FILE: Final = "construct.json"
STACK_FILE: Final = "stack.json"

_TREE_FROM_NAMES: Final = Message.of("dumps.msprobe.tree_from_names")
_KINDS: Final = {"module": NodeKind.MODULE, "api": NodeKind.API}
_DIRECTIONS: Final = {direction.value: direction for direction in Direction}


class MsprobeReader(DumpReader):
    """The `DumpReader` of msprobe's format."""

    format = "msprobe"
    title = Message.of("dumps.msprobe.title")
    marks = (DUMP_FILE,)

    def recognise(self, path: Path) -> tuple[Message, ...]:
        """Return the evidence that a path is an msprobe dump; empty if it is not."""
        bounds = Bounds.around(path)
        for listing in find_slices(path).slices:
            file = listing.directory / DUMP_FILE
            where = _shown(file, path)
            if bounds.refusal(file):
                return (Message.of("dumps.msprobe.file_is_a_link", file=where),)
            header = read_header(file)
            if header is not None:
                which = "file_with_data" if header else "file_with_bare_data"
                return (Message.of(f"dumps.msprobe.{which}", file=where, header=said_of(header)),)
            beside = [name for name in (CONSTRUCT_FILE, STACK_FILE) if is_file(listing.directory / name)]
            if beside:
                return (Message.of("dumps.msprobe.files_beside", files=tuple(beside), file=where),)
        return ()

    def open_dump(self, path: Path) -> Dump:
        """List the slices of a dump, from the names of its directories.

        Raises:
            DumpNotFoundError: there is nothing at the path.
            DumpNotRecognisedError: no dump.json lies there, or none that may be listed.
        """
        layout = find_slices(path)
        if not layout.slices and not os.path.lexists(path):
            raise DumpNotFoundError(Message.of("dumps.nothing_here"), path=path)
        if not layout.slices:
            found = tuple(problem_of_file(problem.file, problem.reason) for problem in layout.problems)
            none = Message.of("dumps.msprobe.no_file", name=DUMP_FILE)
            raise DumpNotRecognisedError(joined(none, *found), path=path)
        file = layout.slices[0].directory / DUMP_FILE
        header = (not Bounds.around(path).refusal(file) and read_header(file)) or {}
        return Dump(
            path=path,
            format=self.format,
            evidence=self.recognise(path),
            slices=layout.slices,
            problems=tuple(
                Problem(_shown(Path(problem.file), path), problem.reason) for problem in layout.problems
            ),
            attributes=header | ({"ranks": layout.rank_origin} if layout.rank_origin else {}),
        )

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read the nodes and tensors of a slice, without tensor data.

        Raises:
            DumpUnreadableError: its dump.json is damaged.
        """
        return _SliceReader(dump, listing).read()

    def read_stacks(self, dump: Dump, listing: SliceListing) -> Mapping[str, tuple[str, ...]]:
        """Return the call stack of each forward node, innermost frame first; {} where none were recorded.

        Raises:
            DumpUnreadableError: stack.json is damaged, or a link that leads out of the dump.
        """
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


class _SliceReader:
    """Reads one slice, gathering what could not be used."""

    def __init__(self, dump: Dump, listing: SliceListing) -> None:
        self.dump = dump
        self.listing = listing
        self.bounds = Bounds.around(dump.path)
        self.problems: list[Problem] = []

    def read(self) -> Slice:
        header = self._read_header()
        data = header["data"]
        construct = self._read_construct(header)
        names = {name: parse_name(name) for name in _all_names(construct, data)}
        parents, circles = repair_parents(names, construct, data, self._read_stacks)
        self._report(CONSTRUCT_FILE, circles)
        positions = {name: position for position, name in enumerate(data)}
        last = last_positions(parents, positions)
        order = finish_order(parents, last)
        steps = micro_steps(order, parents, names, construct.micro_steps)
        tensors = self._read_tensors(data, names)
        nodes = tuple(
            _node(name, names[name], index, parents[name], tensors.get(name, ()), steps.get(name))
            for index, name in enumerate(order)
        )
        if not nodes:
            self._report(DUMP_FILE, [Message.of("dumps.msprobe.no_records")])
        return Slice(self.listing, nodes, _order_origin(names, positions, last), tuple(self.problems))

    def _read_header(self) -> dict[str, Any]:
        file = self.listing.directory / DUMP_FILE
        read = read_json(self.bounds.require(file))
        if not isinstance(read.value, dict) or not isinstance(read.value.get("data"), dict):
            raise DumpUnreadableError(Message.of("dumps.msprobe.no_data"), path=file)
        self._report_repeated(DUMP_FILE, read.repeated_keys)
        return read.value

    def _read_construct(self, header: Mapping[str, Any]) -> Construct:
        try:
            read = read_json_if_present(self.bounds.require(self.listing.directory / CONSTRUCT_FILE))
        except DumpUnreadableError as error:
            self._report(CONSTRUCT_FILE, [joined(error.message, _TREE_FROM_NAMES)])
            return Construct()
        if read is None:
            if header.get("level") != "L1":
                self._report(CONSTRUCT_FILE, [joined(Message.of("dumps.file.missing"), _TREE_FROM_NAMES)])
            return Construct()
        construct = parse_construct(read.value)
        self._report_repeated(CONSTRUCT_FILE, read.repeated_keys)
        self._report(CONSTRUCT_FILE, construct.problems)
        return construct

    def _read_stacks(self) -> Stacks:
        try:
            return _read_stacks(self.listing.directory / STACK_FILE, self.bounds)
        except DumpUnreadableError as error:
            self._report(STACK_FILE, [error.message])
            return {}

    def _read_tensors(
        self, data: Mapping[str, object], names: Mapping[str, NameParts]
    ) -> dict[str, tuple[TensorRecord, ...]]:
        reader = RecordReader(self.listing.directory / DATA_FOLDER, self.bounds)
        found: dict[str, tuple[TensorRecord, ...]] = {}
        for name, record in data.items():
            problems: list[Message] = []
            read = reader.gradients_of if names[name].holds_gradients else reader.tensors_of
            try:
                found[name] = read(record, problems)
            except RecursionError:
                problems.append(Message.of("dumps.record.nested_too_deeply"))
            self._report(
                DUMP_FILE,
                [Message.of("dumps.record.problem", record=name, problem=each) for each in problems],
            )
        return found

    def _report(self, file: str, reasons: Iterable[Message]) -> None:
        shown = _shown(self.listing.directory / file, self.dump.path)
        self.problems.extend(Problem(shown, reason) for reason in reasons)

    def _report_repeated(self, file: str, keys: Iterable[str]) -> None:
        self._report(file, [Message.of("dumps.json.key_repeated", key=repr(key)) for key in keys])


def _all_names(construct: Construct, data: Mapping[str, object]) -> dict[str, None]:
    around = (parent for parent in construct.parents.values() if parent is not None)
    return dict.fromkeys(chain(construct.parents, data, around))


def _node(
    name: str,
    parts: NameParts,
    order: int,
    parent: str | None,
    tensors: tuple[TensorRecord, ...],
    micro_step: int | None,
) -> Node:
    return Node(
        name=name,
        path=parts.path,
        kind=_KINDS[parts.kind],
        type_name=parts.type_name,
        direction=_DIRECTIONS[parts.direction],
        call=parts.call,
        order=order,
        parent=parent,
        tensors=tensors,
        micro_step=micro_step,
    )


def _order_origin(
    names: Mapping[str, NameParts], positions: Mapping[str, int], last: Mapping[str, int]
) -> OrderOrigin:
    if not positions:
        return OrderOrigin(OrderSource.DERIVED, Message.of("dumps.order.from_beginnings"))
    if any(last[name] != at and names[name].direction == "forward" for name, at in positions.items()):
        return OrderOrigin(OrderSource.RECORDED, Message.of("dumps.order.recorded_at_beginning"))
    return RECORDED_ORDER


def _shown(file: Path, dump: Path) -> str:
    top = dump.parent if dump.name == DUMP_FILE else dump
    return str(file.relative_to(top)) if file.is_relative_to(top) else str(file)
