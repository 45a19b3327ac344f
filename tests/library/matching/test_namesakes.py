"""Folders of files named after modules, as hooks write them, against dumps that recorded modules and calls.

The files hold what the modules of real dumps gave, so that a folder is another form of the same run.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from messages import ids, outline
from msgspec.structs import replace
from safetensors.torch import save_file

from firstdrift.comparison.compare import compare
from firstdrift.comparison.rematch import rematch
from firstdrift.comparison.report import Options, Report
from firstdrift.dumps.detect import open_dump
from firstdrift.matching.manual.edits import Edit, EditKind
from firstdrift.matching.match import match_slices
from firstdrift.matching.plan import MatchingRules, NodeMatch, Origin, SlicePlan
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, OrderOrigin, OrderSource, Slice, SliceListing
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.parallel.slices import read_slice
from firstdrift.verdict.tree import build_rows
from firstdrift.wording.message import Message

Unpacked = Callable[[str], Path]
Values = dict[tuple[str, str], torch.Tensor]
"""What a run saved: path of the module and role, and the first tensor of that role."""

MSPROBE = re.compile(r"Module\.(?P<path>.+)\.\w+\.forward\.0\.(?P<role>input|output)\.0")
MSIT = re.compile(r"root\.(?P<path>.+)/(?P<role>input|output)(?:_0)?")
MODULES = 56
WITH_INPUTS = 52
BAD = "model.layers.2.mlp.down_proj"


def values_of(folder: Path, pattern: re.Pattern[str]) -> Values:
    """Load what modules took and gave in the tensor files of one slice of a dump."""
    found: Values = {}
    for file in sorted(folder.rglob("*.pt*")):
        name = file.relative_to(folder).with_suffix("").as_posix()
        if match := pattern.fullmatch(name):
            found[match["path"], match["role"]] = torch.load(file, weights_only=True)
    return found


def outputs(values: Values) -> Iterator[tuple[str, torch.Tensor]]:
    return ((path, value) for (path, role), value in values.items() if role == "output")


def msprobe_values(dump: Path) -> Values:
    return values_of(next(iter(sorted(dump.rglob("dump_tensor_data")))), MSPROBE)


def save_names(folder: Path, values: Values) -> None:
    """Write `torch.save(output, f"{name}.pt")`, as a forward hook does."""
    for path, value in outputs(values):
        torch.save(value, folder / f"{path}.pt")


def save_roles(folder: Path, values: Values) -> None:
    for (path, role), value in values.items():
        np.save(folder / f"{path}.{role}.0.npy", value.numpy())


def save_folders(folder: Path, values: Values) -> None:
    for (path, role), value in values.items():
        (folder / path).mkdir(exist_ok=True)
        torch.save(value, folder / path / f"{role}_0.pt")


def save_underscores(folder: Path, values: Values) -> None:
    for path, value in outputs(values):
        torch.save(value, folder / f"{path.replace('.', '_')}_output_0.pt")


def save_marked(folder: Path, values: Values) -> None:
    for path, value in outputs(values):
        torch.save(value, folder / f"{path}_out.pt")


def save_calls(folder: Path, values: Values) -> None:
    for path, value in outputs(values):
        torch.save(value, folder / f"{path}_0.pt")


def save_tuples(folder: Path, values: Values) -> None:
    for path, value in outputs(values):
        torch.save((value,), folder / f"{path}.pt")


def save_wrapped(folder: Path, values: Values) -> None:
    (folder / "acts").mkdir()
    for path, value in outputs(values):
        torch.save(value, folder / "acts" / f"module.{path}.pt")


def save_without_model(folder: Path, values: Values) -> None:
    for path, value in outputs(values):
        torch.save(value, folder / f"{path.removeprefix('model.')}.pt")


def save_in_one_file(folder: Path, values: Values) -> None:
    named = {f"{path}.output": value.contiguous() for path, value in outputs(values)}
    save_file(named, folder / "activations.safetensors")


def save_dictionary(folder: Path, values: Values) -> None:
    torch.save(dict(outputs(values)), folder / "activations.pt")


WAYS = [
    save_names,
    save_underscores,
    save_marked,
    save_calls,
    save_tuples,
    save_wrapped,
    save_without_model,
    save_in_one_file,
    save_dictionary,
]
Way = Callable[[Path, Values], None]


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[Way, Values], Path]:
    def write(way: Way, values: Values) -> Path:
        made = tmp_path / f"{way.__name__}{len(list(tmp_path.iterdir()))}"
        made.mkdir()
        way(made, values)
        return made

    return write


def bad_module(report: Report) -> str | None:
    bad = report.findings.first_bad_node
    return None if bad is None else bad.module


def matched(report: Report) -> list[tuple[NodeMatch, int]]:
    """Return the matches of the only slice that hold pairs, and how many pairs each."""
    (result,) = report.slices
    counts = [sum(pair.match == at for pair in result.plan.pairs) for at in range(len(result.plan.matches))]
    return [(match, count) for match, count in zip(result.plan.matches, counts, strict=True) if count]


@pytest.mark.parametrize("way", WAYS)
def test_values_named_after_modules_are_compared_with_what_the_modules_gave(
    unpacked: Unpacked, folder: Callable[[Way, Values], Path], way: Way
) -> None:
    dump = unpacked("msprobe/llama_tensor_mix_perturb")
    for golden, target in (
        (folder(way, msprobe_values(dump / "golden")), dump / "target"),
        (dump / "golden", folder(way, msprobe_values(dump / "target"))),
    ):
        report = compare(golden, target)
        assert (report.counts.pairs, report.counts.incomparable) == (MODULES, 0)
        assert bad_module(report) is not None
        assert (bad_module(report) or "").endswith("layers.2.mlp.down_proj")
        for match, _ in matched(report):
            assert (match.origin, match.score, match.doubtful) == (Origin.EXACT, 1.0, False)
            assert match.reasons[1].id == "matching.reason.only_call"
    same = compare(dump / "golden", folder(way, msprobe_values(dump / "golden")))
    assert (same.counts.pairs, same.counts.passed) == (MODULES, MODULES)


@pytest.mark.parametrize("way", [save_roles, save_folders])
def test_inputs_are_compared_with_inputs(
    unpacked: Unpacked, folder: Callable[[Way, Values], Path], way: Way
) -> None:
    dump = unpacked("msprobe/llama_tensor_mix_perturb")
    for golden, target in (
        (folder(way, msprobe_values(dump / "golden")), dump / "target"),
        (dump / "golden", folder(way, msprobe_values(dump / "target"))),
    ):
        report = compare(golden, target)
        assert report.counts.pairs == MODULES + WITH_INPUTS
        bad = report.findings.first_bad_node
        assert bad is not None
        assert (bad.module, list(map(outline, bad.reasons))) == (BAD, ["equal_inputs number 2"])


def test_what_has_no_namesake_is_left_over(unpacked: Unpacked, folder: Callable[[Way, Values], Path]) -> None:
    dump = unpacked("msprobe/llama_tensor_L0_bf16") / "golden"
    made = folder(save_names, msprobe_values(dump))
    torch.save(torch.ones(7, 11), made / "model.layers.0.gate_of_another_model.pt")
    report = compare(dump, made)
    plan = report.slices[0].plan
    assert report.counts.pairs == MODULES
    assert "model.layers.0.gate_of_another_model" in plan.unmatched_target
    assert "Module.model.LlamaModel.forward.0" in plan.unmatched_golden or any(
        "Module.model.LlamaModel.forward.0" in match.golden for match in plan.matches
    )
    assert all(
        ".forward." not in name or name.startswith("Module.model.LlamaModel")
        for name in plan.unmatched_golden
    )


@pytest.mark.parametrize("side", ["golden", "target"])
def test_fused_projections_are_held_against_their_parts(
    unpacked: Unpacked, folder: Callable[[Way, Values], Path], side: str
) -> None:
    dump = unpacked("msprobe/llama_tensor_L0_bf16")
    values = msprobe_values(dump / side)
    for layer in range(4):
        attention = f"model.layers.{layer}.self_attn"
        parts = [values.pop((f"{attention}.{name}_proj", "output")) for name in "qkv"]
        values[f"{attention}.qkv_proj", "output"] = torch.cat(parts, dim=-1)
    fused = folder(save_names, values)
    report = compare(*((fused, dump / "target") if side == "golden" else (dump / "golden", fused)))
    plan = report.slices[0].plan
    joined = [pair for pair in plan.pairs if pair.is_joined]
    assert len(joined) == 4
    assert report.counts.pairs == report.counts.passed == MODULES - 8
    assert not any("qkv_proj" in name for name in (*plan.unmatched_golden, *plan.unmatched_target))


def test_healthy_runs_of_other_precision_stay_clean(
    unpacked: Unpacked, folder: Callable[[Way, Values], Path]
) -> None:
    dump = unpacked("msprobe/llama_tensor_L0_bf16")
    for golden, target in (
        (folder(save_names, msprobe_values(dump / "golden")), dump / "target"),
        (dump / "golden", folder(save_names, msprobe_values(dump / "target"))),
    ):
        report = compare(golden, target)
        assert (report.counts.pairs, report.counts.passed) == (MODULES, MODULES)
        assert report.findings.first_bad_node is None


def save_tokens(root: Path, dump: Path, *, name: str = "token_{}") -> Path:
    for token in sorted(dump.glob("*/torch_tensors/*/[0-9]*")):
        made = root / name.format(token.name)
        made.mkdir(parents=True)
        save_names(made, values_of(token, MSIT))
    return root


def test_tokens_of_a_healthy_bfloat16_run_stay_clean_by_their_outputs_alone(
    unpacked: Unpacked, tmp_path: Path
) -> None:
    golden, target = unpacked("msit/llama4_golden_fp32"), unpacked("msit/llama4_bf16")
    folders = save_tokens(tmp_path / "golden", golden), save_tokens(tmp_path / "target", target, name="{}")
    for pair in ((golden, folders[1]), (folders[0], target), folders):
        report = compare(*pair)
        assert [result.plan.golden.coordinates.token for result in report.slices] == list(range(8))
        assert (report.counts.pairs, report.counts.passed) == (8 * MODULES, 8 * MODULES)
        assert report.findings.first_bad_node is report.findings.first_bad_token is None


def test_the_first_bad_token_and_node_are_found_by_outputs_alone(unpacked: Unpacked, tmp_path: Path) -> None:
    golden, target = unpacked("msit/llama12_golden_fp32"), unpacked("msit/llama12_perturb_L7_T2")
    folders = save_tokens(tmp_path / "golden", golden), save_tokens(tmp_path / "target", target)
    for pair in ((golden, folders[1]), (folders[0], target)):
        report = compare(*pair)
        assert bad_module(report) == "model.layers.7.mlp"
        assert report.findings.first_bad_token is not None
        assert report.findings.first_bad_token.coordinates.token == 2


def test_one_folder_against_several_tokens_asks_which(unpacked: Unpacked, tmp_path: Path) -> None:
    dump = unpacked("msit/llama4_golden_fp32")
    made = save_tokens(tmp_path / "all", dump) / "token_0"
    report = compare(made, dump)
    assert report.counts.pairs == 0
    (note,) = report.pairing.notes
    assert note.id == "matching.note.ambiguous"
    assert note.arguments["coordinates"] == Message.of("matching.coordinates.token")
    chosen = compare(made, dump, Options(matching=MatchingRules(token=0)))
    assert chosen.counts.passed == MODULES


def test_a_call_tree_of_transformers_is_compared_with_files_of_its_modules(
    unpacked: Unpacked, folder: Callable[[Way, Values], Path]
) -> None:
    dump = unpacked("transformers/hf_debug_tree")
    made = folder(save_names, msprobe_values(dump / "msprobe"))
    for pair in ((dump / "golden", made), (made, dump / "golden")):
        report = compare(*pair)
        # The tree holds the outputs of innermost modules alone.
        assert report.counts.pairs == report.counts.passed > 30
        assert report.findings.first_bad_node is None


def test_files_of_sglang_are_compared_with_files_named_after_modules(tmp_path: Path) -> None:
    random = torch.Generator().manual_seed(3)
    known, other = tmp_path / "sglang", tmp_path / "files"
    known.mkdir()
    other.mkdir()
    for layer in range(4):
        value = torch.randn(5, 16, generator=random)
        name = f"step=0___rank=0___dump_index={layer}___name=non_intrusive__model.layers.{layer}.mlp.output"
        torch.save({"value": value, "meta": {}}, known / f"{name}___layer_id={layer}.pt")
        torch.save(value * (1.5 if layer == 2 else 1.0), other / f"model.layers.{layer}.mlp.pt")
    for pair in ((known, other), (other, known)):
        report = compare(*pair)
        assert (report.counts.pairs, report.counts.passed) == (4, 3)
        assert bad_module(report) == "model.layers.2.mlp"


@pytest.mark.parametrize("side", ["golden", "target"])
def test_what_ran_first_is_taken_from_the_dump_that_recorded_it(side: str) -> None:
    listing = SliceListing(Coordinates(), Path("made"))
    tree = [node("z_first", 0), node("a_second", 0)]
    plain = [node("a_second"), node("z_first")]
    recorded = Slice(listing, tuple(replace(one, order=at) for at, one in enumerate(tree)))
    known = Slice(
        listing,
        tuple(replace(one, order=at) for at, one in enumerate(plain)),
        OrderOrigin(OrderSource.NAMES, Message.of("dumps.order.from_names", orderings=0)),
    )
    pair = (known, recorded) if side == "golden" else (recorded, known)
    rows = build_rows(*pair, match_slices(*pair, MatchingRules()))
    assert [(row.order, row.path, row.type_name) for row in rows] == [
        (0, "z_first", "Linear"),
        (1, "a_second", "Linear"),
    ]
    named = [row.golden if side == "golden" else row.target for row in rows]
    assert named == [("z_first",), ("a_second",)]


def test_weights_of_a_checkpoint_are_compared_with_those_that_a_dump_recorded(
    unpacked: Unpacked, tmp_path: Path
) -> None:
    dump = unpacked("msprobe/llama_tensor_L0_bf16") / "golden"
    known = read_slice(open_dump(dump), open_dump(dump).slices[0])
    weights: dict[str, torch.Tensor] = {}
    for node in known.nodes:
        for record in node.tensors:
            if record.role is Role.PARAMETER and record.location is not None:
                weights[f"{node.path}.{record.key}"] = torch.load(record.location.file, weights_only=True)
    assert len(weights) > 30
    save_file(weights, tmp_path / "model.safetensors")
    for pair in ((dump, tmp_path), (tmp_path, dump)):
        report = compare(*pair)
        assert (report.counts.pairs, report.counts.passed) == (len(weights), len(weights))
        assert {pair.target.role for pair in report.slices[0].plan.pairs} == {Role.PARAMETER}


def node(
    name: str, call: int | None = None, *, parent: str | None = None, shape: tuple[int, ...] = (2, 8)
) -> Node:
    """Make a node known by name alone or, with the number of its call, one of a module."""
    tensors = (TensorRecord(Role.OUTPUT, "0", "float32", shape),)
    if call is None:
        return Node(name, name, NodeKind.MODULE, "", Direction.NONE, 0, 0, parent, tensors)
    named = f"Module.{name}.Linear.forward.{call}"
    return Node(named, name, NodeKind.MODULE, "Linear", Direction.FORWARD, call, 0, parent, tensors)


def plan_of(plain: list[Node], tree: list[Node]) -> SlicePlan:
    listing = SliceListing(Coordinates(), Path("made"))
    return match_slices(Slice(listing, tuple(plain)), Slice(listing, tuple(tree)), MatchingRules())


def pairs_of(plan: SlicePlan) -> dict[str, str]:
    return {match.golden[0]: match.target[0] for match in plan.matches}


def test_a_number_at_the_end_is_that_of_a_call_where_there_is_such_a_call() -> None:
    calls = [node("layers.0.mlp", call) for call in range(3)]
    plain = [node("layers.0.mlp_0"), node("layers.0.mlp.call_2"), node("layers.0.mlp_7")]
    plan = plan_of(plain, calls)
    assert pairs_of(plan) == {
        "layers.0.mlp_0": "Module.layers.0.mlp.Linear.forward.0",
        "layers.0.mlp.call_2": "Module.layers.0.mlp.Linear.forward.2",
    }
    assert plan.unmatched_golden == ("layers.0.mlp_7",)


def test_of_several_calls_the_first_is_taken_and_that_is_said() -> None:
    plan = plan_of([node("layers.0.mlp")], [node("layers.0.mlp", call) for call in range(3)])
    assert pairs_of(plan) == {"layers.0.mlp": "Module.layers.0.mlp.Linear.forward.0"}
    assert ids(plan.matches[0].reasons) == ["reason.same_name", "reason.call"]
    assert plan.matches[0].reasons[1].arguments == {"number": 0, "calls": 3}
    assert [note.arguments["nodes"] for note in plan.notes] == [1]


def test_a_layer_is_never_taken_for_another_layer() -> None:
    plan = plan_of(
        [node(f"layers.5.{name}") for name in ("q", "k", "v")],
        [node(f"model.layers.6.{name}", 0) for name in ("q", "k", "v")],
    )
    assert not [match for match in plan.matches if not match.doubtful and match.origin is Origin.EXACT]


def test_a_beginning_that_fits_two_places_fits_none() -> None:
    tree = [node(f"{side}.layers.0.{name}", 0) for side in ("encoder", "decoder") for name in ("fc1", "fc2")]
    plan = plan_of([node("layers.0.fc1"), node("layers.0.fc2")], tree)
    assert not [match for match in plan.matches if match.origin is Origin.EXACT]


def test_a_name_as_it_stands_comes_before_one_that_is_read_into() -> None:
    plan = plan_of([node("a.b_0"), node("a.b")], [node("a.b", 0)])
    assert pairs_of(plan) == {"a.b": "Module.a.b.Linear.forward.0"}
    assert plan.unmatched_golden == ("a.b_0",)


@pytest.mark.parametrize("name", ["mlp", "layers.0.mlp"])
def test_places_of_a_tuple_are_no_calls(tmp_path: Path, name: str) -> None:
    torch.save((torch.ones(2, 8), torch.zeros(2, 8)), tmp_path / f"{name}.pt")
    torch.save(torch.ones(2, 8), tmp_path / "norm.pt")
    dump = open_dump(tmp_path)
    plain = read_slice(dump, dump.slices[0])
    tree = [node(name, 0), node(name, 1), node("norm", 0)]
    plan = match_slices(plain, Slice(plain.listing, tuple(tree)), MatchingRules())
    paired = {(pair.golden_node, pair.golden.label, pair.target_node) for pair in plan.pairs}
    first = "mlp.0" if name == "mlp" else name
    assert paired == {
        (first, "output.0", f"Module.{name}.Linear.forward.0"),
        ("norm", "output.0", "Module.norm.Linear.forward.0"),
    }
    assert plan.unmatched_target == (f"Module.{name}.Linear.forward.1",)


def test_what_a_person_says_comes_first(unpacked: Unpacked, folder: Callable[[Way, Values], Path]) -> None:
    dump = unpacked("msprobe/llama_tensor_L0_bf16") / "golden"
    report = compare(dump, folder(save_names, msprobe_values(dump)))
    golden, name = "Module.model.layers.0.mlp.up_proj.Linear.forward.0", "model.layers.0.mlp.up_proj"
    apart = rematch(report, [Edit(EditKind.UNMATCH, (golden,), (name,))])
    assert apart.counts.pairs == MODULES - 1
    assert name in apart.slices[0].plan.unmatched_target
    crossed = rematch(report, [Edit(EditKind.MATCH, (golden,), ("model.layers.0.mlp.gate_proj",))])
    assert crossed.counts.pairs == MODULES - 1
