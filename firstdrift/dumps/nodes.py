"""Make nodes of what the names in a dump say."""

from firstdrift.model.names import NameParts
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.tensor import TensorRecord

Tensors = tuple[TensorRecord, ...]


def call_node(
    name: str,
    parts: NameParts,
    order: int,
    parent: str | None,
    tensors: Tensors,
    micro_step: int | None = None,
) -> Node:
    """Make the node of a call from its name, taken apart."""
    return Node(
        name=name,
        path=parts.path,
        kind=NodeKind(parts.kind),
        type_name=parts.type_name,
        direction=Direction(parts.direction),
        call=parts.call,
        order=order,
        parent=parent,
        tensors=tensors,
        micro_step=micro_step,
    )


def module_node(
    name: str,
    path: str,
    order: int,
    parent: str | None,
    tensors: Tensors,
    *,
    direction: Direction = Direction.NONE,
    call: int = 0,
) -> Node:
    """Make the node of a module of which little more is known than its path."""
    return Node(name, path, NodeKind.MODULE, "", direction, call, order, parent, tensors)
