"""Which nodes each side of a tree has: what two panes beside each other show, and where a name is found."""

from collections.abc import Collection, Iterable, Mapping

import numpy as np
from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.outline import Flags, Integers
from firstdrift.catalogue.comparisons.tree import row_fields, rows_of_nodes
from firstdrift.catalogue.dumps.nodes import nodes_named
from firstdrift.groups import known
from firstdrift.model.node import Node, NodeKind


class Sides(Struct, frozen=True, eq=False):
    """One element for each row of a tree, in pre-order.

    Attributes:
        golden: the row has a golden node; likewise target.
        doubtful: it is matched, but not compared until a person confirms it.
    """

    golden: Flags
    target: Flags
    doubtful: Flags


def load_sides(session: Session, slice_pair: int, rows: int) -> Sides:
    """Read which sides the rows of a slice pair have; `rows` is how many there are."""
    sides = Sides(np.ones(rows, np.bool_), np.ones(rows, np.bool_), np.zeros(rows, np.bool_))
    found = row_fields(session, slice_pair, "tree.golden", "tree.target", "doubtful")
    for index, (golden, target, doubtful) in enumerate(found):
        sides.golden[index], sides.target[index] = bool(golden), bool(target)
        sides.doubtful[index] = bool(doubtful)
    return sides


def rows_named(session: Session, slice_pair: int, side: str, names: Collection[str]) -> Integers:
    """Return the indexes of the rows that have one of these nodes of a side, in the order of the tree."""
    found = rows_of_nodes(session, slice_pair, side, names) if names else {}
    return np.array(sorted({*found.values()}), np.int32)


def called(session: Session, slice_id: int, names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return short name and type of nodes of an indexed slice, as rows of the tree have them.

    The rows of matched nodes say what the target calls them; this is what golden ones are called.
    """
    nodes = nodes_named(session, slice_id, set(names))
    above = nodes_named(session, slice_id, set(known(node.parent for node in nodes.values())))
    return {name: (_label(node, above), node.type_name) for name, node in nodes.items()}


def _label(node: Node, above: Mapping[str, Node]) -> str:
    if node.kind is NodeKind.API:
        return f"{node.path}.{node.call}"
    outer = above.get(node.parent or "")
    inner = node.path.removeprefix(f"{outer.path}.") if outer is not None else node.path
    return f"{inner} #{node.call}" if node.call else inner
