"""Rows of the tree as pages and JSON show them."""

from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from firstdrift.catalogue.tree import Row, rows_at
from firstdrift_server.tree.state import UNMATCHED
from firstdrift_server.tree.view import TreeView


def window(session: Session, slice_pair: int, view: TreeView, start: int, count: int) -> list[dict[str, Any]]:
    """Describe the visible rows from place `start` on, at most `count`."""
    indexes = view.visible[start : start + count].tolist()
    rows = rows_at(session, slice_pair, indexes)
    return [_seen(row, view, place) for place, row in enumerate(rows, start)]


def row_object(row: Row) -> dict[str, Any]:
    """Describe a row: what it is, what it was matched with, and what is said of it."""
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


def _seen(row: Row, view: TreeView, place: int) -> dict[str, Any]:
    index = row.tree.index
    errors_below = view.outline.output_error[index + 1 : row.tree.last + 1]
    worst_below = np.fmax.reduce(errors_below, initial=0.0)
    return row_object(row) | {
        "place": place,
        "has_children": row.has_children,
        "is_open": bool(view.opened[index]) and row.has_children,
        "is_selected": index == view.selected,
        "is_context": not view.matching[index],
        "worst_below": float(worst_below),
    }
