"""What is promised of matching, on dumps that msprobe and msit wrote."""

from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from firstdrift.dumps.detect import open_dump
from firstdrift.matching.match import match_slices
from firstdrift.matching.plan import MatchingRules, Origin, SlicePlan
from firstdrift.matching.slices import pair_slices
from firstdrift.matching.structure.statistics_similarity import value_distance
from firstdrift.matching.tensors import shapes_differ
from firstdrift.model.node import Direction, NodeKind
from firstdrift.model.slice import Slice
from firstdrift.model.tensor import Role
from firstdrift.parallel.slices import read_slice

Unpack = Callable[[str], Path]


def slices(golden: Path, target: Path) -> list[tuple[Slice, Slice]]:
    dumps = open_dump(golden), open_dump(target)
    pairing = pair_slices(*dumps, MatchingRules())
    return [(read_slice(dumps[0], one), read_slice(dumps[1], other)) for one, other in pairing.pairs]


def first_pair(folder: Path, target: str = "target") -> tuple[Slice, Slice]:
    return slices(folder / "golden", folder / target)[0]


def matched(golden: Slice, target: Slice) -> SlicePlan:
    return match_slices(golden, target, MatchingRules())


def undo_renaming(golden: Slice, target: Slice) -> dict[str, str]:
    """Return the true golden partner of each target node of the renamed cases.

    Modules were renamed; the two operators in the faulty `down_proj` that are no linear are new, so that the
    other operators keep their order by name.
    """
    true = {
        node.name: node.name.replace(".feed_forward.", ".mlp.")
        for node in target.nodes
        if node.kind is NodeKind.MODULE
    }
    for direction in (Direction.FORWARD, Direction.BACKWARD):
        calls: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        for node in golden.nodes:
            if node.kind is NodeKind.API and node.direction is direction:
                calls[node.path].append((node.call, node.name))
        remaining = {path: iter(sorted(names)) for path, names in calls.items()}
        operators = [
            node for node in target.nodes if node.kind is NodeKind.API and node.direction is direction
        ]
        for node in sorted(operators, key=lambda node: node.call):
            new = ".down_proj." in (node.parent or "") and node.path != "Functional.linear"
            if not new:
                true[node.name] = next(remaining[node.path])[1]
    return true


@pytest.mark.parametrize(("name", "renamed"), [("d4_renamed", 26), ("d32_renamed", 52)])
def test_renamed_modules_and_inserted_operators_leave_only_the_new_ones_over(
    unpacked: Unpack, name: str, renamed: int
) -> None:
    golden, target = first_pair(unpacked(f"msprobe/{name}"))
    plan = matched(golden, target)
    true = undo_renaming(golden, target)
    assert {match.target[0]: match.golden[0] for match in plan.matches} == true
    assert sum(".feed_forward." in match.target[0] for match in plan.matches) == renamed
    assert not any(match.doubtful for match in plan.matches)
    assert plan.unmatched_golden == ()
    assert len(plan.unmatched_target) == 4
    assert len(plan.pairs) == sum(len(node.tensors) for node in golden.nodes)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("d4_renamed", "target_scaled_weight"),
        ("llama_stat_mix_identical", "target"),
        ("llama_stat_mix_perturb", "target"),
        ("llama_stat_mix_nan", "target"),
        ("llama_stat_mix_3steps", "target"),
        ("llama_stat_mix_microstep", "target"),
        ("llama_stat_L0_generate", "target"),
        ("llama_stat_L1_perturb", "target"),
        ("llama_stat_noextra", "target"),
        ("llama_tensor_L0_bf16", "target"),
        ("llama_xor_mix_perturb", "target"),
        ("megatron_microstep_stat_mix", "target"),
        ("mixtral_stat_mix_perturb", "target"),
    ],
)
def test_runs_of_one_model_are_matched_by_name_whatever_went_wrong(
    unpacked: Unpack, name: str, target: str
) -> None:
    for pair in slices(unpacked(f"msprobe/{name}") / "golden", unpacked(f"msprobe/{name}") / target):
        plan = matched(*pair)
        assert all(match.golden == match.target and match.origin is Origin.EXACT for match in plan.matches)
        assert plan.unmatched_golden == plan.unmatched_target == ()
        assert plan.unmatched_golden_tensors == plan.unmatched_target_tensors == ()


def test_another_attention_kernel_is_matched_where_it_computes_the_same(unpacked: Unpack) -> None:
    golden, target = first_pair(unpacked("msprobe/llama_stat_mix_attn"))
    plan = matched(golden, target)
    kinds = {node.name: node.kind for node in (*golden.nodes, *target.nodes)}
    assert all(kinds[name] is NodeKind.API for name in (*plan.unmatched_golden, *plan.unmatched_target))
    modules = {match.target: match for match in plan.matches if kinds[match.target[0]] is NodeKind.MODULE}
    assert all(match.origin is Origin.EXACT for match in modules.values())
    distances = [value_distance(pair.golden, pair.target) for pair in plan.pairs]
    assert max(distance for distance in distances if distance is not None) < 1e-5
    partners = {match.target[0].split(".")[1]: match.golden[0] for match in plan.matches}
    assert partners["scaled_dot_product_attention"].startswith("Torch.matmul.")


def test_another_attention_kernel_is_not_guessed_at_without_values(unpacked: Unpack) -> None:
    golden, target = first_pair(unpacked("msprobe/llama_structure_mix_attn"))
    plan = matched(golden, target)
    assert not any("scaled_dot_product" in match.target[0] for match in plan.matches)
    known = {match.target[0]: match.golden[0] for match in plan.matches if not match.doubtful}
    by_place = matched(*first_pair(unpacked("msprobe/llama_stat_mix_attn")))
    true = {match.target[0]: match.golden[0] for match in by_place.matches}
    assert {name: true[name] for name in known} == known


def test_recomputed_nodes_are_all_that_is_left_over(unpacked: Unpack) -> None:
    golden, target = first_pair(unpacked("msprobe/llama_stat_mix_recompute"))
    plan = matched(golden, target)
    assert plan.unmatched_golden == ()
    assert all(match.origin is Origin.EXACT for match in plan.matches)
    parents = {node.name: node.parent for node in target.nodes}
    for name in plan.unmatched_target:
        above: str | None = name
        while above is not None and ".backward." not in above:
            above = parents[above]
        assert above is not None


@pytest.mark.parametrize("name", ["zoo_stat_mix", "zoo_tensor_mix", "zoo_xor_mix"])
def test_an_operator_that_only_one_run_called_is_left_over(unpacked: Unpack, name: str) -> None:
    plan = matched(*first_pair(unpacked(f"msprobe/{name}")))
    assert plan.unmatched_golden == ("Torch.sigmoid.0.forward",)
    assert plan.unmatched_target == ("Torch.tanh.0.forward",)
    assert Counter(pair.incomparable for pair in plan.pairs if pair.incomparable) == {
        shapes_differ((2,), (3,)): 2
    }


def test_frameworks_with_other_names_are_matched_only_where_they_compute_the_same(unpacked: Unpack) -> None:
    plan = matched(*first_pair(unpacked("msprobe/qwen2_layermap_stat_L0_clean")))
    partners = {match.target[0]: match.golden[0] for match in plan.matches if not match.doubtful}
    layers = "Module.0.module.module.decoder.layers"
    for at in range(4):
        known = f"Module.module.model.layers.{at}"
        assert partners[f"{layers}.{at}.self_attention.linear_proj.RowParallelLinear.forward.0"] == (
            f"{known}.self_attn.o_proj.Linear.forward.0"
        )
        assert partners[f"{layers}.{at}.mlp.linear_fc2.RowParallelLinear.forward.0"] == (
            f"{known}.mlp.down_proj.Linear.forward.0"
        )
    for pair in plan.pairs:
        distance = value_distance(pair.golden, pair.target)
        assert distance is None or distance < 1e-4 or pair.golden.role is Role.INPUT


@pytest.mark.parametrize("name", ["qwen2_layermap_stat_mix", "qwen25vl_layermap_stat_mix", "tp2_vs_tp1"])
def test_dumps_that_hardly_correspond_lose_no_node(unpacked: Unpack, name: str) -> None:
    golden, target = first_pair(unpacked(f"msprobe/{name}"))
    for first, second in ((golden, target), (target, golden)):
        plan = matched(first, second)
        names = [name for match in plan.matches for name in match.golden]
        assert sorted((*names, *plan.unmatched_golden)) == sorted(node.name for node in first.nodes)
        names = [name for match in plan.matches for name in match.target]
        assert sorted((*names, *plan.unmatched_target)) == sorted(node.name for node in second.nodes)


@pytest.mark.parametrize("target", ["llama4_sdpa", "llama4_perturb_L2_T3"])
def test_every_token_of_msit_dumps_is_matched_by_path(unpacked: Unpack, target: str) -> None:
    pairs = slices(unpacked("msit/llama4_golden_fp32"), unpacked(f"msit/{target}"))
    assert [one.coordinates.token for one, _ in pairs] == list(range(8))
    for golden, other in pairs:
        plan = matched(golden, other)
        assert all(match.golden == match.target and match.origin is Origin.EXACT for match in plan.matches)
        assert plan.unmatched_golden == plan.unmatched_target == ()


def test_files_of_plain_folders_are_matched_by_name(tmp_path: Path) -> None:
    for side, names in (("golden", ["a.b.out", "a.c.out", "old.out"]), ("target", ["a.b.out", "a.c.out"])):
        (tmp_path / side).mkdir()
        for at, name in enumerate(names):
            np.save(tmp_path / side / f"{name}.npy", np.full((2, 3 + at), at, np.float32))
    golden, target = slices(tmp_path / "golden", tmp_path / "target")[0]
    plan = matched(golden, target)
    assert all(match.origin is Origin.EXACT for match in plan.matches)
    assert plan.unmatched_target == ()
    assert len(plan.pairs) == 2
    assert [name for name in plan.unmatched_golden if "old" in name]
