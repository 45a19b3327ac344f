"""What lies directly in a module of both runs, and what its rows hand on to each other."""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.slice_pairs import SliceLabel
from firstdrift.catalogue.comparisons.tree import pairs_of_rows, row_fields_at
from firstdrift.catalogue.dumps.nodes import nodes_named
from firstdrift.groups import fields_of, known
from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.model.node import Node
from firstdrift.model.tensor import DataLocation, Statistics, TensorRecord
from firstdrift.verdict.graph import Edge, Member, Place, edges_of

Nodes: TypeAlias = tuple[Node, ...]
Measured: TypeAlias = dict[tuple[str, str, DataLocation | None], Statistics]
"""Statistics by the name of a node, the label of a tensor, and where its values lie."""


class Layer(Struct, frozen=True):
    """What lies directly in a module, laid over each other as in the tree.

    Attributes:
        row: of the module; None for what lies in none.
        rows: of what lies in it, in the order of execution.
        golden: what they hand on in the golden run; likewise target.
    """

    row: Place
    rows: tuple[int, ...]
    golden: tuple[Edge, ...]
    target: tuple[Edge, ...]


def load_layers(
    session: Session, pair: SliceLabel, modules: Mapping[Place, Sequence[int]]
) -> dict[Place, Layer]:
    """Read what lies directly in modules, by these: given are the rows below each in the tree."""
    golden, target = _sides(session, pair, frozenset(known((*modules, *chain(*modules.values())))))
    return {
        module: Layer(module, tuple(rows), _edges(golden, module, rows), _edges(target, module, rows))
        for module, rows in modules.items()
    }


def _sides(
    session: Session, pair: SliceLabel, rows: Collection[int]
) -> tuple[Mapping[int, Nodes], Mapping[int, Nodes]]:
    """Look up the nodes of rows on both sides, with what is known of their tensors."""
    named = [*row_fields_at(session, pair.id, rows, "tree.golden", "tree.target")]
    golden = _nodes(session, pair.golden_slice_id, {row: names for row, names, _ in named})
    target = _nodes(session, pair.target_slice_id, {row: names for row, _, names in named})
    if not (_are_silent(golden) or _are_silent(target)):
        return golden, target
    measured = _measured(session, pair, rows)
    return _completed(golden, measured), _completed(target, measured)


def _nodes(session: Session, slice_id: int, names: Mapping[int, Collection[str]]) -> dict[int, Nodes]:
    """Look up the nodes of rows on one side; rows without one are left out."""
    nodes_of = nodes_named(session, slice_id, frozenset(chain(*names.values())))
    found = {row: tuple(known(map(nodes_of.get, some))) for row, some in names.items()}
    return {row: nodes for row, nodes in found.items() if nodes}


def _are_silent(nodes: Mapping[int, Nodes]) -> bool:
    """Tell whether values were saved of which no statistics were recorded."""
    return any(
        map(_is_silent, (record for some in nodes.values() for node in some for record in node.tensors))
    )


def _is_silent(record: TensorRecord) -> bool:
    return record.location is not None and record.statistics is None and record.digest is None


def _measured(session: Session, pair: SliceLabel, rows: Collection[int]) -> Measured:
    """Give the statistics of tensors that were computed when they were compared."""
    found: Measured = {}
    for one in pairs_of_rows(session, pair.id, rows):
        plan, measured = one.plan, one.measurement
        if measured.kind is not MeasurementKind.DATA or plan.joining or plan.tokens:
            continue
        for node, record, summary in (
            (plan.golden_node, plan.golden, measured.golden),
            (plan.target_node, plan.target, measured.target),
        ):
            if summary is not None:
                numbers = fields_of(summary, Statistics.__struct_fields__)
                found[node, record.label, record.location] = Statistics(**numbers)
    return found


def _completed(nodes: Mapping[int, Nodes], measured: Measured) -> dict[int, Nodes]:
    """Add the statistics that were computed to tensors of which none were recorded."""

    def completed(node: Node) -> Node:
        tensors = tuple(
            replace(record, statistics=measured.get((node.name, record.label, record.location)))
            if _is_silent(record)
            else record
            for record in node.tensors
        )
        return replace(node, tensors=tensors)

    return {row: tuple(map(completed, some)) for row, some in nodes.items()}


def _edges(nodes: Mapping[int, Nodes], module: Place, rows: Sequence[int]) -> tuple[Edge, ...]:
    own = () if module is None else nodes.get(module, ())
    return edges_of(own, [Member(row, nodes[row]) for row in rows if row in nodes])
