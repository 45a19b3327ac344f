"""How much of the error of a gradient its sum explains: what is left where it cancels out is rounding."""

import math

from firstdrift.verdict.evidence import Case


def explained_gradient(case: Case) -> float:
    """Return the error that cancellation explains of a parameter's gradient, which is a sum over all tokens.

    What was added up is not recorded: it is taken to be `gradient_scale` of the largest gradient of the step.
    """
    evidence, seen, scale = case.evidence, case.progress.seen_whole, case.limits.gradient_scale
    sides = [(one.golden, one.target) for one in map(evidence.measurements.__getitem__, case.error.pairs)]
    norms = [golden.norm for golden, _ in sides if golden is not None and golden.norm is not None]
    terms = scale * max(evidence.gradient_norm, *norms, 0.0)
    smallest = min(norms, default=0.0)
    if smallest:
        return seen * max(1.0, terms / smallest)
    left = [target.norm or 0.0 for golden, target in sides if golden and target and not golden.norm]
    return math.inf if max(left, default=0.0) <= terms else seen
