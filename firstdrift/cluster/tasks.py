"""What the workers of a cluster do of a comparison: functions of what they are given, and of the dumps.

    plan ─▶ batches_of ─▶ measure, for each batch ─▶ judge
      └─────────────────────────────────────────────────┘    the plan, which stays where it was made

What a function returns is the same whichever worker calls it, and however often.
"""

from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from firstdrift.comparison.clock import Clock
from firstdrift.comparison.from_dumps import Handed
from firstdrift.comparison.in_memory import Contents, DumpReader
from firstdrift.comparison.outlines import outline_of
from firstdrift.comparison.report import Options, SliceResult
from firstdrift.comparison.session import ComparisonSession, Judgements, Planned, Prepared
from firstdrift.comparison.shown import shown
from firstdrift.comparison.slice_results import compressed
from firstdrift.comparison.stages import measure_pairs, plan_slice
from firstdrift.dumps.detect import open_dump
from firstdrift.errors import SettingsError
from firstdrift.files import confine_process
from firstdrift.matching.plan import Messages, SlicePlan, TensorPair
from firstdrift.metrics.measurement import Measurement
from firstdrift.model.slice import Coordinates, Dump, Slice, SliceListing
from firstdrift.processes.packed import pack
from firstdrift.verdict.baseline import Noise
from firstdrift.verdict.earlier import Earlier
from firstdrift.verdict.judgement import Finding, SliceJudgement
from firstdrift.wording.message import Message

BATCH_BYTES: Final = 256 << 20
BATCH_PAIRS: Final = 1 << 14
"""Pairs are measured in batches of so many bytes, or of so many: half a second or more, as a task costs
milliseconds."""

_DUMPS_HELD: Final = 8

Engine: TypeAlias = Literal["numpy", "numba"] | None
"""What measures values, the same wherever they are measured; None where there are none."""


class Batch(NamedTuple):
    """Some pairs of a plan: the first, the first one behind, and how many bytes of values they have."""

    start: int
    stop: int
    size: int


class SliceTask(Struct, frozen=True):
    """A pair of slices, and how it is compared.

    Attributes:
        comparison: names the comparison, so that a dump is opened once for it.
        golden: absolute path of the dump, as all workers see it; likewise target.
        listings: the golden and the target slice.
        noise: what a healthy run shows of the golden slice.
        version: of firstdrift, that of whoever asks.
        details: whether rows and pairs of tensors are sent back.
        unknown: where they are for a catalogue, which of the two slices it does not know yet; None where they
            are for no catalogue.
        roots: real paths of the directories outside of which nothing is read; None for no bounds.
    """

    comparison: str
    golden: Path
    target: Path
    listings: tuple[SliceListing, SliceListing]
    options: Options
    noise: Noise
    version: str
    details: bool
    unknown: tuple[bool, bool] | None = None
    roots: tuple[Path, ...] | None = None


class ReadPlan(Struct, frozen=True, eq=False):
    """What is compared of a pair of slices, what was read for that, and seconds by stage."""

    planned: Planned
    contents: tuple[tuple[Contents, ...], tuple[Contents, ...]]
    slices: tuple[Slice, Slice] | None
    seconds: dict[str, float]


class Said(Struct, frozen=True):
    """What is said of a pair of slices, what its storage is handed, and seconds by stage."""

    said: SliceJudgement
    handed: bytes
    seconds: dict[str, float]


def plan(task: SliceTask) -> ReadPlan:
    """Read and match a pair of slices.

    Raises:
        DumpUnreadableError: one of the slices is damaged.
        SettingsError: this is another version of firstdrift; likewise of all the functions below.
    """
    _begin(task)
    clock = Clock()
    with clock.measure("index"):
        golden, of_golden = _read(task.comparison, task.golden, task.listings[0])
        target, of_target = _read(task.comparison, task.target, task.listings[1])
    with clock.measure("match"):
        planned = plan_slice(golden, target, task.options)
    slices = None if task.unknown is None else (golden, target)
    return ReadPlan(planned, (of_golden, of_target), slices, clock.seconds)


def _read(comparison: str, dump: Path, listing: SliceListing) -> tuple[Slice, tuple[Contents, ...]]:
    reader = DumpReader(_opened(comparison, dump))
    read = reader.read(listing)
    if read is None:
        raise reader.errors[0]
    return read, tuple(reader.contents)


@lru_cache(_DUMPS_HELD)
def _opened(comparison: str, dump: Path) -> Dump:
    del comparison  # a dump may have changed from one to the next
    return open_dump(dump)


def _begin(task: SliceTask, engine: Engine = None) -> None:
    """Do as the one who asks would.

    Raises:
        SettingsError: this is another version of firstdrift, or lacks the engine.
    """
    require_version(task.version)
    confine_process(task.roots)
    if engine is None:
        return
    from firstdrift.metrics.elementwise.measure import choose_engine

    if not choose_engine(engine):
        raise SettingsError(Message.of("cluster.no_engine"), hint=Message.of("cluster.hint.engine"))


def require_version(asked: str) -> None:
    """Refuse to work for another version of firstdrift, whose records and rules differ.

    Raises:
        SettingsError: it is another one.
    """
    here = version("firstdrift")
    if asked != here:
        raise SettingsError(
            Message.of("cluster.other_version", there=here, here=asked),
            hint=Message.of("cluster.hint.same_version"),
        )


def batches_of(task: SliceTask, planned: ReadPlan) -> list[Batch]:
    """Cut the pairs of a plan into batches."""
    _begin(task)
    pairs = planned.planned.plan.pairs
    batches, start, size = [], 0, 0
    for at, pair in enumerate(pairs, start=1):
        size += pair.data_bytes
        if size >= BATCH_BYTES or at - start >= BATCH_PAIRS:
            batches.append(Batch(start, at, size))
            start, size = at, 0
    return [*batches, Batch(start, len(pairs), size)] if start < len(pairs) else batches


def measure(task: SliceTask, planned: ReadPlan, batch: Batch, engine: Engine) -> list[Measurement]:
    """Measure a batch of the pairs of a plan."""
    _begin(task, engine)
    return measure_pairs(planned.planned.plan, batch.start, batch.stop)


class Known(Struct, frozen=True, eq=False):
    """What is known of a pair of slices when it is judged.

    Attributes:
        position: in the comparison.
        earlier: what is said of those before.
        engine: by which it was measured.
    """

    position: int
    earlier: Earlier
    engine: Engine


def judge(
    task: SliceTask, planned: ReadPlan, batches: Sequence[Sequence[Measurement]], known: Known
) -> bytes:
    """Judge a pair of slices that was measured in batches: what is `Said`, as bytes."""
    _begin(task, known.engine)
    clock = Clock()
    clock.add(planned.seconds)
    storage = _OneSlice(task, planned)
    session = ComparisonSession(storage, task.options.rules, task.options.thresholds)
    session.judged = Judgements.after(known.earlier)
    measured = tuple(chain.from_iterable(batches))
    judgement = session.judge(known.position, Prepared(planned.planned, measured, clock))
    return pack(Said(judgement, storage.handed, clock.seconds))


class _OneSlice:
    """A storage (`firstdrift.comparison.session.Storage`) of one pair of slices that was measured."""

    handed = b""

    def __init__(self, task: SliceTask, planned: ReadPlan) -> None:
        self._task, self._planned = task, planned

    def kept(self, position: int) -> SliceJudgement | None:
        del position
        return None

    def planned(self, position: int, clock: Clock) -> Planned:
        del position, clock
        return self._planned.planned

    def measured(self, position: int, plan: SlicePlan) -> Sequence[Measurement]:
        raise NotImplementedError  # they were measured in batches

    def noise(self, golden: Coordinates) -> Noise:
        del golden
        return self._task.noise

    def shown(self, position: int, pair: TensorPair, measured: Measurement) -> Messages:
        del position
        return shown(pair, measured)

    def keep(self, position: int, result: SliceResult, clock: Clock) -> None:
        del position
        planned = self._planned
        if self._task.unknown is not None and planned.slices is not None:
            from firstdrift.catalogue.comparisons.packed_slices import pack_from_here

            with clock.measure("store"):
                self.handed = pack_from_here(result, planned.slices, self._task.unknown)
            return
        packed = compressed(result) if self._task.details else None
        self.handed = pack(Handed(planned.contents, outline_of(result), packed))

    def settle(self, position: int, bad: Finding) -> None:
        raise NotImplementedError  # whoever knows all slices does
