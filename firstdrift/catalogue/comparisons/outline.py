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
    found = session.execute(
        select(*(type_coerce(columns[name], kind) if kind else columns[name] for name, kind in _READ.items()))
        .where(columns.slice_pair_id == slice_pair)
        .order_by(columns.index)
    ).all()
    read = dict(zip(_READ, zip(*found, strict=True) if found else [()] * len(_READ), strict=True))
    own = np.array(read["is_origin"], np.bool_)
    own[rows_with_pairs(session, slice_pair)] = True
    return Outline(
        parent=parents_of(read["parent"]),
        last=np.array(read["last"], np.int32),
        order=np.array(read["order"], np.int32),
        verdict=codes_of(read["verdict"], VERDICTS),
        node_class=codes_of(read["node_class"], CLASSES),
        kind=codes_of(read["kind"], KINDS),
        direction=codes_of(read["direction"], DIRECTIONS),
        bad=np.array(read["is_bad"], np.bool_),
        origin=np.array(read["is_origin"], np.bool_),
        unmatched=np.array(read["is_unmatched"], np.bool_),
        output_error=np.array(read["output_error"], np.float64),
        amplification=np.array(read["amplification"], np.float64),
        overflow=_overflow(session, slice_pair, len(found)),
        own=own,
    )


_WORDS = ("verdict", "node_class", "kind", "direction")
_PLAIN = ("parent", "last", "order", "is_bad", "is_origin", "is_unmatched", "output_error", "amplification")
_READ: dict[str, type[String] | None] = dict.fromkeys(_WORDS, String) | dict.fromkeys(_PLAIN)
"""The columns of an outline; words stay the text they are in the database."""


def parents_of(indexes: Iterable[int | None]) -> Integers:
    """Return the index of the row above each; -1 at the top."""
    return np.array([-1 if above is None else above for above in indexes], np.int32)


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


def codes_of(words: Iterable[str], known: Sequence[StrEnum]) -> Codes:
    """Return the place of each word among those that are known."""
    code = {str(word): place for place, word in enumerate(known)}
    return np.array([code[word] for word in words], np.int8)
