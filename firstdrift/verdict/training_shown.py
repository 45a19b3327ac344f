"""What a slice shows of training, for the step after it: parameters, and the errors of their gradients."""

import math
from collections.abc import Iterator, Mapping

from firstdrift.metrics.measurement import STATISTICS
from firstdrift.model.node import BACKWARD
from firstdrift.model.tensor import GRADIENT, OUTPUT
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.training import Trained, Training, ends_of, parameter_name


def training_of(evidence: Evidence) -> Training | None:
    """Take down what a slice shows of training; None where it holds no gradients."""
    noises = dict(_gradients(evidence))
    known = dict(_parameters(evidence, noises)) if noises else {}
    in_order = sorted(noises.values())
    return Training(known, in_order[3 * (len(in_order) - 1) // 4]) if known else None


def _gradients(evidence: Evidence) -> Iterator[tuple[str, float]]:
    for at, pair in enumerate(evidence.plan.pairs):
        if pair.golden.role is not GRADIENT and pair.golden.role is not OUTPUT:
            continue
        row, error = evidence.row_of(at), evidence.pair_errors[at]
        if row.direction is BACKWARD and error.value is not None and not error.discrete:
            yield parameter_name(pair, row), min(1.0, error.value)


def _parameters(evidence: Evidence, noises: Mapping[str, float]) -> Iterator[tuple[str, Trained]]:
    for row, error in zip(evidence.rows, evidence.errors, strict=True):
        for at in error.parameters:
            measured, name = evidence.measurements[at], parameter_name(evidence.plan.pairs[at], row)
            golden = ends_of(measured.golden)
            if golden is not None:
                yield name, Trained(golden, _difference(evidence, at), noises.get(name))


def _difference(evidence: Evidence, at: int) -> float:
    """Return the norm of the difference of a parameter: from statistics, the most that training explains."""
    measured, value = evidence.measurements[at], evidence.pair_errors[at].value
    apart = value if value is not None and math.isfinite(value) else 0.0
    if measured.kind is STATISTICS:
        apart = max(apart, evidence.allowed_by_training(at) or 0.0)
    return apart * measured.golden_norm
