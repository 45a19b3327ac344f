"""The graph of a module: what it holds, and which of it hands a tensor on to which, in one of the runs.

    hidden_states ─┬─▶ input_layernorm ─▶ self_attn ─▶ add.0 ─┬─▶ norm ─▶ mlp ─▶ add.1 ─▶ output
                   └────────────────────────────────────▲     └────────────────────▲

A tensor is told by its values: an output that equals a later input was handed on. Where no value tells what a
node was given, it follows on the node that ran before it.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct

from firstdrift.matching.structure.statistics_similarity import value_key
from firstdrift.model.node import Node
from firstdrift.model.tensor import INPUT, OUTPUT, Role, TensorRecord

Place: TypeAlias = int | None
"""A row in the module; None for the module itself, which is given something and gives something."""

Shape: TypeAlias = tuple[int, ...]


class Member(Struct, frozen=True):
    """A row of a module, with its nodes in one of the runs."""

    row: int
    nodes: tuple[Node, ...]

    @property
    def order(self) -> int:
        """When it had run."""
        return max(node.order for node in self.nodes)


class Edge(Struct, frozen=True, gc=False):
    """From one node of a module to the next.

    Attributes:
        source: the row that gives; None for the module, which was given it.
        goal: the row that takes; None for the module, which gives it on.
        shapes: of the tensors that are handed on; none where only the order is known.
        by_order: nothing tells what the goal was given: the source is what ran before it.
    """

    source: Place
    goal: Place
    shapes: tuple[Shape, ...]
    by_order: bool = False


def edges_of(module: Sequence[Node], members: Iterable[Member]) -> tuple[Edge, ...]:
    """Find what the rows of a module hand on to each other in one of the runs."""
    flow = _Flow(module)
    before: Place = None
    for member in sorted(members, key=lambda member: member.order):
        flow.take(member.row, member.nodes, before)
        flow.give(member.row, member.nodes)
        before = member.row
    flow.end(module)
    return tuple(flow.edges())


class _Flow:
    """Who has which tensor, as the module runs."""

    def __init__(self, module: Sequence[Node]) -> None:
        self._holders: dict[Hashable, Place] = {}
        self._shapes: dict[tuple[Place, Place], list[Shape]] = {}
        self._followers: list[tuple[Place, Place]] = []
        self._keep(None, _tensors(module, INPUT))

    def take(self, row: int, nodes: Sequence[Node], before: Place) -> None:
        """Note what a row is given, or else what it follows on."""
        if not self._connect(row, _tensors(nodes, INPUT)) and before is not None:
            self._followers.append((before, row))

    def give(self, row: int, nodes: Sequence[Node]) -> None:
        """Note what a row gives."""
        self._keep(row, _tensors(nodes, OUTPUT))

    def end(self, module: Sequence[Node]) -> None:
        """Note what the module gives."""
        self._connect(None, _tensors(module, OUTPUT))

    def edges(self) -> Iterator[Edge]:
        """List what was found."""
        for (source, goal), shapes in self._shapes.items():
            yield Edge(source, goal, tuple(dict.fromkeys(shapes)))
        for source, goal in self._followers:
            yield Edge(source, goal, (), by_order=True)

    def _keep(self, holder: Place, tensors: Iterable[tuple[Hashable, TensorRecord]]) -> None:
        for key, _ in tensors:
            self._holders[key] = holder

    def _connect(self, goal: Place, tensors: Iterable[tuple[Hashable, TensorRecord]]) -> bool:
        is_known = False
        for key, record in tensors:
            source = self._holders.get(key, goal)
            if source == goal:  # nobody has it, or the module gives what it was given
                continue
            self._shapes.setdefault((source, goal), []).append(record.shape or ())
            is_known = True
        return is_known


def _tensors(nodes: Iterable[Node], role: Role) -> Iterator[tuple[Hashable, TensorRecord]]:
    for node in nodes:
        for record in node.records(role):
            if (key := value_key(record)) is not None:
                yield key, record
