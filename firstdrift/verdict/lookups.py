"""Whether an embedding was asked for other rows of its table, though the statistics of its ids are equal."""

import math

from firstdrift.metrics.measurement import STATISTICS, Measurement
from firstdrift.verdict.case import Case
from firstdrift.verdict.row_errors import embeds_tokens


def looked_up_another(case: Case) -> bool:
    """Tell whether an embedding was asked for other rows, though the statistics of the ids are equal.

    Its weight agrees, and what it gave is no multiple of what it gave in the golden run. What is made of
    positions, as a rotation is, looks up no rows of a weight.
    """
    error, pair = case.error, case.error.output_pair
    if pair is None or not error.unsure or not embeds_tokens(case.row) or _may_have_other_rows(case):
        return False
    measured, limit = case.evidence.measurements[pair], case.limits.peer_floor * case.roundoff
    is_off = limit < (error.output or 0.0) < math.inf
    return is_off and not _is_multiple(measured, limit) and not _is_any_order_alike(case, measured)


def _may_have_other_rows(case: Case) -> bool:
    """Tell whether the weight of an embedding may be another one, or a fault before may have reached it.

    Of a weight that was not recorded it is not known.
    """
    parameter, progress = case.error.parameter, case.progress
    if parameter is None or case.weights or case.evidence.is_later_step or progress.first_origin is not None:
        return True
    return bool(parameter and case.evidence.systematic_weights)


def _is_multiple(measured: Measurement, limit: float) -> bool:
    """Tell whether the statistics of one side are those of the other times a number."""
    golden, target = measured.golden, measured.target
    if golden is None or target is None or not golden.norm or not target.norm:
        return True
    scale = target.norm / golden.norm
    ends = ((golden.maximum, target.maximum), (golden.minimum, target.minimum))
    known = [(one, other) for one, other in ends if one and other]
    return all(abs(other / one - scale) <= limit * scale for one, other in known)


def _is_any_order_alike(case: Case, gave: Measurement) -> bool:
    """Tell whether ids are the same but for their order, which leaves statistics of what they gave alone.

    They are where their sums agree, and the sums of their squares.
    """
    evidence = case.evidence
    given = (evidence.measurements[at] for at in case.error.pairs if evidence.pair_errors[at].discrete)
    ids = [measured.differences for measured in given if measured.kind is STATISTICS]
    return gave.kind is STATISTICS and all(one and one.mean == one.norm == 0.0 for one in ids)
