"""What has no partner in a slice: nodes of either side, and tensors of nodes that have one."""

from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair, get_slice_pair
from firstdrift.catalogue.comparisons.tree import rows_at
from firstdrift.matching.plan import UnmatchedTensor
from firstdrift_server.context import Context
from firstdrift_server.parts.addresses import comparison_address, match_address, tree_address
from firstdrift_server.parts.summary import comparison_summary
from firstdrift_server.parts.tree_row import row_object

MOST = 2000
"""More than this nobody reads; the tree shows them all."""


def unmatched_view(session: Session, context: Context, comparison: int, position: int) -> dict[str, Any]:
    """List what was left over."""
    pair = get_slice_pair(session, comparison, position)
    outline = context.outline(session, pair)
    indexes = np.flatnonzero(outline.unmatched)
    rows = list(map(row_object, rows_at(session, pair.id, indexes[:MOST].tolist())))
    return {
        "comparison": comparison_summary(session, get_comparison(session, comparison)),
        "comparison_address": comparison_address(comparison, slice=position),
        "tree": tree_address(comparison, position, verdict="unmatched"),
        "tree_base": tree_address(comparison, position),
        "match": match_address(comparison, position),
        "slice": position,
        "slice_name": pair.target.name(),
        "nodes": {
            "golden": [row for row in rows if row["golden"]],
            "target": [row for row in rows if row["target"]],
        },
        "hidden": max(0, len(indexes) - MOST),
        "tensors": {side: _tensors(pair, side) for side in ("golden", "target")},
    }


def _tensors(pair: SlicePair, side: str) -> list[dict[str, Any]]:
    left_over: tuple[UnmatchedTensor, ...] = getattr(pair, f"unmatched_{side}")
    return [
        {
            "node": left.node,
            "tensor": left.record.label,
            "dtype": left.record.dtype,
            "shape": None if left.record.shape is None else list(left.record.shape),
        }
        for left in left_over[:MOST]
    ]
