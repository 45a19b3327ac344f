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

from firstdrift.dumps.msprobe.layout import DUMP_FILE, find_slices, read_header
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
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import is_file
from firstdrift.dumps.storage.json_file import read_json, read_json_if_present
from firstdrift.errors import DumpNotFoundError, DumpNotRecognisedError, DumpUnreadableError
from firstdrift.model.names import NameParts, parse_name
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Dump, Problem, Slice, SliceListing
from firstdrift.model.tensor import TensorRecord

CONSTRUCT_FILE: Final = "construct.json"
STACK_FILE: Final = "stack.json"

_KINDS: Final = {"module": NodeKind.MODULE, "api": NodeKind.API}
_DIRECTIONS: Final = {direction.value: direction for direction in Direction}


class MsprobeReader:
    """The `DumpReader` of msprobe's format."""

    def recognise(self, path: Path) -> tuple[str, ...]:
        """Return the evidence that a path is an msprobe dump; empty if it is not."""
        bounds = Bounds.around(path)
        for listing in find_slices(path).slices:
            file = listing.directory / DUMP_FILE
            where = _shown(file, path)
            if bounds.refusal(file):
                return (f"{where} is there, as a link",)
            header = read_header(file)
            if header is not None:
                said = ", ".join(f"{key} {value}" for key, value in header.items())
                return (f'{where} has "data" ({said})' if said else f'{where} has "data"',)
            beside = [name for name in (CONSTRUCT_FILE, STACK_FILE) if is_file(listing.directory / name)]
            if beside:
                return (f"{' and '.join(beside)} beside {where}",)
        return ()

    def open_dump(self, path: Path) -> Dump:
        """List the slices of a dump, from the names of its directories.

        Raises:
            DumpNotFoundError: there is nothing at the path.
            DumpNotRecognisedError: no dump.json lies there, or none that may be listed.
        """
        layout = find_slices(path)
        if not layout.slices and not os.path.lexists(path):
            raise DumpNotFoundError("there is nothing here", path=path)
        if not layout.slices:
            found = "; ".join(f"{problem.file}: {problem.reason}" for problem in layout.problems)
            raise DumpNotRecognisedError(
                f"no {DUMP_FILE} lies here" + (f" ({found})" if found else ""), path=path
            )
        file = layout.slices[0].directory / DUMP_FILE
        header = (not Bounds.around(path).refusal(file) and read_header(file)) or {}
        return Dump(
            path=path,
            format="msprobe",
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
            self._report(DUMP_FILE, ["it holds no records"])
        return Slice(self.listing, nodes, _order_origin(names, positions, last), tuple(self.problems))

    def _read_header(self) -> dict[str, Any]:
        file = self.listing.directory / DUMP_FILE
        read = read_json(self.bounds.require(file))
        if not isinstance(read.value, dict) or not isinstance(read.value.get("data"), dict):
            raise DumpUnreadableError('it holds no object "data"', path=file)
        self._report_repeated(DUMP_FILE, read.repeated_keys)
        return read.value

    def _read_construct(self, header: Mapping[str, Any]) -> Construct:
        try:
            read = read_json_if_present(self.bounds.require(self.listing.directory / CONSTRUCT_FILE))
        except DumpUnreadableError as error:
            self._report(CONSTRUCT_FILE, [f"{error.reason}; the tree is made from the names of modules"])
            return Construct()
        if read is None:
            if header.get("level") != "L1":
                self._report(CONSTRUCT_FILE, ["it is missing; the tree is made from the names of modules"])
            return Construct()
        construct = parse_construct(read.value)
        self._report_repeated(CONSTRUCT_FILE, read.repeated_keys)
        self._report(CONSTRUCT_FILE, construct.problems)
        return construct

    def _read_stacks(self) -> Stacks:
        try:
            return _read_stacks(self.listing.directory / STACK_FILE, self.bounds)
        except DumpUnreadableError as error:
            self._report(STACK_FILE, [error.reason])
            return {}

    def _read_tensors(
        self, data: Mapping[str, object], names: Mapping[str, NameParts]
    ) -> dict[str, tuple[TensorRecord, ...]]:
        reader = RecordReader(self.listing.directory / DATA_FOLDER, self.bounds)
        found: dict[str, tuple[TensorRecord, ...]] = {}
        for name, record in data.items():
            problems: list[str] = []
            read = reader.gradients_of if names[name].holds_gradients else reader.tensors_of
            try:
                found[name] = read(record, problems)
            except RecursionError:
                problems.append("it is nested too deeply")
            if problems:
                self._report(DUMP_FILE, [f"record {name}: {problem}" for problem in problems])
        return found

    def _report(self, file: str, reasons: Iterable[str]) -> None:
        shown = _shown(self.listing.directory / file, self.dump.path)
        self.problems.extend(Problem(shown, reason) for reason in reasons)

    def _report_repeated(self, file: str, keys: Iterable[str]) -> None:
        self._report(file, [f"the key {key!r} is repeated; the last one counts" for key in keys])


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
) -> str:
    if not positions:
        return "derived from construct.json, which lists nodes in the order in which they began"
    if any(last[name] != at and names[name].direction == "forward" for name, at in positions.items()):
        return "recorded where modules began; each is placed after what it contains"
    return "recorded"


def _shown(file: Path, dump: Path) -> str:
    top = dump.parent if dump.name == DUMP_FILE else dump
    return str(file.relative_to(top)) if file.is_relative_to(top) else str(file)
