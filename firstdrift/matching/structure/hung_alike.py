"""What only one of two tools records, which for matching is hung as if neither did.

    msit     model ── layers ─┬─ layers.0          msprobe   model ─┬─ layers.0
                              └─ layers.1                           └─ layers.1

Nothing runs in a list of modules but its elements: those of one that the other dump does not record hang at
the module around it. An element may be a list itself, or have a name instead of a number.

    mix   model ─┬─ embed ── embedding.0         L1   embedding.0
                 └─ mlp ─┬─ linear.0                  linear.0
                         └─ silu.0                    silu.0

Where a dump is of operators alone, those of the other one hang at the root too, in the order they ran in.
"""

from collections.abc import Iterator, Mapping
from itertools import chain

from msgspec.structs import replace

from firstdrift.matching.tree import is_operator, modules_among
from firstdrift.model.node import Node
from firstdrift.model.slice import Slice


def hung_alike(golden: Slice, target: Slice) -> tuple[Slice, Slice]:
    """Return two slices whose nodes hang where both dumps can tell."""
    slices = _without_lists(golden, target), _without_lists(target, golden)
    return _beside_flat(*slices), _beside_flat(*reversed(slices))


def _without_lists(own: Slice, other: Slice) -> Slice:
    """Return a slice whose modules hang outside of the lists that the other slice does not record."""
    others = {node.path for node in modules_among(other.nodes)}
    unknown = {node.name: node for node in _possible_lists(own) if node.path not in others}
    elements = (node for node in modules_among(own.nodes) if node.path in others)
    lists = set(chain.from_iterable(_lists_around(node, unknown) for node in elements))
    nodes = (_outside(node, unknown) if node.parent in lists else node for node in own.nodes)
    return replace(own, nodes=tuple(nodes)) if lists else own


def _possible_lists(own: Slice) -> Iterator[Node]:
    """Yield the modules that take and give nothing, and in which no operator runs."""
    bare = [node for node in modules_among(own.nodes) if not node.tensors]
    of_operators = {node.parent for node in own.nodes if is_operator(node)} if bare else set()
    return (node for node in bare if node.name not in of_operators)


def _outside(node: Node, lists: Mapping[str, Node]) -> Node:
    around = list(_lists_around(node, lists))
    return replace(node, parent=lists[around[-1]].parent) if around else node


def _lists_around(node: Node, known: Mapping[str, Node]) -> Iterator[str]:
    """Yield the names of the lists that a module is an element of, the innermost first."""
    while (held_by := known.get(node.parent or "")) and node.path.startswith(f"{held_by.path}."):
        yield held_by.name
        node = held_by


def _beside_flat(own: Slice, other: Slice) -> Slice:
    """Return a slice whose recorded operators hang outside of all modules, if the other one has none."""
    if not other.nodes or modules_among(other.nodes) or not modules_among(own.nodes):
        return own
    return replace(own, nodes=tuple(map(_at_root, own.nodes)))


def _at_root(node: Node) -> Node:
    return replace(node, parent=None) if is_operator(node) and node.tensors else node
