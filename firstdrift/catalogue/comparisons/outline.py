"""The shape of a whole tree and what it is filtered by, as arrays: 100,000 rows in a few megabytes.

Which rows a tree shows, when some are open and some are filtered out, depends on all of them at once;
the rows themselves are looked up only for the window that is seen.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from sqlalchemy import select
from sqlalchemy.orm import Session

from firstdrift.catalogue.blocks import contents
from firstdrift.catalogue.comparisons.kept import KeptRow
from firstdrift.catalogue.comparisons.patterns import names_matching
from firstdrift.catalogue.comparisons.slice_pairs import judgement_of
from firstdrift.catalogue.comparisons.tree import row_fields, rows_of_incomparable_pairs
from firstdrift.catalogue.packing import pack, unpack_arrays, unpack_fields
from firstdrift.catalogue.tables import BAD, RowBlockEntry, SlicePairEntry
from firstdrift.model.node import Direction, NodeKind
from firstdrift.verdict.judgement import ORIGINS, NodeClass, Verdict
from firstdrift.verdict.shown_classes import BY_RULE, OF_CLASS

Integers = npt.NDArray[np.int32]
Codes = npt.NDArray[np.int8]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

VERDICTS, CLASSES, KINDS, DIRECTIONS = tuple(Verdict), tuple(NodeClass), tuple(NodeKind), tuple(Direction)
WAYS = tuple(BY_RULE)
"""Rules that say of a class in which way a node has it."""
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
        incomparable: a pair of tensors of it could not be compared, whatever the others say.
        output_error: worst error of its outputs; NaN where none is known.
        amplification: output error over input error; NaN unless the latter is above one rounding
            (`firstdrift.verdict.amplified_by`).
        overflow: place in LEVELS; -1 where all values are finite, or not finite on both sides.
        way: place in WAYS of the rule that decided; -1 where another did.
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
    incomparable: Flags
    output_error: Floats
    amplification: Floats
    overflow: Codes
    own: Flags
    way: Codes

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.parent)


def load_outline(session: Session, slice_pair: int) -> Outline:
    """Read the outline of the tree of a slice pair."""
    blocks = [content for _, content in contents(session, _ROWS, slice_pair)] or [pack(KeptRow, ())]
    arrays = (unpack_arrays(KeptRow, block, _READ) for block in blocks)
    columns = list(map(np.concatenate, zip(*arrays, strict=True)))
    parent, last, order, verdict, node_class, kind, direction, match, *errors, pair = columns
    input_error, output_error, amplification = errors
    says_something = np.isfinite(input_error) & (input_error > judgement_of(session, slice_pair).roundoff)
    origin = np.isin(node_class, [CLASSES.index(known) for known in ORIGINS])
    return Outline(
        parent=parent.astype(np.int32),
        last=last.astype(np.int32),
        order=order.astype(np.int32),
        verdict=verdict,
        node_class=node_class,
        kind=kind,
        direction=direction,
        bad=np.isin(verdict, [VERDICTS.index(known) for known in BAD]),
        origin=origin,
        unmatched=match < 0,
        incomparable=np.isin(np.arange(len(parent)), list(rows_of_incomparable_pairs(session, slice_pair))),
        output_error=output_error,
        amplification=np.where(says_something, amplification, np.nan),
        overflow=_overflow(session, slice_pair, len(parent)),
        own=origin | (pair >= 0),
        way=_ways(blocks, node_class),
    )


def _ways(blocks: Iterable[bytes], node_class: Codes) -> Codes:
    rules = chain.from_iterable(unpack_fields(KeptRow, block, ["judgement.rule"])[0] for block in blocks)
    ways = np.fromiter((_CODE_OF_WAY.get(rule, -1) for rule in rules), np.int8)
    return np.where(_CLASSES_OF_WAYS[ways] == node_class, ways, -1).astype(np.int8)


_CLASSES_OF_WAYS: Final = np.array([*(CLASSES.index(NodeClass(OF_CLASS[BY_RULE[way]])) for way in WAYS), -1])
"""The class that a rule says more of; of the last one, none."""

_CODE_OF_WAY: Mapping[str | None, int] = {way: code for code, way in enumerate(WAYS)}

_ROWS = RowBlockEntry.__table__
_READ = (
    *("tree.parent", "tree.last", "tree.order", "judgement.verdict", "judgement.node_class"),
    *("tree.kind", "tree.direction", "tree.match"),
    *("judgement.input_error", "judgement.output_error", "judgement.amplification", "first_pair"),
)
"""The fields of rows that an outline takes."""


def parents_of(indexes: Iterable[int | None]) -> Integers:
    """Return the index of the row above each; -1 at the top."""
    return np.array([-1 if above is None else above for above in indexes], np.int32)


def _overflow(session: Session, slice_pair: int, rows: int) -> Codes:
    codes = np.full(rows, -1, np.int8)
    judgement = session.scalar(select(SlicePairEntry.judgement).where(SlicePairEntry.id == slice_pair))
    levels = {found.node: LEVELS.index(found.level) for found in (judgement.overflow if judgement else ())}
    if levels:
        named = enumerate(row_fields(session, slice_pair, "tree.golden", "tree.target"))
        for index, (golden, target) in named:
            codes[index] = levels.get((target or golden)[0], -1)
    return codes


def rows_containing(session: Session, slice_pair: int, text: str) -> Integers:
    """Return the indexes of the rows whose names or label contain a text, upper or lower case."""
    wanted = text.lower()
    named = enumerate(_searched(session, slice_pair))
    return np.array([index for index, names in named if wanted in names], np.int32)


def rows_matching(session: Session, slice_pair: int, pattern: str) -> Integers:
    """Return the indexes of the rows whose names or label match a regular expression, upper or lower case.

    Raises:
        SettingsError: it is no regular expression, or one that takes too much.
    """
    return names_matching(pattern, enumerate(_searched(session, slice_pair)))


def _searched(session: Session, slice_pair: int) -> Iterator[str]:
    """Write down by what each row is found: label, and names and module paths of either side."""
    names = ("tree.label", "tree.path", "paths", "tree.golden", "tree.target")
    for label, path, paths, golden, target in row_fields(session, slice_pair, *names):
        yield "\n".join(dict.fromkeys((label, path or "", *paths, *golden, *target))).lower()


def codes_of(words: Iterable[str], known: Sequence[str]) -> Codes:
    """Return the place of each word among those that are known."""
    code = {str(word): place for place, word in enumerate(known)}
    return np.array([code[word] for word in words], np.int8)
