"""Two dumps in, a report out: open, pair slices, match, measure, judge.

    open_dump ─▶ plan_slices ─▶ read_slice ─▶ plan_slice ─▶ measure_pairs ─▶ judge_slice ─▶ conclude

Each stage is a function of what the one before it gave, so that the worker can run them apart and a
test can look in between.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.comparison.clock import Clock
from firstdrift.comparison.levels import at_level
from firstdrift.comparison.report import DumpSummary, Options, Report, SliceResult
from firstdrift.comparison.user_hooks import Additions
from firstdrift.dumps.detect import open_dump
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import DumpUnreadableError, SettingsError
from firstdrift.matching.match import match_slices
from firstdrift.matching.plan import SlicePairing, SlicePlan, TensorPair
from firstdrift.matching.slices import Read, pair_slices
from firstdrift.metrics.measure import measure_pair
from firstdrift.metrics.measurement import FITS_NOT, Measurement, MeasurementKind
from firstdrift.model.slice import Coordinates, Dump, Problem, Slice, SliceListing
from firstdrift.model.tensor import is_part_of_rank
from firstdrift.parallel.slices import read_slice
from firstdrift.verdict.baseline import QUIET, Noise, noise_of
from firstdrift.verdict.findings import conclude, judge_after
from firstdrift.verdict.judgement import Counts
from firstdrift.verdict.logits import is_logits
from firstdrift.verdict.router_ties import may_be_scores
from firstdrift.verdict.series import settle
from firstdrift.verdict.tree import TreeRow, build_rows
from firstdrift.wording.phrases import as_message

if TYPE_CHECKING:
    from firstdrift.comparison.algorithms import Algorithm
    from firstdrift.comparison.postprocess import Postprocess


class Progress(Struct, frozen=True):
    """How far a comparison has come: `done` of `total` pairs of slices, and of pairs in this slice."""

    stage: str
    slices_done: int
    slices_total: int
    pairs_done: int = 0
    pairs_total: int = 0


def _silent(_: Progress) -> None:
    """Report to nobody."""


def compare(
    golden: Path | str,
    target: Path | str,
    options: Options | None = None,
    progress: Callable[[Progress], None] = _silent,
    *,
    algorithms: "Sequence[Algorithm]" = (),
    postprocess: "Postprocess | None" = None,
    baseline: Path | str | None = None,
) -> Report:
    """Compare two dumps.

    Args:
        golden: the dump that is trusted.
        target: the dump under suspicion.
        options: what is compared, and how.
        progress: is told how far it has come.
        algorithms: functions that give a number for each pair (`firstdrift.comparison.algorithms`).
        postprocess: what is done to tensors before (`firstdrift.comparison.postprocess`).
        baseline: a dump of a healthy run, which is compared with the golden one first: errors that it shows
            too are no faults.

    Raises:
        DumpError: one of them cannot be used at all. What can be used is compared; the rest is
            listed in the report as problems, unmatched and incomparable.
        SettingsError: the options make no sense, or the baseline has nothing in common with the golden dump.
    """
    options = options or Options()
    noise = {} if baseline is None else _noise(golden, baseline, options, progress)
    additions = Additions(tuple(algorithms), postprocess)
    if algorithms:
        _require_names(algorithms)
    clock = Clock("index", "match", "measure")
    with clock.measure("index"):
        golden_dump, target_dump = open_dump(Path(golden)), open_dump(Path(target))
        read_golden, read_target = _Read(golden_dump), _Read(target_dump)
        pairing = plan_slices(
            golden_dump,
            target_dump,
            options,
            lambda dump, listing: (read_golden if dump is golden_dump else read_target).look_at(listing),
        )
        read_golden.forget_but(golden for golden, _ in pairing.pairs)
        read_target.forget_but(target for _, target in pairing.pairs)
    if baseline is not None:
        pairing = _with_notes_on_noise(pairing, noise)
    results: list[SliceResult] = []
    unread: list[tuple[SliceListing, SliceListing]] = []
    for done, listings in enumerate(pairing.pairs):
        progress(Progress("reading", done, len(pairing.pairs)))
        with clock.measure("index"):
            golden_slice, target_slice = read_golden.read(listings[0]), read_target.read(listings[1])
        if golden_slice is None or target_slice is None:
            unread.append(listings)
            continue
        with clock.measure("match"):
            plan, rows = plan_slice(golden_slice, target_slice, options)
            plan = additions.prepare(plan)
        with clock.measure("measure"):
            _prepare(plan, slices_to_go=len(pairing.pairs) - done)
            measurements = _measure_all(plan, Progress("measuring", done, len(pairing.pairs)), progress)
            measurements = additions.measure(plan, measurements)
            earlier = [result.judgement for result in results]
            judgement = judge_after(
                earlier,
                plan,
                rows,
                measurements,
                options.rules,
                limits=options.thresholds,
                noise=noise.get(listings[0].coordinates, QUIET),
            )
        results.append(SliceResult(plan, rows, tuple(measurements), judgement))
    if unread and not results:
        raise (read_golden.errors + read_target.errors)[0]
    with clock.measure("measure"):
        results = settled(results)
        findings = conclude([result.judgement for result in results])
    progress(Progress("done", len(results), len(results)))
    return Report(
        golden=read_golden.summary(),
        target=read_target.summary(),
        options=options,
        pairing=left_over(pairing, unread),
        slices=tuple(results),
        findings=findings,
        counts=sum((result.judgement.counts for result in results), Counts()),
        additions=additions,
        seconds=clock.seconds | {"total": clock.elapsed()},
        unreadable=len(unread) + sum(map(count_unreadable, results)),
        noise=noise,
    )


def settled(results: Sequence[SliceResult]) -> list[SliceResult]:
    """Let what is said of each slice agree with what all of them show."""
    judgements = settle([result.judgement for result in results], [result.rows for result in results])
    return [replace(result, judgement=said) for result, said in zip(results, judgements, strict=True)]


def _noise(
    golden: Path | str, baseline: Path | str, options: Options, progress: Callable[[Progress], None]
) -> dict[Coordinates, Noise]:
    """Compare a healthy run with the golden one, and take its errors for noise.

    What was said of matching target nodes does not hold for its nodes.
    """
    matching = replace(options.matching, mappings=(), edits=(), token_offset=0, target_layout=None)
    report = compare(golden, baseline, Options(matching=matching, level=options.level), progress)
    return {
        result.plan.golden.coordinates: noise_of(result.rows, result.judgement.rows)
        for result in report.slices
    }


def _with_notes_on_noise(pairing: SlicePairing, noise: Mapping[Coordinates, Noise]) -> SlicePairing:
    """Say of which slices the healthy run shows nothing.

    Raises:
        SettingsError: of none it shows anything.
    """
    unknown = [golden.coordinates for golden, _ in pairing.pairs if golden.coordinates not in noise]
    if pairing.pairs and len(unknown) == len(pairing.pairs):
        raise SettingsError(
            "the baseline shows nothing of the slices that are compared",
            hint="Give a dump of a healthy run with the same steps, ranks and tokens",
        )
    notes = (f"the baseline shows nothing of {coordinates.describe()}" for coordinates in unknown)
    return replace(pairing, notes=(*pairing.notes, *notes))


def _require_names(algorithms: "Sequence[Algorithm]") -> None:
    from firstdrift.comparison.algorithms import require_names
    from firstdrift.comparison.table import COLUMNS

    require_names(algorithms, COLUMNS)


def left_over(pairing: SlicePairing, unread: list[tuple[SliceListing, SliceListing]]) -> SlicePairing:
    """Move slices that turned out to be damaged to what could not be compared."""
    return replace(
        pairing,
        pairs=tuple(pair for pair in pairing.pairs if pair not in unread),
        unmatched_golden=pairing.unmatched_golden + tuple(golden.coordinates for golden, _ in unread),
        unmatched_target=pairing.unmatched_target + tuple(target.coordinates for _, target in unread),
    )


def count_unreadable(result: SliceResult) -> int:
    """Count the pairs whose values were saved, and are missing, damaged or not as recorded."""
    return sum(
        measured.kind is MeasurementKind.INCOMPARABLE
        and pair.incomparable is None
        and (measured.reason is None or measured.reason.id not in FITS_NOT)
        and any(side.problem is not None or side.location is not None for side in (pair.golden, pair.target))
        for pair, measured in zip(result.plan.pairs, result.measurements, strict=True)
    )


def plan_slices(golden: Dump, target: Dump, options: Options, read: Read = read_slice) -> SlicePairing:
    """Say which slices of the two dumps are compared with each other.

    Args:
        golden: the golden dump.
        target: the target dump.
        options: which slices may be compared.
        read: reads those that tell whether ranks of one number hold the same.
    """
    return pair_slices(golden, target, options.matching, read)


def plan_slice(golden: Slice, target: Slice, options: Options) -> tuple[SlicePlan, tuple[TreeRow, ...]]:
    """Say which nodes and tensors of two slices are compared, and lay the two trees over each other."""
    plan = at_level(match_slices(golden, target, options.matching), target, options.level)
    return plan, build_rows(golden, target, plan)


def _prepare(plan: SlicePlan, slices_to_go: int) -> None:
    """Get ready to measure slices of the size of this one; where no values are read, nothing is imported."""
    if volume := sum(pair.data_bytes for pair in plan.pairs):
        from firstdrift.metrics.elementwise.measure import prepare_engine

        prepare_engine(volume * slices_to_go)


_BATCH = 256


def measure_pairs(plan: SlicePlan, start: int, stop: int) -> list[Measurement]:
    """Measure the pairs start..stop-1 of a plan; a pair that cannot be measured says why."""
    return [_measure(pair) for pair in plan.pairs[start:stop]]


def _measure(pair: TensorPair) -> Measurement:
    if pair.incomparable is not None:
        return Measurement(MeasurementKind.INCOMPARABLE, as_message(pair.incomparable))
    if pair.golden_parts or pair.target_parts:
        from firstdrift.metrics.joined import measure_joined

        return measure_joined(pair.golden, pair.target, pair.parts, load_tensor, pair.transform)
    is_part = is_part_of_rank(pair.golden) or is_part_of_rank(pair.target)
    has_data = pair.golden.location is not None and not is_part
    measure = partial(
        measure_pair,
        transform=pair.transform,
        logits=has_data and is_logits(pair),
        scores=has_data and may_be_scores(pair),
    )
    if pair.golden.shards is not None or pair.target.shards is not None:
        from firstdrift.metrics.ranks.merged import measure_shards

        return measure_shards(pair.golden, pair.target, measure, load_tensor)
    return measure(pair.golden, pair.target, load_tensor)


def _measure_all(plan: SlicePlan, at: Progress, progress: Callable[[Progress], None]) -> list[Measurement]:
    measurements: list[Measurement] = []
    for start in range(0, len(plan.pairs), _BATCH):
        progress(Progress(at.stage, at.slices_done, at.slices_total, start, len(plan.pairs)))
        measurements += measure_pairs(plan, start, start + _BATCH)
    return measurements


class _Read:
    """Reads the slices of a dump and counts what there is in them."""

    def __init__(self, dump: Dump) -> None:
        self.dump = dump
        self.nodes = 0
        self.tensors = 0
        self.slices: set[SliceListing] = set()
        self.problems: list[Problem] = list(dump.problems)
        self.errors: list[DumpUnreadableError] = []
        self.order_origin = "recorded"
        self._looked_at: dict[SliceListing, Slice] = {}

    def look_at(self, listing: SliceListing) -> Slice:
        """Return a slice before it is known whether it is compared, and keep it until then.

        Raises:
            DumpUnreadableError: it is damaged.
        """
        found = self._looked_at[listing] = read_slice(self.dump, listing)
        return found

    def forget_but(self, listings: Iterable[SliceListing]) -> None:
        """Keep what was looked at only of slices that are compared, merged or not."""
        compared = {part for listing in listings for part in (listing.parts or (listing,))}
        self._looked_at = {key: found for key, found in self._looked_at.items() if key in compared}

    def read(self, listing: SliceListing) -> Slice | None:
        """Return a slice; None if it is damaged, which spoils no other."""
        try:
            read = self._read(listing)
        except DumpUnreadableError as error:
            self.errors.append(error)
            self.problems.append(Problem(str(error.path or listing.directory), error.reason))
            return None
        self.slices.update(listing.parts or (listing,))
        self.nodes += len(read.nodes)
        self.tensors += sum(len(node.tensors) for node in read.nodes)
        self.problems += read.problems
        self.order_origin = read.order_origin
        return read

    def _read(self, listing: SliceListing) -> Slice:
        if listing.parts:
            from firstdrift.parallel.merge_ranks import merge_ranks

            return merge_ranks(listing, [self._read(part) for part in listing.parts])
        return self._looked_at.pop(listing, None) or read_slice(self.dump, listing)

    def summary(self) -> DumpSummary:
        return DumpSummary(
            path=str(self.dump.path),
            format=self.dump.format,
            slices=len(self.dump.slices),
            nodes=self.nodes,
            tensors=self.tensors,
            problems=tuple(dict.fromkeys(self.problems)),  # slices may share a file
            order_origin=self.order_origin,
            compared=len(self.slices),
        )
