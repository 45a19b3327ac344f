"""The job that compares two dumps, from wherever it was left.

    index both dumps ─▶ pair slices ─▶ for each: match ─▶ measure what is new ─▶ judge ─▶ conclude

Every step is kept before the next begins, so that a job taken over from a dead worker, or made again
under other rules, does only what has not been done.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import Final

from msgspec.structs import replace

from firstdrift.catalogue.comparisons import results
from firstdrift.catalogue.comparisons.baselines import noise_places
from firstdrift.catalogue.comparisons.records import Comparison, get_comparison
from firstdrift.catalogue.comparisons.results import Answer, SavedSlice
from firstdrift.catalogue.dumps.following import let_follow
from firstdrift.catalogue.engine import reading
from firstdrift.catalogue.jobs.queue import finish_job
from firstdrift.comparison.clock import Clock
from firstdrift.comparison.session import ComparisonSession
from firstdrift.comparison.side_by_side import Crew, SideBySide, Taker, started
from firstdrift.comparison.side_by_side import Work as CrewWork
from firstdrift.comparison.stages import left_over, plan_slices, without_noise
from firstdrift.errors import SettingsError
from firstdrift.groups import firsts, seconds
from firstdrift.model.slice import Coordinates, Dump, Slice, SliceListing
from firstdrift.processes.lanes import Lane
from firstdrift.verdict.judgement import Counts, Findings
from firstdrift.wording.message import Message
from firstdrift_worker.from_crew import FromCrew, work_of_crew
from firstdrift_worker.indexing import (
    Indexed,
    index_dump,
    is_still_damaged,
    read_indexed,
    still_grows,
    with_merged,
)
from firstdrift_worker.lanes import LaneTask, WorkerLane
from firstdrift_worker.measuring import Measurer
from firstdrift_worker.storage import CatalogueStorage, DumpPair
from firstdrift_worker.work import Work

log = logging.getLogger(__name__)

_WORTH_LANES: Final = 3.0
"""Seconds that slices take one after the other, from which processes for them pay off."""

STAGES = ("index", "match", "measure", "store")
"""What the time of a comparison is spent on."""


def compare_dumps(work: Work, comparison_id: int, measurer: Measurer) -> None:
    """Do the job.

    Raises:
        FirstdriftError: one of the dumps, or the options, cannot be used; or as `Work.check`.
    """
    work.lease.progress(0, 0, Message.of("stage.indexing"))
    with reading(work.engine) as session:
        comparison = get_comparison(session, comparison_id)
        baseline = noise_places(session, comparison.options.baseline)
    clock = Clock(*STAGES)
    with clock.measure("index"):
        golden = index_dump(work, comparison.golden_path, comparison.golden_dump_id)
        target = index_dump(work, comparison.target_path, comparison.target_dump_id)
        pairing = plan_slices(golden.dump, target.dump, comparison.options, _look_at(work, golden, target))
        if comparison.options.baseline is not None:
            without_noise(pairing, baseline)
        golden = with_merged(work, golden, firsts(pairing.pairs))
        target = with_merged(work, target, seconds(pairing.pairs))
        pair = DumpPair(golden, target, pairing)
        damaged = _still_damaged(work, pair)
    with work.writing() as session:
        results.start_results(session, comparison_id, pair.compared, pairing, damaged)
    storage = CatalogueStorage(work, comparison, pair, measurer, baseline)
    options = comparison.options
    judging = ComparisonSession(storage, options.rules, options.thresholds)
    lanes = LaneTask(
        work.database_url,
        work.lease.claim,
        comparison_id,
        (golden.id, target.id),
        pairing,
        measurer.processes,
        measurer.roots,
        work.limits,
    )
    positions = list(range(len(pairing.pairs)))
    if work.crew is not None:
        told = work_of_crew(comparison, storage, pairing, measurer.roots)
        positions = _judge_elsewhere(work, judging, storage, work.crew, told)
    _judge_all(work, judging, storage, positions, None if measurer.is_isolated else lanes)
    if pairing.pairs and not storage.saved:
        raise next(chain(golden.damages.values(), target.damages.values()))
    findings = judging.conclude(len(pairing.unmatched_golden))
    _finish(work, comparison, pair, findings, storage.saved, clock)


def _judge_all(
    work: Work,
    judging: ComparisonSession,
    storage: CatalogueStorage,
    positions: Sequence[int],
    task: LaneTask | None,
) -> None:
    """Judge pairs of slices, side by side where that is sooner done: the first one that is new tells."""
    left = deque(positions)
    seconds = 0.0
    while left and not seconds:
        position = left.popleft()
        if not judging.recall(position):
            since = time.monotonic()
            judging.look_at(position)
            seconds = time.monotonic() - since
    count = min(task.processes, len(left)) if task is not None else 1
    if task is None or count <= 1 or seconds * len(left) < _WORTH_LANES:
        judging.run(left)
        return
    of_each = replace(task, processes=task.processes // count)
    places = [target.coordinates for _, target in task.pairing.pairs]
    with started(lambda: WorkerLane(of_each), count) as lanes:
        judging.run(_side_by_side(work, judging, storage, lanes, places, guesses=False).run(left))


def _judge_elsewhere(
    work: Work, judging: ComparisonSession, storage: CatalogueStorage, crew: Crew, told: CrewWork
) -> list[int]:
    """Have all pairs of slices judged by a crew; return those that are left if it is lost, or not there."""
    left = list(range(len(told.pairs)))
    with ExitStack() as stack:
        try:
            lanes = stack.enter_context(crew.lanes(told))
        except SettingsError as error:
            log.warning("compared here instead: %s", error)
            return left
        places = [target.coordinates for _, target in told.pairs]
        left = _side_by_side(work, judging, FromCrew(storage), lanes, places, guesses=True).run(left)
    if left:
        log.warning("%s was lost; what it has not done is done here", crew)
    return left


def _side_by_side(
    work: Work,
    judging: ComparisonSession,
    taker: Taker,
    lanes: Sequence[Lane],
    places: Sequence[Coordinates],
    *,
    guesses: bool,
) -> SideBySide:
    slices = len(places)

    def tell(judged: int, done: int, total: int) -> None:
        stage = Message.of("stage.measuring", left=total - done)
        work.progress(min(judged, slices - 1), slices, done / total if total else 0.0, stage)

    return SideBySide(judging, taker, lanes, places, tell, work.check, guesses=guesses)


def _still_damaged(work: Work, pair: DumpPair) -> frozenset[int]:
    """List the pairs of which a slice could not be read the last time, and cannot now."""
    return frozenset(
        at
        for at, (golden, target) in enumerate(pair.pairing.pairs)
        if is_still_damaged(work, pair.golden, golden) or is_still_damaged(work, pair.target, target)
    )


def _look_at(work: Work, golden: Indexed, target: Indexed) -> Callable[[Dump, SliceListing], Slice]:
    """Make what reads slices before it is known which are compared: from the catalogue, if it has them."""

    def read(dump: Dump, listing: SliceListing) -> Slice:
        indexed = golden if dump is golden.dump else target
        found = read_indexed(work, indexed, indexed.slices[listing].id)
        if found is None:
            raise indexed.damages[indexed.slices[listing].id]
        return found

    return read


def _finish(
    work: Work,
    comparison: Comparison,
    pair: DumpPair,
    findings: Findings,
    done: Mapping[int, SavedSlice],
    clock: Clock,
) -> None:
    unread = [listings for at, listings in enumerate(pair.pairing.pairs) if at not in done]
    left = left_over(pair.pairing, unread)
    for saved in done.values():
        clock.add(saved.seconds)
    golden_ids, target_ids = zip(*pair.slice_ids(), strict=True) if pair.pairing.pairs else ((), ())
    growing = [side.dump.path for side in (pair.golden, pair.target) if still_grows(side)]
    with work.writing() as session:
        answer = Answer(
            findings=findings,
            counts=sum((saved.judgement.counts for saved in done.values()), Counts()),
            golden_summary=results.summary(session, pair.golden.dump, golden_ids),
            target_summary=results.summary(session, pair.target.dump, target_ids),
            unmatched_golden=left.unmatched_golden,
            unmatched_target=left.unmatched_target,
            unreadable=len(unread) + sum(saved.unreadable for saved in done.values()),
            seconds=clock.seconds | {"total": sum(clock.seconds.values())},
        )
        results.save_findings(session, comparison.id, comparison.revision, answer)
        let_follow(session, comparison.id, growing)
        finish_job(session, work.lease.claim)
