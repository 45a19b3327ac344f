"""A model of transformers against the same written otherwise.

`tests/interop/write_other_implementations.py` has written the pairs, those with litgpt and torchtune
`write_litgpt_and_torchtune.py` beside it, those with a norm inside of linear modules
`write_norms_in_linear_modules.py`, and those with openai-whisper, open_clip and timm
`write_sound_and_vision.py`.

What operators do inside a module is the affair of each implementation: other order of sums, complex
rotation, functions for modules. Only what works on the same quantities is compared.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from firstdrift import Report, compare
from firstdrift.comparison.exit_status import exit_status
from firstdrift.matching.implementations.boundaries import is_other_quantity
from firstdrift.matching.plan import Joining
from firstdrift.model.tensor import Role
from firstdrift.verdict.judgement import NodeClass


@pytest.fixture
def answer(unpacked: Callable[[str], Path]) -> Callable[..., Report]:
    """Return a function that compares a pair."""

    def compared(name: str, *, swapped: bool = False) -> Report:
        folder = unpacked(f"implementations/{name}")
        golden, target = (folder / side for side in ("golden", "target")[:: -1 if swapped else 1])
        return compare(golden, target)

    return compared


@pytest.mark.parametrize(
    "name",
    [
        "llama_healthy",
        "llama_healthy_values",
        "llama_gradients",
        "llama_tied_gradients",
        "llama_called",
        "neox_called",
        "latent_healthy",
        "neox_healthy",
        "resnet_healthy",
        "vit_healthy",
        "vit_joined",
        "whisper_healthy",
        "clip_healthy",
        "swin_healthy",
        "litgpt_gemma2_trained",
        "torchtune_gemma",
        "norm_inside_healthy",
        "norm_inside_bias",
    ],
)
@pytest.mark.parametrize("swapped", [False, True], ids=["as written", "swapped"])
def test_other_code_that_does_the_same_is_no_fault(
    answer: Callable[..., Report], name: str, *, swapped: bool
) -> None:
    report = answer(name, swapped=swapped)
    coverage = report.findings.coverage
    assert exit_status(report) == 0
    assert coverage is not None
    assert coverage.compared_outputs == coverage.outputs == 1
    assert coverage.compared_nodes > coverage.nodes / 2


@pytest.mark.parametrize(
    ("name", "golden", "target"),
    [
        ("llama_wo", "model.layers.1.self_attn.o_proj", "layers.1.attention.wo"),
        ("llama_norm", "model.layers.1.post_attention_layernorm", "layers.1.ffn_norm"),
        ("neox_down", "gpt_neox.layers.1.mlp.dense_4h_to_h", "blocks.1.down"),
        ("resnet_conv", "resnet.encoder.stages.1.layers.0.layer.0.convolution", "layer2.0.conv1"),
        ("vit_patches", "vit.embeddings.patch_embeddings.projection", "patch_embed.proj"),
    ],
)
def test_a_faulty_weight_is_named(
    answer: Callable[[str], Report], name: str, golden: str, target: str
) -> None:
    found = answer(name).findings.first_bad_node
    assert found is not None
    nodes = found.golden, found.target
    assert [node and node.split(".", 1)[1].rsplit(".", 3)[0] for node in nodes] == [golden, target]


@pytest.mark.parametrize(
    ("name", "golden", "target"),
    [
        ("vit_fused_key", "vit.layers.1.attention.k_proj", "blocks.1.attn.qkv"),
        ("vit_joined_key", "vit.layers.1.attention.k_proj", "blocks.1.attn"),
        ("latent_query", "model.layers.1.self_attn.q_a_proj", "layers.1.attention.fused_qkv_a_proj"),
        ("latent_both", "model.layers.1.self_attn.kv_a_proj_with_mqa", "layers.1.attention.fused_qkv_a_proj"),
    ],
)
def test_of_a_fused_weight_the_part_is_named(
    answer: Callable[[str], Report], name: str, golden: str, target: str
) -> None:
    """One part is wrong in a weight of several: of a linear module, and of attention itself."""
    found = answer(name).findings.first_bad_node
    assert found is not None
    assert found.golden == f"Module.{golden}.Linear.forward.0"
    assert found.module == target
    assert found.node_class is NodeClass.WEIGHTS_DIFFER


def test_all_of_latent_attention_is_matched(answer: Callable[[str], Report]) -> None:
    """What leads into the latent states is one module in the one run, and two in the other."""
    plan = answer("latent_healthy").slices[0].plan
    assert all(".mlp.act_fn." in name for name in plan.unmatched_golden if ".layers." in name)
    assert not plan.unmatched_target
    joined = {match.golden: match.target for match in plan.matches if len(match.golden) > 1}
    attentions = [f"Module.model.layers.{at}.self_attn" for at in range(3)]
    assert joined == {
        (f"{one}.q_a_proj.Linear.forward.0", f"{one}.kv_a_proj_with_mqa.Linear.forward.0"): (
            f"Module.layers.{at}.attention.fused_qkv_a_proj.Linear.forward.0",
        )
        for at, one in enumerate(attentions)
    }


def test_operators_that_work_on_other_quantities_are_not_compared(answer: Callable[[str], Report]) -> None:
    """Query and key lie in another order, as their weights do: what is made from them is not compared."""
    reasons = {
        pair.golden_node: pair.incomparable.id
        for pair in answer("llama_wo").slices[0].plan.pairs
        if pair.incomparable is not None
    }
    assert reasons["Torch.matmul.0.forward"] == "matching.incomparable.made_otherwise"


@pytest.mark.parametrize(
    ("name", "golden", "target"),
    [
        ("llama_called_gelu", "Functional.silu.1.forward", "Functional.gelu.0.forward"),
        ("llama_turned_relu", "Functional.silu.1.forward", "Functional.relu.0.forward"),
        (
            "neox_called_tanh",
            "Module.gpt_neox.layers.1.mlp.act.GELUActivation.forward.0",
            "Functional.gelu.1.forward",
        ),
    ],
)
def test_another_activation_is_named_whether_or_not_it_lies_in_a_module(
    answer: Callable[[str], Report], name: str, golden: str, target: str
) -> None:
    """GELU for SiLU, ReLU for SiLU, and GELU as tanh approximates it: what leads into it is the same."""
    found = answer(name).findings.first_bad_node
    assert found is not None
    assert (found.golden, found.target) == (golden, target)
    assert (found.tensor, found.node_class) == ("output.0", NodeClass.SOURCE)


def test_an_activation_lies_in_the_order_of_what_it_takes(answer: Callable[[str], Report]) -> None:
    """The feed-forward block of the one run has its inner elements in another order, as its weights tell."""
    report = answer("llama_turned_relu")
    (one,) = report.slices
    errors = {
        (pair.golden_node, pair.golden.label): measured.errors.relative_l2
        for pair, measured in zip(one.plan.pairs, one.measurements, strict=True)
        if pair.joining is Joining.REARRANGED and measured.errors is not None
    }
    down = "Module.model.layers.0.mlp.down_proj.Linear.forward.0"
    alike = [("Functional.silu.0.forward", "input.0"), ("Functional.silu.0.forward", "output.0")]
    alike += [("Functional.silu.1.forward", "input.0"), (down, "input.0")]
    assert max(errors[place] for place in alike) < 1e-6
    assert errors["Functional.silu.1.forward", "output.0"] > 0.1


def test_of_operators_in_two_modules_for_one_the_module_of_the_faulty_one_is_named(
    answer: Callable[[str], Report],
) -> None:
    """One product with the weight of gate and up against one with each: that of up is wrong."""
    found = answer("litgpt_phi3_up").findings.first_bad_node
    assert found is not None
    assert found.golden == "Functional.linear.6.forward"
    assert found.target == "Functional.linear.8.forward"
    assert found.module == "transformer.h.1.mlp.fc_2"
    assert found.node_class is NodeClass.WEIGHTS_DIFFER


def test_what_one_run_alone_records_is_judged_by_what_the_other_is_given(
    answer: Callable[[str], Report],
) -> None:
    """The rotation has another base, and the target keeps cosine and sine in buffers, not in a module."""
    report = answer("litgpt_mixtral_rope")
    found = report.findings.first_bad_node
    assert found is not None
    assert found.module == "model.rotary_emb"
    assert found.target == "Module.transformer.h.0.attn.CausalSelfAttention.forward.0"
    assert found.tensor == "input.2"
    assert found.node_class is NodeClass.SOURCE


def test_gradients_of_what_is_not_one_quantity_are_none(answer: Callable[[str], Report]) -> None:
    """One run scales the embedding inside the module, and the other after it."""
    pairs = answer("litgpt_gemma2_trained").slices[0].plan.pairs
    apart = {
        (pair.golden_node.rpartition("Embedding.")[2], pair.golden.label)
        for pair in pairs
        if pair.golden_node.startswith("Module.model.embed_tokens") and is_other_quantity(pair)
    }
    assert apart == {("forward.0", "output.0"), ("backward.0", "input.0")}


def test_a_head_that_is_an_operator_in_the_other_run_is_compared(answer: Callable[[str], Report]) -> None:
    """The head has the weight of the embedding, and no module in the target."""
    matches = answer("torchtune_gemma").slices[0].plan.matches
    assert (("Functional.linear.21.forward",), ("Functional.linear.21.forward",)) in [
        (match.golden, match.target) for match in matches
    ]


def test_a_norm_is_matched_inside_of_the_linear_module_that_begins_with_it(
    answer: Callable[[str], Report],
) -> None:
    """What stands in the place of the norm does nothing, and attention is given what was not normed yet."""
    plan = answer("norm_inside_healthy").slices[0].plan
    joined = {match.target: match.golden for match in plan.matches if len(match.golden) > 1}
    layer = "Module.model.layers.1"
    linear = "Module.decoder.layers.1.self_attention.linear_qkv.TELayerNormColumnParallelLinear.forward.0"
    assert joined[linear,] == (
        f"{layer}.input_layernorm.LlamaRMSNorm.forward.0",
        *(f"{layer}.self_attn.{name}_proj.Linear.forward.0" for name in "qkv"),
    )
    inner = {(pair.golden.label, pair.target.label) for pair in plan.pairs if pair.target_node == linear}
    assert inner == {
        ("input.0", "input.0"),
        ("output.0", "output.0"),
        ("parameter.weight", "parameter.layer_norm_weight"),
        ("parameter.weight", "parameter.weight"),
    }
    left = [name for name in plan.unmatched_target if ".layers." in name]
    assert all(".IdentityOp." in name or ".core_attention." in name for name in left)
    attention = [pair.role.value for pair in plan.pairs if ".SelfAttention.forward." in pair.target_node]
    assert attention == ["output"] * 3


@pytest.mark.parametrize(
    ("name", "golden", "target"),
    [
        ("norm_inside_weight", "input_layernorm.LlamaRMSNorm", "self_attention.linear_qkv"),
        ("norm_inside_gate", "mlp.gate_proj.Linear", "mlp.linear_fc1"),
    ],
)
def test_of_a_norm_inside_of_a_linear_module_the_faulty_part_is_named(
    answer: Callable[[str], Report], name: str, golden: str, target: str
) -> None:
    found = answer(name).findings.first_bad_node
    assert found is not None
    assert found.golden == f"Module.model.layers.1.{golden}.forward.0"
    assert found.module == f"decoder.layers.1.{target}"
    assert found.node_class is NodeClass.WEIGHTS_DIFFER


def test_a_bias_that_a_module_hands_on_is_compared_with_that_of_one_that_adds_it(
    answer: Callable[[str], Report],
) -> None:
    """Its gradient is that of what is given; of what is added nothing is known but the mean."""
    report = answer("norm_inside_bias")
    roles = {pair.role.value for pair in report.slices[0].plan.pairs if pair.golden.role is Role.GRADIENT}
    assert roles == {"gradient"}
    (one,) = report.slices
    down = (
        "Module.transformer.h.1.mlp.c_proj.Conv1D",
        "Module.decoder.layers.1.mlp.linear_fc2.TERowParallelLinear",
    )
    found = {
        (pair.golden_node, pair.golden.label, pair.target_node, pair.target.label): measured.differences
        for pair, measured in zip(one.plan.pairs, one.measurements, strict=True)
    }
    assert (f"{down[0]}.parameters_grad.0", "gradient.bias", f"{down[1]}.backward.0", "input.1") in found
    given = found[f"{down[0]}.forward.0", "output.0", f"{down[1]}.forward.0", "output.0"]
    assert given is not None
    assert (given.maximum, given.minimum, given.norm) == (None, None, None)
    assert abs(given.mean or 1.0) < 1e-6


def test_positions_are_looked_up_once_or_for_each_sequence(answer: Callable[[str], Report]) -> None:
    report = answer("norm_inside_bias")
    (one,) = report.slices
    bounds = {
        (pair.golden_node, pair.golden.label): measured.differences and measured.differences.error_bound
        for pair, measured in zip(one.plan.pairs, one.measurements, strict=True)
        if any(said.id == "matching.transform.repeated" for said in pair.transform)
    }
    table = "Module.transformer.wpe.Embedding.forward.0"
    assert set(bounds) == {
        (node, label)
        for node in (table, "Functional.embedding.1.forward")
        for label in ("input.0", "output.0")
    }
    assert all(bound is not None and bound < 1e-6 for bound in bounds.values())


def test_a_feed_forward_block_that_begins_with_a_norm_is_no_norm(answer: Callable[[str], Report]) -> None:
    """It is held against the norm and the block of the other run; what is wrong inside is told by it."""
    report = answer("norm_inside_mlp")
    found = report.findings.first_bad_node
    assert found is not None
    assert found.module == "decoder.layers.1.layernorm_mlp"
    joined = {match.golden for match in report.slices[0].plan.matches if found.target in match.target}
    layer = "Module.model.layers.1"
    assert joined == {
        (f"{layer}.post_attention_layernorm.LlamaRMSNorm.forward.0", f"{layer}.mlp.LlamaMLP.forward.0")
    }


def test_a_weight_that_is_used_twice_has_the_sum_of_the_gradients_of_its_copies(
    answer: Callable[[str], Report],
) -> None:
    """Embedding and head are one parameter in the golden run, and two of the same numbers in the target."""
    (one,) = answer("llama_tied_gradients").slices
    summed = {
        pair.target_node: (pair.part_nodes, measured.differences)
        for pair, measured in zip(one.plan.pairs, one.measurements, strict=True)
        if pair.joining is Joining.SUMMED
    }
    embedding = "Module.tok_embeddings.Embedding.parameters_grad.0"
    head = "Module.output.Linear.parameters_grad.0"
    assert summed.keys() == {embedding, head}
    for parts, differences in summed.values():
        assert set(parts) == {embedding, head}
        assert differences is not None
        assert abs(differences.mean or 0.0) < 1e-6
        assert differences.norm is None


def test_either_run_may_be_the_one_that_lies_place_by_place(unpacked: Callable[[str], Path]) -> None:
    """Ids lie sequence by sequence in both, whatever the order of what is made of them."""
    pair = unpacked("implementations/norm_inside_bias")
    assert exit_status(compare(pair / "target", pair / "golden")) == 0


def test_of_a_norm_and_what_follows_it_the_one_is_named_that_differs(unpacked: Callable[[str], Path]) -> None:
    """The golden run has both in one module, whose result differs: it is what the last one gives."""
    pair = unpacked("implementations/norm_inside_mlp")
    found = compare(pair / "target", pair / "golden").findings.first_bad_node
    assert found is not None
    assert found.target == "Module.model.layers.1.mlp.LlamaMLP.forward.0"
    assert found.module == "model.layers.1.mlp"


def test_a_wrong_activation_is_named_behind_attention_that_gives_scores_for_shares(
    answer: Callable[[str], Report],
) -> None:
    found = answer("whisper_silu").findings.first_bad_node
    assert found is not None
    assert found.target == "Module.encoder.blocks.1.mlp.1.GELU.forward.0"


def test_logits_by_a_product_with_the_embedding_are_compared_with_those_of_a_head(
    answer: Callable[[str], Report],
) -> None:
    (slice_,) = answer("whisper_healthy").slices
    pairs = {pair.golden_node: pair for pair in slice_.plan.pairs if "__matmul__" in pair.target_node}
    heads = [pair for name, pair in pairs.items() if "linear" in name and "forward" in name]
    assert [pair.incomparable for pair in heads] == [None]


def test_blocks_of_stages_that_hold_other_things_are_matched(answer: Callable[[str], Report]) -> None:
    (slice_,) = answer("swin_healthy").slices
    blocks = {
        (found.golden[0], found.target[0])
        for found in slice_.plan.matches
        if found.target and found.target[0].endswith("SwinTransformerBlock.forward.0")
    }
    assert blocks == {
        (f"Module.swin.encoder.{path}.SwinLayer.forward.0", f"Module.{path}.SwinTransformerBlock.forward.0")
        for path in ("layers.0.blocks.0", "layers.0.blocks.1", "layers.1.blocks.0")
    }
