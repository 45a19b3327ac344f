"""What is known of one slice while its rows are judged: what was recorded, and what has been seen so far.

Evidence    recorded; does not change            Progress    seen in the rows before; grows row by row
└──────────────┬─────────────────────────────┘
Case    one row when its turn comes: what the rules look at
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as dataclass_replace
from enum import Flag, auto
from functools import cached_property, reduce
from itertools import compress, product
from operator import or_
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.matching.plan import SlicePlan
from firstdrift.metrics.measurement import Measurement, MeasurementKind, SideSummary
from firstdrift.model.names import with_direction
from firstdrift.model.node import Direction, NodeKind
from firstdrift.model.slice import Coordinates
from firstdrift.model.tensor import UNIT_ROUNDOFF, Role
from firstdrift.parallel.point_to_point import is_communication
from firstdrift.verdict.baseline import QUIET, Noise
from firstdrift.verdict.compute_format import compute_roundoff, stored_roundoff
from firstdrift.verdict.conditioning import Term, is_sum
from firstdrift.verdict.fixed_thresholds import FEW_ALONE, STATISTICS_ROUNDING
from firstdrift.verdict.layer_outliers import PeerGroup
from firstdrift.verdict.logits import is_logits
from firstdrift.verdict.movable_thresholds import DEFAULTS, Thresholds
from firstdrift.verdict.one_sided_gradients import OneSidedGradient, one_sided_gradients
from firstdrift.verdict.pair_error import PairError
from firstdrift.verdict.router_ties import Choice, find_choices
from firstdrift.verdict.row_errors import RowErrors, row_errors
from firstdrift.verdict.systematic import SystematicWeights, in_weights, weights_of
from firstdrift.verdict.training import BUFFERS, Training, parameter_name
from firstdrift.verdict.tree import TreeRow, holds_gradients


@dataclass(frozen=True, eq=False)
class Evidence:
    """What was recorded of one slice.

    Attributes:
        rows: the tree; likewise errors, by row, and plan, measurements and pair_errors, by pair.
        choices: where other experts were chosen.
        limits: what errors are held against.
        noise: what a healthy run shows.
        trained: what the step before shows of training; None where that is not known.
        was_systematic: all weights of a slice before had a difference.
    """

    plan: SlicePlan
    rows: Sequence[TreeRow]
    measurements: Sequence[Measurement]
    errors: Sequence[RowErrors]
    pair_errors: Sequence[PairError] = ()
    choices: Sequence[Choice] = ()
    limits: Thresholds = DEFAULTS
    noise: Noise = field(default=QUIET)
    trained: Training | None = None
    was_systematic: bool = False

    @cached_property
    def in_order(self) -> Sequence[TreeRow]:
        """The rows in execution order; the gradients of parameters last, which nothing else is made from."""
        return sorted(self.rows, key=lambda row: (holds_gradients(row), row.order))

    @cached_property
    def places(self) -> Sequence[int]:
        """The place of each row in that order, by index."""
        places = [0] * len(self.rows)
        for place, row in enumerate(self.in_order):
            places[row.index] = place
        return places

    @cached_property
    def compute(self) -> float:
        """Unit roundoff of the run, if products, or weights throughout, are coarser than their dtype."""
        systematic = self.systematic_weights
        return max(self.coarse_products, self.stored, systematic.level if systematic is not None else 0.0)

    @cached_property
    def stored(self) -> float:
        """Unit roundoff of the format that values were stored from, if it is coarser than their dtype."""
        return stored_roundoff(self.plan, self.measurements)

    @cached_property
    def coarse_products(self) -> float:
        """Unit roundoff that all products show, if it is coarser than their dtype."""
        return compute_roundoff(self.in_order, self.errors)

    @cached_property
    def row_of_match(self) -> Mapping[int, TreeRow]:
        """The rows by their matches."""
        return {row.match: row for row in self.rows if row.match is not None}

    def row_of(self, pair: int) -> TreeRow:
        """Return the row that a pair of tensors belongs to."""
        return self.row_of_match[self.plan.pairs[pair].match]

    @cached_property
    def rows_by_name(self) -> Mapping[str, TreeRow]:
        """The rows by the names of their nodes on either side."""
        return {name: row for row in self.rows for name in (*row.golden, *row.target)}

    @cached_property
    def communications(self) -> Sequence[TreeRow]:
        """The operators that let ranks talk to each other, in execution order."""
        return [row for row in self.in_order if is_communication(row.type_name)]

    @cached_property
    def chosen_otherwise(self) -> frozenset[int]:
        """Rows in modules that were given other whole numbers, such as other experts."""
        return frozenset(
            inside
            for row in self.rows
            if row.parent is not None and self._was_given_other_numbers(row)
            for inside in range(row.index + 1, row.last + 1)
        )

    @cached_property
    def has_choices(self) -> bool:
        """Whether other experts, or other whole numbers, were chosen anywhere."""
        return bool(self.choices or self.chosen_otherwise)

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
    def _children(self) -> Mapping[int | None, list[TreeRow]]:
        below = defaultdict[int | None, list[TreeRow]](list)
        for row in self.in_order:
            below[row.parent].append(row)
        return below

    @cached_property
    def choice_pairs(self) -> frozenset[int]:
        """Pairs that show that other experts were chosen."""
        return frozenset(choice.pair for choice in self.choices)

    @cached_property
    def logits(self) -> frozenset[int]:
        """Pairs that hold logits."""
        return frozenset(at for at, pair in enumerate(self.plan.pairs) if is_logits(pair))

    @cached_property
    def measured_outputs(self) -> int:
        """Number of rows whose output was compared; all that is inside the head counts as one."""
        compared = [error.output_pair for error in self.errors if error.output_pair is not None]
        heads = sum(pair in self.logits for pair in compared)
        return len(compared) - heads + bool(heads)

    @cached_property
    def gradient_norm(self) -> float:
        """The largest norm that a parameter's gradient has in the golden run."""
        gradients = (at for at, pair in enumerate(self.plan.pairs) if pair.target.role is Role.GRADIENT)
        norms = (self.measurements[at].golden_norm for at in gradients)
        return max(filter(math.isfinite, norms), default=0.0)

    @cached_property
    def is_same_code(self) -> bool:
        """Whether nearly all operators have partners, as in two runs of the same code."""
        operators = [row for row in self.rows if row.kind is NodeKind.API]
        alone = sum(row.match is None for row in operators)
        return alone <= FEW_ALONE.value * len(operators)

    @cached_property
    def systematic_weights(self) -> SystematicWeights | None:
        """What all weights have that differ by more than their dtypes explain; each is looked at once."""
        pairs = {self.parameter_name(at): at for error in self.errors for at in error.parameters}
        weights = weights_of(pairs.values(), self.plan, self.measurements, self.pair_errors)
        trained = self.is_later_step and not self.was_systematic
        return in_weights(weights, self.limits.parameter_floor, self.stored, may_be_trained=trained)

    @cached_property
    def systematic_pairs(self) -> frozenset[int]:
        """Pairs of the weights that have it, wherever they are used."""
        found = self.systematic_weights
        names = {self.parameter_name(at) for at in found.pairs} if found is not None else ()
        every = (at for error in self.errors for at in error.parameters if names)
        return frozenset(at for at in every if self.parameter_name(at) in names)

    @cached_property
    def one_sided_gradients(self) -> Mapping[int, OneSidedGradient]:
        """Gradients of parameters that one side alone has, by row."""
        return one_sided_gradients(self.plan, self.rows)

    @cached_property
    def typical_move(self) -> float:
        """How far the step before moved the elements of most parameters."""
        if self.trained is None:
            return 0.0
        pairs = (at for error in self.errors for at in error.parameters)
        moves = (self.trained.moved(self.parameter_name(at), self.measurements[at]) for at in pairs)
        return median([move for move in moves if move is not None] or [0.0])

    def parameter_name(self, pair: int) -> str:
        """Name a parameter in the same way in each step."""
        return parameter_name(self.plan.pairs[pair], self.row_of(pair))

    @property
    def is_later_step(self) -> bool:
        """Whether parameters have been trained before."""
        return (self.plan.target.coordinates.step or 0) > 0

    def coordinates(self, row: TreeRow) -> Coordinates:
        """Return where a row stands: the slice, and its micro batch."""
        coordinates = self.plan.target.coordinates
        return coordinates if row.micro_step is None else replace(coordinates, micro_step=row.micro_step)

    def is_compared(self, error: RowErrors) -> bool:
        """Tell whether anything of a row could be compared."""
        return any(self.measurements[at].kind is not MeasurementKind.INCOMPARABLE for at in error.pairs)

    def pairs_of(self, error: RowErrors, role: Role) -> Iterator[int]:
        """Go through the pairs of a row that the dump gives a role."""
        return (at for at in error.pairs if self.plan.pairs[at].target.role is role)

    def golden_sides(self, error: RowErrors, role: Role) -> Sequence[SideSummary]:
        """Return what is known of the golden tensors of a row that the dump gives a role."""
        sides = (self.measurements[at].golden for at in self.pairs_of(error, role))
        return [side for side in sides if side is not None]

    def forward_partner(self, row: TreeRow) -> RowErrors | None:
        """Return the errors of the forward pass of a backward row."""
        index = self._forward_rows.get(with_direction(row.golden[0], "forward")) if row.golden else None
        return None if index is None else self.errors[index]

    def children(self, row: TreeRow) -> Sequence[TreeRow]:
        """Return the rows right below a row, in execution order."""
        return self._children[row.index]

    def runs_alone(self, row: TreeRow) -> bool:
        """Tell whether nothing was recorded inside a row but the gradients of its parameters."""
        return all(map(holds_gradients, self.rows[row.index + 1 : row.last + 1]))

    def above(self, row: TreeRow) -> Iterator[TreeRow]:
        """Go through the rows around a row, the innermost first."""
        while row.parent is not None:
            row = self.rows[row.parent]
            yield row

    def known_operands(self, row: TreeRow, roundoff: float) -> tuple[Term, ...]:
        """Return what a row adds up, if all of it was compared: order says so, and the means do."""
        names = self.plan.matches[row.match].operands if row.match is not None else ()
        pair = self.errors[row.index].output_pair
        if not names or pair is None:
            return ()
        rows = [row, *(self.rows_by_name[name] for name in names if name in self.rows_by_name)]
        known = [term for term in map(self._output, rows) if term is not None]
        if len(known) < len(rows) or len(known) == 1:
            return ()
        total, *terms = known
        adds_up = is_sum(total.side, [term.side for term in terms], self.unit_of(pair, roundoff))
        return tuple(terms) if adds_up else ()

    def _output(self, row: TreeRow) -> Term | None:
        """Return the output of a row; of a module without one, that of what ends it."""
        error = self.errors[row.index]
        error = self.errors[row.last] if error.output is None else error
        if error.output is None or error.output_pair is None or not math.isfinite(error.output):
            return None
        side = self.measurements[error.output_pair].golden
        return None if side is None else Term(_on_both_sides(row), error.output, side, error.output_pair)

    def unit_of(self, pair: int, otherwise: float) -> float:
        """Return the unit roundoff of the golden dtype of a pair; of no floating dtype, another."""
        dtype = self.plan.pairs[pair].golden.dtype
        return self.limits.roundoff(dtype) if dtype in UNIT_ROUNDOFF else otherwise


def _on_both_sides(row: TreeRow) -> str:
    """Name a node as each dump does: who knows the model by one of them finds it by that."""
    return " = ".join(dict.fromkeys(side[0] for side in (row.target, row.golden) if side))


def evidence_of(
    plan: SlicePlan,
    rows: Sequence[TreeRow],
    measurements: Sequence[Measurement],
    limits: Thresholds = DEFAULTS,
    noise: Noise = QUIET,
    trained: Training | None = None,
    *,
    was_systematic: bool = False,
) -> Evidence:
    """Collect the errors of a pair of slices, and where other experts were chosen in it."""
    choices = find_choices(rows, plan, measurements)
    errors, pair_errors = row_errors(rows, plan, measurements, limits, choices)
    known = (plan, rows, measurements, errors, pair_errors, choices, limits, noise, trained)
    return Evidence(*known, was_systematic=was_systematic)


def evidence_after_choice(evidence: Evidence, path: str) -> Evidence:
    """Add that other experts were chosen in a slice before, whose keys and values this one is given.

    What runs before the module in which they were chosen knows nothing of them.
    """
    orders = (row.order for row in evidence.rows if row.path == path)
    choices = (Choice(order=min(orders, default=-1), block=-1, last=-1, pair=-1), *evidence.choices)
    errors, pair_errors = row_errors(
        evidence.rows, evidence.plan, evidence.measurements, evidence.limits, choices
    )
    return dataclass_replace(evidence, errors=errors, pair_errors=pair_errors, choices=choices)


@dataclass(slots=True)
class Progress:
    """What has been seen in the rows before.

    Attributes:
        roundoff: coarsest unit roundoff: what was once rounded stays so.
        inside: worst error recorded below each row; known_inside: whether anything below explains errors;
            origins_inside: how many rows below are origins.
        level: errors above it belong to a fault; below it, to rounding. Infinite without a fault.
        first_origin: place of the first row at which an error begins.
        input_row: the row whose inputs come from outside and differ; input_pair: the pair that shows it.
        seen: worst output error; None before the first.
        seen_whole: the same with the rows of tokens that went to other experts.
        seen_difference: largest norm of the difference of a gradient.
        trained: largest error of a parameter that a training step before explains.
        given: error of what the model is given, as far as it is known and slight.
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
    input_row: int | None = None
    input_pair: int | None = None
    seen: float | None = None
    seen_whole: float = 0.0
    seen_difference: float = 0.0
    trained: float = 0.0
    given: float = 0.0
    has_tie: bool = False
    outstanding: frozenset[int] = frozenset()
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
    is_backward = row.direction is Direction.BACKWARD
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
            Role.GRADIENT in error.roles,
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


def excess_of_parameter(evidence: Evidence, pair: int) -> float | None:
    """Return the error of a parameter over what its dtypes and training explain; None without a number."""
    excess = _excess(evidence, pair, evidence.pair_errors[pair].roundoff)
    return excess if math.isfinite(excess) and excess else None


def _excess(evidence: Evidence, pair: int, roundoff: float) -> float:
    """Return the error of a parameter over what is explained of it."""
    error, measured = evidence.pair_errors[pair], evidence.measurements[pair]
    if not error.value or error.discrete or pair in evidence.systematic_pairs:
        return 0.0
    trained = explained_by_training(evidence, pair)
    # Training moves whole tensors by so much, and single rows by more.
    whole = measured.errors.relative_l2 if trained and measured.errors is not None else error.value
    # What all others have is no excuse for another difference.
    roundoff = max(error.roundoff, evidence.stored) if evidence.systematic_weights else roundoff
    rounding = evidence.limits.parameter_floor * roundoff
    if measured.kind is MeasurementKind.STATISTICS:  # which are rounded as well, each by itself
        rounding = max(2.0 * rounding, STATISTICS_ROUNDING.value * evidence.limits.roundoff_float32)
    return min(whole, error.value) / (rounding + trained)


def explained_by_training(evidence: Evidence, pair: int) -> float:
    """Return how far apart training may have taken a parameter."""
    if not evidence.is_later_step:
        return 0.0
    if evidence.plan.pairs[pair].golden.key in BUFFERS:
        return math.inf
    known = evidence.trained
    name, measured = evidence.parameter_name(pair), evidence.measurements[pair]
    allowed = known.allowed(name, measured, evidence.typical_move) if known is not None else None
    return evidence.limits.later_step_parameters if allowed is None else allowed
