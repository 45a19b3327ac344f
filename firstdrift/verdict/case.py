"""What the rules look at: one row when its turn comes, with what was recorded and what has been seen so far.

Evidence    recorded; does not change            Progress    seen in the rows before; grows row by row
└──────────────┬─────────────────────────────┘
Case    one row when its turn comes
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from functools import reduce
from itertools import compress, product
from operator import or_

from msgspec import Struct

from firstdrift.metrics.measurement import STATISTICS
from firstdrift.model.node import BACKWARD
from firstdrift.model.tensor import GRADIENT, UNDERFLOW
from firstdrift.verdict.conditioning import Term
from firstdrift.verdict.confidence import Excess, Quantity
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.fixed_thresholds import (
    CERTAIN_FROM_STATISTICS,
    MADE_OF,
    NOISE_BEFORE,
    STATISTICS_ROUNDING,
)
from firstdrift.verdict.layer_outliers import PeerGroup
from firstdrift.verdict.movable_thresholds import Thresholds
from firstdrift.verdict.row_errors import RowErrors
from firstdrift.verdict.systematic import ROUNDED
from firstdrift.verdict.training import BUFFERS
from firstdrift.verdict.tree import TreeRow


@dataclass(slots=True)
class Progress:
    """What has been seen in the rows before.

    Attributes:
        roundoff: coarsest unit roundoff: what was once rounded stays so.
        inside: worst error recorded below each row; known_inside: whether anything below explains errors;
            origins_inside: how many rows below are origins.
        level: errors above it belong to a fault; below it, to rounding. Infinite without a fault.
        first_origin: place of the first row at which an error begins.
        reached_from: place from which on errors above the level belong to a fault: that of the first origin,
            or of the node at which an error began in a slice before, if that comes sooner.
        input_row: the row whose inputs come from outside and differ; input_pair: the pair that shows it.
        seen: worst output error; None before the first.
        seen_whole: the same with the rows of tokens that went to other experts.
        seen_difference: largest norm of the difference of a gradient.
        trained: largest error of a parameter that a training step before explains.
        given: error of what the model is given, as far as it is known and slight.
        gain: largest gain of an output (`gain.py`).
        has_tie: other values were chosen before, by a tie.
        outstanding: rows whose output error stands out among their peers; likewise outstanding_inputs.
        peers_before: peer groups of the rows before, if any row stands out.
    """

    roundoff: float
    inside: list[float]
    known_inside: list[bool]
    origins_inside: list[int]
    level: float = math.inf
    first_origin: int | None = None
    reached_from: int | None = None
    input_row: int | None = None
    input_pair: int | None = None
    seen: float | None = None
    seen_whole: float = 0.0
    seen_difference: float = 0.0
    trained: float = 0.0
    given: float = 0.0
    gain: float = 0.0
    has_tie: bool = False
    outstanding: frozenset[int] = frozenset()
    peers_before: set[PeerGroup] = field(default_factory=set)

    def see(self, error: RowErrors) -> None:
        """Remember what a row gave."""
        if error.output is not None and not error.is_set_aside:
            self.seen = max(self.seen or 0.0, error.output)
        self.seen_whole = max(self.seen_whole, self.seen or 0.0, error.whole_output)


class Scope(Flag):
    """What kind of row one is: several may hold."""

    GRADIENT = auto()
    """Gradients of parameters were recorded of it."""

    ACTIVATION = auto()
    """Any other."""

    INPUT = auto()
    """An ACTIVATION of which an input was compared."""

    UNRECORDED = auto()
    """An ACTIVATION of which neither an input nor anything inside was compared."""

    BACKWARD = auto()
    """An ACTIVATION of the backward pass."""

    CHOICE = auto()
    """An ACTIVATION of a slice in which other experts, or other whole numbers, were chosen."""


class Case(Struct, gc=False):
    """One row when its turn comes.

    Attributes:
        roundoff: coarsest unit roundoff so far.
        weights: whether its parameters differ.
        is_unrecorded: neither its inputs nor anything inside it was recorded.
        scope: what kind of row it is.
        operands: the outputs that it adds up; known only of what is_unrecorded.
        explained: the output error that its inputs and what ran before explain.
        explanation: id of the entry of `explanations.py` that explains most of it.
        added: what a module adds up in its own code, if its output is held against that.
        jumped: its output error is more than what is explained.
        scaled: by how much its output is scaled, and the limit that this exceeds, if that alone tells.
    """

    evidence: Evidence
    progress: Progress
    row: TreeRow
    error: RowErrors
    roundoff: float
    limits: Thresholds
    weights: bool
    is_unrecorded: bool
    scope: Scope
    operands: tuple[Term, ...] = ()
    explained: float = 0.0
    explanation: str = ""
    added: tuple[Term, ...] = ()
    jumped: bool = False
    scaled: Excess | None = None

    @property
    def level(self) -> float:
        """Error above which what follows belongs to the fault before, or to one that begins here."""
        if self.progress.level < math.inf:
            return self.progress.level
        before = self.evidence.before.fault
        return before.level if before is not None else self._level_of_own()

    def _level_of_own(self) -> float:
        seen = self.progress.seen
        noise = seen if seen is not None and math.isfinite(seen) else 0.0
        return max(self.limits.floor * self.roundoff, NOISE_BEFORE.value * noise)

    @property
    def was_chosen_otherwise(self) -> bool:
        """Whether a module around the row was given other whole numbers: other experts, by a tie.

        Where nothing differed before, the choice was no tie.
        """
        is_inside = self.error.is_excused or self.row.index in self.evidence.chosen_otherwise
        return is_inside and bool(self.progress.seen)


def case_of(evidence: Evidence, progress: Progress, row: TreeRow) -> Case:
    """Lay out what is known of a row when its turn comes."""
    error, limits = evidence.errors[row.index], evidence.limits
    roundoff = progress.roundoff or limits.roundoff_float32
    unrecorded = error.input is None and not progress.known_inside[row.index]
    is_backward = row.direction is BACKWARD
    differing = None
    if error.parameter and not (error.is_by_number and progress.seen):
        differing = differing_parameter(evidence, error, roundoff)
    if differing is not None:
        error.parameter, error.parameter_pair = evidence.pair_errors[differing].value, differing
    return Case(
        evidence,
        progress,
        row,
        error,
        roundoff,
        limits,
        differing is not None,
        unrecorded,
        _SCOPES[
            GRADIENT in error.roles,
            error.input is not None,
            unrecorded,
            is_backward,
            evidence.has_choices,
        ],
        evidence.known_operands(row, progress.roundoff) if unrecorded else (),
    )


def _scope(holds: Sequence[bool]) -> Scope:
    """Return what kind of row one is: of gradients, or whatever else holds."""
    kinds = (Scope.INPUT, Scope.UNRECORDED, Scope.BACKWARD, Scope.CHOICE)
    is_gradient, *others = holds
    return Scope.GRADIENT if is_gradient else reduce(or_, compress(kinds, others), Scope.ACTIVATION)


_SCOPES = {holds: _scope(holds) for holds in product((False, True), repeat=5)}


def differing_parameter(evidence: Evidence, error: RowErrors, roundoff: float) -> int | None:
    """Return the parameter of a row that differs most beyond what its dtype, or training, explains."""
    excess = {at: _excess(evidence, at, roundoff) for at in error.parameters}
    beyond = [at for at in error.parameters if excess[at] > 1.0]
    return max(beyond, key=excess.__getitem__, default=None)


def excess_of_parameter(evidence: Evidence, pair: int) -> Excess | None:
    """Return the error of a parameter and what its dtypes and training explain; None without a number."""
    error = evidence.pair_errors[pair]
    whole, ends = _excesses(evidence, pair, error.roundoff)
    worst = max(ends, key=lambda end: end.margin, default=None)
    # What is certain of the weight as a whole is not told by one of its elements.
    if worst is not None and whole < min(worst.margin, CERTAIN_FROM_STATISTICS.value):
        return worst
    return Excess(error.value, error.value / whole, Quantity.WEIGHT) if error.value and whole else None


def _excess(evidence: Evidence, pair: int, roundoff: float) -> float:
    """Return the error of a parameter over what is explained of it."""
    whole, ends = _excesses(evidence, pair, roundoff)
    return max(whole, *(end.margin for end in ends), 0.0)


def _excesses(evidence: Evidence, pair: int, roundoff: float) -> tuple[float, tuple[Excess, ...]]:
    """Return the error of a parameter over what is explained of it, and how far off its ends are."""
    error, measured = evidence.pair_errors[pair], evidence.measurements[pair]
    if not error.value or error.discrete or pair in evidence.systematic_pairs:
        return 0.0, ()
    trained = explained_by_training(evidence, pair)
    # Training moves whole tensors by so much, and single rows by more.
    whole = measured.errors.relative_l2 if trained and measured.errors is not None else error.value
    if pair in evidence.made_weights and measured.errors is not None:
        whole = max(measured.errors.relative_l2, error.value / MADE_OF.value)
    roundoff = max(error.roundoff, _stored(evidence, pair)) if evidence.systematic_weights else roundoff
    rounding = evidence.limits.parameter_floor * roundoff
    if measured.kind is STATISTICS:  # which are rounded as well, each by itself
        rounding = max(2.0 * rounding, STATISTICS_ROUNDING.value * evidence.limits.roundoff_float32)
    ends = () if trained else tuple(_ends(evidence, pair, roundoff))
    return min(whole, error.value) / (rounding + trained), ends


def _stored(evidence: Evidence, pair: int) -> float:
    """Return the roundoff that a weight was stored in, or made of weights that were all rounded to a format.

    What all others have is an excuse for what may be computed from them, and for no other difference.
    """
    systematic = evidence.systematic_weights
    if systematic is None or systematic.rule is not ROUNDED or pair not in evidence.made_weights:
        return evidence.stored
    return max(evidence.stored, systematic.level)


def _ends(evidence: Evidence, pair: int, roundoff: float) -> Iterator[Excess]:
    """Say how far off the largest and the smallest element of a weight are, and what rounding explains.

    Rounding keeps the order of numbers: the largest one is what the largest one was rounded to.
    """
    measured, names, limits = evidence.measurements[pair], evidence.plan.pairs[pair], evidence.limits
    golden, differences = measured.golden, measured.differences
    if measured.kind is not STATISTICS or golden is None or differences is None:
        return
    both = roundoff + min(limits.roundoff(names.golden.dtype), limits.roundoff(names.target.dtype))
    times = MADE_OF.value if evidence.may_be_computed(pair) else 1.0
    least = max(UNDERFLOW.get(names.golden.dtype, 0.0), UNDERFLOW.get(names.target.dtype, 0.0))
    rounding = max(times * limits.parameter_floor * both, STATISTICS_ROUNDING.value * limits.roundoff_float32)
    ends = ((golden.maximum, differences.maximum), (golden.minimum, differences.minimum))
    for end, off in ends:
        if end and off is not None:
            yield Excess(abs(off / end), rounding + least / abs(end), Quantity.END)


def explained_by_training(evidence: Evidence, pair: int) -> float:
    """Return how far apart training may have taken a parameter."""
    if not evidence.is_later_step:
        return 0.0
    if evidence.plan.pairs[pair].golden.key in BUFFERS:
        return math.inf
    allowed = evidence.allowed_by_training(pair)
    return evidence.limits.later_step_parameters if allowed is None else allowed


def apart_by_training(evidence: Evidence, error: RowErrors) -> float:
    """Return how far apart training may have taken the parameters of a row, of which statistics alone tell.

    Their statistics may agree all the same: elements that turned the other way make no norm larger.
    """
    if not evidence.is_later_step:
        return 0.0
    told = (at for at in error.parameters if evidence.measurements[at].kind is STATISTICS)
    return max((evidence.allowed_by_training(at) or 0.0 for at in told), default=0.0)
