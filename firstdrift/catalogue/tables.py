"""The tables.

    dumps ──< slices ──< nodes ──< tensors, computed    what lies on disk, indexed once
                │
    comparisons ──< slice_pairs ──< rows, plans         results, replaced whole when judged again
                │        └───────< pairs ──> measurements
                ├──< jobs          workers              measured once per pair of indexed slices
                ├──< match_sets ──< match_set_versions ──> comparisons      with edits laid over
                └──< share_links, node_notes             what people are shown, and what they write

Measurements belong to two indexed slices, not to a comparison: whatever is compared again (under other
rules, with other matches) takes from there what has been measured before.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

from sqlalchemy import ForeignKey, Index, LargeBinary, MetaData, UniqueConstraint, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeEngine

from firstdrift.catalogue.columns import Exact, Instant, Listed, Name, Now, Record, Word
from firstdrift.comparison.report import DumpSummary, Options
from firstdrift.matching.manual.edits import Edit
from firstdrift.matching.manual.mapping import MappingFile
from firstdrift.matching.plan import Origin, TensorPair, UnmatchedTensor
from firstdrift.metrics.measurement import Measurement, MeasurementKind, SideSummary
from firstdrift.model.node import Direction, NodeKind
from firstdrift.model.slice import Coordinates, Problem, SliceListing
from firstdrift.model.tensor import Role
from firstdrift.verdict.judgement import Counts, Findings, NodeClass, SliceJudgement, Verdict
from firstdrift.verdict.thresholds import DEFAULTS, Thresholds

Names = tuple[str, ...]


class JobState(StrEnum):
    """What has become of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


_ENUMERATIONS = (NodeKind, Direction, Role, Origin, Verdict, NodeClass, MeasurementKind, JobState)


class Entry(DeclarativeBase):
    """A row of a table."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, TypeEngine[Any]]] = {
        str: Name(),
        float: Exact(),
        datetime: Instant(),
        **{kind: Word(kind) for kind in _ENUMERATIONS},
    }


class DumpEntry(Entry):
    """A dump as it was when it was indexed; if it changes on disk, it is indexed as another entry.

    Attributes:
        fingerprint: digest of the names, sizes and modification times of its files.
    """

    __tablename__ = "dumps"
    __table_args__ = (UniqueConstraint("path", "fingerprint"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    path: Mapped[str]
    format: Mapped[str]
    fingerprint: Mapped[str]
    evidence: Mapped[Names] = mapped_column(Listed(Names))
    attributes: Mapped[dict[str, str]] = mapped_column(Record(dict[str, str]))
    problems: Mapped[tuple[Problem, ...]] = mapped_column(Record(tuple[Problem, ...]))
    indexed_at: Mapped[datetime] = mapped_column(default=Now())


class SliceEntry(Entry):
    """A slice of a dump; its nodes are indexed when a comparison first needs them.

    Attributes:
        position: place in the order of execution; slices merged from ranks come after all others.
        merged: of a slice that was merged from ranks, how; None for those that lie in the dump.
        problems: what could not be used of it; with `nodes` None, why it could not be read at all.
        nodes: number of nodes; None until they are indexed.
        tensors: number of tensors, Python scalars not counted; None until they are indexed.
    """

    __tablename__ = "slices"
    __table_args__ = (UniqueConstraint("dump_id", "position"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    dump_id: Mapped[int] = mapped_column(ForeignKey("dumps.id", ondelete="CASCADE"))
    position: Mapped[int]
    step: Mapped[int | None]
    rank: Mapped[int | None]
    token: Mapped[int | None]
    micro_step: Mapped[int | None]
    directory: Mapped[str]
    merged: Mapped[SliceListing | None] = mapped_column(Record(SliceListing))
    order_origin: Mapped[str | None]
    problems: Mapped[tuple[Problem, ...]] = mapped_column(Record(tuple[Problem, ...]))
    nodes: Mapped[int | None]
    tensors: Mapped[int | None]


class NodeEntry(Entry):
    """A node of an indexed slice; `order` is its position in execution order."""

    __tablename__ = "nodes"
    __table_args__ = (Index(None, "slice_id", "name"), {"sqlite_with_rowid": False})

    slice_id: Mapped[int] = mapped_column(ForeignKey("slices.id", ondelete="CASCADE"), primary_key=True)
    order: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str]
    path: Mapped[str]
    kind: Mapped[NodeKind]
    type_name: Mapped[str]
    direction: Mapped[Direction]
    call: Mapped[int]
    parent: Mapped[str | None]
    micro_step: Mapped[int | None]


class TensorEntry(Entry):
    """A tensor of an indexed node; `position` is its place among the tensors of the node."""

    __tablename__ = "tensors"
    __table_args__ = ({"sqlite_with_rowid": False},)

    slice_id: Mapped[int] = mapped_column(ForeignKey("slices.id", ondelete="CASCADE"), primary_key=True)
    node: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    role: Mapped[Role]
    key: Mapped[str]
    dtype: Mapped[str]
    shape: Mapped[tuple[int, ...] | None] = mapped_column(Listed(tuple[int, ...]))
    has_statistics: Mapped[bool]
    maximum: Mapped[float | None]
    minimum: Mapped[float | None]
    mean: Mapped[float | None]
    norm: Mapped[float | None]
    digest: Mapped[str | None]
    file: Mapped[str | None]
    container: Mapped[str | None]
    entry: Mapped[str | None]
    scalar: Mapped[str | None]
    requires_grad: Mapped[bool | None]
    problem: Mapped[str | None]


class ComputedEntry(Entry):
    """Statistics that were computed from the values of a tensor, because the dump has none of it.

    Attributes:
        summary: what was found; None if the values cannot be read, and `problem` says why.
    """

    __tablename__ = "computed"
    __table_args__ = ({"sqlite_with_rowid": False},)

    slice_id: Mapped[int] = mapped_column(ForeignKey("slices.id", ondelete="CASCADE"), primary_key=True)
    node: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    summary: Mapped[SideSummary | None] = mapped_column(Record(SideSummary))
    problem: Mapped[str | None]


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
    notes: Mapped[Names] = mapped_column(Listed(Names), default=())
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
    notes: Mapped[Names] = mapped_column(Listed(Names))
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
    golden: Mapped[Names] = mapped_column(Listed(Names))
    target: Mapped[Names] = mapped_column(Listed(Names))
    match: Mapped[int | None]
    path: Mapped[str | None]
    micro_step: Mapped[int | None]
    origin: Mapped[Origin | None]
    score: Mapped[float | None]
    doubtful: Mapped[bool]
    match_reasons: Mapped[Names] = mapped_column(Listed(Names))
    verdict: Mapped[Verdict]
    node_class: Mapped[NodeClass]
    reasons: Mapped[Names] = mapped_column(Listed(Names))
    input_error: Mapped[float | None]
    parameter_error: Mapped[float | None]
    output_error: Mapped[float | None]
    amplification: Mapped[float | None]
    worst_pair: Mapped[int | None]
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
        joined: the whole pair, if one of its tensors is joined from several, of nodes or of ranks; those
            columns say where the first of them is.
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
    transform: Mapped[str]
    incomparable: Mapped[str | None]
    measurement_id: Mapped[int] = mapped_column(ForeignKey("measurements.id"), index=True)
    verdict: Mapped[Verdict]
    error: Mapped[float | None]
    reasons: Mapped[Names] = mapped_column(Listed(Names))


class PlanEntry(Entry):
    """The match plan and the tree of a slice pair: what trying other rules takes, in one piece.

    Attributes:
        version: which firstdrift made it, and of which version its measurements are; another one may match
            and measure otherwise.
        content: as `firstdrift.catalogue.comparisons.plans` packs it.
    """

    __tablename__ = "plans"

    slice_pair_id: Mapped[int] = mapped_column(
        ForeignKey("slice_pairs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    version: Mapped[str]
    content: Mapped[bytes] = mapped_column(LargeBinary)


class MatchSetEntry(Entry):
    """What people decided of the matches of a comparison, under a name.

    Attributes:
        comparison_id: over which comparison it is laid.
        version: the version in force; 0 where nothing is decided.
        deleted_at: when it was deleted; None if it was not.
    """

    __tablename__ = "match_sets"
    __table_args__ = (UniqueConstraint("comparison_id", "name"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    comparison_id: Mapped[int] = mapped_column(ForeignKey("comparisons.id", ondelete="CASCADE"))
    name: Mapped[str]
    version: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime] = mapped_column(default=Now())
    deleted_at: Mapped[datetime | None]


class MatchSetVersionEntry(Entry):
    """A version of a match set: what was decided on top of another version; it never changes.

    Attributes:
        version: counts up with every change of the set, also after one was undone.
        parent: the version it was made from; 0 for the comparison as it was found.
        edits: what was decided of nodes.
        mappings: mapping files that were read in.
        results_id: the comparison that holds its results; they are made again if it is gone.
    """

    __tablename__ = "match_set_versions"

    match_set_id: Mapped[int] = mapped_column(
        ForeignKey("match_sets.id", ondelete="CASCADE"), primary_key=True
    )
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    parent: Mapped[int]
    edits: Mapped[tuple[Edit, ...]] = mapped_column(Record(tuple[Edit, ...]))
    mappings: Mapped[tuple[MappingFile, ...]] = mapped_column(Record(tuple[MappingFile, ...]))
    results_id: Mapped[int | None] = mapped_column(
        ForeignKey("comparisons.id", ondelete="SET NULL"), index=True
    )
    made_at: Mapped[datetime] = mapped_column(default=Now())


class ShareLinkEntry(Entry):
    """A link through which a comparison can be read by whoever has it.

    Attributes:
        digest: SHA-256 of its secret, which is known to nobody but those who were given it.
        label: for whom it is, as its maker says.
        may_write: whether notes may be written through it.
        expires_at: None if never.
        revoked_at: None if it was not.
        seen_at: when it was opened last; None if never.
    """

    __tablename__ = "share_links"

    id: Mapped[int] = mapped_column(primary_key=True)
    comparison_id: Mapped[int] = mapped_column(ForeignKey("comparisons.id", ondelete="CASCADE"), index=True)
    digest: Mapped[bytes] = mapped_column(LargeBinary, unique=True)
    label: Mapped[str] = mapped_column(default="")
    may_write: Mapped[bool] = mapped_column(default=False)
    created_at: Mapped[datetime] = mapped_column(default=Now())
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    seen_at: Mapped[datetime | None]


class NodeNoteEntry(Entry):
    """What a person wrote about a node; it stays with the node when results are made again.

    Attributes:
        comparison_id: also for results of match sets that comparison over which they are laid.
        coordinates: of the target slice.
        side: "target" if the target has the node, else "golden".
        node: name of the node on that side.
        author: as they call themselves.
        link_id: through which link it was written; None if by somebody with the token.
        deleted_at: None if it was not deleted.
    """

    __tablename__ = "node_notes"

    id: Mapped[int] = mapped_column(primary_key=True)
    comparison_id: Mapped[int] = mapped_column(ForeignKey("comparisons.id", ondelete="CASCADE"), index=True)
    coordinates: Mapped[Coordinates] = mapped_column(Record(Coordinates))
    side: Mapped[str]
    node: Mapped[str]
    author: Mapped[str]
    text: Mapped[str]
    link_id: Mapped[int | None] = mapped_column(ForeignKey("share_links.id", ondelete="SET NULL"), index=True)
    written_at: Mapped[datetime] = mapped_column(default=Now())
    deleted_at: Mapped[datetime | None]


class JobEntry(Entry):
    """Something for a worker to do.

    Attributes:
        kind: which function of the worker does it.
        comparison_id: what it works on, if that is a comparison.
        path: where the dump lies, if it works on one dump.
        priority: higher ones are taken first.
        attempts: how often it was claimed; also the fencing token of the worker that has it.
        max_attempts: after so many it has failed for good.
        ready_at: not to be taken before.
        leased_until: it may be taken from its worker after that.
        done, total, stage: how far it is, in steps and in words.
        cancel_requested: its worker should stop.
        error: what went wrong, for a person; `traceback` for a bug report.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        Index("ix_jobs_waiting", "state", "priority", "id"),
        Index(None, "comparison_id", "id"),
        Index(None, "path", "id"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    comparison_id: Mapped[int | None] = mapped_column(ForeignKey("comparisons.id", ondelete="CASCADE"))
    path: Mapped[str | None]
    priority: Mapped[int] = mapped_column(default=0)
    state: Mapped[JobState] = mapped_column(default=JobState.QUEUED)
    attempts: Mapped[int] = mapped_column(default=0)
    max_attempts: Mapped[int] = mapped_column(default=3)
    worker: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(default=Now())
    ready_at: Mapped[datetime] = mapped_column(default=Now())
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    leased_until: Mapped[datetime | None]
    done: Mapped[int] = mapped_column(default=0)
    total: Mapped[int] = mapped_column(default=0)
    stage: Mapped[str] = mapped_column(default="")
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    error: Mapped[str | None]
    traceback: Mapped[str | None]


class WorkerEntry(Entry):
    """A worker that is, or was, alive."""

    __tablename__ = "workers"

    name: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[str]
    started_at: Mapped[datetime] = mapped_column(default=Now())
    seen_at: Mapped[datetime] = mapped_column(default=Now())
