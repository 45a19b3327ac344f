"""Measure the pairs of a plan chunk by chunk, in a thread or in a pool of processes.

A process that dies while it measures (its memory ran out, or a damaged file brought it down) takes
nothing with it but the pair it died of: the chunks it may have been at are measured again by
themselves, halved until that pair is alone, and the pair says so.
"""

import logging
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from msgspec.structs import replace

from firstdrift.comparison.shown import shown
from firstdrift.comparison.stages import measure_pairs
from firstdrift.files import confine_process
from firstdrift.logs import Carried, carried, take_over
from firstdrift.matching.plan import Messages, SlicePlan, TensorPair
from firstdrift.metrics.elementwise.measure import prepare_engine
from firstdrift.metrics.measurement import Measurement, MeasurementKind
from firstdrift.processes.children import OUTLASTS
from firstdrift.processes.limits import limit_processor_time
from firstdrift.wording.message import Message

log = logging.getLogger(__name__)

CHUNK_BYTES = 128 * 2**20
CHUNK_PAIRS = 512
WORTH_A_POOL = 64 * 2**20
"""Less data than this is measured sooner than processes start."""
_CHECK_SECONDS = 0.2
_DIED: Final = Message.of("worker.measuring_died")
_CHUNK_SECONDS = 60.0
_LEAST_BYTES_A_SECOND = 20 * 2**20
"""A chunk that is measured more slowly, after the first minute, is ended: a fiftieth of the usual."""

_Measure: TypeAlias = Callable[[SlicePlan], list[Measurement]]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Pairs that are measured in one go: their places in the plan, and a plan of nothing else."""

    indexes: tuple[int, ...]
    plan: SlicePlan

    def halves(self) -> tuple["Chunk", "Chunk"]:
        """Split it in two."""
        middle = len(self.indexes) // 2
        return self._part(slice(0, middle)), self._part(slice(middle, None))

    def _part(self, part: slice) -> "Chunk":
        return Chunk(self.indexes[part], replace(self.plan, pairs=self.plan.pairs[part]))


class _UnderWay:
    """The chunks that wait, those that are measured, and those that a process may have died of."""

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self.waiting = deque(chunks)
        self.running: dict[Future[list[Measurement]], Chunk] = {}
        self.suspects: list[Chunk] = []

    def __bool__(self) -> bool:
        return bool(self.waiting or self.running or self.suspects)

    def start(self, executor: Executor, measure: _Measure, most: int) -> None:
        """Let an executor measure so many chunks at once.

        Raises:
            BrokenProcessPool: a process died while nobody waited for it.
        """
        while self.waiting and not self.suspects and len(self.running) < most:
            future = executor.submit(measure, self.waiting[0].plan)
            self.running[future] = self.waiting.popleft()

    def done(self, check: Callable[[], None]) -> Iterator[tuple[Chunk, list[Measurement]]]:
        """Yield the chunks that are done; what could not be measured is suspect."""
        for future in _done(self.running, check):
            chunk = self.running.pop(future)
            if (measured := _result(future)) is None:
                self.suspects.append(chunk)
            else:
                yield chunk, measured

    def cancel(self) -> None:
        """Measure nothing more."""
        for future in self.running:
            future.cancel()


class Measurer(AbstractContextManager["Measurer"]):
    """Measures with so many processes; with one, in a thread of this process.

    with Measurer(processes=4) as measurer:
        for chunk, measurements in measurer.measure(plan, indexes, bytes_to_come, check): ...

    Attributes:
        processes: how many measure at once; likewise is_isolated and roots, as they were given.
    """

    def __init__(
        self, processes: int, *, isolated: bool = False, roots: Sequence[Path] | None = None
    ) -> None:
        """Prepare.

        Args:
            processes: how many measure at once.
            isolated: nothing is measured in this process, however little it is.
            roots: real paths of the directories outside of which nothing is read; None for no bounds.
        """
        self.processes = processes
        self.is_isolated = isolated
        self.roots = roots
        self._pool: ProcessPoolExecutor | None = None

    def __exit__(self, *_: object) -> None:
        """Stop the processes."""
        self._close_pool()

    def measure(
        self, plan: SlicePlan, indexes: Sequence[int], bytes_to_come: int, check: Callable[[], None]
    ) -> Iterator[tuple[Chunk, list[Measurement]]]:
        """Measure pairs of a plan and give each chunk as soon as it is done, in any order.

        Args:
            plan: which pairs there are.
            indexes: which of them to measure.
            bytes_to_come: how much data there is in all, now and later.
            check: called several times a second; what it raises ends the measuring.
        """
        chunks = _UnderWay(split_into_chunks(plan, indexes))
        is_much = bytes_to_come >= WORTH_A_POOL
        in_pool = self.is_isolated or (is_much and (self.processes > 1 or self.roots is not None))
        measure = partial(measure_chunk, bytes_to_come=bytes_to_come)
        with ThreadPoolExecutor(1) as thread:
            try:
                while chunks:
                    if in_pool:
                        self._start_in_pool(chunks, partial(_within_time, measure))
                    else:
                        chunks.start(thread, measure, 2 * self.processes)
                    yield from chunks.done(check)
                    while chunks.suspects and not chunks.running:
                        yield from self._measure_alone(chunks.suspects.pop(), check)
            finally:
                chunks.cancel()

    def _start_in_pool(self, chunks: _UnderWay, measure: _Measure) -> None:
        try:
            chunks.start(self._open_pool(), measure, 2 * self.processes)
        except BrokenProcessPool:
            if not chunks.running:
                self._close_pool()

    def look(self, pair: TensorPair, measured: Measurement, check: Callable[[], None]) -> Messages:
        """Say what the values of a pair show; nothing where a process died of it.

        Raises:
            FirstdriftError: as `check`.
        """
        if not self.is_isolated and (self.roots is None or pair.data_bytes < WORTH_A_POOL):
            return shown(pair, measured)
        future = self._open_pool().submit(_look_within_time, pair, measured)
        while not wait((future,), _CHECK_SECONDS).done:
            check()
        try:
            return future.result()
        except (BrokenProcessPool, MemoryError) as error:
            log.warning("a pair could not be looked at from near: %r", error)
            self._close_pool()
            return ()

    def _measure_alone(
        self, chunk: Chunk, check: Callable[[], None]
    ) -> Iterator[tuple[Chunk, list[Measurement]]]:
        """Measure a chunk that a process may have died of."""
        self._close_pool()
        future = self._open_pool().submit(_within_time, partial(measure_chunk, bytes_to_come=0), chunk.plan)
        while not _done({future}, check):
            pass
        if (measured := _result(future)) is not None:
            yield chunk, measured
        elif len(chunk.indexes) == 1:
            yield chunk, [Measurement(MeasurementKind.INCOMPARABLE, _DIED)]
        else:
            for half in chunk.halves():
                yield from self._measure_alone(half, check)

    def _open_pool(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload([OUTLASTS, __name__])
            self._pool = ProcessPoolExecutor(
                self.processes, context, initializer=_start_in_pool, initargs=(self.roots, carried())
            )
        return self._pool

    def _close_pool(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


def measure_chunk(plan: SlicePlan, bytes_to_come: int) -> list[Measurement]:
    """Measure all pairs of a plan; runs in whatever process is free."""
    prepare_engine(bytes_to_come)
    return measure_pairs(plan, 0, len(plan.pairs))


def split_into_chunks(plan: SlicePlan, indexes: Sequence[int]) -> Iterator[Chunk]:
    """Cut pairs into chunks that take about as long as each other, and much longer than to hand over."""
    chosen: list[int] = []
    size = 0
    for index in indexes:
        chosen.append(index)
        size += plan.pairs[index].data_bytes
        if size >= CHUNK_BYTES or len(chosen) >= CHUNK_PAIRS:
            yield _chunk(plan, chosen)
            chosen, size = [], 0
    if chosen:
        yield _chunk(plan, chosen)


def _chunk(plan: SlicePlan, indexes: Sequence[int]) -> Chunk:
    pairs = tuple(plan.pairs[index] for index in indexes)
    return Chunk(tuple(indexes), SlicePlan(plan.golden, plan.target, (), pairs, (), ()))


def _done(
    running: Iterable[Future[list[Measurement]]], check: Callable[[], None]
) -> set[Future[list[Measurement]]]:
    done, _ = wait(running, _CHECK_SECONDS, FIRST_COMPLETED)
    check()
    return done


def _result(future: Future[list[Measurement]]) -> list[Measurement] | None:
    """Give what was measured; None if the process died or had not the memory."""
    try:
        return future.result()
    except (BrokenProcessPool, MemoryError) as error:
        log.warning("a chunk could not be measured, its pairs are now measured one by one: %r", error)
        return None


def _within_time(measure: _Measure, plan: SlicePlan) -> list[Measurement]:
    """Measure a chunk in a process of the pool, which is ended if that takes more than it ever should."""
    size = sum(pair.data_bytes for pair in plan.pairs)
    limit_processor_time(_CHUNK_SECONDS + size / _LEAST_BYTES_A_SECOND)
    return measure(plan)


def _look_within_time(pair: TensorPair, measured: Measurement) -> Messages:
    """Look at a pair in a process of the pool, likewise."""
    limit_processor_time(_CHUNK_SECONDS)
    return shown(pair, measured)


def _start_in_pool(roots: Sequence[Path] | None, logs: Carried) -> None:
    """Let the worker decide when to stop, and end when it ends, however it does."""
    take_over(logs)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    confine_process(roots)
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """Wait until the process that started this one has ended, however it did, and end at once."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
