"""Make the tree of modules of values that were saved one by one, in the order in which they were saved.

layers.0.mlp input.0     ┐ layers.0.mlp            what lies in a module comes before it;
layers.0.mlp output.0    ┘                         what is saved again is of the next call
layers.0 output.0          layers.0
layers.0.mlp input.0       layers.0.mlp (call 1)
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.msprobe.tree import finish_order, last_positions
from firstdrift.dumps.nodes import Tensors, counted, distinct, module_node, with_distinct_keys
from firstdrift.model.names import enclosing_paths
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.tensor import Role

_WHOLE_MODEL: Final = "model itself"


class Recorded(Struct, frozen=True):
    """What was saved of a call at once.

    Attributes:
        path: of the module or value; empty for the whole model.
        role: of the tensors to it.
        key: likewise.
        tensors: the tensors: one, unless what was saved held several.
        direction: of the pass that it is of.
        call: which call of the path it is of; None if that follows from what was saved before.
        type_name: the class of the module or the name of the operator, where it was saved.
        kind: what is of that path.
    """

    path: str
    role: Role
    key: str
    tensors: Tensors
    direction: Direction = Direction.FORWARD
    call: int | None = None
    type_name: str = ""
    kind: NodeKind = NodeKind.MODULE


class _Call(NamedTuple):
    """Which node a tensor belongs to: which call of which path, in which pass."""

    path: str
    direction: Direction
    number: int

    @property
    def name(self) -> str:
        """How it is shown; a saved name may look the same."""
        suffix = ".backward" if self.direction is Direction.BACKWARD else ""
        return f"{self.path or _WHOLE_MODEL}{suffix}" + (f" (call {self.number})" if self.number else "")


def nodes_of(recorded: Iterable[Recorded]) -> tuple[Node, ...]:
    """Make nodes of what was saved, each as it was saved last, modules after what they contain."""
    values: defaultdict[_Call, list[Recorded]] = defaultdict(list)
    positions: dict[_Call, int] = {}
    for at, (value, number) in enumerate(counted(recorded, _label)):
        call = _Call(value.path, value.direction, number if value.call is None else value.call)
        positions.pop(call, None)
        positions[call] = at
        values[call].append(value)
    parents = _parents(values)
    taken: set[str] = set()
    names = {call: distinct(call.name, taken) for call in parents}
    by_name = {name: call for call, name in names.items()}
    above = {names[call]: None if parent is None else names[parent] for call, parent in parents.items()}
    order = finish_order(above, last_positions(above, {names[call]: at for call, at in positions.items()}))
    return tuple(
        _node(name, by_name[name], at, above[name], values.get(by_name[name], []))
        for at, name in enumerate(order)
    )


def _label(recorded: Recorded) -> tuple[str, ...]:
    return recorded.path, recorded.direction, recorded.role, recorded.key


def _node(name: str, call: _Call, order: int, parent: str | None, values: list[Recorded]) -> Node:
    tensors = with_distinct_keys(record for value in values for record in value.tensors)
    node = module_node(name, call.path, order, parent, tensors, direction=call.direction, call=call.number)
    if not values:
        return node
    type_name = next((value.type_name for value in values if value.type_name), "")
    return replace(node, type_name=type_name, kind=values[0].kind)


def _parents(calls: Iterable[_Call]) -> dict[_Call, _Call | None]:
    """Give every call the call of the module around it, made up where nothing of that was saved."""
    saved = list(calls)
    counts = {
        (call.path, call.direction): call.number + 1 for call in sorted(saved, key=lambda call: call.number)
    }
    around = dict.fromkeys((path, call.direction) for call in saved for path in _modules_around(call.path))
    made_up = [_Call(*place, 0) for place in around if place not in counts]
    counts = dict.fromkeys(around, 1) | counts
    there = {*saved, *made_up}
    return {call: _around(call, counts, there) for call in (*saved, *made_up)}


def _modules_around(path: str) -> Iterator[str]:
    """Yield the paths of the modules around one, innermost first.

    A list of layers is no module that is ever called: "layers.2" lies directly in what holds "layers".
    """
    inner = path
    for outer in enclosing_paths(path):
        if not inner.rpartition(".")[2].isdecimal():
            yield outer
        inner = outer


def _around(
    call: _Call, counts: Mapping[tuple[str, Direction], int], there: Container[_Call]
) -> _Call | None:
    """Return the call that a call was made in: that of its own number where it was saved, else the last."""
    for path in (*enclosing_paths(call.path), *([""] if call.path else [])):
        if count := counts.get((path, call.direction)):
            own = _Call(path, call.direction, min(call.number, count - 1))
            return own if own in there else _Call(path, call.direction, count - 1)
    return None
