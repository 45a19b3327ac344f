"""Read what msprobe saves at single points of a program (level debug, `debugger.save(value, name)`).

    DUMP/step0/rank0/debug.json           {"task", "level": "debug", "framework", "data": {name: value}}
                    /dump_tensor_data/    tensors, where they were saved

    "logits.1.debug"         what was saved as "logits" for the second time in this step
    "logits_grad.1.debug"    its gradient, which came later, in the backward pass

There is no tree: each value that was saved is a node of its own, in the order of the calls of `save`.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.msprobe.json_dump import JsonDumpReader, SliceFiles
from firstdrift.dumps.msprobe.layout import mark_of, read_header, said_of
from firstdrift.dumps.msprobe.records import DATA_FOLDER, RecordReader
from firstdrift.dumps.nodes import module_node
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.model.node import Direction
from firstdrift.model.slice import RECORDED_ORDER, Dump, OrderOrigin, OrderSource, Slice, SliceListing
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.wording.message import Message

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
