"""`firstdrift inspect --tree` and `--overflow`: a dump without a partner."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from library.dumps.msprobe_samples import module, tensor, write_dump
from messages import says

from firstdrift.model.slice import Coordinates
from firstdrift.wording.message import Message
from firstdrift.wording.plain import message_object
from firstdrift.wording.text import text_of

Run = Callable[..., Any]
Unpacked = Callable[[str], Path]

SLICE = text_of(Coordinates(0, 0).name())
NAN = {"Max": "nan", "Min": "nan", "Mean": "nan", "Norm": "nan"}


def test_nodes_that_overflow_are_listed_and_exit_with_1(firstdrift: Run, unpacked: Unpacked) -> None:
    done = firstdrift("inspect", unpacked("msprobe/llama_stat_mix_nan") / "target", "--overflow")
    assert done.status == 1
    lines = done.out.splitlines()
    start = lines.index(f"{SLICE}: overflow in 354 nodes (3 critical, 345 high, 6 medium)")
    assert lines[start + 1] == "  first from finite inputs: none: it comes with weights or inputs"
    in_both = Message.of("overflow.in", tensors=("input.1", "output.0"))
    assert lines[start + 2] == f"  Functional.linear.12.forward (high): {text_of(in_both)}"
    assert lines[-1] == "  ... and 334 more (--json has all)"


def test_a_dump_without_overflow_exits_with_0(firstdrift: Run, unpacked: Unpacked) -> None:
    done = firstdrift("inspect", unpacked("msprobe/llama_stat_mix_nan") / "golden", "--overflow")
    assert done.out.endswith(f"{SLICE}: overflow in 0 nodes (0 critical, 0 high, 0 medium)\n")
    assert done.status == 0


def test_without_values_nothing_is_said_of_overflow(firstdrift: Run, unpacked: Unpacked) -> None:
    dump = unpacked("msprobe/llama_structure_mix_attn") / "golden"
    done = firstdrift("inspect", dump, "--overflow")
    assert done.out.endswith("no values are known: nothing can be said of overflow\n")


def test_overflow_as_json(firstdrift: Run, unpacked: Unpacked) -> None:
    done = firstdrift("inspect", unpacked("msprobe/zoo_tensor_mix") / "golden", "--overflow", "--json")
    answer = json.loads(done.out)
    assert done.status == 1
    assert len(answer["overflow"]) == 5
    assert answer["first_overflow"] == {
        "step": 0,
        "rank": 0,
        "token": None,
        "micro_step": None,
        "node": "Torch.add.6.forward",
        "level": "critical",
        "reason": message_object(Message.of("overflow.in", tensors=("output.0",))),
    }
    assert answer["first_from_finite_inputs"] == answer["first_overflow"]
    assert (answer["values_known"], answer["values_unreadable"]) == (175, 1)
    assert answer["format"] == "msprobe"


def test_what_cannot_be_read_exits_with_2_where_nothing_overflows(firstdrift: Run, tmp_path: Path) -> None:
    data = {"Torch.add.0.forward": module(tensor(data_name="gone.pt"))}
    write_dump(tmp_path / "step0" / "rank0", data, construct={}, task="tensor")
    assert firstdrift("inspect", tmp_path, "--overflow").status == 2


def test_the_tree_has_every_node_with_its_tensors(firstdrift: Run, unpacked: Unpacked) -> None:
    dump = unpacked("msit/llama4_stats1_golden")
    done = firstdrift("inspect", dump, "--tree", "--token", "1")
    lines = done.out.splitlines()
    start = lines.index(f"{text_of(Coordinates(token=1).name())}:")
    assert lines[start + 1 : start + 4] == [
        "  root (LlamaForCausalLM)",
        "    root.model (LlamaModel)",
        "      root.model.embed_tokens (Embedding)",
    ]
    assert lines[start + 5].startswith("          output.0  float32 [1, 1, 64]  maximum 0.59")
    assert f"{text_of(Coordinates(token=2).name())}:" not in lines
    assert done.status == 0


def test_call_stacks_that_cannot_be_read_spoil_nothing_else(
    firstdrift: Run, unpacked: Unpacked, tmp_path: Path
) -> None:
    dump = shutil.copytree(unpacked("msprobe/llama_stat_mix_nan") / "target", tmp_path / "dump")
    (stacks,) = dump.rglob("stack.json")
    stacks.write_text(stacks.read_text()[:100])
    said = firstdrift("inspect", dump, "--tree", "--overflow").out
    assert "call stacks cannot be read: " in said
    assert "stack.json: " in said
    assert says(said, "dumps.json.incomplete")
    assert "Functional.linear.12.forward (high)" in said
    (tree,) = json.loads(firstdrift("inspect", dump, "--tree", "--json").out)["tree"]
    assert len(tree["nodes"]) == 636
    assert tree["stacks_unreadable"]["arguments"]["file"] == "stack.json"


def test_the_tree_as_json(firstdrift: Run, unpacked: Unpacked) -> None:
    dump = unpacked("msprobe/llama_stat_mix_nan") / "target"
    answer = json.loads(firstdrift("inspect", dump, "--tree", "--json").out)
    (tree,) = answer["tree"]
    assert (tree["step"], tree["rank"]) == (0, 0)
    nodes = {node["name"]: node for node in tree["nodes"]}
    assert len(nodes) == answer["slices"][0]["nodes"] == 636
    linear = nodes["Functional.linear.12.forward"]
    assert linear["overflow"] == "high"
    assert linear["parent"] == "Module.model.layers.1.mlp.up_proj.Linear.forward.0"
    assert linear["stack"]
    weight = next(each for each in linear["tensors"] if each["tensor"] == "input.1")
    assert (weight["maximum"], weight["known_from"], weight["dtype"]) == ("NaN", "statistics", "float32")
    assert "overflow" not in answer, "it was not asked for"


def test_hostile_names_cannot_leave_their_line(firstdrift: Run, tmp_path: Path) -> None:
    data = {"Torch.a\x1b[31m\nb.0.forward": module(tensor(**NAN))}
    write_dump(tmp_path / "step0" / "rank0", data, construct={})
    done = firstdrift("inspect", tmp_path, "--tree", "--overflow")
    assert "\x1b" not in done.out
    assert "Torch.a\\x1b[31m\\nb.0.forward" in done.out


def test_a_slice_that_is_not_there_exits_with_2(firstdrift: Run, unpacked: Unpacked) -> None:
    done = firstdrift("inspect", unpacked("msit/llama4_stats1_golden"), "--tree", "--token", "7")
    assert done.status == 2
    assert {"0", "2", "7"} <= set(re.findall(r"\d+", done.err))


@pytest.mark.parametrize("name", ["step", "rank", "token"])
def test_a_choice_that_chooses_nothing_is_refused(firstdrift: Run, unpacked: Unpacked, name: str) -> None:
    dump = unpacked("msit/llama4_golden_fp32")
    alone = firstdrift("inspect", dump, f"--{name}", "99")
    assert (alone.status, "--tree" in alone.err) == (2, True)
    shown = firstdrift("inspect", dump, "--tree", f"--{name}", "99")
    assert (shown.status, shown.out.count("\n") < 20) == (2, True)
