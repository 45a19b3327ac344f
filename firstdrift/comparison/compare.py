"""Two dumps in, a report out.

open_dump ─▶ plan_slices ─▶ a session over all pairs of slices ─▶ report
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.comparison.clock import Clock
from firstdrift.comparison.editable_report import EditableReport
from firstdrift.comparison.in_memory import DumpReader, InMemory
from firstdrift.comparison.report import Options
from firstdrift.comparison.session import ComparisonSession
from firstdrift.comparison.stages import (
    count_unreadable,
    left_over,
    measure_pairs,
    plan_slices,
    without_noise,
)
from firstdrift.comparison.user_hooks import Additions
from firstdrift.dumps.detect import open_dump
from firstdrift.dumps.storage.folders import files_ending
from firstdrift.errors import DumpUnreadableError
from firstdrift.groups import firsts, seconds
from firstdrift.matching.plan import SlicePairing, SlicePlan
from firstdrift.metrics.measurement import Measurement
from firstdrift.model.slice import Coordinates, Slice, SliceListing
from firstdrift.parallel.slices import read_slice
from firstdrift.processes.copies import share_work
from firstdrift.verdict.baseline import Noise, noise_of
from firstdrift.wording.message import Message

if TYPE_CHECKING:
    from firstdrift.comparison.algorithms import Algorithm
    from firstdrift.comparison.postprocess import Postprocess

_BATCH = 32
_WORTH_SHARING: Final = 200
_BYTES_WORTH_SHARING: Final = 64 << 20
_JSON_WORTH_SHARING: Final = 2 << 20
"""So many pairs of tensors, or bytes of them, or of JSON, take clearly longer than to start a process."""


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
) -> EditableReport:
    """Compare two dumps.

    Args:
        golden: the dump that is trusted.
        target: the dump under suspicion.
        options: what is compared, and how.
        progress: is told how far it has come.
        algorithms: functions that give a number for each pair (`firstdrift.comparison.algorithms`).
        postprocess: what is done to tensors before (`firstdrift.comparison.postprocess`).
        baseline: a dump of a healthy run: errors that it shows too, against the golden one, are no faults.

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
        readers = DumpReader(open_dump(Path(golden))), DumpReader(open_dump(Path(target)))
        pairing = _pair(*readers, options)
    if baseline is not None:
        pairing = _with_notes_on_noise(pairing, noise)
    storage = _FromDumps(readers, pairing, progress, options, additions, noise)
    session = ComparisonSession(storage, options.rules, options.thresholds, clock=clock)
    session.run(range(len(pairing.pairs)))
    if session.damaged and not session.judged:
        raise (readers[0].errors + readers[1].errors)[0]
    findings = session.conclude(len(pairing.unmatched_golden))
    results = storage.slices()
    progress(Progress("done", len(results), len(results)))
    return EditableReport(
        golden=readers[0].summary(),
        target=readers[1].summary(),
        options=options,
        pairing=left_over(pairing, [pairing.pairs[position] for position in session.damaged]),
        slices=results,
        findings=findings,
        counts=session.counts(),
        additions=additions,
        seconds=clock.seconds | {"total": clock.elapsed()},
        unreadable=len(session.damaged) + sum(map(count_unreadable, results)),
        noise=noise,
    )


def _pair(golden: DumpReader, target: DumpReader, options: Options) -> SlicePairing:
    """Say which slices are compared; of those that had to be read for that, keep no others."""
    pairing = plan_slices(
        golden.dump,
        target.dump,
        options,
        lambda dump, listing: (golden if dump is golden.dump else target).look_at(listing),
    )
    golden.forget_but(firsts(pairing.pairs))
    target.forget_but(seconds(pairing.pairs))
    return pairing


class _FromDumps(InMemory):
    """Pairs of slices of which nothing is known: they are read, matched and measured."""

    def __init__(
        self,
        readers: tuple[DumpReader, DumpReader],
        pairing: SlicePairing,
        progress: Callable[[Progress], None],
        options: Options,
        additions: Additions,
        noise: Mapping[Coordinates, Noise],
    ) -> None:
        super().__init__(options, additions, noise)
        self._readers, self._pairs, self._progress = readers, pairing.pairs, progress

    def read(self, position: int) -> tuple[Slice, Slice] | None:
        self._progress(Progress("reading", position, len(self._pairs)))
        _read_at_once(self._readers, self._pairs[position])
        golden, target = (
            reader.read(listing) for reader, listing in zip(self._readers, self._pairs[position], strict=True)
        )
        return None if golden is None or target is None else (golden, target)

    def measure(self, position: int, plan: SlicePlan) -> list[Measurement]:
        total, slices = len(plan.pairs), len(self._pairs)

        def tell(batches: int) -> None:
            done = min(batches * _BATCH, total)
            self._progress(Progress("measuring", position, slices, done, total))

        def measure_batch(at: int) -> list[Measurement]:
            return measure_pairs(plan, at * _BATCH, (at + 1) * _BATCH)

        tell(0)
        count = ceil(total / _BATCH)
        if _prepare(plan, slices_to_go=slices - position):
            batches = share_work(measure_batch, list[Measurement], count, tell)
        else:
            batches = list(map(measure_batch, range(count)))
        return list(chain.from_iterable(batches))


def _read_at_once(readers: Sequence[DumpReader], listings: Sequence[SliceListing]) -> None:
    """Let copies of this process read some of what a pair of slices is made of, where that takes long."""
    waiting = [
        (reader, part)
        for reader, listing in zip(readers, listings, strict=True)
        for part in reader.unread(listing)
    ]
    if sum(_json_bytes(part.directory) for _, part in waiting) < _JSON_WORTH_SHARING:
        return

    def read(at: int) -> Slice | None:
        reader, part = waiting[at]
        with suppress(DumpUnreadableError):  # it is told where it is read
            return read_slice(reader.dump, part)
        return None

    slices = share_work(read, Slice | None, len(waiting))
    for (reader, part), found in zip(waiting, slices, strict=True):
        if found is not None:
            reader.keep(part, found)


def _json_bytes(folder: Path) -> int:
    with suppress(OSError):
        return sum(file.stat().st_size for file in files_ending(folder, ".json"))
    return 0


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
    """Say of which slices the healthy run shows nothing."""
    unknown = without_noise(pairing, noise)
    notes = (Message.of("comparison.note.no_baseline", slice=coordinates.name()) for coordinates in unknown)
    return replace(pairing, notes=(*pairing.notes, *notes))


def _require_names(algorithms: "Sequence[Algorithm]") -> None:
    from firstdrift.comparison.algorithms import require_names
    from firstdrift.comparison.table import COLUMNS

    require_names(algorithms, COLUMNS)


def _prepare(plan: SlicePlan, slices_to_go: int) -> bool:
    """Get ready to measure slices of the size of this one; tell whether several processes are worth it.

    Where no values are read, nothing is imported.
    """
    sizes = list(filter(None, (pair.data_bytes for pair in plan.pairs)))
    if sizes:
        from firstdrift.metrics.elementwise.measure import prepare_engine

        prepare_engine(sum(sizes) * slices_to_go)
    return len(sizes) >= _WORTH_SHARING or sum(sizes) >= _BYTES_WORTH_SHARING
