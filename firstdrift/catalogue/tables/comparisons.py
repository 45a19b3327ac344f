"""The tables of comparisons: pairs of slices, and blocks of rows, pairs and measurements."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, LargeBinary, false, text
from sqlalchemy.orm import Mapped, mapped_column

from firstdrift.catalogue.columns import Listed, Now, Record, Remembered
from firstdrift.catalogue.tables.entry import Entry
from firstdrift.comparison.report import DumpSummary, Options
from firstdrift.matching.plan import Messages, UnmatchedTensor
from firstdrift.model.slice import Coordinates
from firstdrift.verdict.judgement import Counts, Findings, SliceJudgement, Verdict
from firstdrift.verdict.movable_thresholds import DEFAULTS, Thresholds


class ComparisonEntry(Entry):
    """Two dumps, what the user chose, and what came out.

    Attributes:
        golden_id: the indexed golden dump; None until it is indexed. Likewise target_id.
        golden_files: its fingerprint when it was compared; likewise target_files. None of what an earlier
            version compared.
        follows: it is compared again whenever there is more of a dump that is still being written.
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
    golden_files: Mapped[str | None]
    target_files: Mapped[str | None]
    follows: Mapped[bool] = mapped_column(default=False, server_default=false())
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
        trained: the parameters of a step of training, which the judgement lacks, as
            `firstdrift.catalogue.comparisons.trained` packs them; None if there are none.
        unmatched_golden: tensors of matched nodes left over; likewise unmatched_target.
        notes: remarks on its match plan.
        unreadable: how many pairs could not be compared because a file is damaged or missing.
        seconds: time spent on it by stage.
        settled: its logits are bad, as only other slices show: with more of them that may be otherwise.
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
    judgement: Mapped[SliceJudgement] = mapped_column(Remembered(SliceJudgement))
    trained: Mapped[bytes | None] = mapped_column(LargeBinary, deferred=True)
    unmatched_golden: Mapped[tuple[UnmatchedTensor, ...]] = mapped_column(Record(tuple[UnmatchedTensor, ...]))
    unmatched_target: Mapped[tuple[UnmatchedTensor, ...]] = mapped_column(Record(tuple[UnmatchedTensor, ...]))
    notes: Mapped[Messages] = mapped_column(Listed(Messages))
    unreadable: Mapped[int]
    rows: Mapped[int]
    pairs: Mapped[int]
    seconds: Mapped[dict[str, float]] = mapped_column(Record(dict[str, float]))
    settled: Mapped[bool] = mapped_column(default=False, server_default=false())


class RowBlockEntry(Entry):
    """Rows of the tree of a slice pair that follow each other in pre-order, packed.

    Attributes:
        first: index of the first of them.
        content: the rows, as `firstdrift.catalogue.comparisons.kept` packs them.
    """

    __tablename__ = "row_blocks"

    slice_pair_id: Mapped[int] = mapped_column(
        ForeignKey("slice_pairs.id", ondelete="CASCADE"), primary_key=True
    )
    first: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    content: Mapped[bytes] = mapped_column(LargeBinary)


class PairBlockEntry(Entry):
    """Pairs of tensors of a slice pair that follow each other in the plan, packed.

    Attributes:
        first: index of the first of them.
        incomparable: how many of them could not be compared.
        content: the pairs, as `firstdrift.catalogue.comparisons.kept` packs them.
    """

    __tablename__ = "pair_blocks"

    slice_pair_id: Mapped[int] = mapped_column(
        ForeignKey("slice_pairs.id", ondelete="CASCADE"), primary_key=True
    )
    first: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    incomparable: Mapped[int]
    content: Mapped[bytes] = mapped_column(LargeBinary)


class MeasurementBlockEntry(Entry):
    """Measurements of pairs of tensors of two indexed slices, packed; of several of one pair the last holds.

    Attributes:
        keys: which pairs, as `firstdrift.catalogue.comparisons.measurements` computes it, in one piece.
        content: the measurements.
    """

    __tablename__ = "measurement_blocks"
    __table_args__ = (Index(None, "golden_id", "target_id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    golden_id: Mapped[int] = mapped_column(ForeignKey("slices.id", ondelete="CASCADE"))
    target_id: Mapped[int] = mapped_column(ForeignKey("slices.id", ondelete="CASCADE"), index=True)
    keys: Mapped[bytes] = mapped_column(LargeBinary)
    content: Mapped[bytes] = mapped_column(LargeBinary)


class OverviewEntry(Entry):
    """What is asked of all slice pairs of a comparison at once, of one.

    Attributes:
        content: as `firstdrift.catalogue.comparisons.overview` packs it.
    """

    __tablename__ = "overviews"

    slice_pair_id: Mapped[int] = mapped_column(
        ForeignKey("slice_pairs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    content: Mapped[bytes] = mapped_column(LargeBinary)


BAD = frozenset({Verdict.WARNING, Verdict.ERROR})
"""The verdicts of rows that are bad."""


class PlanEntry(Entry):
    """What a match plan says beside its matches and pairs, and what may be said of it.

    Attributes:
        version: which firstdrift made it, and of which version its measurements are; another one may match
            and measure otherwise.
        content: as `firstdrift.catalogue.comparisons.kept` packs it.
    """

    __tablename__ = "plans"

    slice_pair_id: Mapped[int] = mapped_column(
        ForeignKey("slice_pairs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    version: Mapped[str]
    content: Mapped[bytes] = mapped_column(LargeBinary)
