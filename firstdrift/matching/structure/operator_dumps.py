"""Dumps of operators alone, which tell of no modules.

    mix   model ─┬─ embed ── embedding.0         L1   embedding.0
                 └─ mlp ─┬─ linear.0                  linear.0
                         └─ silu.0                    silu.0

For matching, the operators of the other dump hang at the root too, in the order in which they ran.
"""

from msgspec.structs import replace

from firstdrift.matching.tree import is_operator
from firstdrift.model.slice import Slice


def beside_flat(own: Slice, other: Slice) -> Slice:
    """Return a slice whose recorded operators hang outside of all modules, if the other one has none."""
    if not other.nodes or not all(map(is_operator, other.nodes)) or all(map(is_operator, own.nodes)):
        return own
    return replace(
        own,
        nodes=tuple(
            replace(node, parent=None) if is_operator(node) and node.tensors else node for node in own.nodes
        ),
    )
