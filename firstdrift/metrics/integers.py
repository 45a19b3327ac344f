"""How two integer tensors differ: routed experts, token ids, indices, masks.

As values (how many places differ, and the first), as sets (the same values in another order) and so
as order: mismatched but `same_set` means that only the order differs.
"""

import numpy as np

from firstdrift.metrics.dtypes import Array, require_one_shape
from firstdrift.metrics.measurement import IntegerErrors

_BLOCK = 1 << 20


def measure_integers(golden: Array, target: Array) -> IntegerErrors:
    """Compare two integer or boolean tensors of one shape; integer types may differ.

    Raises:
        ValueError: the shapes differ.
    """
    require_one_shape(golden, target)
    left, right = _comparable(golden.reshape(-1)), _comparable(target.reshape(-1))
    differs = left != right
    mismatched = int(np.count_nonzero(differs))
    if not mismatched:
        return IntegerErrors(
            0, 0.0, same_set=True, first_mismatch=None, golden_at_first=None, target_at_first=None
        )
    first = int(differs.argmax())
    return IntegerErrors(
        mismatched=mismatched,
        share_mismatched=mismatched / left.size,
        same_set=_same_sets(left, right, golden.shape[-1] if golden.shape else 1),
        first_mismatch=first,
        golden_at_first=int(left[first]),
        target_at_first=int(right[first]),
    )


def _comparable(array: Array) -> Array:
    # numpy neither sorts nor mixes the packed integers of ml_dtypes
    return array.astype(np.int8) if array.dtype.type.__module__ == "ml_dtypes" else array


def _same_sets(golden: Array, target: Array, columns: int) -> bool:
    """Tell whether every row holds the same values, as often, on both sides."""
    left, right = golden.reshape(-1, columns), target.reshape(-1, columns)
    rows = max(_BLOCK // columns, 1)
    return all(
        bool((np.sort(left[start : start + rows]) == np.sort(right[start : start + rows])).all())
        for start in range(0, len(left), rows)
    )
