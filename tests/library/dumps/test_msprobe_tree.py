"""The module tree of msprobe dumps is right where construct.json is wrong, and in the order of execution."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from library.dumps.msprobe_samples import module, tensor, write_dump, write_json

from firstdrift.dumps.msprobe.reader import MsprobeReader
from firstdrift.dumps.msprobe.tree import finish_order, last_positions, parse_construct, repair_parents
from firstdrift.model.names import parse_name
from firstdrift.model.node import Node
from firstdrift.model.slice import Slice
from firstdrift.wording.message import Message

Unpacked = Callable[[str], Path]
READER = MsprobeReader()
OPERATOR = {"input_args": [tensor()], "input_kwargs": {}, "output": [tensor()]}
BACKWARD = {"input": [tensor()], "output": [tensor()]}


def read(path: Path) -> Slice:
    dump = READER.open_dump(path)
    return READER.read_slice(dump, dump.slices[0])


def nodes_of(path: Path) -> dict[str, Node]:
    return {node.name: node for node in read(path).nodes}


def parents_of(path: Path) -> dict[str, str | None]:
    return {node.name: node.parent for node in read(path).nodes}


def test_backward_modules_whose_hook_fired_early_lie_where_their_forward_lies(unpacked: Unpacked) -> None:
    found = parents_of(unpacked("msprobe/llama_stat_L0_perturb") / "golden")
    model = "Module.model.LlamaModel.backward.0"
    layer = "Module.model.layers.3.LlamaDecoderLayer.backward.0"
    attention = "Module.model.layers.3.self_attn.LlamaAttention.backward.0"
    assert found[layer] == model
    assert found[attention] == layer
    assert found["Module.model.layers.3.self_attn.q_proj.Linear.backward.0"] == attention
    assert found["Module.model.embed_tokens.Embedding.backward.0"] == model
    tops = [name for name, parent in found.items() if parent is None]
    assert tops == [
        "Module.model.LlamaModel.forward.0",
        "Module.lm_head.Linear.forward.0",
        "Module.lm_head.Linear.backward.0",
        model,
    ]


def test_backward_operators_lie_where_their_forward_lies(unpacked: Unpacked) -> None:
    nodes = nodes_of(unpacked("msprobe/llama_stat_mix_perturb") / "golden")
    checked = 0
    for name, node in nodes.items():
        forward = nodes.get(name.removesuffix("backward") + "forward") if node.kind == "api" else None
        if name.endswith(".backward") and forward:
            around = forward.parent and forward.parent.replace(".forward.", ".backward.")
            assert node.parent == around
            checked += 1
    assert checked == 224


def test_backward_operators_of_a_module_without_a_backward_pass_lie_in_the_next_one_around_it(
    tmp_path: Path,
) -> None:
    inner, block, model = "Module.a.b.c.C.forward.0", "Module.a.b.B.forward.0", "Module.a.A.forward.0"
    around, operator = model.replace("forward", "backward"), "Functional.linear.0.forward"
    backward = operator.replace("forward", "backward")
    data = {operator: OPERATOR, inner: module(), block: module(), model: module()}
    construct = {operator: inner, inner: block, block: model, model: None, backward: None}
    write_dump(tmp_path, data | {backward: BACKWARD}, construct)
    assert parents_of(tmp_path)[backward] is None
    write_dump(tmp_path, data | {backward: BACKWARD, around: BACKWARD}, construct | {around: None})
    assert parents_of(tmp_path)[backward] == around


def test_what_runs_after_an_in_place_module_in_backward_is_not_inside_it(unpacked: Unpacked) -> None:
    found = parents_of(unpacked("msprobe/zoo_stat_mix") / "golden")
    assert found["Module.w.Weird.backward.0"] is None
    assert found["Tensor.__mul__.1.backward"] is None
    assert found["Functional.relu.0.backward"] == "Module.relu.ReLU.backward.0"


def test_modules_run_again_by_checkpointing_lie_inside_the_backward_that_ran_them(unpacked: Unpacked) -> None:
    found = parents_of(unpacked("msprobe/llama_stat_mix_recompute") / "target")
    ran_them = "Module.model.layers.1.mlp.down_proj.Linear.backward.0"
    again = "Module.model.layers.1.mlp.LlamaMLP.forward.1"
    assert found[again] == ran_them
    assert found["Module.model.layers.1.mlp.gate_proj.Linear.forward.1"] == again
    assert found[ran_them] == "Module.model.layers.1.mlp.LlamaMLP.backward.0"


def test_an_operator_cut_short_by_checkpointing_lies_in_the_module_that_ran_it(unpacked: Unpacked) -> None:
    found = parents_of(unpacked("msprobe/llama_stat_mix_recompute") / "target")
    assert found["Functional.linear.21.forward"] == "Module.model.layers.1.mlp.down_proj.Linear.forward.1"


@pytest.mark.parametrize(
    "frames",
    [
        [
            "File /m.py, line 1, in forward, \n x",
            "File /torch/utils/checkpoint.py, line 9, in recompute_fn, \n fn()",
        ],
        [
            "File /megatron/random.py, line 9, in backward, \n x",
            "File /torch/autograd/function.py, line 1, in apply, \n",
        ],
    ],
    ids=["not-reentrant", "reentrant"],
)
def test_a_module_at_the_top_whose_stack_shows_checkpointing_is_put_into_its_backward(
    tmp_path: Path, frames: list[str]
) -> None:
    first, again = "Module.a.b.B.forward.0", "Module.a.b.B.forward.1"
    data = {
        first: module(),
        "Module.a.A.forward.0": module(),
        again: module(),
        "Module.a.A.backward.0": BACKWARD,
    }
    construct = {first: "Module.a.A.forward.0", "Module.a.A.forward.0": None}
    construct |= {"Module.a.A.backward.0": None, again: None, "Module.a.b.B.backward.1": None}
    write_dump(tmp_path, data, construct, {"0": [[again], frames]})
    found = parents_of(tmp_path)
    assert found[again] == found["Module.a.b.B.backward.1"] == "Module.a.A.backward.0"
    write_json(tmp_path / "stack.json", {"0": [[again], ["File /train.py, line 1, in main, \n m.b(x)"]]})
    assert parents_of(tmp_path)[again] is None


def test_a_damaged_stack_file_is_reported_where_it_is_needed(tmp_path: Path) -> None:
    first, again = "Module.a.b.B.forward.0", "Module.a.b.B.forward.1"
    data = {first: module(), "Module.a.A.forward.0": module(), again: module()}
    write_dump(tmp_path, data, {first: "Module.a.A.forward.0", "Module.a.A.forward.0": None, again: None})
    (tmp_path / "stack.json").write_text("{")
    (problem,) = read(tmp_path).problems
    assert problem.file == "stack.json"
    assert problem.reason.id == "dumps.json.incomplete"


def test_megatron_says_which_micro_step_a_node_belongs_to(unpacked: Unpacked) -> None:
    nodes = nodes_of(unpacked("msprobe/megatron_microstep_stat_mix") / "golden")
    assert "megatron_micro_step_number" not in nodes
    layer = "Module.0.module.module.decoder.layers.1.TransformerLayer"
    assert [nodes[f"{layer}.forward.{call}"].micro_step for call in range(3)] == [0, 1, 2]
    assert nodes[f"{layer}.backward.1"].parent == (
        "Module.0.module.module.decoder.TransformerBlock.backward.1"
    )
    linear = "Module.0.module.module.decoder.layers.1.mlp.linear_fc2.RowParallelLinear"
    gradients = nodes[f"{linear}.parameters_grad.2"]
    assert (gradients.parent, gradients.micro_step) == (f"{linear}.backward.2", 2)


def test_one_micro_step_is_none(unpacked: Unpacked) -> None:
    for archive in ("tp2_vs_tp1", "llama_stat_mix_perturb", "llama_stat_mix_recompute"):
        nodes = nodes_of(unpacked(f"msprobe/{archive}") / "target")
        assert {node.micro_step for node in nodes.values()} == {None}


def test_without_megatron_a_micro_step_begins_with_a_forward_after_a_backward(unpacked: Unpacked) -> None:
    nodes = nodes_of(unpacked("msprobe/llama_stat_mix_microstep") / "golden")
    for name, node in nodes.items():
        if node.kind == "module":
            assert node.micro_step == int(name.rpartition(".")[2])
    assert [nodes[f"Functional.cross_entropy.{call}.backward"].micro_step for call in (0, 1)] == [0, 1]


def test_optimizer_and_gradient_clipping_hold_their_operators(unpacked: Unpacked) -> None:
    nodes = nodes_of(unpacked("msprobe/llama_stat_mix_3steps") / "golden")
    assert nodes["Tensor.mul_.0.forward"].parent == "optimizer"
    assert nodes["optimizer"].parent is None
    assert nodes["clip_grad"].order < nodes["Tensor.mul_.0.forward"].order < nodes["optimizer"].order


def test_without_construct_json_modules_are_nested_by_their_paths(unpacked: Unpacked) -> None:
    with_it = parents_of(unpacked("msprobe/llama_stat_mix_perturb") / "golden")
    without = parents_of(unpacked("msprobe/llama_stat_noextra") / "golden")
    for name, parent in without.items():
        assert parent == (with_it[name] if name.startswith("Module.") else None)


def test_generated_tokens_without_construct_json_keep_to_their_own_call(
    unpacked: Unpacked, tmp_path: Path
) -> None:
    dump = tmp_path / "dump"
    shutil.copytree(unpacked("msprobe/llama_stat_L0_generate") / "golden", dump)
    expected = parents_of(dump)
    (dump / "step0" / "rank0" / "construct.json").unlink()
    assert parents_of(dump) == expected


def test_nodes_of_which_nothing_was_recorded_stand_where_they_ran(unpacked: Unpacked) -> None:
    everything = read(unpacked("msprobe/llama_stat_mix_riskall") / "golden")
    focus = read(unpacked("msprobe/llama_stat_mix_perturb") / "golden")
    assert sum(not node.tensors for node in focus.nodes) > 170
    assert [node.name for node in focus.nodes] == [node.name for node in everything.nodes]


def test_a_module_of_older_releases_stands_after_what_it_contains(unpacked: Unpacked, tmp_path: Path) -> None:
    source = unpacked("msprobe/llama_stat_mix_riskall") / "golden"
    dump = tmp_path / "dump"
    shutil.copytree(source, dump)
    file = dump / "step0" / "rank0" / "dump.json"
    recorded = json.loads(file.read_text())
    construct = json.loads(file.with_name("construct.json").read_text())
    starts = dict.fromkeys([*order_of_starts(construct), *recorded["data"]])
    recorded["data"] = {name: recorded["data"][name] for name in starts if name in recorded["data"]}
    write_json(file, recorded)
    found, expected = read(dump), read(source)
    assert found.order_origin.message.id == "dumps.order.recorded_at_beginning"
    assert [node.name for node in found.nodes] == [node.name for node in expected.nodes]


def order_of_starts(construct: dict[str, Any]) -> list[str]:
    """List forward modules before what they contain, as older releases did; construct.json is nearly that."""
    order: list[str] = []

    def begin(name: str | None) -> None:
        if name is not None and name not in begun:
            begin(construct[name])
            begun.add(name)
            order.append(name)

    begun: set[str] = set()
    for name in construct:
        if "forward" in name:
            begin(name)
    return order


def test_a_parent_that_is_not_listed_itself_becomes_a_node(tmp_path: Path) -> None:
    write_dump(
        tmp_path,
        {"Functional.relu.0.forward": OPERATOR},
        {"Functional.relu.0.forward": "Module.a.A.forward.0"},
    )
    nodes = nodes_of(tmp_path)
    assert nodes["Functional.relu.0.forward"].parent == "Module.a.A.forward.0"
    assert nodes["Module.a.A.forward.0"].tensors == ()


def test_a_circle_is_cut_and_reported(tmp_path: Path) -> None:
    a, b, c = (f"Module.{name}.A.forward.0" for name in "abc")
    write_dump(tmp_path, {a: module()}, {a: b, b: c, c: a})
    found = read(tmp_path)
    assert sum(node.parent is None for node in found.nodes) == 1
    assert found.problems[0].reason.id == "dumps.msprobe.circle"


def test_entries_of_construct_json_that_make_no_sense_are_reported(tmp_path: Path) -> None:
    a, b, c = (f"Module.{name}.A.forward.0" for name in "abc")
    write_dump(tmp_path, {a: module()}, {a: 7, b: [None, 10**400], c: ["x", 0, 1]})
    found = read(tmp_path)
    assert [problem.reason for problem in found.problems] == [
        Message.of("dumps.msprobe.bad_parent", node=name) for name in (a, c)
    ]
    assert len(found.nodes) == 3


NAMES = st.sampled_from(
    [
        f"Module.{path}.M.{way}.{call}"
        for path in ("a", "a.b")
        for way in ("forward", "backward")
        for call in (0, 1)
    ]
    + [f"Torch.{name}.{call}.{way}" for name in "xy" for way in ("forward", "backward") for call in (0, 1)]
    + ["Module.a.M.parameters_grad.0", "Module.a.b.M.parameters_grad.1", "optimizer"]
)


@given(
    st.dictionaries(NAMES, st.none() | NAMES | st.tuples(st.none() | NAMES, st.integers(0, 3)).map(list)),
    st.lists(NAMES, unique=True),
)
def test_any_construct_json_gives_a_tree_in_which_what_is_inside_comes_first(
    recorded: dict[str, Any], data: list[str]
) -> None:
    construct = parse_construct(recorded)
    around = [parent for parent in construct.parents.values() if parent]
    names = {name: parse_name(name) for name in [*construct.parents, *data, *around]}
    stack = dict.fromkeys(names, ("File torch/utils/checkpoint.py, line 1, in recompute_fn, \n",))
    parents, _ = repair_parents(names, construct, data, lambda: stack)
    order = finish_order(parents, last_positions(parents, {name: at for at, name in enumerate(data)}))
    assert sorted(order) == sorted(names)
    at = {name: index for index, name in enumerate(order)}
    assert all(parent is None or at[parent] > at[name] for name, parent in parents.items())
