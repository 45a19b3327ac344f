"""What lies directly in a module of both runs, and what its rows hand on to each other."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.slice_pairs import SliceLabel
from firstdrift.catalogue.comparisons.tree import row_fields_at
from firstdrift.catalogue.dumps.nodes import nodes_named
from firstdrift.groups import known_items
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


def load_layer(session: Session, pair: SliceLabel, row: Place, rows: Sequence[int]) -> Layer:
    """Read what lies directly in a module: `rows` are those below it in the tree."""
    wanted = {*rows} if row is None else {*rows, row}
    named = [*row_fields_at(session, pair.id, wanted, "tree.golden", "tree.target")]
    golden = {index: names for index, names, _ in named}
    target = {index: names for index, _, names in named}
    return Layer(
        row,
        tuple(rows),
        _edges(_nodes(session, pair.golden_slice_id, golden), row),
        _edges(_nodes(session, pair.target_slice_id, target), row),
    )


def _nodes(
    session: Session, slice_id: int, names: Mapping[int, Collection[str]]
) -> dict[int, tuple[Node, ...]]:
    """Look up the nodes of rows on one side; rows without one are left out."""
    known = nodes_named(session, slice_id, {name for some in names.values() for name in some})
    found = {row: tuple(_known(known, some)) for row, some in names.items()}
    return known_items({row: nodes or None for row, nodes in found.items()})


def _known(nodes: Mapping[str, Node], names: Collection[str]) -> Iterator[Node]:
    return (nodes[name] for name in names if name in nodes)


def _edges(nodes: Mapping[int, tuple[Node, ...]], module: Place) -> tuple[Edge, ...]:
    own = () if module is None else nodes.get(module, ())
    return edges_of(own, [Member(row, some) for row, some in nodes.items() if row != module])
