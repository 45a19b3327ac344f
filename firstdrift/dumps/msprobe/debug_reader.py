"""Read what msprobe saves at single points of a program (level debug, `debugger.save(value, name)`).

    DUMP/step0/rank0/debug.json           {"task", "level": "debug", "framework", "data": {name: value}}
                    /dump_tensor_data/    tensors, where they were saved

    "logits.1.debug"         what was saved as "logits" for the second time in this step
    "logits_grad.1.debug"    its gradient, which came later, in the backward pass

There is no tree: each value that was saved is a node of its own, in the order of the calls of `save`.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.msprobe.layout import Layout, Mark, find_slices, read_header, said_of
from firstdrift.dumps.msprobe.records import DATA_FOLDER, RecordReader
from firstdrift.dumps.reader import DumpReader
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import is_folder, printable
from firstdrift.dumps.storage.json_file import read_json
from firstdrift.errors import DumpNotRecognisedError, DumpUnreadableError
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
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.wording.message import Message

DEBUG_FILE: Final = "debug.json"

_MARK: Final = Mark(
    DEBUG_FILE, lambda entries: any(entry.name == DEBUG_FILE and not is_folder(entry) for entry in entries)
)
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


class MsprobeDebugReader(DumpReader):
    """The `DumpReader` of single points."""

    format = "msprobe-debug"
    title = Message.of("dumps.msprobe.debug_title")
    marks = (DEBUG_FILE,)

    def recognise(self, path: Path) -> tuple[Message, ...]:
        """Return the evidence that values were saved at single points; empty if there is none."""
        for listing in _slices(path).slices:
            file = listing.directory / DEBUG_FILE
            shown = _shown(file, path)
            if Bounds.around(path).refusal(file):
                return (Message.of("dumps.msprobe.file_is_a_link", file=shown),)
            if header := read_header(file):
                return (Message.of("dumps.msprobe.file_with_header", file=shown, header=said_of(header)),)
            return (Message.of("dumps.msprobe.file", file=shown),)
        return ()

    def open_dump(self, path: Path) -> Dump:
        """List the slices of a dump, from the names of its directories.

        Raises:
            DumpNotRecognisedError: no debug.json lies there, or none that may be listed.
        """
        layout = _slices(path)
        if not layout.slices:
            raise DumpNotRecognisedError(Message.of("dumps.msprobe.no_file", name=DEBUG_FILE), path=path)
        file = layout.slices[0].directory / DEBUG_FILE
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
        """Read the values of a slice, without tensor data.

        Raises:
            DumpUnreadableError: its debug.json is damaged, or a link that leads out of the dump.
        """
        bounds = Bounds.around(dump.path)
        file = listing.directory / DEBUG_FILE
        read = read_json(bounds.require(file))
        if not isinstance(read.value, dict) or not isinstance(read.value.get("data"), dict):
            raise DumpUnreadableError(Message.of("dumps.msprobe.no_data"), path=file)
        data = read.value["data"]
        reasons = [Message.of("dumps.json.key_repeated", key=repr(key)) for key in read.repeated_keys]
        reader = RecordReader(listing.directory / DATA_FOLDER, bounds)
        saved = _taken_apart(data)
        tensors: dict[str, tuple[TensorRecord, ...]] = {}
        for name in data:
            problems: list[Message] = []
            try:
                tensors[name] = _tensors(reader, data[name], saved[name], problems)
            except RecursionError:
                problems.append(Message.of("dumps.record.nested_too_deeply"))
            reasons += [Message.of("dumps.record.problem", record=name, problem=each) for each in problems]
        if not data:
            reasons.append(Message.of("dumps.msprobe.nothing_saved"))
        nodes = tuple(
            _node(name, saved[name], tensors.get(name, ()), order)
            for order, name in enumerate(_in_order(saved))
        )
        shown = _shown(file, dump.path)
        has_gradients = any(one.is_gradient for one in saved.values())
        return Slice(
            listing,
            nodes,
            _GRADIENTS_LAST if has_gradients else RECORDED_ORDER,
            tuple(Problem(shown, reason) for reason in reasons),
        )


def _slices(path: Path) -> Layout:
    return find_slices(path.parent if path.name == DEBUG_FILE else path, _MARK)


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
    reader: RecordReader,
    value: object,
    saved: _Saved,
    problems: list[Message],
) -> tuple[TensorRecord, ...]:
    is_leaf = not isinstance(value, list) and not (
        isinstance(value, dict) and not isinstance(value.get("type"), str)
    )
    found = reader.tensors_of({"output": [value] if is_leaf else value}, problems)
    return tuple(replace(one, role=Role.GRADIENT) for one in found) if saved.is_gradient else found


def _in_order(saved: Mapping[str, _Saved]) -> list[str]:
    """Put gradients after all else, in the opposite order: msprobe lists each beside its value."""
    forward = [name for name, one in saved.items() if not one.is_gradient]
    backward = [name for name, one in saved.items() if one.is_gradient]
    return forward + backward[::-1]


def _node(name: str, saved: _Saved, tensors: tuple[TensorRecord, ...], order: int) -> Node:
    return Node(
        name=name,
        path=saved.name,
        kind=NodeKind.MODULE,
        type_name="",
        direction=Direction.BACKWARD if saved.is_gradient else Direction.NONE,
        call=saved.count,
        order=order,
        parent=None,
        tensors=tensors,
    )


def _shown(file: Path, dump: Path) -> str:
    top = dump.parent if dump.name == DEBUG_FILE else dump
    return printable(os.path.relpath(file, top) if file.is_relative_to(top) else str(file))
