"""Rows of the tree as pages and JSON show them."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from firstdrift.catalogue.tree import Row, kinds_of_rows, rows_at
from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.verdict.judgement import ORIGINS
from firstdrift_server.tree.state import UNMATCHED
from firstdrift_server.tree.view import TreeView


def window(session: Session, slice_pair: int, view: TreeView, start: int, count: int) -> list[dict[str, Any]]:
    """Describe the visible rows from place `start` on, at most `count`."""
    indexes = view.visible[start : start + count].tolist()
    worst = {index: _worst_below(view, index) for index in indexes}
    kinds = kinds_of_rows(session, slice_pair, {*indexes, *filter(None, worst.values())})
    rows = rows_at(session, slice_pair, indexes)
    return [_seen(row, view, place, worst[row.tree.index], kinds) for place, row in enumerate(rows, start)]


def row_object(row: Row, kinds: Collection[MeasurementKind] = ()) -> dict[str, Any]:
    """Describe a row: what it is, what it was matched with, and what is said of it.

    `own` is true if something can be said of the node itself, and not just of what lies in it;
    `measured_from` are the kinds of its measurements: numbers from statistics are lower bounds.
    """
    tree, judged, match = row.tree, row.judgement, row.match
    return {
        "row": tree.index,
        "parent": tree.parent,
        "last": tree.last,
        "depth": tree.depth,
        "order": tree.order,
        "label": tree.label,
        "kind": str(tree.kind),
        "type_name": tree.type_name,
        "direction": str(tree.direction),
        "path": tree.path,
        "micro_step": tree.micro_step,
        "golden": list(tree.golden),
        "target": list(tree.target),
        "match": match
        and {
            "origin": str(match.origin),
            "score": match.score,
            "doubtful": match.doubtful,
            "reasons": list(match.reasons),
        },
        "verdict": UNMATCHED if match is None else str(judged.verdict),
        "class": str(judged.node_class),
        "own": bool(kinds) or judged.node_class in ORIGINS,
        "measured_from": sorted(kinds),
        "reasons": list(judged.reasons),
        "input_error": judged.input_error,
        "parameter_error": judged.parameter_error,
        "output_error": judged.output_error,
        "amplification": judged.amplification,
        "below": {
            "error": judged.below.error,
            "warning": judged.below.warning,
            "incomparable": judged.below.incomparable,
            "unmatched": judged.below.unmatched,
            "origins": judged.below.origins,
            "worst": str(judged.below.worst),
        },
    }


def _seen(
    row: Row, view: TreeView, place: int, worst: int | None, kinds: Mapping[int, frozenset[MeasurementKind]]
) -> dict[str, Any]:
    index = row.tree.index
    return row_object(row, kinds.get(index, frozenset())) | {
        "place": place,
        "has_children": row.has_children,
        "is_open": bool(view.opened[index]) and row.has_children,
        "is_selected": index == view.selected,
        "is_context": not view.matching[index],
        "worst_below": None if worst is None else float(view.outline.output_error[worst]),
        "worst_from": [] if worst is None else sorted(kinds.get(worst, ())),
    }


def _worst_below(view: TreeView, index: int) -> int | None:
    """Return the row with the largest output error below a row; None if none is above zero."""
    errors = np.nan_to_num(view.outline.output_error[index + 1 : view.outline.last[index] + 1], posinf=np.inf)
    worst = int(np.argmax(errors)) if len(errors) else None
    return None if worst is None or errors[worst] <= 0 else index + 1 + worst
