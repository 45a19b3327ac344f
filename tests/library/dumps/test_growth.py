"""A dump that is still being written: what is not complete yet is set aside, and said to be."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from messages import ids_of, place
from writers import Writer

from firstdrift import compare
from firstdrift.comparison.inspection import inspect_dump
from firstdrift.dumps.detect import open_dump
from firstdrift.dumps.growth import FRESH_SECONDS, fingerprints, settled
from firstdrift.model.slice import Dump

Unpacked = Callable[[str], Path]

STEPS = "msprobe/llama_stat_mix_3steps"


@pytest.fixture
def golden(unpacked: Unpacked) -> Path:
    return unpacked(STEPS) / "golden"


def unfinished(dump: Dump) -> dict[str, tuple[str, ...]]:
    """Say which slices are still being written, and by what that shows."""
    return {place(one.listing.coordinates): ids_of(one.reason) for one in dump.unfinished}


def age(path: Path) -> None:
    """Let all files have been written longer ago than anybody takes to go on."""
    then = time.time() - FRESH_SECONDS - 1
    for file in path.rglob("*"):
        os.utime(file, (then, then))


def touch(path: Path) -> None:
    for file in path.rglob("*"):
        file.touch()


@pytest.mark.parametrize(
    ("stage", "shows"),
    [("begun", "growth.no_file"), ("empty", "growth.empty"), ("half", "dumps.json.incomplete")],
)
def test_the_step_that_is_written_is_set_aside_until_it_is_whole(
    golden: Path, tmp_path: Path, stage: str, shows: str
) -> None:
    with Writer(golden, tmp_path) as writer:
        writer.write("step0/rank0")
        writer.write("step1/rank0")
        writer.write("step2/rank0", stage)
        seen = settled(open_dump(tmp_path))
        assert unfinished(seen) == {"step 2, rank 0": (shows,)}
        assert [one.coordinates.step for one in seen.slices] == [0, 1]
        assert seen.problems == ()
        writer.write("step2/rank0")
        assert settled(open_dump(tmp_path)) == open_dump(tmp_path)


def test_what_a_killed_run_left_half_written_is_damage_once_it_rests(golden: Path, tmp_path: Path) -> None:
    with Writer(golden, tmp_path) as writer:
        writer.write("step0/rank0")
        writer.write("step1/rank0", "half")
        writer.kill()
    assert unfinished(settled(open_dump(tmp_path)))
    age(tmp_path)
    seen = inspect_dump(tmp_path)
    assert seen.dump.unfinished == ()
    ((damaged, problem),) = seen.damaged
    assert (damaged.step, ids_of(problem.reason)) == (1, ("dumps.json.incomplete",))


def test_a_step_without_dump_file_is_a_problem_once_it_rests(golden: Path, tmp_path: Path) -> None:
    with Writer(golden, tmp_path) as writer:
        writer.write("step0/rank0")
        writer.write("step1/rank0", "begun")
    assert settled(open_dump(tmp_path)).problems == ()
    os.utime(tmp_path / "step1" / "rank0", (1, 1))
    seen = settled(open_dump(tmp_path))
    assert (seen.unfinished, [problem.file for problem in seen.problems]) == ((), ["step1/rank0"])


def test_a_finished_dump_that_was_copied_just_now_is_whole(unpacked: Unpacked, tmp_path: Path) -> None:
    for name in (f"{STEPS}/target", "msprobe/dp2_stat_mix/golden", "msit/llama4_golden_fp32"):
        family, archive, *inside = name.split("/")
        source = unpacked(f"{family}/{archive}").joinpath(*inside)
        copy = tmp_path / archive
        shutil.copytree(source, copy, copy_function=shutil.copyfile)
        assert settled(open_dump(copy)) == open_dump(copy)


def test_a_missing_file_of_values_keeps_a_step_back_only_while_others_come(
    unpacked: Unpacked, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(
        unpacked("msprobe/llama_tensor_L0_2steps") / "golden", copy, copy_function=shutil.copyfile
    )
    min(copy.glob("step1/rank0/dump_tensor_data/*.pt")).unlink()
    (reasons,) = unfinished(settled(open_dump(copy))).values()
    assert "dumps.record.file_missing" in reasons
    age(copy)
    assert settled(open_dump(copy)).unfinished == ()


def test_a_file_of_values_that_is_half_there_keeps_a_step_back(unpacked: Unpacked, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(
        unpacked("msprobe/llama_tensor_L0_2steps") / "golden", copy, copy_function=shutil.copyfile
    )
    file = min(copy.glob("step1/rank0/dump_tensor_data/*.pt"))
    file.write_bytes(file.read_bytes()[:200])
    (reasons,) = unfinished(settled(open_dump(copy))).values()
    assert "dumps.zip.cut_short" in reasons


def test_all_ranks_of_a_step_wait_for_the_last(unpacked: Unpacked, tmp_path: Path) -> None:
    with Writer(unpacked("msprobe/dp2_stat_mix") / "golden", tmp_path) as writer:
        for there in ("step0/rank0", "step0/rank1", "step1/rank0"):
            writer.write(there)
        assert unfinished(settled(open_dump(tmp_path))) == {"step 1, rank 0": ("growth.others_to_come",)}
        writer.write("step1/rank1", "half")
        assert unfinished(settled(open_dump(tmp_path))) == {
            "step 1, rank 0": ("growth.others_to_come",),
            "step 1, rank 1": ("dumps.json.incomplete",),
        }
        writer.write("step1/rank1")
        assert len(settled(open_dump(tmp_path)).slices) == 4


def test_a_token_of_which_a_file_is_half_there_is_set_aside(unpacked: Unpacked, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(unpacked("msit/llama4_golden_fp32"), copy, copy_function=shutil.copyfile)
    last = max((one.directory for one in open_dump(copy).slices), key=lambda folder: int(folder.name))
    file = min(last.rglob("output*.pth"))
    file.write_bytes(file.read_bytes()[:100])
    seen = settled(open_dump(copy))
    assert [one.listing.directory for one in seen.unfinished] == [last]


def test_what_is_compared_of_a_growing_dump_is_what_is_whole(golden: Path, tmp_path: Path) -> None:
    with Writer(golden, tmp_path) as writer:
        writer.write("step0/rank0")
        writer.write("step1/rank0")
        writer.write("step2/rank0", "half")
        report = compare(golden, tmp_path)
    assert [one.judgement.coordinates.step for one in report.outlines] == [0, 1]
    assert report.unreadable == 0
    assert report.counts.passed == report.counts.pairs > 0
    (said,) = (note for note in report.notes() if note.id == "growth.not_compared")
    assert ids_of(said)[-1] == "dumps.json.incomplete"
    assert [one.listing.coordinates.step for one in report.target.unfinished] == [2]
    assert (report.target.slices, report.golden.unfinished) == (2, ())


def plain_dump(folder: Path) -> Path:
    for name in ("step0/a.output.npy", "step0/b/output.0.npy", "step1/a.output.npy", "step2.npy"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(folder / name, np.ones(3, np.float32))
    return folder


READING = """
import json, sys
from pathlib import Path
from firstdrift.dumps.detect import bases_of, open_dump, read_slice

dump = open_dump(Path(sys.argv[1]))
bases, opened, now = bases_of(dump), {}, None

def look(event, arguments):
    if now is not None and event in ("open", "os.scandir", "os.listdir"):
        name = arguments[0]
        if isinstance(name, (str, bytes)) or hasattr(name, "__fspath__"):
            opened.setdefault(now, set()).add(str(name))

sys.addaudithook(look)
beyond = []
for listing in dump.slices:
    now = listing.directory
    read_slice(dump, listing)
    found, now = opened.pop(listing.directory), None
    inside = tuple(map(Path, bases[listing].paths))
    below = [Path(name) for name in found if Path(name).is_relative_to(dump.path)]
    beyond += [str(name) for name in below if not any(name.is_relative_to(one) for one in inside)]
print(json.dumps(sorted(set(beyond))))
"""


@pytest.mark.parametrize(
    "name",
    [
        f"{STEPS}/golden",
        "msprobe/llama_tensor_L0_2steps/target",
        "msprobe/debug_tensor/golden",
        "msit/llama4_golden_fp32",
        "msit/llama4_weights",
        "msit/llama4_stats1_bf16",
        "plain",
    ],
)
def test_a_slice_is_made_of_nothing_but_what_it_is_said_to_rest_on(
    unpacked: Unpacked, name: str, tmp_path: Path
) -> None:
    family, *inside = name.split("/")
    path = (
        plain_dump(tmp_path) if not inside else unpacked("/".join((family, inside[0]))).joinpath(*inside[1:])
    )
    read = subprocess.run(
        [sys.executable, "-c", READING, str(path)], capture_output=True, text=True, check=True
    )
    beyond = [Path(one) for one in json.loads(read.stdout)]
    # Which tokens there are, and of what modules, is told apart by names.
    assert [one for one in beyond if not (one.is_dir() and family in ("msit", "plain"))] == []


def test_each_slice_is_told_from_what_it_was_by_itself(unpacked: Unpacked, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(unpacked(STEPS) / "golden", copy)
    before = fingerprints(open_dump(copy))
    assert len(set(before.values())) == 3
    touch(copy / "step1")
    after = fingerprints(open_dump(copy))
    assert [one.coordinates.step for one in before if before[one] != after[one]] == [1]


def test_a_slice_that_links_to_another_changes_with_it(unpacked: Unpacked, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(unpacked("msprobe/llama_tensor_L0_2steps") / "golden", copy)
    shutil.rmtree(copy / "step1/rank0/dump_tensor_data")
    (copy / "step1/rank0/dump_tensor_data").symlink_to("../../step0/rank0/dump_tensor_data")
    before = fingerprints(open_dump(copy))
    touch(copy / "step0/rank0/dump_tensor_data")
    after = fingerprints(open_dump(copy))
    assert all(before[one] != after[one] for one in before)


def test_a_token_changes_with_the_one_that_gives_nodes_their_order(
    unpacked: Unpacked, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(unpacked("msit/llama4_golden_fp32"), copy)
    dump = open_dump(copy)
    before = fingerprints(dump)
    touch(dump.slices[-1].directory)
    after = fingerprints(open_dump(copy))
    assert [one for one in before if before[one] != after[one]] == [dump.slices[-1]]
    touch(dump.slices[0].directory)
    assert all(before[one] != now for one, now in fingerprints(open_dump(copy)).items())
