"""What a Dask cluster finds is what this process finds, whatever of the cluster is lost on the way."""

import os
import shutil
import signal
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import pytest
from clusters import DaskCluster, dask_cluster

from firstdrift.cluster import lanes, tasks
from firstdrift.cluster.lanes import Cluster
from firstdrift.comparison.compare import compare_dumps
from firstdrift.comparison.from_dumps import Progress
from firstdrift.comparison.report import Options, Report
from firstdrift.comparison.session import ComparisonSession
from firstdrift.comparison.table import lines_of
from firstdrift.comparison.user_hooks import Additions
from firstdrift.errors import SettingsError
from firstdrift.matching.plan import MatchingRules
from firstdrift.metrics.elementwise import measure
from firstdrift.verdict.baseline import QUIET

Unpacked = Callable[[str], Path]
Dumps = tuple[Path, Path]
STEPS = 5


@pytest.fixture
def steps(unpacked: Unpacked, tmp_path: Path) -> Dumps:
    dump = unpacked("msprobe/llama_stat_mix_perturb")
    for side in ("golden", "target"):
        for step in range(STEPS):
            shutil.copytree(dump / side / "step0", tmp_path / side / f"step{step}")
    return tmp_path / "golden", tmp_path / "target"


@pytest.fixture
def many_steps(steps: Dumps) -> Dumps:
    for side in steps:
        for step in range(STEPS, 4 * STEPS):
            (side / f"step{step}").symlink_to(side / "step0")
    return steps


def answer(report: Report) -> dict[str, Any]:
    """Return all that a report says, but for how long it took."""
    fields = {name: getattr(report, name) for name in report.__struct_fields__}
    return fields | {"seconds": None, "slices": list(report.slices), "lines": list(lines_of(report))}


def on(
    cluster: DaskCluster,
    dumps: Dumps,
    progress: Callable[[Progress], None] = lambda _: None,
    baseline: Path | None = None,
) -> Report:
    return compare_dumps(dumps, Options(), progress, baseline=baseline, crew=Cluster(cluster.address))


def refuse(self: ComparisonSession, position: int) -> None:
    raise AssertionError(f"{position} was done by {self}")


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers_finds_the_same(
    steps: Dumps, tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = answer(compare_dumps(steps, Options()))
    monkeypatch.setattr(ComparisonSession, "look_at", refuse)
    with dask_cluster(tmp_path, workers) as cluster:
        assert answer(on(cluster, steps)) == here


def test_what_is_said_of_a_slice_is_held_once_however_many_lanes_there_are(
    steps: Dumps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[lanes.ClusterLane] = []
    start = lanes.ClusterLane.__init__

    def note(self: lanes.ClusterLane, comparison: lanes._Comparison) -> None:
        started.append(self)
        start(self, comparison)

    monkeypatch.setattr(lanes.ClusterLane, "__init__", note)
    with dask_cluster(tmp_path, 1) as cluster:
        on(cluster, steps)
    held = [said for lane in started for said in lane._said.values()]
    assert len(started) == 3
    once = {id(said.counts) for said in held}  # without parameters, it is another record of the same parts
    assert len(once) == len({said.coordinates for said in held}) < len(held)


@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_tensors_are_measured_in_batches(
    engine: Literal["numpy", "numba"],
    unpacked: Unpacked,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    dumps = unpacked("msit/llama4_golden_fp32"), unpacked("msit/llama4_perturb_L2_T3")
    options = Options(MatchingRules(token=3))
    here = version("firstdrift")
    task = tasks.SliceTask("a", *dumps, one_pair(dumps), options, QUIET, here, details=False)
    planned = tasks.plan(task)
    (whole,) = tasks.batches_of(task, planned)
    monkeypatch.setattr(tasks, "BATCH_BYTES", 4096)
    batches = tasks.batches_of(task, planned)
    pairs = len(planned.planned.plan.pairs)
    assert whole[:2] == (0, pairs)
    assert len(batches) > 5
    assert [place for start, stop, _ in batches for place in range(start, stop)] == list(range(pairs))
    assert sum(batch.size for batch in batches) == whole.size
    monkeypatch.setattr(measure._Process, "is_numpy_chosen", False)
    assert measure.choose_engine(engine)
    expected = answer(compare_dumps(dumps, Options()))
    with dask_cluster(tmp_path, 2) as cluster:
        assert answer(on(cluster, dumps)) == expected
    assert "cannot do" not in caplog.text


def one_pair(dumps: Dumps) -> Any:  # noqa: ANN401
    return compare_dumps(dumps, Options(MatchingRules(token=3))).pairing.pairs[0]


def test_a_worker_that_is_killed_costs_its_tasks_alone(
    steps: Dumps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = answer(compare_dumps(steps, Options()))
    with dask_cluster(tmp_path, 2) as cluster:
        on(cluster, steps)  # both have started
        monkeypatch.setattr(ComparisonSession, "look_at", refuse)

        def kill() -> None:
            os.kill(cluster.worker_processes()[0].pid, signal.SIGKILL)

        assert answer(on(cluster, steps, once(kill))) == here


def test_what_a_cluster_has_not_done_when_it_is_lost_is_done_here(steps: Dumps, tmp_path: Path) -> None:
    here = answer(compare_dumps(steps, Options()))
    with dask_cluster(tmp_path, 1) as cluster:
        assert answer(on(cluster, steps, once(cluster.scheduler.kill))) == here
        assert cluster.scheduler.poll() is not None


def once(do: Callable[[], object]) -> Callable[[Progress], None]:
    """Do something when it is first told how far the comparison is."""
    done: list[object] = []

    def told(at: Progress) -> None:
        if at.stage == "measuring" and not done:
            done.append(do())

    return told


def test_a_damaged_slice_is_told_as_when_it_is_read_here(steps: Dumps, tmp_path: Path) -> None:
    (file,) = steps[1].glob("step2/rank0/dump.json")
    file.write_text("{", "utf-8")
    here = answer(compare_dumps(steps, Options()))
    with dask_cluster(tmp_path, 1) as cluster:
        assert answer(on(cluster, steps)) == here


def test_where_nobody_answers_it_is_said_at_once(steps: Dumps) -> None:
    with pytest.raises(SettingsError, match=r"no scheduler of a Dask cluster answers at tcp://127.0.0.1:9"):
        compare_dumps(steps, Options(), crew=Cluster("tcp://127.0.0.1:9"))
    with pytest.raises(SettingsError, match="answers at nonsense"):
        compare_dumps(steps, Options(), crew=Cluster("nonsense://x"))


def test_functions_of_the_users_are_not_sent_to_a_cluster(steps: Dumps) -> None:
    additions = Additions(postprocess=object())  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="cannot be run on a cluster"):
        compare_dumps(steps, Options(), additions=additions, crew=Cluster("tcp://127.0.0.1:9"))


def test_another_version_of_firstdrift_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"have firstdrift .*, and 0\.0\.1 asks"):
        tasks.require_version("0.0.1")


OTHER_VERSION = """
from importlib import metadata
known = metadata.version
metadata.version = lambda name: "0.0.1" if name == "firstdrift" else known(name)
"""


def test_a_cluster_with_a_worker_of_another_version_is_refused(steps: Dumps, tmp_path: Path) -> None:
    with dask_cluster(tmp_path, 1) as cluster:
        cluster.add_worker(OTHER_VERSION)
        cluster.wait_for_workers(2)
        with pytest.raises(SettingsError, match=r"have firstdrift 0\.0\.1"):
            on(cluster, steps)


def test_a_worker_of_another_version_that_comes_later_does_none_of_it(
    many_steps: Dumps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here = answer(compare_dumps(many_steps, Options()))
    monkeypatch.setattr(ComparisonSession, "look_at", refuse)
    refused: list[object] = []
    ask = lanes._Comparison.ask_who_agrees
    monkeypatch.setattr(lanes._Comparison, "ask_who_agrees", lambda self: refused.append(1) or ask(self))
    with dask_cluster(tmp_path, 1) as cluster:

        def come() -> None:
            cluster.add_worker(OTHER_VERSION)
            cluster.wait_for_workers(2)

        assert answer(on(cluster, many_steps, once(come))) == here
    assert refused, "it was given nothing to do"
    assert "cannot do" not in caplog.text


NOT_COMPILED = """
from pathlib import Path
from firstdrift.metrics.elementwise import machine_code
machine_code._folders = lambda: iter([Path({folder!r})])
"""
NOT_TO_BE_COMPILED = """
def refuse():
    raise RuntimeError("no compiler")
machine_code.compile_and_keep = refuse
"""


@pytest.fixture
def tensors(unpacked: Unpacked) -> Dumps:
    dump = unpacked("msprobe/llama_tensor_mix_perturb")
    return dump / "golden", dump / "target"


@pytest.fixture
def compiled() -> None:
    """Let this process have compiled code."""
    assert measure.choose_engine("numba")


@pytest.mark.usefixtures("compiled")
def test_a_worker_that_has_not_compiled_what_measures_does_so(
    tensors: Dumps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = answer(compare_dumps(tensors, Options()))
    monkeypatch.setattr(ComparisonSession, "look_at", refuse)
    (tmp_path / "code").mkdir()
    with dask_cluster(tmp_path, 0) as cluster:
        cluster.add_worker(NOT_COMPILED.format(folder=str(tmp_path / "code")))
        cluster.wait_for_workers(1)
        assert answer(on(cluster, tensors)) == here
    assert list((tmp_path / "code").glob("kernel-*.o"))


@pytest.mark.usefixtures("compiled")
def test_what_a_worker_would_measure_otherwise_is_done_here(
    tensors: Dumps, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here = answer(compare_dumps(tensors, Options()))
    (tmp_path / "code").mkdir()
    with dask_cluster(tmp_path, 0) as cluster:
        cluster.add_worker(NOT_COMPILED.format(folder=str(tmp_path / "code")) + NOT_TO_BE_COMPILED)
        cluster.wait_for_workers(1)
        assert answer(on(cluster, tensors)) == here
    assert "cannot compile what measures tensors" in caplog.text


def test_a_healthy_run_is_compared_by_the_cluster_too(
    steps: Dumps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden, target = steps
    here = answer(compare_dumps((golden, target), Options(), baseline=target))
    assert here["noise"]
    monkeypatch.setattr(ComparisonSession, "look_at", refuse)
    with dask_cluster(tmp_path, 1) as cluster:
        assert answer(on(cluster, (golden, target), baseline=target)) == here
