"""Comparisons: made by people, worked on by workers, shown by pages."""

from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import asdict, replace
from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    SQLColumnExpression,
    delete,
    func,
    or_,
    select,
    union,
    update,
)
from sqlalchemy.orm import Session, aliased

from firstdrift.catalogue.columns import Now
from firstdrift.catalogue.jobs.queue import (
    COMPARE,
    INTERACTIVE,
    ORDINARY,
    Job,
    enqueue,
    job_record,
    request_cancel,
)
from firstdrift.catalogue.lookup import added, mentions, record_of, required
from firstdrift.catalogue.tables import (
    ComparisonEntry,
    DumpEntry,
    JobEntry,
    JobState,
    MatchSetEntry,
    MatchSetVersionEntry,
    NodeNoteEntry,
    SliceEntry,
    SlicePairEntry,
)
from firstdrift.comparison.report import DumpSummary, Options
from firstdrift.errors import SettingsError
from firstdrift.matching.plan import Messages
from firstdrift.model.slice import Coordinates
from firstdrift.paths import spelt
from firstdrift.verdict.judge import RULES
from firstdrift.verdict.judgement import Counts, Findings
from firstdrift.verdict.movable_thresholds import DEFAULTS, Thresholds
from firstdrift.wording.message import Message
from firstdrift.wording.text import LANGUAGES, text_of

MOST_SEARCHED = 2000
"""The findings of so many comparisons, the newest, are searched."""


class Comparison(Struct, frozen=True):
    """Two dumps that are, or will be, compared.

    Attributes:
        options: what the user chose, with the rule set, the thresholds and the baseline now in force.
        revision: counts up whenever its results are to be made again.
        golden_files: fingerprint of the golden dump when it was compared; likewise target_files.
        follows: it is compared again whenever there is more of a dump that is still being written.
        job: the last job that worked, works or will work on it: its state is that of the comparison.
        findings: what to say first; None until it has been finished once.
        counts: summed over all slices; None until finished. Likewise seconds, by stage.
        golden: what was read of the golden dump; None until finished. Likewise target.
        unmatched_golden: golden slices left over; likewise unmatched_target.
        notes: remarks on which slices were compared.
        unreadable: how many slices and pairs could not be compared because a file is damaged or missing;
            None until finished.
    """

    id: int
    golden_path: Path
    target_path: Path
    golden_dump_id: int | None
    target_dump_id: int | None
    golden_files: str | None
    target_files: str | None
    follows: bool
    options: Options
    revision: int
    note: str
    created_at: datetime
    finished_at: datetime | None
    deleted_at: datetime | None
    job: Job
    findings: Findings | None
    counts: Counts | None
    seconds: dict[str, float] | None
    golden: DumpSummary | None
    target: DumpSummary | None
    unmatched_golden: tuple[Coordinates, ...]
    unmatched_target: tuple[Coordinates, ...]
    notes: Messages
    unreadable: int | None

    @property
    def state(self) -> JobState:
        """Queued, running, done, failed or cancelled."""
        return self.job.state


class Judging(Struct, frozen=True):
    """By what a comparison is judged: what of its options may be changed without measuring again."""

    rules: str
    thresholds: Thresholds = DEFAULTS
    baseline: int | None = None


def judging_of(options: Options) -> Judging:
    """Say by what is judged."""
    return record_of(Judging, options)


def create_comparison(
    session: Session,
    golden: Path,
    target: Path,
    options: Options,
    *,
    note: str = "",
    priority: int = ORDINARY,
) -> int:
    """Ask for two dumps to be compared; return the id of the comparison.

    Those of higher priority are compared first.

    Raises:
        SettingsError: there is no such rule set.
    """
    _require_rules(options.rules)
    entry = ComparisonEntry(
        golden_path=str(golden.absolute()),
        target_path=str(target.absolute()),
        options=options,
        rules=options.rules,
        thresholds=options.thresholds,
        baseline=options.baseline,
        note=note,
    )
    comparison_id = added(session, entry)
    enqueue(session, COMPARE, comparison_id, priority=priority)
    return comparison_id


def find_comparison(session: Session, golden: Path, target: Path, options: Options) -> int | None:
    """Return the id of the newest comparison of two dumps that was asked for with the same options.

    One in the bin, that failed, was cancelled or holds the results of a match set does not count; None if
    there is no other. Rules that were changed after the fact are no difference.
    """
    found = session.execute(
        _comparisons()
        .where(
            ComparisonEntry.golden_path == str(golden.absolute()),
            ComparisonEntry.target_path == str(target.absolute()),
            ComparisonEntry.deleted_at.is_(None),
            ComparisonEntry.id.not_in(_results_of_match_sets()),
            JobEntry.state.not_in((JobState.FAILED, JobState.CANCELLED)),
        )
        .order_by(ComparisonEntry.id.desc())
    )
    return next((entry.id for entry, _ in found if entry.options == options), None)


class Order(StrEnum):
    """Which comparisons of a list come first."""

    NEWEST = "newest"
    OLDEST = "oldest"
    NAME = "name"


_BY_NAME = (ComparisonEntry.golden_path, ComparisonEntry.target_path, ComparisonEntry.id.desc())
_ORDERS: dict[Order, tuple[SQLColumnExpression[Any], ...]] = {
    Order.NEWEST: (ComparisonEntry.id.desc(),),
    Order.OLDEST: (ComparisonEntry.id,),
    Order.NAME: _BY_NAME,
}


def list_comparisons(
    session: Session,
    *,
    limit: int = 50,
    before: int | None = None,
    text: str = "",
    deleted: bool = False,
    order: Order = Order.NEWEST,
    skip: int = 0,
) -> tuple[Comparison, ...]:
    """List comparisons; those that hold the results of match sets are no entries.

    Args:
        session: a reading session.
        limit: at most so many.
        before: only those older than the comparison with this id, to go on with a list.
        text: only those whose paths, note or finding contain each of its words, upper or lower case; findings
            of the newest `MOST_SEARCHED` are looked into.
        deleted: those in the bin, instead of the others.
        order: which come first; by name, those of the same golden dump are together.
        skip: leave out so many, to go on with a list in another order than the newest first.
    """
    columns = (ComparisonEntry.golden_path, ComparisonEntry.target_path, ComparisonEntry.note)
    newest = _newest_findings()
    asked = _comparisons().where(
        ComparisonEntry.deleted_at.is_not(None) if deleted else ComparisonEntry.deleted_at.is_(None),
        ComparisonEntry.id.not_in(_results_of_match_sets()),
        *(or_(*mentions(word, columns), ComparisonEntry.id.in_(newest)) for word in text.split()),
    )
    if before is not None:
        asked = asked.where(ComparisonEntry.id < before)
    asked = asked.order_by(*_ORDERS[order])
    if not text.strip():
        return tuple(map(_comparison, session.execute(asked.limit(limit).offset(skip))))
    with closing(session.execute(asked.execution_options(yield_per=limit + skip))) as found:
        comparisons = (comparison for row in found if _mentions(comparison := _comparison(row), text))
        return tuple(islice(comparisons, skip, skip + limit))


def recent_paths(session: Session, *, most: int) -> tuple[Path, ...]:
    """List the dumps that were compared last, each once, the latest first."""
    paths = session.execute(
        select(ComparisonEntry.golden_path, ComparisonEntry.target_path)
        .where(ComparisonEntry.deleted_at.is_(None))
        .order_by(ComparisonEntry.id.desc())
        .limit(most * 5)
    )
    return tuple(map(Path, list(dict.fromkeys(path for pair in paths for path in pair))[:most]))


def count_uses(session: Session, paths: Iterable[Path]) -> dict[Path, int]:
    """Say in how many comparisons that are not in the bin each of some dumps is one of the two."""
    used: Counter[str] = Counter()
    wanted = list(map(str, paths))
    rows = session.execute(
        select(ComparisonEntry.golden_path, ComparisonEntry.target_path).where(
            ComparisonEntry.deleted_at.is_(None),
            ComparisonEntry.id.not_in(_results_of_match_sets()),
            or_(ComparisonEntry.golden_path.in_(wanted), ComparisonEntry.target_path.in_(wanted)),
        )
    )
    for golden, target in rows:
        used.update({golden, target})
    return {Path(path): used[path] for path in wanted}


def _newest_findings() -> Select[int]:
    """Select the newest comparisons with findings: their summaries are searched in each language."""
    with_findings = select(ComparisonEntry.id).where(ComparisonEntry.findings.is_not(None))
    return with_findings.order_by(ComparisonEntry.id.desc()).limit(MOST_SEARCHED)


def _mentions(comparison: Comparison, text: str) -> bool:
    found = comparison.findings
    said = () if found is None else [text_of(found.summary, language) for language in LANGUAGES]
    places = (spelt(comparison.golden_path), spelt(comparison.target_path), comparison.note, *said)
    return all(any(word in place.lower() for place in places) for word in text.lower().split())


def get_comparison(session: Session, comparison_id: int) -> Comparison:
    """Look up a comparison, also one in the bin."""
    found = session.execute(_comparisons().where(ComparisonEntry.id == comparison_id)).one_or_none()
    return _comparison(required(found, _absence(comparison_id)))


def require_comparison(session: Session, comparison_id: int) -> None:
    """Make sure that there is a comparison, also one in the bin."""
    found = session.scalar(select(ComparisonEntry.id).where(ComparisonEntry.id == comparison_id))
    required(found, _absence(comparison_id))


def set_note(session: Session, comparison_id: int, note: str) -> None:
    """Keep what a person writes about a comparison."""
    _change(session, comparison_id, note=note)


def delete_comparison(session: Session, comparison_id: int) -> None:
    """Move a comparison to the bin, from which `restore_comparison` takes it back; stop its job."""
    _stop(session, comparison_id)
    _change(session, comparison_id, deleted_at=Now())


def restore_comparison(session: Session, comparison_id: int) -> None:
    """Take a comparison back from the bin."""
    _change(session, comparison_id, deleted_at=None)


def cancel_comparison(session: Session, comparison_id: int) -> None:
    """Stop what is being done for a comparison; what is there stays, and `compare_again` goes on from it.

    It does not go on by itself when there is more of a dump that grows.
    """
    _stop(session, comparison_id)
    _change(session, comparison_id, follows=False)


def _stop(session: Session, comparison_id: int) -> None:
    request_cancel(session, get_comparison(session, comparison_id).job.id)


def compare_again(
    session: Session, comparison_id: int, rules: str | Judging | None = None, *, priority: int = INTERACTIVE
) -> int:
    """Make the results of a comparison again, under other rules if given; return the id of the job.

    The name of a rule set leaves thresholds and baseline as they are.

    What has been measured is not measured again, unless the dumps have changed.

    Raises:
        SettingsError: there is no such rule set.
    """
    judging: dict[str, Any] = {"rules": rules} if isinstance(rules, str) else {}
    if isinstance(rules, Judging):
        judging = asdict(rules)
    if judging:
        _require_rules(judging["rules"])
    _stop(session, comparison_id)
    _change(session, comparison_id, revision=ComparisonEntry.revision + 1, **judging)
    return enqueue(session, COMPARE, comparison_id, priority=priority)


def compare_what_is_new(session: Session, comparison_id: int, *, priority: int = INTERACTIVE) -> int:
    """Compare what there is of the dumps by now; return the id of the job, an open one if there is one.

    What was said of slices that are as they were, and have no new one before them, stays. With a baseline all
    are judged again, as there may be more of that, too; and so they are while a job that was cancelled may
    still write what it has found.
    """
    known = get_comparison(session, comparison_id)
    if not known.job.is_over and not known.job.cancel_requested:
        return known.job.id
    if known.options.baseline is not None or not known.job.is_over:
        return compare_again(session, comparison_id, priority=priority)
    return enqueue(session, COMPARE, comparison_id, priority=priority)


_JUST_INDEXED = 3600.0


def purge_deleted(session: Session, *, older_than: timedelta) -> int:
    """Remove for good what was deleted so long ago, and dumps that nobody uses then.

    Dumps that were indexed within the last hour stay: a comparison may be about to use them.

    Return how many comparisons were removed.
    """
    then = Now(-older_than.total_seconds())
    session.execute(delete(MatchSetEntry).where(MatchSetEntry.deleted_at < then))
    session.execute(delete(NodeNoteEntry).where(NodeNoteEntry.deleted_at < then))
    old = ComparisonEntry.deleted_at < then
    session.execute(delete(ComparisonEntry).where(ComparisonEntry.id.in_(_results_of_match_sets(old))))
    purged = session.execute(delete(ComparisonEntry).where(old).returning(ComparisonEntry.id)).all()
    _purge_slices(session)
    if purged:
        in_use = union(
            select(ComparisonEntry.golden_id).where(ComparisonEntry.golden_id.is_not(None)),
            select(ComparisonEntry.target_id).where(ComparisonEntry.target_id.is_not(None)),
        )
        seen_alone = select(JobEntry.path).where(JobEntry.path.is_not(None))
        unused = (
            DumpEntry.id.not_in(in_use),
            DumpEntry.path.not_in(seen_alone),
            DumpEntry.indexed_at < Now(-_JUST_INDEXED),
        )
        session.execute(delete(DumpEntry).where(*unused))
    return len(purged)


def _purge_slices(session: Session) -> None:
    """Remove slices that are not as they were when their dump was indexed, and that no comparison shows.

    None goes while a job runs, which may be at one of them.
    """
    runs = select(JobEntry.id).where(JobEntry.state == JobState.RUNNING).limit(1)
    if session.scalar(runs) is None:
        shown = union(select(SlicePairEntry.golden_id), select(SlicePairEntry.target_id))
        gone = (SliceEntry.position < 0, SliceEntry.id.not_in(shown))
        session.execute(delete(SliceEntry).where(*gone))


def _results_of_match_sets(*of_comparisons: ColumnElement[bool]) -> Select[tuple[int]]:
    """Select the comparisons that hold the results of match sets, of some comparisons or of all."""
    results = select(MatchSetVersionEntry.results_id).where(MatchSetVersionEntry.results_id.is_not(None))
    if of_comparisons:
        over = select(ComparisonEntry.id).where(*of_comparisons)
        sets = select(MatchSetEntry.id).where(MatchSetEntry.comparison_id.in_(over))
        results = results.where(MatchSetVersionEntry.match_set_id.in_(sets))
    return cast("Select[tuple[int]]", results)


@cache
def _comparisons() -> Select[*tuple[Any, ...]]:
    job = aliased(JobEntry)
    last = select(func.max(job.id)).where(job.comparison_id == ComparisonEntry.id)
    return select(ComparisonEntry, JobEntry).join(JobEntry, JobEntry.id == last.scalar_subquery())


def _comparison(found: Row[*tuple[Any, ...]]) -> Comparison:
    entry, job = found
    judging = record_of(Judging, entry)
    return record_of(
        Comparison,
        entry,
        golden_path=Path(entry.golden_path),
        target_path=Path(entry.target_path),
        golden_dump_id=entry.golden_id,
        target_dump_id=entry.target_id,
        options=replace(entry.options, **asdict(judging)),
        job=job_record(job),
        golden=entry.golden_summary,
        target=entry.target_summary,
    )


def _change(session: Session, comparison_id: int, **values: Any) -> None:  # noqa: ANN401 (columns)
    changed = update(ComparisonEntry).where(ComparisonEntry.id == comparison_id).values(**values)
    found = session.execute(changed.returning(ComparisonEntry.id)).one_or_none()
    required(found, _absence(comparison_id))


def _require_rules(name: str) -> None:
    if name not in RULES:
        raise SettingsError(
            Message.of("error.no_rule_set", name=name),
            hint=Message.of("error.choose_one", names=tuple(RULES)),
        )


def _absence(comparison_id: int) -> Message:
    return Message.of("catalogue.no_comparison", comparison=comparison_id)
