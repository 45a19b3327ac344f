"""The format that a slice was computed in, when it is coarser than its dtypes say.

A float32 model may run its products in TF32 (GPU), HF32 (NPU) or bfloat16: healthy, but 4 to 5
decimal digits coarser than float32 promises. Nothing in a dump says so. The first products of the
network show it: the inputs of at least one agree to float32, and all outputs are off by a like, coarse,
amount. Of statistics, which are lower bounds, even 32 unit roundoffs are coarse.

| format   | unit roundoff | relative L2 of a product with equal inputs |
| -------- | ------------- | ------------------------------------------ |
| TF32     | 2^-11         | about 3e-4                                 |
| bfloat16 | 2^-9          | about 2.4e-3                               |

A bfloat16 model may also have been stored as float32, which its values show (`metrics.stored_format`).
"""

from collections.abc import Sequence

from firstdrift.matching.plan import SlicePlan
from firstdrift.metrics.measurement import Measurement
from firstdrift.model.node import Direction
from firstdrift.model.tensor import UNIT_ROUNDOFF, Role
from firstdrift.operators.properties import is_product, may_be_product
from firstdrift.verdict.constants import (
    ALIKE_PRODUCTS,
    COARSE_OUTPUT,
    EXACT_INPUTS,
    LOOKED_AT,
    WITNESSES,
)
from firstdrift.verdict.row_errors import RowErrors
from firstdrift.verdict.tree import TreeRow

_EXACT = EXACT_INPUTS.value * UNIT_ROUNDOFF["float32"]
_COARSE = COARSE_OUTPUT.value * UNIT_ROUNDOFF["float32"]
_FORMATS = (2.0**-11, UNIT_ROUNDOFF["bfloat16"])


def compute_roundoff(rows: Sequence[TreeRow], errors: Sequence[RowErrors]) -> float:
    """Return the unit roundoff of the products' format; 0 where it is that of their dtype.

    Args:
        rows: in execution order.
        errors: by row index.
    """
    exact: list[float] = []
    later: list[float] = []
    for row in rows:
        error = errors[row.index]
        if row.direction is Direction.BACKWARD or row.last > row.index or error.output is None:
            continue
        if error.input is None or error.roundoff != UNIT_ROUNDOFF["float32"] or not _is_product(row):
            continue
        is_exact = error.input <= _EXACT and (error.parameter or 0.0) <= _EXACT
        (exact if is_exact else later).append(error.output)
        if len(exact) + len(later) == LOOKED_AT.value:
            break
    seen = exact + later
    if not exact or len(seen) < WITNESSES.value or min(seen) < _COARSE:
        return 0.0
    in_the_middle = sorted(exact)[len(exact) // 2]
    found = next((u for u in _FORMATS if in_the_middle < 2 * u), 0.0)
    few = len(exact) < WITNESSES.value
    return 0.0 if few and max(later[: int(WITNESSES.value)]) > ALIKE_PRODUCTS.value * found else found


def stored_roundoff(plan: SlicePlan, measurements: Sequence[Measurement]) -> float:
    """Return the unit roundoff of the format that most differing outputs were stored from; 0 if none."""
    known = [
        measured.stored_roundoff
        for pair, measured in zip(plan.pairs, measurements, strict=True)
        if measured.stored_roundoff is not None and pair.target.role is Role.OUTPUT
    ]
    coarse = sorted(roundoff for roundoff in known if roundoff)
    return coarse[len(coarse) // 2] if 2 * len(coarse) > len(known) else 0.0


def _is_product(row: TreeRow) -> bool:
    if row.type_name.lower() in ("", "module", "node"):
        return may_be_product((row.path or "").rpartition(".")[2])
    return is_product(row.type_name)
