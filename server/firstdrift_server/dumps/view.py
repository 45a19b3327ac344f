"""A dump without a partner: what it is, what lies in it, and where it overflows."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy.orm import Session

from firstdrift.catalogue.dumps.jobs import last_job, newest_index
from firstdrift.catalogue.dumps.problems import KnownProblem, problems_of_dump
from firstdrift.catalogue.dumps.records import (
    IndexedDump,
    IndexedSlice,
    changed_since_indexed,
    get_dump,
)
from firstdrift.catalogue.jobs.queue import Job
from firstdrift.catalogue.lookup import record_of
from firstdrift.groups import fields_of
from firstdrift.model.slice import Problem
from firstdrift.paths import inside
from firstdrift.wording.message import Message
from firstdrift_server.context import Context
from firstdrift_server.dumps.slices import DumpSummary, dump_summary, own_slices
from firstdrift_server.parts.addresses import dump_address, dump_tree_address, query_of
from firstdrift_server.parts.growth import Growing, growing
from firstdrift_server.parts.summary import JobView, WorkerView, job_view, worker_view
from firstdrift_server.questions.dumps import recognised
from firstdrift_server.questions.folders import is_inside

MOST_SLICES = 200
"""So many slices are looked through for overflow."""

MOST_LISTED = 500
"""So many nodes that overflow are listed, and so many problems."""


class OverflowRow(Struct, frozen=True):
    """A node that overflows, and where it is."""

    slice: int
    slice_name: Message
    node: str
    level: str
    reason: Message
    address: str


class ProblemView(Struct, frozen=True):
    """What is wrong with a file; of a problem of the whole dump there is no slice."""

    slice: int | None
    slice_name: Message | None
    file: str
    reason: Message


class DumpAtPath(Struct, frozen=True):
    """What lies at a path that may not have been read yet, and how far reading it is.

    Attributes:
        dump: id of the dump that was read there last; None if none was.
        format: what it looks like, and by what `evidence`; None if that is known from reading it.
    """

    path: str
    name: str
    dump: int | None
    address: str | None
    format: str | None
    evidence: Sequence[Message]
    job: JobView | None
    is_live: bool
    worker: WorkerView


class SliceOfDump(Struct, frozen=True):
    """A slice of a dump: its coordinates, and what was read of it; without an address, nothing yet.

    `unfinished` says what shows that it is still being written.
    """

    step: int | None
    rank: int | None
    token: int | None
    micro_step: int | None
    slice: int
    name: Message
    nodes: int | None
    tensors: int | None
    order_origin: Message | None
    problems: Sequence[Problem]
    unfinished: Message | None
    address: str | None


class DumpView(DumpSummary, frozen=True, kw_only=True):
    """A dump: what it is, its slices, and what is wrong with it.

    Attributes:
        newer: address of what was read at its path since; None if nothing was.
        unread: how many slices that are complete were not read yet.
        growing: how far it is, if it is still being written.
        state: what has become of it since it was read, as `_state_of` says; None if nobody asked.
    """

    evidence: Sequence[Message]
    attributes: Mapping[str, str | Message]
    problems: list[ProblemView]
    problem_count: int
    indexed_at: datetime
    newer: str | None
    slices: list[SliceOfDump]
    unread: int
    growing: Growing | None
    nodes: int
    tensors: int
    overflow: str
    as_target: str
    as_golden: str
    job: JobView | None
    is_live: bool
    worker: WorkerView
    state: str | None


class OverflowView(Struct, frozen=True, kw_only=True):
    """The nodes of a dump with NaN or infinities.

    Attributes:
        overflow: the first of them; `count` all of them, `levels` by how bad they are.
        values: of how many tensors the values are known, unknown or unreadable.
        looked_through: in how many slices was looked.
    """

    dump: DumpSummary
    overflow: list[OverflowRow]
    count: int
    levels: Mapping[str, int]
    values: Mapping[str, int]
    slices: int
    unread: int
    looked_through: int


def path_view(session: Session, context: Context, wanted: str) -> DumpAtPath:
    """Say what lies at a path that may not have been read yet, and how far that is."""
    path = inside(context.roots, wanted)
    dump, job = newest_index(session, path), last_job(session, path)
    is_known = dump is not None or job is not None
    looks_like, evidence = (None, ()) if is_known else context.ask(recognised, path)
    return DumpAtPath(
        path=str(path),
        name=path.name,
        dump=dump,
        address=None if dump is None else dump_address(dump),
        format=looks_like,
        evidence=evidence,
        job=_job(session, job),
        is_live=job is not None and not job.is_over,
        worker=worker_view(session),
    )


def dump_view(session: Session, context: Context, dump_id: int, *, check: bool = False) -> DumpView:
    """Describe an indexed dump; with `check` also say whether its files have changed since."""
    dump = get_dump(session, dump_id)
    slices = own_slices(session, dump_id)
    newest, job = newest_index(session, dump.path), last_job(session, dump.path)
    names = {known.position: known.coordinates.name() for known in slices}
    problems, problem_count = problems_of_dump(session, dump, slices, most=MOST_LISTED)
    return DumpView(
        **asdict(dump_summary(dump)),
        evidence=dump.evidence,
        attributes=dump.attributes,
        problems=[_problem(problem, names) for problem in problems],
        problem_count=problem_count,
        indexed_at=dump.indexed_at,
        newer=dump_address(newest) if newest is not None and newest != dump_id else None,
        slices=[_slice_view(dump_id, known) for known in slices],
        unread=sum(
            known.nodes is None and not known.problems and known.unfinished is None for known in slices
        ),
        growing=growing(session, dump_id),
        nodes=sum(known.nodes or 0 for known in slices),
        tensors=sum(known.tensors or 0 for known in slices),
        overflow=f"{dump_address(dump_id)}/overflow",
        as_target=f"/new?{query_of({'target': str(dump.path)})}",
        as_golden=f"/new?{query_of({'golden': str(dump.path)})}",
        job=_job(session, job),
        is_live=job is not None and not job.is_over,
        worker=worker_view(session),
        state=_state_of(context, dump) if check else None,
    )


def overflow_view(session: Session, context: Context, dump_id: int) -> OverflowView:
    """List the nodes with NaN or infinities, slice by slice, in the order of execution."""
    from firstdrift.verdict.overflow_single import LEVELS
    from firstdrift_server.dumps.tree import tree_of

    dump, slices = get_dump(session, dump_id), own_slices(session, dump_id)
    readable = [known for known in slices if known.nodes is not None]
    found: list[OverflowRow] = []
    levels: Counter[str] = Counter()
    values: Counter[str] = Counter()
    for known in readable[:MOST_SLICES]:
        tree = tree_of(session, context, known.id)
        rows = {row.target[0]: row.index for row in tree.rows}
        values.update(known=tree.known, unknown=tree.unknown, unreadable=tree.unreadable)
        levels.update(each.level for each in tree.overflow)
        for each in tree.overflow:
            address = dump_tree_address(dump_id, known.position, row=rows[each.node])
            found.append(
                OverflowRow(
                    known.position, known.coordinates.name(), each.node, each.level, each.reason, address
                )
            )
    return OverflowView(
        dump=dump_summary(dump),
        overflow=found[:MOST_LISTED],
        count=len(found),
        levels={level: levels[level] for level in reversed(LEVELS)},
        values={name: values[name] for name in ("known", "unknown", "unreadable")},
        slices=len(slices),
        unread=len(slices) - len(readable),
        looked_through=min(len(readable), MOST_SLICES),
    )


def _problem(problem: KnownProblem, names: Mapping[int, Message]) -> ProblemView:
    at = problem.slice_position
    return ProblemView(at, None if at is None else names[at], problem.file, problem.reason)


def _slice_view(dump_id: int, known: IndexedSlice) -> SliceOfDump:
    where = known.coordinates
    return record_of(
        SliceOfDump,
        known,
        **fields_of(where, ("step", "rank", "token", "micro_step")),
        slice=known.position,
        name=where.name(),
        order_origin=known.order_origin and known.order_origin.message,
        address=None if known.nodes is None else dump_tree_address(dump_id, known.position),
    )


def _job(session: Session, job: Job | None) -> JobView | None:
    return None if job is None else job_view(session, job)


def _state_of(context: Context, dump: IndexedDump) -> str:
    """Say what has become of a dump since it was indexed: "as it was", "changed", "gone" or "outside"."""
    if not is_inside(context.roots, dump.path):
        return "outside"
    if not dump.path.exists():
        return "gone"
    return "changed" if changed_since_indexed(dump) else "as it was"
