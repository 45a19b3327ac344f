"""Make one node of the nodes that the ranks of a pipeline stage have at the same place.

rank 0   linear.0   add.0   linear.1          ┐ linear: rank 0, 1    add: rank 0    linear: rank 0, 1
rank 1   linear.0           linear.1          ┘
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.groups import positions
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Slice
from firstdrift.operators.properties import runs_after_the_passes
from firstdrift.parallel.expert_parallel import OWN_EXPERTS, done_for_own_experts


class MergedNode(Struct, frozen=True):
    """A node of a merged slice before it is finished.

    Attributes:
        held: what each rank has of it; of a module around several stages, what there is of it where the
            data come in and go out.
        parent: index of the node around it; None at the top.
        path: as `Node.path` in the merged slice; likewise call and micro_step.
        alike: whether each of the ranks should have the same tensors.
    """

    held: Mapping[int, Node]
    parent: int | None
    path: str
    call: int
    micro_step: int | None
    alike: bool = True

    @property
    def node(self) -> Node:
        """What the first of its ranks has of it."""
        return next(iter(self.held.values()))

    @property
    def is_operator(self) -> bool:
        """Whether it is a call of an operator, not a module."""
        return self.node.kind is NodeKind.API

    @property
    def is_backward(self) -> bool:
        """Whether it is of the backward pass."""
        return self.node.direction is Direction.BACKWARD


def merge_stage(stage: Mapping[int, Slice]) -> list[MergedNode]:
    """Make one node of the nodes that ranks have at the same place; in execution order.

    What the first rank did not run comes before what its rank ran next and the first rank ran as well.
    """
    identities: dict[Hashable, int] = {}
    held: dict[int, dict[int, Node]] = defaultdict(dict)
    places: dict[int, tuple[int, int, int]] = {}
    parents: dict[int, int | None] = {}
    leader = min(stage)
    apart = done_for_own_experts(stage)
    for rank, part in sorted(stage.items()):
        own = _identify(part, identities, apart[rank])
        anchor = len(stage[leader].nodes)
        for place, node in reversed(list(enumerate(part.nodes))):
            identity = own[node.name]
            places.setdefault(identity, (place, 1, 0) if rank == leader else (anchor, 0, place))
            anchor = places[identity][0]
            held[identity][rank] = _left_alone(node) if node.name in apart[rank] else node
            parents[identity] = own.get(node.parent or "")
    ordered = sorted(held, key=places.__getitem__)
    index: dict[int | None, int] = positions(ordered)
    return [_merged(held[identity], index.get(parents[identity])) for identity in ordered]


def _merged(held: Mapping[int, Node], parent: int | None) -> MergedNode:
    first = next(iter(held.values()))
    return MergedNode(held, parent, first.path, first.call, first.micro_step)


def _left_alone(node: Node) -> Node:
    """Let nobody compare what a rank did for its own experts."""
    tensors = (
        replace(record, problem=record.problem or OWN_EXPERTS) if record.is_tensor else record
        for record in node.tensors
    )
    return replace(node, tensors=tuple(tensors))


def _identify(part: Slice, identities: dict[Hashable, int], apart: frozenset[str]) -> dict[str, int]:
    """Number the nodes of a slice, so that nodes of two ranks at the same place have the same number.

    The place is that in the tree: the k-th of its name below its parent. Call numbers say nothing, they
    shift where one rank runs an operator more. Nodes that are apart are those of that rank alone.
    """
    numbers: dict[str, int] = {}
    seen: Counter[Hashable] = Counter()
    for node in _from_the_top(part.nodes):
        own = part.coordinates.rank if node.name in apart else None
        around = numbers.get(node.parent or "")
        place = (around, node.kind, node.path, node.type_name, node.direction, own)
        numbers[node.name] = identities.setdefault((place, seen[place]), len(identities))
        seen[place] += 1
    return numbers


def _from_the_top(nodes: Sequence[Node]) -> Iterator[Node]:
    """Yield each node after those around it; where nodes lie in one another, one of them is the outermost."""
    by_name = {node.name: node for node in nodes}
    yielded: set[str] = set()
    for node in nodes:
        above: Node | None = node
        chain: dict[str, Node] = {}
        while above is not None and above.name not in yielded and above.name not in chain:
            chain[above.name] = above
            above = by_name.get(above.parent or "")
        yielded.update(chain)
        yield from reversed(chain.values())


def select(nodes: Sequence[MergedNode], places: Sequence[int]) -> list[MergedNode]:
    """Return the nodes at some places alone; what is around one of them, if it is not there, is forgotten."""
    new: dict[int | None, int] = positions(places)
    return [replace(nodes[at], parent=new.get(nodes[at].parent)) for at in places]


def parents_first(nodes: Sequence[MergedNode]) -> list[int]:
    """Return the indices of nodes so that each comes after the one around it."""
    children: dict[int | None, list[int]] = defaultdict(list)
    for at, merged in enumerate(nodes):
        children[merged.parent].append(at)
    ordered = list(children[None])
    for at in ordered:  # grows while it is gone through
        ordered += children[at]
    return ordered


def outermost_modules(nodes: Sequence[MergedNode]) -> list[int | None]:
    """Return for each node the outermost module around it, or itself if it is one; None if there is none."""
    tops: dict[int | None, int | None] = {None: None}
    for at in parents_first(nodes):
        merged = nodes[at]
        is_call = not merged.is_operator and not runs_after_the_passes(merged.path)
        above = tops[merged.parent]
        tops[at] = at if above is None and is_call else above
    return list(map(tops.get, range(len(nodes))))
