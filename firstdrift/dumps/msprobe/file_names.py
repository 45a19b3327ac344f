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

from firstdrift.dumps.execution_order import (
    children_of,
    finish_order,
    natural_key,
    takers_of_unmade,
    value_flows,
)
from firstdrift.dumps.msprobe.tree import Construct, repair_parents
from firstdrift.dumps.nodes import call_node
from firstdrift.groups import gathered, known, not_in, positions
from firstdrift.model.names import NameParts, parse_name, with_direction
from firstdrift.model.node import Node
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.operators.paths import OPERATOR

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
    match = _VALUE.fullmatch(stem) or _GRADIENT.fullmatch(stem)
    if match is None or parse_name(match["node"]).direction == "none":
        return None
    role = _ROLES[match["role"]] if match.re is _VALUE else Role.GRADIENT
    return FileName(match["node"], role, match["key"] or "0")


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
    modules = {name: by_node[name] for name, call in parts.items() if call.kind == "module"}
    order, backward_order, moved = _orders(modules, parts, parents)
    operators = [
        _Operator(name, call.path, call.call, by_node[name])
        for name, call in parts.items()
        if call.kind == "api" and call.direction == "forward"
    ]
    times = _Times(order, modules, parents).of_operators(operators)
    keys = _sort_keys(order, backward_order, times, parts, parents)
    in_order = sorted(parts, key=lambda name: (keys[name], natural_key(name)))
    nodes = [
        call_node(name, parts[name], at, parents[name], tuple(sorted(by_node[name], key=_as_listed)))
        for at, name in enumerate(in_order)
    ]
    return nodes, moved


def _orders(
    modules: Mapping[str, Sequence[TensorRecord]],
    parts: Mapping[str, NameParts],
    parents: Mapping[str, str | None],
) -> tuple[list[str], list[str], int]:
    """Return the modules of both passes in their order, and how many orderings equal values gave."""
    flows, late = value_flows(modules, parents), takers_of_unmade(modules, parents)
    forward = [name for name in modules if parts[name].direction != "backward"]
    order, moved = finish_order(children_of(forward, parents), labels_of(parts), flows, late)
    place = {with_direction(name, "backward"): at for at, name in enumerate(order)}
    backward = [name for name in modules if parts[name].direction == "backward"]
    backward.sort(key=lambda name: -place.get(name, len(place)))
    labels = {name: name for name in backward}
    backward_order, backward_moved = finish_order(children_of(backward, parents), labels, flows, late)
    return order, backward_order, moved + backward_moved


Time: TypeAlias = tuple[int, int]
"""When something ran: after the module of this place in the order of modules, and after how much since."""


class _Operator:
    """A call of an operator: which one, and what tells the values that it takes and gives."""

    def __init__(self, name: str, path: str, call: int, records: Sequence[TensorRecord]) -> None:
        self.name, self.path, self.call = name, path, call
        self.inputs = telling_values(records, Role.INPUT)
        self.outputs = telling_values(records, Role.OUTPUT)


class _Times:
    """When operators ran, and in which modules, from the values that they share with others."""

    def __init__(
        self,
        order: Sequence[str],
        modules: Mapping[str, Sequence[TensorRecord]],
        parents: dict[str, str | None],
    ) -> None:
        self._order, self._parents = order, parents
        self._made: defaultdict[str, dict[str, Time]] = defaultdict(dict)
        ends = positions(order)
        begins = dict(ends)
        for name in order:
            if (parent := parents[name]) in begins:
                begins[parent] = min(begins[parent], begins[name])
        self._given = _first_places(modules, Role.OUTPUT, ends)
        self._taken = _first_places(modules, Role.INPUT, begins)

    def of_operators(self, operators: Iterable[_Operator]) -> dict[str, Time]:
        """Return when each operator ran; one of which nothing tells ran last. Places them in modules."""
        calls = sorted(operators, key=lambda operator: (operator.path, operator.call))
        times: dict[str, Time] = {}
        for _ in range(_MOST_ROUNDS):
            before = dict(times)
            self._follow_values(calls, times)
            if times == before:
                break
        for operator in calls:
            if (at := _first_place(self._given, operator.outputs)) is not None:
                self._parents[operator.name] = self._order[at]
        return {operator.name: times.get(operator.name, (len(self._order), 0)) for operator in calls}

    def _follow_values(self, calls: Sequence[_Operator], times: dict[str, Time]) -> None:
        for before, operator in zip((None, *calls), calls, strict=False):
            is_next = before is not None and before.path == operator.path
            time = self._time(operator, times.get(before.name) if before and is_next else None)
            if time is not None:
                times[operator.name] = time
                for value in operator.outputs:
                    self._made[value][operator.name] = time

    def _time(self, operator: _Operator, earlier: Time | None) -> Time | None:
        """Return when an operator ran: before a module that gives the same ended, or after its inputs."""
        ends = _first_place(self._given, operator.outputs)
        if ends is not None:
            return ends, -1
        ready = (self._ready(value, operator.name) for value in operator.inputs)
        after = [(time[0], time[1] + 1) for time in ready if time is not None]
        if earlier is not None:
            after.append(earlier)
        taken = _first_place(self._taken, operator.outputs)
        before = None if taken is None else (taken, -_MOST_ROUNDS)
        return max(after, default=before)

    def _ready(self, value: str, name: str) -> Time | None:
        """Return when a value was there: as a module gave it, or another operator."""
        if value in self._given:
            return self._given[value], 0
        if len(self._made[value]) > _MOST_GIVERS:
            return None
        return min((time for giver, time in self._made[value].items() if giver != name), default=None)


def _first_places(
    modules: Mapping[str, Sequence[TensorRecord]], role: Role, places: Mapping[str, int]
) -> dict[str, int]:
    """Return for each value the first place of a module that gives it, or takes it."""
    found = gathered(
        (value, at) for name, at in places.items() for value in telling_values(modules[name], role)
    )
    return {value: min(of_value) for value, of_value in found.items()}


def _first_place(places: Mapping[str, int], values: Iterable[str]) -> int | None:
    """Return the first place of some values, as far as they have one."""
    return min(known(map(places.get, values)), default=None)


def telling_values(records: Iterable[TensorRecord], role: Role) -> list[str]:
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
    parts: Iterable[str],
    parents: dict[str, str | None],
) -> dict[str, tuple[int, int, int]]:
    """Return by what calls are sorted: forward, then backward, where operators run the other way round."""
    keys = {name: (0, at, 0) for at, name in enumerate(order)}
    keys |= {name: (0, *time) for name, time in times.items()}
    keys |= {name: (1, 2 * at, 0) for at, name in enumerate(backward_order)}
    for name in not_in(parts, keys):
        forward = with_direction(name, "forward")
        at, later = times.get(forward, (len(order), 0))
        around = with_direction(parents.get(forward) or "", "backward")
        if around in keys:
            parents[name] = around
        before = keys[around][1] - 1 if around in keys else _ran_back_after(order[at + 1 :], keys)
        keys[name] = (1, before, -later)
    return keys


def _ran_back_after(ahead: Iterable[str], keys: Mapping[str, tuple[int, int, int]]) -> int:
    """Say when an operator ran back: after the modules that came after it, before those before it."""
    back = (keys.get(with_direction(module, "backward")) for module in ahead)
    return 1 + max((key[1] for key in known(back)), default=-2)


def labels_of(parts: Mapping[str, NameParts]) -> dict[str, str]:
    """Return what tells when a call runs among its siblings: the last part of a module's path."""
    return {
        name: OPERATOR if call.kind == "api" else call.path.rpartition(".")[2] for name, call in parts.items()
    }


_PLACES: Final = {Role.INPUT: 0, Role.OUTPUT: 1, Role.PARAMETER: 2, Role.GRADIENT: 3}


def _as_listed(record: TensorRecord) -> tuple[int, list[tuple[int, int | str]]]:
    """Sort tensors as dump.json lists them: inputs by position, then by keyword, outputs, parameters."""
    return _PLACES[record.role], natural_key(record.key)
