"""Make the nodes of a run of an ATB dump: operations from topology, folders and statistics, with tensors.

    20_Decoder_layer/0_Attention/4_LinearNoQuant   →   Decoder_layer.2.Attention.LinearNoQuant

A path goes by types; siblings of one type are numbered, at the top level as elements of a list.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import inf

from firstdrift.dumps.atb.topology import Operation
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.tensor import TensorRecord


def make_nodes(
    operations: Mapping[str, Operation], tensors: Mapping[str, tuple[TensorRecord, ...]]
) -> tuple[Node, ...]:
    """Make a node of each operation, in the order in which they finished; each parent is among them."""
    paths = _paths(operations.values())
    around = {operation.parent for operation in operations.values()}
    in_order = sorted(operations.values(), key=lambda operation: ((*operation.orders, inf), operation.name))
    return tuple(
        Node(
            name=operation.name,
            path=paths[operation.name],
            kind=NodeKind.MODULE if operation.is_graph or operation.name in around else NodeKind.API,
            type_name=operation.type_name,
            direction=Direction.FORWARD,
            call=0,
            order=at,
            parent=operation.parent,
            tensors=tensors.get(operation.name, ()),
        )
        for at, operation in enumerate(in_order)
    )


def _paths(operations: Iterable[Operation]) -> dict[str, str]:
    """Return the dotted path of each operation, by name."""
    siblings: dict[tuple[str | None, str], list[str]] = defaultdict(list)
    in_order = sorted(operations, key=lambda operation: (operation.orders, operation.name))
    for operation in in_order:
        siblings[operation.parent, operation.type_name].append(operation.name)
    paths: dict[str, str] = {}
    for (parent, type_name), names in siblings.items():
        above = f"{paths[parent]}." if parent else ""
        joint = "_" if parent else "."
        for at, name in enumerate(names):
            paths[name] = f"{above}{type_name}{joint}{at}" if len(names) > 1 else f"{above}{type_name}"
    return paths
