"""Lists of modules, which some tools record and others do not: nothing runs in them but their elements.

    msit     model ── layers ─┬─ layers.0          msprobe   model ─┬─ layers.0
                              └─ layers.1                           └─ layers.1

For matching, the elements of a list that the other dump does not record hang at the module around it. An
element may be a list itself, or have a name instead of a number.
"""

from collections.abc import Iterator, Mapping
from itertools import chain

from msgspec.structs import replace

from firstdrift.matching.tree import is_operator, modules_among
from firstdrift.model.node import Node
from firstdrift.model.slice import Slice


def without_lists(own: Slice, other: Slice) -> Slice:
    """Return a slice whose modules hang outside of the lists that the other slice does not record."""
    others = {node.path for node in modules_among(other.nodes)}
    unknown = {node.name: node for node in _possible_lists(own) if node.path not in others}
    elements = (node for node in modules_among(own.nodes) if node.path in others)
    lists = set(chain.from_iterable(_lists_around(node, unknown) for node in elements))
    nodes = (_outside(node, unknown) if node.parent in lists else node for node in own.nodes)
    return replace(own, nodes=tuple(nodes)) if lists else own


def _possible_lists(own: Slice) -> Iterator[Node]:
    """Yield the modules that take and give nothing, and in which no operator runs."""
    of_operators = {node.parent for node in own.nodes if is_operator(node)}
    modules = modules_among(own.nodes)
    return (node for node in modules if not node.tensors and node.name not in of_operators)


def _outside(node: Node, lists: Mapping[str, Node]) -> Node:
    around = list(_lists_around(node, lists))
    return replace(node, parent=lists[around[-1]].parent) if around else node


def _lists_around(node: Node, known: Mapping[str, Node]) -> Iterator[str]:
    """Yield the names of the lists that a module is an element of, the innermost first."""
    while (held_by := known.get(node.parent or "")) and node.path.startswith(f"{held_by.path}."):
        yield held_by.name
        node = held_by
