"""Dropouts of a slice: whether they are on, drew the same numbers, and keep their law.

    y = x / (1 - p) where it is kept, 0 elsewhere        p the same in both runs

Other numbers are drawn with every seed, and what they make differ says nothing. What is kept is multiplied by
one number, though, and as many are kept in both runs as chance lets differ. That number is known where the
largest and the smallest element were kept: both then have it. Else the norm tells it, within chance.
"""

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

from firstdrift.groups import known
from firstdrift.metrics.measurement import SideSummary
from firstdrift.model.node import Direction
from firstdrift.model.tensor import Role
from firstdrift.operators.properties import drops_elements, is_dropout
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.fixed_thresholds import (
    DROPOUT_CHANCE,
    DROPOUT_ROUNDING,
    LEAST_DROPOUTS,
    STATISTICS_ROUNDING,
)
from firstdrift.verdict.movable_thresholds import DEFAULTS
from firstdrift.verdict.row_errors import RowErrors
from firstdrift.verdict.tree import TreeRow
from firstdrift.wording.message import Message

_SAME: Final = STATISTICS_ROUNDING.value * DEFAULTS.roundoff_float32


class Dropout(NamedTuple):
    """A dropout that was compared.

    Attributes:
        row: index of its row.
        golden_drops: whether it gave other values than it was given; likewise target_drops.
        drew_otherwise: what it was given agrees, and what it gave does not.
        fault: how it does not do in the target what it does in the golden run, whatever was drawn.
    """

    row: int
    golden_drops: bool
    target_drops: bool
    drew_otherwise: bool
    fault: Message | None = None


def in_dropouts(dropouts: list[Dropout]) -> Message | None:
    """Say how the dropouts of a slice differ; None where they agree, or one alone is otherwise.

    Some have a probability of 0, and are off at all times.
    """
    least, count = LEAST_DROPOUTS.value, len(dropouts)
    golden = sum(one.golden_drops for one in dropouts)
    target = sum(one.target_drops for one in dropouts)
    if target >= least and not golden:
        return Message.of("systematic.dropout_target", count=target, known=count)
    if golden >= least and not target:
        return Message.of("systematic.dropout_golden", count=golden, known=count)
    if min(golden, target) >= least and any(one.drew_otherwise for one in dropouts):
        return Message.of("systematic.dropout_both", count=target, known=count)
    return None


def dropouts_of(evidence: Evidence) -> list[Dropout]:
    """List the dropouts of which both sides were recorded, in the order of execution."""
    rows = (row for row in evidence.in_order if is_dropout(row.type_name))
    return known(dropout_of(evidence, row) for row in rows)


def dropout_of(evidence: Evidence, row: TreeRow) -> Dropout | None:
    """Return what is known of a dropout; None where too little was recorded."""
    error = evidence.errors[row.index]
    given, gave = (list(_tensors(evidence, error, role)) for role in (Role.INPUT, Role.OUTPUT))
    if row.match is None or row.direction is Direction.BACKWARD or len(given) != 1 or not gave:
        return None
    before, after = evidence.measurements[given[0]], evidence.measurements[gave[0]]
    golden, target = drops(before.golden, after.golden), drops(before.target, after.target)
    if golden is None or target is None:
        return None
    roundoff = error.roundoff or evidence.limits.roundoff_float32
    fault = None
    if golden and target and drops_elements(row.type_name):
        fault = unlike(kept(before.golden, after.golden), kept(before.target, after.target), roundoff)
    drew_otherwise = (error.input or 0.0) <= evidence.limits.floor * roundoff < (error.output or 0.0)
    return Dropout(row.index, golden, target, drew_otherwise and fault is None, fault)


def _tensors(evidence: Evidence, error: RowErrors, role: Role) -> Iterator[int]:
    return (at for at in evidence.pairs_of(error, role) if evidence.plan.pairs[at].target.is_tensor)


def drops(given: SideSummary | None, gave: SideSummary | None) -> bool | None:
    """Tell whether a dropout is on, by what it was given and gave on one side; None if that is not known."""
    if given is None or gave is None:
        return None
    numbers = ((given.norm, gave.norm), (given.maximum, gave.maximum), (given.minimum, gave.minimum))
    compared = [(one, other) for one, other in numbers if one is not None and other is not None]
    if not compared:
        return None
    return any(abs(one - other) > _SAME * max(abs(one), abs(other)) for one, other in compared)


class Kept(NamedTuple):
    """What a dropout kept on one side; None, or 0 of 0, where that is not known.

    Attributes:
        factor: what was kept is multiplied by it.
        stayed: how many elements were kept, `of` those that were not 0.
        gain: the square of the norm over that of what was given, and by how much chance moves it.
    """

    factor: float | None = None
    stayed: int = 0
    of: int = 0
    gain: tuple[float, float] | None = None


def kept(given: SideSummary | None, gave: SideSummary | None) -> Kept:
    """Return what a dropout kept, by what it was given and gave on one side."""
    if given is None or gave is None or not given.size:
        return Kept()
    zeros = (given.zeros, gave.zeros)
    stayed, of = (
        (0, 0) if None in zeros else (given.size - (gave.zeros or 0), given.size - (given.zeros or 0))
    )
    return Kept(_factor(given, gave), stayed, of, _gain(given, gave))


def _factor(given: SideSummary, gave: SideSummary) -> float | None:
    ends = ((given.maximum, gave.maximum), (given.minimum, gave.minimum))
    factors = [other / one for one, other in ends if one and other is not None and math.isfinite(one)]
    if len(factors) < len(ends):
        return None
    one, other = factors
    return one if one > 0.0 and abs(one - other) <= _SAME * one else None


def _gain(given: SideSummary, gave: SideSummary) -> tuple[float, float] | None:
    if not given.known_norm or not gave.known_norm:
        return None
    gain = (gave.known_norm / given.known_norm) ** 2
    share = min(gain, 1.0 / gain)  # of what is scaled as the law says, and of what is not scaled
    largest = max(abs(given.maximum or 0.0), abs(given.minimum or 0.0)) / given.known_norm
    return gain, gain * math.sqrt((1.0 - share) / share) * largest


def unlike(golden: Kept, target: Kept, roundoff: float) -> Message | None:
    """Say how a dropout does not do in the target what it does in the golden run; None if it may."""
    rounding = DROPOUT_ROUNDING.value * roundoff
    if golden.factor is not None and target.factor is not None:
        limit = max(_SAME, rounding) * golden.factor
        if abs(golden.factor - target.factor) > limit:
            return Message.of("reason.dropout_factor", golden=golden.factor, target=target.factor)
    if golden.of and target.of:
        shares = golden.stayed / golden.of, target.stayed / target.of
        if abs(shares[0] - shares[1]) > DROPOUT_CHANCE.value * _chance_of_shares(golden, target):
            return Message.of("reason.dropout_share", golden=shares[0], target=shares[1])
    if golden.gain is not None and target.gain is not None:
        (one, moved), (other, also) = golden.gain, target.gain
        if abs(one - other) > DROPOUT_CHANCE.value * math.hypot(moved, also) + rounding * one:
            return Message.of("reason.dropout_gain", golden=one, target=other)
    return None


def _chance_of_shares(golden: Kept, target: Kept) -> float:
    """Return the standard deviation of the difference of two shares, if both have one probability."""
    share = (golden.stayed + target.stayed) / (golden.of + target.of)
    return math.sqrt(share * (1.0 - share) * (1.0 / golden.of + 1.0 / target.of))
