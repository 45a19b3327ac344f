"""The tables of comparisons: pairs of slices, rows of trees, pairs, measurements, plans."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, LargeBinary, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from firstdrift.catalogue.columns import Listed, Now, Record, Said
from firstdrift.catalogue.tables.entry import Entry
from firstdrift.comparison.report import DumpSummary, Options
from firstdrift.matching.plan import Messages, Origin, TensorPair, UnmatchedTensor
from firstdrift.metrics.measurement import Measurement
from firstdrift.model.node import Direction, NodeKind
from firstdrift.model.slice import Coordinates
from firstdrift.verdict.judgement import Counts, Findings, NodeClass, Reasons, SliceJudgement, Verdict
from firstdrift.verdict.movable_thresholds import DEFAULTS, Thresholds
from firstdrift.wording.message import Message


class ComparisonEntry(Entry):
    """Two dumps, what the user chose, and what came out.

    Attributes:
        golden_id: the indexed golden dump; None until it is indexed. Likewise target_id.
        rules: the rule set in force, which may be changed after the fact; likewise thresholds and baseline.
        revision: counts up whenever results are to be made again.
        note: what a person wrote about it.
        findings: None until it is finished; likewise counts, seconds, summaries of the dumps.
        unmatched_golden: slices left over; likewise unmatched_target.
        notes: remarks on which slices were compared.
        unreadable: how many slices and pairs could not be compared because a file is damaged or missing.
        deleted_at: when it was moved to the bin; None if it is not there.
    """

    __tablename__ = "comparisons"

    id: Mapped[int] = mapped_column(primary_key=True)
    golden_path: Mapped[str]
    target_path: Mapped[str]
    golden_id: Mapped[int | None] = mapped_column(ForeignKey("dumps.id"), index=True)
    target_id: Mapped[int | None] = mapped_column(ForeignKey("dumps.id"), index=True)
    options: Mapped[Options] = mapped_column(Record(Options))
    rules: Mapped[str]
    thresholds: Mapped[Thresholds] = mapped_column(
        Record(Thresholds), default=DEFAULTS, server_default=text("'{}'")
    )
    baseline: Mapped[int | None]
    revision: Mapped[int] = mapped_column(default=1)
    note: Mapped[str] = mapped_column(default="")
    created_at: Mapped[datetime] = mapped_column(default=Now())
    finished_at: Mapped[datetime | None]
    deleted_at: Mapped[datetime | None]
    findings: Mapped[Findings | None] = mapped_column(Record(Findings))
    counts: Mapped[Counts | None] = mapped_column(Record(Counts))
    seconds: Mapped[dict[str, float] | None] = mapped_column(Record(dict[str, float]))
    golden_summary: Mapped[DumpSummary | None] = mapped_column(Record(DumpSummary))
    target_summary: Mapped[DumpSummary | None] = mapped_column(Record(DumpSummary))
    unmatched_golden: Mapped[tuple[Coordinates, ...]] = mapped_column(
        Record(tuple[Coordinates, ...]), default=()
    )
    unmatched_target: Mapped[tuple[Coordinates, ...]] = mapped_column(
        Record(tuple[Coordinates, ...]), default=()
    )
    notes: Mapped[Messages] = mapped_column(Listed(Messages), default=())
    unreadable: Mapped[int | None]


class SlicePairEntry(Entry):
    """A golden and a target slice that were compared.

    Attributes:
        complete: all its rows and pairs are there; until then nobody is shown it.
        position: place in the order of execution.
        revision: of the comparison, for which it was made.
        verdict: the worst of its matched rows; incomparable if no tensors of it could be compared.
        judgement: what is said of it, without its rows and pairs, which have their own tables.
        unmatched_golden: tensors of matched nodes left over; likewise unmatched_target.
        notes: remarks on its match plan.
        unreadable: how many pairs could not be compared because a file is damaged or missing.
        seconds: time spent on it by stage.
    """

    __tablename__ = "slice_pairs"
    __table_args__ = (
        Index("ix_slice_pairs_place", "comparison_id", "position"),
        Index(
            "uq_slice_pairs_place",
            "comparison_id",
            "position",
            unique=True,
            sqlite_where=text("complete = 1"),
            postgresql_where=text("complete"),
        ),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    comparison_id: Mapped[int] = mapped_column(ForeignKey("comparisons.id", ondelete="CASCADE"))
    complete: Mapped[bool] = mapped_column(default=False)
    position: Mapped[int]
    golden_id: Mapped[int] = mapped_column(ForeignKey("slices.id"), index=True)
    target_id: Mapped[int] = mapped_column(ForeignKey("slices.id"), index=True)
    revision: Mapped[int]
    verdict: Mapped[Verdict]
    judgement: Mapped[SliceJudgement] = mapped_column(Record(SliceJudgement))
    unmatched_golden: Mapped[tuple[UnmatchedTensor, ...]] = mapped_column(Record(tuple[UnmatchedTensor, ...]))
    unmatched_target: Mapped[tuple[UnmatchedTensor, ...]] = mapped_column(Record(tuple[UnmatchedTensor, ...]))
    notes: Mapped[Messages] = mapped_column(Listed(Messages))
    unreadable: Mapped[int]
    rows: Mapped[int]
    pairs: Mapped[int]
    seconds: Mapped[dict[str, float]] = mapped_column(Record(dict[str, float]))


class RowEntry(Entry):
    """A row of the tree of a slice pair, with its match and its judgement.

    Attributes:
        index: position in pre-order.
        order: position in execution order.
        origin: how the match was found; None if unmatched. Likewise score, doubtful, match_reasons.
        is_bad: its verdict is warning or error.
        is_origin: an error begins at it.
        is_unmatched: one side is missing.
        is_layer: it is an outermost numbered module ("model.layers.7") of the forward pass.
        search: names and label in lower case.
    """

    __tablename__ = "rows"
    __table_args__ = (
        Index(
            "ix_rows_layer",
            "slice_pair_id",
            "order",
            sqlite_where=text("is_layer = 1"),
            postgresql_where=text("is_layer"),
        ),
    )

    slice_pair_id: Mapped[int] = mapped_column(
        ForeignKey("slice_pairs.id", ondelete="CASCADE"), primary_key=True
    )
    index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    parent: Mapped[int | None]
    last: Mapped[int]
    depth: Mapped[int]
    order: Mapped[int]
    label: Mapped[str]
    kind: Mapped[NodeKind]
    type_name: Mapped[str]
    direction: Mapped[Direction]
    golden: Mapped[tuple[str, ...]] = mapped_column(Listed(tuple[str, ...]))
    target: Mapped[tuple[str, ...]] = mapped_column(Listed(tuple[str, ...]))
    match: Mapped[int | None]
    path: Mapped[str | None]
    micro_step: Mapped[int | None]
    origin: Mapped[Origin | None]
    score: Mapped[float | None]
    doubtful: Mapped[bool]
    match_reasons: Mapped[Messages] = mapped_column(Listed(Messages))
    verdict: Mapped[Verdict]
    node_class: Mapped[NodeClass]
    reasons: Mapped[Reasons] = mapped_column(Listed(Reasons))
    input_error: Mapped[float | None]
    parameter_error: Mapped[float | None]
    output_error: Mapped[float | None]
    amplification: Mapped[float | None]
    worst_pair: Mapped[int | None]
    rule: Mapped[str | None]
    errors_below: Mapped[int]
    warnings_below: Mapped[int]
    incomparable_below: Mapped[int]
    unmatched_below: Mapped[int]
    origins_below: Mapped[int]
    worst_below: Mapped[Verdict]
    is_bad: Mapped[bool]
    is_origin: Mapped[bool]
    is_unmatched: Mapped[bool]
    is_layer: Mapped[bool]
    search: Mapped[str]


BAD = frozenset({Verdict.WARNING, Verdict.ERROR})
"""The verdicts of rows that are bad."""

BELOW = {
    "error": "errors_below",
    "warning": "warnings_below",
    "incomparable": "incomparable_below",
    "unmatched": "unmatched_below",
    "origins": "origins_below",
    "worst": "worst_below",
}
"""Which columns of a row hold the fields of its `RollUp`."""


class MeasurementEntry(Entry):
    """The measurement of a pair of tensors of two indexed slices.

    Attributes:
        key: which pair, as `firstdrift.catalogue.comparisons.results.pair_keys` computes it.
    """

    __tablename__ = "measurements"
    __table_args__ = (UniqueConstraint("golden_id", "target_id", "key"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    golden_id: Mapped[int] = mapped_column(ForeignKey("slices.id", ondelete="CASCADE"))
    target_id: Mapped[int] = mapped_column(ForeignKey("slices.id", ondelete="CASCADE"), index=True)
    key: Mapped[bytes] = mapped_column(LargeBinary)
    measurement: Mapped[Measurement] = mapped_column(Record(Measurement))


class PairEntry(Entry):
    """A pair of tensors of a slice pair, with its judgement.

    Attributes:
        index: position in the plan.
        row: index of the row it belongs to.
        golden_order: order of the golden node in its slice; likewise target_order.
        golden_position: place of the tensor in the golden node; likewise target_position.
        joined: the whole pair, if one of its tensors is joined from several, of nodes or of ranks (those
            columns say where the first of them is), or statistics alone tell that the two are one.
        incomparable: why it was not measured; None if it was.
    """

    __tablename__ = "pairs"
    __table_args__ = (Index(None, "slice_pair_id", "row"), {"sqlite_with_rowid": False})

    slice_pair_id: Mapped[int] = mapped_column(
        ForeignKey("slice_pairs.id", ondelete="CASCADE"), primary_key=True
    )
    index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    row: Mapped[int]
    golden_order: Mapped[int]
    golden_position: Mapped[int]
    target_order: Mapped[int]
    target_position: Mapped[int]
    joined: Mapped[TensorPair | None] = mapped_column(Record(TensorPair))
    transform: Mapped[Messages] = mapped_column(Said(Messages))
    incomparable: Mapped[Message | None] = mapped_column(Said(Message))
    measurement_id: Mapped[int] = mapped_column(ForeignKey("measurements.id"), index=True)
    verdict: Mapped[Verdict]
    error: Mapped[float | None]
    reasons: Mapped[Reasons] = mapped_column(Listed(Reasons))


class PlanEntry(Entry):
    """The match plan and the tree of a slice pair: what trying other rules takes, in one piece.

    Attributes:
        version: which firstdrift made it, and of which version its measurements are; another one may match
            and measure otherwise.
        content: as `firstdrift.catalogue.comparisons.results` packs it.
    """

    __tablename__ = "plans"

    slice_pair_id: Mapped[int] = mapped_column(
        ForeignKey("slice_pairs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    version: Mapped[str]
    content: Mapped[bytes] = mapped_column(LargeBinary)
