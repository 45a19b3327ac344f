"""What each node did to the error: the rule set `firstdrift`, by amplification.

With e = relative L2 error and u = unit roundoff of the coarser dtype, an error begins at a node when

    e(output) > 3 x max(u, e(inputs))    and    e(output) > 32 x u

and it is called a *source* if its parameters agree, *weights differ* if they do not. The first part
asks whether the node made the error, the second keeps the rounding that a node gathers inside apart.
A module is held against everything recorded inside it as well, so that a leaf is named before the
modules that contain it. Limits on the error itself fire at the depth where healthy noise crosses
them; this rule does not look at depth. Study: `docs/verdict.md`.

A smaller error is a source too where a node stands out among its peers, the same node of the other
layers: more than 3 times the amplification of any of them. Some operators honestly magnify:
`conditioning.py` says how much. Matrix products may run in a coarser format than they are stored in
(TF32, HF32): `compute_format.py` sees it from the first of them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from firstdrift.matching.plan import SlicePlan
from firstdrift.metrics.measurement import Measurement, MeasurementKind, SideSummary
from firstdrift.model.names import with_direction
from firstdrift.model.node import Direction, NodeKind
from firstdrift.model.tensor import UNIT_ROUNDOFF, Role, is_floating, is_part_of_rank
from firstdrift.operators.kinds import Work
from firstdrift.verdict.baseline import QUIET, Noise
from firstdrift.verdict.compute_format import compute_roundoff, stored_roundoff
from firstdrift.verdict.conditioning import honest_error, is_sum
from firstdrift.verdict.judgement import ORIGINS, NodeClass, Reasons
from firstdrift.verdict.layer_outliers import PeerGroup, outstanding, peer_group
from firstdrift.verdict.logits import count_outputs, is_logits
from firstdrift.verdict.pair_error import size_of_pair
from firstdrift.verdict.router_ties import is_done_by_row
from firstdrift.verdict.row_errors import RowErrors, is_gradient_of_parameter
from firstdrift.verdict.sums import Addend, addends, explained_by_sum
from firstdrift.verdict.thresholds import DEFAULTS, Thresholds
from firstdrift.verdict.tree import TreeRow, is_embedding, work_of_row
from firstdrift.wording.message import verbatim
from firstdrift.wording.text import text_of

_MOST_CANCELLED = 1e3
"""How much larger than one dot product what it adds up may be: one in a thousand is as small by chance."""

_AS = " = "
_ANOTHER_ROW = 0.1
"""An embedding that is off by less, as a part of its norm, is hardly that of another token or position."""

_LOOKED_UP = "what it looked up was not recorded: another token or position would give this too"


class Classified(Struct, gc=False):
    """What the rule says of one row.

    Attributes:
        node_class: what the node did to the error.
        amplification: output error / what its inputs explain; None if not known.
        reasons: in words, the most telling first.
        worst_pair: the pair the reasons are about.
        entered: the error entered through this input, which nothing recorded explains.
        input_jump: input error / what was recorded before it; None if not known.
        is_tie: it chose otherwise among values that are equal within rounding.
    """

    node_class: NodeClass = NodeClass.CLEAN
    amplification: float | None = None
    reasons: Reasons = ()
    worst_pair: int | None = None
    entered: int | None = None
    input_jump: float | None = None
    is_tie: bool = False


@dataclass(slots=True)
class Classification:
    """What the rule says of the rows of one slice.

    Attributes:
        rows: one for each row, by index.
        level: errors above it belong to a fault; below it, to rounding. Infinite without a fault.
        first_origin: execution order of the first row at which an error begins; None if there is none.
        input_row: the row whose inputs come from outside and differ; None if they agree.
        input_pair: the pair that shows it.
        roundoff: coarsest unit roundoff that anything in the slice was stored or computed in.
        weak: rows that stand out among their peers, but too little to be called an origin.
    """

    rows: list[Classified]
    level: float = math.inf
    first_origin: int | None = None
    input_row: int | None = None
    input_pair: int | None = None
    roundoff: float = UNIT_ROUNDOFF["float32"]
    weak: frozenset[int] = frozenset()


def classify(
    rows: Sequence[TreeRow],
    errors: Sequence[RowErrors],
    plan: SlicePlan,
    measurements: Sequence[Measurement],
    *,
    other_input: bool = False,
    limits: Thresholds = DEFAULTS,
    noise: Noise = QUIET,
) -> Classification:
    """Walk the rows in execution order and say what each did to the error.

    With `other_input` it is known that the two sides were given something else: nothing is an origin.
    """
    in_order = sorted(rows, key=lambda row: row.order)
    compute = max(compute_roundoff(in_order, errors), stored_roundoff(plan, measurements))

    def walked(outstanding: frozenset[int], outstanding_inputs: frozenset[int]) -> Classification:
        walk = _Walk(
            rows, errors, plan, measurements, outstanding, outstanding_inputs, compute, limits, noise
        )
        if other_input and in_order:
            walk.result.input_row = in_order[0].index
        for row in in_order:
            walk.visit(row)
        return walk.result

    first = walked(frozenset(), frozenset())
    amplifications = [said.amplification for said in first.rows]
    outputs = outstanding(rows, amplifications, limits.factor)
    inputs = outstanding(rows, [said.input_jump for said in first.rows], limits.factor)
    # Whoever stands out after the first origin does so for what began there.
    last = first.first_origin if first.first_origin is not None else len(rows)
    early = any(rows[index].order < last for index in outputs | inputs)
    result = walked(outputs, inputs) if early else first
    result.weak = frozenset(
        index
        for index in outstanding(rows, amplifications, limits.weak_factor)
        if (errors[index].output or 0.0) > limits.peer_floor * result.roundoff
    )
    return result


@dataclass(slots=True)
class _Walk:
    """The state of one walk over the rows of a slice in execution order."""

    rows: Sequence[TreeRow]
    errors: Sequence[RowErrors]
    plan: SlicePlan
    measurements: Sequence[Measurement]
    outstanding: frozenset[int]  # rows whose output error stands out among their peers
    outstanding_inputs: frozenset[int]  # likewise input error
    compute: float  # unit roundoff of the format that matrix products run in
    limits: Thresholds
    noise: Noise
    result: Classification = field(init=False)
    seen: float | None = None  # worst output error so far; None before the first
    seen_whole: float = 0.0  # the same with the rows of tokens that went to other experts
    inside: list[float] = field(init=False)  # worst error recorded below each row
    known_inside: list[bool] = field(init=False)  # whether anything below was compared that explains errors
    rows_by_name: Mapping[str, TreeRow] = field(init=False)
    chosen_otherwise: frozenset[int] = field(init=False)  # rows in modules given other whole numbers
    origins_inside: list[int] = field(init=False)
    peers_before: set[PeerGroup] = field(default_factory=set)  # of the rows visited, if any stands out
    partners: Mapping[str, int] = field(init=False)
    measured_outputs: int = 0
    gradient_norm: float = 0.0  # largest norm of a parameter's gradient in the golden run
    roundoff: float = field(init=False)  # coarsest so far: what was once rounded stays so

    def __post_init__(self) -> None:
        self.result = Classification([Classified() for _ in self.rows], roundoff=self.limits.roundoff_float32)
        self.roundoff = self.compute
        self.inside = [0.0] * len(self.rows)
        self.known_inside = [False] * len(self.rows)
        self.rows_by_name = {name: row for row in self.rows for name in (*row.golden, *row.target)}
        self.origins_inside = [0] * len(self.rows)
        self.chosen_otherwise = frozenset(
            inside
            for row in self.rows
            if row.parent is not None and self._was_given_other_numbers(row)
            for inside in range(row.index + 1, row.last + 1)
        )
        self.partners = {
            row.golden[0]: row.index
            for row in self.rows
            if row.direction is Direction.FORWARD and row.golden and row.match is not None
        }
        self.measured_outputs = count_outputs(self.errors, self.plan)
        self.gradient_norm = max(
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

    def _was_given_other_numbers(self, row: TreeRow) -> bool:
        pair = self.errors[row.index].integer_input_pair
        return pair is not None and "int" in self.plan.pairs[pair].target.dtype

    def visit(self, row: TreeRow) -> None:
        error = self.errors[row.index]
        said = self.result.rows[row.index]
        self.roundoff = max(self.roundoff, error.roundoff or 0.0)
        self.result.roundoff = self.roundoff or self.result.roundoff
        if row.match is None:
            said.node_class = NodeClass.UNMATCHED
        else:
            self._judge(row, error, said)
        self._tell_parent(row, error, said)
        if self.outstanding:
            self.peers_before.add(peer_group(row))
        if error.output is not None and not error.is_set_aside:
            self.seen = max(self.seen or 0.0, error.output)
        self.seen_whole = max(self.seen_whole, self.seen or 0.0, error.whole_output)

    def _tell_parent(self, row: TreeRow, error: RowErrors, said: Classified) -> None:
        is_origin = said.node_class in ORIGINS and affects_output(said, error, self.limits)
        if is_origin and self.result.first_origin is None:
            self.result.first_origin = row.order
            self.result.level = self._level_of_fault()
        if row.parent is not None:
            own = 0.0 if error.is_set_aside else error.worst
            self.inside[row.parent] = max(self.inside[row.parent], self.inside[row.index], own)
            tells = self._is_compared(error) and not error.is_set_aside
            self.known_inside[row.parent] |= self.known_inside[row.index] or tells
            self.origins_inside[row.parent] += self.origins_inside[row.index] + is_origin

    def _is_compared(self, error: RowErrors) -> bool:
        return any(self.measurements[at].kind is not MeasurementKind.INCOMPARABLE for at in error.pairs)

    def _level_of_fault(self) -> float:
        roundoff = self.roundoff or self.limits.roundoff_float32
        noise = self.seen if self.seen is not None and math.isfinite(self.seen) else 0.0
        return max(self.limits.floor * roundoff, 2 * noise)

    def _judge(self, row: TreeRow, error: RowErrors, said: Classified) -> None:
        roundoff = self.roundoff or self.limits.roundoff_float32
        if self._input_comes_from_outside_and_differs(row, error, roundoff):
            pair = error.input_pair if error.integer_input_pair is None else error.integer_input_pair
            self.result.input_row, self.result.input_pair = row.index, pair
            said.node_class, said.reasons = NodeClass.PROPAGATED, (verbatim("the model's input differs"),)
            said.worst_pair = pair
            return
        if self.result.input_row is not None:
            is_off = error.worst > self.limits.floor * roundoff
            said.node_class = NodeClass.PROPAGATED if is_off else NodeClass.CLEAN
            return
        if self._entered_unexplained(row, error, roundoff):
            self._blame_what_surrounds(row, error)
        explained = self._explained(row, error, roundoff)
        added = self._addends(row, error, explained, roundoff)
        if added:
            explained = max(roundoff, self._explained_by(added, error))
        said.amplification = None if error.output is None else _ratio(error.output, explained)
        said.worst_pair = error.output_pair
        if self.origins_inside[row.index]:
            said.node_class = NodeClass.PROPAGATED
            said.reasons = (verbatim("the error begins inside it"),)
        elif said.node_class not in ORIGINS:
            self._name(row, error, said, explained, roundoff, added)

    def _jumps(self, row: TreeRow, error: RowErrors, explained: float, roundoff: float) -> bool:
        """Tell whether the output error of a row is more than what is explained, rounding and noise."""
        return (
            error.output is not None
            and error.output > self._factor(row, error) * explained
            and error.output > self._floor(row, error, roundoff)
            and error.output > self.limits.excess * self.noise.of_output(row)
        )

    def _name(
        self,
        row: TreeRow,
        error: RowErrors,
        said: Classified,
        explained: float,
        roundoff: float,
        added: Sequence[Addend],
    ) -> None:
        jumped = self._jumps(row, error, explained, roundoff)
        weights = self._weights_differ(error, roundoff)
        if error.non_finite and (jumped or Role.PARAMETER in error.non_finite):
            said.node_class = NodeClass.NON_FINITE
            said.reasons = (verbatim(_non_finite_reason(error)),)
        elif jumped and weights:
            said.node_class, said.worst_pair = NodeClass.WEIGHTS_DIFFER, error.parameter_pair
            said.reasons = (verbatim(self._weights_reason(error)),)
        elif jumped and error.scalar_pair is not None:
            said.node_class, said.worst_pair = NodeClass.STRUCTURE_DIFFERS, error.scalar_pair
            said.reasons = (verbatim(self._scalar_reason(error)),)
        elif jumped:
            flagged = (error.input or 0.0) > self.result.level
            said.node_class = NodeClass.AMPLIFIED if flagged else NodeClass.SOURCE
            said.reasons = tuple(
                map(verbatim, (self._jump_reason(row, error, added), *self._what_is_missing_inside(row)))
            )
        else:
            self._name_follower(error, said, weights=weights)

    def _floor(self, row: TreeRow, error: RowErrors, roundoff: float) -> float:
        """Return the output error above which something can have begun at a row."""
        if self.measured_outputs > 1:
            return (self.limits.peer_floor if self._stands_out(row, error) else self.limits.floor) * roundoff
        if error.output_pair is not None and is_logits(self.plan.pairs[error.output_pair]):
            return math.inf  # logits alone are held against those of other tokens
        return max(self.limits.hidden_floor * roundoff, self.limits.alone_floor)

    def _factor(self, row: TreeRow, error: RowErrors) -> float:
        """Return how many times the explained error is a jump; vectors of few elements can come out short.

        Those of a sum cannot: what the errors of its operands add up to is a bound.
        """
        summary = self.measurements[error.output_pair].golden if error.output_pair is not None else None
        size = summary.size if summary is not None else None
        factor = self.limits.factor
        if size == 1 and work_of_row(row) is Work.LINEAR:
            return factor * _MOST_CANCELLED
        if error.input is None and not self.known_inside[row.index] and self._is_bounded_sum(row):
            return factor
        return factor * (1.0 + 2.0 / math.sqrt(size)) if size else factor

    def _stands_out(self, row: TreeRow, error: RowErrors) -> bool:
        if row.index not in self.outstanding or error.output_pair is None:
            return False
        if peer_group(row) not in self.peers_before and self._is_held_against_what_ran_before(row, error):
            # That grows from layer to layer: the first of the peers stands out in healthy runs too.
            return False
        # Without norms the bound that statistics give is too uneven to be held against peers.
        measured = self.measurements[error.output_pair]
        norms = [side.norm for side in (measured.golden, measured.target) if side is not None]
        return measured.kind is MeasurementKind.DATA or (bool(norms) and None not in norms)

    def _name_follower(self, error: RowErrors, said: Classified, *, weights: bool) -> None:
        level = self.result.level
        if error.tie_pair is not None and error.exact_inputs:
            said.node_class, said.worst_pair = NodeClass.SOURCE, error.tie_pair
            said.reasons = (verbatim("its inputs are equal, its whole-number output is not"),)
        elif weights:
            said.node_class, said.worst_pair = NodeClass.WEIGHTS_DIFFER, error.parameter_pair
            said.reasons = (verbatim(self._weights_reason(error)),)
        elif error.tie_pair is not None:
            self._name_other_choice(error, said)
        elif error.shape_pair is not None and error.output is None:
            said.node_class, said.worst_pair = NodeClass.STRUCTURE_DIFFERS, error.shape_pair
            why = self.plan.pairs[error.shape_pair].incomparable
            said.reasons = (why or verbatim("numbers of other kinds"),)
        elif error.output is not None and error.output > level:
            said.node_class = NodeClass.PROPAGATED
            size = self._size(error.input, error.input_pair)
            said.reasons = (verbatim(f"its inputs already differ ({size})"),) if error.input else ()
        elif error.input is not None and error.input > level and error.output is not None:
            said.node_class = NodeClass.HEALED
            inputs, output = self._sizes(error)
            said.reasons = (verbatim(f"inputs differ ({inputs}), output hardly ({output})"),)

    def _name_other_choice(self, error: RowErrors, said: Classified) -> None:
        """Say of a row whose whole-number output differs whether that is a tie, or follows a fault."""
        said.worst_pair, level = error.tie_pair, self.result.level
        if (error.input or 0.0) > level:
            said.node_class = NodeClass.PROPAGATED
            said.reasons = (
                verbatim(f"its inputs already differ ({self._size(error.input, error.input_pair)})"),
            )
        elif math.isfinite(level) and error.integer_input_pair is not None:
            said.node_class = NodeClass.PROPAGATED
            said.reasons = (
                verbatim(f"its inputs already differ ({self._size(math.inf, error.integer_input_pair)})"),
            )
        elif math.isinf(level) or error.input is not None:
            said.is_tie = True
            said.reasons = (verbatim("another choice among nearly equal values (a tie within rounding)"),)

    def _explained(self, row: TreeRow, error: RowErrors, roundoff: float) -> float:
        known = [roundoff, self.inside[row.index]]
        if Role.GRADIENT in error.roles:
            return max(self._explained_gradient(error), *known)
        if error.integer_input_pair is not None or (
            # Another choice of experts gives them other tokens, and no other weights.
            self._was_chosen_otherwise(row) and not self._weights_differ(error, roundoff)
        ):
            known.append(math.inf)
        if not is_done_by_row(row):
            known.append(error.whole_input)
        if error.tells_little:
            known.append(self.seen_whole)
        if error.parameter is not None and not self._weights_differ(error, roundoff):
            known.append(self._explained_by_parameters(error))
        if error.input is not None:
            known.append(honest_error(row, error, self.plan, self.measurements))
        elif not self.known_inside[row.index]:
            known.append(self._explained_by_what_came_before(row))
        if row.direction is Direction.BACKWARD:
            known.append(self._explained_by_cancellation(row, error))
            partner = self._forward_partner(row)
            known += [self.seen_whole, partner.worst if partner else 0.0]
        return max(known)

    def _is_held_against_what_ran_before(self, row: TreeRow, error: RowErrors) -> bool:
        """Tell whether neither inputs, nor what is inside, nor operands say what a row was given."""
        return error.input is None and not self.known_inside[row.index] and not self._is_known_sum(row)

    def _explained_by_what_came_before(self, row: TreeRow) -> float:
        """Return the error that earlier outputs explain, where a row's own inputs were not recorded.

        Of a sum whose operands are known it is |d operands| / |sum|.
        """
        total = self._output_of(row)
        if total is None or not total[1].norm or not self._is_known_sum(row):
            return (self.seen or 0.0) if is_done_by_row(row) else self.seen_whole
        operands = [self._output_of(other) for other in self._operands(row)]
        return sum(known[0] * (known[1].norm or 0.0) for known in operands if known) / total[1].norm

    def _is_known_sum(self, row: TreeRow) -> bool:
        """Tell whether a row is the sum of outputs that were compared: order says so, and the means do."""
        pair = self.errors[row.index].output_pair
        known = [self._output_of(other) for other in (row, *self._operands(row))]
        sides = [side for _, side in filter(None, known)]
        if pair is None or len(sides) < len(known) or len(sides) == 1:
            return False
        dtype = self.plan.pairs[pair].golden.dtype
        return is_sum(
            sides[0], sides[1:], self.limits.roundoff(dtype) if dtype in UNIT_ROUNDOFF else self.roundoff
        )

    def _is_bounded_sum(self, row: TreeRow) -> bool:
        """Tell whether a row is the sum of outputs of which all the data were compared."""
        pairs = (self._errors_of_output(one).output_pair for one in (row, *self._operands(row)))
        kinds = {self.measurements[pair].kind for pair in pairs if pair is not None}
        return kinds == {MeasurementKind.DATA} and self._is_known_sum(row)

    def _operands(self, row: TreeRow) -> list[TreeRow]:
        names = self.plan.matches[row.match].operands if row.match is not None else ()
        return [self.rows_by_name[name] for name in names if name in self.rows_by_name]

    def _errors_of_output(self, row: TreeRow) -> RowErrors:
        """Return the errors of a row; of a module without an output, those of what ends it."""
        error = self.errors[row.index]
        return self.errors[row.last] if error.output is None else error

    def _output_of(self, row: TreeRow) -> tuple[float, SideSummary] | None:
        """Return error and golden statistics of an output."""
        error = self._errors_of_output(row)
        if error.output is None or error.output_pair is None:
            return None
        side = self.measurements[error.output_pair].golden
        return None if side is None or not math.isfinite(error.output) else (error.output, side)

    def _addends(
        self, row: TreeRow, error: RowErrors, explained: float, roundoff: float
    ) -> tuple[Addend, ...]:
        """Return what the output of a module adds, where only the errors inside it would excuse it.

        It is looked for where the module's own inputs and all that was added are known to the last digit.
        """
        if (
            row.last == row.index
            or row.direction is Direction.BACKWARD
            or self.origins_inside[row.index]
            or explained > max(roundoff, self.inside[row.index])
            or self._jumps(row, error, explained, roundoff)
            or not self._jumps(row, error, max(roundoff, error.input or 0.0), roundoff)
        ):
            return ()
        total = self._addend(row.label, error.output, error.output_pair)
        if total is None or error.output_pair is None:
            return ()
        children = [child for child in self._children(row) if self._is_forward_module(child)]
        given = [(one, self.errors[one.index]) for one in (row, *reversed(children))]
        streams = [self._addend(_named(one), at.input, at.input_pair) for one, at in given]
        branches = [self._branch(child) for child in reversed(children)]
        dtype = self.plan.pairs[error.output_pair].golden.dtype
        unit = self.limits.roundoff(dtype) if dtype in UNIT_ROUNDOFF else roundoff
        found = addends(total.side, [one for one in streams if one], [one for one in branches if one], unit)
        return found if found and self._jumps(row, error, self._explained_by(found, error), roundoff) else ()

    def _explained_by(self, added: Sequence[Addend], error: RowErrors) -> float:
        total = self.measurements[error.output_pair].golden if error.output_pair is not None else None
        return math.inf if total is None else explained_by_sum(total, added)

    def _children(self, row: TreeRow) -> list[TreeRow]:
        """Return the rows right below a row, in execution order."""
        below = [one for one in self.rows[row.index + 1 : row.last + 1] if one.parent == row.index]
        return sorted(below, key=lambda one: one.order)

    def _is_forward_module(self, row: TreeRow) -> bool:
        is_module = row.match is not None and row.kind is not NodeKind.API
        return is_module and row.direction is not Direction.BACKWARD

    def _branch(self, row: TreeRow) -> Addend | None:
        """Return what a module inside gives; if that was not compared, what its last module does."""
        error = self.errors[row.index]
        while error.output is None:
            children = self._children(row)
            if not children:
                return None
            row = children[-1]
            error = self.errors[row.index]
        return self._addend(_named(row), error.output, error.output_pair)

    def _addend(self, where: str, error: float | None, pair: int | None) -> Addend | None:
        """Return a value that may have been added, if all of it is known."""
        if error is None or not math.isfinite(error) or pair is None:
            return None
        measured = self.measurements[pair]
        if measured.kind is not MeasurementKind.DATA or measured.golden is None:
            return None
        return Addend(where, error, measured.golden, pair)

    def _what_is_missing_inside(self, row: TreeRow) -> tuple[str, ...]:
        """Say which outputs of the modules of a row were not compared, so that more cannot be said."""
        inside = self.rows[row.index + 1 : row.last + 1]
        incomparable = [
            (one, self.plan.pairs[index])
            for one in inside
            for index in self.errors[one.index].pairs
            if self.measurements[index].kind is MeasurementKind.INCOMPARABLE
            and self.plan.pairs[index].target.role is Role.OUTPUT
        ]
        missing = [f"{pair.target.label} of {_named(one)}" for one, pair in incomparable]
        for side, left in (
            ("golden", self.plan.unmatched_golden_tensors),
            ("target", self.plan.unmatched_target_tensors),
        ):
            names = {name: one for one in inside if one.match is not None for name in getattr(one, side)}
            missing += [
                f"{tensor.record.label} of {tensor.node} (in the {side} dump alone)"
                for tensor in left
                if tensor.record.role is Role.OUTPUT and tensor.record.is_tensor and tensor.node in names
            ]
        if not missing:
            return ()
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        parts = (
            text_of(pair.incomparable)
            for _, pair in incomparable
            if pair.incomparable is not None
            and (is_part_of_rank(pair.golden) or is_part_of_rank(pair.target))
        )
        why = next(parts, None)
        return (f"what was not compared inside it: {missing[0]}{more}", *((why,) if why else ()))

    def _explained_by_parameters(self, error: RowErrors) -> float:
        """Return the error that training noise in the parameters explains.

        It sits in the rows that were trained, of which statistics of the whole parameter tell nothing.
        """
        pair = error.parameter_pair
        if not error.parameter or pair is None:
            return 0.0
        later_step = (self.plan.target.coordinates.step or 0) > 0
        whole = later_step and self.measurements[pair].kind is MeasurementKind.STATISTICS
        return math.inf if whole else error.parameter

    def _explained_gradient(self, error: RowErrors) -> float:
        """Return the error of a parameter's gradient that cancellation explains.

        A gradient is a sum over all tokens. Where it cancels out (the bias of a key projection has
        none at all) what is left is rounding, however large it is relative to itself.
        """
        sides = [(self.measurements[index].golden, self.measurements[index].target) for index in error.pairs]
        norms = [golden.norm for golden, _ in sides if golden is not None and golden.norm is not None]
        smallest, largest = min(norms, default=0.0), max(self.gradient_norm, *norms, 0.0)
        seen = self.seen_whole
        if smallest:
            return seen * max(1.0, self.limits.gradient_scale * largest / smallest)
        left = [target.norm or 0.0 for golden, target in sides if golden and target and not golden.norm]
        return math.inf if max(left, default=0.0) <= self.limits.gradient_scale * largest else seen

    def _explained_by_cancellation(self, row: TreeRow, error: RowErrors) -> float:
        """Return the error of a parameter's gradient among the outputs of a backward operator.

        It is a sum of what the operator was given: rounding there weighs more, the more the sum cancels out.
        """
        if error.output_pair is None or not is_gradient_of_parameter(self.plan.pairs[error.output_pair], row):
            return 0.0
        total = self.measurements[error.output_pair].golden
        given = [
            side
            for index in error.pairs
            if self.plan.pairs[index].target.role is Role.INPUT
            and (side := self.measurements[index].golden) is not None
        ]
        cancelled = [_cancellation(side, total) for side in given if total is not None]
        return max(error.input or 0.0, self.roundoff, self.limits.roundoff_float32) * max(
            cancelled, default=0.0
        )

    def _forward_partner(self, row: TreeRow) -> RowErrors | None:
        if not row.golden:
            return None
        index = self.partners.get(with_direction(row.golden[0], "forward"))
        return self.errors[index] if index is not None else None

    def _input_comes_from_outside_and_differs(self, row: TreeRow, error: RowErrors, roundoff: float) -> bool:
        if self.result.input_row is not None or error.input is None or row.direction is Direction.BACKWARD:
            return False
        if is_embedding(row) and error.integer_input_pair is not None:
            return self.result.first_origin is None
        return self.seen is None and error.input > self.limits.floor * roundoff and row.last == row.index

    def _was_chosen_otherwise(self, row: TreeRow) -> bool:
        """Tell whether a module around a row was given other whole numbers: other experts, by a tie.

        Where nothing differed before, the choice was no tie.
        """
        return (row.index in self.chosen_otherwise or self.errors[row.index].is_excused) and bool(self.seen)

    def _entered_unexplained(self, row: TreeRow, error: RowErrors, roundoff: float) -> bool:
        if error.input is None or self.seen is None or self._was_chosen_otherwise(row):
            return False
        explained = max(roundoff, self.seen_whole, self.inside[row.index])
        self.result.rows[row.index].input_jump = _ratio(error.input, explained)
        floor = self.limits.floor if row.index in self.outstanding_inputs else self.limits.hidden_floor
        least = max(
            floor * roundoff, self.limits.factor * explained, self.limits.excess * self.noise.of_input(row)
        )
        return error.input > least

    def _blame_what_surrounds(self, row: TreeRow, error: RowErrors) -> None:
        """Mark the module whose own code, between its children, made an input that nothing explains.

        Where the other dump has none of the modules around the row, it is the row itself.
        """
        surrounding = above = row
        while above.parent is not None:
            above = self.rows[above.parent]
            if above.match is None:
                continue
            surrounding = above
            around = self.errors[surrounding.index]
            agrees = (around.input or 0.0) < (error.input or 0.0) / self.limits.factor
            if surrounding.kind is NodeKind.MODULE and agrees:
                break
        said = self.result.rows[surrounding.index]
        if said.node_class in ORIGINS:
            return
        said.node_class = NodeClass.NON_FINITE if Role.INPUT in error.non_finite else NodeClass.SOURCE
        said.entered = said.worst_pair = error.input_pair
        said.reasons = (verbatim(self._entered_reason(row, error, inside=surrounding is not row)),)
        if self.result.first_origin is None:
            self.result.level = self._level_of_fault()
            self.result.first_origin = row.order
        for index in _upwards(self.rows, surrounding):
            self.origins_inside[index] += 1

    def _weights_differ(self, error: RowErrors, roundoff: float) -> bool:
        if error.parameter is None:
            return False
        later_step = (self.plan.target.coordinates.step or 0) > 0
        limit = self.limits.parameter_floor * roundoff
        return error.parameter > (max(limit, self.limits.later_step_parameters) if later_step else limit)

    def _weights_reason(self, error: RowErrors) -> str:
        pair = self.plan.pairs[error.parameter_pair or 0].target
        name = pair.key if pair.role is Role.PARAMETER else pair.label
        amount = self._size(error.parameter, error.parameter_pair)
        has_number = error.parameter is not None and math.isfinite(error.parameter)
        text = f"parameter {name} differs ({'relative L2 ' if has_number else ''}{amount})"
        if error.output is None:
            return text
        size, output = self._sizes(error)
        inputs = "no inputs are recorded" if error.input is None else f"inputs agree ({size})"
        return f"{text}; {inputs}, output does not ({output})"

    def _sizes(self, error: RowErrors) -> tuple[str, str]:
        """Say how large the errors of the inputs and of the outputs are."""
        return self._size(error.input, error.input_pair), self._size(error.output, error.output_pair)

    def _size_inside(self, row: TreeRow) -> str:
        """Say how large the worst error is that was recorded inside a row."""
        inside = [one for one in self.errors[row.index + 1 : row.last + 1] if not one.is_set_aside]
        worst = max(inside, key=lambda one: one.worst)
        known = (
            (worst.input, worst.input_pair),
            (worst.parameter, worst.parameter_pair),
            (worst.output, worst.output_pair),
        )
        return self._size(*max(known, key=lambda one: one[0] or 0.0))

    def _size(self, error: float | None, pair: int | None) -> str:
        """Say how large an error is: a number where there is one, else what is known instead."""
        if error is None or pair is None:
            return _short(error)
        measured = self.measurements[pair]
        if math.isfinite(error):
            known = {MeasurementKind.STATISTICS: "equal statistics", MeasurementKind.DIGEST: "equal digests"}
            if measured.kind in known and not error:
                return known[measured.kind]
            return size_of_pair(error, measured)
        if measured.kind is MeasurementKind.DIGEST:
            return "the digests differ; they do not say by how much"
        if measured.kind is MeasurementKind.SCALAR:
            return "another argument"
        if _differs_in_finiteness(measured):
            return "NaN or infinity on one side only"
        is_zero = is_floating(self.plan.pairs[pair].target.dtype)
        return "golden is all zero" if is_zero else "other whole numbers"

    def _scalar_reason(self, error: RowErrors) -> str:
        pair = self.plan.pairs[error.scalar_pair or 0]
        return (
            f"argument {pair.target.label} differs: golden {pair.golden.scalar}, target {pair.target.scalar}"
        )

    def _jump_reason(self, row: TreeRow, error: RowErrors, added: Sequence[Addend]) -> str:
        inputs, output = self._sizes(error)
        if added:
            known_addends = _enumerate(
                [f"{_seen_from(row, one.where)} ({self._size(one.error, one.pair)})" for one in added]
            )
            return f"its inputs, from {known_addends}, agree; their sum does not ({output})"
        if error.input is None and self.known_inside[row.index]:
            inside = self._size_inside(row)
            return f"what is recorded inside it agrees ({inside}), its output does not ({output})"
        if error.input is None and self._is_known_sum(row):
            known = [(other, self._errors_of_output(other)) for other in self._operands(row)]
            operands = [
                f"{_seen_from(row, _on_both_sides(other))} ({self._size(at.output, at.output_pair)})"
                for other, at in known
            ]
            return f"its inputs, from {_enumerate(operands)}, agree; their sum does not ({output})"
        if error.input is None:
            said = f"nothing before it differs as much, its output does ({output})"
            return f"{said}; {_LOOKED_UP}" if self._may_have_looked_up_another(row, error) else said
        if error.exact_inputs:
            return f"inputs are equal, output is not ({output})"
        return f"inputs agree ({inputs}), output does not ({output})"

    def _may_have_looked_up_another(self, row: TreeRow, error: RowErrors) -> bool:
        """Tell whether a row, or the module around it, may have been asked for another row of a table."""
        around = self.rows[row.parent] if row.parent is not None else row
        return (error.output or 0.0) > _ANOTHER_ROW and (is_embedding(row) or is_embedding(around))

    def _entered_reason(self, row: TreeRow, error: RowErrors, *, inside: bool) -> str:
        size = self._sizes(error)[0]
        if inside:
            return (
                f"the input of {row.label} inside it differs ({size}), and nothing recorded before explains "
                "it: the operation that made it is not in the dump"
            )
        return (
            f"its input differs ({size}), and nothing recorded before explains it: the operation that made "
            "it is not in the dump"
        )


def affects_output(said: Classified, error: RowErrors, limits: Thresholds = DEFAULTS) -> bool:
    """Tell a fault from what changes no number: another shape, or a parameter (padding, an unused row)."""
    if said.node_class is NodeClass.STRUCTURE_DIFFERS:
        return error.output is not None
    if said.node_class is not NodeClass.WEIGHTS_DIFFER or error.output is None:
        return True
    return error.output > limits.floor * (error.roundoff or 0.0) and (said.amplification or 0.0) > 1.0


def _cancellation(given: SideSummary, total: SideSummary) -> float:
    """Return how many times larger what was added up is than the sum, both per element."""
    if not given.norm or total.norm is None or not given.size or not total.size:
        return 0.0
    return given.norm * math.sqrt(given.size / total.size) / total.norm if total.norm else math.inf


def _named(row: TreeRow) -> str:
    return (row.target or row.golden)[0]


def _upwards(rows: Sequence[TreeRow], row: TreeRow) -> list[int]:
    above = []
    while row.parent is not None:
        above.append(row.parent)
        row = rows[row.parent]
    return above


def _ratio(error: float, explained: float) -> float:
    if math.isinf(error):
        return 1.0 if math.isinf(explained) else math.inf
    return error / explained


def _non_finite_reason(error: RowErrors) -> str:
    where = ", ".join(sorted(role.value for role in error.non_finite))
    return f"NaN or infinity on one side only, in: {where}"


def _on_both_sides(row: TreeRow) -> str:
    """Name a node as each dump does: who knows the model by one of them finds it by that."""
    names = [side[0] for side in (row.target, row.golden) if side]
    return _AS.join(dict.fromkeys(names))


def _seen_from(row: TreeRow, names: str) -> str:
    """Shorten the names of a node by the target's folder that a row lies in too: the finding names that."""
    folder, slash, _ = row.target[0].rpartition("/") if row.target else ("", "", "")
    return _AS.join(name.removeprefix(folder + slash) for name in names.split(_AS))


def _enumerate(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _short(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:.2g}" if math.isfinite(value) else "no number tells how much"


def _differs_in_finiteness(measured: Measurement) -> bool:
    errors, differences = measured.errors, measured.differences
    return bool(errors and errors.mismatched_nonfinite) or bool(differences and differences.nonfinite_differs)
