"""Read the statistics of activations that torchtitan writes of a training step.

    outputs/numerics/rank_0_activations.log

    [layers.0.attention.qkv_linear.wq/op_0_mm]
      Shape: torch.Size([16384, 256]), Dtype: torch.float32
      L1 norm:  1.066932e+06
      L2 norm:  6.550494e+02
      Min:      -1.275938e+00
      Max:      1.309514e+00
      Mean:     4.200000e-05
      Phase: backward

An operator is told by its module, its number there and its name. Numbers have seven digits.
"""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from firstdrift.dumps.containers.contents import LARGEST_NUMBER, DamagedError, shape_of
from firstdrift.dumps.msprobe.records import canonical_dtype
from firstdrift.dumps.reader import DumpReader
from firstdrift.dumps.recorded_calls import Recorded, nodes_of
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import files_in, first_names, is_file, printable
from firstdrift.errors import DumpUnreadableError
from firstdrift.files import read_regular, said_by_system
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Dump, Slice, SliceListing
from firstdrift.model.tensor import Role, Statistics, TensorRecord
from firstdrift.wording.message import Message

_FILE: Final = re.compile(r"rank_(?P<rank>[0-9]{1,9})_activations\.log", re.ASCII)
_MOST_FILES: Final = 20_000
_LARGEST: Final = 512 * 2**20
_HEAD: Final = re.compile(
    r"\[(?P<module>[^\]\n]{0,2000}?)/?op_(?P<number>[0-9]{1,9})_(?P<name>[^\]\n/]{1,200})\]"
)
_SHAPE: Final = re.compile(
    r"  Shape: torch\.Size\(\[(?P<sizes>[0-9, ]*)\]\), Dtype: (?P<dtype>\S+)", re.ASCII
)
_NUMBER: Final = re.compile(r"  (?P<name>L2 norm|Min|Max|Mean): +(?P<number>\S+)", re.ASCII)
_PHASE: Final = "  Phase: backward"


class TitanReader(DumpReader):
    """The `DumpReader` of logs of activations of torchtitan."""

    format = "torchtitan"
    title = Message.of("dumps.titan.title")

    def recognise(self, path: Path) -> tuple[Message, ...]:
        """Return the evidence that a path is such a log, or holds those of ranks; empty if it does not."""
        names = first_names([log.name for log in _logs(path).values()])
        return (Message.of("dumps.titan.logs", files=names),) if names else ()

    def is_marked(self, folder: Path) -> bool:
        """Tell whether such a log lies in a folder."""
        return bool(_logs(folder))

    def open_dump(self, path: Path) -> Dump:
        """List the ranks."""
        logs = _logs(path)
        if not logs:
            raise self.none_at(path)
        is_only = len(logs) == 1
        listings = [
            SliceListing(Coordinates(rank=None if is_only else rank), log) for rank, log in logs.items()
        ]
        return self.dump(path, listings, attributes={"framework": "pytorch"})

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read the operators of a rank, in the order in which they ran."""
        log = Bounds.around(dump.path).require(listing.directory)
        try:
            text = read_regular(log, most=_LARGEST).decode("utf-8", "backslashreplace")
        except OSError as exc:
            unreadable = Message.of("dumps.file.unreadable", error=said_by_system(exc))
            raise DumpUnreadableError(unreadable, path=log) from exc
        nodes = nodes_of(_recorded(text.splitlines()))
        if not nodes:
            raise DumpUnreadableError(Message.of("dumps.titan.no_activation"), path=log)
        return Slice(listing, tuple(_as_operators(nodes)))


def _logs(path: Path) -> dict[int, Path]:
    """Return the logs at a path by rank."""
    candidates = [path] if is_file(path) else files_in(path, _MOST_FILES)
    named = ((_FILE.fullmatch(file.name), file) for file in candidates)
    return {int(match["rank"]): file for match, file in named if match}


def _recorded(lines: list[str]) -> Iterator[Recorded]:
    """Yield what each block says of the output of an operator."""
    starts = [at for at, line in enumerate(lines) if _HEAD.fullmatch(line)]
    for start, end in pairwise([*starts, len(lines)]):
        head = _HEAD.fullmatch(lines[start])
        if head is None:
            continue
        block = lines[start + 1 : end]
        module, name = printable(head["module"]), printable(head["name"])
        path = f"{module}.op_{head['number']}_{name}".lstrip(".")
        direction = Direction.BACKWARD if _PHASE in block else Direction.FORWARD
        record = _record(block)
        yield Recorded(path, Role.OUTPUT, "0", (record,), direction, type_name=f"Aten.{name}")


def _record(block: list[str]) -> TensorRecord:
    shape = next((match for line in block if (match := _SHAPE.fullmatch(line))), None)
    said = [match for line in block if (match := _NUMBER.fullmatch(line))]
    numbers = {match["name"]: _number(match["number"]) for match in said}
    dtype = canonical_dtype(shape["dtype"]) if shape else ""
    record = TensorRecord(Role.OUTPUT, "0", printable(dtype), _sizes(shape["sizes"]) if shape else None)
    if len(numbers) < 4 or any(value is None for value in numbers.values()) or record.shape is None:  # noqa: PLR2004
        return replace(record, problem=Message.of("dumps.titan.cut_short"))
    statistics = Statistics(numbers["Max"], numbers["Min"], numbers["Mean"], numbers["L2 norm"])
    return replace(record, statistics=statistics)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _sizes(text: str) -> tuple[int, ...] | None:
    words = text.replace(",", " ").split()
    if any(len(word) > len(str(LARGEST_NUMBER)) for word in words):
        return None
    try:
        return shape_of([int(word) for word in words])
    except DamagedError:
        return None


def _as_operators(nodes: tuple[Node, ...]) -> Iterator[Node]:
    """Make operators of the nodes that have a name of one; each is called again where another is."""
    calls: Counter[str] = Counter()
    for node in nodes:
        if not node.type_name:
            yield node
            continue
        yield replace(node, kind=NodeKind.API, path=node.type_name, call=calls[node.type_name])
        calls[node.type_name] += 1
