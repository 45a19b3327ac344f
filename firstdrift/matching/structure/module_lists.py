"""Lists of modules, which some tools record and others do not: nothing runs in them but their elements.

    msit     model ── layers ─┬─ layers.0          msprobe   model ─┬─ layers.0
                              └─ layers.1                           └─ layers.1

For matching, the elements of a list that the other dump does not record hang at the module around it. An
element may be a list itself, or have a name instead of a number.
"""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from firstdrift.matching.tree import is_operator
from firstdrift.model.node import Node
from firstdrift.model.slice import Slice


def without_lists(own: Slice, other: Slice) -> Slice:
    """Return a slice whose modules hang outside of the lists that the other slice does not record."""
    others = {node.path for node in other.nodes if not is_operator(node)}
    unknown = {node.name: node for node in own.nodes if _may_be_list(node) and node.path not in others}
    for node in own.nodes:
        if is_operator(node):
            unknown.pop(node.parent or "", None)
    lists: set[str] = set()
    for node in own.nodes:
        if node.path in others and not is_operator(node):
            lists.update(_lists_around(node, unknown))
    if not lists:
        return own

    def around(node: Node) -> str | None:
        held_by = list(_lists_around(node, unknown))
        return unknown[held_by[-1]].parent if held_by else node.parent

    return replace(
        own,
        nodes=tuple(
            replace(node, parent=around(node)) if node.parent in lists else node for node in own.nodes
        ),
    )


def _may_be_list(node: Node) -> bool:
    return not node.tensors and not is_operator(node)


def _lists_around(node: Node, known: Mapping[str, Node]) -> Iterator[str]:
    """Yield the names of the lists that a module is an element of, the innermost first."""
    while (held_by := known.get(node.parent or "")) and node.path.startswith(f"{held_by.path}."):
        yield held_by.name
        node = held_by
