"""Lists of modules, which some tools record and others do not: nothing runs in them but their elements.

    msit     model ── layers ─┬─ layers.0          msprobe   model ─┬─ layers.0
                              └─ layers.1                           └─ layers.1

For matching, the elements of a list that the other dump does not record hang at the module around it.
"""

from msgspec.structs import replace

from firstdrift.dumps.dump import Node, Slice
from firstdrift.matching.tree import is_operator


def without_lists(own: Slice, other: Slice) -> Slice:
    """Return a slice whose modules hang outside of the lists that the other slice does not record."""
    others = {node.path for node in other.nodes if not is_operator(node)}
    by_name = {node.name: node for node in own.nodes}
    around: dict[str, str | None] = {}
    for node in own.nodes:
        held_by = by_name.get(node.parent or "")
        if held_by is not None and node.path in others and _is_unknown_list(held_by, node, others):
            around[held_by.name] = held_by.parent
    if not around:
        return own
    nodes = (
        replace(node, parent=around[node.parent]) if node.parent in around else node for node in own.nodes
    )
    return replace(own, nodes=tuple(nodes))


def _is_unknown_list(holder: Node, node: Node, others: set[str]) -> bool:
    """Tell whether a module is but a list of others, by one of them, and recorded on one side only."""
    name = node.path.removeprefix(f"{holder.path}.")
    return not holder.tensors and holder.path not in others and name.isdecimal() and not is_operator(node)
