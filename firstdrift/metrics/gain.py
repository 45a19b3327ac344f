"""The part of an error that has a direction: one side is the other one times a number.

    target = (1 + gain) x golden + rest

From values the gain is the projection of the difference on golden; from statistics, the change of the norm.
"""

import math

from firstdrift.metrics.measurement import Measurement, PairErrors, SideSummary


def gain(measured: Measurement) -> float | None:
    """Return the gain of a pair; None where it is not known."""
    if measured.errors is not None:
        return _of_values(measured.errors)
    golden, target = _known_norm(measured.golden), _known_norm(measured.target)
    return target / golden - 1.0 if golden and target is not None else None


def _known_norm(side: SideSummary | None) -> float | None:
    return None if side is None else side.known_norm


def _of_values(errors: PairErrors) -> float | None:
    golden, target = errors.sum_squared_golden, errors.sum_squared_target
    if not golden or errors.mismatched_nonfinite or not math.isfinite(golden + target):
        return None
    return (target - golden - errors.sum_squared_difference) / (2.0 * golden)
