"""How far apart two tensors are, element by element: formulas and edge cases.

With x golden, y target, d = y - x, all in float64 (64-bit integers are subtracted before they are
rounded; complex numbers count by modulus), sums over the pairs of which both are finite:

| metric                | formula                                                      | range       |
| --------------------- | ------------------------------------------------------------ | ----------- |
| relative_l2           | |d| / |x|, norms                                             | [0, inf]    |
| cosine_distance       | (sum d^2 - (|x| - |y|)^2) / (2 |x| |y|);                     | [0, 2]      |
|                       | 1 - x y / (|x| |y|) where a norm is twice the other or more  |             |
| cosine_similarity     | 1 - cosine_distance                                          | [-1, 1]     |
| worst_row_relative_l2 | largest |d_r| / max(|x_r|, |x| / sqrt(rows)) of the rows r   | [0, inf]    |
| relative error        | |d / x| where x != 0                                         | [0, inf]    |
| share_within_1e3      | share of pairs with relative error < 0.001, or d = 0         | [0, 1]      |
| sqnr                  | 20 log10(|x| / |d|)                                          | [-inf, inf] |
| histogram             | counts of |d| / (largest finite |x|), in decades             |             |

| x          | y          | counts as                                                               |
| ---------- | ---------- | ----------------------------------------------------------------------- |
| NaN        | NaN        | equal; in no sum                                                        |
| +inf       | +inf       | equal; in no sum; likewise -inf and -inf                                |
| +inf       | -inf       | mismatched; in no sum; likewise any other pair with NaN or infinity     |
| 0          | 0          | equal; relative_l2 0, cosine 1 and sqnr inf if that is all there is     |
| 0          | not 0      | not within any share; relative_l2 inf, cosine None, sqnr -inf if all x  |
| not 0      | 0          | relative error 1; cosine None if all y                                  |
| -0.0       | 0.0        | equal                                                                   |
| empty      | empty      | 0 everywhere, shares 1, cosine 1, sqnr inf, places None                 |
| scalar     | scalar     | as one element; worst_row is 0                                          |
| float32    | bfloat16   | as their values; a dtype that differs is no error by itself             |
| int64      | int64      | d is exact, then rounded to float64                                     |
| complex    | complex    | sum_difference is that of the moduli; a modulus is NaN, +inf or finite  |

Largest finite |x| being 0, every d != 0 falls into the last bin. Equal pairs, the non-finite among
them, are in the first; mismatched ones in none. Squares below 5e-324 and sums above 1.8e308 are 0
and infinite as sums, but ratios of float64 tensors of such magnitudes are right.
"""

import importlib
import logging
import math
from typing import Literal, Protocol, TypeAlias, cast

import numpy as np

from firstdrift.metrics.conversion import as_float64
from firstdrift.metrics.dtypes import Array, NumberKind, number_kind, require_one_shape
from firstdrift.metrics.elementwise import numpy_pass
from firstdrift.metrics.elementwise.sums import DECADES, PairSums, SideSums, Sums
from firstdrift.metrics.measurement import PairErrors, SideSummary

Engine: TypeAlias = Literal["auto", "numpy", "numba"]

_log = logging.getLogger(__name__)

_WORTH_LOADING = 256 << 20
_WORTH_COMPILING = 4 << 30
_CHUNK = 1 << 15
_WIDE = 8
_ALIKE = 0.5  # where norms differ by more than this, cosine is formed from the product, which is exact enough
_SMALL, _LARGE = 2.0**-480, 2.0**480


class _Engine(Protocol):
    """What adds up: `numpy_pass`, or `numba_pass` once it is loaded."""

    def supports(self, array: Array, /) -> bool: ...

    def measure(self, golden: Array, target: Array, /) -> Sums: ...

    def summarise(self, array: Array, /) -> SideSums: ...


_WORTH_CALLING = 1 << 16
"""Elements from which the compiled engine is called; below, numpy is about as quick."""

_loaded: dict[str, _Engine] = {}


def prepare_engine(total_bytes: int) -> None:
    """Get ready to measure so many bytes: load the compiled engine where that is sooner done.

    Below 256 MiB numpy has finished before numba is imported, and below 4 GiB before the engine is
    compiled, which happens once per machine. Where numba is missing or fails, numpy does the work.
    """
    if total_bytes < _WORTH_LOADING or "numba" in _loaded:
        return
    try:
        _load_numba(compile_it=total_bytes >= _WORTH_COMPILING)
    except Exception as error:  # noqa: BLE001 - a compiler may be missing, or fail in its own ways
        _log.info("numba cannot be used, numpy measures in its place: %s", error)


def measure_elements(
    golden: Array, target: Array, engine: Engine = "auto", *, is_same: bool | None = None
) -> tuple[SideSummary, SideSummary, PairErrors]:
    """Measure two tensors of equal shape and any numeric dtypes; neither is written to.

    Whether they are known to be the same, element by element, spares looking: None to find out.

    The engine "auto" is the compiled one once `prepare_engine` has loaded it. Complex numbers and 64-bit
    integers are always left to numpy.

    Raises:
        ValueError: the shapes differ, or a dtype holds no numbers.
    """
    require_one_shape(golden, target)
    _require_numbers(golden)
    _require_numbers(target)
    if not golden.size:
        return _summary(SideSums(), 0), _summary(SideSums(), 0), _errors(_NO_SUMS, 0)
    adding = _engine(engine, golden, target)
    same = _same_bits(golden, target) if is_same is None else is_same
    sums, unit = _equal_sums(adding, golden) if same else adding.measure(golden, target), 1.0
    magnitude = max(sums.golden.magnitude, sums.target.magnitude)
    if not _SMALL < magnitude < _LARGE and (_is_wide(golden) or _is_wide(target)):
        unit = _unit(magnitude)
        golden, target = _divided(golden, unit), _divided(target, unit)
        sums = _equal_sums(adding, golden) if same else adding.measure(golden, target)
    return (
        _summary(sums.golden, golden.size, unit),
        _summary(sums.target, golden.size, unit),
        _errors(sums, golden.size, unit),
    )


def summarise(array: Array) -> SideSummary:
    """Return the statistics of one tensor: over its finite elements, and counts of the others.

    Raises:
        ValueError: the dtype holds no numbers.
    """
    _require_numbers(array)
    if not array.size:
        return _summary(SideSums(), 0)
    adding = _engine("auto", array)
    sums, unit = adding.summarise(array), 1.0
    if not _SMALL < sums.magnitude < _LARGE and _is_wide(array):
        unit = _unit(sums.magnitude)
        sums = adding.summarise(_divided(array, unit))
    return _summary(sums, array.size, unit)


def _load_numba(*, compile_it: bool) -> None:
    module = importlib.import_module("firstdrift.metrics.elementwise.numba_pass")
    if compile_it or module.is_cached():
        module.load()
        _loaded["numba"] = cast("_Engine", module)


def _engine(name: Engine, *arrays: Array) -> _Engine:
    if name == "numba" and "numba" not in _loaded:
        _load_numba(compile_it=True)
    compiled = _loaded.get("numba") if name != "numpy" else None
    # Small tensors come out the same to the last bit, whatever this process has measured before.
    if name == "auto" and arrays[0].size < _WORTH_CALLING:
        compiled = None
    if compiled is not None and all(map(compiled.supports, arrays)):
        return compiled
    return numpy_pass


def _require_numbers(array: Array) -> None:
    if number_kind(array.dtype) is None:
        raise ValueError(f"values of dtype {array.dtype} are not numbers")


def _same_bits(golden: Array, target: Array) -> bool:
    if golden.dtype != target.dtype:
        return False
    left, right = golden.reshape(-1), target.reshape(-1)
    return all(
        left[start : start + _CHUNK].tobytes() == right[start : start + _CHUNK].tobytes()
        for start in range(0, left.size, _CHUNK)
    )


def _equal_sums(adding: _Engine, golden: Array) -> Sums:
    """Add up a tensor against itself: only its own sums have to be formed."""
    side = adding.summarise(golden)
    finite = golden.size - side.nonfinite
    pair = PairSums(
        histogram=np.array([finite] + [0] * (len(DECADES) + 1)),
        equal=finite,
        equal_nonfinite=side.nonfinite,
        squared_golden=side.squares,
        squared_target=side.squares,
        product=side.squares,
        relative_count=finite - side.zeros,
        within_1e3=finite,
        within_5e3=finite,
    )
    if finite:
        at = numpy_pass.first_finite(golden) if side.nonfinite else 0
        value = np.empty(1)
        as_float64(golden.reshape(-1)[at : at + 1], value)
        pair.largest, pair.largest_at = 0.0, at
        pair.largest_golden = pair.largest_target = float(value[0])
    return Sums(side, side, pair, np.zeros(1), np.zeros(1))


def _is_wide(array: Array) -> bool:
    """Tell whether squares of the elements may leave the range of float64."""
    return array.itemsize >= _WIDE and number_kind(array.dtype) is not NumberKind.INTEGER


def _unit(magnitude: float) -> float:
    """Return the power of two in which to measure, so that squares stay in the range of float64."""
    if magnitude == 0.0:
        return 1.0
    exponent = math.frexp(magnitude)[1]
    return 2.0 ** max(exponent - 480 if exponent > 0 else exponent, -1000)


def _divided(array: Array, unit: float) -> Array:
    wide = np.complex128 if number_kind(array.dtype) is NumberKind.COMPLEX else np.float64
    return array.astype(wide) / unit


def _summary(sums: SideSums, size: int, unit: float = 1.0) -> SideSummary:
    finite = size - sums.nonfinite
    maximum = minimum = mean = None
    if finite:
        maximum, minimum, mean = sums.maximum * unit, sums.minimum * unit, sums.total / finite * unit
    return SideSummary(
        size=size,
        maximum=maximum,
        minimum=minimum,
        mean=mean,
        norm=math.sqrt(sums.squares) * unit,
        nan=sums.nan,
        positive_infinity=sums.positive_infinity,
        negative_infinity=sums.negative_infinity,
        zeros=sums.zeros,
    )


def _errors(sums: Sums, size: int, unit: float = 1.0) -> PairErrors:
    pair = sums.pair
    finite = size - pair.equal_nonfinite - pair.mismatched_nonfinite
    distance, similarity = _cosine(pair)
    relative_l2 = _ratio(pair.squared_difference, pair.squared_golden)
    worst_row, worst_row_relative_l2 = _worst_row(sums)
    largest, largest_at, largest_golden, largest_target, mean = 0.0, None, None, None, 0.0
    if finite:
        largest_golden, largest_target = pair.largest_golden * unit, pair.largest_target * unit
        largest, largest_at, mean = pair.largest * unit, pair.largest_at, pair.absolute / finite * unit
    return PairErrors(
        size=size,
        equal=pair.equal + pair.equal_nonfinite,
        mismatched_nonfinite=pair.mismatched_nonfinite,
        sum_squared_difference=pair.squared_difference * unit * unit,
        sum_difference=pair.difference * unit,
        sum_absolute_difference=pair.absolute * unit,
        sum_squared_golden=pair.squared_golden * unit * unit,
        sum_squared_target=pair.squared_target * unit * unit,
        cosine_similarity=similarity,
        cosine_distance=distance,
        relative_l2=relative_l2,
        worst_row_relative_l2=worst_row_relative_l2,
        worst_row=worst_row if size else None,
        max_absolute_error=largest,
        max_absolute_at=largest_at,
        max_absolute_golden=largest_golden,
        max_absolute_target=largest_target,
        mean_absolute_error=mean,
        max_relative_error=pair.relative_maximum if pair.relative_count else None,
        mean_relative_error=pair.relative_total / pair.relative_count if pair.relative_count else None,
        share_within_1e3=_share(pair.within_1e3 + pair.equal_nonfinite, size),
        share_within_5e3=_share(pair.within_5e3 + pair.equal_nonfinite, size),
        sqnr=_decibels(relative_l2),
        histogram=(int(pair.histogram[0]) + pair.equal_nonfinite, *pair.histogram[1:].tolist()),
    )


def _share(count: int, size: int) -> float:
    return count / size if size else 1.0


def _ratio(squared_difference: float, squared_golden: float) -> float:
    if squared_difference == 0.0:
        return 0.0
    return math.sqrt(squared_difference) / math.sqrt(squared_golden) if squared_golden else math.inf


def _decibels(relative_l2: float) -> float:
    if relative_l2 == 0.0:
        return math.inf
    return 0.0 - 20.0 * math.log10(relative_l2) if math.isfinite(relative_l2) else -math.inf


def _cosine(pair: PairSums) -> tuple[float | None, float | None]:
    """Return distance and similarity; None if exactly one side is all zero."""
    golden, target = math.sqrt(pair.squared_golden), math.sqrt(pair.squared_target)
    if not golden or not target:
        return (0.0, 1.0) if golden == target else (None, None)
    if _ALIKE * golden < target < golden / _ALIKE:
        apart = (pair.squared_difference - (golden - target) ** 2) / (2.0 * golden * target)
    else:
        apart = 1.0 - pair.product / golden / target
    distance = min(max(apart, 0.0), 2.0)
    return distance, 1.0 - distance


def _worst_row(sums: Sums) -> tuple[int, float]:
    differences, squares = sums.row_squared_difference, sums.row_squared_golden
    if not sums.pair.squared_difference:
        return 0, 0.0
    if not sums.pair.squared_golden:
        return int(differences.argmax()), math.inf
    errors = differences / np.maximum(squares, sums.pair.squared_golden / len(squares))
    row = int(errors.argmax())
    return row, math.sqrt(errors[row])


_NO_SUMS = Sums(
    SideSums(), SideSums(), PairSums(np.zeros(len(DECADES) + 2, np.int64)), np.zeros(0), np.zeros(0)
)
