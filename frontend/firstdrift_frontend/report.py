"""A comparison as one file for people: an HTML page that needs no server and no script, or Markdown.

The page is in the look of all pages, below 2 MB whatever was compared, and asks nothing of any other place.
"""

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.exports.layer_columns import layer_columns, moment_of
from firstdrift.exports.summary import Layer, Summary
from firstdrift.verdict.judgement import Verdict
from firstdrift.wording.message import Argument, Message
from firstdrift_frontend import STATIC
from firstdrift_frontend.languages import SOURCE
from firstdrift_frontend.rendering import render
from firstdrift_frontend.shades import shade_of

LARGEST = 2_000_000
"""Bytes of the page, which names of any length keep to."""

_SLICES, _NOTES, _NODES = 400, 100, 150
_LONGEST_NAME, _LONGEST_TEXT = 200, 1500
_CELLS, _LAYERS, _ROWS = 24_000, 1000, 300
_SHADES = 9


class Shade(Struct, frozen=True):
    """The cells of a map that have one colour, as an SVG path."""

    name: str
    path: str


class LayerMap(Struct, frozen=True):
    """The output errors of layers as a picture: a column for each layer, a row for each slice or several.

    Attributes:
        layers: names of the columns.
        labels: where rows are named: number of the row, and name.
        every: so many slices share a row, which shows the worst of them.
        first: row and column of the layer in which the first bad node lies; None if it lies in none.
        limit: error at which the colours change; None if the rules have none.
        left_out: layers for which there is no room.
    """

    layers: tuple[str, ...]
    labels: tuple[tuple[int, Message], ...]
    rows: int
    every: int
    shades: tuple[Shade, ...]
    first: tuple[int, int] | None
    limit: float | None
    left_out: int


def report_html(summary: Summary, language: str = SOURCE) -> str:
    """Return the page."""
    style = "".join((STATIC / name).read_text("utf-8") for name in ("app.css", "comparison/page.css"))
    written = datetime.now(UTC)
    for nodes, slices, notes in ((_NODES, _SLICES, _NOTES), (40, 100, 20), (5, 20, 2)):
        shown = _cut(summary, nodes, notes)
        page = render(
            "report.html",
            language,
            report=shown,
            map=layer_map(summary),
            style=style,
            written=written,
            most=slices,
            inputs_differ=frozenset(found.coordinates for found in summary.findings.input_differs),
        )
        if len(page.encode()) < LARGEST:
            break
    return page


def report_markdown(summary: Summary, language: str = SOURCE) -> str:
    """Return the summary as Markdown: the finding, the counts, the worst nodes, the notes."""
    return render("report.md", language, report=_cut(summary, 30, _NOTES), bad=summary.bad)


def _cut(summary: Summary, nodes: int, notes: int) -> Summary:
    """Keep so many nodes and notes, and of each name and text as much as people read."""
    worst = tuple(
        replace(
            node,
            name=cut(node.name),
            module=None if node.module is None else cut(node.module),
            reasons=tuple(map(_shortened, node.reasons[:3])),
        )
        for node in summary.worst[:nodes]
    )
    written = tuple(
        replace(note, node=cut(note.node), text=cut(note.text, _LONGEST_TEXT))
        for note in summary.written[:notes]
    )
    return replace(summary, worst=worst, written=written, notes=tuple(map(_shortened, summary.notes[:40])))


def _shortened(message: Message) -> Message:
    """Shorten the names and texts that a message speaks of."""

    def short(argument: Argument) -> Argument:
        match argument:
            case Message():
                return _shortened(argument)
            case str():
                return cut(argument, _LONGEST_TEXT)
        return argument

    return Message(message.id, {name: short(argument) for name, argument in message.arguments.items()})


def cut(text: str, most: int = _LONGEST_NAME) -> str:
    """Shorten a text in its middle: both ends of a name say what it is."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\N{HORIZONTAL ELLIPSIS}{text[-(most // 2) :]}"


def layer_map(summary: Summary) -> LayerMap | None:
    """Draw the map of layers; None if there are no layers."""
    if not summary.layers:
        return None
    found = layer_columns(
        (moment_of(summary.slices[layer.at].coordinates), layer.path) for layer in summary.layers
    )
    names = found.names[:_LAYERS]
    columns = {path: column for path, column in found.of_path.items() if column < len(names)}
    slices = len(summary.slices)
    every = -(-slices // max(1, min(slices, _ROWS, _CELLS // len(names))))
    rows = -(-slices // every)
    worst = _worst_errors(summary.layers, columns, every)
    labelled = range(0, rows, max(1, -(-rows // 20)))
    return LayerMap(
        layers=names,
        labels=tuple((row, summary.slices[row * every].coordinates.name()) for row in labelled),
        rows=rows,
        every=every,
        shades=_shades(worst, summary.limit, rows),
        first=_first(summary, columns, every),
        limit=summary.limit,
        left_out=len(found.names) - len(names),
    )


def _worst_errors(
    layers: Iterable[Layer], columns: Mapping[str, int], every: int
) -> dict[tuple[int, int], tuple[float, Verdict]]:
    """Return the largest error of each cell, with its verdict, by row and column."""
    worst: dict[tuple[int, int], tuple[float, Verdict]] = {}
    for layer in layers:
        column = columns.get(layer.path)
        if column is not None and layer.error is not None:
            place = (layer.at // every, column)
            size = _size(layer.error)
            if place not in worst or size > worst[place][0]:
                worst[place] = size, layer.verdict
    return worst


def _shades(
    worst: Mapping[tuple[int, int], tuple[float, Verdict]], limit: float | None, rows: int
) -> tuple[Shade, ...]:
    colours: list[dict[int, str]] = [{} for _ in range(rows)]
    for (row, column), (error, verdict) in worst.items():
        colours[row][column] = _shade(error, limit, verdict)
    shades: dict[str, list[str]] = {}
    for row, here in enumerate(colours):
        _draw_row(row, here, shades)
    return tuple(Shade(name, "".join(paths)) for name, paths in sorted(shades.items()))


def _draw_row(row: int, colours: dict[int, str], shades: dict[str, list[str]]) -> None:
    """Draw the cells of a row, neighbours of one colour as one."""
    column, width = 0, max(colours, default=-1) + 1
    while column < width:
        shade, start = colours.get(column), column
        while column < width and colours.get(column) == shade:
            column += 1
        if shade is not None:
            shades.setdefault(shade, []).append(f"M{start} {row}h{column - start}v1h{start - column}z")


def _shade(error: float, limit: float | None, verdict: Verdict) -> str:
    if math.isinf(error):
        return "nan"
    if error == 0:
        return "equal"
    return str(round((_SHADES - 1) * shade_of(error, limit, verdict)))


def _size(error: float) -> float:
    return math.inf if math.isnan(error) else error


def _first(summary: Summary, columns: dict[str, int], every: int) -> tuple[int, int] | None:
    node = summary.findings.first_bad_node
    if node is None:
        return None

    def holds(layer: Layer) -> bool:
        here = summary.slices[layer.at].coordinates == node.coordinates
        return here and layer.row <= node.row <= layer.last

    layer = next(filter(holds, summary.layers), None)
    if layer is None or layer.path not in columns:
        return None
    return layer.at // every, columns[layer.path]
