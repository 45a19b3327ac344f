"""What the workers of a cluster do of a comparison: functions of what they are given, and of the dumps.

    plan ─▶ batches_of ─▶ measure, for each batch ─▶ judge
      └─────────────────────────────────────────────────┘    the plan, which stays where it was made

What a function returns is the same whichever worker calls it, and however often.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Final

from msgspec import Struct

from firstdrift.comparison.clock import Clock
from firstdrift.comparison.from_dumps import Handed
from firstdrift.comparison.in_memory import Contents, DumpReader
from firstdrift.comparison.outlines import outline_of
from firstdrift.comparison.report import Options, SliceResult
from firstdrift.comparison.session import ComparisonSession, Planned, Prepared
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
from firstdrift.verdict.judgement import Finding, SliceJudgement
from firstdrift.wording.message import Message

BATCH_BYTES: Final = 256 << 20
BATCH_PAIRS: Final = 1 << 14
"""Pairs are measured in batches of so many bytes, or of so many: half a second or more, as a task costs
milliseconds."""

_DUMPS_HELD: Final = 8


class SliceTask(Struct, frozen=True):
    """A pair of slices, and how it is compared.

    Attributes:
        comparison: names the comparison, so that a dump is opened once for it.
        golden: absolute path of the dump, as all workers see it; likewise target.
        listings: the golden and the target slice.
        noise: what a healthy run shows of the golden slice.
        details: whether rows and pairs of tensors are sent back; likewise slices.
        roots: real paths of the directories outside of which nothing is read; None for no bounds.
    """

    comparison: str
    golden: Path
    target: Path
    listings: tuple[SliceListing, SliceListing]
    options: Options
    noise: Noise
    details: bool
    slices: bool = False
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
    """
    confine_process(task.roots)
    clock = Clock()
    with clock.measure("index"):
        golden, of_golden = _read(task.comparison, task.golden, task.listings[0])
        target, of_target = _read(task.comparison, task.target, task.listings[1])
    with clock.measure("match"):
        planned = plan_slice(golden, target, task.options)
    slices = (golden, target) if task.slices else None
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


def batches_of(planned: ReadPlan) -> list[tuple[int, int]]:
    """Cut the pairs of a plan into batches: first pair, and the first one behind."""
    pairs = planned.planned.plan.pairs
    batches, start, size = [], 0, 0
    for at, pair in enumerate(pairs, start=1):
        size += pair.data_bytes
        if size >= BATCH_BYTES or at - start >= BATCH_PAIRS:
            batches.append((start, at))
            start, size = at, 0
    return [*batches, (start, len(pairs))] if start < len(pairs) else batches


def measure(task: SliceTask, planned: ReadPlan, start: int, stop: int) -> list[Measurement]:
    """Measure the pairs start..stop-1 of a plan."""
    confine_process(task.roots)
    compared = planned.planned.plan
    size = sum(pair.data_bytes for pair in compared.pairs[start:stop])
    if size:
        from firstdrift.metrics.elementwise.measure import prepare_engine

        prepare_engine(size)
    return measure_pairs(compared, start, stop)


def judge(
    task: SliceTask,
    position: int,
    planned: ReadPlan,
    batches: Sequence[Sequence[Measurement]],
    before: Mapping[int, SliceJudgement],
) -> bytes:
    """Judge a pair of slices: what is `Said`, as bytes.

    Args:
        task: which slices, and how.
        position: of them, in the comparison.
        planned: what is compared.
        batches: the measurements, in order.
        before: what is said of the slices before, by position.
    """
    confine_process(task.roots)
    clock = Clock()
    clock.add(planned.seconds)
    storage = _OneSlice(task, planned)
    session = ComparisonSession(storage, task.options.rules, task.options.thresholds, known=before)
    measured = tuple(chain.from_iterable(batches))
    judgement = session.judge(position, Prepared(planned.planned, measured, clock))
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
        del position, clock
        packed = compressed(result) if self._task.details else None
        planned = self._planned
        self.handed = pack(Handed(planned.contents, outline_of(result), packed, planned.slices))

    def settle(self, position: int, bad: Finding) -> None:
        raise NotImplementedError  # whoever knows all slices does
