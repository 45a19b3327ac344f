"""Pairs in the columns that msit and msprobe write, so that what reads their tables reads ours.

The columns are theirs, the numbers are ours: `docs/sharing.md` says where the two differ. What has no
partner, which they drop, is listed and says so.
"""

import math
from pathlib import PurePath

from firstdrift.comparison.table import Cell, Line, PairLine, UnmatchedLine
from firstdrift.exports.mapping_yaml import item_name
from firstdrift.exports.spreadsheets import OWN_LAYOUT, Layout
from firstdrift.metrics.measurement import MeasurementKind, PairErrors, SideSummary
from firstdrift.model.tensor import UNIT_ROUNDOFF, DataLocation, Statistics, TensorRecord
from firstdrift.wording.text import text_of, texts_of

LAYOUTS = ("firstdrift", "msit", "msprobe")

_MISSING, _UNSUPPORTED = "N/A", "unsupported"

MSIT_COLUMNS = (
    "token_id",
    "data_id",
    "golden_data_path",
    "golden_op_type",
    "golden_dtype",
    "golden_shape",
    "golden_max_value",
    "golden_min_value",
    "golden_mean_value",
    "my_data_path",
    "my_op_type",
    "my_dtype",
    "my_shape",
    "my_max_value",
    "my_min_value",
    "my_mean_value",
    "cosine_similarity",
    "max_relative_error",
    "mean_relative_error",
    "max_absolute_error",
    "mean_absolute_error",
    "kl_divergence",
    "relative_euclidean_distance",
    "cmp_fail_reason",
)

_BASIC = (
    "NPU Name",
    "Bench Name",
    "NPU Dtype",
    "Bench Dtype",
    "NPU Tensor Shape",
    "Bench Tensor Shape",
    "NPU Requires_grad",
    "Bench Requires_grad",
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


def layout_of(name: str, kind: MeasurementKind) -> Layout:
    """Return a layout by its name, one of `LAYOUTS`, for numbers of a kind: data, statistics or digest."""
    if name == "msit":
        return Layout(MSIT_COLUMNS, _Msit().cells)
    if name == "msprobe":
        return Layout(MSPROBE_COLUMNS[kind], lambda line: _msprobe_cells(line, kind))
    return OWN_LAYOUT


_MSIT_ERRORS = (
    "cosine_similarity",
    "max_relative_error",
    "mean_relative_error",
    "max_absolute_error",
    "mean_absolute_error",
)


class _Msit:
    """msit's rows, which are numbered."""

    def __init__(self) -> None:
        self._row = 0

    def cells(self, line: Line) -> tuple[Cell, ...]:
        number, self._row = self._row, self._row + 1
        token = 0 if line.coordinates.token is None else line.coordinates.token
        if isinstance(line, UnmatchedLine):
            own = _msit_side(line.node, line.type_name, line.record, None)
            none = (None,) * len(own)
            sides = (*own, *none) if line.side == "golden" else (*none, *own)
            return (token, number, *sides, *(None,) * 7, f"only {line.side} has it.")
        pair, measured = line.pair, line.measured
        errors, logits = measured.errors, measured.logits
        why = pair.incomparable or measured.reason
        return (
            token,
            number,
            *_msit_side(pair.golden_node, line.golden_type, pair.golden, measured.golden),
            *_msit_side(pair.target_node, line.target_type, pair.target, measured.target),
            *_numbers_of(errors, _MSIT_ERRORS),
            None if logits is None else logits.kl_divergence,
            None if errors is None else errors.relative_l2,
            "" if why is None else text_of(why),
        )


def _numbers_of(errors: PairErrors | None, names: tuple[str, ...]) -> tuple[Cell, ...]:
    return tuple(None if errors is None else getattr(errors, name) for name in names)


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
    golden, target = line.pair.golden, line.pair.target
    basic = (
        item_name(line.pair.target_node, target),
        item_name(line.pair.golden_node, golden),
        _torch_type(target),
        _torch_type(golden),
        _shape(target),
        _shape(golden),
        _said(target.requires_grad),
        _said(golden.requires_grad),
    )
    both = (target.requires_grad, golden.requires_grad)
    consistent = _MISSING if None in both else str(both[0] == both[1])
    reasons = line.judged.reasons or tuple(filter(None, [line.measured.reason]))
    result = (consistent, line.judged.verdict.value, str(texts_of(reasons)))
    sides = (*_values(line.measured.target, target), *_values(line.measured.golden, golden))
    if kind is MeasurementKind.DIGEST:
        return (*basic, target.digest or _MISSING, golden.digest or _MISSING, *result)
    if kind is MeasurementKind.STATISTICS:
        pairs = list(
            zip(_values(line.measured.target, target), _values(line.measured.golden, golden), strict=True)
        )
        return (
            *basic,
            *(_difference(*pair) for pair in pairs),
            *(_relative(*pair) for pair in pairs),
            *sides,
            *result,
        )
    return (*basic, *_errors(line), *sides, *result, _data_name(target, golden))


def _msprobe_unmatched(line: UnmatchedLine, kind: MeasurementKind) -> tuple[Cell, ...]:
    record = line.record
    name = line.node if record is None else item_name(line.node, record)
    dtype = _MISSING if record is None else _torch_type(record)
    shape = _MISSING if record is None else _shape(record)
    wants = _MISSING if record is None else _said(record.requires_grad)
    own = [(name, _MISSING), (dtype, _MISSING), (shape, _MISSING), (wants, _MISSING)]
    basic = [
        cell
        for target, golden in own
        for cell in ((target, golden) if line.side == "target" else (golden, target))
    ]
    numbers = len(MSPROBE_COLUMNS[kind]) - len(_BASIC) - len(_RESULT) - (kind is MeasurementKind.DATA)
    data = (str(["-1", "-1"]),) if kind is MeasurementKind.DATA else ()
    said = str(["No bench data matched." if line.side == "target" else "No NPU data matched."])
    return (*basic, *(_MISSING,) * numbers, _MISSING, "unmatched", said, *data)


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


def _difference(target: Cell, golden: Cell) -> Cell:
    """Write the difference of a statistic as msprobe does: "0" where both are the same."""
    if str(target) == str(golden):
        return "0"
    if isinstance(target, float | int) and isinstance(golden, float | int):
        return _number(float(target) - float(golden))
    return _odd(target, golden)


def _relative(target: Cell, golden: Cell) -> Cell:
    """Write it in percent of the golden one."""
    if str(target) == str(golden):
        return "0"
    if isinstance(target, float | int) and isinstance(golden, float | int):
        return "inf" if golden == 0 else f"{abs((target - golden) / golden * 100)}%"
    return _odd(target, golden)


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
    known = record.dtype in UNIT_ROUNDOFF or record.dtype.startswith(("int", "uint", "bool"))
    return f"torch.{record.dtype}" if known and " " not in record.dtype else record.dtype


def _shape(record: TensorRecord) -> str:
    return _MISSING if record.shape is None else str(list(record.shape))


def _said(wants: bool | None) -> str:
    return _MISSING if wants is None else str(wants)


def _data_name(target: TensorRecord, golden: TensorRecord) -> str:
    files = (_file(record.location) for record in (target, golden))
    return str(["-1" if file is None else file.name for file in files])
