"""Which experts of a mixture ranks hold, where it is spread over them (expert parallelism).

    rank 0   mlp.gate [.., 4]   mlp.experts.0  mlp.experts.1      the experts 0 and 1 of the model
    rank 1   mlp.gate [.., 4]   mlp.experts.0  mlp.experts.1      the experts 2 and 3

The router tells how many there are in all. Ranks that share each expert (tensor parallel) give it the same
rows; those that have their own do not.
"""

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, starmap, takewhile
from math import prod
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.groups import grouped, known
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Slice
from firstdrift.model.tensor import Role
from firstdrift.operators.paths import expert_of_block, is_named_after_experts
from firstdrift.wording.message import Message

OWN_EXPERTS: Final = Message.of("dumps.ranks.own_experts")
"""Why what ranks did beside experts of their own is not compared: no shape tells which part it is."""


def without_experts(path: str) -> str:
    """Return the path of a module without the number of the expert that it is in, and what follows."""
    match = expert_of_block(path)
    return match["list"] if match else path


def with_own_experts(stage: Mapping[int, Slice]) -> Mapping[int, Slice]:
    """Number the experts of each rank of a stage as those of the model, where each rank has its own."""
    count = _experts_of_each(stage)
    if count is None:
        return stage
    return {
        rank: replace(part, nodes=tuple(_numbered_on(node, place * count) for node in part.nodes))
        for place, (rank, part) in enumerate(sorted(stage.items()))
    }


def done_for_own_experts(stage: Mapping[int, Slice]) -> dict[int, frozenset[str]]:
    """Name, for each rank of a stage, the operators that it ran around experts that it alone has.

    What runs between two experts of a block runs for one of them; so does the like before the first and after
    the last.
    """
    lines: defaultdict[_Call, dict[int, _BlockCall]] = defaultdict(dict)
    for rank, part in stage.items():
        for call, line in _blocks(part.nodes).items():
            lines[call][rank] = line
    names: dict[int, set[str]] = {rank: set() for rank in stage}
    for of_ranks in filter(_have_own_experts, lines.values()):
        types = set().union(*(line.types for line in of_ranks.values()))
        for rank, line in of_ranks.items():
            names[rank].update(line.operators_of(types))
    return {rank: frozenset(operators) for rank, operators in names.items()}


def done_for_experts(nodes: Sequence[Node], blocks: Container[str]) -> frozenset[str]:
    """Name the operators that ran for one of the experts of some blocks, likewise."""
    lines = [line for (path, *_), line in _blocks(nodes).items() if path in blocks]
    types = set().union(*(line.types for line in lines))
    return frozenset(chain.from_iterable(line.operators_of(types) for line in lines))


class _BlockCall(Struct, frozen=True):
    """A call of a block with experts: its experts and the operators beside them, in execution order.

    Attributes:
        before: the operators before the first expert; the nearest first.
        between: from the first expert to the last.
        after: the operators after the last expert.
    """

    before: Sequence[Node]
    between: Sequence[Node]
    after: Sequence[Node]

    @property
    def experts(self) -> frozenset[str]:
        """The paths of the experts."""
        return frozenset(node.path for node in self.between if not _is_operator(node))

    @property
    def types(self) -> frozenset[str]:
        """What the operators between the experts are called."""
        return frozenset(node.type_name for node in self.between if _is_operator(node))

    def operators_of(self, types: Container[str]) -> Iterator[str]:
        """Yield the names of the operators between the experts, and of those of some types next to them."""
        for nodes in (self.before, self.after):
            yield from (node.name for node in takewhile(lambda node: node.type_name in types, nodes))
        yield from (node.name for node in self.between if _is_operator(node))


def _have_own_experts(lines: Mapping[int, _BlockCall]) -> bool:
    experts = (line.experts for line in lines.values())
    return len(lines) > 1 and all(starmap(frozenset.isdisjoint, combinations(experts, 2)))


_Call = tuple[str, int, Direction]
"""A call of a block: path, number and pass."""


def _blocks(nodes: Sequence[Node]) -> dict[_Call, _BlockCall]:
    """Return each call of a block that has experts."""
    inside = grouped(filter(_is_operator_or_expert, nodes), lambda node: node.parent)
    calls: dict[_Call, _BlockCall] = {}
    for block in nodes:
        line = inside.get(block.name, [])
        if not all(map(_is_operator, line)):
            calls.setdefault((block.path, block.call, block.direction), _block_call(line))
    return calls


def _block_call(nodes: Iterable[Node]) -> _BlockCall:
    line = sorted(nodes, key=lambda node: node.order)
    places = [at for at, node in enumerate(line) if not _is_operator(node)]
    first, end = places[0], places[-1] + 1
    return _BlockCall(line[:first][::-1], line[first:end], line[end:])


def _is_operator(node: Node) -> bool:
    return node.kind is NodeKind.API


def _is_expert(node: Node) -> bool:
    """Tell an expert from what is inside it, and from operators."""
    match = _place_in_expert(node)
    return match is not None and not match["rest"]


def _place_in_expert(node: Node) -> re.Match[str] | None:
    return None if _is_operator(node) else expert_of_block(node.path)


def _is_operator_or_expert(node: Node) -> bool:
    return _is_operator(node) or _is_expert(node)


def _numbered_on(node: Node, shift: int) -> Node:
    match = _place_in_expert(node)
    if match is None or not shift:
        return node
    return replace(node, path=f"{match['list']}.{int(match['number']) + shift}{match['rest']}")


def _experts_of_each(stage: Mapping[int, Slice]) -> int | None:
    """Return how many experts each rank has that are numbered from 0 on all; None if they are not."""
    rows = [dict(_rows(part)) for part in stage.values()]
    if not all(rows) or all(each == rows[0] for each in rows):
        return None
    totals = set(chain.from_iterable(map(_totals, stage.values())))
    count, rest = divmod(totals.pop(), len(stage)) if len(totals) == 1 else (0, 0)
    experts = known(map(expert_of_block, chain.from_iterable(rows)))
    highest = max(int(match["number"]) for match in experts)
    return count if not rest and max(1, highest) < count else None


def _rows(part: Slice) -> Iterator[tuple[str, int]]:
    """Yield how many rows each expert was given in the first pass."""
    for node in filter(_is_expert, part.nodes):
        shapes = [record.shape for record in node.records(Role.INPUT) if record.shape]
        if shapes and node.direction is not Direction.BACKWARD and node.call == 0:
            yield node.path, prod(shapes[0][:-1])


def _totals(part: Slice) -> Iterator[int]:
    """Say of each block with experts how wide the scores of its router are: none beside is narrower."""
    experts = known(expert_of_block(node.path) for node in part.nodes)
    widths: dict[str, list[int]] = {match["block"]: [] for match in experts}
    for node in part.nodes:
        block, _, name = node.path.rpartition(".")
        if block in widths and not _is_operator(node) and not is_named_after_experts(name):
            widths[block] += _output_widths(node)
    return map(min, filter(None, widths.values()))


def _output_widths(node: Node) -> Iterator[int]:
    """Yield how wide the outputs of a node are that hold more than one number for each token."""
    shapes = (record.shape for record in node.records(Role.OUTPUT) if record.is_tensor)
    return (shape[-1] for shape in filter(None, shapes) if shape[-1] > 1)
