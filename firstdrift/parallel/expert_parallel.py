"""Which experts of a mixture ranks hold, where it is spread over them (expert parallelism).

    rank 0   mlp.gate [.., 4]   mlp.experts.0  mlp.experts.1      the experts 0 and 1 of the model
    rank 1   mlp.gate [.., 4]   mlp.experts.0  mlp.experts.1      the experts 2 and 3

The router tells how many there are in all. Ranks that share each expert (tensor parallel) give it the same
rows; those that have their own do not.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import combinations, takewhile
from math import prod
from typing import Final

from msgspec.structs import replace

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
    blocks = {rank: _blocks(part) for rank, part in stage.items()}
    names = set().union(*(set(each) for each in blocks.values()))
    found: dict[int, set[str]] = {rank: set() for rank in stage}
    for name in names:
        lines = {rank: each[name] for rank, each in blocks.items() if name in each}
        experts = [frozenset(one.path for one in line if not _is_operator(one)) for line in lines.values()]
        if len(lines) < 2 or any(one & other for one, other in combinations(experts, 2)):  # noqa: PLR2004
            continue
        spans = {rank: _span(line) for rank, line in lines.items()}
        kinds = {
            one.type_name
            for rank, (first, last) in spans.items()
            for one in lines[rank][first : last + 1]
            if _is_operator(one)
        }
        for rank, line in lines.items():
            first, last = spans[rank]
            found[rank].update(
                one.name
                for one in (
                    *_alike(reversed(line[:first]), kinds),
                    *filter(_is_operator, line[first : last + 1]),
                    *_alike(line[last + 1 :], kinds),
                )
            )
    return {rank: frozenset(names) for rank, names in found.items()}


def _alike(nodes: Iterable[Node], kinds: Container[str]) -> Iterator[Node]:
    return takewhile(lambda node: node.type_name in kinds, nodes)


def _blocks(part: Slice) -> dict[tuple[str, Direction], list[Node]]:
    """Return the experts, and the operators beside them, of each call of a block; in execution order."""
    known = {node.name: node for node in part.nodes}
    experts: defaultdict[str, list[Node]] = defaultdict(list)
    for node in part.nodes:
        match = None if _is_operator(node) else expert_of_block(node.path)
        if match and not match["rest"] and node.parent is not None and node.parent in known:
            experts[node.parent].append(node)
    lines: dict[tuple[str, Direction], list[Node]] = {}
    if not experts:
        return lines
    operators: defaultdict[str, list[Node]] = defaultdict(list)
    for node in part.nodes:
        if _is_operator(node) and node.parent is not None and node.parent in experts:
            operators[node.parent].append(node)
    for name, own in experts.items():
        around = known[name]
        line = sorted((*own, *operators[name]), key=lambda node: node.order)
        lines.setdefault((f"{around.path} {around.call}", around.direction), line)
    return lines


def _span(line: list[Node]) -> tuple[int, int]:
    places = [at for at, one in enumerate(line) if not _is_operator(one)]
    return places[0], places[-1]


def _is_operator(node: Node) -> bool:
    return node.kind is NodeKind.API


def _numbered_on(node: Node, shift: int) -> Node:
    match = expert_of_block(node.path) if shift and node.kind is not NodeKind.API else None
    if match is None:
        return node
    return replace(node, path=f"{match['list']}.{int(match['number']) + shift}{match['rest']}")


def _experts_of_each(stage: Mapping[int, Slice]) -> int | None:
    """Return how many experts each rank has that are numbered from 0 on all; None if they are not."""
    if len(stage) < 2:  # noqa: PLR2004
        return None
    rows: dict[int, dict[str, int]] = {rank: dict(_rows(part)) for rank, part in stage.items()}
    if not all(rows.values()) or len({tuple(sorted(each.items())) for each in rows.values()}) == 1:
        return None
    numbers = [
        int(match["number"]) for each in rows.values() for path in each if (match := expert_of_block(path))
    ]
    totals = {total for part in stage.values() for total in _totals(part)}
    counts = {total // len(stage) for total in totals if total % len(stage) == 0 and total > len(stage)}
    fitting = [count for count in counts if max(numbers) < count]
    return fitting[0] if len(fitting) == len(totals) == 1 else None


def _rows(part: Slice) -> Iterator[tuple[str, int]]:
    """Yield how many rows each expert was given in the first pass."""
    for node in part.nodes:
        match = expert_of_block(node.path)
        if (
            match is None
            or match["rest"]
            or node.kind is NodeKind.API
            or node.direction is Direction.BACKWARD
        ):
            continue
        given = next((one for one in node.tensors if one.role is Role.INPUT and one.shape), None)
        if given is not None and given.shape and node.call == 0:
            yield node.path, prod(given.shape[:-1])


def _totals(part: Slice) -> Iterator[int]:
    """Yield for each block with experts how wide the scores of its router are: none beside is narrower."""
    blocks = {match["block"] for node in part.nodes if (match := expert_of_block(node.path))}
    widths: defaultdict[str, list[int]] = defaultdict(list)
    for node in part.nodes:
        block, _, name = node.path.rpartition(".")
        if node.kind is NodeKind.API or block not in blocks or is_named_after_experts(name):
            continue
        shapes = (one.shape for one in node.tensors if one.role is Role.OUTPUT and one.is_tensor)
        widths[block] += [shape[-1] for shape in shapes if shape and shape[-1] > 1]
    yield from (min(each) for each in widths.values() if each)
