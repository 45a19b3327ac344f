"""What lies directly in a module of both runs, and what its rows hand on to each other."""

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.slice_pairs import SliceLabel
from firstdrift.catalogue.comparisons.tree import row_fields_at
from firstdrift.catalogue.dumps.nodes import nodes_named
from firstdrift.model.node import Node
from firstdrift.verdict.graph import Edge, Member, Place, edges_of


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
    wanted = {row for rows in modules.values() for row in rows} | {row for row in modules if row is not None}
    named = [*row_fields_at(session, pair.id, wanted, "tree.golden", "tree.target")]
    golden = _nodes(session, pair.golden_slice_id, {row: names for row, names, _ in named})
    target = _nodes(session, pair.target_slice_id, {row: names for row, _, names in named})
    return {
        module: Layer(module, tuple(rows), _edges(golden, module, rows), _edges(target, module, rows))
        for module, rows in modules.items()
    }


def _nodes(
    session: Session, slice_id: int, names: Mapping[int, Collection[str]]
) -> dict[int, tuple[Node, ...]]:
    """Look up the nodes of rows on one side; rows without one are left out."""
    known = nodes_named(session, slice_id, {name for some in names.values() for name in some})
    found = {row: tuple(known[name] for name in some if name in known) for row, some in names.items()}
    return {row: nodes for row, nodes in found.items() if nodes}


def _edges(nodes: Mapping[int, tuple[Node, ...]], module: Place, rows: Sequence[int]) -> tuple[Edge, ...]:
    own = () if module is None else nodes.get(module, ())
    return edges_of(own, [Member(row, nodes[row]) for row in rows if row in nodes])
