"""Comparisons as rows, coordinates of their slices as columns: what came out, and what is new."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import asdict, replace
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.board import Outcome, outcomes, runs_before
from firstdrift.catalogue.comparisons.records import Comparison, get_comparison, list_comparisons
from firstdrift.catalogue.tables import BAD
from firstdrift.errors import NotInCatalogueError
from firstdrift.groups import gathered
from firstdrift.model.node import Direction
from firstdrift.verdict.judgement import Finding
from firstdrift.wording.message import Message
from firstdrift_server.board.sparks import Numbers, numbers_of
from firstdrift_server.parts.addresses import comparison_address, tree_address, with_query
from firstdrift_server.parts.summary import ComparisonSummary, comparison_summary
from firstdrift_server.validation import require_known

MOST_ROWS = 200
MOST_COLUMNS = 200

AXES = ("token", "step", "rank", "micro_step")
SORTS = ("newest", "name", "errors", "first")

Key = int | None
"""A coordinate: a column."""


class Asked(Struct, frozen=True):
    """What an address asks for.

    Attributes:
        chosen: ids of comparisons; all that match `text` if empty.
        text: part of paths, notes or findings.
        axis: which coordinate is laid out in columns; None for the one that most comparisons have.
        differences: leave out columns and rows that are alike.
        news: say what is new since the run before.
        sort: one of SORTS.
    """

    chosen: tuple[int, ...] = ()
    text: str = ""
    axis: str | None = None
    differences: bool = False
    news: bool = False
    sort: str = SORTS[0]

    def address(self, **changed: object) -> str:
        """Return the address of this board, with changes."""
        said: dict[str, object] = {
            "c": self.chosen,
            "q": self.text,
            "axis": self.axis,
            "differences": int(self.differences),
            "new": int(self.news),
            "sort": "" if self.sort == SORTS[0] else self.sort,
        } | changed
        given = {name: value for name, value in said.items() if value}
        return with_query("/board", urlencode(given, doseq=True))


class Cell(Struct, frozen=True):
    """The worst of the slices of a comparison that share a coordinate.

    Attributes:
        short: the end of the name of the node.
        operator: short name of the operator that is bad, where the node is the module around it.
        slice: position of the slice.
        slices: so many share the coordinate; `bad_slices` of them are bad.
        change: what has become of it since the run before, if that is asked for.
        numbers: its error, and those of its layers; None of cells for which there is no room.
    """

    verdict: str
    is_bad: bool
    node: str | None
    short: str | None
    slice: int
    slice_name: Message
    slices: int
    bad_slices: int
    address: str
    change: str | None = None
    numbers: Numbers | None = None
    operator: str | None = None

    @property
    def look(self) -> tuple[str | None, ...]:
        """What cells have in common that are alike."""
        return self.verdict, self.node, self.operator, self.change


class Line(Struct, frozen=True):
    """A comparison, what came out at each coordinate, and the run before that it is held against."""

    comparison: Comparison
    summary: ComparisonSummary
    cells: Mapping[Key, Cell]
    before: int | None

    @property
    def token(self) -> int | None:
        """The first bad token."""
        findings = self.comparison.findings
        first = findings.first_bad_token if findings else None
        return first.coordinates.token if first else None

    @property
    def node(self) -> Finding | None:
        """The first bad node."""
        return self.comparison.findings.first_bad_node if self.comparison.findings else None


class BoardRow(ComparisonSummary, frozen=True, kw_only=True):
    """A comparison on the board, as all lists show it, with its cells.

    Attributes:
        is_unnamed: something is bad, and no node can be named.
        inputs_differ: the runs were given different inputs.
        first_address: where the first bad node is seen.
        before: the run that it is held against.
        alike: so many more look like it, and are left out.
    """

    first_bad_token: int | None
    first_bad_node: str | None
    first_bad_short: str | None
    first_bad_operator: str | None
    first_bad_direction: Direction | None
    is_unnamed: bool
    inputs_differ: bool
    first_address: str | None
    before: int | None
    cells: list[Cell | None]
    alike: int


class BoardView(Struct, frozen=True, kw_only=True):
    """Comparisons as rows, coordinates of their slices as columns.

    Attributes:
        missing: ids that were asked for, and are gone.
        hidden_rows: rows for which there is no room; `alike_rows` are like others. Likewise columns.
        all: address of all comparisons; `everything` that of this board without leaving out what is alike.
        has_tokens: a token is bad in one of them.
        changes: how many cells are new, fixed or elsewhere since the run before; None unless asked for.
    """

    rows: list[BoardRow]
    columns: list[Key]
    axis: str
    axes: tuple[str, ...] = AXES
    sorts: tuple[str, ...] = SORTS
    sort: str
    text: str
    chosen: tuple[int, ...]
    differences: bool
    news: bool
    missing: list[int]
    hidden_rows: int
    hidden_columns: int
    alike_columns: int
    alike_rows: int
    address: str
    all: str
    everything: str
    is_live: bool
    has_tokens: bool
    changes: dict[str, int] | None


def board_view(session: Session, asked: Asked) -> BoardView:
    """Lay the board out."""
    _check(asked)
    comparisons, missing = _chosen(session, asked)
    axis, lines = _lines(session, comparisons[:MOST_ROWS], asked)
    keys = sorted({key for line in lines for key in line.cells}, key=lambda key: -1 if key is None else key)
    columns, groups = keys, [[line] for line in lines]
    if asked.differences:
        columns = [key for key in keys if _differs([line.cells.get(key) for line in lines])]
        groups = _alike(lines, columns)
    kept = [group[0] for group in groups]
    shown = columns[:MOST_COLUMNS]
    rows = [_row(group[0], shown, alike=len(group) - 1) for group in groups]
    return BoardView(
        rows=_with_numbers(session, rows),
        columns=shown,
        axis=axis,
        sort=asked.sort,
        text=asked.text,
        chosen=asked.chosen,
        differences=asked.differences,
        news=asked.news,
        missing=missing,
        hidden_rows=max(0, len(comparisons) - MOST_ROWS),
        hidden_columns=len(columns) - len(shown),
        alike_columns=len(keys) - len(columns),
        alike_rows=len(lines) - len(kept),
        address=asked.address(),
        all=asked.address(c=(), q=""),
        everything=asked.address(differences=0),
        has_tokens=any(row.first_bad_token is not None for row in rows),
        is_live=any(line.summary.job.is_open for line in kept),
        changes=_count_changes(kept) if asked.news else None,
    )


def _with_numbers(session: Session, rows: Sequence[BoardRow]) -> list[BoardRow]:
    """Add the numbers of the cells that are shown, as far as there is room."""
    numbers = numbers_of(session, {row.id: [cell.slice for cell in row.cells if cell] for row in rows})
    return [
        replace(
            row,
            cells=[cell and replace(cell, numbers=numbers[row.id].get(cell.slice)) for cell in row.cells],
        )
        for row in rows
    ]


def _lines(session: Session, comparisons: Sequence[Comparison], asked: Asked) -> tuple[str, list[Line]]:
    """Lay comparisons out along a coordinate: the one asked for, or the one that most of them have."""
    before = runs_before(session, comparisons) if asked.news else {}
    found = outcomes(session, {*(each.id for each in comparisons), *before.values()})
    axis = asked.axis or _widest([found.get(each.id, []) for each in comparisons])
    cells = {number: _cells(number, slices, axis) for number, slices in found.items()}
    lines = []
    for each in comparisons:
        own, run_before = cells.get(each.id, {}), before.get(each.id)
        earlier = None if run_before is None else cells.get(run_before)
        changed = own
        if earlier is not None:
            changed = {
                key: replace(cell, change=_change(cell, earlier.get(key))) for key, cell in own.items()
            }
        lines.append(Line(each, comparison_summary(session, each), changed, run_before))
    return axis, sorted(lines, key=_order(asked.sort))


def _check(asked: Asked) -> None:
    if asked.axis is not None:
        require_known(asked.axis, AXES, Message.of("server.no_such_coordinate", name=asked.axis))
    require_known(asked.sort, SORTS, Message.of("server.no_such_order", name=asked.sort))


def _chosen(session: Session, asked: Asked) -> tuple[Sequence[Comparison], list[int]]:
    """Look up the comparisons, and list the ids of those that are gone."""
    if not asked.chosen:
        return list_comparisons(session, text=asked.text, limit=MOST_ROWS + 1), []
    found, missing = [], []
    for number in dict.fromkeys(asked.chosen):
        try:
            comparison = get_comparison(session, number)
        except NotInCatalogueError:
            missing.append(number)
        else:
            (missing.append(number) if comparison.deleted_at else found.append(comparison))
    return found, missing


def _widest(of_comparisons: Sequence[Sequence[Outcome]]) -> str:
    """Choose the coordinate that most comparisons have; of equal ones, the one with most values."""
    of_axis = {
        axis: [{getattr(each.coordinates, axis) for each in found} - {None} for found in of_comparisons]
        for axis in AXES
    }
    return max(AXES, key=lambda axis: (sum(map(bool, of_axis[axis])), len(set().union(*of_axis[axis]))))


def _cells(comparison: int, slices: Sequence[Outcome], axis: str) -> dict[Key, Cell]:
    """Give for each coordinate the worst of its slices: where it all began, or the first of them."""
    together = gathered((getattr(each.coordinates, axis), each) for each in slices)
    return {key: _cell(comparison, found) for key, found in together.items()}


def _cell(comparison: int, slices: Sequence[Outcome]) -> Cell:
    worst = max(slices, key=lambda each: (each.verdict.severity, each.is_first, -each.position))
    return Cell(
        verdict=str(worst.verdict),
        is_bad=worst.verdict in BAD,
        node=worst.node,
        short=None if worst.node is None else _short(worst.node),
        slice=worst.position,
        slice_name=worst.coordinates.name(),
        slices=len(slices),
        bad_slices=sum(each.verdict in BAD for each in slices),
        address=tree_address(comparison, worst.position, row=worst.row),
        operator=worst.operator,
    )


def _short(node: str) -> str:
    """Keep the end of a name, which tells nodes apart: "7.mlp.down_proj"."""
    return ".".join(node.split(".")[-3:])


def _row(line: Line, columns: Sequence[Key], *, alike: int) -> BoardRow:
    """Describe a comparison with its cells in these columns."""
    node, cells = line.node, line.cells.values()
    name = node.name if node else None
    return BoardRow(
        **asdict(line.summary),
        first_bad_token=line.token,
        first_bad_node=name,
        first_bad_short=name and _short(name),
        first_bad_operator=node.operator if node else None,
        first_bad_direction=node.direction if node else None,
        is_unnamed=name is None and any(cell.is_bad for cell in cells),
        inputs_differ=bool(line.comparison.findings and line.comparison.findings.input_differs),
        first_address=_first_address(line.comparison.id, node, cells) if node else None,
        before=line.before,
        cells=list(map(line.cells.get, columns)),
        alike=alike,
    )


def _first_address(comparison: int, node: Finding, cells: Iterable[Cell]) -> str:
    where = node.coordinates.name()
    here = (cell.slice for cell in cells if cell.slice_name == where)
    trees = (tree_address(comparison, position, row=node.row) for position in here)
    return next(trees, comparison_address(comparison))


def _change(now: Cell, before: Cell | None) -> str:
    """Say what has become of a cell since the run before: new, fixed, elsewhere, as before."""
    was_bad = before is not None and before.is_bad
    if now.is_bad != was_bad:
        return "new" if now.is_bad else "fixed"
    if before is None:
        return "not compared before"
    is_elsewhere = (now.node, now.operator) != (before.node, before.operator)
    return "elsewhere" if now.is_bad and is_elsewhere else "as before"


def _count_changes(lines: Sequence[Line]) -> dict[str, int]:
    changes = [cell.change for line in lines for cell in line.cells.values()]
    return {change: changes.count(change) for change in ("new", "fixed", "elsewhere")}


def _look(cell: Cell | None) -> tuple[str | None, ...]:
    return () if cell is None else cell.look


def _differs(cells: Sequence[Cell | None]) -> bool:
    """Tell whether the cells of a column differ; those of a single row cannot, and are shown."""
    return len(cells) < 2 or len(set(map(_look, cells))) > 1  # noqa: PLR2004


def _alike(lines: Sequence[Line], keys: Sequence[Key]) -> list[list[Line]]:
    """Put the runs of one target together that look alike in these columns."""
    groups: list[list[Line]] = []
    looks: dict[int, tuple[object, ...]] = {}
    for line in lines:
        look = (line.summary.state, *(_look(line.cells.get(key)) for key in keys))
        alike = (one for one in groups if looks[one[0].comparison.id] == look)
        group = next((one for one in alike if _is_same_target(one[0].comparison, line.comparison)), None)
        if group is None:
            looks[line.comparison.id] = look
            groups.append([line])
        else:
            group.append(line)
    return groups


def _is_same_target(one: Comparison, other: Comparison) -> bool:
    """Tell whether two comparisons are runs of one target, by where they lie."""
    first, second = one.target_path, other.target_path
    is_near = first.name == second.name or first.parent == second.parent
    return one.golden_path == other.golden_path and is_near


def _order(sort: str) -> Callable[[Line], tuple[Any, ...]]:
    """Say by what lines are sorted; the newest first where that is the same."""

    def key(line: Line) -> tuple[Any, ...]:
        match sort:
            case "name":
                return (line.summary.target.name.lower(),)
            case "errors":
                return (-line.comparison.counts.error if line.comparison.counts else 0,)
            case "first":
                return (line.token is None, line.token or 0, line.node is None)
        return ()

    return lambda line: (*key(line), -line.comparison.id)
