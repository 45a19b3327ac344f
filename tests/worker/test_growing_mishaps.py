"""What goes wrong while a dump grows is over when the next of it comes."""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session
from working import ask_to_compare, wait_for_comparison, wait_until, worker
from writers import Writer

from firstdrift.catalogue import bulk
from firstdrift.catalogue.comparisons import results
from firstdrift.catalogue.comparisons.records import (
    cancel_comparison,
    compare_again,
    compare_what_is_new,
    get_comparison,
)
from firstdrift.catalogue.comparisons.slice_pairs import slice_pairs_of
from firstdrift.catalogue.dumps import changes, following, nodes
from firstdrift.catalogue.dumps.changes import Looked, index_again
from firstdrift.catalogue.dumps.records import add_dump, add_nodes, load_slice, slices_of_dump
from firstdrift.catalogue.engine import reading, writing
from firstdrift.catalogue.jobs.queue import FOLLOW, claim_job, enqueue, list_jobs
from firstdrift.catalogue.tables import JobState
from firstdrift.dumps.detect import open_dump, read_slice
from firstdrift.model.slice import RECORDED_ORDER, Coordinates, Dump, Slice, SliceListing, Unfinished
from firstdrift.wording.message import verbatim
from firstdrift_worker import indexing

STEPS = "msprobe/llama_stat_mix_3steps"
Unpacked = Callable[[str], Path]


@pytest.fixture
def address(database: str) -> str:
    return database


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait long."""
    monkeypatch.setattr(following, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(following, "LONGEST_SECONDS", 0.2)
    monkeypatch.setattr(indexing, "REST_SECONDS", 0.5)


def pair_ids(engine: Engine, comparison: int) -> dict[int | None, int]:
    with reading(engine) as session:
        return {pair.target.step: pair.id for pair in slice_pairs_of(session, comparison)}


def age(path: Path) -> None:
    """Let a folder be one that was written long ago."""
    for file in path.rglob("*"):
        os.utime(file, (1e9, 1e9))


class Slices:
    """Two states of a slice, as its reader gives them, and the dump that has one of them."""

    def __init__(self, folder: Path) -> None:
        whole = open_dump(folder)
        listing = whole.slices[0]
        self.dump = Dump(Path("/dump"), "msprobe", (), (SliceListing(Coordinates(step=0), Path("/dump")),))
        self.listing = self.dump.slices[0]
        self.second = read_slice(whole, listing)
        half = self.second.nodes[: len(self.second.nodes) // 2]
        self.first = Slice(
            self.listing, tuple(replace(node, name=f"old.{node.name}") for node in half), RECORDED_ORDER
        )

    def unfinished(self, files: str) -> Looked:
        return Looked(
            Dump(
                self.dump.path, "msprobe", (), (), unfinished=(Unfinished(self.listing, verbatim("to come")),)
            ),
            files,
            {self.listing: files},
        )

    def whole(self, files: str) -> Looked:
        return Looked(self.dump, files, {self.listing: files})


@pytest.fixture
def two_states(unpacked: Unpacked) -> Slices:
    return Slices(unpacked(STEPS) / "golden")


class DiedError(Exception):
    """A worker has died."""


@contextmanager
def dies_after(count: int, engine: Engine) -> Iterator[Callable[[], Any]]:
    """Give what writes so many times, and then as if the process had died."""
    left = [count]

    @contextmanager
    def some() -> Iterator[Session]:
        if not left[0]:
            raise DiedError
        left[0] -= 1
        with writing(engine) as session:
            yield session

    yield some


def names_kept(engine: Engine, slice_id: int) -> list[str]:
    with reading(engine) as session:
        return [node.name for node in load_slice(session, slice_id).nodes]


def test_nodes_that_a_dead_worker_left_are_none_of_what_a_slice_has_become(
    engine: Engine, two_states: Slices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "_LENGTH", 16)
    monkeypatch.setattr(bulk, "BATCH", 1)
    with writing(engine) as session:
        first = add_dump(session, two_states.dump, "13:a", {two_states.listing: "13:a"})
        (slice_id,) = (one.id for one in slices_of_dump(session, first))
    with dies_after(2, engine) as some, pytest.raises(DiedError):
        add_nodes(some, slice_id, two_states.first, "13:a")
    for looked in (
        two_states.unfinished("13:a"),
        two_states.unfinished("13:b"),
        two_states.whole("13:c"),
    ):
        with writing(engine) as session:
            dump_id, _ = index_again(session, looked)
    with reading(engine) as session:
        (now,) = slices_of_dump(session, dump_id)
    add_nodes(lambda: writing(engine), now.id, two_states.second, "13:c")
    assert names_kept(engine, now.id) == [node.name for node in two_states.second.nodes]


def test_a_worker_that_reads_what_has_changed_meanwhile_leaves_no_nodes_of_it(
    engine: Engine, two_states: Slices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "_LENGTH", 16)
    with writing(engine) as session:
        index_again(session, two_states.unfinished("13:a"))
        dump_id, _ = index_again(session, two_states.whole("13:b"))
        (now,) = slices_of_dump(session, dump_id)
    add_nodes(lambda: writing(engine), now.id, two_states.first, "13:a")
    add_nodes(lambda: writing(engine), now.id, two_states.second, "13:b")
    assert names_kept(engine, now.id) == [node.name for node in two_states.second.nodes]


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Take down which pairs of slices are judged, by position."""
    found: list[int] = []
    save_slice = results.save_slice

    def seen(writing: Any, place: results.SlicePlace, *rest: Any) -> Any:  # noqa: ANN401
        found.append(place.position)
        return save_slice(writing, place, *rest)

    monkeypatch.setattr(results, "save_slice", seen)
    return found


def test_what_follows_a_damaged_slice_is_not_judged_again_until_it_is_whole(
    engine: Engine, address: str, unpacked: Unpacked, tmp_path: Path, judged: list[int]
) -> None:
    source, target = unpacked(STEPS), tmp_path / "target"
    for step in (0, 1):
        shutil.copytree(source / f"target/step{step}", target / f"step{step}")
    hurt = target / "step0/rank0/dump.json"
    well = hurt.read_bytes()
    hurt.write_bytes(well[:1000])
    age(target)
    date = hurt.stat()
    comparison = ask_to_compare(engine, source / "golden", target)
    with worker(address):
        assert wait_for_comparison(engine, comparison).unreadable == 1
        assert judged == [1]
        shutil.copytree(source / "target/step2", target / "step2")
        age(target / "step2")
        assert go_on(engine, comparison).unreadable == 1
        assert judged == [1, 2], "what follows was judged again, though nothing before it is new"
        # A disk that comes back changes no date; what follows may be judged otherwise now.
        hurt.write_bytes(well)
        os.utime(hurt, ns=(date.st_atime_ns, date.st_mtime_ns))
        assert go_on(engine, comparison).unreadable == 0
    assert judged == [1, 2, 0, 1, 2]
    assert pair_ids(engine, comparison).keys() == {0, 1, 2}


def go_on(engine: Engine, comparison: int) -> Any:  # noqa: ANN401
    with writing(engine) as session:
        compare_what_is_new(session, comparison)
    found = wait_for_comparison(engine, comparison)
    assert found.state is JobState.DONE, found.job.traceback
    return found


@contextmanager
def half_written(address: str, source: Path, target: Path) -> Iterator[Writer]:
    """Give what writes a dump while a worker works: a step is there, and half of the next."""
    with Writer(source / "target", target) as writer, worker(address):
        writer.write("step0/rank0")
        writer.write("step1/rank0", "half")
        yield writer


@pytest.mark.usefixtures("quick")
def test_a_comparison_that_was_cancelled_does_not_go_on_by_itself(
    engine: Engine, address: str, unpacked: Unpacked, tmp_path: Path
) -> None:
    golden, target = unpacked(STEPS) / "golden", tmp_path / "target"
    with half_written(address, unpacked(STEPS), target) as writer:
        cancelled, other = (ask_to_compare(engine, golden, target) for _ in range(2))
        for one in (cancelled, other):
            assert wait_for_comparison(engine, one).follows
        with writing(engine) as session:
            cancel_comparison(session, cancelled)
        writer.write("step1/rank0")
        wait_until(lambda: len(pair_ids(engine, other)) == 2)
        wait_for_comparison(engine, other)
    assert pair_ids(engine, cancelled).keys() == {0}
    with reading(engine) as session:
        assert not get_comparison(session, cancelled).follows


def test_a_comparison_that_is_made_again_still_goes_on_by_itself(engine: Engine, tmp_path: Path) -> None:
    comparison = ask_to_compare(engine, tmp_path, tmp_path)
    with writing(engine) as session:
        session.execute(text("UPDATE comparisons SET follows = :yes"), {"yes": True})
        compare_again(session, comparison)
    with reading(engine) as session:
        assert get_comparison(session, comparison).follows


@pytest.mark.usefixtures("quick")
def test_a_dump_that_cannot_be_looked_at_for_a_moment_is_looked_at_again(
    engine: Engine, address: str, unpacked: Unpacked, tmp_path: Path
) -> None:
    golden, target = unpacked(STEPS) / "golden", tmp_path / "target"
    with half_written(address, unpacked(STEPS), target) as writer:
        comparison = ask_to_compare(engine, golden, target)
        wait_for_comparison(engine, comparison)
        away = target.rename(tmp_path / "away")
        target.mkdir()  # as a disk that is not mounted: nothing in it is a dump
        looks = attempts(engine)
        wait_until(lambda: attempts(engine) > looks + 1)
        target.rmdir()
        away.rename(target)
        writer.write("step1/rank0")
        wait_until(lambda: len(pair_ids(engine, comparison)) == 2)


def attempts(engine: Engine) -> int:
    with reading(engine) as session:
        jobs = [job for job in list_jobs(session) if job.kind == FOLLOW]
    assert [job.state for job in jobs if job.state is JobState.FAILED] == []
    return sum(job.attempts for job in jobs)


def test_two_who_find_that_a_dump_grows_have_it_looked_at_once(engine: Engine) -> None:
    with writing(engine) as session:
        add_dump(session, Dump(Path("/dump"), "msprobe", (), ()), "13:a")
    ready = threading.Barrier(2)

    def find() -> None:
        ready.wait()
        with writing(engine) as session:
            following.follow(session, Path("/dump"))
            ready_to_commit.wait(1)

    for _ in range(5):
        with writing(engine) as session:
            session.execute(text("DELETE FROM jobs"))
        ready_to_commit = threading.Event()
        threads = [threading.Thread(target=find) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with reading(engine) as session:
            assert session.scalar(text("SELECT count(*) FROM jobs WHERE kind = 'follow'")) == 1


def test_what_a_cancelled_job_still_writes_is_none_of_what_is_compared_then(
    engine: Engine, tmp_path: Path
) -> None:
    comparison = ask_to_compare(engine, tmp_path, tmp_path)
    assert claim_job(engine, "busy") is not None
    with writing(engine) as session:
        before = get_comparison(session, comparison).revision
        cancel_comparison(session, comparison)
        job = compare_what_is_new(session, comparison)
    with reading(engine) as session:
        now = get_comparison(session, comparison)
    assert (now.job.id, now.state) == (job, JobState.QUEUED)
    assert now.revision > before, "both jobs would write the same results"


def test_a_look_at_a_dump_that_nobody_knows_ends(engine: Engine, address: str, tmp_path: Path) -> None:
    with writing(engine) as session:
        job = enqueue(session, FOLLOW, path=str(tmp_path / "gone"))

    def state() -> JobState:
        with reading(engine) as session:
            (found,) = (one for one in list_jobs(session) if one.id == job)
        return found.state

    with worker(address):
        wait_until(lambda: state() is JobState.FAILED)


def test_a_slice_that_is_taken_over_had_no_nodes(engine: Engine, two_states: Slices) -> None:
    """Of one that nobody has read yet, the row stays."""
    with writing(engine) as session:
        index_again(session, two_states.unfinished("13:a"))
        dump_id, _ = index_again(session, two_states.whole("13:b"))
        assert changes.was_growing(session, Path("/dump")) is False
        assert session.scalar(text("SELECT count(*) FROM slices")) == 1
        assert [one.files for one in slices_of_dump(session, dump_id)] == ["13:b"]
