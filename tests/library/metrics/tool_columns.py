"""The columns of the existing tools, as they compute them: what ours are held against.

Firstdrift judges by none of these: what they leave out, or take for equal, is in the tables.

msit 8.2 (`msit_columns`; everything flattened to float32, g golden, m target):

| column                      | over                                | otherwise                           |
| --------------------------- | ----------------------------------- | ----------------------------------- |
| cosine_similarity           | all, in float64, to 10 digits       | both all zero: 1; one all zero: 0   |
| max, mean relative error    | |m / g - 1| where |g| > 1.19e-7     | other elements count as 0           |
| max, mean absolute error    | |m - g| where |g| > 1.19e-7         | other elements count as 0           |
| kl_divergence               | softmax over the whole flat tensor  | at least 0                          |
| relative_euclidean_distance | |m - g| / |g|                       | |g| <= 1.19e-7: 0                   |

msprobe 26.2 (`msprobe_columns`; dimensions of size 1 dropped, in float64, g golden, t target):

| tensors                                 | columns                                                     |
| --------------------------------------- | ----------------------------------------------------------- |
| target empty                            | "unsupported"                                               |
| shapes differ                           | "shape unmatched"                                           |
| one element                             | the maxima; the others "unsupported"                        |
| NaN or infinities at different places   | "N/A"                                                       |
| at the same places                      | set to 0 on both sides, +inf against -inf as well           |
| one side all zero                       | Cosine "Nan"                                                |
| golden element 0                        | eps is added to both before the relative error is formed    |
"""

import math
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from firstdrift.metrics.dtypes import Array, Floats, NumberKind, number_kind

_MSIT_EPSILON = np.float32(2.0**-23)
_MSIT_SMALLEST_NORM = 1e-8
_FLOAT64_EPSILON = 2.0**-52

Cell: TypeAlias = float | str


class MsitColumns(Struct, frozen=True):
    """One row of `msit llm compare`; the numbers are None where `cmp_fail_reason` says why."""

    cosine_similarity: float | None = None
    max_relative_error: float | None = None
    mean_relative_error: float | None = None
    max_absolute_error: float | None = None
    mean_absolute_error: float | None = None
    kl_divergence: float | None = None
    relative_euclidean_distance: float | None = None
    cmp_fail_reason: str = ""


class MsprobeColumns(Struct, frozen=True):
    """One row of `msprobe compare` with tensors: numbers, or the words it writes in their place."""

    cosine: Cell
    euclidean_distance: Cell
    max_absolute_error: Cell
    max_relative_error: Cell
    one_thousandth_ratio: Cell
    five_thousandths_ratio: Cell


def msit_columns(golden: Array, target: Array) -> MsitColumns:
    """Return what msit reports of two numeric arrays; only the numbers of elements have to agree.

    KL is summed in float64 where msit sums in float32: it differs by up to 1e-5.
    """
    if not golden.size and not target.size:
        return MsitColumns(cmp_fail_reason="empty tensor")
    with np.errstate(all="ignore"):
        g, m = _real(golden).astype(np.float32).reshape(-1), _real(target).astype(np.float32).reshape(-1)
        reasons = _msit_fail_reasons(g, m)
        if reasons:
            return MsitColumns(cmp_fail_reason=" ".join(reasons))
        difference = np.abs(m - g)
        seen = np.abs(g) > _MSIT_EPSILON
        relative = np.where(seen, np.abs(m / g - np.float32(1)), np.float32(0))
        absolute = np.where(seen, difference, np.float32(0))
        return MsitColumns(
            cosine_similarity=_msit_cosine(g, m),
            max_relative_error=float(relative.max()),
            mean_relative_error=float(relative.mean(dtype=np.float64)),
            max_absolute_error=float(absolute.max()),
            mean_absolute_error=float(absolute.mean(dtype=np.float64)),
            kl_divergence=_msit_divergence(g.astype(np.float64), m.astype(np.float64)),
            relative_euclidean_distance=_msit_distance(g, difference),
        )


def _real(array: Array) -> Array:
    return array.real if number_kind(array.dtype) is NumberKind.COMPLEX else array


def _msit_fail_reasons(golden: Array, target: Array) -> list[str]:
    failed = {
        "data shape doesn't match.": golden.size != target.size,
        "golden_data includes NAN or inf.": not np.isfinite(golden).all(),
        "my_data includes NAN or inf.": not np.isfinite(target).all(),
    }
    return [reason for reason, holds in failed.items() if holds]


def _msit_cosine(golden: Array, target: Array) -> float:
    g, m = golden.astype(np.float64), target.astype(np.float64)
    if not g.any() or not m.any():
        return 1.0 if not g.any() and not m.any() else 0.0
    norms = (max(float(np.linalg.norm(side)), _MSIT_SMALLEST_NORM) for side in (g, m))
    return round(float(g @ m) / math.prod(norms), 10)


def _msit_divergence(golden: Floats, target: Floats) -> float:
    g, m = golden - golden.max(), target - target.max()
    g -= np.log(np.exp(g).sum())
    m -= np.log(np.exp(m).sum())
    return max(float(np.exp(g) @ (g - m)), 0.0)


def _msit_distance(golden: Array, difference: Array) -> float:
    squares = (golden * golden).sum(dtype=np.float64)
    if math.sqrt(squares) <= _MSIT_EPSILON:
        return 0.0
    return math.sqrt((difference * difference).sum(dtype=np.float64) / squares)


def msprobe_columns(golden: Array, target: Array) -> MsprobeColumns:
    """Return what msprobe reports of two numeric arrays that were dumped with the task tensor."""
    if not target.size:
        return _everywhere("unsupported")
    if np.squeeze(golden).shape != np.squeeze(target).shape:
        return _everywhere("shape unmatched")
    precision = _msprobe_precision(golden, target)
    b, n = (_real(array).astype(np.float64).reshape(-1) for array in (golden, target))
    with np.errstate(all="ignore"):
        if target.size == 1:
            relative = _msprobe_relative(b, n, precision)
            return replace(
                _everywhere("unsupported"),
                max_absolute_error=_digits(abs(n - b)[0]),
                max_relative_error=_digits(relative[0]),
            )
        if not _same_places(b, n):
            return _everywhere("N/A")
        finite = np.isfinite(b)
        b, n = np.where(finite, b, 0.0), np.where(finite, n, 0.0)
        relative = _msprobe_relative(b, n, precision)
        return MsprobeColumns(
            cosine=_msprobe_cosine(b, n),
            euclidean_distance=float(np.linalg.norm(n - b)),
            max_absolute_error=_digits(np.abs(n - b).max()),
            max_relative_error=_digits(relative.max()),
            one_thousandth_ratio=float(np.count_nonzero(relative < 0.001)) / n.size,
            five_thousandths_ratio=float(np.count_nonzero(relative < 0.005)) / n.size,
        )


def _everywhere(word: str) -> MsprobeColumns:
    return MsprobeColumns(word, word, word, word, word, word)


def _digits(value: float) -> Cell:
    """Round as msprobe prints: to 12 places."""
    return "Nan" if math.isnan(value) else float(f"{value:.12f}")


def _same_places(golden: Floats, target: Floats) -> bool:
    return bool((np.isnan(golden) == np.isnan(target)).all() and (np.isinf(golden) == np.isinf(target)).all())


def _msprobe_precision(golden: Array, target: Array) -> type[np.floating]:
    """Return the dtype of the relative error: float32 for floats of up to 32 bits, else float64."""
    narrow = all(
        number_kind(array.dtype) is NumberKind.FLOATING and array.itemsize <= 4 for array in (golden, target)
    )
    return np.float32 if narrow else np.float64


def _msprobe_relative(golden: Floats, target: Floats, precision: type[np.floating]) -> Array:
    b, n = golden.astype(precision), target.astype(precision)
    epsilon = np.where(b == 0, np.finfo(precision).eps, precision(0))
    b, n = b + epsilon, n + epsilon
    relative: Array = np.abs((n - b) / b)
    return relative


def _msprobe_cosine(golden: Floats, target: Floats) -> Cell:
    golden_norm, target_norm = float(np.linalg.norm(golden)), float(np.linalg.norm(target))
    if golden_norm <= _FLOAT64_EPSILON or target_norm <= _FLOAT64_EPSILON:
        return 1.0 if max(golden_norm, target_norm) <= _FLOAT64_EPSILON else "Nan"
    cosine = float(f"{golden @ target / (golden_norm * target_norm):.12f}")
    return round(cosine, 6) if cosine > 0.9999 else cosine
