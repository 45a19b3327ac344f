"""Charts as plain data that Plotly draws; nothing here needs the plotly package.

Numbers that an axis cannot show are drawn where they belong all the same: NaN and infinities at the
upper edge, zeros of a logarithmic axis at the lower edge, each marked as such.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeGuard

from firstdrift_frontend.metric_names import METRICS, write
from firstdrift_server.comparison.strip import Line, Strip

SCALES = ("log", "linear")


def scale_of(strip: Strip, wanted: str | None = None) -> str | None:
    """Say on which scale a metric is drawn: as wanted, else as suits it; None without a metric."""
    if strip.metric is None:
        return None
    return wanted if wanted in SCALES else SCALES[0 if METRICS[strip.metric].logarithmic else 1]


def strip_chart(strip: Strip, scale: str | None = None) -> dict[str, Any] | None:
    """Draw the chosen metric of every slice, with its threshold; None if there is no metric.

    Colours are left to the page, which knows whether it is light or dark: a trace names its role.
    """
    if strip.metric is None:
        return None
    metric = METRICS[strip.metric]
    logarithmic = scale_of(strip, scale) == "log"
    limits = [strip.threshold.value] if strip.threshold else []
    values = [
        cell.value for line in strip.lines for cell in line.cells if _is_drawable(cell.value, logarithmic)
    ]
    low, high = _edges(values + limits, logarithmic=logarithmic)
    traces = [_trace(line, strip.metric, (low, high), logarithmic) for line in strip.lines]
    return {
        "traces": traces,
        "threshold": {"value": strip.threshold.value, "meaning": strip.threshold.meaning}
        if strip.threshold
        else None,
        "x_title": strip.axis.replace("_", " "),
        "y_title": metric.label,
        "is_error": metric.is_error,
        "logarithmic": logarithmic,
        "range": [low, high],
    }


def _trace(line: Line, metric: str, edges: tuple[float, float], logarithmic: bool) -> dict[str, Any]:
    shown = [cell for cell in line.cells if cell.value is not None]
    return {
        "name": line.label,
        "x": [cell.label for cell in shown],
        "y": [_drawn(cell.value or 0.0, *edges, logarithmic) for cell in shown],
        "shown": [write(cell.value, metric) for cell in shown],
        "state": [cell.state for cell in shown],
        "inside": [cell.is_inside for cell in shown],
        "at_edge": [not _is_drawable(cell.value, logarithmic) for cell in shown],
        "slice": [cell.slice for cell in shown],
    }


def _is_drawable(value: float | None, logarithmic: bool) -> TypeGuard[float]:
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


def logarithmic_range(errors: Sequence[float | None]) -> tuple[float, float] | None:
    """Return the least and the greatest error that a logarithmic scale can show; None if there is none."""
    known = [error for error in errors if error is not None and 0 < error < math.inf]
    return (min(known), max(known)) if known else None
