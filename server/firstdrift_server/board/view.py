"""Comparisons as rows, coordinates of their slices as columns: what came out, and what is new."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.board import BAD, Outcome, outcomes, runs_before
from firstdrift.catalogue.comparisons.records import Comparison, get_comparison, list_comparisons
from firstdrift.errors import NotInCatalogueError, SettingsError
from firstdrift.wording.message import Message
from firstdrift_server.parts.addresses import comparison_address, tree_address
from firstdrift_server.parts.summary import comparison_summary

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
        axis: which coordinate is laid out in columns; None for the one that tells most slices apart.
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
        return f"/board?{urlencode(given, doseq=True)}" if given else "/board"


def board_view(session: Session, asked: Asked) -> dict[str, Any]:
    """Lay the board out.

    Raises:
        SettingsError: there is no such coordinate or order.
    """
    _check(asked)
    comparisons, missing = _chosen(session, asked)
    hidden_rows = max(0, len(comparisons) - MOST_ROWS)
    comparisons = comparisons[:MOST_ROWS]
    before = runs_before(session, comparisons) if asked.news else {}
    found = outcomes(session, {*(each.id for each in comparisons), *before.values()})
    axis = asked.axis or _widest([found.get(each.id, []) for each in comparisons])
    cells = {number: _cells(number, slices, axis) for number, slices in found.items()}
    rows = [
        _row(session, each, cells.get(each.id, {}), cells.get(before.get(each.id, -1)), before.get(each.id))
        for each in comparisons
    ]
    rows.sort(key=_order(asked.sort))
    keys = sorted({key for row in rows for key in row["cells"]}, key=lambda key: -1 if key is None else key)
    alike_columns, alike_rows = 0, 0
    if asked.differences:
        differing = [key for key in keys if _differs([row["cells"].get(key) for row in rows])]
        alike_columns = len(keys) - len(differing)
        keys = differing
        kept = _without_alike(rows, keys)
        alike_rows = len(rows) - len(kept)
        rows = kept
    return {
        "rows": [row | {"cells": [row["cells"].get(key) for key in keys[:MOST_COLUMNS]]} for row in rows],
        "columns": keys[:MOST_COLUMNS],
        "axis": axis,
        "axes": list(AXES),
        "sorts": list(SORTS),
        "sort": asked.sort,
        "text": asked.text,
        "chosen": list(asked.chosen),
        "differences": asked.differences,
        "news": asked.news,
        "missing": missing,
        "hidden_rows": hidden_rows,
        "hidden_columns": max(0, len(keys) - MOST_COLUMNS),
        "alike_columns": alike_columns,
        "alike_rows": alike_rows,
        "address": asked.address(),
        "all": asked.address(c=(), q=""),
        "everything": asked.address(differences=0),
        "is_live": any(row["job"]["is_open"] for row in rows),
        "changes": _count_changes(rows) if asked.news else None,
    }


def _check(asked: Asked) -> None:
    if asked.axis is not None and asked.axis not in AXES:
        raise SettingsError(
            Message.of("server.no_such_coordinate", name=asked.axis),
            hint=Message.of("server.choose_one_of", names=AXES),
        )
    if asked.sort not in SORTS:
        raise SettingsError(
            Message.of("server.no_such_order", name=asked.sort),
            hint=Message.of("server.choose_one_of", names=SORTS),
        )


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


def _widest(of_comparisons: Iterable[Sequence[Outcome]]) -> str:
    """Choose the coordinate that has most values; of equal ones, the first."""
    slices = [each for found in of_comparisons for each in found]
    values = {axis: len({getattr(each.coordinates, axis) for each in slices}) for axis in AXES}
    return max(AXES, key=lambda axis: values[axis])


def _cells(comparison: int, slices: Sequence[Outcome], axis: str) -> dict[Key, dict[str, Any]]:
    """Give for each coordinate the worst of its slices: where it all began, or the first of them."""
    together: dict[Key, list[Outcome]] = {}
    for each in slices:
        together.setdefault(getattr(each.coordinates, axis), []).append(each)
    return {key: _cell(comparison, found) for key, found in together.items()}


def _cell(comparison: int, slices: Sequence[Outcome]) -> dict[str, Any]:
    worst = max(slices, key=lambda each: (each.verdict.severity, each.is_first, -each.position))
    return {
        "verdict": str(worst.verdict),
        "is_bad": worst.verdict in BAD,
        "node": worst.node,
        "short": None if worst.node is None else _short(worst.node),
        "slice": worst.position,
        "slice_name": worst.coordinates.describe(),
        "slices": len(slices),
        "bad_slices": sum(each.verdict in BAD for each in slices),
        "address": tree_address(comparison, worst.position, row=worst.row),
        "change": None,
    }


def _short(node: str) -> str:
    """Keep the end of a name, which tells nodes apart: "7.mlp.down_proj"."""
    return ".".join(node.split(".")[-3:])


def _row(
    session: Session,
    comparison: Comparison,
    cells: Mapping[Key, dict[str, Any]],
    cells_before: Mapping[Key, dict[str, Any]] | None,
    before: int | None,
) -> dict[str, Any]:
    findings = comparison.findings
    token = findings.first_bad_token if findings else None
    node = findings.first_bad_node if findings else None
    name = (node.module or node.target or node.golden) if node else None
    if cells_before is not None:
        keys = {**cells, **cells_before}
        cells = {
            key: cells[key] | {"change": _change(cells[key], cells_before.get(key))}
            for key in keys
            if key in cells
        }
    return comparison_summary(session, comparison) | {
        "first_bad_token": None if token is None else token.coordinates.token,
        "first_bad_node": name,
        "first_bad_short": None if name is None else _short(name),
        "is_unnamed": name is None and any(cell["is_bad"] for cell in cells.values()),
        "first_address": None
        if node is None
        else next(
            (
                tree_address(comparison.id, cell["slice"], row=node.row)
                for cell in cells.values()
                if cell["slice_name"] == node.coordinates.describe()
            ),
            comparison_address(comparison.id),
        ),
        "before": before,
        "cells": cells,
        "alike": 0,
    }


def _change(now: Mapping[str, Any], before: Mapping[str, Any] | None) -> str:
    """Say what has become of a cell since the run before: new, fixed, elsewhere, as before."""
    was_bad = before is not None and before["is_bad"]
    if now["is_bad"] and not was_bad:
        return "new"
    if was_bad and not now["is_bad"]:
        return "fixed"
    if before is not None and now["is_bad"] and now["node"] != before["node"]:
        return "elsewhere"
    return "as before" if before is not None else "not compared before"


def _count_changes(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    changes = [cell["change"] for row in rows for cell in row["cells"].values()]
    return {change: changes.count(change) for change in ("new", "fixed", "elsewhere")}


def _look(cell: Mapping[str, Any] | None) -> tuple[Any, ...]:
    return () if cell is None else (cell["verdict"], cell["node"], cell["change"])


def _differs(cells: Sequence[Mapping[str, Any] | None]) -> bool:
    """Tell whether the cells of a column differ; those of a single row cannot, and are shown."""
    return len(cells) < 2 or len(set(map(_look, cells))) > 1  # noqa: PLR2004


def _without_alike(rows: Sequence[dict[str, Any]], keys: Sequence[Key]) -> list[dict[str, Any]]:
    """Keep the first of rows that are alike, and say how many more there are."""
    kept: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        look = (row["state"], *(_look(row["cells"].get(key)) for key in keys))
        if look in kept:
            kept[look]["alike"] += 1
        else:
            kept[look] = row
    return list(kept.values())


def _order(sort: str) -> Any:  # noqa: ANN401 (a key of any kind)
    match sort:
        case "name":
            return lambda row: (row["target"]["name"].lower(), -row["id"])
        case "errors":
            return lambda row: (-(row["counts"] or {}).get("error", 0), -row["id"])
        case "first":
            return lambda row: (
                row["first_bad_token"] is None,
                row["first_bad_token"] or 0,
                row["first_bad_node"] is None,
                -row["id"],
            )
        case _:
            return lambda row: -row["id"]
