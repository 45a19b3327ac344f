"""Time how nodes are matched where there are very many: two runs whose last layer is repeated.

    .venv/bin/python benchmarks/many_nodes.py [--nodes 100000] [--only NAME]

Pairs of `tests/dumps`, two frameworks, two implementations and one code of which modules were renamed, get
as many copies of their last layer until a side has so many nodes on average; the values of each copy are its
own. Prints for each pair, measured in a process of its own: nodes of both sides, how many of the target's are
matched, and with a node of another copy, seconds of the processor and by the clock, and the most memory used.
"""

import argparse
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from msgspec.structs import replace

from firstdrift.dumps.detect import open_dump
from firstdrift.matching.cross_framework.layer_ops import layer_nodes
from firstdrift.matching.match import match_slices
from firstdrift.matching.plan import MatchingRules, SlicePlan
from firstdrift.matching.tree import build_tree, is_operator
from firstdrift.model.node import Node
from firstdrift.model.slice import Slice
from firstdrift.model.tensor import TensorRecord
from firstdrift.parallel.slices import read_slice

DUMPS: Final = Path(__file__).parent.parent / "tests" / "dumps"
PAIRS: Final = {
    "two frameworks": (("msit/llama4_bf16",), ("msit/atb4_bf16",)),
    "two implementations": (
        ("implementations/llama_healthy", "golden"),
        ("implementations/llama_healthy", "target"),
    ),
    "renamed": (("msprobe/d4_renamed", "golden"), ("msprobe/d4_renamed", "target")),
}
"""Golden and target: the archive, and the folder in it."""

MARK: Final = "~"
"""What stands before the number of a copy in names of nodes, so that it is seen whose copy a node is."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--only", choices=PAIRS)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.here:
        print(measured(chosen.only, chosen.nodes))
        return
    print("| | golden nodes | target nodes | matched | with another copy | s (processor) | s (clock) | MB |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in [chosen.only] if chosen.only else PAIRS:
        command = [sys.executable, __file__, "--here", "--only", name, "--nodes", str(chosen.nodes)]
        subprocess.run(command, check=True)


def measured(name: str, nodes: int) -> str:
    """Match a pair and return a line of the table."""
    with TemporaryDirectory() as folder:
        golden, target = repeated([read(Path(folder), side) for side in PAIRS[name]], nodes)
        started = time.perf_counter(), time.process_time()
        plan = match_slices(golden, target, MatchingRules())
        clock, processor = time.perf_counter() - started[0], time.process_time() - started[1]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    pairs = list(matched(plan))
    other = sum(copy_of(one) != copy_of(two) for one, two in pairs)
    share = sum(len(match.target) for match in plan.matches) / len(target.nodes)
    counts = f"{len(golden.nodes):,} | {len(target.nodes):,} | {share:.1%} | {other}"
    return f"| {name} | {counts} | {processor:.1f} | {clock:.1f} | {memory:.0f} |"


def matched(plan: SlicePlan) -> Iterator[tuple[str, str]]:
    """Yield each golden node with each target node it is matched with."""
    return ((one, two) for match in plan.matches for one in match.golden for two in match.target)


def copy_of(name: str) -> str:
    """Return the number of the copy that a node is in; nothing of what was recorded."""
    return name.partition(MARK)[2].partition(".")[0]


def read(folder: Path, side: tuple[str, ...]) -> Slice:
    """Unpack a dump and read a slice of it: that of a generated token, of those there are."""
    archive, *inside = side
    if not (folder / Path(archive).name).exists():
        command = ("tar", "-x", "--no-same-owner", "-f", DUMPS / f"{archive}.tar.xz", "-C", folder)
        subprocess.run(command, check=True)
    dump = open_dump(folder.joinpath(Path(archive).name, *inside))
    return read_slice(dump, dump.slices[:2][-1])


class Layer(NamedTuple):
    """The last layer of a slice: it and all in it, in order, and where it ends among the nodes in order."""

    node: Node
    inside: list[Node]
    end: int


def repeated(sides: list[Slice], nodes: int) -> list[Slice]:
    """Repeat the last layer of two slices, equally often, until the two have so many nodes on average."""
    layers = list(map(last_layer, sides))
    lacking = 2 * nodes - sum(len(side.nodes) for side in sides)
    copies = range(1, 1 + round(lacking / sum(len(layer.inside) for layer in layers)))
    return [with_copies(side, layer, copies) for side, layer in zip(sides, layers, strict=True)]


def last_layer(of: Slice) -> Layer:
    """Find the last layer of a slice."""
    tree = build_tree(of)
    last = max(layer_nodes(tree), key=lambda at: tree.nodes[at].order)
    names = {tree.nodes[at].name for at in (last, *tree.inside(last))}
    ordered = in_order(of)
    end = max(at for at, node in enumerate(ordered) if node.name in names) + 1
    return Layer(tree.nodes[last], [node for node in ordered if node.name in names], end)


def in_order(of: Slice) -> list[Node]:
    """Return the nodes of a slice in the order of execution."""
    return sorted(of.nodes, key=lambda node: node.order)


def with_copies(of: Slice, layer: Layer, copies: range) -> Slice:
    """Put copies of a layer behind it."""
    names = {node.name for node in layer.inside}
    added = [copied(node, copy, layer.node, names) for copy in copies for node in layer.inside]
    ordered = in_order(of)
    whole = (*ordered[: layer.end], *added, *ordered[layer.end :])
    return replace(of, nodes=tuple(replace(node, order=at) for at, node in enumerate(whole)))


def copied(node: Node, copy: int, layer: Node, names: set[str]) -> Node:
    """Return a node of a copy of the layer, with names and values of its own."""
    number = int(re.findall(r"\d+", layer.path)[-1])
    path = (
        node.path
        if is_operator(node) and not node.path.startswith(layer.path)
        else renumbered(node.path, layer.path, number + copy)
    )
    parent = node.parent if node.parent not in names else named(node.parent, copy)
    tensors = tuple(scaled(record, 1.0 + copy / 7) for record in node.tensors)
    call = node.call + (1000 * copy if path == node.path else 0)
    return replace(node, name=named(node.name, copy), path=path, call=call, parent=parent, tensors=tensors)


def named(name: str | None, copy: int) -> str:
    """Name the copy of a node."""
    return f"{name}{MARK}{copy}"


def renumbered(path: str, layer: str, number: int) -> str:
    """Return a path in a layer of another number."""
    return re.sub(r"\d+(?!.*\d)", str(number), layer) + path.removeprefix(layer)


def scaled(record: TensorRecord, factor: float) -> TensorRecord:
    """Return a tensor of other statistics."""
    told = record.statistics
    if told is not None:
        values = {
            key: one and one * factor
            for key in ("maximum", "minimum", "mean", "norm")
            for one in (getattr(told, key),)
        }
        told = replace(told, **values)
    return replace(record, statistics=told, digest=None)


if __name__ == "__main__":
    main()
