"""`firstdrift inspect`: what a dump is, before anything is compared."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from library.dumps.msprobe_samples import module, tensor, write_dump
from messages import complaint, says

from firstdrift.model.slice import Coordinates
from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of

Run = Callable[..., Any]
Unpacked = Callable[[str], Path]


def test_the_text_says_the_format_and_why_and_what_there_is(firstdrift: Run, unpacked: Unpacked) -> None:
    dump = unpacked("msprobe/zoo_tensor_mix") / "golden"
    done = firstdrift("inspect", dump)
    lines = done.out.splitlines()
    assert lines[0] == f"{dump}: msprobe"
    assert says(lines[1], "dumps.msprobe.file_with_data")
    assert lines[-3] == (
        f"{text_of(Coordinates(0, 0).name())}: "
        "10 modules, 62 operators, 248 tensors (176 with data, 175 with statistics, "
        "0 with digests, 0 unreadable)"
    )
    assert "Weird (2)" in lines[-2]
    title = text_of(Message.of("terminal.order"))
    assert lines[-1] == f"{title}: {text_of(Message.of('dumps.order.recorded'))}"
    assert (done.status, done.err) == (0, "")


def test_the_text_says_how_the_execution_order_is_known(firstdrift: Run, unpacked: Unpacked) -> None:
    lines = firstdrift("inspect", unpacked("msit/llama4_stats1_bf16")).out.splitlines()
    assert says(lines[-1], "dumps.order.from_node_names", "dumps.order.from_module_names_and_definition")
    tokens = [text_of(Coordinates(token=number).name()) for number in range(3)]
    assert sum(line.startswith(tuple(tokens)) for line in lines) == len(tokens)


def test_json_keeps_its_contract(firstdrift: Run, unpacked: Unpacked) -> None:
    done = firstdrift("inspect", unpacked("msit/llama4_stats1_bf16"), "--json")
    answer = json.loads(done.out)
    assert answer.keys() == {
        *(
            "path",
            "format",
            "evidence",
            "attributes",
            "problems",
            "slices",
            "unknown_names",
            "damaged_slices",
        ),
        "unfinished_slices",
    }
    assert answer["format"] == "msit-torch"
    assert [one["token"] for one in answer["slices"]] == [0, 1, 2]
    (numbers,) = {
        (one["nodes"], one["modules"], one["operators"], one["tensors"], one["with_statistics"])
        for one in answer["slices"]
    }
    assert numbers == (59, 59, 0, 113, 113)
    assert answer["slices"][0].keys() == {
        "step",
        "rank",
        "token",
        "micro_step",
        "nodes",
        "modules",
        "operators",
        "tensors",
        "with_data",
        "with_statistics",
        "with_digest",
        "unreadable",
        "order_origin",
        "problems",
    }


def test_what_cannot_be_read_is_listed_with_its_file(firstdrift: Run, tmp_path: Path) -> None:
    data = {"Torch.add.0.forward": module(tensor(data_name="gone.pt"), tensor(dtype="torch.complex32"))}
    write_dump(tmp_path / "step0" / "rank0", data, construct={}, task="tensor")
    text = firstdrift("inspect", tmp_path)
    assert "1 unreadable" in text.out
    assert says(text.out, "dumps.record.file_missing")
    (slice_found,) = json.loads(firstdrift("inspect", tmp_path, "--json").out)["slices"]
    assert slice_found["unreadable"] == 1
    assert slice_found["problems"][0]["file"].endswith("gone.pt")
    assert text.status == 2, "as for compare: a part of the dump cannot be read"


@pytest.fixture
def half_damaged(unpacked: Unpacked, tmp_path: Path) -> Path:
    """A dump of two steps and ranks; the index of one is cut short in line 31."""
    shutil.copytree(unpacked("msprobe/dp2_stat_mix") / "golden", tmp_path / "dump")
    file = tmp_path / "dump" / "step0" / "rank1" / "dump.json"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:30]) + '   "cut')
    return tmp_path / "dump"


def test_a_damaged_slice_is_named_with_the_place_and_spoils_no_other(
    firstdrift: Run, half_damaged: Path
) -> None:
    done = firstdrift("inspect", half_damaged)
    file = half_damaged / "step0" / "rank1" / "dump.json"
    assert f"{text_of(Coordinates(0, 0).name())}: " in done.out
    assert f"{text_of(Coordinates(0, 1).name())}: damaged: {file}: " in done.out
    assert says(done.out, "dumps.json.incomplete")
    assert "line 31 column 4" in done.out
    assert done.status == 2
    answer = json.loads(firstdrift("inspect", half_damaged, "--json").out)
    assert {(one["step"], one["rank"]) for one in answer["slices"]} == {(0, 0), (1, 0), (1, 1)}
    (damaged,) = answer["damaged_slices"]
    assert (damaged["rank"], damaged["file"]) == (1, str(file))


def test_a_dump_of_which_nothing_can_be_read_exits_with_2_and_says_where(
    firstdrift: Run, half_damaged: Path
) -> None:
    done = firstdrift("inspect", half_damaged / "step0" / "rank1")
    assert (done.status, done.out) == (2, "")
    assert says(done.err, "dumps.json.incomplete")
    assert "line 31 column 4" in done.err


def test_one_of_a_kind_is_said_in_the_singular(firstdrift: Run, tmp_path: Path) -> None:
    data = {"Torch.add.0.forward": {"input_args": [], "input_kwargs": {}, "output": [tensor()]}}
    write_dump(tmp_path / "step0" / "rank0", data, construct={})
    assert "0 modules, 1 operator, 1 tensor (" in firstdrift("inspect", tmp_path).out
    compared = firstdrift("compare", tmp_path, tmp_path).out
    assert "msprobe, 1 slice, 1 node, 1 tensor\n" in compared


def test_no_dump_exits_with_2(firstdrift: Run, tmp_path: Path) -> None:
    done = firstdrift("inspect", tmp_path / "nowhere")
    assert (done.status, done.out) == (2, "")
    assert done.err == complaint("dumps.nothing_here", tmp_path / "nowhere")
