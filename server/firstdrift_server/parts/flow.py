"""Where a node stands in the flow of data: what made its inputs, and what takes its outputs.

    Tensor.__mul__.28 ─▶ Functional.linear.10 ─▶ Tensor.__add__.21

A node of a dump of operators has a name that counts calls: its neighbours tell where in the model it is.
"""

from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter
from typing import Final

from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.layers import Layer, load_layers
from firstdrift.catalogue.comparisons.slice_pairs import SliceLabel
from firstdrift.catalogue.comparisons.tree import row_fields_at
from firstdrift.groups import known
from firstdrift.model.node import Direction, NodeKind
from firstdrift.verdict.graph import Edge, Place
from firstdrift.verdict.tree import TreeRow
from firstdrift_server.parts.addresses import node_address

REACH: Final = 200
"""Neighbours are looked for among so many rows before a node, and so many after it."""

NAMED: Final = 3
"""So many neighbours are named in each direction, the nearest ones."""


class Neighbour(Struct, frozen=True):
    """A node that hands a tensor to another, or takes one of it."""

    label: str
    address: str


class Flow(Struct, frozen=True):
    """The neighbours of a node that lie in the same module, in the target's run or else in golden's.

    Attributes:
        sources: have outputs that equal its inputs; the nearest first, at most `NAMED`.
        more_sources: so many more there are.
        goals: have inputs that equal its outputs; likewise.
        by_order: no value tells what an operator of the forward pass was given: its source ran before it.
    """

    sources: tuple[Neighbour, ...]
    more_sources: int
    goals: tuple[Neighbour, ...]
    more_goals: int
    by_order: bool


def flow_of(session: Session, pair: SliceLabel, row: TreeRow) -> Flow:
    """Find what hands a row its inputs, and what takes its outputs."""
    near = _beside(session, pair, row)
    layer = load_layers(session, pair, {row.parent: tuple(near)})[row.parent]
    follows = row.kind is NodeKind.API and row.direction is not Direction.BACKWARD
    edges = [edge for edge in _of_one_run(layer, row) if follows or not edge.by_order]
    coming = [edge for edge in edges if edge.goal == row.index]
    going = [edge for edge in edges if _hands_on(edge, row.index)]
    sources, goals = _nearest(row.index, map(_SOURCE, coming)), _nearest(row.index, map(_GOAL, going))
    return Flow(
        tuple(_named(pair, near, sources[:NAMED])),
        len(sources[NAMED:]),
        tuple(_named(pair, near, goals[:NAMED])),
        len(goals[NAMED:]),
        by_order=any(map(attrgetter("by_order"), coming)),
    )


def _of_one_run(layer: Layer, row: TreeRow) -> tuple[Edge, ...]:
    return layer.target if row.target else layer.golden


def _hands_on(edge: Edge, row: Place) -> bool:
    return edge.source == row and not edge.by_order


def _beside(session: Session, pair: SliceLabel, row: TreeRow) -> Mapping[int, str]:
    """Return the labels of a row and of those beside it in the same module, by their indexes."""
    near = range(max(0, row.index - REACH), row.last + REACH + 1)
    found = row_fields_at(session, pair.id, near, "tree.parent", "tree.label")
    return {index: label for index, parent, label in found if parent == row.parent}


_SOURCE, _GOAL = attrgetter("source"), attrgetter("goal")


def _nearest(row: int, others: Iterable[Place]) -> list[int]:
    return sorted(known(others), key=lambda other: (abs(other - row), other))


def _named(pair: SliceLabel, labels: Mapping[int, str], rows: Collection[int]) -> Iterable[Neighbour]:
    for row in rows:
        yield Neighbour(labels[row], node_address(pair.comparison_id, pair.position, row))
