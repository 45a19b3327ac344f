"""What a worker finds is what the library finds, however often it is interrupted or asked again."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import pytest
from databases import new_postgresql_database
from mapping_reading import read_mapping
from sqlalchemy import Engine, delete, select, text, update
from working import ask_to_compare, compare_with_worker, wait_for_comparison, wait_until, worker

from firstdrift.catalogue.columns import Now
from firstdrift.catalogue.comparisons import tree
from firstdrift.catalogue.comparisons.measurements import KEY_BYTES
from firstdrift.catalogue.comparisons.records import (
    Comparison,
    cancel_comparison,
    compare_again,
    delete_comparison,
    get_comparison,
)
from firstdrift.catalogue.comparisons.slice_pairs import slice_pairs_of
from firstdrift.catalogue.comparisons.tree import all_pairs, all_rows
from firstdrift.catalogue.engine import reading, writing
from firstdrift.catalogue.jobs.queue import list_workers
from firstdrift.catalogue.tables import ComparisonEntry, JobState, MeasurementBlockEntry
from firstdrift.comparison import stages as library
from firstdrift.comparison.compare import compare
from firstdrift.comparison.report import Options, Report
from firstdrift.errors import DumpNotFoundError, FirstdriftError
from firstdrift.matching.plan import MatchingRules
from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of
from firstdrift_worker import indexing, main, measuring, storage

MAPPINGS = Path(__file__).parents[1] / "mappings"
DUMPS = [
    ("msprobe/llama_stat_mix_nan", "golden", "target"),
    ("msprobe/llama_tensor_mix_perturb", "golden", "target"),
    ("msprobe/llama_md5_mix_perturb", "golden", "target"),
    ("msprobe/llama_stat_mix_3steps", "golden", "target"),
    ("msprobe/dp2_stat_mix", "golden", "target"),
    ("msprobe/tp2_vs_tp1", "golden", "target"),
    ("msprobe/megatron_microstep_stat_mix", "golden", "target"),
    ("msit", "llama12_golden_fp32", "llama12_bf16_bad_L7_T2"),
    ("msit", "llama12_logits_golden", "llama12_logits_bad"),
]


@pytest.fixture
def dumps(unpacked: Callable[[str], Path]) -> Callable[[str, str, str], tuple[Path, Path]]:
    def find(family: str, golden: str, target: str) -> tuple[Path, Path]:
        if family == "msit":
            return unpacked(f"msit/{golden}"), unpacked(f"msit/{target}")
        return unpacked(family) / golden, unpacked(family) / target

    return find


def assert_says(comparison: Comparison, report: Report) -> None:
    assert comparison.findings == report.findings
    assert comparison.counts == report.counts
    assert comparison.golden == report.golden
    assert comparison.target == report.target
    assert comparison.unmatched_golden == report.pairing.unmatched_golden
    assert comparison.unmatched_target == report.pairing.unmatched_target
    assert comparison.notes == report.pairing.notes
    assert comparison.unreadable == report.unreadable


@pytest.mark.parametrize(("family", "golden", "target"), DUMPS)
def test_the_worker_finds_what_the_library_finds(
    sqlite_url: str,
    dumps: Callable[[str, str, str], tuple[Path, Path]],
    family: str,
    golden: str,
    target: str,
) -> None:
    paths = dumps(family, golden, target)
    comparison = compare_with_worker(sqlite_url, *paths)
    assert_says(comparison, compare(*paths))
    assert comparison.job.share_done == 1
    assert set(comparison.seconds or ()) == {"index", "match", "measure", "store", "total"}


def test_on_postgresql_too(postgresql: str, dumps: Callable[[str, str, str], tuple[Path, Path]]) -> None:
    paths = dumps(*DUMPS[0])
    assert_says(compare_with_worker(new_postgresql_database(postgresql), *paths), compare(*paths))


@pytest.mark.parametrize(
    "options",
    [
        Options(rules="msprobe"),
        Options(rules="msit"),
        Options(level="logits"),
        Options(MatchingRules(token=2)),
        Options(MatchingRules(token_offset=1, structure=False)),
    ],
)
def test_what_was_chosen_is_obeyed(
    sqlite_url: str, dumps: Callable[[str, str, str], tuple[Path, Path]], options: Options
) -> None:
    paths = dumps("msit", "llama4_golden_fp32", "llama4_perturb_L2_T3")
    assert_says(compare_with_worker(sqlite_url, *paths, options), compare(*paths, options))


def test_mapping_files_are_obeyed_and_tensors_joined_from_several_come_back(
    engine: Engine, sqlite_url: str, dumps: Callable[[str, str, str], tuple[Path, Path]]
) -> None:
    mapping = read_mapping(MAPPINGS / "layer_mapping_qwen2.yaml")
    options = Options(MatchingRules(mappings=(mapping,)))
    paths = dumps("msprobe/qwen2_layermap_stat_mix", "golden", "target")
    report = compare(*paths, options)
    comparison = compare_with_worker(sqlite_url, *paths, options)
    assert comparison.options == options
    assert_says(comparison, report)
    with reading(engine) as session:
        for pair, result in zip(slice_pairs_of(session, comparison.id), report.slices, strict=True):
            assert [found.plan for found in all_pairs(session, pair.id)] == list(result.plan.pairs)
            assert pair.notes == result.plan.notes
    assert any(pair.joining for result in report.slices for pair in result.plan.pairs)


@pytest.mark.parametrize("damaged", [1, 3])
def test_a_damaged_slice_spoils_no_other(
    engine: Engine,
    sqlite_url: str,
    dumps: Callable[[str, str, str], tuple[Path, Path]],
    tmp_path: Path,
    damaged: int,
) -> None:
    golden, target = (shutil.copytree(path, tmp_path / path.name) for path in dumps(*DUMPS[3]))
    for step in sorted(target.iterdir())[:damaged]:
        for file in step.rglob("dump.json"):
            file.write_text('{"data": {"cut')
    comparison_id = ask_to_compare(engine, golden, target)
    with worker(sqlite_url):
        comparison = wait_for_comparison(engine, comparison_id)
    if damaged < 3:
        assert_says(comparison, compare(golden, target))
        assert (comparison.unreadable or 0) > 0
    else:
        with pytest.raises(FirstdriftError) as caught:
            compare(golden, target)
        assert comparison.state is JobState.FAILED
        assert comparison.job.error == caught.value.whole()


def test_several_processes_find_the_same(
    sqlite_url: str,
    dumps: Callable[[str, str, str], tuple[Path, Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measuring, "WORTH_A_POOL", 0)
    monkeypatch.setattr(measuring, "CHUNK_PAIRS", 50)
    paths = dumps(*DUMPS[7])
    assert_says(compare_with_worker(sqlite_url, *paths, processes=2), compare(*paths))


def no_reading(*_: object, **__: object) -> None:
    raise AssertionError("the dump was read again")


def test_other_rules_are_applied_without_reading_a_file_again(
    engine: Engine,
    sqlite_url: str,
    dumps: Callable[[str, str, str], tuple[Path, Path]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    golden, target = (shutil.copytree(path, tmp_path / path.name) for path in dumps(*DUMPS[1]))
    compare_with_worker(sqlite_url, golden, target)
    expected = compare(golden, target, Options(rules="msprobe"))
    for module, name in [(library, "load_tensor"), (indexing, "read_slice"), (indexing, "open_dump")]:
        monkeypatch.setattr(module, name, no_reading)
    shutil.rmtree(golden)  # not even there
    with writing(engine) as session:
        compare_again(session, 1, "msprobe")
    with worker(sqlite_url):
        comparison = wait_for_comparison(engine, 1)
    assert comparison.state is JobState.DONE, comparison.job.traceback
    assert_says(comparison, expected)
    with reading(engine) as session:
        (pair,) = slice_pairs_of(session, 1)
        rows = list(all_rows(session, pair.id))
    assert [(row.judgement.verdict, row.judgement.node_class) for row in rows] == [
        (row.verdict, row.node_class) for row in expected.slices[0].judgement.rows
    ]


def test_a_second_comparison_measures_only_what_is_new(
    engine: Engine,
    sqlite_url: str,
    dumps: Callable[[str, str, str], tuple[Path, Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paths = dumps(*DUMPS[1])
    compare_with_worker(sqlite_url, *paths, Options(level="layer"))
    measured: list[int] = []
    really = measuring.measure_pairs
    monkeypatch.setattr(
        measuring, "measure_pairs", lambda plan, *at: measured.append(len(plan.pairs)) or really(plan, *at)
    )
    second = compare_with_worker(sqlite_url, *paths)
    assert_says(second, compare(*paths))
    assert second.counts is not None
    with reading(engine) as session:
        of_layers = get_comparison(session, 1).counts
    assert of_layers is not None
    assert sum(measured) == second.counts.pairs - of_layers.pairs
    with reading(engine) as session:
        assert session.scalar(text("SELECT count(*) FROM dumps")) == 2


def test_a_dump_that_changed_is_read_and_measured_anew(
    engine: Engine,
    sqlite_url: str,
    dumps: Callable[[str, str, str], tuple[Path, Path]],
    tmp_path: Path,
) -> None:
    golden, target = (shutil.copytree(path, tmp_path / path.name) for path in dumps(*DUMPS[1]))
    first = compare_with_worker(sqlite_url, golden, target)
    shutil.rmtree(target)
    shutil.copytree(golden, target)
    with writing(engine) as session:
        compare_again(session, first.id)
    with worker(sqlite_url):
        again = wait_for_comparison(engine, first.id)
    assert_says(again, compare(golden, target))
    assert again.counts is not None
    assert again.counts.error == 0
    assert again.target_dump_id == first.target_dump_id
    assert again.target_files != first.target_files


def replace_content(file: Path, content: bytes) -> None:
    """Write a file in such a way that its date does not tell."""
    status = file.stat()
    file.write_bytes(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_data_that_could_not_be_read_is_tried_again(
    engine: Engine,
    sqlite_url: str,
    dumps: Callable[[str, str, str], tuple[Path, Path]],
    tmp_path: Path,
) -> None:
    golden, target = (shutil.copytree(path, tmp_path / path.name) for path in dumps(*DUMPS[1]))
    report = compare(golden, target)
    contents = {file: file.read_bytes() for file in sorted(target.rglob("*.pt"))[:5]}
    for file, content in contents.items():
        replace_content(file, bytes(len(content)))
    first = compare_with_worker(sqlite_url, golden, target)
    assert first.counts is not None
    assert first.counts.incomparable > report.counts.incomparable
    for file, content in contents.items():
        replace_content(file, content)
    with writing(engine) as session:
        compare_again(session, first.id)
    with worker(sqlite_url):
        assert_says(wait_for_comparison(engine, first.id), report)


@pytest.mark.parametrize("missing", ["golden", "target"])
def test_a_dump_that_cannot_be_used_fails_with_its_reason(
    engine: Engine, sqlite_url: str, tmp_path: Path, missing: str
) -> None:
    (tmp_path / "other").mkdir()
    golden, target = tmp_path / "golden", tmp_path / "other"
    comparison_id = ask_to_compare(engine, *((golden, target) if missing == "golden" else (target, golden)))
    with worker(sqlite_url):
        comparison = wait_for_comparison(engine, comparison_id)
    assert comparison.state is JobState.FAILED
    assert comparison.job.attempts == 1
    assert comparison.job.error is not None
    assert str(tmp_path) in text_of(comparison.job.error)
    assert "Traceback" in (comparison.job.traceback or "")


def test_a_mistake_of_ours_fails_the_job_with_its_traceback_and_spares_the_worker(
    engine: Engine,
    sqlite_url: str,
    dumps: Callable[[str, str, str], tuple[Path, Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    really = storage.plan_slice
    monkeypatch.setattr(storage, "plan_slice", lambda *_: 1 / 0)
    paths = dumps(*DUMPS[0])
    first = ask_to_compare(engine, *paths)
    with worker(sqlite_url):
        failed = wait_for_comparison(engine, first)
        monkeypatch.setattr(storage, "plan_slice", really)
        second = wait_for_comparison(engine, ask_to_compare(engine, *paths))
    why = {"kind": "ZeroDivisionError", "error": "division by zero"}
    assert failed.job.error == Message.of("worker.unexpected", **why)
    assert "plan_slice" in (failed.job.traceback or "")
    assert second.state is JobState.DONE


def test_the_bin_is_emptied_while_the_worker_runs(
    engine: Engine, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "PURGE_SECONDS", 0.1)
    comparison = ask_to_compare(engine, Path("/golden"), Path("/target"))
    with worker(sqlite_url):
        wait_for_comparison(engine, comparison)
        with writing(engine) as session:
            delete_comparison(session, comparison)
            long_ago = Now(-timedelta(days=31).total_seconds())
            session.execute(update(ComparisonEntry).values(deleted_at=long_ago))
        wait_until(lambda: not exists(engine, comparison))


def test_a_comparison_that_is_removed_while_it_is_compared_spares_the_worker(
    engine: Engine,
    sqlite_url: str,
    dumps: Callable[[str, str, str], tuple[Path, Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    really = storage.plan_slice

    def removed(*_: object) -> NoReturn:
        with writing(engine) as session:
            session.execute(delete(ComparisonEntry).where(ComparisonEntry.id == first))
        raise DumpNotFoundError(Message.of("dumps.nothing_here"))

    monkeypatch.setattr(storage, "plan_slice", removed)
    paths = dumps(*DUMPS[0])
    first = ask_to_compare(engine, *paths)
    with worker(sqlite_url):
        wait_until(lambda: not exists(engine, first))
        monkeypatch.setattr(storage, "plan_slice", really)
        second = wait_for_comparison(engine, ask_to_compare(engine, *paths))
    assert second.state is JobState.DONE


def exists(engine: Engine, comparison: int) -> bool:
    with reading(engine) as session:
        return session.get(ComparisonEntry, comparison) is not None


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each chunk of a few pairs take a while."""
    really = measuring.measure_pairs

    def slowly(*arguments: object) -> object:
        time.sleep(0.1)
        return really(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(measuring, "measure_pairs", slowly)
    monkeypatch.setattr(measuring, "CHUNK_PAIRS", 20)


@pytest.mark.usefixtures("slow")
def test_a_running_comparison_is_cancelled_within_two_seconds_and_can_be_gone_on_with(
    engine: Engine, sqlite_url: str, dumps: Callable[[str, str, str], tuple[Path, Path]]
) -> None:
    paths = dumps(*DUMPS[1])
    comparison_id = ask_to_compare(engine, *paths)
    with worker(sqlite_url):
        wait_until(lambda: measured_pairs(engine) > 100)
        with writing(engine) as session:
            cancel_comparison(session, comparison_id)
        asked = time.monotonic()
        comparison = wait_for_comparison(engine, comparison_id)
        assert time.monotonic() - asked < 2
        assert comparison.state is JobState.CANCELLED
        measured = measured_pairs(engine)
        assert measured > 100
        with writing(engine) as session:
            compare_again(session, comparison_id)
        assert_says(wait_for_comparison(engine, comparison_id), compare(*paths))


@pytest.mark.usefixtures("slow")
def test_a_worker_that_is_stopped_puts_its_job_back_and_another_goes_on(
    engine: Engine, sqlite_url: str, dumps: Callable[[str, str, str], tuple[Path, Path]]
) -> None:
    paths = dumps(*DUMPS[1])
    comparison_id = ask_to_compare(engine, *paths)
    with worker(sqlite_url):
        wait_until(lambda: measured_pairs(engine) > 100)
        stopped = time.monotonic()
    assert time.monotonic() - stopped < 2
    with reading(engine) as session:
        assert get_comparison(session, comparison_id).state is JobState.QUEUED
    kept = measured_pairs(engine)
    with worker(sqlite_url):
        comparison = wait_for_comparison(engine, comparison_id)
    assert_says(comparison, compare(*paths))
    assert comparison.counts is not None
    assert 100 < kept < comparison.counts.pairs == measured_pairs(engine)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_process_ends_in_good_order_when_it_is_asked_to(
    engine: Engine,
    sqlite_url: str,
    dumps: Callable[[str, str, str], tuple[Path, Path]],
    by: signal.Signals,
    processes: int,
) -> None:
    ask_to_compare(engine, *dumps(*DUMPS[7]))
    script = (
        "import sys; from firstdrift_worker import main, measuring; "
        "measuring.WORTH_A_POOL, measuring.CHUNK_PAIRS = 0, 10; "
        f"main.work_until_signal(sys.argv[1], processes={processes})"
    )
    command = [sys.executable, "-c", script, sqlite_url]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        wait_until(lambda: measured_pairs(engine) > 0)
        os.killpg(process.pid, by)  # as a terminal does, which asks all processes at once
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert "Traceback" not in said
    with reading(engine) as session:
        assert get_comparison(session, 1).state in (JobState.QUEUED, JobState.DONE)
        assert list_workers(session) == ()


@pytest.mark.usefixtures("slow")
def test_what_is_there_can_be_seen_while_the_rest_is_being_compared(
    engine: Engine, sqlite_url: str, dumps: Callable[[str, str, str], tuple[Path, Path]]
) -> None:
    paths = dumps("msit", "llama4_golden_fp32", "llama4_perturb_L2_T3")
    comparison_id = ask_to_compare(engine, *paths)
    report = compare(*paths)
    seen: set[int] = set()
    stages: set[str] = set()
    with worker(sqlite_url):
        while True:
            with reading(engine) as session:
                comparison = get_comparison(session, comparison_id)
                pairs = slice_pairs_of(session, comparison_id)
                for pair, result in zip(pairs, report.slices, strict=False):
                    assert pair.judgement.counts == result.judgement.counts
                    assert tree.get_row(session, pair.id, 0).tree.parent is None
            seen.add(len(pairs))
            if (stage := comparison.job.stage) is not None and stage.id == "stage.of_slice":
                stages.add(getattr(stage.arguments["stage"], "id", ""))
            if comparison.job.is_over:
                break
            assert comparison.findings is None
            time.sleep(0.05)
    assert len(seen) > 3
    assert "stage.measuring" in stages
    assert len(pairs) == len(report.slices)


def test_several_workers_do_each_comparison_once(
    engine: Engine, sqlite_url: str, dumps: Callable[[str, str, str], tuple[Path, Path]]
) -> None:
    paths = dumps(*DUMPS[0])
    report = compare(*paths)
    made = [ask_to_compare(engine, *paths) for _ in range(6)]
    with worker(sqlite_url), worker(sqlite_url), worker(sqlite_url):
        for comparison_id in made:
            comparison = wait_for_comparison(engine, comparison_id)
            assert_says(comparison, report)
            assert comparison.job.attempts == 1
    assert count(engine, "slice_pairs") == 6
    assert count(engine, "dumps") == 2


def test_a_worker_shows_that_it_is_alive_and_says_goodbye(engine: Engine, sqlite_url: str) -> None:
    def alive() -> int:
        with reading(engine) as session:
            return len(list_workers(session))

    with worker(sqlite_url):
        wait_until(lambda: alive() == 1)
    assert alive() == 0


def count(engine: Engine, table: str) -> int:
    with reading(engine) as session:
        return session.scalar(text(f"SELECT count(*) FROM {table}")) or 0  # noqa: S608


def measured_pairs(engine: Engine) -> int:
    with reading(engine) as session:
        keys = session.scalars(select(MeasurementBlockEntry.keys)).all()
    return sum(map(len, keys)) // KEY_BYTES


def test_a_token_that_only_the_others_show_to_be_bad_is_kept_as_the_library_says(
    sqlite_url: str, engine: Engine, dumps: Callable[[str, str, str], tuple[Path, Path]]
) -> None:
    paths = dumps("msit", "llama12_logits_golden", "llama12_logits_bad")
    report = compare(*paths)
    comparison = compare_with_worker(sqlite_url, *paths)
    with reading(engine) as session:
        found = slice_pairs_of(session, comparison.id)
        assert [pair.verdict.value for pair in found] == ["pass", "pass", *["error"] * 4]
        for pair, result in zip(found, report.slices, strict=True):
            assert pair.judgement.counts == result.judgement.counts
            assert pair.judgement.logits == result.judgement.logits
            assert tuple(row.judgement for row in all_rows(session, pair.id)) == result.judgement.rows
            assert tuple(one.judgement for one in all_pairs(session, pair.id)) == result.judgement.pairs
