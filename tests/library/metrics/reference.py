"""The metrics of a pair, computed one element at a time in decimals of 300 digits."""

import math
import struct
from collections.abc import Iterable
from decimal import Decimal, localcontext
from typing import Any, TypeAlias

import numpy as np

Number: TypeAlias = int | float | np.generic
BOUNDS = [10.0**exponent for exponent in range(-12, 1)]


def reference_errors(golden: np.ndarray, target: np.ndarray) -> dict[str, Any]:
    """Return the fields of PairErrors for two real arrays of one shape, and the errors of all rows."""
    with localcontext() as context:
        context.prec = 300
        return _errors(golden, target)


def _errors(golden: np.ndarray, target: np.ndarray) -> dict[str, Any]:
    columns = golden.shape[-1] if golden.shape else 1
    x = [float(value) for value in golden.reshape(-1)]
    y = [float(value) for value in target.reshape(-1)]
    finite = [i for i in range(len(x)) if math.isfinite(x[i]) and math.isfinite(y[i])]
    others = [i for i in range(len(x)) if i not in set(finite)]
    same = [i for i in others if x[i] == y[i] or (math.isnan(x[i]) and math.isnan(y[i]))]
    d = {i: _difference(golden.flat[i], target.flat[i]) for i in finite}
    dd, xx, yy = (_squares(values) for values in (d.values(), (x[i] for i in finite), (y[i] for i in finite)))
    relative = {i: abs(d[i]) / abs(x[i]) if abs(x[i]) else (math.inf if d[i] else 0.0) for i in finite}
    proper = [relative[i] for i in finite if x[i]]
    largest = max((abs(value) for value in d.values()), default=0.0)
    at = next((i for i in finite if abs(d[i]) == largest), None)
    product = sum((Decimal(x[i]) * Decimal(y[i]) for i in finite), Decimal(0))
    distance = _cosine_distance(product, xx, yy)
    return {
        "size": len(x),
        "equal": sum(value == 0.0 for value in d.values()) + len(same),
        "mismatched_nonfinite": len(others) - len(same),
        "sum_squared_difference": float(dd),
        "sum_difference": math.fsum(d.values()),
        "sum_absolute_difference": math.fsum(map(abs, d.values())),
        "sum_squared_golden": float(xx),
        "sum_squared_target": float(yy),
        "cosine_distance": distance,
        "cosine_similarity": None if distance is None else 1.0 - distance,
        "relative_l2": _ratio(dd, xx),
        "rows_relative_l2": _rows(d, x, xx, columns),
        "max_absolute_error": largest,
        "max_absolute_at": at,
        "max_absolute_golden": None if at is None else x[at],
        "max_absolute_target": None if at is None else y[at],
        "mean_absolute_error": math.fsum(map(abs, d.values())) / len(finite) if finite else 0.0,
        "max_relative_error": max(proper, default=None),
        "mean_relative_error": math.fsum(proper) / len(proper) if proper else None,
        "share_within_1e3": _share(sum(e < 0.001 for e in relative.values()) + len(same), len(x)),
        "share_within_5e3": _share(sum(e < 0.005 for e in relative.values()) + len(same), len(x)),
        "sqnr": _decibels(_ratio(dd, xx)),
        "histogram": _histogram(x, d, len(same)),
    }


def _difference(golden: Number, target: Number) -> float:
    if isinstance(golden, np.integer | np.bool_) and isinstance(target, np.integer | np.bool_):
        return float(int(target) - int(golden))
    return float(target) - float(golden)


def _squares(values: Iterable[float]) -> Decimal:
    return sum((Decimal(value) ** 2 for value in values), Decimal(0))


def _ratio(dd: Decimal, xx: Decimal) -> float:
    if not dd:
        return 0.0
    return float((dd / xx).sqrt()) if xx else math.inf


def _cosine_distance(product: Decimal, xx: Decimal, yy: Decimal) -> float | None:
    if not xx or not yy:
        return 0.0 if xx == yy else None
    return float(1 - product / (xx.sqrt() * yy.sqrt()))


def _rows(d: dict[int, float], x: list[float], xx: Decimal, columns: int) -> list[float]:
    errors = []
    for start in range(0, len(x), columns):
        places = [i for i in range(start, start + columns) if i in d]
        squares = _squares(x[i] for i in places)
        errors.append(_ratio(_squares(d[i] for i in places), max(squares, xx * columns / len(x))))
    return errors


def _share(count: int, size: int) -> float:
    return count / size if size else 1.0


def _decibels(ratio: float) -> float:
    if ratio in {0.0, math.inf}:
        return math.inf if ratio == 0.0 else -math.inf
    return -20 * math.log10(ratio)


def _histogram(x: list[float], d: dict[int, float], same: int) -> tuple[int, ...]:
    magnitude = max((abs(value) for value in x if math.isfinite(value)), default=0.0)
    counts = [same] + [0] * (len(BOUNDS) + 1)
    bounds = [_upper_half(bound * magnitude) for bound in BOUNDS]
    for value in d.values():
        place = 1 + sum(abs(value) >= bound for bound in bounds) if value else 0
        counts[place] += 1
    return tuple(counts)


def _upper_half(value: float) -> float:
    """Return a number without the lower half of its bits."""
    return float(struct.unpack("<d", bytes(4) + struct.pack("<d", value)[4:])[0])
