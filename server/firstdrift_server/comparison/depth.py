"""The output errors of the layers of a slice against their depth: where an error begins, and how it grows."""

from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.charts import layer_errors
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair
from firstdrift.groups import known
from firstdrift.verdict.limit import limit_of_nodes
from firstdrift_server.parts.addresses import tree_address
from firstdrift_server.parts.svg import Scale, Tick, path_of

FEWEST = 3
"""So many layers make a picture."""

WIDTH, HEIGHT = 900, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 32, 14, 160


class DepthPoint(Struct, frozen=True):
    """A layer, or the last output, with its error."""

    name: str
    label: str
    x: float
    y: float | None
    error: float | None
    verdict: str
    address: str
    is_here: bool


class Depth(Struct, frozen=True, kw_only=True):
    """The layers of a slice in the order of execution, as points on a line.

    Attributes:
        limit: above which an error is a fault's; None if the rules have none. It lies at `limit_y`.
        every: so many points share a label.
    """

    points: list[DepthPoint]
    limit: float | None
    limit_y: float | None
    path: str
    ticks: list[Tick]
    every: int
    size: tuple[int, int] = (WIDTH, HEIGHT)


def depth_of(session: Session, pair: SlicePair) -> Depth | None:
    """Draw the errors of a slice against depth; None if too few layers are known."""
    layers = layer_errors(session, pair.comparison_id, [pair.position])
    if len(known(layers.errors)) < FEWEST:
        return None
    limit = limit_of_nodes([pair.judgement])
    last = pair.judgement.logits
    errors = [*layers.errors, *([pair.judgement.logits_error] if last else [])]
    scale = Scale.of(errors, limit, _TOP, _BOTTOM)
    step = (WIDTH - _LEFT - _RIGHT) / (len(errors) - 1)
    bad = {origin.row for origin in pair.judgement.own_origins[:1]}
    rows = [*layers.rows, *([last.row] if last else [])]
    names = [*layers.paths, *([last.name] if last else [])]
    verdicts = [*layers.verdicts, *([str(last.verdict)] if last else [])]
    lasts = [*layers.lasts, *rows[len(layers.lasts) :]]
    points = [
        DepthPoint(
            name=name,
            label=name.rpartition(".")[2],
            x=round(_LEFT + number * step, 1),
            y=None if error is None else scale.y(error),
            error=error,
            verdict=verdict,
            address=tree_address(pair.comparison_id, pair.position, row=row),
            is_here=any(row <= one <= end for one in bad),
        )
        for number, (name, error, verdict, row, end) in enumerate(
            zip(names, errors, verdicts, rows, lasts, strict=True)
        )
    ]
    return Depth(
        points=points,
        limit=limit,
        limit_y=None if limit is None else scale.y(limit),
        path=path_of(None if point.y is None else (point.x, point.y) for point in points),
        ticks=scale.ticks,
        every=-(-len(points) // 32),
    )
