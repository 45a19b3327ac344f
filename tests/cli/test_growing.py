"""What the terminal and the exit status say of a dump that is still being written."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from messages import says
from writers import Writer

Run = Callable[..., Any]


@pytest.mark.parametrize("stage", ["begun", "empty", "half"])
def test_what_is_complete_is_compared_and_the_rest_is_named(
    firstdrift: Run, unpacked: Callable[[str], Path], tmp_path: Path, stage: str
) -> None:
    golden = unpacked("msprobe/llama_stat_mix_3steps") / "golden"
    with Writer(golden, tmp_path) as writer:
        for step in (0, 1):
            writer.write(f"step{step}/rank0")
        writer.write("step2/rank0", stage)
        done = firstdrift("compare", golden, tmp_path)
        answer = json.loads(firstdrift("compare", golden, tmp_path, "--json").out)
        inspected = firstdrift("inspect", tmp_path)
    assert (done.status, inspected.status) == (0, 0), done.out
    assert says(done.out, "growth.not_compared")
    assert says(done.out, "growth.more")
    assert says(inspected.out, "growth.unfinished")
    assert (answer["target"]["compared"], answer["target"]["slices"]) == (2, 2)
    (growing,) = answer["target"]["unfinished"]
    assert (growing["step"], growing["rank"]) == (2, 0)
    assert growing["reason"]
    assert answer["golden"]["unfinished"] == answer["target"]["problems"] == []


def test_a_fault_in_what_is_complete_is_found(
    firstdrift: Run, unpacked: Callable[[str], Path], tmp_path: Path
) -> None:
    dumps = unpacked("msprobe/llama_stat_mix_3steps")
    with Writer(dumps / "target", tmp_path) as writer:
        writer.write("step0/rank0")
        writer.write("step1/rank0", "half")
        done = firstdrift("compare", dumps / "golden", tmp_path)
    assert done.status == 1
    assert says(done.out, "growth.not_compared")
