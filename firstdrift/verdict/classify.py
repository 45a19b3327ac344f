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
from typing import Final

from msgspec import Struct

from firstdrift.metrics.measurement import STATISTICS
from firstdrift.model.node import API, BACKWARD, MODULE
from firstdrift.model.tensor import INPUT, ROUNDING
from firstdrift.verdict.added_inside import added_inside, explained_by_added
from firstdrift.verdict.case import Case, Progress, apart_by_training, case_of
from firstdrift.verdict.classes import ENTERED, MAY_FOLLOW, ClassRule, rule_of
from firstdrift.verdict.confidence import Excess, Quantity
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.explanations import (
    PEERS,
    excused_by,
    excused_up_to,
    explain,
    factor_of,
    floor_of,
    jumps,
)
from firstdrift.verdict.gain import excess_of_gain, see_gain
from firstdrift.verdict.judgement import ORIGINS, NodeClass, Reasons
from firstdrift.verdict.layer_outliers import outstanding, peer_group
from firstdrift.verdict.lookups import looked_up_another
from firstdrift.verdict.movable_thresholds import Thresholds
from firstdrift.verdict.operator_bounds import largest_difference
from firstdrift.verdict.reasons import entered, runs_alone
from firstdrift.verdict.row_errors import RowErrors, is_gradient_of_parameter
from firstdrift.verdict.tree import TreeRow, is_embedding
from firstdrift.verdict.unexplained_input import alone_before, entered_unexplained, limit_of_input

_ENTERED: Final = ENTERED.name
_FOLLOWS: Final = MAY_FOLLOW.name
_SOURCE: Final = NodeClass.SOURCE


class Classified(Struct, gc=False):
    """What the rules say of one row.

    Attributes:
        node_class: what the node did to the error.
        amplification: output error / what its inputs explain; None if not known.
        reasons: why, the most telling first.
        worst_pair: the pair the reasons are about.
        entered: the error entered through this input, which nothing recorded explains.
        is_tie: it chose otherwise among values that are equal within rounding.
        is_shown_by_no_pair: it is an error, though no pair of tensors is off.
        excess: the error and the limit that it exceeds; None where no number decided.
        by_peers: nothing but the same node of other layers says that it is off.
        rule: "class.source", the rule that decided; of a clean row with an error what excuses it,
            "explanation.input".
        excused_up_to: as that of `RowJudgement`.
    """

    node_class: NodeClass = NodeClass.CLEAN
    amplification: float | None = None
    reasons: Reasons = ()
    worst_pair: int | None = None
    entered: int | None = None
    is_tie: bool = False
    is_shown_by_no_pair: bool = False
    excess: Excess | None = None
    by_peers: bool = False
    rule: str | None = None
    excused_up_to: float | None = None


class Classification(Struct):
    """What the rules say of the rows of one slice.

    Attributes:
        rows: one for each row, by index.
        level: errors above it belong to a fault; below it, to rounding. Infinite without a fault.
        first_origin: place of the first row at which an error begins, in order; None if there is none.
        reached_from: as that of `Progress`.
        input_row: the row whose inputs come from outside and differ; None if they agree.
        input_pair: the pair that shows it.
        roundoff: coarsest unit roundoff that anything in the slice was stored or computed in.
        given: error of what the model is given, where that differs too little to be something else.
        weak: rows that stand out among their peers, but too little to be called an origin.
    """

    rows: list[Classified]
    level: float = math.inf
    first_origin: int | None = None
    reached_from: int | None = None
    input_row: int | None = None
    input_pair: int | None = None
    roundoff: float = ROUNDING["float32"]
    given: float = 0.0
    weak: frozenset[int] = frozenset()


def classify(evidence: Evidence, *, other_input: bool = False) -> Classification:
    """Walk the rows in execution order and say what each did to the error.

    With `other_input` it is known that the two sides were given something else: nothing is an origin.
    """
    rows, limits = evidence.rows, evidence.limits
    result = _walk(evidence, other_input=other_input)
    amplifications = [classified.amplification for classified in result.rows]
    outputs = outstanding(rows, amplifications, limits.factor)
    # Whoever stands out after the first origin does so for what began there.
    last = result.first_origin if result.first_origin is not None else len(rows)
    if any(evidence.places[index] < last for index in outputs):
        result = _walk(evidence, outputs, other_input=other_input)
    if evidence.is_hidden_by_weights:
        _reach_from_weights(evidence, result)
    weak = outstanding(rows, amplifications, limits.weak_factor)
    least = limits.peer_floor * result.roundoff
    result.weak = frozenset(index for index in weak if (evidence.errors[index].output or 0.0) > least)
    return result


def _reach_from_weights(evidence: Evidence, result: Classification) -> None:
    """Let errors that no rounding explains belong to the weights, from the first of them on."""
    places = (evidence.places[evidence.row_of(pair).index] for pair in evidence.systematic_pairs)
    first = min(places)
    reached = result.reached_from
    result.reached_from = first if reached is None else min(first, reached)
    result.level = min(result.level, evidence.limits.floor * evidence.rounding)


def _walk(
    evidence: Evidence,
    outputs: frozenset[int] = frozenset(),
    *,
    other_input: bool,
) -> Classification:
    """Classify the rows one by one, knowing whose outputs stand out among their peers."""
    count = len(evidence.rows)
    classified = [Classified() for _ in range(count)]
    progress = Progress(evidence.compute, [0.0] * count, [False] * count, [0] * count)
    progress.outstanding, progress.given = outputs, _given_to_model(evidence)
    if other_input and evidence.in_order:
        progress.input_row = evidence.in_order[0].index
    for row in evidence.in_order:
        progress.roundoff = max(progress.roundoff, evidence.errors[row.index].roundoff or 0.0)
        case, own = case_of(evidence, progress, row), classified[row.index]
        _recall_fault(case)
        if row.match is not None:
            _look_for_another_input(case)
            if progress.input_row is None:
                _explain(case, own, classified)
        _name(case, own, rule_of(case))
        _go_on(case, own)
    return Classification(
        classified,
        progress.level,
        progress.first_origin,
        progress.reached_from,
        progress.input_row,
        progress.input_pair,
        progress.roundoff or evidence.limits.roundoff_float32,
        progress.given,
    )


def _given_to_model(evidence: Evidence) -> float:
    """Return the error of what the one module is given that all others lie in, if it differs slightly."""
    tops = [row for row in evidence.rows if row.parent is None and row.kind is not API]
    forward = [row for row in tops if row.direction is not BACKWARD]
    if len(forward) != 1 or forward[0].last == forward[0].index or forward[0].match is None:
        return 0.0
    error = evidence.errors[forward[0].index]
    limit = _limit_of_given(evidence.limits, error.roundoff or evidence.limits.roundoff_float32)
    given = error.input or 0.0
    return given if given <= limit else 0.0


def _limit_of_given(limits: Thresholds, roundoff: float) -> float:
    """Return the error above which what a model is given is something else."""
    return max(limits.floor * roundoff, limits.drift_least)


def _look_for_another_input(case: Case) -> None:
    progress, error = case.progress, case.error
    is_first = progress.seen is None and case.row.last == case.row.index
    if is_first and error.input is not None and error.input <= _limit_of_given(case.limits, case.roundoff):
        progress.given = max(progress.given, error.input)
    if _is_other_input(case):
        progress.input_row = case.row.index
        integers = error.integer_input_pair
        shown_by = error.output_pair if looked_up_another(case) else error.input_pair
        progress.input_pair = shown_by if integers is None else integers


def _is_other_input(case: Case) -> bool:
    """Tell whether what a row is given comes from outside of the model, and differs."""
    progress, row, error = case.progress, case.row, case.error
    if progress.input_row is not None or error.input is None or row.direction is BACKWARD:
        return False
    if error.integer_input_pair is not None and is_embedding(row):
        return progress.first_origin is None
    if looked_up_another(case):
        return True
    # What differs less is judged: it explains as much as any error that comes in.
    is_another = error.input > _limit_of_given(case.limits, case.roundoff)
    return is_another and progress.seen is None and row.last == row.index


def _explain(case: Case, own: Classified, classified: Sequence[Classified]) -> None:
    """Find out what explains the errors of a row, and whether more came in than anything explains."""
    if entered_unexplained(case):
        _blame_what_surrounds(case, classified)
    if not case.error.output:  # there is nothing to explain
        own.amplification = case.error.output
        return
    explain(case)
    if case.row.last > case.row.index and (added := added_inside(case)):
        case.added = added
        case.explained = explained_by_added(case)
    own.amplification = _ratio(case.error.output, case.explained)
    case.jumped = jumps(case, case.explained) and not _is_given_another(case)
    if case.jumped and _may_follow(case):
        case.jumped, own.rule = False, _FOLLOWS
    if not case.jumped:
        _look_at_gain(case)


def _look_at_gain(case: Case) -> None:
    """Find out whether a row gives more or less than it can where it jumped nowhere."""
    scaled = excess_of_gain(case)
    if scaled is not None and scaled.margin > 1.0:
        case.jumped, case.scaled = True, scaled


def _is_given_another(case: Case) -> bool:
    """Tell whether all that is known of what a row was given after a fault is that it has another shape."""
    after = case.progress.first_origin is not None
    return after and case.error.has_other_shape and case.error.input is None


def _may_follow(case: Case) -> bool:
    """Tell whether an error below the level of a fault before may be of it: what statistics hide came in."""
    progress, error, pair = case.progress, case.error, case.error.output_pair
    if progress.first_origin is None or pair is None or (error.output or 0.0) > progress.level:
        return False
    return error.scalar_pair is None and case.evidence.measurements[pair].kind is STATISTICS


def _name(case: Case, own: Classified, rule: ClassRule) -> None:
    has_weights = own.node_class is _SOURCE and rule.node_class is NodeClass.WEIGHTS_DIFFER
    if own.rule == _ENTERED and not has_weights:  # earlier evidence than what begins inside
        own.worst_pair = _shown_of_entered(case, own)
        return
    own.node_class, own.reasons, own.worst_pair = rule.node_class, rule.reasons(case), rule.pair(case)
    own.is_tie, own.is_shown_by_no_pair = rule.is_tie, rule.is_shown_by_no_pair
    if case.jumped:
        _tell_excess(case, own)
    if rule.id == "clean" and own.rule == _FOLLOWS:
        return
    excuse = excused_by(case) if rule.id == "clean" else None
    own.rule = rule.name if excuse is None else f"explanation.{excuse}"
    if excuse is not None and (case.error.output or 0.0) > case.limits.floor * case.roundoff:
        own.excused_up_to = excused_up_to(case)


def _shown_of_entered(case: Case, own: Classified) -> int | None:
    """Return the pair that shows what came in: the input, where it is one of the row itself."""
    is_own = own.entered is not None and case.evidence.row_of(own.entered) is case.row
    return own.entered if is_own else case.error.output_pair


def _tell_excess(case: Case, own: Classified) -> None:
    """Note by how much an output error exceeds what explains it, and whether its peers alone tell."""
    if case.scaled is not None:
        own.excess = case.scaled
        return
    explained = factor_of(case)[0] * case.explained
    floor, by = floor_of(case)
    error = case.error.output or 0.0
    limit = max(explained, floor)
    own.excess = _over(error, limit)
    own.by_peers = by == PEERS and error <= case.limits.floor * case.roundoff


def _over(error: float, limit: float) -> Excess | None:
    return Excess(error, limit) if math.isfinite(error) and limit else None


def _over_input(case: Case) -> Excess | None:
    found = _over(case.error.input or 0.0, limit_of_input(case))
    return None if found is None else found._replace(of=Quantity.INPUT)


def _go_on(case: Case, own: Classified) -> None:
    """Remember what the rows after this one are held against."""
    progress, row, error = case.progress, case.row, case.error
    is_origin = own.node_class in ORIGINS and affects_output(own, error)
    if is_origin:
        _begin_fault(case)
    progress.has_tie |= own.is_tie
    if row.parent is not None:
        _tell_what_surrounds(case, row.parent, is_origin=is_origin)
    if progress.outstanding:
        progress.peers_before.add(peer_group(row))
    if row.direction is BACKWARD and case.evidence.runs_alone(row):
        progress.seen_difference = max(progress.seen_difference, _difference(case))
    progress.see(error)
    see_gain(case)
    if case.evidence.is_later_step and not case.weights:
        apart = apart_by_training(case.evidence, error)
        progress.trained = max(progress.trained, _finite(error.parameter), apart)


def _begin_fault(case: Case) -> None:
    """Remember where the first error begins, and how large errors were before."""
    progress = case.progress
    if progress.first_origin is None:
        progress.first_origin = case.evidence.places[case.row.index]
        _be_reached_from(case)


def _recall_fault(case: Case) -> None:
    """Let errors from a node on belong to the fault that began there in a slice before, if it is still off.

    What is an error in one token is one in the next: both are held against the same level.
    """
    fault = case.evidence.before.fault
    if fault is None or fault.node not in case.row.target:
        return
    if (case.error.output or 0.0) > fault.level:
        _be_reached_from(case)


def _be_reached_from(case: Case) -> None:
    progress = case.progress
    if progress.reached_from is None:
        progress.level, progress.reached_from = case.level, case.evidence.places[case.row.index]


def _finite(error: float | None) -> float:
    return error if error is not None and math.isfinite(error) else 0.0


def _difference(case: Case) -> float:
    """Return the norm of the difference of a row's output; the most it may be, where few of it is known."""
    pair, error = case.error.output_pair, case.error.output
    if pair is None or error is None or not math.isfinite(error):
        return 0.0
    if is_gradient_of_parameter(case.evidence.plan.pairs[pair], case.row):  # nothing else is made from it
        return 0.0
    measured = case.evidence.measurements[pair]
    side = measured.golden
    if side is None or not side.size:
        return 0.0
    rounding = case.roundoff * measured.golden_norm
    of_elements = largest_difference(measured) * math.sqrt(side.size)
    difference = of_elements if measured.errors is None else error * measured.golden_norm
    return max(difference, rounding) if math.isfinite(difference) else 0.0


def _tell_what_surrounds(case: Case, parent: int, *, is_origin: bool) -> None:
    progress, index, error = case.progress, case.row.index, case.error
    inside = progress.inside[index]
    if not error.is_set_aside:
        inside = max(inside, error.worst)
    if not progress.known_inside[parent]:
        tells = not error.is_set_aside and case.evidence.is_compared(error)
        progress.known_inside[parent] = progress.known_inside[index] or tells
    progress.inside[parent] = max(progress.inside[parent], inside)
    progress.origins_inside[parent] += progress.origins_inside[index] + is_origin


def _blame_what_surrounds(case: Case, classified: Sequence[Classified]) -> None:
    """Mark what one side alone ran before an input that nothing explains, or else the module around it.

    That is the module whose own code, between its children, made the input. Where the other dump has none of
    the modules around the row, it is the operator that made the input in the golden run, or the row itself.
    """
    evidence, error = case.evidence, case.error
    alone = alone_before(case)
    maker = _maker(case) if alone is None else None
    surrounding = alone or maker or _surrounding(case)
    blamed = classified[surrounding.index]
    if blamed.node_class in ORIGINS or (alone is None and _had_come_in(case, surrounding)):
        return
    blamed.node_class = NodeClass.NON_FINITE if INPUT in error.non_finite else NodeClass.SOURCE
    blamed.entered = blamed.worst_pair = error.input_pair
    blamed.reasons = (entered(evidence, case.row, error, blamed=surrounding, is_maker=maker is not None),)
    blamed.rule, blamed.excess = _ENTERED, _over_input(case)
    if alone is not None:
        blamed.node_class = NodeClass.STRUCTURE_DIFFERS
        blamed.reasons = (runs_alone(evidence, alone, case.row, error),)
        blamed.is_shown_by_no_pair = True
    _begin_fault(case)
    for above in evidence.above(surrounding):
        case.progress.origins_inside[above.index] += 1


def _had_come_in(case: Case, surrounding: TreeRow) -> bool:
    """Tell whether a fault had reached a module before an input inside it: what made that passes it on.

    In the outermost one anything may have run before, in branches that the input has nothing of.
    """
    error, progress = case.evidence.errors[surrounding.index], case.progress
    before = max(error.input or 0.0, error.parameter or 0.0, progress.inside[surrounding.index])
    is_non_finite = math.isinf(case.error.input or 0.0) and math.isfinite(before)
    is_inner = surrounding is not case.row and surrounding.parent is not None
    return is_inner and before > progress.level and not is_non_finite


def _maker(case: Case) -> TreeRow | None:
    """Return the operator that made an input of a row in the golden run, where no module around it tells.

    What that operator was given agrees. Whoever else was given in the forward pass what it made shows
    whether it did: if that agrees, it was changed on its way to this row.
    """
    evidence, pair, row = case.evidence, case.error.input_pair, case.row
    if pair is None or any(above.match is not None for above in evidence.above(row)):
        return None
    agrees, place = (case.error.input or 0.0) / case.limits.factor, evidence.places[row.index]
    if any(error < agrees for error in evidence.errors_of_same_input(row, pair)):
        return None
    makers = evidence.makers(row, pair)
    known = [
        one
        for one in makers
        if evidence.places[one.index] < place and evidence.errors[one.index].worst < agrees
    ]
    return known[0] if len(known) == len(makers) == 1 else None


def _surrounding(case: Case) -> TreeRow:
    """Return the innermost module around a row whose own input agrees; the outermost where none does."""
    evidence, surrounding = case.evidence, case.row
    agrees = (case.error.input or 0.0) / case.limits.factor
    for above in evidence.above(case.row):
        if above.match is None:
            continue
        surrounding = above
        if above.kind is MODULE and (evidence.errors[above.index].input or 0.0) < agrees:
            break
    return surrounding


def affects_output(own: Classified, error: RowErrors) -> bool:
    """Tell a fault from what changes no number: another shape, or a parameter (padding, an unused row)."""
    if own.node_class is NodeClass.STRUCTURE_DIFFERS:
        return own.is_shown_by_no_pair or error.output is not None
    return own.node_class is not NodeClass.WEIGHTS_DIFFER or error.output is None or error.output > 0.0


def _ratio(error: float, explained: float) -> float:
    if math.isinf(error):
        return 1.0 if math.isinf(explained) else math.inf
    return error / explained
