"""What is said of a node that is not clean: messages, by the facts that the rule went by."""

import math
from collections.abc import Iterable, Iterator, Sequence

from firstdrift.groups import known
from firstdrift.matching.plan import TensorPair
from firstdrift.metrics.gain import gain
from firstdrift.metrics.measurement import STATISTICS, Measurement, MeasurementKind, SideSummary
from firstdrift.model.node import BACKWARD
from firstdrift.model.tensor import ROUNDING, Role, is_floating, is_part_of_rank
from firstdrift.operators.properties import role_of_argument
from firstdrift.verdict.case import Case
from firstdrift.verdict.conditioning import Term
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.fixed_thresholds import ANOTHER_ROW, SAME_ARGUMENT
from firstdrift.verdict.judgement import Reasons
from firstdrift.verdict.only_output import beyond_limits
from firstdrift.verdict.pair_error import size_of
from firstdrift.verdict.row_errors import RowErrors, number_of
from firstdrift.verdict.tree import TreeRow, is_embedding
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import roles_named, side_named

_AS = " = "


def non_finite(case: Case) -> Reasons:
    """Say where NaN or infinities are on one side only."""
    evidence, roles = case.evidence, roles_named(case.error.non_finite)
    off = [index for index in case.error.pairs if evidence.pair_errors[index].non_finite]
    both = [(evidence.measurements[index].golden, evidence.measurements[index].target) for index in off]
    golden, target = (_not_finite(known(sides)) for sides in zip(*both, strict=True)) if both else ("", "")
    if bool(golden) == bool(target):
        side, what = Message.of("reason.one_side"), "nan_or_infinity"
    else:
        side, what = side_named("golden" if golden else "target"), golden or target
    return (Message.of("reason.non_finite", what=Message.of(f"reason.{what}"), side=side, roles=roles),)


def _not_finite(sides: Sequence[SideSummary]) -> str:
    """Say what tensors hold that is no finite number; empty where all numbers are finite."""
    has_nan, has_infinity = any(one.has_nan for one in sides), any(one.has_infinity for one in sides)
    if has_nan and has_infinity:
        return "nan_or_infinity"
    return "nan" if has_nan else "infinity" if has_infinity else ""


def weights(case: Case) -> Reasons:
    """Say which parameter differs, and whether the output does."""
    evidence, error = case.evidence, case.error
    what, why = _weight_differs(evidence, error.parameter, error.parameter_pair or 0), _optimizer(case)
    if error.output is None:
        return (what, *why)
    inputs, output = _sizes(case)
    if error.input is None:
        return (Message.of("reason.weights_alone", parameter=what, output=output), *why)
    if not error.input:
        equal = _equal_inputs(case)
        return (Message.of("reason.weights_equal_inputs", parameter=what, equal=equal, output=output), *why)
    said = "weights" if _inputs_match(case) else "weights_beside"
    return (Message.of(f"reason.{said}", parameter=what, inputs=inputs, output=output), *why)


def as_all_weights(evidence: Evidence, pair: int) -> Message:
    """Say that a weight differs, and that nearly all others do."""
    what = _weight_differs(evidence, evidence.pair_errors[pair].value, pair)
    return Message.of("reason.as_all_weights", parameter=what)


def _weight_differs(evidence: Evidence, error: float | None, at: int) -> Message:
    pair = evidence.plan.pairs[at].target
    known = role_of_argument(evidence.row_of(at).type_name, pair.key)
    if pair.role is Role.PARAMETER:
        name, differs = pair.key, "parameter_differs"
    elif known in {"", "weight", pair.key}:
        name, differs = pair.label, "weight_differs"
    else:
        name, differs = f"{known} ({pair.label})", "parameter_differs"
    has_number = error is not None and math.isfinite(error)
    size = _size(evidence, error, at)
    return Message.of(f"reason.{differs}{'_by' if has_number else ''}", name=name, size=size)


def _optimizer(case: Case) -> Reasons:
    """Say that the optimizer made the difference, where the gradient before it agreed to rounding."""
    evidence, pair = case.evidence, case.error.parameter_pair
    if evidence.before.training is None or pair is None:
        return ()
    agreed = evidence.before.training.is_quiet(
        evidence.parameter_name(pair), case.limits.floor * case.roundoff
    )
    return (Message.of("reason.optimizer"),) if agreed else ()


def argument(case: Case) -> Reasons:
    """Say which Python argument differs."""
    pair = case.evidence.plan.pairs[case.error.scalar_pair or 0]
    golden, target = pair.golden.scalar, pair.target.scalar
    known, label = role_of_argument(case.row.type_name, pair.target.key), pair.target.label
    name = label if not known or label.endswith(known) else f"{known} ({label})"
    factor = _factor_of(pair)
    if factor is None:
        return (Message.of("reason.argument", name=name, golden=golden, target=target),)
    return (Message.of("reason.argument_times", name=name, golden=golden, target=target, factor=factor),)


def _factor_of(pair: TensorPair) -> float | None:
    """Return how many times golden's argument the target's is, if three digits tell; None of all else."""
    if not pair.golden.dtype == pair.target.dtype == "float":
        return None
    golden, target = number_of(pair.golden), number_of(pair.target)
    factor = target / golden if golden else math.nan
    if not (math.isfinite(factor) and factor > 0.0):
        return None
    told = float(f"{factor:.3g}")
    return told if abs(factor - told) <= SAME_ARGUMENT.value * factor else None


def one_sided_gradient(case: Case) -> Reasons:
    """Say which gradient one side alone has."""
    found = case.evidence.one_sided_gradients[case.row.index]
    what = "tensor" if found.tensor else "module"
    return (Message.of(f"reason.one_sided_gradient_{what}_{found.side}", tensor=found.tensor),)


def shape(case: Case) -> Reasons:
    """Say why two outputs cannot be compared."""
    known = case.evidence.plan.pairs[case.error.shape_pair or 0].incomparable
    return (known or Message.of("reason.other_kinds"),)


def inputs_differ(case: Case) -> Reasons:
    """Say that the inputs already differ, and by how much."""
    return (input_already_differs(case.evidence, case.error),)


def input_already_differs(evidence: Evidence, error: RowErrors) -> Message:
    """Say that the inputs with some errors already differ, and by how much."""
    return Message.of("reason.inputs_differ", size=_size(evidence, error.input, error.input_pair))


def numbers_differ(case: Case) -> Reasons:
    """Say that whole-number inputs already differ."""
    size = _size(case.evidence, math.inf, case.error.integer_input_pair)
    return (Message.of("reason.inputs_differ", size=size),)


def reached(case: Case) -> Reasons:
    """Say that the inputs already differ, or else the weights, where they are known to."""
    error = case.error
    if _was_trained_apart(case):
        what = _weight_differs(case.evidence, error.parameter, error.parameter_pair or 0)
        return (Message.of("reason.trained_apart", parameter=what),)
    if case.evidence.is_masked(error.input_pair):
        return (Message.of("reason.masked_input"),)
    if _ran_otherwise(case):
        return (Message.of("reason.forward_differs"),)
    if error.has_other_shape and not error.input:
        return (Message.of("reason.other_input_shape"),)
    return inputs_differ(case) if error.input else ()


def _agrees(case: Case) -> bool:
    return case.error.input is not None and case.error.input <= case.progress.level


def _was_trained_apart(case: Case) -> bool:
    """Tell whether the inputs of a node of a later step agree, and its weight does not."""
    is_off = (case.error.parameter or 0.0) > case.progress.level
    return case.evidence.is_later_step and is_off and _agrees(case)


def _ran_otherwise(case: Case) -> bool:
    """Tell whether a backward node adds an error, whose forward pass was off: its values are used again."""
    error = case.error
    adds = _agrees(case) or (error.output or 0.0) > case.limits.factor * (error.input or 0.0)
    if case.row.direction is not BACKWARD or not adds:
        return False
    forward = case.evidence.forward_partner(case.row)
    return forward is not None and (forward.worst > case.progress.level or forward.scalar_pair is not None)


def masked(case: Case) -> Reasons:
    """Say that the inputs already differ, and that masked values hide what became of that."""
    return (Message.of("reason.masked", size=_sizes(case)[0]),)


def healed(case: Case) -> Reasons:
    """Say that the output hardly differs although the inputs do."""
    inputs, output = _sizes(case)
    return (Message.of("reason.healed", inputs=inputs, output=output),)


def jump(case: Case) -> Reasons:
    """Say that an output differs although nothing that made it does."""
    return (
        _jump(case),
        *_beyond_limits(case),
        *_missing_inside(case.evidence, case.row),
        *_order_of_weights(case),
    )


def scaled(case: Case) -> Reasons:
    """Say that an output is the golden one times a number, which rounding does not do."""
    pair = case.error.output_pair
    found = gain(case.evidence.measurements[pair]) if pair is not None else None
    times = 1.0 + (found or 0.0)
    said = Message.of("reason.scaled", inputs=_sizes(case)[0], times=times)
    if not case.error.input:
        said = Message.of("reason.equal_given_scaled", equal=_equal_inputs(case), times=times)
    return (said, *_missing_inside(case.evidence, case.row))


def _order_of_weights(case: Case) -> Reasons:
    """Say what statistics do not show of weights that are all equal by them.

    Outputs that were rounded are not made of weights in another order.
    """
    inside = case.evidence.errors[case.row.index : case.row.last + 1]
    weights = [at for error in inside for at in error.parameters if _is_matrix(case.evidence, at)]
    owners = set(map(case.evidence.place_of, weights))
    if len(owners) != 1 or (case.error.output or 0.0) <= ROUNDING["bfloat16"]:
        return ()
    looked_at = known((case.error.output_pair, *weights))
    by_statistics = all(case.evidence.measurements[at].kind is STATISTICS for at in looked_at)
    worst, order_of_adding = max(_parameter_errors(inside)), case.limits.parameter_floor * case.roundoff
    return (Message("reason.order_of_weights"),) if by_statistics and worst <= order_of_adding else ()


def _parameter_errors(errors: Iterable[RowErrors]) -> Iterator[float]:
    return (error.parameter or 0.0 for error in errors)


def _is_matrix(evidence: Evidence, pair: int) -> bool:
    return len(evidence.plan.pairs[pair].golden.shape or ()) > 1


def _beyond_limits(case: Case) -> Reasons:
    """Say how logits that are all that was compared are beyond the limits of msit, where they are."""
    pair = case.error.output_pair
    if pair is None or case.evidence.measured_outputs > 1:
        return ()
    return beyond_limits(case.evidence.measurements[pair], case.limits, case.roundoff)


def _jump(case: Case) -> Message:
    evidence, row, error = case.evidence, case.row, case.error
    inputs, output = _sizes(case)
    if case.added:
        return _sum_of(case, case.added, output)
    if error.input is None and case.progress.known_inside[row.index]:
        return _said_of_inside(evidence, row, output)
    if case.operands:
        return _sum_of(case, case.operands, output)
    if evidence.is_masked(error.input_pair):
        return Message.of("reason.masked_before", output=output)
    if error.input is None:
        looked_up = "_looked_up" if _may_have_looked_up_another(evidence, row, error) else ""
        return Message.of(f"reason.first_to_differ{looked_up}", output=output)
    if not error.input:
        return _of_equal_inputs(case, output)
    said = "inputs_agree" if _inputs_match(case) else "amplified"
    return Message.of(f"reason.{said}", inputs=inputs, output=output)


def _of_equal_inputs(case: Case, output: Message) -> Message:
    equal = _equal_inputs(case)
    if equal.id == "reason.inputs_equal":
        return Message.of("reason.equal_inputs", output=output)
    return Message.of("reason.equal_given", equal=equal, output=output)


def _equal_inputs(case: Case) -> Message:
    """Say of inputs without an error what is equal: they themselves, their statistics, or the fractions."""
    error = case.error
    if error.may_be_permuted or error.unsure:
        return Message.of("reason.inputs_equal_statistics")
    return Message.of("reason.inputs_equal" if error.exact_inputs else "reason.inputs_equal_fractions")


def _is_by_statistics(evidence: Evidence, pair: int | None) -> bool:
    return pair is not None and evidence.measurements[pair].kind is MeasurementKind.STATISTICS


def _inputs_match(case: Case) -> bool:
    """Tell whether inputs differ by no more than rounding: what is above the level, a fault has reached."""
    return (case.error.input or 0.0) <= case.level


def _sum_of(case: Case, terms: Sequence[Term], output: Message) -> Message:
    sizes = [_size(case.evidence, term.error, term.pair) for term in terms]
    addends = tuple(
        Message.of("reason.addend", name=_seen_from(case.row, term.where), size=size)
        for term, size in zip(terms, sizes, strict=True)
    )
    return Message.of("reason.sum", addends=addends, output=output)


def entered(
    evidence: Evidence, row: TreeRow, error: RowErrors, *, blamed: TreeRow, is_maker: bool
) -> Message:
    """Say that an input differs that nothing recorded before explains: of a row, or of one inside it.

    The blamed row may also be the one that made the input in the golden run.
    """
    size = _size(evidence, error.input, error.input_pair)
    if is_maker:
        return Message.of("reason.entered_after", name=row.label, size=size)
    if blamed is not row:
        return Message.of("reason.entered_inside", name=row.label, size=size)
    if row.direction is BACKWARD and error.input_pair is not None:
        givers = evidence.makers(row, error.input_pair)
        if len(givers) > 1:
            return Message.of("reason.entered_sum", size=size, nodes=tuple(one.label for one in givers))
    return Message.of("reason.entered", size=size)


def runs_alone(evidence: Evidence, alone: TreeRow, after: TreeRow, error: RowErrors) -> Message:
    """Say that one side alone runs an operator, and which input is off after it."""
    size = _size(evidence, error.input, error.input_pair)
    return Message.of(f"reason.runs_alone_{alone.side}", name=_named(alone), after=after.label, size=size)


def _missing_inside(evidence: Evidence, row: TreeRow) -> Reasons:
    """Say which outputs of the modules of a row were not compared, so that more cannot be said."""
    inside = evidence.rows[row.index + 1 : row.last + 1]
    incomparable = list(_incomparable(evidence, inside))
    missing = [
        Message.of("reason.tensor_of", tensor=pair.target.label, node=_named(one))
        for one, pair in incomparable
    ]
    missing += [*_left_over(evidence, inside, "golden"), *_left_over(evidence, inside, "target")]
    if not missing:
        return ()
    more = len(missing) - 1
    what = Message.of(f"reason.not_compared_inside{'_more' if more else ''}", tensor=missing[0], more=more)
    parts = (pair for _, pair in incomparable if is_part_of_rank(pair.golden) or is_part_of_rank(pair.target))
    why = next((pair.incomparable for pair in parts if pair.incomparable), None)
    return (what,) if why is None else (what, why)


def _incomparable(evidence: Evidence, inside: Sequence[TreeRow]) -> Iterator[tuple[TreeRow, TensorPair]]:
    for row in inside:
        for index in evidence.pairs_of(evidence.errors[row.index], Role.OUTPUT):
            if evidence.measurements[index].kind is MeasurementKind.INCOMPARABLE:
                yield row, evidence.plan.pairs[index]


def _left_over(evidence: Evidence, inside: Sequence[TreeRow], side: str) -> Iterator[Message]:
    """Name the outputs of the modules of a row that one dump alone has."""
    names = {name for row in inside if row.match is not None for name in getattr(row, side)}
    for tensor in getattr(evidence.plan, f"unmatched_{side}_tensors"):
        if tensor.record.role is Role.OUTPUT and tensor.record.is_tensor and tensor.node in names:
            yield Message.of(f"reason.tensor_of_{side}", tensor=tensor.record.label, node=tensor.node)


def _may_have_looked_up_another(evidence: Evidence, row: TreeRow, error: RowErrors) -> bool:
    """Tell whether a row, or the module around it, may have been asked for another row of a table."""
    around = evidence.rows[row.parent] if row.parent is not None else row
    return (error.output or 0.0) > ANOTHER_ROW.value and (is_embedding(row) or is_embedding(around))


def _sizes(case: Case) -> tuple[Message, Message]:
    """Say how large the errors of the inputs and of the outputs are."""
    evidence, error = case.evidence, case.error
    return _size(evidence, error.input, error.input_pair), _size(evidence, error.output, error.output_pair)


def _said_of_inside(evidence: Evidence, row: TreeRow, output: Message) -> Message:
    """Say of an output that the worst error recorded inside its row does not explain it."""
    inside = [one for one in evidence.errors[row.index + 1 : row.last + 1] if not one.is_set_aside]
    worst = max(inside, key=lambda one: one.worst)
    known = (
        (worst.input, worst.input_pair),
        (worst.parameter, worst.parameter_pair),
        (worst.output, worst.output_pair),
    )
    error, pair = max(known, key=lambda one: one[0] or 0.0)
    if not error:
        by_statistics = "_statistics" if _is_by_statistics(evidence, pair) else ""
        return Message.of(f"reason.inside_equal{by_statistics}", output=output)
    return Message.of("reason.inside_agrees", inside=_size(evidence, error, pair), output=output)


def _size(evidence: Evidence, error: float | None, pair: int | None) -> Message:
    """Say how large an error is: a number where there is one, else what is known instead."""
    if error is None:
        return Message.of("size.unknown")
    if pair is None:
        return Message.of("size.number", error=error)
    measured = evidence.measurements[pair]
    if math.isfinite(error):
        return size_of(error, measured)
    if measured.kind is MeasurementKind.DIGEST:
        return Message.of("size.digests_differ")
    if measured.kind is MeasurementKind.SCALAR:
        return Message.of("size.other_argument")
    if _differs_in_finiteness(measured):
        return Message.of("size.non_finite")
    if is_floating(evidence.plan.pairs[pair].target.dtype):
        return Message.of("size.golden_is_zero")
    return Message.of("size.other_numbers")


def _differs_in_finiteness(measured: Measurement) -> bool:
    errors, differences = measured.errors, measured.differences
    return bool(errors and errors.mismatched_nonfinite) or bool(differences and differences.nonfinite_differs)


def _named(row: TreeRow) -> str:
    return (row.target or row.golden)[0]


def _seen_from(row: TreeRow, names: str) -> str:
    """Shorten the names of a node by the target's folder that a row lies in too: the finding names that."""
    folder, slash, _ = row.target[0].rpartition("/") if row.target else ("", "", "")
    return _AS.join(name.removeprefix(folder + slash) for name in names.split(_AS))
