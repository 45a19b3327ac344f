"""Nodes of one dump with NaN or infinities, by msprobe's levels; no other run tells what is healthy.

| inputs and parameters | outputs | level    |
| --------------------- | ------- | -------- |
| bad                   | good    | medium   |
| bad                   | bad     | high     |
| good                  | bad     | critical |
| not recorded          | bad     | critical if nothing before it is bad, else high |
| received from other ranks | bad | high     |

Bad are NaN and infinities, but for what every healthy model has:

* a mean or norm that overflowed, while maximum and minimum are finite;
* a mask: -inf alone, where the tensor holds nothing above 0, where it came in with an input, or where the
  operator writes such values on purpose (`masked_fill`, `where`);
* what `empty` and the like return, and the buffers into which other ranks are to write: nobody wrote
  them yet.

msprobe also calls high what grows 100-fold in norm: healthy models have such nodes, so they are none here.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from firstdrift.groups import known
from firstdrift.metrics.measurement import SideSummary
from firstdrift.model.node import Node
from firstdrift.model.slice import Coordinates
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.operators.properties import fills, is_received, leaves_unwritten
from firstdrift.parallel.point_to_point import is_communication
from firstdrift.verdict.judgement import Overflow
from firstdrift.wording.message import Message, joined

LEVELS: Final = ("medium", "high", "critical")

_ENTERING: Final = frozenset({Role.INPUT, Role.PARAMETER})

Values = SideSummary | None
"""Statistics of a tensor, NaN and infinities included; None if none are known."""


class _State(IntEnum):
    FINITE = 0
    MASKED = 1
    BAD = 2


def find_overflow_alone(
    nodes: Sequence[tuple[Node, Sequence[Values]]], coordinates: Coordinates
) -> Iterator[Overflow]:
    """Yield the nodes of a slice with non-finite values, in execution order.

    Args:
        nodes: in execution order, each with the statistics of its tensors.
        coordinates: which slice.
    """
    seen = False
    for node, values in nodes:
        if leaves_unwritten(node.type_name):
            continue
        states = _states(node, values)
        if states.is_bad:
            level, reason = _level_and_reason(states, seen=seen)
            yield Overflow(coordinates, node.name, level, reason)
        seen = seen or states.is_bad


class _States(NamedTuple):
    """The worst state of what enters a node, and of what leaves it; None if nothing is known."""

    entered: _State | None
    left: _State | None
    is_received: bool
    bad: tuple[str, ...]

    @property
    def is_bad(self) -> bool:
        return _State.BAD in (self.entered, self.left)


def _states(node: Node, values: Sequence[Values]) -> _States:
    received = is_communication(node.type_name) and is_received(node.type_name)
    tensors = list(zip(node.tensors, values, strict=True))
    entered = None if received else _worst([each for each in tensors if each[0].role in _ENTERING])
    masks = entered is _State.MASKED or fills(node.type_name)
    leaving = [each for each in tensors if each[0].role not in _ENTERING]
    left = _worst(leaving, new_masks_are_bad=entered is not None and not masks)
    bad = tuple(record.label for record, each in tensors if _state(each) is _State.BAD)
    return _States(entered, left, received, bad)


def _level_and_reason(states: _States, *, seen: bool) -> tuple[str, Message]:
    reason = Message.of("overflow.in", tensors=states.bad) if states.bad else Message.of("overflow.new_mask")
    if states.left is not _State.BAD:
        return "medium", reason
    if states.is_received:
        return "high", joined(reason, Message.of("overflow.received"))
    if states.entered is None:
        reason = joined(reason, Message.of("overflow.inputs_not_recorded"))
        return "high" if seen else "critical", reason
    return "high" if states.entered is _State.BAD else "critical", reason


def has_nonfinite(values: Values) -> bool:
    """Tell whether a tensor holds NaN or infinities, a mask's -inf included."""
    return _state(values) not in (None, _State.FINITE)


def _worst(
    tensors: Iterable[tuple[TensorRecord, Values]], *, new_masks_are_bad: bool = False
) -> _State | None:
    """Return the worst state of some tensors; None if nothing is known of any."""
    known = []
    for record, values in tensors:
        if not record.is_tensor or (state := _state(values)) is None:
            continue
        new = state is _State.MASKED and values is not None and (values.maximum or 0.0) > 0.0
        known.append(_State.BAD if new and new_masks_are_bad else state)
    return max(known, default=None)


def _state(values: Values) -> _State | None:
    if values is None:
        return None
    extrema = known((values.maximum, values.minimum))
    if not extrema:
        others = known((values.mean, values.norm))
        finite = all(map(math.isfinite, others))
        return None if not others else _State.FINITE if finite else _State.BAD
    if all(map(math.isfinite, extrema)):
        return _State.FINITE
    is_mask = values.minimum == -math.inf and not any(
        math.isnan(each) or each == math.inf for each in extrema
    )
    return _State.MASKED if is_mask else _State.BAD
