"""The pairs of a comparison as lines of a table, one by one, as the database gives them."""

from collections.abc import Iterable, Iterator, Sequence

from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.overview import overviews_of
from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair, slice_pairs_of
from firstdrift.catalogue.comparisons.tree import Row, all_pairs, all_rows
from firstdrift.catalogue.dumps.nodes import types_of
from firstdrift.comparison.left_over import MatchedNames
from firstdrift.comparison.levels import level_of
from firstdrift.comparison.table import Line, PairLine, UnmatchedLine, unmatched_tensors
from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.wording.text import texts_of

_KINDS_OF_TABLES = (MeasurementKind.DATA, MeasurementKind.STATISTICS, MeasurementKind.DIGEST)


def stored_lines(session: Session, comparison_id: int) -> Iterator[Line]:
    """Give a line for each pair, unmatched node and unmatched tensor of a comparison, slice by slice."""
    get_comparison(session, comparison_id)
    for pair in slice_pairs_of(session, comparison_id):
        yield from _lines(session, pair)


def richest_kind(session: Session, comparison_id: int) -> MeasurementKind:
    """Say what the numbers of a comparison come from: data if any do, else statistics, else digests."""
    known = {kind for overview in overviews_of(session, comparison_id).values() for kind in overview.kinds}
    return next((kind for kind in _KINDS_OF_TABLES if kind in known), MeasurementKind.DATA)


def _lines(session: Session, pair: SlicePair) -> Iterator[Line]:
    rows = list(all_rows(session, pair.id))
    golden_types = types_of(session, pair.golden_slice_id)
    target_types = types_of(session, pair.target_slice_id)
    levels = [level_of(row.tree.kind, row.tree.path) for row in rows]
    of_rows = list(map(_of_row, rows))
    for found in all_pairs(session, pair.id):
        yield PairLine(
            pair.target,
            *of_rows[found.row],
            found.plan,
            found.measurement,
            found.judgement,
            golden_types.get(found.plan.golden_node, ""),
            target_types.get(found.plan.target_node, ""),
            levels[found.row],
        )
    yield from left_over_lines(pair, rows)


def left_over_lines(pair: SlicePair, rows: Sequence[Row]) -> Iterator[UnmatchedLine]:
    """Give the lines of what has no partner in a slice pair, of which the rows are given."""
    levels = [level_of(row.tree.kind, row.tree.path) for row in rows]
    yield from _unmatched_nodes(pair, rows)
    matched = {row.tree.match: row for row in rows if row.tree.match is not None}
    matches = {
        match: MatchedNames(row.tree.golden, row.tree.target, row.match is not None and row.match.doubtful)
        for match, row in matched.items()
    }
    of_matches = {match: levels[row.tree.index] for match, row in matched.items()}
    left = pair.unmatched_golden, pair.unmatched_target
    yield from unmatched_tensors(pair.target, *left, matches, of_matches)


def _of_row(row: Row) -> tuple[int, str | None, str, str]:
    origin = row.match.origin.value if row.match else ""
    return row.tree.order, row.tree.path, origin, row.judgement.node_class.value


def _unmatched_nodes(pair: SlicePair, rows: Iterable[Row]) -> Iterator[UnmatchedLine]:
    free = [row for row in rows if row.match is None]
    for side in ("golden", "target"):
        for row in free:
            tree, reasons = row.tree, "; ".join(texts_of(row.judgement.reasons))
            rest = tree.type_name, reasons, level_of(tree.kind, tree.path)
            yield from (UnmatchedLine(pair.target, side, name, None, *rest) for name in getattr(tree, side))
