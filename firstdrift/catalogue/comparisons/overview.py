"""What is asked of all slice pairs of a comparison at once: put together when each is kept."""

import math
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Final

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder
from sqlalchemy import select
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.kept import KINDS, KeptRow, kinds_of
from firstdrift.catalogue.tables import BAD, OverviewEntry, SlicePairEntry
from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.verdict.amplified_by import amplified_by
from firstdrift.verdict.judgement import (
    ORIGINS,
    OWN_RULES,
    Counts,
    NodeClass,
    PairJudgement,
    RowJudgement,
    SliceJudgement,
    Verdict,
)
from firstdrift.verdict.shown_classes import shown_class
from firstdrift.verdict.tree import layer_rows
from firstdrift.wording.message import Message


class Tally(Struct, frozen=True):
    """How many nodes and pairs of a slice, or of several, are what.

    Attributes:
        counts: of pairs, by verdict.
        classes: of nodes, by the class that people are shown; likewise verdicts, by their verdict, without
            those that have no partner.
        rules: of nodes, by the rule that flags them: a class of ours, or the id of the reason that
            another tool's rule gives.
    """

    counts: Counts = Counts()
    classes: Mapping[str, int] = {}
    verdicts: Mapping[str, int] = {}
    rules: Mapping[str, int] = {}

    def __add__(self, other: "Tally") -> "Tally":
        """Add up."""
        return Tally(
            self.counts + other.counts,
            Counter(self.classes) + Counter(other.classes),
            Counter(self.verdicts) + Counter(other.verdicts),
            Counter(self.rules) + Counter(other.rules),
        )


class Layer(Struct, frozen=True, array_like=True):
    """An outermost numbered module ("model.layers.7") of the forward pass, and how it came out.

    Attributes:
        excused_up_to: as that of `RowJudgement`; None likewise in an overview of an earlier version.
        kinds: what its numbers were computed from, a bit for each of `KINDS`; None in such an overview.
        rule: what decided of its class; None likewise.
    """

    path: str
    row: int
    last: int
    verdict: Verdict
    node_class: NodeClass
    output_error: float | None
    excused_up_to: float | None = None
    kinds: int | None = None
    rule: str | None = None


class AmplifiedNode(Struct, frozen=True):
    """A node that gives more of an error than it is given.

    Attributes:
        rule: what decided of its class; None in an overview of an earlier version.
        kinds: as those of `Layer`.
    """

    row: int
    name: str
    input_error: float
    output_error: float
    amplification: float
    node_class: str
    rule: str | None = None
    kinds: int | None = None


class Overview(Struct, frozen=True):
    """What is asked of many slice pairs at once.

    Attributes:
        layers: in the order of execution.
        kinds: what the numbers of its pairs were computed from.
        bad: how many rows are bad.
        has_points: whether a node has both an input and an output error, and a logarithmic axis shows one.
        amplified: the nodes that make the most of an error above one rounding, the strongest first; None in
            an overview of an earlier version.
    """

    layers: tuple[Layer, ...]
    tally: Tally
    kinds: tuple[MeasurementKind, ...]
    bad: int
    has_points: bool
    amplified: tuple[AmplifiedNode, ...] | None = None


MOST_AMPLIFIED: Final = 10
"""So many nodes that amplify are kept."""

Judged = Iterable[tuple[int, PairJudgement]]
"""What is said of pairs of tensors, each with the row that it belongs to."""


def overview_of(said: SliceJudgement, rows: Sequence[KeptRow], pairs: Judged) -> Overview:
    """Put together what is asked of a slice pair with others."""
    judged = [row.judgement for row in rows]
    layers = sorted(layer_rows([row.tree for row in rows]), key=lambda index: rows[index].tree.order)
    kinds = kinds_of(reduce(or_, (row.kinds for row in rows), 0))
    return Overview(
        layers=tuple(_layer(rows[index]) for index in layers),
        tally=tally_of(said, judged, pairs),
        kinds=tuple(kind for kind in KINDS if kind in kinds),
        bad=sum(row.verdict in BAD for row in judged),
        has_points=any(map(_is_point, judged)),
        amplified=strongest(_amplified(row, said.roundoff) for row in rows),
    )


def strongest(nodes: Iterable[tuple[int, AmplifiedNode] | None]) -> tuple[AmplifiedNode, ...]:
    """Choose the nodes that amplify most, which come with their place in the order of execution."""
    ranked = sorted(
        filter(None, nodes), key=lambda node: (-node[1].amplification, -node[1].output_error, node[0])
    )
    return tuple(node for _, node in ranked[:MOST_AMPLIFIED])


def _amplified(row: KeptRow, roundoff: float) -> tuple[int, AmplifiedNode] | None:
    tree, said = row.tree, row.judgement
    times = amplified_by(said.input_error, said.output_error, roundoff)
    if said.input_error is None or said.output_error is None or not times:
        return None
    name = next(iter(tree.target or tree.golden), "")
    errors = said.input_error, said.output_error, times
    return tree.order, AmplifiedNode(tree.index, name, *errors, said.node_class.value, said.rule, row.kinds)


def _layer(row: KeptRow) -> Layer:
    tree, said = row.tree, row.judgement
    place = tree.path or "", tree.index, tree.last
    return Layer(
        *place, said.verdict, said.node_class, said.output_error, said.excused_up_to, row.kinds, said.rule
    )


def _is_point(row: RowJudgement) -> bool:
    errors = row.input_error, row.output_error
    return None not in errors and any(error and _LEAST <= error <= _MOST for error in errors)


_LEAST: Final = math.ulp(0.0)
_MOST: Final = sys.float_info.max


def tally_of(said: SliceJudgement, rows: Iterable[RowJudgement], pairs: Judged) -> Tally:
    """Count what was said of the rows and pairs of a slice."""
    of_pairs = list(pairs)
    known = _told_of(rows, {row for row, _ in of_pairs})
    classes = Counter(shown_class(row.node_class, row.rule) for row in known)
    flagged = ((row, judged.reasons) for row, judged in of_pairs if judged.verdict in BAD)
    return Tally(
        counts=said.counts,
        classes=classes,
        verdicts=Counter(str(row.verdict) for row in known if row.node_class is not NodeClass.UNMATCHED),
        rules=_by_class(classes) if said.rules == OWN_RULES else _by_reason(flagged),
    )


def _told_of(rows: Iterable[RowJudgement], compared: Collection[int]) -> list[RowJudgement]:
    """Leave out the rows of which nothing can be said by themselves."""
    return [row for index, row in enumerate(rows) if index in compared or row.node_class in _WITHOUT_PAIRS]


_WITHOUT_PAIRS: Final = {*ORIGINS, NodeClass.UNMATCHED}
"""What is said of nodes of which no tensors were compared."""


def _by_class(classes: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in classes.items() if name != NodeClass.CLEAN}


def _by_reason(flagged: Iterable[tuple[int, Sequence[Message]]]) -> dict[str, int]:
    rows: defaultdict[str, set[int]] = defaultdict(set)
    for row, reasons in flagged:
        for reason in reasons:
            rows[reason.id].add(row)
    return {rule: len(those) for rule, those in rows.items()}


def pack_overview(overview: Overview) -> bytes:
    """Write an overview."""
    return zlib.compress(_ENCODER.encode(overview))


def load_overview(session: Session, slice_pair: int) -> Overview:
    """Read the overview of a slice pair."""
    asked = select(OverviewEntry.content).where(OverviewEntry.slice_pair_id == slice_pair)
    return _read(session.scalars(asked).one())


def overviews_of(
    session: Session, comparison_id: int, positions: Collection[int] | None = None
) -> dict[int, Overview]:
    """Read the overviews of a comparison, or of those at some positions, by position and in their order."""
    asked = (
        select(SlicePairEntry.position, OverviewEntry.content)
        .join(SlicePairEntry, SlicePairEntry.id == OverviewEntry.slice_pair_id)
        .where(SlicePairEntry.comparison_id == comparison_id, SlicePairEntry.complete)
        .order_by(SlicePairEntry.position)
    )
    if positions is not None:
        asked = asked.where(SlicePairEntry.position.in_(positions))
    found = session.execute(asked)
    return {position: _read(content) for position, content in found}


def _read(content: bytes) -> Overview:
    return _DECODER.decode(zlib.decompress(content))


_ENCODER, _DECODER = Encoder(), Decoder(Overview)
