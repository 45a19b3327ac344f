"""What each node did to the error: the rule set `firstdrift`, by amplification.

With e = relative L2 error and u = unit roundoff of the coarser dtype, an error begins at a node when

    e(output) > 3 x max(u, e(inputs))    and    e(output) > 32 x u

The first part asks whether the node made the error, the second keeps the rounding that a node gathers
inside apart. Limits on the error itself fire at the depth where healthy noise crosses them; this rule does
not look at depth. What else explains an error is the table of `explanations.py`, what a node is called then
that of `classes.py`. Study: `docs/verdict.md`.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from msgspec import Struct

from firstdrift.matching.plan import SlicePlan
from firstdrift.metrics.measurement import Measurement
from firstdrift.model.node import Direction, NodeKind
from firstdrift.model.tensor import UNIT_ROUNDOFF, Role
from firstdrift.verdict.added_inside import added_inside, explained_by_added
from firstdrift.verdict.baseline import QUIET, Noise
from firstdrift.verdict.classes import ENTERED, ClassRule, rule_of
from firstdrift.verdict.compute_format import compute_roundoff, stored_roundoff
from firstdrift.verdict.evidence import Case, Evidence, Progress, case_of
from firstdrift.verdict.explanations import excused_by, explain, jumps
from firstdrift.verdict.judgement import ORIGINS, NodeClass, Reasons
from firstdrift.verdict.layer_outliers import outstanding, peer_group
from firstdrift.verdict.reasons import entered
from firstdrift.verdict.row_errors import RowErrors
from firstdrift.verdict.thresholds import DEFAULTS, Thresholds
from firstdrift.verdict.tree import TreeRow, is_embedding


class Classified(Struct, gc=False):
    """What the rules say of one row.

    Attributes:
        node_class: what the node did to the error.
        amplification: output error / what its inputs explain; None if not known.
        reasons: why, the most telling first.
        worst_pair: the pair the reasons are about.
        entered: the error entered through this input, which nothing recorded explains.
        input_jump: input error / what was recorded before it; None if not known.
        is_tie: it chose otherwise among values that are equal within rounding.
        rule: "class.source", the rule that decided; of a clean row with an error what excuses it,
            "explanation.input".
    """

    node_class: NodeClass = NodeClass.CLEAN
    amplification: float | None = None
    reasons: Reasons = ()
    worst_pair: int | None = None
    entered: int | None = None
    input_jump: float | None = None
    is_tie: bool = False
    rule: str | None = None


class Classification(Struct):
    """What the rules say of the rows of one slice.

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
    evidence = Evidence(rows, errors, plan, measurements, compute, limits, noise)
    first = _walk(evidence, in_order, other_input=other_input)
    amplifications = [said.amplification for said in first.rows]
    outputs = outstanding(rows, amplifications, limits.factor)
    inputs = outstanding(rows, [said.input_jump for said in first.rows], limits.factor)
    # Whoever stands out after the first origin does so for what began there.
    last = first.first_origin if first.first_origin is not None else len(rows)
    result = first
    if any(rows[index].order < last for index in outputs | inputs):
        known = replace(evidence, outstanding=outputs, outstanding_inputs=inputs)
        result = _walk(known, in_order, other_input=other_input)
    result.weak = frozenset(
        index
        for index in outstanding(rows, amplifications, limits.weak_factor)
        if (errors[index].output or 0.0) > limits.peer_floor * result.roundoff
    )
    return result


def _walk(evidence: Evidence, in_order: Sequence[TreeRow], *, other_input: bool) -> Classification:
    count = len(evidence.rows)
    said = [Classified() for _ in range(count)]
    progress = Progress(evidence.compute, [0.0] * count, [False] * count, [0] * count)
    if other_input and in_order:
        progress.input_row = in_order[0].index
    for row in in_order:
        error = evidence.errors[row.index]
        progress.roundoff = max(progress.roundoff, error.roundoff or 0.0)
        case = case_of(evidence, progress, row)
        if row.match is not None:
            _prepare(case, said)
        _name(case, said[row.index], rule_of(case))
        _go_on(case, said[row.index])
    return Classification(
        said,
        progress.level,
        progress.first_origin,
        progress.input_row,
        progress.input_pair,
        progress.roundoff or evidence.limits.roundoff_float32,
    )


def _prepare(case: Case, said: list[Classified]) -> None:
    """Find out what explains the errors of a row, and whether more came in than anything explains."""
    progress, row, error = case.progress, case.row, case.error
    if _is_other_input(case):
        progress.input_row = row.index
        integers = error.integer_input_pair
        progress.input_pair = error.input_pair if integers is None else integers
    if progress.input_row is not None:
        return
    if _entered_unexplained(case, said[row.index]):
        _blame_what_surrounds(case, said)
    case.explained, case.explanation = explain(case)
    case.added = added_inside(case)
    if case.added:
        case.explained = max(case.roundoff, explained_by_added(case, case.added))
    said[row.index].amplification = None if error.output is None else _ratio(error.output, case.explained)
    case.jumped = jumps(case, case.explained)


def _name(case: Case, said: Classified, rule: ClassRule) -> None:
    if said.rule == ENTERED.name and not case.progress.origins_inside[case.row.index]:
        said.worst_pair = case.error.output_pair
        return
    said.node_class, said.reasons, said.worst_pair = rule.node_class, rule.reasons(case), rule.pair(case)
    said.is_tie = rule.is_tie
    excuse = excused_by(case) if rule.id == "clean" else None
    said.rule = rule.name if excuse is None else f"explanation.{excuse}"


def _go_on(case: Case, said: Classified) -> None:
    """Remember what the rows after this one are held against."""
    evidence, progress, row, error = case.evidence, case.progress, case.row, case.error
    is_origin = said.node_class in ORIGINS and affects_output(said, error, evidence.limits)
    if is_origin and progress.first_origin is None:
        progress.first_origin, progress.level = row.order, _level_of_fault(case)
    if row.parent is not None:
        own = 0.0 if error.is_set_aside else error.worst
        tells = not error.is_set_aside and evidence.is_compared(error)
        progress.inside[row.parent] = max(progress.inside[row.parent], progress.inside[row.index], own)
        progress.known_inside[row.parent] |= progress.known_inside[row.index] or tells
        progress.origins_inside[row.parent] += progress.origins_inside[row.index] + is_origin
    if evidence.outstanding:
        progress.peers_before.add(peer_group(row))
    if error.output is not None and not error.is_set_aside:
        progress.seen = max(progress.seen or 0.0, error.output)
    progress.seen_whole = max(progress.seen_whole, progress.seen or 0.0, error.whole_output)


def _level_of_fault(case: Case) -> float:
    seen = case.progress.seen
    noise = seen if seen is not None and math.isfinite(seen) else 0.0
    return max(case.limits.floor * case.roundoff, 2 * noise)


def _is_other_input(case: Case) -> bool:
    """Tell whether what a row is given comes from outside of the model, and differs."""
    progress, row, error = case.progress, case.row, case.error
    if progress.input_row is not None or error.input is None or row.direction is Direction.BACKWARD:
        return False
    if is_embedding(row) and error.integer_input_pair is not None:
        return progress.first_origin is None
    is_off = error.input > case.limits.floor * case.roundoff
    return progress.seen is None and is_off and row.last == row.index


def _entered_unexplained(case: Case, said: Classified) -> bool:
    evidence, progress, limits, error = case.evidence, case.progress, case.limits, case.error
    if error.input is None or progress.seen is None or case.was_chosen_otherwise:
        return False
    explained = max(case.roundoff, progress.seen_whole, progress.inside[case.row.index])
    said.input_jump = _ratio(error.input, explained)
    floor = limits.floor if case.row.index in evidence.outstanding_inputs else limits.hidden_floor
    noise = limits.excess * evidence.noise.of_input(case.row)
    return error.input > max(floor * case.roundoff, limits.factor * explained, noise)


def _blame_what_surrounds(case: Case, said: list[Classified]) -> None:
    """Mark the module whose own code, between its children, made an input that nothing explains.

    Where the other dump has none of the modules around the row, it is the row itself.
    """
    evidence, progress, error = case.evidence, case.progress, case.error
    surrounding = _surrounding(case)
    blamed = said[surrounding.index]
    if blamed.node_class in ORIGINS:
        return
    blamed.node_class = NodeClass.NON_FINITE if Role.INPUT in error.non_finite else NodeClass.SOURCE
    blamed.entered = blamed.worst_pair = error.input_pair
    blamed.reasons = (entered(evidence, case.row, error, inside=surrounding is not case.row),)
    blamed.rule = ENTERED.name
    if progress.first_origin is None:
        progress.level, progress.first_origin = _level_of_fault(case), case.row.order
    for one in evidence.above(surrounding):
        progress.origins_inside[one.index] += 1


def _surrounding(case: Case) -> TreeRow:
    """Return the innermost module around a row whose own input agrees; the outermost where none does."""
    evidence, error, surrounding = case.evidence, case.error, case.row
    for above in evidence.above(case.row):
        if above.match is None:
            continue
        surrounding = above
        around = evidence.errors[above.index]
        agrees = (around.input or 0.0) < (error.input or 0.0) / case.limits.factor
        if above.kind is NodeKind.MODULE and agrees:
            break
    return surrounding


def affects_output(said: Classified, error: RowErrors, limits: Thresholds = DEFAULTS) -> bool:
    """Tell a fault from what changes no number: another shape, or a parameter (padding, an unused row)."""
    if said.node_class is NodeClass.STRUCTURE_DIFFERS:
        return error.output is not None
    if said.node_class is not NodeClass.WEIGHTS_DIFFER or error.output is None:
        return True
    return error.output > limits.floor * (error.roundoff or 0.0) and (said.amplification or 0.0) > 1.0


def _ratio(error: float, explained: float) -> float:
    if math.isinf(error):
        return 1.0 if math.isinf(explained) else math.inf
    return error / explained
