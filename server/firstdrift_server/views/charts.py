"""Charts as plain data that Plotly draws; nothing here needs the plotly package.

Numbers that an axis cannot show are drawn where they belong all the same: NaN and infinities at the
upper edge, zeros of a logarithmic axis at the lower edge, each marked as such.
"""

import math
from collections.abc import Sequence
from typing import Any

from firstdrift.catalogue.comparisons import SlicePair
from firstdrift.catalogue.tree import LayerError
from firstdrift_frontend.metric_names import METRICS
from firstdrift_frontend.numbers import exact
from firstdrift_server.views.addresses import tree_address
from firstdrift_server.views.strip import Cell, Strip


def strip_chart(strip: Strip) -> dict[str, Any] | None:
    """Draw the chosen metric of every slice, with its threshold; None if there is no metric.

    Colours are left to the page, which knows whether it is light or dark: a trace names its role.
    """
    if strip.metric is None:
        return None
    metric = METRICS[strip.metric]
    known = [
        cell.value
        for line in strip.lines
        for cell in line.cells
        if _is_drawable(cell.value, metric.logarithmic)
    ]
    limits = [strip.threshold.value] if strip.threshold else []
    low, high = _edges(
        [value for value in known if value is not None] + limits, logarithmic=metric.logarithmic
    )
    traces = [_trace(line.label, line.cells, low, high, metric.logarithmic) for line in strip.lines]
    return {
        "traces": traces,
        "threshold": {"value": strip.threshold.value, "meaning": strip.threshold.meaning}
        if strip.threshold
        else None,
        "x_title": strip.axis.replace("_", " "),
        "y_title": metric.label,
        "logarithmic": metric.logarithmic,
        "range": [low, high],
    }


def layer_map(
    comparison: int, slices: Sequence[SlicePair], cells: Sequence[LayerError]
) -> dict[str, Any] | None:
    """Draw the output error of every layer in every slice as a map; None if there are not several layers.

    Colours stand for powers of ten; a layer that a slice does not have, or whose error is not known, is left
    blank.
    """
    layers = list(dict.fromkeys(cell.path for cell in cells))
    known = [cell.output_error for cell in cells if _is_drawable(cell.output_error, logarithmic=True)]
    if len(layers) < 2 or not known:  # noqa: PLR2004 - one layer is no map
        return None
    powers = [math.log10(error) for error in known if error is not None]
    low = min(powers)
    high = max(*powers, low + 1)
    by_place = {(cell.position, cell.path): cell for cell in cells}
    table = [[by_place.get((pair.position, layer)) for layer in layers] for pair in slices]
    return {
        "kind": "map",
        "x": layers,
        "y": [pair.target.describe() for pair in slices],
        "z": [[_power(cell, low, high) for cell in row] for row in table],
        "exact": [[exact(cell.output_error) if cell else "" for cell in row] for row in table],
        "verdict": [[str(cell.verdict) if cell else "" for cell in row] for row in table],
        "address": [
            [tree_address(comparison, cell.position, row=cell.index) if cell else None for cell in row]
            for row in table
        ],
        "range": [low, high],
    }


def _power(cell: LayerError | None, low: float, high: float) -> float | None:
    """Return the power of ten of an error; zero is drawn as the least, NaN and infinity as the most."""
    if cell is None or cell.output_error is None:
        return None
    if _is_drawable(cell.output_error, logarithmic=True):
        return math.log10(cell.output_error)
    return low if cell.output_error == 0 else high


def _trace(label: str, cells: Sequence[Cell], low: float, high: float, logarithmic: bool) -> dict[str, Any]:
    shown = [cell for cell in cells if cell.value is not None]
    return {
        "name": label,
        "x": [cell.label for cell in shown],
        "y": [_drawn(cell.value or 0.0, low, high, logarithmic) for cell in shown],
        "exact": [exact(cell.value) for cell in shown],
        "state": [cell.state for cell in shown],
        "at_edge": [not _is_drawable(cell.value, logarithmic) for cell in shown],
        "slice": [cell.slice for cell in shown],
    }


def _is_drawable(value: float | None, logarithmic: bool) -> bool:
    return value is not None and math.isfinite(value) and (value > 0 or not logarithmic)


def _drawn(value: float, low: float, high: float, logarithmic: bool) -> float:
    if _is_drawable(value, logarithmic):
        return value
    return low if value in (0, -math.inf) else high


def _edges(values: Sequence[float], *, logarithmic: bool) -> tuple[float, float]:
    """Return the lowest and highest value of the axis, with some room."""
    if not values:
        return (0.1, 10.0) if logarithmic else (0.0, 1.0)
    low, high = min(values), max(values)
    if logarithmic:
        return low / 4, high * 4
    room = (high - low or abs(high) or 1.0) * 0.1
    return low - room, high + room
