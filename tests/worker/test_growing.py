"""A dump that grows is read step by step, and what is said of it is what would be said of the whole."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from messages import ids_of, place
from sqlalchemy import Engine, text, update
from working import ask_to_compare, compare_with_worker, wait_for_comparison, wait_until, worker
from writers import Writer

from firstdrift import compare
from firstdrift.catalogue.comparisons import results, tree
from firstdrift.catalogue.comparisons.records import (
    Comparison,
    compare_what_is_new,
    get_comparison,
    purge_deleted,
)
from firstdrift.catalogue.comparisons.slice_pairs import slice_pairs_of
from firstdrift.catalogue.dumps import following
from firstdrift.catalogue.dumps.jobs import last_job, newest_index, read_dump_later
from firstdrift.catalogue.dumps.records import IndexedSlice, load_dump, load_slice, slices_of_dump
from firstdrift.catalogue.engine import open_engine, reading, writing
from firstdrift.catalogue.jobs.queue import jobs_before
from firstdrift.catalogue.migrate import upgrade
from firstdrift.catalogue.tables import ComparisonEntry, JobState
from firstdrift.dumps import growth
from firstdrift_worker import indexing

Unpacked = Callable[[str], Path]
STEPS = "msprobe/llama_stat_mix_3steps"


@pytest.fixture
def both(database: str) -> Iterator[Engine]:
    """Open a new database, of one kind after the other."""
    engine = open_engine(database)
    upgrade(engine)
    yield engine
    engine.dispose()


def address_of(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


def read(engine: Engine, path: Path) -> list[IndexedSlice]:
    """Let a worker read what is new of a dump; give its slices."""
    with writing(engine) as session:
        read_dump_later(session, path)

    def is_over() -> bool:
        with reading(engine) as session:
            job = last_job(session, path)
            assert job is not None
            assert job.state is not JobState.FAILED, job.error
            return job.is_over

    with worker(address_of(engine)):
        wait_until(is_over)
    return slices(engine, path)


def slices(engine: Engine, path: Path) -> list[IndexedSlice]:
    with reading(engine) as session:
        dump = newest_index(session, path)
        assert dump is not None
        return list(slices_of_dump(session, dump))


def contents(engine: Engine, path: Path) -> list[Any]:
    """Return all that the catalogue says of a dump."""
    found: list[Any] = []
    for one in slices(engine, path):
        with reading(engine) as session:
            found += [repr(load_slice(session, one.id)), one.nodes, one.tensors, one.problems, one.unfinished]
            found.append(load_dump(session, one.dump_id))
    return found


def new(tmp_path: Path) -> Engine:
    """Open a database that knows nothing."""
    engine = open_engine(f"sqlite:///{tmp_path}/another{time.monotonic_ns()}.db")
    upgrade(engine)
    return engine


def age(path: Path, seconds: float = growth.FRESH_SECONDS + 1) -> None:
    then = time.time() - seconds
    for file in path.rglob("*"):
        os.utime(file, (then, then))


def spoil(file: Path) -> None:
    """Put something else into a file in such a way that neither its size nor its date tells."""
    status = file.stat()
    file.write_bytes(bytes(status.st_size))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_only_what_is_new_is_read_again(both: Engine, unpacked: Unpacked, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    with Writer(unpacked(STEPS) / "golden", dump) as writer:
        writer.write("step0/rank0")
        writer.write("step1/rank0")
        first = read(both, dump)
        spoil(dump / "step0/rank0/dump.json")
        writer.write("step2/rank0", "half")
        half = read(both, dump)
        writer.write("step2/rank0")
        age(dump / "step2")
        whole = read(both, dump)
    assert [one.id for one in half[:2]] == [one.id for one in whole[:2]] == [one.id for one in first]
    assert [one.coordinates.step for one in whole] == [0, 1, 2]
    assert (half[2].nodes, ids_of(half[2].unfinished)) == (None, ("dumps.json.incomplete",))
    assert (whole[2].nodes, whole[2].unfinished) == (whole[0].nodes, None)
    assert [one.problems for one in whole] == [(), (), ()]


def test_what_is_read_step_by_step_is_what_is_read_at_once(
    both: Engine, unpacked: Unpacked, tmp_path: Path
) -> None:
    dump = tmp_path / "dump"
    with Writer(unpacked("msprobe/dp2_stat_mix") / "golden", dump) as writer:
        for step in (0, 1):
            for rank in (0, 1):
                writer.write(f"step{step}/rank{rank}", "half")
                writer.write(f"step{step}/rank{rank}")
                if (step, rank) != (0, 0):
                    read(both, dump)
    age(dump)
    read(both, dump)
    once = new(tmp_path)
    read(once, dump)
    assert contents(both, dump) == contents(once, dump)
    once.dispose()


def test_a_step_that_changed_is_read_again_and_one_that_is_gone_is_none(
    both: Engine, unpacked: Unpacked, tmp_path: Path
) -> None:
    source, dump = unpacked(STEPS), tmp_path / "dump"
    shutil.copytree(source / "golden", dump)
    before = read(both, dump)
    shutil.copyfile(source / "target/step1/rank0/dump.json", dump / "step1/rank0/dump.json")
    shutil.rmtree(dump / "step2")
    after = read(both, dump)
    assert [one.position for one in after] == [0, 1]
    assert after[0].id == before[0].id
    assert after[1].id != before[1].id
    once = new(tmp_path)
    read(once, dump)
    assert contents(both, dump) == contents(once, dump)
    once.dispose()
    with writing(both) as session:
        session.execute(text("DELETE FROM jobs"))
        assert session.scalar(text("SELECT count(*) FROM slices")) == 4
    with writing(both) as session:
        purge_deleted(session, older_than=time_delta())
        assert session.scalar(text("SELECT count(*) FROM slices")) == 2


def time_delta() -> Any:  # noqa: ANN401
    from datetime import timedelta

    return timedelta(0)


def kept(engine: Engine, comparison: Comparison) -> list[Any]:
    """Return all that the catalogue says of a comparison, but for how long it took."""
    found: list[Any] = [comparison.findings, comparison.counts, comparison.golden, comparison.target]
    found += [comparison.notes, comparison.unmatched_golden, comparison.unmatched_target]
    with reading(engine) as session:
        for pair in slice_pairs_of(session, comparison.id):
            found += [pair.position, pair.golden, pair.target, pair.verdict, pair.judgement, pair.notes]
            found += [*tree.all_rows(session, pair.id), *tree.all_pairs(session, pair.id)]
    return found


def pair_ids(engine: Engine, comparison: int) -> dict[str, int]:
    with reading(engine) as session:
        return {place(pair.target): pair.id for pair in slice_pairs_of(session, comparison)}


def go_on(engine: Engine, comparison: int) -> Comparison:
    """Let a worker compare what is new."""
    with writing(engine) as session:
        compare_what_is_new(session, comparison)
    with worker(address_of(engine)):
        return wait_for_comparison(engine, comparison)


def assert_is_as_from_scratch(engine: Engine, comparison: Comparison, tmp_path: Path) -> None:
    assert comparison.state is JobState.DONE, comparison.job.traceback
    once = new(tmp_path)
    alone = compare_with_worker(address_of(once), comparison.golden_path, comparison.target_path)
    assert kept(engine, comparison) == kept(once, alone)
    once.dispose()


def test_a_comparison_goes_on_from_what_was_compared(
    both: Engine, unpacked: Unpacked, tmp_path: Path
) -> None:
    golden, target = unpacked(STEPS) / "golden", tmp_path / "target"
    with Writer(unpacked(STEPS) / "target", target) as writer:
        writer.write("step0/rank0")
        comparison = ask_to_compare(both, golden, target)
        with worker(address_of(both)):
            first = wait_for_comparison(both, comparison)
        assert_is_as_from_scratch(both, first, tmp_path)
        ids = pair_ids(both, comparison)
        for step in (1, 2):
            writer.write(f"step{step}/rank0", "half")
            half = go_on(both, comparison)
            assert_is_as_from_scratch(both, half, tmp_path)
            assert half.target is not None
            assert [one.listing.coordinates.step for one in half.target.unfinished] == [step]
            writer.write(f"step{step}/rank0")
            age(target / f"step{step}")
            whole = go_on(both, comparison)
            assert_is_as_from_scratch(both, whole, tmp_path)
            now = pair_ids(both, comparison)
            assert len(now) == step + 1
            assert ids.items() <= now.items(), "what was compared before was compared again"
            ids = now
    assert whole.findings == compare(golden, target).findings


def test_what_is_new_of_a_dump_waits_behind_what_people_have_asked_for(
    both: Engine, unpacked: Unpacked
) -> None:
    """Else a dump that changes again and again, and is compared often, keeps all others waiting for ever."""
    golden, target = unpacked(STEPS) / "golden", unpacked(STEPS) / "target"
    follower = ask_to_compare(both, golden, target)
    with worker(address_of(both)):
        wait_for_comparison(both, follower)
    asked = ask_to_compare(both, golden, golden)
    with writing(both) as session:
        session.execute(update(ComparisonEntry).values(follows=True, target_files="as it was before"))
        dump = newest_index(session, target)
        assert dump is not None
        assert following.go_on(session, dump) == [follower]
    with reading(both) as session:
        jobs = [get_comparison(session, one).job for one in (asked, follower)]
        assert [job.state for job in jobs] == [JobState.QUEUED] * 2
        assert [jobs_before(session, job) for job in jobs] == [0, 1]


def test_what_comes_in_between_is_judged_with_all_that_follows(
    both: Engine, unpacked: Unpacked, tmp_path: Path
) -> None:
    """Later steps are judged by what earlier ones show."""
    source, target = unpacked(STEPS), tmp_path / "target"
    for step in (0, 2):
        shutil.copytree(source / f"target/step{step}", target / f"step{step}")
    comparison = ask_to_compare(both, source / "golden", target)
    with worker(address_of(both)):
        wait_for_comparison(both, comparison)
    before = pair_ids(both, comparison)
    shutil.copytree(source / "target/step1", target / "step1")
    whole = go_on(both, comparison)
    assert_is_as_from_scratch(both, whole, tmp_path)
    after = pair_ids(both, comparison)
    assert after["step 0, rank 0"] == before["step 0, rank 0"]
    assert after["step 2, rank 0"] != before["step 2, rank 0"]


def test_what_follows_a_step_that_changed_is_judged_again_and_nothing_else(
    engine: Engine, unpacked: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = unpacked(STEPS), tmp_path / "target"
    shutil.copytree(source / "target", target)
    shutil.copyfile(source / "golden/step1/rank0/dump.json", target / "step1/rank0/dump.json")
    comparison = ask_to_compare(engine, source / "golden", target)
    with worker(address_of(engine)):
        wait_for_comparison(engine, comparison)
    shutil.copyfile(source / "target/step1/rank0/dump.json", target / "step1/rank0/dump.json")
    age(target / "step1")
    judged: list[int] = []
    save_slice = results.save_slice

    def seen(writing: Any, place: results.SlicePlace, *rest: Any) -> Any:  # noqa: ANN401
        judged.append(place.position)
        return save_slice(writing, place, *rest)

    with monkeypatch.context() as watched:
        watched.setattr(results, "save_slice", seen)
        whole = go_on(engine, comparison)
    assert judged == [1, 2]
    assert_is_as_from_scratch(engine, whole, tmp_path)


def test_tokens_of_which_only_others_show_that_they_are_bad_are_judged_again(
    engine: Engine, unpacked: Unpacked, tmp_path: Path
) -> None:
    golden, source = unpacked("msit/llama12_logits_golden"), unpacked("msit/llama12_logits_bad")
    target = tmp_path / "target"
    (tokens,) = source.glob("*/torch_tensors/*")
    inside = tokens.relative_to(source)
    (target / inside).mkdir(parents=True)
    for entry in tokens.iterdir():
        if not entry.name.isdigit():
            copy = shutil.copytree if entry.is_dir() else shutil.copyfile
            copy(entry, target / inside / entry.name)
    comparison = None
    count = 0
    for entry in sorted(
        (one for one in tokens.iterdir() if one.name.isdigit()), key=lambda one: int(one.name)
    ):
        shutil.copytree(entry, target / inside / entry.name)
        if comparison is None:
            comparison = ask_to_compare(engine, golden, target)
            with worker(address_of(engine)):
                found = wait_for_comparison(engine, comparison)
        else:
            found = go_on(engine, comparison)
        count += 1
        assert_is_as_from_scratch(engine, found, tmp_path)
    with reading(engine) as session:
        assert session.scalar(text("SELECT count(*) FROM slice_pairs WHERE settled")) > 0
    assert count > 2


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait long."""
    monkeypatch.setattr(following, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(following, "LONGEST_SECONDS", 0.2)
    monkeypatch.setattr(indexing, "REST_SECONDS", 0.5)


def state_of_following(engine: Engine, path: Path) -> JobState | None:
    with reading(engine) as session:
        job = following.following(session, path)
        return None if job is None else job.state


@pytest.mark.usefixtures("quick")
def test_a_comparison_goes_on_by_itself_while_its_dump_grows(
    both: Engine, unpacked: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden, target = unpacked(STEPS) / "golden", tmp_path / "target"

    def compared() -> int:
        return len(pair_ids(both, comparison))

    with Writer(unpacked(STEPS) / "target", target) as writer, worker(address_of(both)):
        writer.write("step0/rank0")
        writer.write("step1/rank0", "begun")
        comparison = ask_to_compare(both, golden, target)
        first = wait_for_comparison(both, comparison)
        assert compared() == 1
        with reading(both) as session:
            assert get_comparison(session, first.id).follows
        writer.write("step1/rank0")
        wait_until(lambda: compared() == 2)
        writer.write("step2/rank0", "half")
        wait_until(lambda: bool(unfinished(both, comparison)))
        writer.write("step2/rank0")
        wait_until(lambda: compared() == 3)
        monkeypatch.setattr(following, "QUIET_SECONDS", 0.0)
        wait_until(lambda: state_of_following(both, target) is JobState.DONE)
    found = wait_for_comparison(both, comparison)
    assert not found.follows
    assert_is_as_from_scratch(both, found, tmp_path)


def unfinished(engine: Engine, comparison: int) -> list[int | None]:
    with reading(engine) as session:
        target = get_comparison(session, comparison).target
    return [] if target is None else [one.listing.coordinates.step for one in target.unfinished]


@pytest.mark.usefixtures("quick")
def test_what_a_killed_run_left_is_damage_once_it_rests(
    engine: Engine, unpacked: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden, target = unpacked(STEPS) / "golden", tmp_path / "target"
    with Writer(unpacked(STEPS) / "target", target) as writer, worker(address_of(engine)):
        writer.write("step0/rank0")
        writer.write("step1/rank0", "half")
        comparison = ask_to_compare(engine, golden, target)
        wait_for_comparison(engine, comparison)
        assert unfinished(engine, comparison) == [1]
        writer.kill()
        monkeypatch.setattr(growth, "FRESH_SECONDS", 0.0)
        monkeypatch.setattr(growth.is_fresh, "__defaults__", (0.0,))
        wait_until(lambda: not unfinished(engine, comparison))
        found = wait_for_comparison(engine, comparison)
    assert found.unreadable == 1
    assert found.target is not None
    assert [ids_of(problem.reason) for problem in found.target.problems] == [("dumps.json.incomplete",)]


@pytest.mark.usefixtures("quick")
def test_who_stops_it_is_not_told_of_more(engine: Engine, unpacked: Unpacked, tmp_path: Path) -> None:
    golden, target = unpacked(STEPS) / "golden", tmp_path / "target"
    with Writer(unpacked(STEPS) / "target", target) as writer, worker(address_of(engine)):
        writer.write("step0/rank0")
        writer.write("step1/rank0", "half")
        comparison = ask_to_compare(engine, golden, target)
        wait_for_comparison(engine, comparison)
        with writing(engine) as session:
            following.stop_following(session, target)
        wait_until(lambda: state_of_following(engine, target) is JobState.CANCELLED)
        writer.write("step1/rank0")
        age(target)
        time.sleep(0.5)
        assert len(pair_ids(engine, comparison)) == 1
    assert len(pair_ids(engine, go_on(engine, comparison).id)) == 2
    assert state_of_following(engine, target) is JobState.CANCELLED


def test_a_finished_dump_is_not_looked_at_again(engine: Engine, unpacked: Unpacked, tmp_path: Path) -> None:
    target = tmp_path / "target"
    shutil.copytree(unpacked(STEPS) / "target", target, copy_function=shutil.copyfile)
    comparison = ask_to_compare(engine, unpacked(STEPS) / "golden", target)
    with worker(address_of(engine)):
        found = wait_for_comparison(engine, comparison)
    assert not found.follows
    assert state_of_following(engine, target) is None
