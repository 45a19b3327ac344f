"""The output errors of the layers of a slice against their depth: where an error begins, and how it grows."""

import math

from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.charts import LayerErrors, layer_errors
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair
from firstdrift.catalogue.comparisons.tree import row_fields_at
from firstdrift.groups import known
from firstdrift.verdict.limit import limit_of_nodes, limit_of_row
from firstdrift_server.parts.addresses import tree_address
from firstdrift_server.parts.layer_labels import layer_labels
from firstdrift_server.parts.measured_from import measured_by, measured_from
from firstdrift_server.parts.svg import LimitLine, Scale, Tick, limit_line, path_of

FEWEST = 3
"""So many layers make a picture."""

MOST_LETTERS = 100
"""So many letters of labels fit below the picture, with room between them."""

WIDTH, HEIGHT = 900, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 32, 14, 160
_AXIS_END = 12


class DepthPoint(Struct, frozen=True):
    """A layer, or the last output, with its error.

    Attributes:
        limit: that decided of it; None if the rules have none.
        measured_from: what its error comes from: statistics give lower bounds.
    """

    name: str
    label: str
    x: float
    y: float | None
    error: float | None
    verdict: str
    address: str
    is_here: bool
    limit: float | None
    measured_from: str


class Depth(Struct, frozen=True, kw_only=True):
    """The layers of a slice in the order of execution, as points on a line.

    Attributes:
        limit_line: above which errors are a fault's; None if the rules have none.
        every: so many points share a label.
    """

    points: list[DepthPoint]
    limit_line: LimitLine | None
    path: str
    ticks: list[Tick]
    every: int
    size: tuple[int, int] = (WIDTH, HEIGHT)


def depth_of(session: Session, pair: SlicePair) -> Depth | None:
    """Draw the errors of a slice against depth; None if too few layers are known."""
    layers = layer_errors(session, pair.comparison_id, [pair.position])
    if len(known(layers.errors)) < FEWEST:
        return None
    found = [*_layers(layers, pair), *_last_output(session, pair)]
    limits = [one.limit for one in found]
    scale = Scale.of((one.error for one in found), limits, _TOP, _BOTTOM)
    step = (WIDTH - _LEFT - _RIGHT) / (len(found) - 1)
    places = [round(_LEFT + number * step, 1) for number in range(len(found))]
    points = [
        DepthPoint(
            name=one.name,
            label=one.label,
            x=x,
            y=None if one.error is None else scale.y(one.error),
            error=one.error,
            verdict=one.verdict,
            address=tree_address(pair.comparison_id, pair.position, row=one.row),
            is_here=one.is_here,
            limit=one.limit,
            measured_from=one.measured_from,
        )
        for one, x in zip(found, places, strict=True)
    ]
    return Depth(
        points=points,
        limit_line=limit_line(limits, places, scale, (_LEFT, WIDTH - _AXIS_END)),
        path=path_of(None if point.y is None else (point.x, point.y) for point in points),
        ticks=scale.ticks,
        every=math.ceil(len(points) * max(len(point.label) for point in points) / MOST_LETTERS),
    )


class _Found(Struct, frozen=True):
    name: str
    label: str
    row: int
    error: float | None
    verdict: str
    limit: float | None
    measured_from: str
    is_here: bool


def _layers(layers: LayerErrors, pair: SlicePair) -> list[_Found]:
    limit = limit_of_nodes([pair.judgement])
    origin = next(iter(pair.judgement.own_origins), None)
    here = None if origin is None else layers.layer_of(pair.position, origin.row, origin.module)
    return [
        _Found(
            name=path,
            label=label,
            row=layers.rows[at],
            error=layers.errors[at],
            verdict=layers.verdicts[at],
            limit=limit_of_row(limit, layers.errors[at], layers.excused[at]),
            measured_from=measured_from(layers.kinds[at]),
            is_here=at == here,
        )
        for at, (path, label) in enumerate(zip(layers.paths, layer_labels(layers.paths), strict=True))
    ]


def _last_output(session: Session, pair: SlicePair) -> list[_Found]:
    """Return the logits, or the last output; nothing if neither is known."""
    judged = pair.judgement
    last, error = judged.logits, judged.logits_error
    if last is None:
        return []
    is_here = any(origin.row == last.row for origin in judged.own_origins[:1])
    _, excused = next(row_fields_at(session, pair.id, {last.row}, "judgement.excused_up_to"))
    limit = limit_of_row(limit_of_nodes([judged]), error, excused)
    label, measured = last.name.rpartition(".")[2], measured_by(last.metrics)
    return [_Found(last.name, label, last.row, error, str(last.verdict), limit, measured, is_here)]
