"""The job that compares two dumps, from wherever it was left.

    index both dumps ─▶ pair slices ─▶ for each: match ─▶ measure what is new ─▶ judge ─▶ conclude

Every step is kept before the next begins, so that a job taken over from a dead worker, or made again
under other rules, does only what has not been done.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons import results
from firstdrift.catalogue.comparisons.baselines import load_noise, noise_places
from firstdrift.catalogue.comparisons.records import Comparison, get_comparison
from firstdrift.catalogue.comparisons.results import Answer, SavedSlice, SlicePlace
from firstdrift.catalogue.dumps import records as dumps
from firstdrift.catalogue.dumps.records import IndexedSlice
from firstdrift.catalogue.engine import reading, writing
from firstdrift.catalogue.jobs.lease import Lease
from firstdrift.catalogue.jobs.queue import SLICE_STEPS, confirm, finish_job
from firstdrift.catalogue.matches.match_preview import unchanged_slice
from firstdrift.comparison.clock import Clock
from firstdrift.comparison.report import SliceResult
from firstdrift.comparison.session import ComparisonSession, Planned, without_details
from firstdrift.comparison.stages import count_unreadable, left_over, plan_slice, plan_slices
from firstdrift.dumps.detect import open_dump
from firstdrift.errors import DumpNotFoundError, DumpUnreadableError, LimitError, SettingsError
from firstdrift.matching.plan import SlicePairing, SlicePlan, TensorPair
from firstdrift.metrics.measurement import Measurement, MeasurementKind
from firstdrift.model.slice import Coordinates, Dump, Problem, Slice, SliceListing
from firstdrift.parallel.slices import read_merged, read_slice
from firstdrift.processes.limits import Limits, reading_time
from firstdrift.verdict.baseline import Noise
from firstdrift.verdict.judgement import Counts, Finding, Findings, SliceJudgement
from firstdrift.verdict.series import with_bad_output
from firstdrift.wording.message import Message
from firstdrift_worker.measuring import Measurer

STAGES = ("index", "match", "measure", "store")
"""What the time of a comparison is spent on."""


class WorkerStoppedError(Exception):
    """The worker was asked to stop."""


@dataclass(frozen=True, slots=True)
class Work:
    """A job in hand: how to write its results, and whether to go on.

    `limits` are what reading a dump, or a slice of it, may take; None for no limits.
    """

    engine: Engine
    lease: Lease
    stopping: threading.Event
    limits: Limits | None = None

    def check(self) -> None:
        """Return if the work should go on.

        Raises:
            JobCancelledError: a person asked for the job to stop.
            JobLostError: another worker has it.
            WorkerStoppedError: this worker was asked to stop.
        """
        self.lease.check()
        if self.stopping.is_set():
            raise WorkerStoppedError

    @contextmanager
    def reading_dump(self, path: Path) -> Iterator[None]:
        """Let the block read a dump, or a slice of it, within the limits.

        Raises:
            DumpUnreadableError: it takes more memory or processor time.
        """
        try:
            if self.limits is None:
                yield
            else:
                with reading_time(self.limits.seconds):
                    yield
        except LimitError as error:
            raise DumpUnreadableError(error.message, path=path, hint=error.advice or "") from error
        except MemoryError as error:
            raise DumpUnreadableError(
                "reading it takes more memory than there is for it", path=path
            ) from error

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Give a session to write with; nothing is written unless the job is still in these hands."""
        with writing(self.engine) as session:
            confirm(session, self.lease.claim)
            yield session


@dataclass(frozen=True, slots=True)
class Indexed:
    """A dump of which the catalogue knows the slices.

    Attributes:
        damages: why slices of it could not be read.
    """

    id: int
    dump: Dump
    slices: dict[SliceListing, IndexedSlice]
    damages: list[DumpUnreadableError] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DumpPair:
    """Two dumps, and which of their slices are compared."""

    golden: Indexed
    target: Indexed
    pairing: SlicePairing

    def slice_ids(self) -> list[tuple[int, int]]:
        """Give the ids of the golden and the target slice of each pair."""
        return [
            (self.golden.slices[golden].id, self.target.slices[target].id)
            for golden, target in self.pairing.pairs
        ]


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
            _require_noise(baseline, pairing)
        golden = _with_merged(work, golden, [one for one, _ in pairing.pairs])
        target = _with_merged(work, target, [other for _, other in pairing.pairs])
        pair = DumpPair(golden, target, pairing)
    with work.writing() as session:
        results.start_results(session, comparison_id, golden.id, target.id, pair.pairing)
    storage = _InCatalogue(work, comparison, pair, measurer, baseline)
    options = comparison.options
    judging = ComparisonSession(storage, options.rules, options.thresholds)
    judging.run(range(len(pairing.pairs)))
    if pairing.pairs and not storage.saved:
        raise (golden.damages + target.damages)[0]
    findings = judging.conclude()
    _finish(work, comparison, pair, findings, storage.saved, clock)


def _look_at(work: Work, golden: Indexed, target: Indexed) -> Callable[[Dump, SliceListing], Slice]:
    """Make what reads slices before it is known which are compared: from the catalogue, if it has them."""

    def read(dump: Dump, listing: SliceListing) -> Slice:
        indexed = golden if dump is golden.dump else target
        found = read_indexed(work, indexed, indexed.slices[listing].id)
        if found is None:
            raise indexed.damages[-1]
        return found

    return read


def _require_noise(baseline: Mapping[Coordinates, int], pairing: SlicePairing) -> None:
    if pairing.pairs and not any(golden.coordinates in baseline for golden, _ in pairing.pairs):
        raise SettingsError(
            "the baseline shows nothing of the slices that are compared",
            hint="Choose one with the same steps, ranks and tokens, or none",
        )


class _InCatalogue:
    """The storage (`firstdrift.comparison.session.Storage`) of a job: all that is done is kept at once.

    Attributes:
        saved: what was kept of each pair of slices, by position.
    """

    # `baseline` says in which pair of slices of the healthy run the noise of each golden slice is.
    def __init__(
        self,
        work: Work,
        comparison: Comparison,
        pair: DumpPair,
        measurer: Measurer,
        baseline: Mapping[Coordinates, int],
    ) -> None:
        self.saved: dict[int, SavedSlice] = {}
        self._work, self._comparison, self._measurer, self._baseline = work, comparison, measurer, baseline
        self._golden, self._target = pair.golden, pair.target
        self._slice_ids = pair.slice_ids()
        self._slices: tuple[Slice, Slice] | None = None

    def kept(self, position: int) -> SliceJudgement | None:
        """Return what was kept of a pair for this revision, or found of it before edits were made."""
        place = self._place(position)
        with reading(self._work.engine) as session:
            saved = results.saved_slice(session, place)
        saved = saved or self._copied(place)
        if saved is None:
            return None
        self.saved[position] = saved
        return saved.judgement

    def _copied(self, place: SlicePlace) -> SavedSlice | None:
        """Take over what was found of a pair before edits were made, if they change nothing of it."""
        if not self._comparison.options.matching.edits:
            return None
        with reading(self._work.engine) as session:
            found = unchanged_slice(session, place, self._comparison.options)
        return None if found is None else results.copy_slice(self._work.writing, place, *found)

    def planned(self, position: int, clock: Clock) -> Planned | None:
        """Read and match a pair of slices."""
        self._progress(position, 0, Message.of("stage.reading"))
        golden_id, target_id = self._slice_ids[position]
        with clock.measure("index"):
            golden = read_indexed(self._work, self._golden, golden_id)
            target = read_indexed(self._work, self._target, target_id)
        if golden is None or target is None:
            return None
        self._slices = golden, target
        self._progress(position, 0, Message.of("stage.matching"))
        with clock.measure("match"):
            return plan_slice(golden, target, self._comparison.options)

    def measured(self, position: int, plan: SlicePlan) -> list[Measurement]:
        """Measure what has not been measured before, and keep it as it comes."""
        ids = self._slice_ids[position]
        keys = results.pair_keys(plan.pairs)
        with reading(self._work.engine) as session:
            known = results.load_measurements(session, *ids)
        measured = {
            index: known[key]
            for index, (key, pair) in enumerate(zip(keys, plan.pairs, strict=True))
            if key in known and _is_still_good(known[key], pair)
        }
        new = [index for index in range(len(plan.pairs)) if index not in measured]
        bytes_here = sum(plan.pairs[index].data_bytes for index in new)
        bytes_to_come = bytes_here * (len(self._slice_ids) - position)
        left = len(new)
        self._progress(position, 0, Message.of("stage.measuring", left=left))
        for chunk, measurements in self._measurer.measure(plan, new, bytes_to_come, self._work.check):
            of_chunk = dict(zip(chunk.indexes, measurements, strict=True))
            with self._work.writing() as session:
                by_key = {keys[index]: measurement for index, measurement in of_chunk.items()}
                results.add_measurements(session, *ids, by_key)
            measured |= of_chunk
            left -= len(of_chunk)
            self._progress(position, 1 - left / len(new), Message.of("stage.measuring", left=left))
        return [measured[index] for index in range(len(plan.pairs))]

    def noise(self, golden: Coordinates) -> Noise:
        """Read what a healthy run shows of a golden slice."""
        with reading(self._work.engine) as session:
            return load_noise(session, self._baseline, golden)

    def keep(self, position: int, result: SliceResult, clock: Clock) -> None:
        """Write what was found of a pair that was planned last."""
        if self._slices is None:
            return
        with clock.measure("store"):
            place = self._place(position)
            results.save_slice(self._work.writing, place, result, self._slices, clock.seconds)
        self._slices = None
        said = without_details(result.judgement)
        self.saved[position] = SavedSlice(said, count_unreadable(result), clock.seconds)

    def settle(self, position: int, bad: Finding) -> None:
        """Let the logits of a pair be bad."""
        saved = self.saved[position]
        settled = with_bad_output(saved.judgement, bad)
        with self._work.writing() as session:
            results.save_bad_output(
                session, self._comparison.id, self._comparison.revision, position, settled
            )
        self.saved[position] = replace(saved, judgement=settled)

    def _place(self, position: int) -> SlicePlace:
        return SlicePlace(
            self._comparison.id, self._comparison.revision, position, *self._slice_ids[position]
        )

    def _progress(self, position: int, share: float, stage: Message) -> None:
        self._work.check()
        of_all = len(self._slice_ids)
        done = round((position + share) * SLICE_STEPS)
        of_slice = Message.of("stage.of_slice", number=position + 1, slices=of_all, stage=stage)
        self._work.lease.progress(done, of_all * SLICE_STEPS, of_slice)


def index_dump(work: Work, path: Path, known: int | None) -> Indexed:
    """Index the dump at a path, if it has not been as it is now; one that is gone is taken as it was."""
    try:
        files = dumps.fingerprint(path)
    except DumpNotFoundError:
        if known is None:
            raise
    else:
        with reading(work.engine) as session:
            found = dumps.find_dump(session, path, files)
        known = found.id if found else _add_dump(work, path, files)
    with reading(work.engine) as session:
        dump = dumps.load_dump(session, known)
        slices = dumps.slices_of_dump(session, known)
    return Indexed(known, dump, {indexed.listing: indexed for indexed in slices})


def _with_merged(work: Work, indexed: Indexed, listings: Iterable[SliceListing]) -> Indexed:
    """Index the slices that are merged from those of ranks for this comparison."""
    merged = [listing for listing in listings if listing.parts and listing not in indexed.slices]
    if not merged:
        return indexed
    with work.writing() as session:
        dumps.add_merged_slices(session, indexed.id, merged)
    with reading(work.engine) as session:
        slices = dumps.slices_of_dump(session, indexed.id)
    return Indexed(indexed.id, indexed.dump, {found.listing: found for found in slices}, indexed.damages)


def _add_dump(work: Work, path: Path, files: str) -> int:
    with work.reading_dump(path):
        dump = open_dump(path)
    with work.writing() as session:
        found = dumps.find_dump(session, path, files)  # by another worker, meanwhile
        return found.id if found else dumps.add_dump(session, dump, files)


def read_indexed(work: Work, indexed: Indexed, slice_id: int) -> Slice | None:
    """Read a slice from the catalogue; from its dump, and into the catalogue, the first time."""
    with reading(work.engine) as session:
        known = dumps.get_slice(session, slice_id)
        if known.merged is None and known.nodes is not None:
            return dumps.load_slice(session, slice_id)
    if known.merged is not None:
        return _read_merged(work, indexed, slice_id, known.merged)
    try:
        with work.reading_dump(known.directory):
            read = read_slice(indexed.dump, known.listing)
    except DumpUnreadableError as error:
        indexed.damages.append(error)
        with work.writing() as session:
            problem = Problem(str(error.path or known.directory), error.message)
            dumps.add_damage(session, slice_id, problem)
        return None
    dumps.add_nodes(work.writing, slice_id, read)
    return read


def _read_merged(work: Work, indexed: Indexed, slice_id: int, listing: SliceListing) -> Slice | None:
    """Merge a slice from those of its ranks, of which none may be damaged."""
    parts = {part: read_indexed(work, indexed, indexed.slices[part].id) for part in listing.parts}
    known = {part: found for part, found in parts.items() if found is not None}
    if len(known) < len(parts):
        return None
    merged = read_merged(listing, known.__getitem__)
    dumps.add_nodes(work.writing, slice_id, merged)
    return merged


def _is_still_good(measurement: Measurement, pair: TensorPair) -> bool:
    """Tell whether a measurement is to be kept: that the data could not be read may be so no longer."""
    return measurement.kind is not MeasurementKind.INCOMPARABLE or pair.incomparable is not None


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
        finish_job(session, work.lease.claim)
