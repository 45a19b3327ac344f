import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from messages import ids_of
from sqlalchemy import Engine
from working import wait_until, worker

from firstdrift.catalogue.comparisons.records import purge_deleted
from firstdrift.catalogue.dumps import jobs as dump_jobs
from firstdrift.catalogue.dumps import single_dump as one_dump
from firstdrift.catalogue.dumps.records import get_dump, slices_of_dump
from firstdrift.catalogue.engine import reading, writing
from firstdrift.catalogue.jobs.queue import Job
from firstdrift.catalogue.tables import JobState
from firstdrift.comparison.single_dump import view_dump


def read(engine: Engine, url: str, path: Path, *, computes: bool = False) -> Job:
    """Let a worker read a dump; give the job when it is over."""
    with writing(engine) as session:
        dump_jobs.read_dump_later(session, path, computes=computes)

    def job() -> Job:
        with reading(engine) as session:
            found = dump_jobs.last_job(session, path)
        assert found is not None
        return found

    with worker(url):
        wait_until(lambda: job().is_over)
    return job()


def test_what_is_computed_is_what_the_library_says_of_one_dump(
    engine: Engine, sqlite_url: str, unpacked: Callable[[str], Path]
) -> None:
    path = unpacked("msit/llama4_golden_fp32").resolve()
    assert read(engine, sqlite_url, path).state is JobState.DONE
    with reading(engine) as session:
        dump_id = dump_jobs.newest_index(session, path)
        assert dump_id is not None
        slices = slices_of_dump(session, dump_id)
        before = one_dump.load_dump_tree(session, slices[0].id)
    assert before.unknown > 0 == before.known
    assert read(engine, sqlite_url, path, computes=True).state is JobState.DONE
    expected = list(view_dump(path))
    assert len(slices) == len(expected) > 1
    with reading(engine) as session:
        assert dump_jobs.newest_index(session, path) == dump_id
        for indexed, view in zip(slices, expected, strict=True):
            tree = one_dump.load_dump_tree(session, indexed.id)
            assert [row.target[0] for row in tree.rows] == [each.node.name for each in view.nodes]
            assert [row.depth for row in tree.rows] == [each.depth for each in view.nodes]
            assert (tree.known, tree.unknown, tree.unreadable) == (view.looked_at, 0, view.unknown)
            assert tree.overflow == view.overflow
        node = next(each for each in expected[0].nodes if each.node.name.endswith("lm_head"))
        tensor = node.tensors[-1]
        points = one_dump.trend(session, dump_id, node.node.name, str(tensor.record.role), tensor.record.key)
    maxima = {
        each.coordinates: [seen.values and seen.values.maximum for seen in found.tensors][-1]
        for each in expected
        for found in each.nodes
        if found.node.name == node.node.name
    }
    assert {point.coordinates: point.view and point.view.values.maximum for point in points} == maxima  # type: ignore[union-attr]
    assert len(set(maxima.values())) > 1


def test_a_damaged_file_spoils_its_own_tensor(
    engine: Engine, sqlite_url: str, unpacked: Callable[[str], Path], tmp_path: Path
) -> None:
    path = shutil.copytree(unpacked("msit/llama4_golden_fp32"), tmp_path / "cut").resolve()
    file = min(path.rglob("*output*.pth"))
    file.write_bytes(file.read_bytes()[:64])
    assert read(engine, sqlite_url, path, computes=True).state is JobState.DONE
    with reading(engine) as session:
        dump_id = dump_jobs.newest_index(session, path)
        assert dump_id is not None
        trees = [one_dump.load_dump_tree(session, each.id) for each in slices_of_dump(session, dump_id)]
    assert sum(tree.unreadable for tree in trees) == 1
    assert all(tree.known > 0 == tree.unknown for tree in trees)


def test_a_path_without_a_dump_fails_and_says_why(engine: Engine, sqlite_url: str, tmp_path: Path) -> None:
    job = read(engine, sqlite_url, tmp_path / "gone")
    assert job.state is JobState.FAILED
    assert "dumps.nothing_here" in ids_of(job.error)


def test_a_dump_that_was_looked_at_by_itself_is_kept(
    engine: Engine, sqlite_url: str, unpacked: Callable[[str], Path]
) -> None:
    path = unpacked("msprobe/llama_stat_mix_perturb").resolve() / "golden"
    read(engine, sqlite_url, path)
    with writing(engine) as session:
        purge_deleted(session, older_than=timedelta(0))
        dump_id = dump_jobs.newest_index(session, path)
        assert dump_id is not None
        assert get_dump(session, dump_id).format == "msprobe"


def test_overflow_in_recorded_statistics_is_what_the_library_finds(
    engine: Engine, sqlite_url: str, unpacked: Callable[[str], Path], tmp_path: Path
) -> None:
    path = shutil.copytree(unpacked("msprobe/llama_stat_mix_perturb") / "golden", tmp_path / "bad").resolve()
    file = next(path.rglob("dump.json"))
    content = json.loads(file.read_text())
    nodes = [node for node in content["data"].values() if node.get("output") and node["output"][0]]
    for number, value in ((40, float("inf")), (60, float("nan")), (61, float("-inf")), (300, float("inf"))):
        nodes[number]["output"][0] |= {"Max": value, "Min": value, "Mean": value, "Norm": value}
        if number == 60:
            next(each for each in nodes[number]["input_args"] if "Max" in (each or {}))["Max"] = value
    file.write_text(json.dumps(content))
    assert read(engine, sqlite_url, path).state is JobState.DONE
    (expected,) = view_dump(path)
    assert {found.level for found in expected.overflow} >= {"critical", "high"}
    with reading(engine) as session:
        dump_id = dump_jobs.newest_index(session, path)
        assert dump_id is not None
        (indexed,) = slices_of_dump(session, dump_id)
        tree = one_dump.load_dump_tree(session, indexed.id)
    assert tree.overflow == expected.overflow
    bad = {row.target[0] for row, is_bad in zip(tree.rows, tree.outline.bad, strict=True) if is_bad}
    assert bad == {found.node for found in expected.overflow}
