"""What is known of one slice: what was recorded of it, which does not change while its rows are judged."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as dataclass_replace
from functools import cached_property
from statistics import median
from typing import Final, NamedTuple

from msgspec.structs import replace

from firstdrift.groups import known
from firstdrift.matching.plan import SlicePlan
from firstdrift.metrics.measurement import INCOMPARABLE, STATISTICS, Measurement
from firstdrift.model.names import with_direction
from firstdrift.model.node import API, BACKWARD, FORWARD, Direction
from firstdrift.model.slice import Coordinates
from firstdrift.model.tensor import GRADIENT, INPUT, OUTPUT, PARAMETER, ROUNDING, Role, is_floating
from firstdrift.parallel.point_to_point import is_communication
from firstdrift.verdict.baseline import QUIET, Noise
from firstdrift.verdict.compute_format import compute_roundoff, stored_roundoff
from firstdrift.verdict.conditioning import Term, is_sum
from firstdrift.verdict.fixed_thresholds import FEW_ALONE, LOWEST_VALUES
from firstdrift.verdict.logits import is_logits
from firstdrift.verdict.movable_thresholds import DEFAULTS, Thresholds
from firstdrift.verdict.one_sided_gradients import OneSidedGradient, one_sided_gradients
from firstdrift.verdict.pair_error import PairError
from firstdrift.verdict.router_ties import Choice, find_choices
from firstdrift.verdict.row_errors import RowErrors, fingerprint, known_parameters, row_errors
from firstdrift.verdict.systematic import SystematicWeights, in_weights, weights_of
from firstdrift.verdict.training import BUFFERS, Training, parameter_name
from firstdrift.verdict.tree import TreeRow, classes_of, holds_gradients, rows_by_match


class Fault(NamedTuple):
    """The error that began first in a run.

    Attributes:
        node: name of the target node at which it began.
        level: what it has reached is off by more than this.
    """

    node: str
    level: float


class Before(NamedTuple):
    """What the slices before show of the whole run.

    Attributes:
        training: what the last step shows of training; None where that is not known.
        has_systematic_weights: all their weights had a difference.
        weights_hide_faults: in one of them it was so large that no other fault could be seen.
        coarse_products: unit roundoff of all products; 0 where it is that of their dtype.
        fault: the first one, on the same rank; None if there was none.
    """

    training: Training | None = None
    has_systematic_weights: bool = False
    weights_hide_faults: bool = False
    coarse_products: float = 0.0
    fault: Fault | None = None


NOTHING_BEFORE: Final = Before()


@dataclass(frozen=True, eq=False)
class Evidence:
    """What was recorded of one slice.

    Attributes:
        rows: the tree; likewise errors, by row, and plan, measurements and pair_errors, by pair.
        choices: where other experts were chosen.
        limits: what errors are held against.
        noise: what a healthy run shows.
        before: what the slices before show.
    """

    plan: SlicePlan
    rows: Sequence[TreeRow]
    measurements: Sequence[Measurement]
    errors: Sequence[RowErrors]
    pair_errors: Sequence[PairError] = ()
    choices: Sequence[Choice] = ()
    limits: Thresholds = DEFAULTS
    noise: Noise = field(default=QUIET)
    before: Before = field(default=NOTHING_BEFORE)

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
        level = systematic.level if systematic is not None else 0.0
        return max(self.coarse_products, self.before.coarse_products, self.stored, level)

    @cached_property
    def is_coarse(self) -> bool:
        """Whether anything was stored or computed in a format that is coarser than float32."""
        return max(self.compute, self._coarsest_dtype) > self.limits.roundoff_float32

    @cached_property
    def rounding(self) -> float:
        """Coarsest unit roundoff of the run, leaving aside how far off weights are throughout."""
        formats = max(self.coarse_products, self.before.coarse_products, self.stored, self._coarsest_dtype)
        return formats or self.limits.roundoff_float32

    @cached_property
    def _coarsest_dtype(self) -> float:
        return max((error.roundoff or 0.0 for error in self.errors), default=0.0)

    @property
    def is_hidden_by_weights(self) -> bool:
        """Whether weights are so far off throughout that no output is far enough off to be another fault."""
        systematic = self.systematic_weights
        if systematic is None:
            return False
        return self.before.weights_hide_faults or self.limits.hides_faults(systematic.level)

    @cached_property
    def stored(self) -> float:
        """Unit roundoff of the format that values were stored from, if it is coarser than their dtype."""
        return stored_roundoff(self.plan, self.measurements)

    @cached_property
    def coarse_products(self) -> float:
        """Unit roundoff that all products show, if it is coarser than their dtype."""
        return compute_roundoff(self.in_order, self.errors, self.plan, self.measurements)

    @cached_property
    def row_of_match(self) -> Mapping[int, TreeRow]:
        """The rows by their matches."""
        return rows_by_match(self.rows)

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
            if row.direction is FORWARD and row.golden and row.match is not None
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
        compared = known(error.output_pair for error in self.errors)
        heads = sum(pair in self.logits for pair in compared)
        return len(compared) - heads + bool(heads)

    @cached_property
    def gradient_norm(self) -> float:
        """The largest norm that a parameter's gradient has in the golden run."""
        gradients = (at for at, pair in enumerate(self.plan.pairs) if pair.role is GRADIENT)
        norms = (self.measurements[at].golden_norm for at in gradients)
        return max(filter(math.isfinite, norms), default=0.0)

    @cached_property
    def is_same_code(self) -> bool:
        """Whether nearly all operators have partners, as in two runs of the same code."""
        operators = [row for row in self.rows if row.kind is API]
        alone = sum(row.match is None for row in operators)
        return alone <= FEW_ALONE.value * len(operators)

    @cached_property
    def has_same_classes(self) -> bool:
        """Whether nearly all modules are of the same class in both runs, as in two runs of the same code."""
        told = known(map(classes_of, self.rows))
        return sum(golden != target for golden, target in told) <= FEW_ALONE.value * len(told)

    @cached_property
    def systematic_weights(self) -> SystematicWeights | None:
        """What all weights have that differ by more than their dtypes explain; each is looked at once."""
        pairs = {self.parameter_name(at): at for error in self.errors for at in error.parameters}
        weights = weights_of(pairs.values(), self.plan, self.measurements, self.pair_errors)
        trained = self.is_later_step and not self.before.has_systematic_weights
        return in_weights(weights, self.limits.parameter_floor, self.stored, may_be_trained=trained)

    @cached_property
    def systematic_pairs(self) -> frozenset[int]:
        """Pairs of the weights that have it, wherever they are used."""
        found = self.systematic_weights
        names = set(map(self.parameter_name, found.pairs)) if found is not None else ()
        every = (at for error in self.errors for at in error.parameters if names)
        return frozenset(at for at in every if self.parameter_name(at) in names)

    def parameters_like(self, pair: int) -> Sequence[int]:
        """List the pairs of parameters whose golden side has the shape of that of a pair, each once."""
        return self._parameters_by_shape.get(self.plan.pairs[pair].golden.shape, ())

    @cached_property
    def _parameters_by_shape(self) -> Mapping[tuple[int, ...] | None, Sequence[int]]:
        found = defaultdict[tuple[int, ...] | None, list[int]](list)
        for pair in {
            self.parameter_name(at): at for error in self.errors for at in error.parameters
        }.values():
            found[self.plan.pairs[pair].golden.shape].append(pair)
        return found

    def inputs_alike(self, error: RowErrors, output: int) -> Iterator[int]:
        """List the inputs of a row that have the shape of an output of it, in floating point."""
        shape = self.plan.pairs[output].golden.shape
        for at in error.pairs:
            given = self.plan.pairs[at]
            if given.role is INPUT and given.golden.shape == shape and is_floating(given.golden.dtype):
                yield at

    def place_of(self, pair: int) -> str:
        """Name the innermost module around a pair; the node itself where none is known."""
        row = self.row_of(pair)
        return next(filter(None, (one.path for one in (row, *self.above(row)))), row.label)

    @cached_property
    def made_weights(self) -> frozenset[int]:
        """Pairs of weights that operators were given and no module is known to own: they may be computed."""
        own = known_parameters(self.plan.pairs)
        return frozenset(
            at
            for error in self.errors
            for at in error.parameters
            if (pair := self.plan.pairs[at]).role is not PARAMETER
            and fingerprint(pair.golden, pair.target) not in own
        )

    def is_masked(self, pair: int | None) -> bool:
        """Tell whether what masks a tensor, as in attention, outweighs its other values: no norm shows these.

        The smaller of its ends is then below the rounding of the larger one, which no activation comes near.
        Values themselves tell.
        """
        if pair is None or self.measurements[pair].kind is not STATISTICS:
            return False
        side = self.measurements[pair].golden
        if side is None or side.maximum is None or side.minimum is None:
            return False
        smaller, larger = sorted((abs(side.maximum), abs(side.minimum)))
        is_outweighed = 0.0 < smaller < self.pair_errors[pair].roundoff * larger
        return is_outweighed and larger >= LOWEST_VALUES.value

    def may_be_computed(self, pair: int) -> bool:
        """Tell whether a weight may be computed from others: no module has it, or an operator gave it."""
        return pair in self.made_weights and (self._has_parameters or self._value(pair) in self._made_values)

    @cached_property
    def _has_parameters(self) -> bool:
        return any(pair.role is PARAMETER for pair in self.plan.pairs)

    @cached_property
    def _made_values(self) -> frozenset[tuple[object, ...] | int]:
        outputs = (at for at, pair in enumerate(self.plan.pairs) if pair.role is OUTPUT)
        return frozenset(map(self._value, outputs))

    @cached_property
    def one_sided_gradients(self) -> Mapping[int, OneSidedGradient]:
        """Gradients of parameters that one side alone has, by row."""
        return one_sided_gradients(self.plan, self.rows)

    @cached_property
    def typical_move(self) -> float:
        """How far the step before moved the elements of most parameters."""
        if self.before.training is None:
            return 0.0
        pairs = (at for error in self.errors for at in error.parameters)
        moves = (self.before.training.moved(self.parameter_name(at), self.measurements[at]) for at in pairs)
        return median(known(moves) or [0.0])

    def allowed_by_training(self, pair: int) -> float | None:
        """Return how far apart the step before may have taken a parameter; None where that is not known."""
        known = self.before.training
        if known is None or self.plan.pairs[pair].golden.key in BUFFERS:
            return None
        quiet = self.limits.floor * self.pair_errors[pair].roundoff
        return known.allowed(self.parameter_name(pair), self.measurements[pair], self.typical_move, quiet)

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
        return any(self.measurements[at].kind is not INCOMPARABLE for at in error.pairs)

    def pairs_of(self, error: RowErrors, role: Role) -> Iterator[int]:
        """Go through the pairs of a row that the dump gives a role."""
        return (at for at in error.pairs if self.plan.pairs[at].role is role)

    def forward_partner(self, row: TreeRow) -> RowErrors | None:
        """Return the errors of the forward pass of a backward row."""
        index = self._forward_rows.get(with_direction(row.golden[0], "forward")) if row.golden else None
        return None if index is None else self.errors[index]

    def makers(self, row: TreeRow, pair: int) -> Sequence[TreeRow]:
        """List the rows that made an input of a row in the golden run, as far as equal values tell.

        They gave it; in the backward pass they are the backward of what took what the forward gave.
        """
        if row.direction is not BACKWARD:
            return self._sharing(row, [pair], OUTPUT)
        forward = self._turned(row, FORWARD)
        if forward is None:
            return ()
        gave = list(self.pairs_of(self.errors[forward.index], OUTPUT))
        takers = self._sharing(forward, gave, INPUT)
        backward = [self._turned(one, BACKWARD) for one in takers]
        turned = known(backward)
        return turned if len(turned) == len(takers) else ()

    def errors_of_same_input(self, row: TreeRow, pair: int) -> Iterator[float]:
        """Go through the errors that others were given of what a row of the forward pass was given."""
        if row.direction is BACKWARD:
            return
        value = self._value(pair)
        for one in self._sharing(row, [pair], INPUT):
            given = self.pairs_of(self.errors[one.index], INPUT)
            same = (at for at in given if self._value(at) == value)
            yield from known(self.pair_errors[at].value for at in same)

    def _turned(self, row: TreeRow, direction: Direction) -> TreeRow | None:
        """Return the row of the other pass of a row; None where it was not recorded."""
        return self.rows_by_name.get(with_direction(row.golden[0], direction)) if row.golden else None

    def _sharing(self, row: TreeRow, pairs: Sequence[int], role: Role) -> Sequence[TreeRow]:
        """List the other rows of the same pass with a value of some pairs, in a role."""
        values = set(map(self._value, pairs))
        same = (one for one in self.in_order if one.direction is row.direction and one is not row)
        return [
            one
            for one in same
            if not values.isdisjoint(map(self._value, self.pairs_of(self.errors[one.index], role)))
        ]

    def _value(self, pair: int) -> tuple[object, ...] | int:
        """Return what tells the value of the golden side of a pair; the pair itself where nothing does."""
        golden = self.plan.pairs[pair].golden
        return pair if golden.statistics is None and golden.digest is None else fingerprint(golden)

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
        rows = [row, *known(map(self.rows_by_name.get, names))]
        outputs = known(map(self._output, rows))
        if len(outputs) < len(rows) or len(outputs) == 1:
            return ()
        total, *terms = outputs
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
        return self.limits.roundoff(dtype) if dtype in ROUNDING else otherwise


def _on_both_sides(row: TreeRow) -> str:
    """Name a node as each dump does: who knows the model by one of them finds it by that."""
    return " = ".join(dict.fromkeys(side[0] for side in (row.target, row.golden) if side))


def evidence_of(
    plan: SlicePlan,
    rows: Sequence[TreeRow],
    measurements: Sequence[Measurement],
    limits: Thresholds = DEFAULTS,
    noise: Noise = QUIET,
    before: Before = NOTHING_BEFORE,
) -> Evidence:
    """Collect the errors of a pair of slices, and where other experts were chosen in it."""
    choices = find_choices(rows, plan, measurements)
    errors, pair_errors = row_errors(rows, plan, measurements, limits, choices)
    return Evidence(plan, rows, measurements, errors, pair_errors, choices, limits, noise, before)


def evidence_after_choice(evidence: Evidence, path: str | None) -> Evidence:
    """Add that other experts were chosen in a slice before, whose keys and values this one is given.

    What runs before the module in which they were chosen knows nothing of them; without a path, as after a
    training step, everything does.
    """
    orders = (row.order for row in evidence.rows if path is not None and row.path == path)
    choices = (Choice(order=min(orders, default=-1), block=-1, last=-1, pair=-1), *evidence.choices)
    errors, pair_errors = row_errors(
        evidence.rows, evidence.plan, evidence.measurements, evidence.limits, choices
    )
    return dataclass_replace(evidence, errors=errors, pair_errors=pair_errors, choices=choices)
