import os
import signal
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from firstdrift.matching.plan import SlicePlan, TensorPair
from firstdrift.metrics.measurement import Measurement, MeasurementKind
from firstdrift.model.slice import Coordinates, SliceListing
from firstdrift.model.tensor import DataLocation, Role, TensorRecord
from firstdrift.wording.message import Message
from firstdrift_worker import measuring
from firstdrift_worker.measuring import Measurer, measure_chunk, split_into_chunks

HERE = SliceListing(Coordinates(), Path())


def plan_of(pairs: list[TensorPair]) -> SlicePlan:
    return SlicePlan(HERE, HERE, (), tuple(pairs), (), ())


def scalars(value: str, other: str) -> TensorPair:
    golden, target = (TensorRecord(Role.INPUT, "0", "int", (), scalar=text) for text in (value, other))
    return TensorPair(0, "node", "node", golden, target)


def saved(file: Path, values: np.ndarray) -> TensorRecord:
    np.save(file, values)
    return TensorRecord(Role.OUTPUT, "0", "float32", values.shape, location=DataLocation(file, "npy"))


@pytest.fixture
def plan() -> SlicePlan:
    """Plan 40 pairs of which every third differs."""
    return plan_of([scalars(str(number), str(number if number % 3 else -1)) for number in range(40)])


def measured(measurer: Measurer, plan: SlicePlan) -> list[Measurement]:
    found: dict[int, Measurement] = {}
    for chunk, measurements in measurer.measure(plan, range(len(plan.pairs)), 0, lambda: None):
        assert found.keys().isdisjoint(chunk.indexes)
        found |= zip(chunk.indexes, measurements, strict=True)
    return [found[index] for index in range(len(plan.pairs))]


@pytest.mark.parametrize(("processes", "isolated"), [(1, False), (2, False), (1, True), (2, True)])
def test_each_pair_is_measured_once_in_whatever_process(
    plan: SlicePlan, monkeypatch: pytest.MonkeyPatch, processes: int, isolated: bool
) -> None:
    monkeypatch.setattr(measuring, "CHUNK_PAIRS", 7)
    with Measurer(processes, isolated=isolated) as measurer:
        assert measured(measurer, plan) == measure_chunk(plan, 0)
        assert measured(measurer, plan_of([])) == []


def kill_itself_over_pair_13(plan: SlicePlan, bytes_to_come: int) -> list[Measurement]:
    if any(pair.golden.scalar == "13" for pair in plan.pairs):
        os.kill(os.getpid(), signal.SIGKILL)
    return measure_chunk(plan, bytes_to_come)


def run_out_of_memory_over_pair_13(plan: SlicePlan, bytes_to_come: int) -> list[Measurement]:
    if any(pair.golden.scalar == "13" for pair in plan.pairs):
        raise MemoryError
    return measure_chunk(plan, bytes_to_come)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("trouble", [kill_itself_over_pair_13, run_out_of_memory_over_pair_13])
def test_a_pair_that_kills_the_process_is_incomparable_and_all_others_are_measured(
    plan: SlicePlan, monkeypatch: pytest.MonkeyPatch, trouble: object, processes: int
) -> None:
    monkeypatch.setattr(measuring, "CHUNK_PAIRS", 4)
    monkeypatch.setattr(measuring, "measure_chunk", trouble)
    with Measurer(processes, isolated=True) as measurer:
        found = measured(measurer, plan)
    assert found[13].kind is MeasurementKind.INCOMPARABLE
    assert found[13].reason == Message.of("worker.measuring_died")
    expected = measure_chunk(plan, 0)
    assert [*found[:13], *found[14:]] == [*expected[:13], *expected[14:]]


def dawdle(plan: SlicePlan, bytes_to_come: int) -> list[Measurement]:
    time.sleep(0.3)
    return measure_chunk(plan, bytes_to_come)


class StopError(Exception):
    """Ends the measuring."""


def test_measuring_ends_soon_after_it_should_and_leaves_no_process(
    plan: SlicePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "CHUNK_PAIRS", 1)
    monkeypatch.setattr(measuring, "measure_chunk", dawdle)
    began = time.monotonic()

    def check() -> None:
        if time.monotonic() - began > 1:
            raise StopError

    def measure() -> None:
        with Measurer(2, isolated=True) as measurer:
            list(measurer.measure(plan, range(40), 0, check))

    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with pytest.raises(StopError):
        measure()
    assert time.monotonic() - began < 4
    left = [
        process
        for process in psutil.Process().children(recursive=True)
        if process.pid not in before and "forkserver" not in " ".join(process.cmdline())
    ]
    assert left == []


def test_chunks_are_bounded_in_bytes_and_in_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.zeros((100, 10), np.float32)
    record = saved(tmp_path / "a.npy", values)
    pair = TensorPair(0, "node", "node", record, record)
    assert pair.data_bytes == 2 * values.nbytes
    monkeypatch.setattr(measuring, "CHUNK_BYTES", 5 * 2 * values.nbytes)
    monkeypatch.setattr(measuring, "CHUNK_PAIRS", 8)
    chunks = list(split_into_chunks(plan_of([pair] * 12 + [scalars("1", "1")] * 10), range(22)))
    assert [len(chunk.indexes) for chunk in chunks] == [5, 5, 8, 4]
    assert [index for chunk in chunks for index in chunk.indexes] == list(range(22))


def test_only_the_pairs_asked_for_are_measured(plan: SlicePlan) -> None:
    with Measurer(1) as measurer:
        ((chunk, measurements),) = measurer.measure(plan, [3, 5, 39], 0, lambda: None)
    assert chunk.indexes == (3, 5, 39)
    assert [measurement.equal for measurement in measurements] == [False, True, False]
