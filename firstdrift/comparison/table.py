"""The pairs of a report as rows: the one table behind CSV, XLSX and the pandas frame."""

from collections.abc import Iterator
from operator import attrgetter

from firstdrift.comparison.report import Report, SliceResult
from firstdrift.matching.plan import TensorPair
from firstdrift.metrics.measurement import (
    DIFFERENCE_METRICS,
    ERROR_METRICS,
    LOGITS_METRICS,
    Measurement,
    SideSummary,
)
from firstdrift.tensors import TensorRecord

Cell = str | float | int | None

_COORDINATES = ("step", "rank", "token", "micro_step")
_SIDES = ("maximum", "minimum", "mean", "norm")

COLUMNS = (
    *_COORDINATES,
    "order",
    "module",
    "golden_node",
    "target_node",
    "golden_tensor",
    "target_tensor",
    "golden_dtype",
    "target_dtype",
    "golden_shape",
    "target_shape",
    "origin",
    "transform",
    "measured_from",
    "verdict",
    "class",
    "error",
    *ERROR_METRICS,
    *LOGITS_METRICS,
    *DIFFERENCE_METRICS,
    "equal",
    *(f"golden_{side}" for side in _SIDES),
    *(f"target_{side}" for side in _SIDES),
    "reasons",
)
_PLACES = {column: place for place, column in enumerate(COLUMNS)}


def columns_of(report: Report) -> tuple[str, ...]:
    """Return the columns of a report: `COLUMNS`, and two for each algorithm of the user's."""
    if not report.additions.algorithms:
        return COLUMNS
    from firstdrift.comparison.algorithms import REMARK, name_of

    names = [name_of(algorithm) for algorithm in report.additions.algorithms]
    return (*COLUMNS, *(column for name in names for column in (name, name + REMARK)))


def pair_rows(report: Report) -> Iterator[tuple[Cell, ...]]:
    """Give one row of `columns_of` for each pair, unmatched node and unmatched tensor.

    Unmatched ones have the verdict "unmatched" and only the columns of their own side.
    """
    empty = (None,) * (len(columns_of(report)) - len(COLUMNS))
    for result in report.slices:
        row_of_match = {row.match: row for row in result.rows if row.match is not None}
        at = _coordinates(result)
        for index, pair in enumerate(result.plan.pairs):
            row = row_of_match[pair.match]
            judged, measured = result.judgement.pairs[index], result.measurements[index]
            yield (
                *at,
                row.order,
                row.path,
                *_pair_cells(pair),
                result.plan.matches[pair.match].origin.value,
                pair.transform,
                measured.kind.value,
                judged.verdict.value,
                result.judgement.rows[row.index].node_class.value,
                judged.error,
                *_metric_cells(measured),
                *_side_cells(measured.golden),
                *_side_cells(measured.target),
                "; ".join(judged.reasons),
                *(cell for own in measured.custom or () for cell in (own.value, own.remark or None)),
            )
        yield from ((*row, *empty) for row in _unmatched(result, at))


def _coordinates(result: SliceResult) -> tuple[int | None, ...]:
    found = result.judgement.coordinates
    return (found.step, found.rank, found.token, found.micro_step)


def _pair_cells(pair: TensorPair) -> tuple[Cell, ...]:
    golden, target = pair.golden, pair.target
    return (
        pair.golden_node,
        pair.target_node,
        golden.label,
        target.label,
        golden.dtype,
        target.dtype,
        _shape(golden),
        _shape(target),
    )


def _shape(record: TensorRecord) -> str:
    return "" if record.shape is None else str(list(record.shape))


_NO_ERRORS, _NO_LOGITS, _NO_DIFFERENCES, _NO_SIDE = (
    (None,) * len(names) for names in (ERROR_METRICS, LOGITS_METRICS, DIFFERENCE_METRICS, _SIDES)
)
_errors_of, _logits_of, _differences_of, _statistics_of = (
    attrgetter(*names) for names in (ERROR_METRICS, LOGITS_METRICS, DIFFERENCE_METRICS, _SIDES)
)


def _metric_cells(measured: Measurement) -> tuple[Cell, ...]:
    return (
        *(_NO_ERRORS if measured.errors is None else _errors_of(measured.errors)),
        *(_NO_LOGITS if measured.logits is None else _logits_of(measured.logits)),
        *(_NO_DIFFERENCES if measured.differences is None else _differences_of(measured.differences)),
        None if measured.equal is None else int(measured.equal),
    )


def _side_cells(side: SideSummary | None) -> tuple[Cell, ...]:
    return _NO_SIDE if side is None else _statistics_of(side)


def _unmatched(result: SliceResult, at: tuple[int | None, ...]) -> Iterator[tuple[Cell, ...]]:
    plan = result.plan
    for side, names in (("golden", plan.unmatched_golden), ("target", plan.unmatched_target)):
        for name in names:
            yield _unmatched_row(at, {f"{side}_node": name, "class": "unmatched"})
    for side, tensors in (
        ("golden", plan.unmatched_golden_tensors),
        ("target", plan.unmatched_target_tensors),
    ):
        for unmatched in tensors:
            record = unmatched.record
            own = {
                "node": unmatched.node,
                "tensor": record.label,
                "dtype": record.dtype,
                "shape": _shape(record),
            }
            yield _unmatched_row(at, {f"{side}_{name}": value for name, value in own.items()})


def _unmatched_row(at: tuple[int | None, ...], known: dict[str, str]) -> tuple[Cell, ...]:
    row: list[Cell] = [*at, *(None for _ in COLUMNS[len(at) :])]
    row[_PLACES["verdict"]] = "unmatched"
    for column, value in known.items():
        row[_PLACES[column]] = value
    return tuple(row)
