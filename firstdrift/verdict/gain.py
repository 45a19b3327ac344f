"""Errors that have a direction: one side is the other one times a number (`metrics/gain.py`).

Rounding has no direction: spread over many rows it makes a gain far below its size. A factor that is wrong
makes one of its own size, which so is seen long before the whole error exceeds what has gathered.
"""

import math
from collections.abc import Iterator

from firstdrift.groups import known
from firstdrift.metrics.gain import gain
from firstdrift.model.node import BACKWARD
from firstdrift.model.tensor import INPUT, PARAMETER
from firstdrift.verdict.case import Case, Scope
from firstdrift.verdict.confidence import Excess, Quantity
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.fixed_thresholds import LEAST_DIRECTED, LEAST_ROWS_DIRECTED
from firstdrift.verdict.row_errors import RowErrors, is_gradient_of_parameter


def see_gain(case: Case) -> None:
    """Remember the gain of an output, as long as those of the rows after it are held against it."""
    pair = case.error.output_pair
    if pair is not None and _may_be_asked(case):
        case.progress.gain = max(case.progress.gain, abs(_spread_gain(case.evidence, pair) or 0.0))


def _spread_gain(evidence: Evidence, pair: int) -> float | None:
    """Return the gain of a pair of so many elements and rows that rounding makes none; None of others."""
    shape = evidence.plan.pairs[pair].golden.shape or ()
    is_large = math.prod(shape) >= LEAST_DIRECTED.value and _rows(shape) >= LEAST_ROWS_DIRECTED.value
    return gain(evidence.measurements[pair]) if is_large else None


def _rows(shape: tuple[int, ...]) -> int:
    return math.prod(shape[:-1])


def excess_of_gain(case: Case) -> Excess | None:
    """Return the gain of an output and the most that is explained of it; None where that cannot be told."""
    pair = case.error.output_pair
    found = _spread_gain(case.evidence, pair) if pair is not None and _is_asked(case, pair) else None
    if pair is None or found is None:
        return None
    explained = max(_explained_gain(case), _by_chance(case, pair, found))
    too_small = case.evidence.pair_errors[pair].underflow  # numbers that a dtype makes zero scale by 0
    limit = max(case.limits.factor * explained, case.limits.peer_floor * case.roundoff, too_small)
    return Excess(abs(found), limit, Quantity.SCALE)


def _is_asked(case: Case, pair: int) -> bool:
    """Tell whether a gain of a row says something: of a coarse format, before any fault or other choice."""
    error, is_coarse = case.error, case.roundoff > case.limits.roundoff_float32
    if not is_coarse or error.tells_little or error.input is None or not _may_be_asked(case):
        return False
    is_choice = error.tie_pair is not None or error.integer_input_pair is not None
    if is_choice or Scope.GRADIENT in case.scope:
        return False
    return not is_gradient_of_parameter(case.evidence.plan.pairs[pair], case.row)


def _may_be_asked(case: Case) -> bool:
    """Tell whether gains say something of any row from here on."""
    progress, evidence = case.progress, case.evidence
    is_after = progress.first_origin is not None or progress.has_tie
    return not is_after and evidence.is_coarse and evidence.systematic_weights is None


def _explained_gain(case: Case) -> float:
    """Return the gain that what a row was given explains, amplified as errors are, or what ran before."""
    given = max(case.error.input or 0.0, case.error.parameter or 0.0, case.roundoff)
    amplification = max(1.0, case.explained / given)
    gains = map(abs, _given(case.evidence, _both_passes(case)))
    return max(amplification * max(gains, default=0.0), case.progress.gain, case.progress.trained)


def _both_passes(case: Case) -> list[RowErrors]:
    """Return the errors of a row, and of a backward one those of its forward pass."""
    is_backward = case.row.direction is BACKWARD
    return known((case.error, case.evidence.forward_partner(case.row) if is_backward else None))


def _given(evidence: Evidence, rows: list[RowErrors]) -> Iterator[float]:
    for error in rows:
        for role in (INPUT, PARAMETER):
            pairs = evidence.pairs_of(error, role)
            yield from known(gain(evidence.measurements[at]) for at in pairs)


def _by_chance(case: Case, pair: int, found: float) -> float:
    """Return the gain that the rest of an error makes by chance, its rows being as alike as they may be."""
    errors = case.evidence.measurements[pair].errors
    if errors is None:
        return 0.0
    rest = math.sqrt(max(errors.relative_l2**2 - found * found, 0.0))
    return rest / math.sqrt(_rows(case.evidence.plan.pairs[pair].golden.shape or ()))
