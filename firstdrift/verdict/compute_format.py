"""The format that a slice was computed in, when it is coarser than its dtypes say.

A float32 model may run its products in TF32 (GPU), HF32 (NPU) or bfloat16: healthy, but 4 to 5
decimal digits coarser than float32 promises. Nothing in a dump says so. The first products of the
network show it: the inputs of at least one agree to float32, and all outputs are off by a like, coarse,
amount. Of statistics, which are lower bounds, even 32 roundings are coarse. Devices set the format of
convolutions apart from that of other products, so each kind is asked by itself, and the coarser one counts.

| format   | one rounding  | relative L2 of a product with equal inputs |
| -------- | ------------- | ------------------------------------------ |
| TF32     | 2^-11         | about 3e-4                                 |
| bfloat16 | 2^-9          | about 2.4e-3                               |

A bfloat16 model may also have been stored as float32, which its values show (`metrics.stored_format`).
"""

from collections.abc import Sequence

from firstdrift.matching.plan import SlicePlan
from firstdrift.metrics.measurement import Measurement
from firstdrift.model.node import Direction
from firstdrift.model.tensor import ROUNDING, Role
from firstdrift.operators.kinds import OpKind
from firstdrift.operators.properties import is_product, may_be_product
from firstdrift.verdict.fixed_thresholds import (
    ALIKE_PRODUCTS,
    COARSE_OUTPUT,
    EXACT_INPUTS,
    LOOKED_AT,
    NEAR_FORMAT,
    WITNESSES,
)
from firstdrift.verdict.row_errors import RowErrors
from firstdrift.verdict.tree import TreeRow, kind_of_row

_EXACT = EXACT_INPUTS.value * ROUNDING["float32"]
_COARSE = COARSE_OUTPUT.value * ROUNDING["float32"]
_FORMATS = (2.0**-11, ROUNDING["bfloat16"])


def compute_roundoff(rows: Sequence[TreeRow], errors: Sequence[RowErrors]) -> float:
    """Return the unit roundoff of the products' format; 0 where it is that of their dtype.

    Args:
        rows: in execution order.
        errors: by row index.
    """
    products = [row for row in rows if _is_float32_product(row, errors[row.index])]
    kinds = ([row for row in products if _convolves(row) is of_kind] for of_kind in (False, True))
    return max(_roundoff_of([errors[row.index] for row in kind[: int(LOOKED_AT.value)]]) for kind in kinds)


def _convolves(row: TreeRow) -> bool:
    return kind_of_row(row) is OpKind.CONVOLVE


def _roundoff_of(first: Sequence[RowErrors]) -> float:
    """Return the unit roundoff of the first products of one kind; 0 where it is that of their dtype."""
    exact = sorted(error.output or 0.0 for error in first if _has_exact_inputs(error))
    if not exact or len(first) < WITNESSES.value or any((error.output or 0.0) < _COARSE for error in first):
        return 0.0
    in_the_middle = exact[len(exact) // 2]
    found = next((u for u in _FORMATS if in_the_middle < NEAR_FORMAT.value * u), 0.0)
    return found if len(exact) >= WITNESSES.value or _are_alike(first, found) else 0.0


def _are_alike(products: Sequence[RowErrors], coarse: float) -> bool:
    """Tell whether the products after the exact ones are off by a like amount; after a fault it grows."""
    later = [error.output or 0.0 for error in products if not _has_exact_inputs(error)]
    return max(later[: int(WITNESSES.value)], default=0.0) <= ALIKE_PRODUCTS.value * coarse


def _is_float32_product(row: TreeRow, error: RowErrors) -> bool:
    """Tell whether a row is a single product in float32 of which input and output were compared."""
    if row.direction is Direction.BACKWARD or row.last > row.index:
        return False
    is_known = error.output is not None and error.input is not None
    return is_known and error.roundoff == ROUNDING["float32"] and _is_product(row)


def _has_exact_inputs(error: RowErrors) -> bool:
    return (error.input or 0.0) <= _EXACT and (error.parameter or 0.0) <= _EXACT


def stored_roundoff(plan: SlicePlan, measurements: Sequence[Measurement]) -> float:
    """Return the unit roundoff of the format that most differing outputs were stored from; 0 if none."""
    known = [
        measured.stored_roundoff
        for pair, measured in zip(plan.pairs, measurements, strict=True)
        if measured.stored_roundoff is not None and pair.role is Role.OUTPUT
    ]
    coarse = sorted(filter(None, known))
    return coarse[len(coarse) // 2] if 2 * len(coarse) > len(known) else 0.0


def _is_product(row: TreeRow) -> bool:
    if row.type_name.lower() in ("", "module", "node"):
        return may_be_product((row.path or "").rpartition(".")[2])
    return is_product(row.type_name)
