"""The format that a slice was computed in, when it is coarser than its dtypes say.

A float32 model may run its products in TF32 (GPU), HF32 (NPU) or bfloat16: healthy, but 4 to 5
decimal digits coarser than float32 promises. Nothing in a dump says so. The first products of the
network show it: the inputs of at least one agree to float32, and all outputs are off by a like, coarse,
amount. Of statistics, which are lower bounds, even 32 roundings are coarse. Devices set the format of
convolutions apart from that of other products, so each kind is asked by itself, and the coarser one counts.

What cancels out in a product enlarges its relative error, so the error is held against the norms of both
factors. One or two products that are all of their kind tell of TF32 if it alone may have made their errors:
of its size, and no factor larger than errors of as many columns make by chance.

| format   | one rounding  | relative L2 of a product with equal inputs |
| -------- | ------------- | ------------------------------------------ |
| TF32     | 2^-11         | about 3e-4                                 |
| bfloat16 | 2^-9          | about 2.4e-3                               |

A bfloat16 model may also have been stored as float32, which its values show (`metrics.stored_format`).
"""

import math
from collections.abc import Iterable, Sequence
from itertools import islice
from statistics import median_high
from typing import NamedTuple

from firstdrift.groups import known
from firstdrift.matching.plan import SlicePlan
from firstdrift.metrics.gain import gain
from firstdrift.metrics.measurement import DATA, Measurement, SideSummary
from firstdrift.metrics.zero_bits import are_of_float16, fit_float16
from firstdrift.model.node import BACKWARD
from firstdrift.model.tensor import INPUT, OUTPUT, PARAMETER, ROUNDING, is_floating
from firstdrift.operators.kinds import OpKind
from firstdrift.operators.properties import is_product, may_be_product
from firstdrift.verdict.error_terms import Value
from firstdrift.verdict.fixed_thresholds import (
    ALIKE_PRODUCTS,
    COARSE_OUTPUT,
    EXACT_INPUTS,
    LEAST_OF_FORMAT,
    LOOKED_AT,
    NEAR_FORMAT,
    WITNESSES,
)
from firstdrift.verdict.product_errors import cancelled
from firstdrift.verdict.row_errors import RowErrors
from firstdrift.verdict.tree import TreeRow, kind_of_row

_EXACT = EXACT_INPUTS.value * ROUNDING["float32"]
_COARSE = COARSE_OUTPUT.value * ROUNDING["float32"]
_PRODUCTS = (OpKind.LINEAR, OpKind.CONVOLVE, OpKind.OTHER)
_FORMATS = (2.0**-11, ROUNDING["bfloat16"])


def compute_roundoff(
    rows: Sequence[TreeRow],
    errors: Sequence[RowErrors],
    plan: SlicePlan,
    measurements: Sequence[Measurement],
) -> float:
    """Return the unit roundoff of the products' format; 0 where it is that of their dtype.

    Args:
        rows: in execution order.
        errors: by row index.
        plan: the pairs of tensors.
        measurements: of each pair.
    """
    products = [row for row in rows if _is_float32_product(row, errors[row.index])]
    kinds = (
        (
            product
            for row in products
            if _convolves(row) is of_kind
            and (product := _product(row, errors[row.index], plan, measurements)) is not None
        )
        for of_kind in (False, True)
    )
    return max(map(_roundoff_of, kinds))


class _Product(NamedTuple):
    """A product in float32 that tells how coarse it was computed.

    Attributes:
        output: relative L2 error of what it gives.
        is_exact: what it was given agrees to float32.
        level: the error as it would be if nothing cancelled out.
        level_of_factor: the level that makes such a factor by chance, each column being off by another error.
        is_of_values: the errors are known of each element; from statistics they are lower bounds.
    """

    output: float
    is_exact: bool
    level: float
    level_of_factor: float
    is_of_values: bool


def _product(
    row: TreeRow, error: RowErrors, plan: SlicePlan, measurements: Sequence[Measurement]
) -> _Product | None:
    """Return what a product tells; None where it tells nothing.

    That is so where other inputs gave zeros all the same, and where the output was stored in 16 bits.
    """
    output, is_exact, at = error.output or 0.0, _has_exact_inputs(error), error.output_pair
    if at is None or (not output and not is_exact) or _was_stored_in_16_bits(measurements[at]):
        return None
    factor = abs(gain(measurements[at]) or 0.0) * math.sqrt(_columns(row, plan.pairs[at].golden.shape or ()))
    times = _cancelled(error, plan, measurements)
    return _Product(output, is_exact, output / times, factor / times, measurements[at].kind is DATA)


def _was_stored_in_16_bits(made: Measurement) -> bool:
    """Tell whether the values of the target are of 16 bits: a product that is coarse has all its digits."""
    if made.stored_roundoff is not None:
        return bool(made.stored_roundoff)
    return are_of_float16(_ends(made.target))


def _columns(row: TreeRow, shape: tuple[int, ...]) -> int:
    """Return how many columns of weights there are: what rounds them is alike in all rows."""
    return (*shape, 1, 1)[1] if _convolves(row) else (1, *shape)[-1]


def _cancelled(error: RowErrors, plan: SlicePlan, measurements: Sequence[Measurement]) -> float:
    sides = {at: _value(plan, measurements, at) for at in error.pairs}
    made = sides[error.output_pair] if error.output_pair is not None else None
    given = known(side for at, side in sides.items() if plan.pairs[at].role in (INPUT, PARAMETER))
    return 1.0 if made is None else cancelled(given, made)


def _value(plan: SlicePlan, measurements: Sequence[Measurement], at: int) -> Value | None:
    pair, side = plan.pairs[at].golden, measurements[at].golden
    if side is None or not side.size or not is_floating(pair.dtype):
        return None
    norm = measurements[at].golden_norm
    return Value(pair.key, side.size, norm, 0.0, 0.0, 0.0, 0.0, 0.0, shape=pair.shape or ())


def _convolves(row: TreeRow) -> bool:
    return kind_of_row(row) is OpKind.CONVOLVE


def _roundoff_of(products: Iterable[_Product]) -> float:
    """Return the unit roundoff of the products of one kind; 0 where it is that of their dtype."""
    first = list(islice(products, int(LOOKED_AT.value)))
    exact = [one for one in first if one.is_exact]
    if not exact or any(one.output < _COARSE for one in first):
        return 0.0
    if len(exact) == len(first) < WITNESSES.value:
        return _FORMATS[0] if all(map(_is_rounded, exact)) else 0.0
    level = median_high(one.level for one in exact)
    found = next((u for u in _FORMATS if level < NEAR_FORMAT.value * u), 0.0)
    return found if len(exact) >= WITNESSES.value or _are_alike(first, found) else 0.0


def _is_rounded(one: _Product) -> bool:
    """Tell whether a product that has no others beside it is off as the finest of the formats makes it."""
    least = LEAST_OF_FORMAT.value if one.is_of_values else 0.0
    return least < max(one.level, one.level_of_factor) / _FORMATS[0] < NEAR_FORMAT.value


def _are_alike(products: Sequence[_Product], coarse: float) -> bool:
    """Tell whether the products after the exact ones are off by a like amount; after a fault it grows."""
    later = [one.output for one in products if not one.is_exact]
    return max(later[: int(WITNESSES.value)], default=0.0) <= ALIKE_PRODUCTS.value * coarse


def _is_float32_product(row: TreeRow, error: RowErrors) -> bool:
    """Tell whether a row is a single product in float32 of which input and output were compared."""
    if row.direction is BACKWARD or row.last > row.index:
        return False
    is_known = error.output is not None and error.input is not None
    return is_known and error.roundoff == ROUNDING["float32"] and _is_product(row)


def _has_exact_inputs(error: RowErrors) -> bool:
    return (error.input or 0.0) <= _EXACT and (error.parameter or 0.0) <= _EXACT


def stored_roundoff(plan: SlicePlan, measurements: Sequence[Measurement]) -> float:
    """Return the unit roundoff of the format that most outputs were stored from; 0 if none."""
    outputs = (
        measured
        for pair, measured in zip(plan.pairs, measurements, strict=True)
        if measured.kind is DATA and pair.role is OUTPUT
    )
    levels = known(map(_stored_from, outputs))
    coarse = sorted(filter(None, levels))
    return coarse[len(coarse) // 2] if 2 * len(coarse) > len(levels) else 0.0


def _stored_from(measured: Measurement) -> float | None:
    """Return the unit roundoff of the format of values; None of equal ones that have few digits."""
    if measured.stored_roundoff is not None:
        return measured.stored_roundoff
    return None if fit_float16(_ends(measured.golden)) else 0.0


def _ends(side: SideSummary | None) -> list[float]:
    return known((side.maximum, side.minimum)) if side is not None else []


def _is_product(row: TreeRow) -> bool:
    """Tell whether a row multiplies; a class may be called after a network of convolutions, and be a norm."""
    if row.type_name.lower() in ("", "module", "node"):
        return may_be_product((row.path or "").rpartition(".")[2])
    return is_product(row.type_name) and kind_of_row(row) in _PRODUCTS
