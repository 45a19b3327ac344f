"""Everything that the catalogue holds of a slice pair, for tests that look at all of it."""

from collections.abc import Iterator

from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons import tree
from firstdrift.catalogue.tables import PairEntry, RowEntry


def all_rows(session: Session, slice_pair: int) -> Iterator[tree.Row]:
    """Go through all rows in the order of the tree."""
    return map(tree._row, session.execute(tree._select_rows(slice_pair).order_by(RowEntry.index)))


def all_pairs(session: Session, slice_pair: int) -> Iterator[tree.Pair]:
    """Go through all pairs in the order of the plan."""
    return map(tree._pair, session.execute(tree._select_pairs(slice_pair).order_by(PairEntry.index)))
