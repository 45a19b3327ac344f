"""Whether more came into a node than anything that was recorded before explains, and what ran there alone."""

import math

from firstdrift.metrics.measurement import DATA, SideSummary
from firstdrift.metrics.statistics import is_whole
from firstdrift.model.node import API, BACKWARD
from firstdrift.verdict.case import Case
from firstdrift.verdict.conditioning import error_of_sum
from firstdrift.verdict.fixed_thresholds import UNLIKE_BEFORE
from firstdrift.verdict.tree import TreeRow


def entered_unexplained(case: Case) -> bool:
    """Tell whether an input of a row is off by more than what was recorded before explains."""
    progress, limits, error = case.progress, case.limits, case.error
    if error.input is None or progress.seen is None or case.was_chosen_otherwise:
        return False
    if progress.has_tie and case.row.parent is None:  # no module tells what depends on the choice
        return False
    if error.input <= limits.peer_floor * case.roundoff:
        return False
    if error.input <= limits.factor * _explained_input(case):
        return False
    if progress.seen and _are_counts(case, error.input_pair):  # chosen otherwise, and not computed
        return False
    if error.input <= limit_of_input(case):
        return False
    return error.input > limits.excess * case.evidence.noise.of_input(case.row)


def _explained_input(case: Case) -> float:
    """Return the error of an input that what was recorded before explains."""
    progress = case.progress
    known = progress.seen_whole, progress.inside[case.row.index], progress.given
    return max(case.roundoff, *known, _handed_on(case))


def limit_of_input(case: Case) -> float:
    """Return the error from which on what made an input, and was not recorded, is at fault.

    What one side alone runs is a witness, if it did more than another order of adding up would. Kernels of
    coarse formats compute in float32, whose rounding is nothing beside theirs: less is enough there.
    """
    limits, explained = case.limits, _explained_input(case)
    beyond = limits.factor * explained
    if (case.error.input or 0.0) > limits.drift_least and alone_before(case) is not None:
        return max(beyond, limits.peer_floor * case.roundoff)
    hidden = limits.hidden_floor * case.roundoff
    if case.roundoff > limits.roundoff_float32 and case.row.direction is not BACKWARD:
        hidden = min(hidden, max(limits.floor * case.roundoff, UNLIKE_BEFORE.value * explained))
    return max(beyond, hidden)


def _are_counts(case: Case, pair: int | None) -> bool:
    """Tell whether both sides of an input hold counts, or the ids of experts; masks go up to 1 at most."""
    measured = case.evidence.measurements[pair] if pair is not None else None
    sides = (measured.golden, measured.target) if measured is not None else ()
    known = [side for side in sides if side is not None and is_whole(side)]
    return len(known) == len(sides) > 0 and all(map(_counts, known))


def _counts(side: SideSummary) -> bool:
    return (side.minimum or 0.0) >= 0.0 and (side.maximum or 0.0) > 1.0


def _handed_on(case: Case) -> float:
    """Return the error that what was not recorded before a row hands on to its input.

    Of a gradient that is the absolute error of those before it, however much of it cancelled out there. Two
    runs whose values were all equal until then ran the same kernels, which round alike.
    """
    pair, evidence = case.error.input_pair, case.evidence
    if pair is None:
        return 0.0
    measured, underflow = evidence.measurements[pair], evidence.pair_errors[pair].underflow
    was_equal = case.progress.seen_whole == 0.0 and measured.kind is DATA
    if case.row.direction is not BACKWARD or was_equal:
        return underflow
    before = max(case.progress.seen_difference, _rounding_of_loss(case))
    return max(underflow, error_of_sum((before,), measured.golden_norm))


def _rounding_of_loss(case: Case) -> float:
    """Return the norm of what the mean of a loss over rows of logits rounds their gradient by.

    Of each row it is softmax less one of the classes, which cancels out where the model is sure of it.
    """
    evidence, forward = case.evidence, case.evidence.forward_partner(case.row)
    pair = forward.output_pair if forward is not None else None
    shape = evidence.plan.pairs[pair].golden.shape if pair in evidence.logits and pair is not None else None
    return case.roundoff / math.sqrt(math.prod(shape[:-1])) if shape and math.prod(shape) else 0.0


def alone_before(case: Case) -> TreeRow | None:
    """Return the first of the operators that one side alone runs right before a row; None if both run some.

    Where both run others, the same is done in another way.
    """
    evidence, alone = case.evidence, list[TreeRow]()
    if not evidence.is_same_code:
        return None
    for place in range(evidence.places[case.row.index] - 1, -1, -1):
        row = evidence.in_order[place]
        if row.match is None and row.kind is API and row.direction is case.row.direction:
            alone.append(row)
        elif evidence.errors[row.index].output is not None:
            break
    sides = {bool(row.golden) for row in alone}
    return alone[-1] if len(sides) == 1 else None
