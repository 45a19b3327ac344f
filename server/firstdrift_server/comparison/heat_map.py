"""The map of layers: the output error of every layer in every slice, or in the worst of several.

        layer 0   1   2   3
token 0       ·   ·   ·   ·
token 1       ·   ·   ▒   ▓      first: token 1, layer 2
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.charts import LayerErrors, layer_errors
from firstdrift.catalogue.comparisons.records import Comparison
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair
from firstdrift.exports.layer_columns import LayerColumns, layer_columns, moment_of
from firstdrift.exports.report_json import coordinates_object
from firstdrift.groups import gathered
from firstdrift.paths import encodable
from firstdrift.strict_json import spelled_out
from firstdrift.verdict.judgement import Findings, NodeClass, Verdict
from firstdrift.verdict.limit import limit_of_nodes, limit_of_row
from firstdrift.verdict.shown_classes import SHOWN_ALONE, shown_class
from firstdrift.wording.message import Message
from firstdrift_server.comparison.charts import logarithmic_range
from firstdrift_server.comparison.progress import findings_so_far, slices_expected
from firstdrift_server.comparison.strip import AXES, states_of
from firstdrift_server.parts.addresses import tree_address
from firstdrift_server.parts.layer_labels import layer_labels
from firstdrift_server.parts.measured_from import measured_from
from firstdrift_server.parts.sentence import first_position, position_of

EACH = "slice"
"""Rows of a map for each slice, whatever the coordinates by which they differ."""

TABLE_CELLS = 320
"""How many cells the table has that stands for the map where there is no script."""

VERDICTS, CLASSES = tuple(map(str, Verdict)), tuple(map(str, NodeClass))
SHOWN_CLASSES = (*CLASSES, *SHOWN_ALONE)
_CODES = {word: code for words in (VERDICTS, SHOWN_CLASSES) for code, word in enumerate(words)}


class TableCell(Struct, frozen=True):
    """A layer in a slice; `is_first` of that in which the first bad node lies.

    Attributes:
        measured_from: what its error comes from: statistics give lower bounds.
    """

    error: float | None
    verdict: str
    node_class: str
    is_first: bool
    address: str
    measured_from: str


class TableRow(Struct, frozen=True):
    """A slice, with a cell for each layer that it has."""

    name: Message
    cells: list[TableCell | None]


class LayersTable(Struct, frozen=True):
    """A part of the map as a table, of a comparison of so many slices; or all of it."""

    layers: Sequence[str]
    rows: list[TableRow]
    slices: int
    is_part: bool


def axes_of(slices: Sequence[SlicePair]) -> tuple[str, ...]:
    """List by what the rows of a map may be told apart; one only if slices differ by one coordinate."""
    varying = tuple(axis for axis in AXES if len({_coordinate(pair, axis) for pair in slices}) > 1)
    return (EACH, *varying) if len(varying) != 1 else varying


def heat_map(
    session: Session, comparison: Comparison, slices: Sequence[SlicePair], by: str | None = None
) -> dict[str, Any]:
    """Give the output errors of all layers, a row for each slice, or for each value of a coordinate.

    Where a row stands for several slices, each of its cells shows the worst of them. `by` is "slice", or a
    coordinate by which slices differ.
    """
    findings = findings_so_far(comparison, slices)
    expected = slices_expected(comparison, slices)
    axes = axes_of(slices)
    axis = by if by in axes else axes[0]
    errors = layer_errors(session, comparison.id)
    layers = _columns_of(errors, slices)
    columns = layers.of_path
    groups = _groups(slices, axis)
    row_of = {pair.position: number for number, group in enumerate(groups) for pair in group}
    states = states_of(slices, findings)
    first = _first_bad(errors, slices, findings)
    table = _worst_of_each(errors, row_of, columns, first)
    limit = limit_of_nodes(pair.judgement for pair in slices)

    def drawn(values: Sequence[Any]) -> list[list[Any]]:
        return [[None if at is None else values[at] for at in row] for row in table]

    return {
        "by": axis,
        "axes": axes,
        "layers": list(map(encodable, layers.names)),
        "labels": list(map(encodable, layer_labels(layers.names))),
        "rows": [_row(group, axis, states) for group in groups],
        "expected": max(expected, len(groups)) if axis == EACH or len(axes) == 1 else len(groups),
        "errors": drawn(list(map(_written, errors.errors))),
        "verdicts": drawn([_CODES[verdict] for verdict in errors.verdicts]),
        "classes": drawn([_CODES[node_class] for node_class in errors.classes]),
        "shown": drawn(list(map(_CODES.__getitem__, map(shown_class, errors.classes, errors.rules)))),
        "slices": drawn(errors.positions),
        "nodes": drawn(errors.rows),
        "verdict_names": VERDICTS,
        "class_names": CLASSES,
        "shown_names": SHOWN_CLASSES,
        "first": None
        if first is None
        else {"row": row_of[errors.positions[first]], "layer": columns[errors.paths[first]]},
        "range": logarithmic_range(errors.errors),
        "limit": limit,
        "limits": drawn(_limits(errors, limit)),
        "kinds": drawn(list(map(measured_from, errors.kinds))),
        "rules": comparison.options.rules,
    }


def _limits(errors: LayerErrors, limit: float | None) -> list[float | str | None]:
    """Give the limit that decided of each layer."""
    known = zip(errors.errors, errors.excused, strict=True)
    return [_written(limit_of_row(limit, error, excused)) for error, excused in known]


def _worst_of_each(
    errors: LayerErrors, row_of: Mapping[int, int], columns: Mapping[str, int], first: int | None
) -> list[list[int | None]]:
    """Choose for each row and layer the place of its worst error in the columns; `first` wins over all."""
    table: list[list[int | None]] = [
        [None] * len(set(columns.values())) for _ in range(max(row_of.values(), default=-1) + 1)
    ]
    sizes = list(map(_size, errors.errors))
    if first is not None:
        sizes[first] = math.nan  # which nothing is greater than
    for at, (position, path) in enumerate(zip(errors.positions, errors.paths, strict=True)):
        if position not in row_of:
            continue
        row, column = table[row_of[position]], columns[path]
        before = row[column]
        if before is None or sizes[at] > sizes[before] or at == first:
            row[column] = at
    return table


def layers_table(
    session: Session,
    comparison_id: int,
    slices: Sequence[SlicePair],
    findings: Findings | None,
) -> LayersTable | None:
    """Lay out a part of the map as a table: the slices around the first bad one, so far as there is room.

    None if there are no layers.
    """
    if not slices:
        return None
    first = first_position(slices, findings)
    start = max(0, next((at for at, pair in enumerate(slices) if pair.position == first), 0) - 1)
    probe = layer_errors(session, comparison_id, [slices[start].position])
    most = min(len(set(probe.paths)), TABLE_CELLS // 2)
    if not most:
        return None
    shown = slices[start : start + max(2, TABLE_CELLS // most)]
    errors = layer_errors(session, comparison_id, [pair.position for pair in shown])
    columns = _columns_of(errors, slices)
    layers = columns.names[: max(most, TABLE_CELLS // len(shown))]
    cells = _table_cells(comparison_id, errors, columns, _first_bad(errors, slices, findings))
    rows = [
        TableRow(pair.target.name(), [cells.get((pair.position, at)) for at in range(len(layers))])
        for pair in shown
    ]
    is_part = len(shown) < len(slices) or len(layers) < len(columns.names)
    return LayersTable(layers, rows, len(slices), is_part)


def _table_cells(
    comparison: int, errors: LayerErrors, columns: LayerColumns, bad: int | None
) -> dict[tuple[int, int], TableCell]:
    """Describe the layers by slice and column; of several in one column, the first."""
    return {
        (errors.positions[at], columns.of_path[errors.paths[at]]): TableCell(
            errors.errors[at],
            errors.verdicts[at],
            shown_class(errors.classes[at], errors.rules[at]),
            is_first=at == bad,
            address=tree_address(comparison, errors.positions[at], row=errors.rows[at]),
            measured_from=measured_from(errors.kinds[at]),
        )
        for at in reversed(range(len(errors.rows)))
    }


def _columns_of(errors: LayerErrors, slices: Sequence[SlicePair]) -> LayerColumns:
    moments = {pair.position: moment_of(pair.target) for pair in slices}
    places = zip(errors.positions, errors.paths, strict=True)
    return layer_columns((moments.get(position), path) for position, path in places)


def _coordinate(pair: SlicePair, axis: str) -> Hashable:
    if axis == "rank" and pair.target.merged:
        return pair.target.merged
    coordinate: int | None = getattr(pair.target, axis)
    return coordinate


def _groups(slices: Sequence[SlicePair], axis: str) -> list[list[SlicePair]]:
    groups = gathered((pair.position if axis == EACH else _coordinate(pair, axis), pair) for pair in slices)
    return list(groups.values())


def _row(group: Sequence[SlicePair], axis: str, states: Mapping[int, str]) -> Mapping[str, object]:
    """Describe a row: its coordinates, so far as its slices share them, and how its slices came out."""
    known = coordinates_object(group[0].target)
    named = known if axis == EACH else {name: known[name] for name in (axis, f"{axis}s") if name in known}
    return named | {"states": sorted({states[pair.position] for pair in group})}


def _first_bad(errors: LayerErrors, slices: Sequence[SlicePair], findings: Findings | None) -> int | None:
    """Find the layer in which the first bad node lies; None if it lies in none."""
    node = findings.first_bad_node if findings else None
    position = None if node is None else position_of(slices, node.coordinates)
    if node is None or position is None:
        return None
    return errors.layer_of(position, node.row, node.module)


def _size(error: float | None) -> float:
    """Order errors: unknown, then finite ones, then NaN and infinity."""
    if error is None:
        return -1.0
    return error if math.isfinite(error) else math.inf


def _written(error: float | None) -> float | str | None:
    """Keep five digits, a map holds many numbers; what is no number in JSON is named."""
    if error is None:
        return None
    return float(f"{error:.4e}") if math.isfinite(error) else spelled_out(error)
