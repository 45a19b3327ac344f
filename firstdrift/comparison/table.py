"""Pairs as rows: the one table behind CSV, XLSX and the pandas frame.

report ─▶ lines ─▶ cells        the catalogue gives the same lines, one by one
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter

from msgspec import Struct

from firstdrift.comparison.left_over import MatchedNames, reasons_left_over
from firstdrift.comparison.levels import level_of
from firstdrift.comparison.report import Report, SliceResult
from firstdrift.groups import positions
from firstdrift.matching.plan import TensorPair, UnmatchedTensor
from firstdrift.metrics.measurement import (
    DIFFERENCE_METRICS,
    ERROR_METRICS,
    LOGITS_METRICS,
    CustomResult,
    Measurement,
)
from firstdrift.model.slice import Coordinates
from firstdrift.model.tensor import TensorRecord
from firstdrift.verdict.judgement import PairJudgement
from firstdrift.verdict.tree import rows_by_match
from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of, texts_of

Cell = str | float | int | None

COORDINATES = ("step", "rank", "token", "micro_step")
SIDES = ("maximum", "minimum", "mean", "norm")

COLUMNS = (
    *COORDINATES,
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
    *(f"golden_{side}" for side in SIDES),
    *(f"target_{side}" for side in SIDES),
    "reasons",
)
_PLACES = positions(COLUMNS)


def columns_of(report: Report) -> tuple[str, ...]:
    """Return the columns of a report: `COLUMNS`, and two for each algorithm of the user's."""
    if not report.additions.algorithms:
        return COLUMNS
    from firstdrift.comparison.algorithms import REMARK, name_of

    names = list(map(name_of, report.additions.algorithms))
    return (*COLUMNS, *(column for name in names for column in (name, name + REMARK)))


class PairLine(Struct, frozen=True):
    """A compared pair, where it is, and what is said of it.

    Attributes:
        coordinates: of the target slice.
        order: of its row in execution order.
        module: dotted path of the innermost module around it.
        origin: how its match was found.
        node_class: what its node did to the error.
        golden_type: class or operator of the golden node; "" if not known. Likewise target_type.
        level: of its node: "layer", "module" or "api".
    """

    coordinates: Coordinates
    order: int
    module: str | None
    origin: str
    node_class: str
    pair: TensorPair
    measured: Measurement
    judged: PairJudgement
    golden_type: str = ""
    target_type: str = ""
    level: str = "api"


class UnmatchedLine(Struct, frozen=True):
    """What has no partner: a tensor of a node, or without a record a node with all its tensors.

    Attributes:
        side: "golden" or "target".
        type_name: class or operator of the node; "" if not known.
        reason: why it has no partner; "" if that is not known.
        level: of its node, as that of a pair.
    """

    coordinates: Coordinates
    side: str
    node: str
    record: TensorRecord | None = None
    type_name: str = ""
    reason: str = ""
    level: str = "api"


Line = PairLine | UnmatchedLine


def lines_of(report: Report) -> Iterator[Line]:
    """Give a line for each pair, unmatched node and unmatched tensor, slice by slice."""
    return chain.from_iterable(map(lines_of_slice, report.slices))


def lines_of_slice(result: SliceResult) -> Iterator[Line]:
    """Give the lines of one slice."""
    row_of_match = rows_by_match(result.rows)
    at, plan = result.judgement.coordinates, result.plan
    levels = {index: level_of(row.kind, row.path) for index, row in row_of_match.items()}
    for pair, measured, judged in zip(plan.pairs, result.measurements, result.judgement.pairs, strict=True):
        row = row_of_match[pair.match]
        yield PairLine(
            at,
            row.order,
            row.path,
            plan.matches[pair.match].origin._value_,
            result.judgement.rows[row.index].node_class._value_,
            pair,
            measured,
            judged,
            row.type_name,
            row.type_name,
            levels[pair.match],
        )
    yield from left_over_of_slice(result)


def left_over_of_slice(result: SliceResult) -> Iterator[UnmatchedLine]:
    """Give the lines of what has no partner in one slice."""
    plan = result.plan
    yield from _unmatched_nodes(result)
    left = plan.unmatched_golden_tensors, plan.unmatched_target_tensors
    levels = {index: level_of(row.kind, row.path) for index, row in rows_by_match(result.rows).items()}
    matches = {
        index: MatchedNames(match.golden, match.target, match.doubtful)
        for index, match in enumerate(plan.matches)
    }
    yield from unmatched_tensors(result.judgement.coordinates, *left, matches, levels)


def _unmatched_nodes(result: SliceResult) -> Iterator[UnmatchedLine]:
    at, plan, judged = result.judgement.coordinates, result.plan, result.judgement.rows
    free = [row for row in result.rows if row.match is None]
    for side, names in (("golden", plan.unmatched_golden), ("target", plan.unmatched_target)):
        rows = {name: row for row in free for name in getattr(row, side)}
        for name in names:
            if (row := rows.get(name)) is None:
                yield UnmatchedLine(at, side, name)
                continue
            why = "; ".join(texts_of(judged[row.index].reasons))
            yield UnmatchedLine(at, side, name, None, row.type_name, why, level_of(row.kind, row.path))


def unmatched_tensors(
    at: Coordinates,
    golden: Sequence[UnmatchedTensor],
    target: Sequence[UnmatchedTensor],
    matches: Mapping[int, MatchedNames],
    levels: Mapping[int, str],
) -> Iterator[UnmatchedLine]:
    """Give a line for each tensor of a matched node that was left over; matches and levels go by match."""
    for side, left, why in reasons_left_over(golden, target, matches):
        level = levels.get(left.match, "api")
        yield UnmatchedLine(at, side, left.node, left.record, reason=text_of(why), level=level)


def pair_rows(report: Report) -> Iterator[tuple[Cell, ...]]:
    """Give one row of `columns_of` for each pair, unmatched node and unmatched tensor.

    Unmatched ones have the verdict "unmatched" and only the columns of their own side.
    """
    width = len(columns_of(report))
    return (cells_of(line, width) for line in lines_of(report))


def cells_of(line: Line, width: int = len(COLUMNS)) -> tuple[Cell, ...]:
    """Lay a line out in `COLUMNS`, and what the user's own algorithms said up to a width."""
    if isinstance(line, UnmatchedLine):
        return (*_unmatched_row(_place_of(line.coordinates), line), *(None,) * (width - len(COLUMNS)))
    pair, measured, judged = line.pair, line.measured, line.judged
    golden, target, equal = pair.golden, pair.target, measured.equal
    return (
        *_place_of(line.coordinates),
        line.order,
        line.module,
        pair.golden_node,
        pair.target_node,
        golden.label,
        target.label,
        golden.dtype,
        target.dtype,
        shape_of(golden.shape),
        shape_of(target.shape),
        line.origin,
        said(pair.transform),
        measured.kind._value_,
        judged.verdict._value_,
        line.node_class,
        judged.error,
        *(_NO_ERRORS if measured.errors is None else _errors_of(measured.errors)),
        *(_NO_LOGITS if measured.logits is None else _logits_of(measured.logits)),
        *(_NO_DIFFERENCES if measured.differences is None else _differences_of(measured.differences)),
        equal if equal is None else int(equal),
        *(_NO_SIDE if measured.golden is None else _statistics_of(measured.golden)),
        *(_NO_SIDE if measured.target is None else _statistics_of(measured.target)),
        said(judged.reasons),
        *(_own_cells(measured.custom or (), width - len(COLUMNS)) if width > len(COLUMNS) else ()),
    )


_place_of, _errors_of, _logits_of, _differences_of, _statistics_of = (
    attrgetter(*names) for names in (COORDINATES, ERROR_METRICS, LOGITS_METRICS, DIFFERENCE_METRICS, SIDES)
)
_NO_ERRORS, _NO_LOGITS, _NO_DIFFERENCES, _NO_SIDE = (
    (None,) * len(names) for names in (ERROR_METRICS, LOGITS_METRICS, DIFFERENCE_METRICS, SIDES)
)


@lru_cache
def shape_of(shape: tuple[int, ...] | None) -> str:
    """Write a shape; nothing where it is unknown."""
    return "" if shape is None else str(list(shape))


def said(messages: Sequence[Message]) -> str:
    """Put messages into words, one after the other."""
    return "; ".join(texts_of(messages)) if messages else ""


def _own_cells(results: Iterable[CustomResult], width: int) -> list[Cell]:
    cells: list[Cell] = [cell for own in results for cell in (own.value, own.remark or None)]
    return (cells + [None] * width)[:width]


def _unmatched_row(at: tuple[int | None, ...], line: UnmatchedLine) -> tuple[Cell, ...]:
    row: list[Cell] = [*at, *(None for _ in COLUMNS[len(at) :])]
    side, record = line.side, line.record
    known = {f"{side}_node": line.node, "verdict": "unmatched", "reasons": line.reason}
    if record is None:
        known["class"] = "unmatched"
    else:
        known[f"{side}_tensor"] = record.label
        known[f"{side}_dtype"] = record.dtype
        known[f"{side}_shape"] = shape_of(record.shape)
    for column, value in known.items():
        row[_PLACES[column]] = value
    return tuple(row)
