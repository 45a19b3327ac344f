"""The error of one node over tokens, steps or ranks, as a picture whose points lead to it there.

A line runs along one coordinate; in all others its slices are like the one that is shown. A node is known
again by its names: it may have another row in each slice.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.kept import kinds_of
from firstdrift.catalogue.comparisons.slice_pairs import SliceLabel, judgements_of, slice_labels_of
from firstdrift.catalogue.comparisons.tree import get_row, row_fields_at, rows_at, rows_of_nodes
from firstdrift.verdict.confidence import Quantity
from firstdrift.verdict.judgement import SliceJudgement
from firstdrift.verdict.limit import limit_of_nodes, limit_of_row
from firstdrift.verdict.tree import TreeRow
from firstdrift.wording.message import Message
from firstdrift_server.parts.addresses import address, node_address
from firstdrift_server.parts.measured_from import measured_from
from firstdrift_server.parts.svg import LimitLine, Scale, Tick, limit_line, path_of

AXES = ("token", "step", "rank", "micro_step")
MOST = 60
"""So many slices are looked at: those nearest to the one that is shown."""

WIDTH, HEIGHT = 1100, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 14, 160


class AxisLink(Struct, frozen=True):
    """A coordinate along which the line can run, and the address that chooses it."""

    name: str
    address: str


class Point(Struct, frozen=True):
    """The node in one slice; without an address it is not there."""

    slice: int
    name: Message
    label: str
    x: float
    y: float | None
    error: float | None
    verdict: str | None
    address: str | None
    is_here: bool
    limit: float | None
    measured_from: str


class OverSlices(Struct, frozen=True, kw_only=True):
    """The error of a node over slices.

    Attributes:
        axis: the coordinate along which the line runs, of those that can be chosen.
        limit: above which an error is a fault's; None if the rules have none. It lies at `limit_y`.
        limit_line: the limits that decided, which may differ by slice.
        path: of the line, for an SVG.
        every: so many points share a label.
        hidden: how many slices further away are left out.
        previous: the address of the node in the slice before; likewise next.
    """

    axis: str
    axes: list[AxisLink]
    points: list[Point]
    limit: float | None
    limit_y: float | None
    limit_line: LimitLine | None
    path: str
    ticks: list[Tick]
    every: int
    hidden: int
    previous: str | None
    next: str | None
    size: tuple[int, int] = (WIDTH, HEIGHT)


class _Found(Struct, frozen=True):
    """A row of a node in another slice."""

    row: int
    error: float | None
    verdict: str
    excused_up_to: float | None
    measured_from: str


def over_slices(session: Session, here: SliceLabel, index: int, along: str | None) -> OverSlices | None:
    """Draw the output error of a node over the slices of a comparison; None if it has one slice."""
    labels = slice_labels_of(session, here.comparison_id)
    axes = [axis for axis in AXES if len(_line(labels, here, axis)) > 1]
    if not axes:
        return None
    axis = along if along in axes else axes[0]
    line = _line(labels, here, axis)
    shown = _nearest(line, here)
    node = get_row(session, here.id, index).tree
    found = [_find(session, pair, node) for pair in shown]
    judged = judgements_of(session, [pair.id for pair in shown])
    limit = limit_of_nodes(judged.values())
    limits = [_limit(limit, one, judged[pair.id]) for pair, one in zip(shown, found, strict=True)]
    scale = Scale.of((one.error for one in found if one), limits, _TOP, _BOTTOM)
    step = (WIDTH - _LEFT - _RIGHT) / max(1, len(shown) - 1)
    places = [round(_LEFT + number * step, 1) for number in range(len(shown))]
    points = [
        _marked(_point(pair, axis, each, own_limit, scale, x), here.position)
        for pair, each, own_limit, x in zip(shown, found, limits, places, strict=True)
    ]
    own = node_address(here.comparison_id, here.position, index)
    return OverSlices(
        axis=axis,
        axes=[AxisLink(name, address(own, along=name) + "#over") for name in axes],
        points=points,
        limit=limit,
        limit_y=None if limit is None else scale.y(limit),
        limit_line=limit_line(limits, places, scale, (_LEFT, WIDTH - _RIGHT)),
        path=path_of(None if point.y is None else (point.x, point.y) for point in points),
        ticks=scale.ticks,
        every=-(-len(points) // 24),
        hidden=len(line) - len(shown),
        previous=_beside(points, here.position, -1),
        next=_beside(points, here.position, 1),
    )


def _line(labels: Sequence[SliceLabel], here: SliceLabel, axis: str) -> list[SliceLabel]:
    """List the slices that differ from this one in a coordinate, and in no other."""
    others = [name for name in AXES if name != axis]

    def rest(pair: SliceLabel) -> tuple[int | None, ...]:
        return tuple(getattr(pair.target, name) for name in others)

    return [pair for pair in labels if rest(pair) == rest(here)]


def _nearest(line: Sequence[SliceLabel], here: SliceLabel) -> Sequence[SliceLabel]:
    at = next(number for number, pair in enumerate(line) if pair.id == here.id)
    start = max(0, min(at - MOST // 2, len(line) - MOST))
    return line[start : start + MOST]


def row_in(session: Session, pair: SliceLabel, node: TreeRow) -> int | None:
    """Find the row of a node in another slice by its names on either side; None if it is not there."""
    for there in rows_at(session, pair.id, [node.index]):  # slices of one run have the same rows, as a rule
        if (there.tree.golden, there.tree.target) == (node.golden, node.target):
            return node.index
    for side, names in (("target", node.target), ("golden", node.golden)):
        if names and (found := rows_of_nodes(session, pair.id, side, names)):
            return min(found.values())
    return None


def _find(session: Session, pair: SliceLabel, node: TreeRow) -> _Found | None:
    row = row_in(session, pair, node)
    if row is None:
        return None
    judged = (f"judgement.{name}" for name in ("output_error", "verdict", "excused_up_to"))
    _, error, verdict, excused, kinds = next(row_fields_at(session, pair.id, {row}, *judged, "kinds"))
    return _Found(row, error, str(verdict), excused, measured_from(kinds_of(kinds)))


def _limit(limit: float | None, found: _Found | None, judged: SliceJudgement) -> float | None:
    """Return the limit that decided of a row: where an error starts at it, its own."""
    if found is None:
        return limit
    for origin in judged.origins:
        sure = origin.confidence if origin.row == found.row else None
        if sure is not None and sure.of is Quantity.OUTPUT:
            return sure.limit
    return limit_of_row(limit, found.error, found.excused_up_to)


def _point(
    pair: SliceLabel, axis: str, found: _Found | None, limit: float | None, scale: Scale, x: float
) -> Point:
    coordinate = getattr(pair.target, axis)
    error = found.error if found else None
    return Point(
        slice=pair.position,
        name=pair.target.name(),
        label=str(pair.position if coordinate is None else coordinate),
        x=x,
        y=None if error is None else scale.y(error),
        error=error,
        verdict=found.verdict if found else None,
        address=node_address(pair.comparison_id, pair.position, found.row) if found else None,
        is_here=False,
        limit=limit,
        measured_from=found.measured_from if found else "",
    )


def _marked(point: Point, here: int) -> Point:
    return point if point.slice != here else replace(point, is_here=True)


def _beside(points: Sequence[Point], here: int, step: int) -> str | None:
    """Return the address of the nearest point before or after the one that is shown at which the node is."""
    at = next(number for number, point in enumerate(points) if point.slice == here)
    rest = points[at + 1 :] if step > 0 else points[:at][::-1]
    return next((point.address for point in rest if point.address), None)
