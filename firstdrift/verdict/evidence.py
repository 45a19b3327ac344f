"""What is known of one slice while its rows are judged: what was recorded, and what has been seen so far.

Evidence    recorded; does not change            Progress    seen in the rows before; grows row by row
└──────────────┬─────────────────────────────┘
Case    one row when its turn comes: what the rules look at
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from functools import cached_property
from itertools import product

from msgspec import Struct, field

from firstdrift.matching.plan import SlicePlan
from firstdrift.metrics.measurement import Measurement, MeasurementKind, SideSummary
from firstdrift.model.names import with_direction
from firstdrift.model.node import Direction
from firstdrift.model.tensor import UNIT_ROUNDOFF, Role
from firstdrift.verdict.baseline import Noise
from firstdrift.verdict.conditioning import is_sum
from firstdrift.verdict.layer_outliers import PeerGroup
from firstdrift.verdict.logits import count_outputs
from firstdrift.verdict.row_errors import RowErrors
from firstdrift.verdict.sums import Addend
from firstdrift.verdict.thresholds import Thresholds
from firstdrift.verdict.tree import TreeRow


@dataclass(frozen=True, eq=False)
class Evidence:
    """What was recorded of one slice.

    Attributes:
        rows: the tree; likewise errors, by row, and plan and measurements, by pair.
        outstanding: rows whose output error stands out among their peers; likewise outstanding_inputs.
        compute: unit roundoff of the format that matrix products run in.
        limits: what errors are held against.
        noise: what a healthy run shows.
    """

    rows: Sequence[TreeRow]
    errors: Sequence[RowErrors]
    plan: SlicePlan
    measurements: Sequence[Measurement]
    compute: float
    limits: Thresholds
    noise: Noise
    outstanding: frozenset[int] = frozenset()
    outstanding_inputs: frozenset[int] = frozenset()

    @cached_property
    def rows_by_name(self) -> Mapping[str, TreeRow]:
        """The rows by the names of their nodes on either side."""
        return {name: row for row in self.rows for name in (*row.golden, *row.target)}

    @cached_property
    def chosen_otherwise(self) -> frozenset[int]:
        """Rows in modules that were given other whole numbers, such as other experts."""
        return frozenset(
            inside
            for row in self.rows
            if row.parent is not None and self._was_given_other_numbers(row)
            for inside in range(row.index + 1, row.last + 1)
        )

    def _was_given_other_numbers(self, row: TreeRow) -> bool:
        pair = self.errors[row.index].integer_input_pair
        return pair is not None and "int" in self.plan.pairs[pair].target.dtype

    @cached_property
    def _forward_rows(self) -> Mapping[str, int]:
        return {
            row.golden[0]: row.index
            for row in self.rows
            if row.direction is Direction.FORWARD and row.golden and row.match is not None
        }

    @cached_property
    def measured_outputs(self) -> int:
        """Number of rows whose output was compared."""
        return count_outputs(self.errors, self.plan)

    @cached_property
    def gradient_norm(self) -> float:
        """The largest norm that a parameter's gradient has in the golden run."""
        return max(
            (
                measured.golden.norm
                for pair, measured in zip(self.plan.pairs, self.measurements, strict=True)
                if pair.target.role is Role.GRADIENT
                and measured.golden is not None
                and measured.golden.norm is not None
                and math.isfinite(measured.golden.norm)
            ),
            default=0.0,
        )

    @property
    def is_later_step(self) -> bool:
        """Whether parameters have been trained before."""
        return (self.plan.target.coordinates.step or 0) > 0

    def is_compared(self, error: RowErrors) -> bool:
        """Tell whether anything of a row could be compared."""
        return any(self.measurements[at].kind is not MeasurementKind.INCOMPARABLE for at in error.pairs)

    def forward_partner(self, row: TreeRow) -> RowErrors | None:
        """Return the errors of the forward pass of a backward row."""
        index = self._forward_rows.get(with_direction(row.golden[0], "forward")) if row.golden else None
        return None if index is None else self.errors[index]

    def children(self, row: TreeRow) -> list[TreeRow]:
        """Return the rows right below a row, in execution order."""
        below = [one for one in self.rows[row.index + 1 : row.last + 1] if one.parent == row.index]
        return sorted(below, key=lambda one: one.order)

    def above(self, row: TreeRow) -> Iterator[TreeRow]:
        """Go through the rows around a row, the innermost first."""
        while row.parent is not None:
            row = self.rows[row.parent]
            yield row

    def operands(self, row: TreeRow) -> list[TreeRow]:
        """Return the rows whose outputs a row adds up, as far as order tells."""
        names = self.plan.matches[row.match].operands if row.match is not None else ()
        return [self.rows_by_name[name] for name in names if name in self.rows_by_name]

    def errors_of_output(self, row: TreeRow) -> RowErrors:
        """Return the errors of a row; of a module without an output, those of what ends it."""
        error = self.errors[row.index]
        return self.errors[row.last] if error.output is None else error

    def output_of(self, row: TreeRow) -> tuple[float, SideSummary] | None:
        """Return error and golden statistics of an output."""
        error = self.errors_of_output(row)
        if error.output is None or error.output_pair is None:
            return None
        side = self.measurements[error.output_pair].golden
        return None if side is None or not math.isfinite(error.output) else (error.output, side)

    def is_known_sum(self, row: TreeRow, roundoff: float) -> bool:
        """Tell whether a row is the sum of outputs that were compared: order says so, and the means do."""
        pair = self.errors[row.index].output_pair
        known = [self.output_of(other) for other in (row, *self.operands(row))]
        sides = [side for _, side in filter(None, known)]
        if pair is None or len(sides) < len(known) or len(sides) == 1:
            return False
        return is_sum(sides[0], sides[1:], self.unit_of(pair, roundoff))

    def unit_of(self, pair: int, otherwise: float) -> float:
        """Return the unit roundoff of the golden dtype of a pair; of no floating dtype, another."""
        dtype = self.plan.pairs[pair].golden.dtype
        return self.limits.roundoff(dtype) if dtype in UNIT_ROUNDOFF else otherwise

    def is_bounded_sum(self, row: TreeRow, roundoff: float) -> bool:
        """Tell whether a row is the sum of outputs of which all the data were compared."""
        pairs = (self.errors_of_output(one).output_pair for one in (row, *self.operands(row)))
        kinds = {self.measurements[pair].kind for pair in pairs if pair is not None}
        return kinds == {MeasurementKind.DATA} and self.is_known_sum(row, roundoff)


class Progress(Struct):
    """What has been seen in the rows before.

    Attributes:
        roundoff: coarsest unit roundoff: what was once rounded stays so.
        inside: worst error recorded below each row; known_inside: whether anything below explains errors;
            origins_inside: how many rows below are origins.
        level: errors above it belong to a fault; below it, to rounding. Infinite without a fault.
        first_origin: execution order of the first row at which an error begins.
        input_row: the row whose inputs come from outside and differ; input_pair: the pair that shows it.
        seen: worst output error; None before the first.
        seen_whole: the same with the rows of tokens that went to other experts.
        peers_before: peer groups of the rows before, if any row stands out.
    """

    roundoff: float
    inside: list[float]
    known_inside: list[bool]
    origins_inside: list[int]
    level: float = math.inf
    first_origin: int | None = None
    input_row: int | None = None
    input_pair: int | None = None
    seen: float | None = None
    seen_whole: float = 0.0
    peers_before: set[PeerGroup] = field(default_factory=set)


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


class Case(Struct, gc=False):
    """One row when its turn comes.

    Attributes:
        roundoff: coarsest unit roundoff so far.
        weights: whether its parameters differ.
        is_unrecorded: neither its inputs nor anything inside it was recorded.
        is_sum: it is the sum of outputs that were compared; known only of what is_unrecorded.
        scope: what kind of row it is.
        explained: the output error that its inputs and what ran before explain.
        explanation: id of the entry of `explanations.py` that explains most of it.
        added: what a module adds up in its own code, if its output is held against that.
        jumped: its output error is more than what is explained.
    """

    evidence: Evidence
    progress: Progress
    row: TreeRow
    error: RowErrors
    roundoff: float
    weights: bool
    is_unrecorded: bool
    is_sum: bool
    scope: Scope
    explained: float = 0.0
    explanation: str = ""
    added: tuple[Addend, ...] = ()
    jumped: bool = False

    @property
    def limits(self) -> Thresholds:
        """What errors are held against."""
        return self.evidence.limits

    @property
    def was_chosen_otherwise(self) -> bool:
        """Whether a module around the row was given other whole numbers: other experts, by a tie.

        Where nothing differed before, the choice was no tie.
        """
        is_inside = self.row.index in self.evidence.chosen_otherwise or self.error.is_excused
        return is_inside and bool(self.progress.seen)


def case_of(evidence: Evidence, progress: Progress, row: TreeRow) -> Case:
    """Lay out what is known of a row when its turn comes."""
    error = evidence.errors[row.index]
    roundoff = progress.roundoff or evidence.limits.roundoff_float32
    unrecorded = error.input is None and not progress.known_inside[row.index]
    return Case(
        evidence,
        progress,
        row,
        error,
        roundoff,
        weights=weights_differ(evidence, error, roundoff),
        is_unrecorded=unrecorded,
        is_sum=unrecorded and evidence.is_known_sum(row, progress.roundoff),
        scope=_SCOPES[
            Role.GRADIENT in error.roles,
            error.input is not None,
            unrecorded,
            row.direction is Direction.BACKWARD,
        ],
    )


def _scope(*, gradient: bool, given: bool, unrecorded: bool, backward: bool) -> Scope:
    if gradient:
        return Scope.GRADIENT
    scope = Scope.ACTIVATION
    for holds, one in ((given, Scope.INPUT), (unrecorded, Scope.UNRECORDED), (backward, Scope.BACKWARD)):
        scope |= one if holds else Scope(0)
    return scope


_SCOPES = {
    known: _scope(gradient=known[0], given=known[1], unrecorded=known[2], backward=known[3])
    for known in product((False, True), repeat=4)
}


def weights_differ(evidence: Evidence, error: RowErrors, roundoff: float) -> bool:
    """Tell whether the parameters of a row differ by more than their dtype, or training, explains."""
    if error.parameter is None:
        return False
    limit = evidence.limits.parameter_floor * roundoff
    if evidence.is_later_step:
        limit = max(limit, evidence.limits.later_step_parameters)
    return error.parameter > limit
