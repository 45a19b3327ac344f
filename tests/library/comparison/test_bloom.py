"""What msit expects of a layer of Bloom, of torch against ATB, is compared; what it pairs wrongly is named.

msit has both topologies in its tests (`Bloom7BFlashAttentionModel.json`, one layer; `model_tree.json`, the
third layer in transformers), without values. Its own test asserts no more than that a table is written; what
is expected of which operation follows from its table of operators. The norms outside of layers it knows by
their numbers in one model (35 and 66); test_across_frameworks.py has a Bloom with these, told by their order.
Here the same operations are run and dumped, with values:

- ATB adds a bias by an operation of its own, and what that gives is what a linear module of torch gives;
- torch adds the residual inside of attention and of the MLP, ATB beside them;
- query, key and value of each head lie together, and ATB splits them.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from library.comparison.made_experts import Graphs, tree
from library.dumps.atb_samples import write
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear

from firstdrift import Report, compare
from firstdrift.comparison.exit_status import exit_status

HIDDEN, HEADS, TOKENS = 32, 4, 6
WIDTH = HIDDEN // HEADS
SHAPES = {
    "self_attention.query_key_value": (3 * HIDDEN, HIDDEN),
    "self_attention.dense": (HIDDEN, HIDDEN),
    "mlp.dense_h_to_4h": (4 * HIDDEN, HIDDEN),
    "mlp.dense_4h_to_h": (HIDDEN, 4 * HIDDEN),
}
LAYER, OPERATION = "root.transformer.h.2", "0_BloomLayer"

OF_MSIT = {
    "": "",
    ".input_layernorm": "/0_LayerNormOperation",
    ".self_attention.query_key_value": "/1_LinearOperation",
    ".self_attention.dense": "/4_ParallelLinearBaseV2/1_ElewiseOperation",
    ".post_attention_layernorm": "/6_LayerNormOperation",
    ".mlp.dense_h_to_4h": "/7_MlpGateLayerV2/0_ParallelLinearBaseV2/1_ElewiseOperation",
    ".mlp.dense_4h_to_h": "/7_MlpGateLayerV2/2_ParallelLinearBaseV2/1_ElewiseOperation",
}
"""What msit compares of a layer: layers, norms in order, linear modules with what adds their bias."""

WRONG_IN_MSIT = {
    (".mlp", "/7_MlpGateLayerV2"),  # by their classes; torch has added the residual
    (".mlp.dense_4h_to_h", ""),  # the last in each tree
    (".mlp.dense_4h_to_h", "/10_ElewiseOperation"),
}
"""What msit compares as well, though they give other things."""

MISSED_BY_MSIT = {
    (".mlp.gelu_impl", "/7_MlpGateLayerV2/1_ActivationOperation"),
    (".self_attention.dense", "/4_ParallelLinearBaseV2"),
    (".mlp.dense_h_to_4h", "/7_MlpGateLayerV2/0_ParallelLinearBaseV2"),
    (".mlp.dense_4h_to_h", "/7_MlpGateLayerV2/2_ParallelLinearBaseV2"),
    ("", "/10_ElewiseOperation"),
}
"""What is compared here beside that."""


class Layer:
    """A layer of Bloom that ran; what its modules and operations gave, by name."""

    def __init__(self, wrong: Mapping[str, float]) -> None:
        self.made: dict[str, Tensor] = {}
        self._random = torch.Generator().manual_seed(5)
        given = self._draw(1, TOKENS, HIDDEN)
        normed = self._norm("input_layernorm", given)
        fused = self._linear("self_attention.query_key_value", normed, wrong)
        core = self.made["core"] = self._attend(fused)
        self.made["middle"] = given + self._linear("self_attention.dense", core, wrong)
        inner = self._linear(
            "mlp.dense_h_to_4h", self._norm("post_attention_layernorm", self.made["middle"]), wrong
        )
        self.made["mlp.gelu_impl"] = gelu(inner, approximate="tanh") * wrong.get("mlp.gelu_impl", 1.0)
        self.made[""] = self.made["middle"] + self._linear(
            "mlp.dense_4h_to_h", self.made["mlp.gelu_impl"], wrong
        )

    def _draw(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._random)

    def _norm(self, name: str, given: Tensor) -> Tensor:
        self.made[name] = layer_norm(given, (HIDDEN,), 1 + 0.1 * self._draw(HIDDEN), 0.1 * self._draw(HIDDEN))
        return self.made[name]

    def _linear(self, name: str, given: Tensor, wrong: Mapping[str, float]) -> Tensor:
        weight, bias = (
            self._draw(*SHAPES[name]) / math.sqrt(SHAPES[name][1]),
            0.3 * self._draw(SHAPES[name][0]),
        )
        self.made[f"{name} without bias"] = linear(given, weight) * wrong.get(name, 1.0)
        self.made[name] = self.made[f"{name} without bias"] + bias
        return self.made[name]

    def _attend(self, fused: Tensor) -> Tensor:
        parts = fused.view(1, TOKENS, HEADS, 3 * WIDTH).split(WIDTH, -1)
        self.made |= {f"part {at}": part.contiguous() for at, part in enumerate(parts)}
        query, key, value = (part.transpose(1, 2) for part in parts)
        slopes = 2.0 ** (-8.0 / HEADS * torch.arange(1, HEADS + 1))
        places = slopes[:, None, None] * torch.arange(TOKENS)
        hidden = torch.full((TOKENS, TOKENS), -math.inf).triu(1)
        scores = (query @ key.transpose(2, 3) / math.sqrt(WIDTH) + places + hidden).softmax(-1)
        return (scores @ value).transpose(1, 2).reshape(1, TOKENS, HIDDEN)


def write_torch(root: Path, made: Mapping[str, Tensor]) -> Path:
    """Write a layer as torch has it: a residual is part of what attention and MLP give."""
    folder = root / "msit_dump_20250101_000000/torch_tensors/1111_npu0"
    given = {**made, "self_attention": made["middle"], "mlp": made[""]}
    classes = {"self_attention": "BloomAttention", "mlp": "BloomMLP", "mlp.gelu_impl": "BloomGelu"}
    classes |= dict.fromkeys(SHAPES, "Linear")
    classes |= dict.fromkeys(("input_layernorm", "post_attention_layernorm"), "LayerNorm")
    for name in ("", *classes):
        file = folder / "0" / f"{LAYER}.{name}".rstrip(".") / "output.pth"
        file.parent.mkdir(parents=True)
        torch.save(given[name].clone(), file)

    def module(name: str, *inside: str) -> dict[str, Any]:
        return tree(f"{LAYER}.{name}", classes[name], [module(f"{name}.{one}") for one in inside])

    children = [
        module("input_layernorm"),
        module("self_attention", "query_key_value", "dense"),
        module("post_attention_layernorm"),
        module("mlp", "dense_h_to_4h", "gelu_impl", "dense_4h_to_h"),
    ]
    write(folder / "model_tree.json", json.dumps(tree(LAYER, "BloomLayer", children)))
    return root


def write_atb(root: Path, made: Mapping[str, Tensor]) -> Path:
    """Write a layer as ATB runs it."""
    dump = root / "msit_dump_20250101_000000"
    to = Graphs(dump / "tensors/0_42/0")

    def product(name: str) -> None:
        to.begin("ParallelLinearBaseV2")
        to.operation("LinearOperation", made[f"{name} without bias"], hasBias=0)
        to.operation("ElewiseOperation", made[name], elewiseType=8)
        to.end(made[name])

    to.begin("BloomLayer")
    to.operation("LayerNormOperation", made["input_layernorm"])
    to.operation("LinearOperation", made["self_attention.query_key_value"], hasBias=1)
    to.operation("SplitOperation", *(made[f"part {at}"] for at in range(3)), splitDim=3, splitNum=3)
    to.operation("SelfAttentionOperation", made["core"], headNum=HEADS)
    product("self_attention.dense")
    to.operation("ElewiseOperation", made["middle"], elewiseType=8)
    to.operation("LayerNormOperation", made["post_attention_layernorm"])
    to.begin("MlpGateLayerV2")
    product("mlp.dense_h_to_4h")
    to.operation("ActivationOperation", made["mlp.gelu_impl"], activationType=2)
    product("mlp.dense_4h_to_h")
    to.end(made["mlp.dense_4h_to_h"])
    for kind in (8, 2, 2):
        to.operation("ElewiseOperation", made[""], elewiseType=kind)
    to.end(made[""])
    write(
        dump / "model/42/Bloom7BFlashAttentionModel.json",
        json.dumps({"modelName": "Bloom", "nodes": to.nodes}),
    )
    return root


def compared(folder: Path, wrong: Mapping[str, float]) -> Report:
    """Compare a layer in torch with one in ATB in which some products are wrong by a factor."""
    golden = write_torch(folder / "golden", Layer({}).made)
    return compare(golden, write_atb(folder / "target", Layer(wrong).made))


def test_what_msit_expects_of_a_layer_of_bloom_is_compared(tmp_path: Path) -> None:
    report = compared(tmp_path, {})
    held = {
        (pair.golden_node.removeprefix(LAYER), pair.target_node.removeprefix(OPERATION))
        for pair in report.slices[0].plan.pairs
        if pair.golden.label == pair.target.label == "output.0" and pair.incomparable is None
    }
    assert held == set(OF_MSIT.items()) | MISSED_BY_MSIT
    assert held.isdisjoint(WRONG_IN_MSIT)
    assert exit_status(report) == 0
    coverage = report.findings.coverage
    assert coverage is not None
    assert coverage.compared_outputs == coverage.outputs == 1


@pytest.mark.parametrize("name", [*SHAPES, "mlp.gelu_impl"])
def test_the_operation_of_bloom_that_is_wrong_is_named(tmp_path: Path, name: str) -> None:
    found = compared(tmp_path, {name: 1.5}).findings.first_bad_node
    operations = dict(MISSED_BY_MSIT) | OF_MSIT
    assert found is not None
    assert (found.golden, found.target) == (f"{LAYER}.{name}", f"{OPERATION}{operations[f'.{name}']}")
