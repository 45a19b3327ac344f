"""The shape of a whole tree and what it is filtered by, as arrays: 100,000 rows in a few megabytes.

Which rows a tree shows, when some are open and some are filtered out, depends on all of them at once;
the rows themselves are looked up only for the window that is seen.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from sqlalchemy import String, select, type_coerce
from sqlalchemy.orm import Session

from firstdrift.catalogue.columns import storable
from firstdrift.catalogue.comparisons.patterns import names_matching
from firstdrift.catalogue.tables import PairEntry, RowEntry, SlicePairEntry
from firstdrift.model.node import Direction, NodeKind
from firstdrift.verdict.judgement import NodeClass, Verdict

Integers = npt.NDArray[np.int32]
Codes = npt.NDArray[np.int8]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

VERDICTS, CLASSES, KINDS, DIRECTIONS = tuple(Verdict), tuple(NodeClass), tuple(NodeKind), tuple(Direction)
LEVELS = ("medium", "high", "critical")
"""Of overflow, as `firstdrift.verdict.judgement.Overflow` has them."""


class Outline(Struct, frozen=True, eq=False):
    """One element for each row of a tree, in pre-order.

    Attributes:
        parent: index of the row above; -1 at the top.
        last: index of the last row below.
        order: position in execution order.
        verdict: place in VERDICTS; likewise node_class in CLASSES, kind in KINDS, direction in DIRECTIONS.
        bad: its verdict is warning or error.
        origin: an error begins at it.
        unmatched: one side is missing.
        output_error: worst error of its outputs; NaN where none is known.
        amplification: output error over input error; NaN where it is not known.
        overflow: place in LEVELS; -1 where all values are finite, or not finite on both sides.
        own: something can be said of the node itself: tensors of it were compared, or an error begins at it.
    """

    parent: Integers
    last: Integers
    order: Integers
    verdict: Codes
    node_class: Codes
    kind: Codes
    direction: Codes
    bad: Flags
    origin: Flags
    unmatched: Flags
    output_error: Floats
    amplification: Floats
    overflow: Codes
    own: Flags

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.parent)


def load_outline(session: Session, slice_pair: int) -> Outline:
    """Read the outline of the tree of a slice pair."""
    columns = RowEntry.__table__.c
    words = [type_coerce(columns[name], String) for name in ("verdict", "node_class", "kind", "direction")]
    found = session.execute(
        select(
            columns.parent,
            columns.last,
            columns.order,
            *words,
            columns.is_bad,
            columns.is_origin,
            columns.is_unmatched,
            columns.output_error,
            columns.amplification,
        )
        .where(columns.slice_pair_id == slice_pair)
        .order_by(columns.index)
    )
    (
        parent,
        last,
        order,
        verdict,
        node_class,
        kind,
        direction,
        bad,
        origin,
        unmatched,
        error,
        amplification,
    ) = zip(*rows, strict=True) if (rows := found.all()) else ((),) * 12
    own = np.array(origin, np.bool_)
    own[rows_with_pairs(session, slice_pair)] = True
    return Outline(
        parent=np.array([-1 if above is None else above for above in parent], np.int32),
        last=np.array(last, np.int32),
        order=np.array(order, np.int32),
        verdict=_codes(verdict, VERDICTS),
        node_class=_codes(node_class, CLASSES),
        kind=_codes(kind, KINDS),
        direction=_codes(direction, DIRECTIONS),
        bad=np.array(bad, np.bool_),
        origin=np.array(origin, np.bool_),
        unmatched=np.array(unmatched, np.bool_),
        output_error=np.array(error, np.float64),
        amplification=np.array(amplification, np.float64),
        overflow=_overflow(session, slice_pair, len(parent)),
        own=own,
    )


def _overflow(session: Session, slice_pair: int, rows: int) -> Codes:
    codes = np.full(rows, -1, np.int8)
    judgement = session.scalar(select(SlicePairEntry.judgement).where(SlicePairEntry.id == slice_pair))
    levels = {found.node: LEVELS.index(found.level) for found in (judgement.overflow if judgement else ())}
    if levels:
        named = select(RowEntry.index, RowEntry.golden, RowEntry.target)
        for index, golden, target in session.execute(named.where(RowEntry.slice_pair_id == slice_pair)):
            codes[index] = levels.get((target or golden)[0], -1)
    return codes


def rows_with_pairs(session: Session, slice_pair: int) -> Integers:
    """Return the indexes of the rows of which tensors were compared."""
    found = session.scalars(select(PairEntry.row).where(PairEntry.slice_pair_id == slice_pair).distinct())
    return np.fromiter(found, np.int32)


def rows_containing(session: Session, slice_pair: int, text: str) -> Integers:
    """Return the indexes of the rows whose names or label contain a text, upper or lower case."""
    columns = RowEntry.__table__.c
    found = session.scalars(
        select(columns.index)
        .where(
            columns.slice_pair_id == slice_pair,
            columns.search.contains(storable(text.lower()), autoescape=True),
        )
        .order_by(columns.index)
    )
    return np.fromiter(found, np.int32)


def rows_matching(session: Session, slice_pair: int, pattern: str) -> Integers:
    """Return the indexes of the rows whose names or label match a regular expression, upper or lower case.

    Raises:
        SettingsError: it is no regular expression, or one that takes too much.
    """
    columns = RowEntry.__table__.c
    named = select(columns.index, columns.search).where(columns.slice_pair_id == slice_pair)
    return names_matching(pattern, session.execute(named.order_by(columns.index)))


def _codes(words: Iterable[str], known: Sequence[StrEnum]) -> Codes:
    code = {str(word): place for place, word in enumerate(known)}
    return np.array([code[word] for word in words], np.int8)
