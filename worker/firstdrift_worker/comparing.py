"""The job that compares two dumps, from wherever it was left.

    index both dumps ─▶ pair slices ─▶ for each: match ─▶ measure what is new ─▶ judge ─▶ conclude

Every step is kept before the next begins, so that a job taken over from a dead worker, or made again
under other rules, does only what has not been done.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from firstdrift.comparison.compare import count_unreadable, left_over, plan_slice, plan_slices
from firstdrift.comparison.report import Options, SliceResult
from firstdrift.dumps.detect import open_dump
from firstdrift.errors import DumpNotFoundError, DumpUnreadableError, LimitError, SettingsError
from firstdrift.matching.plan import SlicePairing, SlicePlan, TensorPair
from firstdrift.metrics.measurement import Measurement, MeasurementKind
from firstdrift.model.slice import Coordinates, Dump, Problem, Slice, SliceListing
from firstdrift.parallel.merge_ranks import merge_ranks
from firstdrift.parallel.slices import read_slice
from firstdrift.plurals import counted
from firstdrift.processes.limits import Limits, reading_time
from firstdrift.verdict.baseline import Noise
from firstdrift.verdict.findings import conclude, judge_after
from firstdrift.verdict.judgement import Counts, SliceJudgement
from firstdrift.verdict.series import settle
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
            raise DumpUnreadableError(error.reason, path=path, hint=error.hint) from error
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
    work.lease.progress(0, 0, "indexing")
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
    done: dict[int, SavedSlice] = {}
    slice_ids = pair.slice_ids()
    for position, ids in enumerate(slice_ids):
        place = SlicePlace(comparison_id, comparison.revision, position, *ids)
        earlier = [saved.judgement for saved in done.values()]
        slice_work = _SliceWork(work, comparison.options, place, len(slice_ids), measurer, earlier, baseline)
        saved = slice_work.saved() or slice_work.copied() or slice_work.do(golden, target)
        if saved is not None:
            done[position] = saved
    if slice_ids and not done:
        raise (golden.damages + target.damages)[0]
    _conclude(work, comparison, pair, _settled(work, comparison, done), clock)


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


@dataclass(frozen=True, slots=True)
class _SliceWork:
    """A pair of slices to be compared, number `place.position` of `slices`; `earlier` ran before it.

    `baseline` says in which slice pair of the healthy run the noise of each golden slice is.
    """

    work: Work
    options: Options
    place: SlicePlace
    slices: int
    measurer: Measurer
    earlier: Sequence[SliceJudgement]
    baseline: Mapping[Coordinates, int]

    def saved(self) -> SavedSlice | None:
        """Give what was kept of it for this revision, if it was."""
        with reading(self.work.engine) as session:
            return results.saved_slice(session, self.place)

    def copied(self) -> SavedSlice | None:
        """Take over what was found of it before edits were made, if they change nothing of it."""
        if not self.options.matching.edits:
            return None
        with reading(self.work.engine) as session:
            found = unchanged_slice(session, self.place, self.options)
        return None if found is None else results.copy_slice(self.work.writing, self.place, *found)

    def do(self, golden_dump: Indexed, target_dump: Indexed) -> SavedSlice | None:
        """Match, measure, judge and keep it; None if one of the slices is damaged, which spoils no other."""
        clock = Clock(*STAGES)
        self._progress(0, "reading")
        with clock.measure("index"):
            golden = read_indexed(self.work, golden_dump, self.place.golden)
            target = read_indexed(self.work, target_dump, self.place.target)
        if golden is None or target is None:
            return None
        self._progress(0, "matching")
        with clock.measure("match"):
            plan, rows = plan_slice(golden, target, self.options)
        with clock.measure("measure"):
            measurements = self._measure(plan)
            judgement = judge_after(
                self.earlier,
                plan,
                rows,
                measurements,
                self.options.rules,
                limits=self.options.thresholds,
                noise=self._noise(golden),
            )
        result = SliceResult(plan, rows, tuple(measurements), judgement)
        with clock.measure("store"):
            results.save_slice(self.work.writing, self.place, result, (golden, target), clock.seconds)
        return SavedSlice(results.without_details(judgement), count_unreadable(result), clock.seconds)

    def _noise(self, golden: Slice) -> Noise:
        """Read what a healthy run shows of it."""
        with reading(self.work.engine) as session:
            return load_noise(session, self.baseline, golden.listing.coordinates)

    def _measure(self, plan: SlicePlan) -> list[Measurement]:
        """Measure what has not been measured before, and keep it as it comes."""
        keys = results.pair_keys(plan.pairs)
        with reading(self.work.engine) as session:
            known = results.load_measurements(session, self.place.golden, self.place.target)
        measured = {
            index: known[key]
            for index, (key, pair) in enumerate(zip(keys, plan.pairs, strict=True))
            if key in known and _is_still_good(known[key], pair)
        }
        new = [index for index in range(len(plan.pairs)) if index not in measured]
        bytes_here = sum(plan.pairs[index].data_bytes for index in new)
        bytes_to_come = bytes_here * (self.slices - self.place.position)
        left = len(new)
        self._progress(0, "measuring")
        for chunk, measurements in self.measurer.measure(plan, new, bytes_to_come, self.work.check):
            of_chunk = dict(zip(chunk.indexes, measurements, strict=True))
            with self.work.writing() as session:
                by_key = {keys[index]: measurement for index, measurement in of_chunk.items()}
                results.add_measurements(session, self.place.golden, self.place.target, by_key)
            measured |= of_chunk
            left -= len(of_chunk)
            self._progress(1 - left / len(new), f"measuring, {counted(left, 'pair')} left")
        return [measured[index] for index in range(len(plan.pairs))]

    def _progress(self, share: float, stage: str) -> None:
        self.work.check()
        done = round((self.place.position + share) * SLICE_STEPS)
        stage = f"slice {self.place.position + 1} of {self.slices}: {stage}"
        self.work.lease.progress(done, self.slices * SLICE_STEPS, stage)


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
            problem = Problem(str(error.path or known.directory), error.reason)
            dumps.add_damage(session, slice_id, problem)
        return None
    dumps.add_nodes(work.writing, slice_id, read)
    return read


def _read_merged(work: Work, indexed: Indexed, slice_id: int, listing: SliceListing) -> Slice | None:
    """Merge a slice from those of its ranks, of which none may be damaged."""
    parts = [read_indexed(work, indexed, indexed.slices[part].id) for part in listing.parts]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    merged = merge_ranks(listing, known)
    dumps.add_nodes(work.writing, slice_id, merged)
    return merged


def _is_still_good(measurement: Measurement, pair: TensorPair) -> bool:
    """Tell whether a measurement is to be kept: that the data could not be read may be so no longer."""
    return measurement.kind is not MeasurementKind.INCOMPARABLE or pair.incomparable is not None


def _settled(work: Work, comparison: Comparison, done: Mapping[int, SavedSlice]) -> dict[int, SavedSlice]:
    """Let what was kept of each slice agree with what all of them show."""
    judgements = settle([saved.judgement for saved in done.values()])
    found: dict[int, SavedSlice] = {}
    for (position, saved), judgement in zip(done.items(), judgements, strict=True):
        if judgement is not saved.judgement:
            with work.writing() as session:
                results.save_bad_output(session, comparison.id, comparison.revision, position, judgement)
        found[position] = replace(saved, judgement=judgement)
    return found


def _conclude(
    work: Work, comparison: Comparison, pair: DumpPair, done: Mapping[int, SavedSlice], clock: Clock
) -> None:
    unread = [listings for at, listings in enumerate(pair.pairing.pairs) if at not in done]
    left = left_over(pair.pairing, unread)
    for saved in done.values():
        clock.add(saved.seconds)
    findings = conclude([saved.judgement for saved in done.values()])
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
