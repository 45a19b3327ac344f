"""Two dumps in, a report out.

open_dump ─▶ plan_slices ─▶ a session over all pairs of slices ─▶ report
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from firstdrift.comparison.clock import Clock
from firstdrift.comparison.editable_report import EditableReport
from firstdrift.comparison.from_dumps import FromDumps, Progress
from firstdrift.comparison.in_memory import DumpReader
from firstdrift.comparison.report import Options
from firstdrift.comparison.session import ComparisonSession
from firstdrift.comparison.stages import left_over, plan_slices, without_noise
from firstdrift.comparison.user_hooks import NOTHING_MORE, Additions
from firstdrift.dumps.detect import open_dump
from firstdrift.errors import SettingsError
from firstdrift.groups import firsts, seconds
from firstdrift.matching.plan import SlicePairing
from firstdrift.model.slice import Coordinates
from firstdrift.processes.copies import allow_copies, copies_allowed
from firstdrift.remote.addresses import is_address, naming_addresses
from firstdrift.verdict.baseline import Noise, noise_of
from firstdrift.wording.message import Message

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from firstdrift.comparison.algorithms import Algorithm
    from firstdrift.comparison.postprocess import Postprocess
    from firstdrift.comparison.side_by_side import Crew, Work

_log = logging.getLogger(__name__)

_FEWEST: Final = 2
_WORTH_LANES: Final = 0.5
"""Seconds that slices take one after the other, from which processes for them pay off."""


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
        golden: the dump that is trusted: its path, or its address on another host ("s3://bucket/golden").
        target: the dump under suspicion, likewise.
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
    additions = Additions(tuple(algorithms), postprocess)
    return compare_dumps((golden, target), options or Options(), progress, additions, baseline)


@naming_addresses()
def compare_dumps(
    places: tuple[Path | str, Path | str],
    options: Options,
    progress: Callable[[Progress], None] = _silent,
    additions: Additions = NOTHING_MORE,
    baseline: Path | str | None = None,
    *,
    details: bool = True,
    crew: "Crew | None" = None,
) -> EditableReport:
    """Compare two dumps, as `compare` does; a crew does the work elsewhere.

    Without `details` the report does not keep the rows and pairs of slices, which `frame`, `match` and most
    files ask for: whoever asks for them gets a LookupError.

    Raises:
        DumpError: as `compare`; likewise SettingsError.
    """
    _require_names(additions.algorithms)
    paths = _at_hand(places[0], progress), _at_hand(places[1], progress)
    noise = {} if baseline is None else _noise(paths[0], baseline, options, progress, crew)
    clock = Clock("index", "match", "measure")
    with clock.measure("index"):
        readers = _opened(paths[0]), _opened(paths[1])
        pairing = _pair(*readers, options)
    if baseline is not None:
        pairing = _with_notes_on_noise(pairing, noise)
    storage = FromDumps(readers, pairing, progress, options, additions, noise, details=details)
    session = ComparisonSession(storage, options.rules, options.thresholds, clock=clock)
    positions = list(range(len(pairing.pairs)))
    if crew is not None:
        from firstdrift.comparison.side_by_side import Work

        work = Work(paths, options, pairing.pairs, noise, details)
        positions = _judge_elsewhere(session, storage, progress, crew, work)
    _judge_all(session, storage, progress, positions)
    if session.damaged and not session.judged:
        raise (readers[0].errors + readers[1].errors)[0]
    findings = session.conclude(len(pairing.unmatched_golden))
    outlines = storage.outlined()
    progress(Progress("done", len(outlines), len(outlines)))
    return EditableReport(
        golden=readers[0].summary(),
        target=readers[1].summary(),
        options=options,
        pairing=left_over(pairing, [pairing.pairs[position] for position in session.damaged]),
        slices=storage.slices(),
        outlines=outlines,
        findings=findings,
        counts=session.counts(),
        additions=additions,
        seconds=clock.seconds | {"total": clock.elapsed()},
        unreadable=len(session.damaged) + sum(outline.unreadable for outline in outlines),
        noise=noise,
    )


def _at_hand(place: Path | str, progress: Callable[[Progress], None]) -> Path:
    if not is_address(place):
        return Path(place)
    from firstdrift.remote.fetch import fetched

    return fetched(str(place), lambda done, total: progress(Progress("fetching", 0, 1, done, total)))


def _opened(path: Path) -> DumpReader:
    reader = DumpReader(open_dump(path))
    reader.settle()
    return reader


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


def _judge_all(
    session: ComparisonSession,
    storage: FromDumps,
    progress: Callable[[Progress], None],
    positions: Sequence[int],
) -> None:
    """Judge pairs of slices, side by side where that is sooner done: the first one tells.

    The last ones, too few for all lanes, are measured one after the other by all processes if that is sooner
    done than by one each.
    """
    since = time.monotonic()
    session.run(positions[:1])
    left = positions[1:]
    first = time.monotonic() - since
    is_short = first * len(left) < _WORTH_LANES
    if not copies_allowed() or storage.has_hooks or len(left) < _FEWEST or is_short:
        session.run(left)
        return
    from firstdrift.comparison.side_by_side import SideBySide, serve, started
    from firstdrift.processes.lanes import CopyLane

    processes = copies_allowed() + 1
    count = min(processes, len(left))
    odd = len(left) % count
    in_a_lane = first + (processes - 1) * storage.shared_seconds
    divided = len(left) - odd if odd * first <= in_a_lane and storage.shared_seconds else len(left)

    def work(line: "Connection") -> None:
        allow_copies(processes // count - 1)
        serve(session, storage, line)

    with started(lambda: CopyLane(work), count) as lanes:
        tell = _measuring(progress, len(left) + 1)
        session.run(SideBySide(session, storage, lanes, storage.places(), tell).run(left[:divided]))
    session.run(left[divided:])


def _judge_elsewhere(
    session: ComparisonSession,
    storage: FromDumps,
    progress: Callable[[Progress], None],
    crew: "Crew",
    work: "Work",
) -> list[int]:
    """Have all pairs of slices judged by a crew; return those that are left because it was lost."""
    from firstdrift.comparison.side_by_side import SideBySide

    if storage.has_hooks:
        raise SettingsError(Message.of("cluster.no_hooks"), hint=Message.of("cluster.hint.no_cluster"))
    positions = range(len(work.pairs))
    with crew.lanes(work) as lanes:
        tell = _measuring(progress, len(positions))
        left = SideBySide(session, storage, lanes, storage.places(), tell).run(positions)
    if left:
        _log.warning("%s was lost; what it has not done is done here", crew)
    return left


def _measuring(progress: Callable[[Progress], None], slices: int) -> Callable[[int, int, int], None]:
    return lambda judged, done, total: progress(Progress("measuring", judged, slices, done, total))


def _noise(
    golden: Path,
    baseline: Path | str,
    options: Options,
    progress: Callable[[Progress], None],
    crew: "Crew | None",
) -> dict[Coordinates, Noise]:
    """Compare a healthy run with the golden one, and take its errors for noise.

    What was said of matching target nodes does not hold for its nodes.
    """
    matching = replace(options.matching, mappings=(), edits=(), token_offset=0, target_layout=None)
    chosen = Options(matching=matching, level=options.level)
    report = compare_dumps((golden, baseline), chosen, progress, crew=crew)
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
    if not algorithms:
        return
    from firstdrift.comparison.algorithms import require_names
    from firstdrift.comparison.table import COLUMNS

    require_names(algorithms, COLUMNS)
