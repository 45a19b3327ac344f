"""Where two implementations draw the line between modules: what is done inside the one, and after the other.

golden   embedding (scaled inside)  ──────────────▶  norm
target   embedding  ── x sqrt(width), in the code ─▶  norm

The golden output is what the norm is given, the norms are given the same, and the target's embedding gives
something else: the two outputs are not one quantity, and their difference is no fault. A fault that is
carried on changes what the norm is given.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from firstdrift.groups import grouped
from firstdrift.matching.implementations.thresholds import TIMES_NEARER
from firstdrift.matching.plan import TensorPair
from firstdrift.matching.structure.statistics_similarity import value_distance, value_key
from firstdrift.model.tensor import Role
from firstdrift.wording.message import Message

_Takers: TypeAlias = Mapping[Hashable, Sequence[TensorPair]]
"""Inputs by what tells their values."""
_OTHER_QUANTITY: Final = "matching.incomparable.other_quantity"


def is_other_quantity(pair: TensorPair) -> bool:
    """Tell whether the two tensors of a pair are not one quantity."""
    return pair.incomparable is not None and pair.incomparable.id == _OTHER_QUANTITY


def with_boundaries(pairs: Sequence[TensorPair]) -> list[TensorPair]:
    """Say of outputs that are not one quantity that they cannot be compared."""
    inputs = [pair for pair in pairs if pair.golden.role is Role.INPUT and pair.incomparable is None]
    of_golden = grouped(inputs, lambda pair: value_key(pair.golden))
    of_target = grouped(inputs, lambda pair: value_key(pair.target))
    for takers in (of_golden, of_target):
        takers.pop(None, None)
    return [
        pair if (taker := _contradicting(pair, of_golden, of_target)) is None else _apart(pair, taker)
        for pair in pairs
    ]


def _contradicting(pair: TensorPair, of_golden: _Takers, of_target: _Takers) -> TensorPair | None:
    """Return what is given one output as it is, and the same in the other run, which made another."""
    if pair.golden.role is not Role.OUTPUT or pair.incomparable is not None:
        return None
    distance = value_distance(pair.golden, pair.target)
    if distance is None:
        return None
    for taker in (*of_golden.get(value_key(pair.golden), ()), *of_target.get(value_key(pair.target), ())):
        given = value_distance(taker.golden, taker.target)
        if given is not None and given * TIMES_NEARER < distance:
            return taker
    return None


def _apart(pair: TensorPair, taker: TensorPair) -> TensorPair:
    reason = Message.of(_OTHER_QUANTITY, node=taker.golden_node)
    return replace(pair, incomparable=reason, joining=None, golden_parts=(), target_parts=())
