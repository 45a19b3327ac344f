"""Input error, parameter error and output error of each row, kept apart.

An operator receives weights as plain inputs (`linear(x, weight)`). They count as parameters here:
by the operator's signature, or because the very same values are a parameter of some module.
"""

import math
from collections.abc import Sequence
from functools import cache

from msgspec import Struct, field

from firstdrift.matching.plan import SlicePlan, TensorPair
from firstdrift.matching.tokens.rows import NOT_TOLD
from firstdrift.metrics.measurement import SCALAR, STATISTICS, Measurement
from firstdrift.model.node import BACKWARD
from firstdrift.model.tensor import INPUT, OUTPUT, PARAMETER, Role, TensorRecord, is_part_of_rank
from firstdrift.operators.properties import is_about_positions, last_part, names_device, parameter_positions
from firstdrift.operators.registry import PARAMETERS
from firstdrift.verdict.fixed_thresholds import LOWEST_VALUES, SAME_ARGUMENT
from firstdrift.verdict.movable_thresholds import DEFAULTS, Thresholds
from firstdrift.verdict.pair_error import PairError, are_of_other_kinds, pair_error
from firstdrift.verdict.router_ties import Choice, excuse
from firstdrift.verdict.tree import TreeRow, is_embedding, rows_by_match


class RowErrors(Struct, gc=False):
    """The errors of the pairs of one row; None where nothing could be compared.

    Attributes:
        input: worst error of its floating inputs; likewise parameter and output (gradients are
            outputs). Where a node chooses (one of its outputs is of whole numbers: routers, top k),
            the first floating output counts: what it chose by, not what it gathered by the choice.
        input_pair: index of the pair with that error; likewise parameter_pair and output_pair.
        non_finite: roles where one side alone has NaN or infinities.
        roundoff: coarsest unit roundoff among its floating tensors; None if it has none.
        exact_inputs: every input, whole numbers and scalars included, is known to be equal, and there is one.
        unsure: an input of whole numbers has equal statistics: its values may differ all the same.
        may_be_permuted: an input of fractions has equal statistics, which do not tell their order.
        scalar_pair: index of the first Python argument that differs.
        shape_pair: index of the first output whose shape, or kind of numbers, differs.
        tie_pair: index of the first whole-number output that differs.
        integer_input_pair: index of the first whole-number input that differs.
        has_other_shape: an input has another shape, so it is another input.
        pairs: indices of all its pairs; likewise parameters, of those that are its weights.
        roles: roles of all its pairs, an operator's weights being parameters.
        whole_input: worst error of its inputs with the rows of tokens that went to other experts, which
            `input` and `output` leave out where they are known; likewise whole_output.
        is_excused: what it gives depends on such a choice, and is no error.
        is_set_aside: it is so, and explains no error of others.
        is_by_number: it is a call that may be one of another expert on the other side.
        tells_little: after such a choice, its errors are lower bounds that may hide what came in.
    """

    input: float | None = None
    parameter: float | None = None
    output: float | None = None
    input_pair: int | None = None
    parameter_pair: int | None = None
    output_pair: int | None = None
    non_finite: frozenset[Role] = frozenset()
    roundoff: float | None = None
    exact_inputs: bool = False
    unsure: bool = False
    may_be_permuted: bool = False
    scalar_pair: int | None = None
    shape_pair: int | None = None
    tie_pair: int | None = None
    integer_input_pair: int | None = None
    has_other_shape: bool = False
    pairs: list[int] = field(default_factory=list)
    parameters: list[int] = field(default_factory=list)
    roles: set[Role] = field(default_factory=set)
    whole_input: float = 0.0
    whole_output: float = 0.0
    is_excused: bool = False
    is_set_aside: bool = False
    tells_little: bool = False
    is_by_number: bool = False

    @property
    def worst(self) -> float:
        """Largest of the three; 0 if nothing is known."""
        return max(self.input or 0.0, self.parameter or 0.0, self.output or 0.0)


def row_errors(
    rows: Sequence[TreeRow],
    plan: SlicePlan,
    measurements: Sequence[Measurement],
    limits: Thresholds = DEFAULTS,
    choices: Sequence[Choice] = (),
) -> tuple[list[RowErrors], list[PairError]]:
    """Collect the errors of every row, and of every pair of the plan.

    Of what ran after other experts were chosen the rows are left out that went to them.
    """
    roundoff = cache(limits.roundoff)
    errors = [
        pair_error(pair, measured, roundoff) for pair, measured in zip(plan.pairs, measurements, strict=True)
    ]
    row_of_match = rows_by_match(rows)
    parameters = known_parameters(plan.pairs)
    collected = [RowErrors() for _ in rows]
    for index, pair in enumerate(plan.pairs):
        row = row_of_match[pair.match]
        own, role = collected[row.index], role_of(pair, row, parameters)
        own.pairs.append(index)
        own.roles.add(role)
        if role is PARAMETER and pair.target.is_tensor:
            own.parameters.append(index)
        if choices and role is not PARAMETER:
            errors[index] = _excused(own, row, pair, errors[index], measurements[index], choices)
        _add(own, index, pair, role, errors[index], measurements[index])
    for row, row_error in zip(rows, collected, strict=True):
        _look_at_the_number_of_ids(row, row_error, plan)
        _complete(row_error, plan, errors)
    return collected, errors


def _excused(
    row: RowErrors,
    at: TreeRow,
    pair: TensorPair,
    error: PairError,
    measured: Measurement,
    choices: Sequence[Choice],
) -> PairError:
    """Return the error of a pair without the rows that went to other experts; note in its row what it was."""
    known = excuse(choices, at, pair, measured)
    row.is_excused |= known.is_within
    row.is_set_aside |= known.is_set_aside
    row.tells_little |= known.tells_little
    row.is_by_number |= known.is_by_number
    if error.value is None or error.discrete:
        return error
    if pair.role is INPUT:
        row.whole_input = max(row.whole_input, error.value)
    elif pair.role is OUTPUT:
        row.whole_output = max(row.whole_output, error.value)
    if not known.left_out or measured.by_row is None:
        return error
    rest = measured.by_row.without(known.left_out)
    return error if rest is None else error._replace(value=min(error.value, rest))


def embeds_tokens(row: TreeRow) -> bool:
    """Tell whether a row turns token ids into vectors, one for each."""
    is_forward = row.direction is not BACKWARD
    return is_embedding(row) and is_forward and not is_about_positions(row.type_name)


def _look_at_the_number_of_ids(row: TreeRow, error: RowErrors, plan: SlicePlan) -> None:
    """Take another number of vectors for another number of token ids, where these were not recorded."""
    if error.shape_pair is None or error.input is not None or not embeds_tokens(row):
        return
    pair = plan.pairs[error.shape_pair]
    golden, target = pair.golden.shape, pair.target.shape
    if golden and target and golden[-1] == target[-1] and math.prod(golden) != math.prod(target):
        error.integer_input_pair, error.shape_pair, error.input = error.shape_pair, None, 0.0


def _complete(row: RowErrors, plan: SlicePlan, errors: Sequence[PairError]) -> None:
    differs = row.scalar_pair is not None or row.integer_input_pair is not None
    row.exact_inputs = row.input == 0.0 and not (differs or row.unsure)
    if not any(errors[index].discrete for index in row.pairs):
        return
    outputs = [index for index in row.pairs if plan.pairs[index].role is OUTPUT]
    if not any(errors[index].discrete for index in outputs):
        return
    for index in outputs:
        value = errors[index].value
        if value is not None and not errors[index].discrete and plan.pairs[index].target.is_tensor:
            row.output, row.output_pair = value, index
            return


def role_of(pair: TensorPair, row: TreeRow, parameters: frozenset[tuple[object, ...]]) -> Role:
    """Return the role of a pair, an operator's weights being parameters."""
    role = pair.role
    if role is not INPUT or row.kind != "api" or row.direction == "backward":
        return role
    key = pair.target.key
    if key in PARAMETERS or key in parameter_positions(row.type_name):
        return PARAMETER
    if fingerprint(pair.golden, pair.target) in parameters:
        return PARAMETER
    return role


def is_gradient_of_parameter(pair: TensorPair, row: TreeRow) -> bool:
    """Tell whether an output of a backward operator is the gradient of a parameter."""
    if row.kind != "api" or row.direction != "backward" or pair.role is not OUTPUT:
        return False
    return pair.target.key in parameter_positions(last_part(row.type_name))


def known_parameters(pairs: Sequence[TensorPair]) -> frozenset[tuple[object, ...]]:
    """Return what tells the values of the parameters that modules own."""
    return frozenset(fingerprint(p.golden, p.target) for p in pairs if p.target.role is PARAMETER)


def fingerprint(*records: TensorRecord) -> tuple[object, ...]:
    """Return what tells whether two records hold the same values: size, statistics and digest."""
    return tuple((math.prod(r.shape or ()), r.statistics, r.digest) for r in records)


def _add(
    row: RowErrors, index: int, pair: TensorPair, role: Role, error: PairError, measured: Measurement
) -> None:
    if measured.kind is SCALAR:
        if error.value and row.scalar_pair is None and scalars_matter(pair):
            row.scalar_pair = index
        return
    if error.value is None:
        if _has_other_shape(pair) or are_of_other_kinds(pair):
            _add_other_shape(row, index, role, discrete=error.discrete)
        return
    if error.non_finite:
        row.non_finite |= {role}
    if error.discrete:
        row.unsure |= role is INPUT and measured.kind is STATISTICS
        _add_discrete(row, index, role, error.value)
        return
    row.roundoff = max(row.roundoff or 0.0, error.roundoff)
    row.may_be_permuted |= role is INPUT and measured.kind is STATISTICS
    _add_floating(row, index, role, error.value)


def _add_floating(row: RowErrors, index: int, role: Role, value: float) -> None:
    if role is INPUT:
        if row.input is None or value > row.input:
            row.input, row.input_pair = value, index
    elif role is PARAMETER:
        if row.parameter is None or value > row.parameter:
            row.parameter, row.parameter_pair = value, index
    elif row.output is None or value > row.output:
        row.output, row.output_pair = value, index


def _has_other_shape(pair: TensorPair) -> bool:
    """Tell whether two tensors have shapes that cannot be compared; a part of one rank has one by nature."""
    golden, target = pair.golden, pair.target
    is_part = is_part_of_rank(golden) or is_part_of_rank(target)
    is_known = pair.incomparable is not None and pair.incomparable.id != NOT_TOLD
    return is_known and golden.shape != target.shape and not is_part


def _add_other_shape(row: RowErrors, index: int, role: Role, *, discrete: bool) -> None:
    if role is INPUT and discrete:  # a prompt of another length is another input
        _add_discrete(row, index, role, math.inf)
    elif role is INPUT:
        row.has_other_shape = True
    elif role is OUTPUT and row.shape_pair is None:
        row.shape_pair = index


def _add_discrete(row: RowErrors, index: int, role: Role, value: float) -> None:
    if role is INPUT:
        if row.input is None:
            row.input = 0.0
        if value and row.integer_input_pair is None:
            row.integer_input_pair = index
    elif value and row.tie_pair is None:
        row.tie_pair = index


def number_of(record: TensorRecord) -> float:
    """Return a Python argument as a number; NaN where the dump says something else."""
    try:
        return float(record.scalar or "nan")
    except ValueError:
        return math.nan


def _are_other_numbers(golden: float, target: float) -> bool:
    if min(abs(golden), abs(target)) >= LOWEST_VALUES.value and (golden < 0) == (target < 0):
        return False
    if math.isinf(golden) or math.isinf(target):
        return True
    return abs(golden - target) > SAME_ARGUMENT.value * max(abs(golden), abs(target))


def scalars_matter(pair: TensorPair) -> bool:
    """Tell whether two differing Python arguments can be the reason that outputs differ.

    Devices, dtypes, process groups and a dtype's own lowest number (used to mask) differ between
    healthy runs; other text, such as `reduction="sum"`, says what is computed.
    """
    if pair.golden.dtype == pair.target.dtype == "str":
        return not any(names_device(one.scalar or "") for one in (pair.golden, pair.target))
    if pair.target.dtype in {"float", "int"} and pair.golden.dtype in {"float", "int"}:
        return _are_other_numbers(number_of(pair.golden), number_of(pair.target))
    return pair.target.dtype in {"int", "float", "bool"} and pair.golden.dtype in {"int", "float", "bool"}
