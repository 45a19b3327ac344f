"""Weights of experts in one tensor are held against those of each expert, in checkpoints and dumps."""

from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from time import process_time

import pytest
import torch
from library.dumps.msprobe_samples import tensor, write_dump
from messages import ids
from safetensors.torch import save_file
from torch import Tensor

from firstdrift import Report, compare
from firstdrift.matching.fused.stacked_experts import pair_stacks
from firstdrift.matching.plan import Joining, TensorPair, UnmatchedTensor
from firstdrift.matching.tensors import TensorPairing
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.tensor import Role, TensorRecord

EXPERTS, HIDDEN, INNER, LAYERS = 4, 16, 12, 2
Weights = Mapping[str, Tensor]


def one_by_one(names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(0)
    found: dict[str, Tensor] = {}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}.mlp"
        found[f"{at}.gate.weight"] = torch.randn(EXPERTS, HIDDEN, generator=random)
        for name, shape in zip(names, [(INNER, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER)], strict=True):
            for expert in range(EXPERTS):
                found[f"{at}.experts.{expert}.{name}.weight"] = torch.randn(*shape, generator=random)
    return found


def _stacked(weights: Weights, at: str, name: str) -> Tensor:
    return torch.stack([weights[f"{at}.experts.{expert}.{name}.weight"] for expert in range(EXPERTS)])


def _rest(weights: Weights) -> dict[str, Tensor]:
    return {name: weight for name, weight in weights.items() if ".experts." not in name}


def stacked(weights: Weights, *, turns: bool = False, transposed: bool = False) -> dict[str, Tensor]:
    """Stack gate and up, one after the other or row by row in turn; transposed if asked for."""
    found = _rest(weights)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}.mlp"
        gate, up, down = (_stacked(weights, at, name) for name in ("gate_proj", "up_proj", "down_proj"))
        both = torch.stack([gate, up], 2).flatten(1, 2) if turns else torch.cat([gate, up], 1)
        pair = [one.transpose(1, 2).contiguous() if transposed else one for one in (both, down)]
        found[f"{at}.experts.gate_up_proj"], found[f"{at}.experts.down_proj"] = pair
    return found


def stacked_apart(weights: Weights) -> dict[str, Tensor]:
    found = _rest(weights)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}.mlp"
        for name in ("gate_proj", "up_proj", "down_proj"):
            found[f"{at}.experts.{name}.weight"] = _stacked(weights, at, name)
    return found


FORMS: dict[str, Callable[[Weights], Weights]] = {
    "one by one": dict,
    "stacked": stacked,
    "transposed": lambda weights: stacked(weights, transposed=True),
    "in turn and transposed": lambda weights: stacked(weights, turns=True, transposed=True),
    "apart": stacked_apart,
}


def save(root: Path, weights: Weights) -> Path:
    root.mkdir(parents=True)
    save_file({name: weight.contiguous() for name, weight in weights.items()}, root / "model.safetensors")
    return root


def stacks(report: Report) -> list[TensorPair]:
    return [pair for pair in report.slices[0].plan.pairs if pair.joining is Joining.STACKED]


# Two of one shape are compared as they are.
_OF_ONE_SHAPE = {"transposed", "in turn and transposed"}


@pytest.mark.parametrize(
    ("golden", "target"), [both for both in product(FORMS, repeat=2) if set(both) != _OF_ONE_SHAPE]
)
def test_equal_weights_agree_however_they_are_stacked(tmp_path: Path, golden: str, target: str) -> None:
    weights = one_by_one()
    report = compare(
        save(tmp_path / "golden", FORMS[golden](weights)), save(tmp_path / "target", FORMS[target](weights))
    )
    assert report.findings.first_bad_node is None
    assert report.counts.passed == report.counts.pairs > LAYERS
    plan = report.slices[0].plan
    assert (plan.unmatched_golden, plan.unmatched_target) == ((), ())
    assert (plan.unmatched_golden_tensors, plan.unmatched_target_tensors) == ((), ())
    sizes = [measured.errors.size for measured in report.slices[0].measurements if measured.errors]
    assert golden != "one by one" or target == golden or max(sizes) >= EXPERTS * INNER * HIDDEN


@pytest.mark.parametrize("form", [name for name in FORMS if name != "one by one"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["up_proj", "down_proj"])
def test_the_expert_whose_weight_is_off_is_named(tmp_path: Path, name: str, form: str, reverse: bool) -> None:
    weights = one_by_one()
    wrong = f"model.layers.1.mlp.experts.2.{name}.weight"
    dumps = (
        save(tmp_path / "one", weights),
        save(tmp_path / "stack", FORMS[form]({**weights, wrong: weights[wrong] * 1.5})),
    )
    bad = compare(*(dumps[::-1] if reverse else dumps)).findings.first_bad_node
    assert bad is not None
    assert (bad.target if reverse else bad.golden) == wrong.removesuffix(".weight")


def test_the_pair_says_that_experts_were_stacked_and_how(tmp_path: Path) -> None:
    weights = one_by_one()
    report = compare(
        save(tmp_path / "one", weights),
        save(tmp_path / "stack", stacked(weights, turns=True, transposed=True)),
    )
    pair = stacks(report)[0]
    assert ids(pair.transform) == ["transform.stacked_side_by_side", "transform.arranged_by_values"]
    assert pair.transform[0].arguments == {"experts": 4, "names": ("gate_proj", "up_proj")}
    assert pair.golden.shape == pair.target.shape == (EXPERTS, HIDDEN, 2 * INNER)
    assert pair.part_nodes[:2] == (
        "model.layers.0.mlp.experts.0.gate_proj",
        "model.layers.0.mlp.experts.1.gate_proj",
    )
    reasons = {measured.reason.id for measured in report.slices[0].measurements if measured.reason}
    assert "metrics.transposed_in_order" in reasons


def test_names_of_mixtral_in_another_list_are_known(tmp_path: Path) -> None:
    weights = one_by_one(("w1", "w3", "w2"))
    named = {name.replace(".mlp.", ".block_sparse_moe."): weight for name, weight in weights.items()}
    renamed = {
        name.replace("w1", "gate_proj").replace("w3", "up_proj").replace("w2", "down_proj"): weight
        for name, weight in weights.items()
    }
    report = compare(save(tmp_path / "one", named), save(tmp_path / "stack", stacked(renamed)))
    assert len(stacks(report)) == 2 * LAYERS
    assert report.findings.first_bad_node is None


@pytest.mark.parametrize("missing", ["an expert", "a shape"])
def test_what_does_not_make_up_the_stack_is_left_over(tmp_path: Path, missing: str) -> None:
    weights = one_by_one()
    parts = dict(weights)
    for name in weights:
        if ".experts.3." in name and missing == "an expert":
            del parts[name]
        elif ".experts." in name and missing == "a shape":
            parts[name] = weights[name][:, :-1]
    report = compare(save(tmp_path / "one", parts), save(tmp_path / "stack", stacked(weights)))
    assert not stacks(report)
    assert len(report.slices[0].plan.unmatched_target) == 2 * LAYERS


def test_biases_are_stacked_too(tmp_path: Path) -> None:
    random = torch.Generator().manual_seed(1)
    weights = one_by_one()
    biases = {
        f"model.layers.0.mlp.experts.{expert}.{name}.bias": torch.randn(INNER, generator=random)
        for expert in range(EXPERTS)
        for name in ("gate_proj", "up_proj")
    }
    gate, up = (
        torch.stack([biases[f"model.layers.0.mlp.experts.{expert}.{name}.bias"] for expert in range(EXPERTS)])
        for name in ("gate_proj", "up_proj")
    )
    whole = {**stacked(weights), "model.layers.0.mlp.experts.gate_up_proj_bias": torch.cat([gate, up], 1)}
    report = compare(save(tmp_path / "one", {**weights, **biases}), save(tmp_path / "stack", whole))
    assert len(stacks(report)) == 2 * LAYERS + 1
    assert report.counts.passed == report.counts.pairs
    assert report.counts.unmatched_golden_nodes == report.counts.unmatched_golden_tensors == 0


def test_statistics_of_parameters_in_dumps_are_held_against_each_other(tmp_path: Path) -> None:
    weights = one_by_one()

    def dumped(root: Path, forms: Weights) -> Path:
        data: dict[str, object] = {}
        for name, weight in forms.items():
            path, _, key = name.rpartition(".")
            kind = "Experts" if path.endswith("experts") else "Linear"
            call = data.setdefault(f"Module.{path}.{kind}.forward.0", {"parameters": {}})
            assert isinstance(call, dict)
            call["parameters"][key] = {
                **tensor(shape=list(weight.shape)),
                "Max": weight.max().item(),
                "Min": weight.min().item(),
                "Mean": weight.mean().item(),
                "Norm": weight.norm().item(),
            }
        write_dump(root / "step0" / "rank0", data, dict.fromkeys(data))
        return root

    golden = dumped(tmp_path / "golden", weights)
    report = compare(golden, dumped(tmp_path / "target", stacked(weights)))
    assert len(stacks(report)) == 2 * LAYERS
    assert report.findings.first_bad_node is None
    assert report.counts.unmatched_golden_nodes == 0
    wrong = "model.layers.0.mlp.experts.1.down_proj.weight"
    other = dumped(tmp_path / "other", stacked({**weights, wrong: weights[wrong] * 3}))
    bad = compare(golden, other).findings.first_bad_node
    assert bad is not None
    assert bad.target == "Module.model.layers.0.mlp.experts.Experts.forward.0"
    assert bad.tensor == "parameter.down_proj"


def _weight(path: str, shape: tuple[int, ...]) -> Node:
    record = TensorRecord(Role.PARAMETER, "weight", "float32", shape)
    return Node(path, path, NodeKind.MODULE, "", Direction.NONE, 0, 0, None, (record,))


def test_stacks_of_many_layers_take_no_time() -> None:
    layers, names = range(600), ("gate_proj", "up_proj", "down_proj")
    places = [f"model.layers.{layer}.mlp.experts" for layer in layers]
    parts = [
        _weight(f"{at}.{number}.{name}", (12, 16)) for at, number, name in product(places, range(8), names)
    ]
    wholes = [_weight(f"{at}.{name}", (8, 12, 16)) for at, name in product(places, names)]
    tensors = TensorPairing()
    tensors.unmatched_golden = [UnmatchedTensor(0, node.name, node.tensors[0]) for node in parts]
    started = process_time()
    pair_stacks(parts, wholes, [], tensors)
    assert process_time() - started < 2.0
    assert len(tensors.pairs) == len(wholes)
    assert not tensors.unmatched_golden
