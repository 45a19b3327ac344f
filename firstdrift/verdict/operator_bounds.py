"""The first-order bound of the operator of a row, from what was recorded of its tensors.

A backward operator is held against what it was given, and what its forward operator was given and gave.
"""

import math
from collections.abc import Iterable

from msgspec.structs import replace

from firstdrift.groups import known
from firstdrift.matching.plan import TensorPair
from firstdrift.metrics.masks import ZERO_FOR_SOFTMAX
from firstdrift.metrics.measurement import DATA, SCALAR, Measurement, SideSummary
from firstdrift.model.node import API, BACKWARD
from firstdrift.model.tensor import INPUT, OUTPUT, PARAMETER, Role, holds_a_part, is_floating
from firstdrift.operators.kinds import ErrorModel, OpKind
from firstdrift.operators.properties import error_model, role_of_argument
from firstdrift.operators.recognise import kind_of_label
from firstdrift.verdict.case import Case, explained_by_training
from firstdrift.verdict.error_model import Value, backward_bound, forward_bound, has_bound
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.fixed_thresholds import LEAST_VARIANCE, LOWEST_VALUES
from firstdrift.verdict.row_errors import RowErrors
from firstdrift.verdict.tree import TreeRow, last_name

_SWITCH = "training"
_TRUTH = {"False": 0.0, "True": 1.0}
_GIVEN = (INPUT, PARAMETER)
_OF_VALUES = (DATA, SCALAR)
_OF_TWO = (ErrorModel.PRODUCT, ErrorModel.CONVOLVED, ErrorModel.MULTIPLIED, ErrorModel.DIVIDED)
_EXPONENTIALS = (ErrorModel.EXPONENTIAL, ErrorModel.LOGARITHMIC)


def model_of(evidence: Evidence, row: TreeRow) -> ErrorModel:
    """Return the model of a row that runs nothing else; a norm of no known class may take the mean away."""
    if not evidence.runs_alone(row):
        return ErrorModel.NONE
    if row.type_name:
        return error_model(row.type_name)
    label = last_name(row)
    return ErrorModel.CENTRED if kind_of_label(label) is OpKind.NORM else error_model(label)


def is_without_model(evidence: Evidence, row: TreeRow) -> bool:
    """Tell whether a row is one operator without an error model that was given more than rounding."""
    error = evidence.errors[row.index]
    is_given_error = (error.input or 0.0) > (error.roundoff or 0.0)
    is_operator = row.kind is API and evidence.runs_alone(row)
    return is_operator and is_given_error and not has_bound(model_of(evidence, row))


def is_bounded(case: Case) -> bool:
    """Tell whether a row is one operator with an error model, and what it was given was compared."""
    row = case.row
    if case.error.input is None or not has_bound(model_of(case.evidence, row)):
        return False
    return row.direction is not BACKWARD or case.evidence.forward_partner(row) is not None


def is_known_throughout(case: Case) -> bool:
    """Tell whether values were compared of all that a backward operator with an error model works on.

    Of what its forward pass was given, those that multiply need both factors.
    """
    pair, measurements = case.error.output_pair, case.evidence.measurements
    if pair is None or measurements[pair].kind not in _OF_VALUES:
        return False
    forward = case.evidence.forward_partner(case.row)
    if forward is None or not is_bounded(case):
        return False
    kept = evidence_pairs(case.evidence, forward, *_GIVEN)
    needed = 1 + (model_of(case.evidence, case.row) in _OF_TWO)
    return len(kept) >= needed and all(measurements[at].kind in _OF_VALUES for at in kept)


def operator_bound(case: Case, pair: int) -> float:
    """Return the relative error of an output that the model of its operator explains; 0 where none says."""
    evidence, roundoff = case.evidence, case.roundoff
    model = model_of(evidence, case.row)
    made = _value(evidence, pair, roundoff) if model is not ErrorModel.NONE else None
    if made is None:
        return 0.0
    lowest = ZERO_FOR_SOFTMAX if model in _EXPONENTIALS else -LOWEST_VALUES.value
    given = _given(case, case.error, lowest)
    if case.row.direction is not BACKWARD:
        return forward_bound(model, given, made)
    forward = evidence.forward_partner(case.row)
    if forward is None:
        return backward_bound(model, given, [], [], made)
    kept = _given(case, forward)
    result = _values(evidence, evidence_pairs(evidence, forward, OUTPUT), roundoff)
    bound = backward_bound(model, given, kept, result, made)
    return _with_flipped_rows(case, pair, bound) if model is ErrorModel.KINKED else bound


def _with_flipped_rows(case: Case, pair: int, bound: float) -> float:
    """Let a bound of a whole tensor hold for its rows: gates that flip may lie in one of them."""
    errors = case.evidence.measurements[pair].errors
    if errors is None or errors.relative_l2 > case.limits.factor * bound:
        return bound
    return max(bound, errors.worst_row_relative_l2)


def _given(case: Case, error: RowErrors, lowest: float = -LOWEST_VALUES.value) -> list[Value]:
    """Return what an operator was given: its inputs, and its weights as far off as training may take them."""
    evidence = case.evidence
    given = _values(evidence, evidence_pairs(evidence, error, *_GIVEN), case.roundoff, lowest)
    own = {evidence.plan.pairs[at].golden.key: _parameter_error(case, at) for at in error.parameters}
    return [replace(one, error=own.get(one.key, one.error)) for one in given] if own else given


def _parameter_error(case: Case, pair: int) -> float:
    """Return the error of a parameter that explains others: what other weights lead to, they explain not."""
    evidence = case.evidence
    if case.weights:
        return case.roundoff
    error = evidence.pair_errors[pair].value or 0.0
    if evidence.measurements[pair].kind is DATA:  # whose values tell how far training took it
        return max(error, case.roundoff)
    trained = explained_by_training(evidence, pair)
    return max(error, case.roundoff, trained if math.isfinite(trained) else 0.0)


def evidence_pairs(evidence: Evidence, error: RowErrors, *roles: Role) -> list[int]:
    """Return the pairs of a row that the dump gives one of some roles, in the order of their keys."""
    keys = {at: evidence.plan.pairs[at].golden.key for role in roles for at in evidence.pairs_of(error, role)}
    roles_of = {at: roles.index(evidence.plan.pairs[at].role) for at in keys}
    return sorted(keys, key=lambda at: (roles_of[at], len(keys[at]), keys[at]))


def _values(
    evidence: Evidence, pairs: Iterable[int], roundoff: float, lowest: float = -LOWEST_VALUES.value
) -> list[Value]:
    return known(_value(evidence, pair, roundoff, lowest) for pair in pairs)


def _value(
    evidence: Evidence, index: int, roundoff: float, lowest: float = -LOWEST_VALUES.value
) -> Value | None:
    """Return what is known of a tensor of numbers; None where too little is. What is below `lowest` masks."""
    pair, measured = evidence.plan.pairs[index], evidence.measurements[index]
    role = role_of_argument(evidence.row_of(index).type_name, pair.golden.key)
    if measured.kind is SCALAR:
        return _number(pair, role)
    side, error = measured.golden, evidence.pair_errors[index].value
    if side is None or error is None or not is_floating(pair.golden.dtype):
        return None
    side = _without_masks(side, lowest)
    if side.maximum is None or side.minimum is None or not side.size:
        return None
    largest = max(abs(side.maximum), abs(side.minimum))
    norm = measured.golden_norm if side is measured.golden else abs(side.norm or 0.0)
    if not (math.isfinite(norm) and math.isfinite(largest)):
        return None
    value = Value(
        key=pair.golden.key,
        size=side.size,
        norm=norm,
        minimum=side.minimum,
        maximum=side.maximum,
        deviation=_deviation(side, norm),
        error=max(error, roundoff),
        largest_error=max(largest_difference(measured), roundoff * largest),
        shape=pair.golden.shape or (),
        roundoff=evidence.pair_errors[index].roundoff,
        role=role,
    )
    return value if holds_a_part(pair.golden) else _with_elements(value, measured, roundoff)


def _with_elements(value: Value, measured: Measurement, roundoff: float) -> Value:
    """Add what values alone tell of errors."""
    if measured.errors is None:
        return value
    relative = max(_relative_error(measured), roundoff)
    return replace(value, is_exact=True, relative=relative, drift=measured.errors.sum_difference)


def _relative_error(measured: Measurement) -> float:
    """Return the largest relative error of an element; infinite where it is not known of each.

    Of zeros there is none. If no zero of the target stands where golden has none, as many are the same ones.
    """
    errors, golden, target = measured.errors, measured.golden, measured.target
    if errors is None or golden is None or target is None:
        return math.inf
    largest = errors.max_relative_error or 0.0
    is_of_each = not golden.zeros or (golden.zeros == target.zeros and largest < 1.0)
    return largest if is_of_each else math.inf


def _number(pair: TensorPair, role: str) -> Value | None:
    said = pair.golden.scalar or "nan"
    if pair.golden.dtype not in {"float", "int"} and role != _SWITCH:
        return None
    try:
        number = _TRUTH[said] if said in _TRUTH else float(said)
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    return Value(pair.golden.key, 1, abs(number), number, number, 0.0, 0.0, 0.0, role=role)


def _without_masks(side: SideSummary, lowest: float) -> SideSummary:
    """Leave out what masks: it is far below all numbers that are computed with."""
    if side.minimum is None or side.maximum is None or side.minimum > lowest:
        return side
    highest = abs(side.maximum)
    return SideSummary(side.size, side.maximum, -highest, None, highest * math.sqrt(side.size or 0))


def _deviation(side: SideSummary, norm: float) -> float:
    """Return the standard deviation; where mean and norm cancel out, the least that they can tell."""
    if side.maximum == side.minimum:
        return 0.0
    mean_square = norm * norm / (side.size or 1)
    mean = side.mean or 0.0
    return math.sqrt(max(mean_square - mean * mean, LEAST_VARIANCE.value * mean_square))


def largest_difference(measured: Measurement) -> float:
    """Return the largest absolute error of an element; of statistics, that of the maximum and the minimum."""
    if measured.errors is not None:
        return measured.errors.max_absolute_error
    differences = measured.differences
    if differences is None:
        return 0.0
    return max(abs(differences.maximum or 0.0), abs(differences.minimum or 0.0))
