"""The format that matrix products were computed in, when it is coarser than they are stored in.

A float32 model may run its products in TF32 (GPU), HF32 (NPU) or bfloat16: healthy, but 4 to 5
decimal digits coarser than float32 promises. Nothing in a dump says so. The first products of the
network show it: their inputs agree to float32, and the outputs of all of them are off by the same,
coarse, amount.

| format   | unit roundoff | relative L2 of a product with equal inputs |
| -------- | ------------- | ------------------------------------------ |
| TF32     | 2^-11         | about 3e-4                                 |
| bfloat16 | 2^-9          | about 2.4e-3                               |
"""

from collections.abc import Sequence

from firstdrift.dumps.dump import Direction
from firstdrift.tensors import UNIT_ROUNDOFF
from firstdrift.verdict.row_errors import RowErrors
from firstdrift.verdict.tree import TreeRow

_PRODUCTS = ("linear", "matmul", "conv", "bmm", "addmm", "baddbmm", "einsum", "projection")
_EXACT = 16 * UNIT_ROUNDOFF["float32"]
_COARSE = 2.0**-14
_FORMATS = (2.0**-11, UNIT_ROUNDOFF["bfloat16"])
_WITNESSES = 3
_LOOKED_AT = 12


def compute_roundoff(rows: Sequence[TreeRow], errors: Sequence[RowErrors]) -> float:
    """Return the unit roundoff of the products' format; 0 where it is that of their dtype.

    Args:
        rows: in execution order.
        errors: by row index.
    """
    seen: list[float] = []
    for row in rows:
        error = errors[row.index]
        if row.direction is Direction.BACKWARD or not _is_product(row) or error.output is None:
            continue
        exact = error.input is not None and error.input <= _EXACT and (error.parameter or 0.0) <= _EXACT
        if exact and error.roundoff == UNIT_ROUNDOFF["float32"] and row.last == row.index:
            seen.append(error.output)
        if len(seen) == _LOOKED_AT:
            break
    if len(seen) < _WITNESSES or min(seen) < _COARSE:
        return 0.0
    in_the_middle = sorted(seen)[len(seen) // 2]
    return next((u for u in _FORMATS if in_the_middle < 2 * u), 0.0)


def _is_product(row: TreeRow) -> bool:
    name = row.type_name.lower()
    return any(product in name for product in _PRODUCTS)
