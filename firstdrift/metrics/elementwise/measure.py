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
and infinite as sums, but ratios of float64 tensors of such magnitudes are right. Bounds of bins are powers of
ten, or lower by less than a millionth.
"""

import importlib
import logging
import math
from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from firstdrift.metrics.bits import NOWHERE
from firstdrift.metrics.dtypes import Array, Floats, NumberKind, number_kind, require_one_shape
from firstdrift.metrics.elementwise import numpy_pass
from firstdrift.metrics.elementwise.sums import DECADES, PairSums, SideSums, Sums
from firstdrift.metrics.measurement import PairErrors, SideSummary

Engine: TypeAlias = Literal["auto", "numpy", "numba"]

_log = logging.getLogger(__name__)

_WORTH_COMPILING = 1 << 30
_ALIKE = 0.5  # where norms differ by more than this, cosine is formed from the product, which is exact enough
_SMALL, _LARGE = 2.0**-480, 2.0**480
_WIDE = 8


class _Engine(Protocol):
    """What adds up: `numpy_pass`, or `compiled` once it is loaded."""

    def supports(self, array: Array, /) -> bool: ...

    def measure(self, golden: Array, target: Array, /) -> Sums: ...

    def summarise(self, array: Array, /) -> SideSums: ...


class Elements(Struct, frozen=True):
    """What one pass over two tensors tells; `Sums` describes the last fields."""

    golden: SideSummary
    target: SideSummary
    errors: PairErrors
    row_squared_difference: Floats
    row_squared_golden: Floats
    differs_at: int | None
    roundoff: float


def prepare_engine(total_bytes: int, compiling: Callable[[], None] = lambda: None) -> None:
    """Get ready to measure so many bytes: load the compiled engine, if it was compiled before.

    From 1 GiB on it is compiled, which takes some seconds once per machine and is told before; below, numpy
    has finished by then. Where it cannot be compiled, numpy does the work.
    """
    if _load() is None and total_bytes >= _WORTH_COMPILING:
        compiling()
        _load(compile_it=True)


def engine_in_use() -> Literal["numpy", "numba"]:
    """Say which engine measures in this process."""
    return "numpy" if _Process.is_numpy_chosen or _load() is None else "numba"


def choose_engine(engine: Literal["numpy", "numba"]) -> bool:
    """Have one engine measure all that it can from now on, in this process; tell whether it is to be had.

    The compiled one is compiled if need be. Processes that have chosen alike find the same to the last bit.
    """
    _Process.is_numpy_chosen = engine == "numpy"
    return _Process.is_numpy_chosen or _load(compile_it=True) is not None


def measure_elements(
    golden: Array, target: Array, engine: Engine = "auto"
) -> tuple[SideSummary, SideSummary, PairErrors]:
    """Measure two tensors of equal shape and any numeric dtypes; neither is written to.

    Raises:
        ValueError: the shapes differ, or a dtype holds no numbers.
    """
    found = compare_elements(golden, target, engine)
    return found.golden, found.target, found.errors


def compare_elements(golden: Array, target: Array, engine: Engine = "auto") -> Elements:
    """Find all that is asked of two tensors of equal shape and any numeric dtypes; neither is written to.

    The engine "auto" is the compiled one ("numba") where it has been compiled before. Complex numbers and
    integers of more than a byte are always left to numpy.

    Raises:
        ValueError: the shapes differ, or a dtype holds no numbers.
    """
    require_one_shape(golden, target)
    _require_numbers(golden)
    _require_numbers(target)
    if not golden.size:
        return _elements(_NO_SUMS if golden.dtype == target.dtype else _NO_SUMS_OF_TWO_DTYPES, 0)
    adding = _engine(engine, golden, target)
    sums, unit = adding.measure(golden, target), 1.0
    differs_at, roundoff = sums.differs_at, sums.roundoff
    magnitude = max(sums.golden.magnitude, sums.target.magnitude)
    if not _SMALL < magnitude < _LARGE and (_is_wide(golden) or _is_wide(target)):
        unit = _unit(magnitude)
        sums = adding.measure(_divided(golden, unit), _divided(target, unit))
        sums.differs_at, sums.roundoff = differs_at, roundoff
    return _elements(sums, golden.size, unit)


def _elements(sums: Sums, size: int, unit: float = 1.0) -> Elements:
    return Elements(
        golden=_summary(sums.golden, size, unit),
        target=_summary(sums.target, size, unit),
        errors=_errors(sums, size, unit),
        row_squared_difference=sums.row_squared_difference,
        row_squared_golden=sums.row_squared_golden,
        differs_at=sums.differs_at,
        roundoff=sums.roundoff,
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


class _Process:
    """The compiled engine of this process, once somebody has looked for it."""

    engine: _Engine | None = None
    has_looked = False
    is_numpy_chosen = False


def _load(*, compile_it: bool = False) -> _Engine | None:
    """Return the compiled engine; None where it was not compiled, or is not to be had at all."""
    if _Process.engine is None and (compile_it or not _Process.has_looked):
        _Process.has_looked = True
        _Process.engine = _found(compile_it=compile_it)
    return _Process.engine


def _found(*, compile_it: bool) -> _Engine | None:
    try:
        module = importlib.import_module("firstdrift.metrics.elementwise.compiled")
        return cast("_Engine", module) if module.load(compile_it=compile_it) else None
    except Exception as error:  # noqa: BLE001 - a compiler may be missing, or fail in its own ways
        _log.info("numba cannot be used, numpy measures in its place: %s", error)
        return None


def _engine(name: Engine, *arrays: Array) -> _Engine:
    # Of one machine all tensors are measured by one engine, so that they come out the same to the last bit.
    is_numpy = name == "numpy" or (name == "auto" and _Process.is_numpy_chosen)
    compiled = None if is_numpy else _load(compile_it=name == "numba")
    return compiled if compiled is not None and all(map(compiled.supports, arrays)) else numpy_pass


def _require_numbers(array: Array) -> None:
    if number_kind(array.dtype) is None:
        raise ValueError(f"values of dtype {array.dtype} are not numbers")


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
    divided = array.astype(wide)
    with np.errstate(invalid="ignore"):  # a signalling NaN
        divided /= unit  # in place: of a tensor without dimensions comes else a number, which has no address
    return divided


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


_NO_SUMS_OF_TWO_DTYPES = Sums(
    SideSums(), SideSums(), PairSums(np.zeros(len(DECADES) + 2, np.int64)), np.zeros(0), np.zeros(0)
)
_NO_SUMS = replace(_NO_SUMS_OF_TWO_DTYPES, differs_at=NOWHERE)
