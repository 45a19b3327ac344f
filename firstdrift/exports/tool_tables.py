"""Pairs in the columns that msit and msprobe write, so that what reads their tables reads ours.

The columns are theirs, the numbers are ours: `docs/sharing.md` says where the two differ. What has no
partner, which they drop, is listed and says so.
"""

import math
from collections.abc import Callable
from itertools import chain, count
from pathlib import PurePath
from typing import TypeAlias

from firstdrift.comparison.report import Report
from firstdrift.comparison.table import Cell, Line, PairLine, UnmatchedLine
from firstdrift.errors import TensorUnreadableError
from firstdrift.exports.mapping_yaml import item_name
from firstdrift.exports.spreadsheets import OWN_LAYOUT, Layout, own_layout
from firstdrift.metrics.measurement import MeasurementKind, SideSummary
from firstdrift.model.tensor import ROUNDING, DataLocation, Statistics, TensorRecord
from firstdrift.wording.text import text_of, texts_of

OWN = "firstdrift"
LAYOUTS = (OWN, "msit", "msprobe")
MSIT_SHEETS = ("layer", "module", "api")
"""Sheets of msit's workbook, all of which are there even if one has no rows."""

_MISSING, _UNSUPPORTED = "N/A", "unsupported"

_MSIT_ERRORS = (
    "cosine_similarity",
    "max_relative_error",
    "mean_relative_error",
    "max_absolute_error",
    "mean_absolute_error",
)
_MSIT_SIDE = ("data_path", "op_type", "dtype", "shape", "max_value", "min_value", "mean_value")
MSIT_COLUMNS = (
    "token_id",
    "data_id",
    *(f"{side}_{name}" for side in ("golden", "my") for name in _MSIT_SIDE),
    *_MSIT_ERRORS,
    "kl_divergence",
    "relative_euclidean_distance",
    "cmp_fail_reason",
)

_BASIC = tuple(
    f"{side} {name}"
    for name in ("Name", "Dtype", "Tensor Shape", "Requires_grad")
    for side in ("NPU", "Bench")
)
_VALUES = tuple(f"{side} {name}" for side in ("NPU", "Bench") for name in ("max", "min", "mean", "l2norm"))
_RESULT = ("Requires_grad Consistent", "Result", "Err_message")
_ERRORS = (
    "Cosine",
    "EucDist",
    "MaxAbsErr",
    "MaxRelativeErr",
    "One Thousandth Err Ratio",
    "Five Thousandths Err Ratio",
)
_DIFFERENCES = (
    "Max diff",
    "Min diff",
    "Mean diff",
    "L2norm diff",
    "MaxRelativeErr",
    "MinRelativeErr",
    "MeanRelativeErr",
    "NormRelativeErr",
)
MSPROBE_COLUMNS = {
    MeasurementKind.DATA: (*_BASIC, *_ERRORS, *_VALUES, *_RESULT, "Data_name"),
    MeasurementKind.STATISTICS: (*_BASIC, *_DIFFERENCES, *_VALUES, *_RESULT),
    MeasurementKind.DIGEST: (*_BASIC, "NPU MD5", "BENCH MD5", *_RESULT),
}
"""Columns by what the numbers of a comparison come from."""


Divergence: TypeAlias = Callable[[PairLine], float | None]
"""Gives the KL divergence of a pair; None where it is not defined."""


def layout_of(name: str, kind: MeasurementKind, divergence: Divergence | None = None) -> Layout:
    """Return a layout by its name, one of `LAYOUTS`, for numbers of a kind: data, statistics or digest.

    Without a divergence, msit's column for it has that of logits alone.
    """
    if name == "msit":
        numbers, of_pair = count(), divergence or _of_logits
        cells = lambda line: _msit_cells(next(numbers), line, of_pair)  # noqa: E731
        return Layout(MSIT_COLUMNS, cells, MSIT_SHEETS, lambda line: line.level, counts=True)
    if name == "msprobe":
        return Layout(MSPROBE_COLUMNS[kind], lambda line: _msprobe_cells(line, kind))
    return OWN_LAYOUT


def layout_of_report(name: str, report: Report) -> Layout:
    """Return a layout by its name, one of `LAYOUTS`, for a report, whose tensors may be read again."""
    if name == OWN:
        return own_layout(report)
    kinds = {measured.kind for result in report.slices for measured in result.measurements}
    richest = next(filter(kinds.__contains__, MSPROBE_COLUMNS), MeasurementKind.DATA)
    return layout_of(name, richest, _of_values)


def _of_logits(line: PairLine) -> float | None:
    return None if line.measured.logits is None else line.measured.logits.kl_divergence


def _of_values(line: PairLine) -> float | None:
    """Take the divergence of all elements, as msit does."""
    pair = line.pair
    if line.measured.errors is None or pair.is_joined or not (pair.golden.location and pair.target.location):
        return None
    from firstdrift.dumps.storage.tensor_data import load_tensor
    from firstdrift.metrics.logits import flat_divergence

    try:
        return flat_divergence(load_tensor(pair.golden.location), load_tensor(pair.target.location))
    except TensorUnreadableError:  # it was there when it was measured
        return None


def _msit_cells(number: int, line: Line, divergence: Divergence) -> tuple[Cell, ...]:
    """Lay out a line of msit's table, whose rows are numbered."""
    begin = (0 if line.coordinates.token is None else line.coordinates.token, number)
    if isinstance(line, UnmatchedLine):
        own = _msit_side(line.node, line.type_name, line.record, None)
        none = (None,) * len(own)
        sides = (*own, *none) if line.side == "golden" else (*none, *own)
        return (*begin, *sides, *(None,) * (len(_MSIT_ERRORS) + 2), _only(line))
    pair, measured = line.pair, line.measured
    errors = measured.errors
    why = pair.incomparable or measured.reason
    return (
        *begin,
        *_msit_side(pair.golden_node, line.golden_type, pair.golden, measured.golden),
        *_msit_side(pair.target_node, line.target_type, pair.target, measured.target),
        *(getattr(errors, name, None) for name in _MSIT_ERRORS),
        divergence(line),
        getattr(errors, "relative_l2", None),
        "" if why is None else text_of(why),
    )


def _only(line: UnmatchedLine) -> str:
    said = f"only {line.side} has it."
    return f"{said} {line.reason}" if line.reason else said


def _msit_side(
    node: str, type_name: str, record: TensorRecord | None, summary: SideSummary | None
) -> tuple[Cell, ...]:
    if record is None:
        return (node, type_name, "", "", None, None, None)
    known = summary or record.statistics
    values = (None, None, None) if known is None else (known.maximum, known.minimum, known.mean)
    return (_place(node, record), type_name, _torch_type(record), _shape(record), *values)


def _place(node: str, record: TensorRecord) -> str:
    """Say where a tensor lies: its file, or where none was saved its name."""
    file = _file(record.location)
    return item_name(node, record) if file is None else str(file)


def _file(location: DataLocation | None) -> PurePath | None:
    if location is None:
        return None
    return _file(location.shards[0]) if location.shards else location.file


def _msprobe_cells(line: Line, kind: MeasurementKind) -> tuple[Cell, ...]:
    if isinstance(line, UnmatchedLine):
        return _msprobe_unmatched(line, kind)
    measured, golden, target = line.measured, line.pair.golden, line.pair.target
    basic = _side_by_side(_basic(line.pair.target_node, target), _basic(line.pair.golden_node, golden))
    both = (target.requires_grad, golden.requires_grad)
    consistent = _MISSING if None in both else str(both[0] == both[1])
    reasons = line.judged.reasons or tuple(filter(None, [measured.reason]))
    result = (consistent, line.judged.verdict.value, str(texts_of(reasons)))
    if kind is MeasurementKind.DIGEST:
        return (*basic, target.digest or _MISSING, golden.digest or _MISSING, *result)
    values = _values(measured.target, target), _values(measured.golden, golden)
    if kind is MeasurementKind.STATISTICS:
        pairs = list(zip(*values, strict=True))
        compared = (_compared(*pair, of) for of in (_difference, _percentage) for pair in pairs)
        return (*basic, *compared, *values[0], *values[1], *result)
    return (*basic, *_errors(line), *values[0], *values[1], *result, _data_name(target, golden))


def _side_by_side(target: tuple[Cell, ...], golden: tuple[Cell, ...]) -> tuple[Cell, ...]:
    return tuple(chain.from_iterable(zip(target, golden, strict=True)))


def _basic(node: str, record: TensorRecord | None) -> tuple[Cell, ...]:
    if record is None:
        return (node, _MISSING, _MISSING, _MISSING)
    wants = _MISSING if record.requires_grad is None else str(record.requires_grad)
    return (item_name(node, record), _torch_type(record), _shape(record), wants)


def _msprobe_unmatched(line: UnmatchedLine, kind: MeasurementKind) -> tuple[Cell, ...]:
    own, missing = _basic(line.node, line.record), (_MISSING,) * 4
    is_target = line.side == "target"
    basic = _side_by_side(own, missing) if is_target else _side_by_side(missing, own)
    with_data = kind is MeasurementKind.DATA
    numbers = len(MSPROBE_COLUMNS[kind]) - len(_BASIC) - len(_RESULT) - with_data
    why = str([f"No {'bench' if is_target else 'NPU'} data matched.", *filter(None, [line.reason])])
    names = (str(["-1", "-1"]),) * with_data
    return (*basic, *(_MISSING,) * numbers, _MISSING, "unmatched", why, *names)


def _errors(line: PairLine) -> tuple[Cell, ...]:
    errors = line.measured.errors
    if errors is None:
        return (_UNSUPPORTED,) * len(_ERRORS)
    numbers = (
        errors.cosine_similarity,
        math.sqrt(errors.sum_squared_difference),
        errors.max_absolute_error,
        errors.max_relative_error,
        errors.share_within_1e3,
        errors.share_within_5e3,
    )
    return tuple(_UNSUPPORTED if number is None else _number(number) for number in numbers)


def _values(summary: SideSummary | None, record: TensorRecord) -> tuple[Cell, ...]:
    known: SideSummary | Statistics | None = summary or record.statistics
    if known is None:
        return (_MISSING,) * 4
    values = (known.maximum, known.minimum, known.mean, known.norm)
    return tuple(_MISSING if value is None else _number(value) for value in values)


def _number(value: float) -> Cell:
    if math.isfinite(value):
        return value
    return "Nan" if math.isnan(value) else " inf" if value > 0 else " -inf"


def _compared(target: Cell, golden: Cell, of: Callable[[float, float], Cell]) -> Cell:
    """Compare a statistic as msprobe does: "0" where both are the same."""
    if target == golden and str(target) == str(golden):  # 0.0 and -0.0 are not the same
        return "0"
    if isinstance(target, float | int) and isinstance(golden, float | int):
        return of(float(target), float(golden))
    return _odd(target, golden)


def _difference(target: float, golden: float) -> Cell:
    return _number(target - golden)


def _percentage(target: float, golden: float) -> Cell:
    return "inf" if golden == 0 else f"{abs((target - golden) / golden * 100)}%"


def _odd(target: Cell, golden: Cell) -> Cell:
    both = (target, golden)
    if _MISSING in both:
        return _MISSING
    if "Nan" in both:
        return "Nan"
    return " inf" if target == " inf" or golden == " -inf" else " -inf"


def _torch_type(record: TensorRecord) -> str:
    if not record.is_tensor:
        return f"<class '{record.dtype}'>"
    known = record.dtype in ROUNDING or record.dtype.startswith(("int", "uint", "bool"))
    return f"torch.{record.dtype}" if known and " " not in record.dtype else record.dtype


def _shape(record: TensorRecord) -> str:
    return _MISSING if record.shape is None else str(list(record.shape))


def _data_name(target: TensorRecord, golden: TensorRecord) -> str:
    files = (_file(record.location) for record in (target, golden))
    return str(["-1" if file is None else file.name for file in files])
