"""One row of the tree as pages and JSON show it."""

from collections.abc import Collection, Sequence

from msgspec import Struct

from firstdrift.catalogue.comparisons.tree import Row
from firstdrift.catalogue.lookup import record_of
from firstdrift.groups import fields_of
from firstdrift.matching.plan import NodeMatch, Origin
from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.model.node import Direction, NodeKind
from firstdrift.verdict.judgement import ORIGINS, NodeClass, Reasons, RollUp, Verdict

UNMATCHED = "unmatched"
"""What stands for the verdict of a row that was not compared."""

OF_ROWS = (
    *("parent", "last", "depth", "order", "label", "kind", "type_name", "direction"),
    *("golden", "target"),
)
"""What a row is, whatever was compared of it."""

_OF_JUDGEMENTS = (
    *("reasons", "rule", "amplification"),
    *("input_error", "parameter_error", "output_error"),
)


class HowMatched(Struct, frozen=True):
    """How the match of a row was found, and how sure that is."""

    origin: Origin
    score: float
    doubtful: bool
    reasons: Reasons


class RowView(Struct, frozen=True, kw_only=True, rename={"node_class": "class"}):
    """A row: what it is, what it was matched with, and what is said of it.

    Attributes:
        row: its index in the tree.
        own: something can be said of the node itself, and not just of what lies in it.
        measured_from: the kinds of its measurements: numbers from statistics are lower bounds.
    """

    reasons: Reasons
    rule: str | None
    amplification: float | None
    input_error: float | None
    parameter_error: float | None
    output_error: float | None
    row: int
    parent: int | None
    last: int
    depth: int
    order: int
    label: str
    kind: NodeKind
    type_name: str
    direction: Direction
    golden: tuple[str, ...]
    target: tuple[str, ...]
    path: str
    micro_step: int | None
    match: HowMatched | None
    verdict: str
    node_class: NodeClass
    own: bool
    measured_from: Sequence[MeasurementKind]
    below: RollUp


def row_view(row: Row, kinds: Collection[MeasurementKind] = ()) -> RowView:
    """Describe a row of which measurements are of these kinds."""
    tree, judged, match = row.tree, row.judgement, row.match
    return record_of(
        RowView,
        tree,
        **fields_of(judged, _OF_JUDGEMENTS),
        row=tree.index,
        match=match and how_matched(match),
        verdict=shown_verdict(row),
        node_class=judged.node_class,
        own=bool(kinds) or judged.node_class in ORIGINS,
        measured_from=sorted(kinds),
        below=judged.below,
    )


def shown_verdict(row: Row) -> str:
    """Return the verdict of a row as people are shown it: of one side alone, unless it fails for that."""
    judged = row.judgement
    fails = judged.verdict is Verdict.ERROR and judged.node_class in ORIGINS
    return str(judged.verdict) if fails or row.match is not None else UNMATCHED


def how_matched(match: NodeMatch) -> HowMatched:
    """Say how a match was found."""
    return record_of(HowMatched, match)
