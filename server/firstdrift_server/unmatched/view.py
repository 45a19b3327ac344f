"""What has no partner in a slice: nodes of either side, and tensors of nodes that have one."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import get_slice_pair
from firstdrift.catalogue.comparisons.tree import rows_at
from firstdrift.matching.plan import UnmatchedTensor
from firstdrift.wording.message import Message
from firstdrift_server.context import Context
from firstdrift_server.parts.addresses import comparison_address, match_address, tree_address
from firstdrift_server.parts.summary import ComparisonSummary, comparison_summary
from firstdrift_server.parts.tree_row import RowView, row_view

MOST = 2000
"""More than this nobody reads; the tree shows them all."""


class TensorLeftOver(Struct, frozen=True):
    """A tensor of a matched node, which has no partner itself."""

    node: str
    tensor: str
    dtype: str
    shape: tuple[int, ...] | None


class UnmatchedView(Struct, frozen=True, kw_only=True):
    """What was left over in a slice.

    Attributes:
        tree: address of the tree with the unmatched rows alone; `tree_base` of the whole.
        nodes: rows by side, no more than `MOST` in all; `hidden` is how many there are besides.
        tensors: by side, likewise.
    """

    comparison: ComparisonSummary
    comparison_address: str
    tree: str
    tree_base: str
    match: str
    slice: int
    slice_name: Message
    nodes: dict[str, list[RowView]]
    hidden: int
    tensors: dict[str, list[TensorLeftOver]]


def unmatched_view(session: Session, context: Context, comparison: int, position: int) -> UnmatchedView:
    """List what was left over."""
    pair = get_slice_pair(session, comparison, position)
    outline = context.outline(session, pair)
    indexes = np.flatnonzero(outline.unmatched)
    rows = list(map(row_view, rows_at(session, pair.id, indexes[:MOST].tolist())))
    return UnmatchedView(
        comparison=comparison_summary(session, get_comparison(session, comparison)),
        comparison_address=comparison_address(comparison, slice=position),
        tree=tree_address(comparison, position, verdict="unmatched"),
        tree_base=tree_address(comparison, position),
        match=match_address(comparison, position),
        slice=position,
        slice_name=pair.target.name(),
        nodes={
            "golden": [row for row in rows if row.golden],
            "target": [row for row in rows if row.target],
        },
        hidden=max(0, len(indexes) - MOST),
        tensors={"golden": _left_over(pair.unmatched_golden), "target": _left_over(pair.unmatched_target)},
    )


def _left_over(tensors: Sequence[UnmatchedTensor]) -> list[TensorLeftOver]:
    return [
        TensorLeftOver(left.node, left.record.label, left.record.dtype, left.record.shape)
        for left in tensors[:MOST]
    ]
