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
from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from firstdrift.dumps.containers.contents import number_in, sizes_in
from firstdrift.dumps.msprobe.records import canonical_dtype
from firstdrift.dumps.reader import FilesReader
from firstdrift.dumps.recorded_calls import Recorded, nodes_of
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import printable, ranks_of, read_whole
from firstdrift.errors import DumpUnreadableError
from firstdrift.groups import firsts, known
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Dump, Slice, SliceListing
from firstdrift.model.tensor import Role, Statistics, TensorRecord
from firstdrift.wording.message import Message

_FILE: Final = re.compile(r"rank_(?P<rank>[0-9]{1,9})_activations\.log", re.ASCII)
_LARGEST: Final = 512 * 2**20
_HEAD: Final = re.compile(
    r"\[(?P<module>[^\]\n]{0,2000}?)/?op_(?P<number>[0-9]{1,9})_(?P<name>[^\]\n/]{1,200})\]"
)
_SHAPE: Final = re.compile(
    r"  Shape: torch\.Size\(\[(?P<sizes>[0-9, ]*)\]\), Dtype: (?P<dtype>\S+)", re.ASCII
)
_NUMBER: Final = re.compile(r"  (?P<name>L2 norm|Min|Max|Mean): +(?P<number>\S+)", re.ASCII)
_PHASE: Final = "  Phase: backward"


class TitanReader(FilesReader):
    """The `DumpReader` of logs of activations of torchtitan."""

    format = "torchtitan"
    title = Message.of("dumps.titan.title")
    evidence = "dumps.titan.logs"
    suffixes = frozenset({".log"})
    most_entries = most_files = 20_000

    def is_one(self, file: Path) -> bool:
        """Tell such a log by its name."""
        return _FILE.fullmatch(file.name) is not None

    def open_dump(self, path: Path) -> Dump:
        """List the ranks."""
        named = ((_FILE.fullmatch(log.name), log) for log in self.files_at(path))
        logs = {int(match["rank"]): log for match, log in named if match}
        ranks = ranks_of(list(logs))
        listings = map(SliceListing, map(partial(Coordinates, None), ranks), logs.values())
        return self.dump(path, listings, attributes={"framework": "pytorch"})

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read the operators of a rank, in the order in which they ran."""
        log = Bounds.around(dump.path).require(listing.directory)
        text = read_whole(log, _LARGEST).decode("utf-8", "backslashreplace")
        nodes = nodes_of(_recorded(text.splitlines()))
        if not nodes:
            raise DumpUnreadableError(Message.of("dumps.titan.no_activation"), path=log)
        return Slice(listing, tuple(_as_operators(nodes)))


def _recorded(lines: list[str]) -> Iterator[Recorded]:
    """Yield what each block says of the output of an operator."""
    heads = [(at, head) for at, line in enumerate(lines) if (head := _HEAD.fullmatch(line))]
    ends = [*firsts(heads[1:]), len(lines)]
    for (start, head), end in zip(heads, ends, strict=False):
        block = lines[start + 1 : end]
        module, name = printable(head["module"]), printable(head["name"])
        path = f"{module}.op_{head['number']}_{name}".lstrip(".")
        direction = Direction.BACKWARD if _PHASE in block else Direction.FORWARD
        record = _record(block)
        yield Recorded(path, Role.OUTPUT, "0", (record,), direction, type_name=f"Aten.{name}")


def _record(block: list[str]) -> TensorRecord:
    shape = next(filter(None, map(_SHAPE.fullmatch, block)), None)
    numbers = {match["name"]: number_in(match["number"]) for match in known(map(_NUMBER.fullmatch, block))}
    statistics = list(map(numbers.get, ("Max", "Min", "Mean", "L2 norm")))
    record = TensorRecord(Role.OUTPUT, "0", "", None)
    if shape is not None:
        dtype = printable(canonical_dtype(shape["dtype"]))
        record = replace(record, dtype=dtype, shape=sizes_in(shape["sizes"]))
    if None in statistics or record.shape is None:
        return replace(record, problem=Message.of("dumps.titan.cut_short"))
    return replace(record, statistics=Statistics(*statistics))


def _as_operators(nodes: tuple[Node, ...]) -> Iterator[Node]:
    """Make operators of the nodes that have a name of one; each is called again where another is."""
    calls: Counter[str] = Counter()
    for node in nodes:
        if not node.type_name:
            yield node
            continue
        yield replace(node, kind=NodeKind.API, path=node.type_name, call=calls[node.type_name])
        calls[node.type_name] += 1
