"""How much of the error of a gradient its sum explains: what is left where it cancels out is rounding."""

import math

from firstdrift.verdict.case import Case


def explained_gradient(case: Case) -> float:
    """Return the error that cancellation explains of a parameter's gradient, which is a sum over all tokens.

    What was added up is not recorded: it is taken to be `gradient_scale` of the largest gradient of the step.
    """
    pair, seen = case.error.output_pair, case.progress.seen_whole
    if pair is None:
        return seen
    measured = case.evidence.measurements[pair]
    golden, target = measured.golden_norm, measured.target_norm
    terms = case.limits.gradient_scale * max(case.evidence.gradient_norm, golden)
    if golden:
        return seen * max(1.0, terms / golden)
    return math.inf if target <= terms else seen
