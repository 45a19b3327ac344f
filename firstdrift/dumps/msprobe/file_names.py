"""What the name of a tensor file that msprobe wrote says, where there is no dump.json that lists it.

    Module.norm.RMSNorm.forward.0.output.0.pt          →  output.0 of Module.norm.RMSNorm.forward.0
    Functional.linear.3.backward.input.0.pt            →  input.0 of Functional.linear.3.backward
    Module.w.Weird.forward.0.kwargs.cfg.b.pt           →  input.cfg.b of Module.w.Weird.forward.0
    Module.w.Weird.parameters_grad.0.weight.pt         →  gradient.weight of Module.w.Weird.parameters_grad.0

Files hold neither the tree nor the order of the calls: modules lie in one another as their paths say,
operators in the modules that give the same values, and the backward pass runs opposite to the forward pass.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Final, TypeAlias

from msgspec import Struct

from firstdrift.dumps.execution_order import finish_order, natural_key, value_flows
from firstdrift.dumps.msprobe.tree import Construct, repair_parents
from firstdrift.model.names import NameParts, parse_name, with_direction
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.operators.order import OPERATOR

_CALL: Final = (
    r"(?:(?:Module|Cell)\..+\.(?:forward|backward)\.[0-9]+"
    r"|[A-Z][^.]*\.[^.]+\.[0-9]+\.(?:forward|backward))"
)
_OF_GRADIENTS: Final = r"(?:Module|Cell)\..+\.parameters_grad(?:\.[0-9]+)?"
_NAME: Final = re.compile(f"{_CALL}|{_OF_GRADIENTS}", re.ASCII | re.DOTALL)
_VALUE: Final = re.compile(
    rf"(?P<node>{_CALL})\.(?P<role>input_kwargs|input|kwargs|output|parameters)(?:\.(?P<key>.+))?",
    re.ASCII | re.DOTALL,
)
_GRADIENT: Final = re.compile(rf"(?P<node>{_OF_GRADIENTS})\.(?P<key>[^.]+)", re.ASCII | re.DOTALL)
_ROLES: Final = {
    "input": Role.INPUT,
    "kwargs": Role.INPUT,
    "input_kwargs": Role.INPUT,
    "output": Role.OUTPUT,
    "parameters": Role.PARAMETER,
}


_FEWEST: Final = 8
"""Elements from which equal values are no accident."""

_MOST_GIVERS: Final = 16
"""A value that more operators give tells nothing: zeros, for example."""

_MOST_ROUNDS: Final = 64
"""How often values are followed from operator to operator."""


class FileName(Struct, frozen=True):
    """Whose tensor a file holds: the name of the call as dump.json has it, role and key."""

    node: str
    role: Role
    key: str


def parse_file_name(stem: str) -> FileName | None:
    """Take the name of a file, without suffix, apart; None if msprobe names no file so."""
    if match := _VALUE.fullmatch(stem):
        known = FileName(match["node"], _ROLES[match["role"]], match["key"] or "0")
    elif match := _GRADIENT.fullmatch(stem):
        known = FileName(match["node"], Role.GRADIENT, match["key"])
    else:
        return None
    return None if parse_name(known.node).direction == "none" else known


def is_call_name(name: str) -> bool:
    """Tell the name of a call, as msprobe writes it, from the path of a module."""
    return _NAME.fullmatch(name) is not None and parse_name(name).direction != "none"


def calls_of(by_node: Mapping[str, Sequence[TensorRecord]]) -> tuple[list[Node], int]:
    """Make nodes of the calls that files are named after, in the order in which they finished, if known.

    Names tell of modules. An operator ran after what gave it its values and after the calls of the same name
    that have lower numbers; it lies in the module that gives what it gives.

    Returns:
        The nodes, and how many orderings equal values gave.
    """
    parts = {name: parse_name(name) for name in sorted(by_node, key=natural_key)}
    parents, _ = repair_parents(parts, Construct(), parts, dict)
    modules = {name: records for name, records in by_node.items() if parts[name].kind == "module"}
    flows = value_flows(modules, parents)
    forward = [name for name in parts if name in modules and parts[name].direction != "backward"]
    order, kept = finish_order(_children(forward, parents), _labels(forward, parts), flows)
    place = {with_direction(name, "backward"): at for at, name in enumerate(order)}
    backward = [name for name in parts if name in modules and parts[name].direction == "backward"]
    backward.sort(key=lambda name: -place.get(name, len(place)))
    backward_order, backward_kept = finish_order(
        _children(backward, parents), {name: name for name in backward}, flows
    )
    operators = {
        name: by_node[name] for name, one in parts.items() if one.kind == "api" and one.direction == "forward"
    }
    times = _Times(order, modules, parents).of_operators(operators, parts)
    keys = _sort_keys(order, backward_order, times, parts, parents)
    nodes = [
        Node(
            name=name,
            path=parts[name].path,
            kind=NodeKind(parts[name].kind),
            type_name=parts[name].type_name,
            direction=Direction(parts[name].direction),
            call=parts[name].call,
            order=at,
            parent=parents[name],
            tensors=tuple(sorted(by_node[name], key=_as_listed)),
        )
        for at, name in enumerate(sorted(parts, key=lambda name: (keys[name], natural_key(name))))
    ]
    return nodes, kept + backward_kept


Time: TypeAlias = tuple[int, int]
"""When something ran: after the module of this place in the order of modules, and after how much since."""


class _Times:
    """When operators ran, and in which modules, from the values that they share with others."""

    def __init__(
        self,
        order: Sequence[str],
        modules: Mapping[str, Sequence[TensorRecord]],
        parents: dict[str, str | None],
    ) -> None:
        self._order, self._parents = order, parents
        self._given: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        self._made: defaultdict[str, dict[str, Time]] = defaultdict(dict)
        begins = {name: at for at, name in enumerate(order)}
        for name in order:
            if (parent := parents[name]) in begins:
                begins[parent] = min(begins[parent], begins[name])
        for at, name in enumerate(order):
            for value in _values(modules[name], Role.OUTPUT):
                self._given.setdefault(value, at)
            for value in _values(modules[name], Role.INPUT):
                self._taken[value] = min(self._taken.get(value, at), begins[name])

    def of_operators(
        self, operators: Mapping[str, Sequence[TensorRecord]], parts: Mapping[str, NameParts]
    ) -> dict[str, Time]:
        """Return when each operator ran; one of which nothing tells ran last. Places them in modules."""
        inputs = {name: _values(records, Role.INPUT) for name, records in operators.items()}
        outputs = {name: _values(records, Role.OUTPUT) for name, records in operators.items()}
        calls = sorted(operators, key=lambda name: (parts[name].path, parts[name].call))
        times: dict[str, Time] = {}
        for _ in range(_MOST_ROUNDS):
            known = dict(times)
            before: str | None = None
            for name in calls:
                is_next = before is not None and parts[before].path == parts[name].path
                earlier = times.get(before) if before is not None and is_next else None
                time = self._time(name, inputs[name], outputs[name], earlier)
                if time is not None:
                    times[name] = time
                    for value in outputs[name]:
                        self._made[value][name] = time
                before = name
            if times == known:
                break
        for name in operators:
            at = self._ends(outputs[name])
            if at is not None:
                self._parents[name] = self._order[at]
        return {name: times.get(name, (len(self._order), 0)) for name in operators}

    def _time(
        self, name: str, inputs: Iterable[str], outputs: Sequence[str], earlier: Time | None
    ) -> Time | None:
        """Return when an operator ran: before a module that gives the same ended, or after its inputs."""
        at = self._ends(outputs)
        if at is not None:
            return at, -1
        ready = [time for value in inputs if (time := self._ready(value, name)) is not None]
        known = [(max(ready)[0], max(ready)[1] + 1)] if ready else []
        known += [earlier] if earlier is not None else []
        if known:
            return max(known)
        takers = [self._taken[value] for value in outputs if value in self._taken]
        return (min(takers), -_MOST_ROUNDS) if takers else None

    def _ends(self, outputs: Iterable[str]) -> int | None:
        """Return the place of the first module that gives what an operator gives."""
        return min((self._given[value] for value in outputs if value in self._given), default=None)

    def _ready(self, value: str, name: str) -> Time | None:
        """Return when a value was there: as a module gave it, or another operator."""
        if value in self._given:
            return self._given[value], 0
        if len(self._made[value]) > _MOST_GIVERS:
            return None
        return min((time for giver, time in self._made[value].items() if giver != name), default=None)


def _values(records: Sequence[TensorRecord], role: Role) -> list[str]:
    """Return what tells the values of the tensors of a role from others, where they are more than a few."""
    return [
        record.digest
        for record in records
        if record.role is role and record.digest and prod(record.shape or ()) >= _FEWEST
    ]


def _sort_keys(
    order: Sequence[str],
    backward_order: Sequence[str],
    times: Mapping[str, Time],
    parts: Mapping[str, NameParts],
    parents: dict[str, str | None],
) -> dict[str, tuple[int, int, int]]:
    """Return by what calls are sorted: forward, then backward, where operators run the other way round."""
    keys = {name: (0, at, 0) for at, name in enumerate(order)}
    keys |= {name: (0, *time) for name, time in times.items()}
    keys |= {name: (1, 2 * at, 0) for at, name in enumerate(backward_order)}
    for name in parts:
        if name in keys:
            continue
        forward = with_direction(name, "forward")
        at, later = times.get(forward, (len(order), 0))
        around = with_direction(parents.get(forward) or "", "backward")
        if around in keys:
            parents[name] = around
            keys[name] = (1, keys[around][1] - 1, -later)
            continue
        # It ran back before the modules that came before it, and after those that came after it.
        since = [
            keys[back][1] for ahead in order[at + 1 :] if (back := with_direction(ahead, "backward")) in keys
        ]
        keys[name] = (1, max(since, default=-2) + 1, -later)
    return keys


def _children(names: Iterable[str], parents: Mapping[str, str | None]) -> dict[str | None, list[str]]:
    children: defaultdict[str | None, list[str]] = defaultdict(list)
    for name in names:
        children[parents[name]].append(name)
    return children


def _labels(names: Iterable[str], parts: Mapping[str, NameParts]) -> dict[str, str]:
    return {
        name: OPERATOR if parts[name].kind == "api" else parts[name].path.rpartition(".")[2] for name in names
    }


_PLACES: Final = {Role.INPUT: 0, Role.OUTPUT: 1, Role.PARAMETER: 2, Role.GRADIENT: 3}


def _as_listed(record: TensorRecord) -> tuple[int, list[tuple[int, int | str]]]:
    """Sort tensors as dump.json lists them: inputs by position, then by keyword, outputs, parameters."""
    return _PLACES[record.role], natural_key(record.key)
