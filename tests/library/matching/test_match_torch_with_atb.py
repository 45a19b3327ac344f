"""What msit matches of a torch dump and an ATB dump of one model is found, or named here as wrong."""

from collections.abc import Callable
from pathlib import Path

import pytest

from firstdrift.dumps.detect import open_dump
from firstdrift.matching.match import match_slices
from firstdrift.matching.plan import Joining, MatchingRules, SlicePlan
from firstdrift.matching.slices import pair_slices
from firstdrift.model.slice import Slice
from firstdrift.parallel.slices import read_slice

Unpack = Callable[[str], Path]

LAYERS, TOKENS = 12, 6

OF_MSIT = [
    ("", "output.0", "", "output.0"),
    (
        ".input_layernorm",
        "output.0",
        "/0_Attention/0_QKVLinearSplitPack/0_NormLinear/0_RmsNormOperation",
        "output.0",
    ),
    (".self_attn", "output.0", "/0_Attention", "output.0"),
    (".self_attn.q_proj", "output.0", "/0_Attention/0_QKVLinearSplitPack", "output.0"),
    (".self_attn.k_proj", "output.0", "/0_Attention/0_QKVLinearSplitPack", "output.1"),
    (".self_attn.v_proj", "output.0", "/0_Attention/0_QKVLinearSplitPack", "output.2"),
    (".self_attn.q_proj", "output.0", "/0_Attention/0_QKVLinearSplitPack/1_SplitOperation", "output.0"),
    (".self_attn.k_proj", "output.0", "/0_Attention/0_QKVLinearSplitPack/1_SplitOperation", "output.1"),
    (".self_attn.v_proj", "output.0", "/0_Attention/0_QKVLinearSplitPack/1_SplitOperation", "output.2"),
    (".self_attn.o_proj", "output.0", "/0_Attention/4_LinearNoQuant/0_LinearOperation", "output.0"),
    (
        ".post_attention_layernorm",
        "output.0",
        "/2_MlpGateUpWeightPack/0_NormLinear/0_RmsNormOperation",
        "output.0",
    ),
    (".mlp", "output.0", "/2_MlpGateUpWeightPack", "output.0"),
    (".mlp.gate_proj", "output.0", "/2_MlpGateUpWeightPack/1_SplitOperation", "output.0"),
    (".mlp.act_fn", "output.0", "/2_MlpGateUpWeightPack/2_ActivationOperation", "output.0"),
    (".mlp.down_proj", "input.0", "/2_MlpGateUpWeightPack/3_ElewiseOperation", "output.0"),
    (".mlp.down_proj", "output.0", "/2_MlpGateUpWeightPack/4_LinearNoQuant/0_LinearOperation", "output.0"),
]
"""What msit compares in every layer: torch module and tensor, ATB operation and tensor."""

MISSED_BY_MSIT = [
    (".mlp.up_proj", "output.0", "/2_MlpGateUpWeightPack/1_SplitOperation", "output.1"),
    (".self_attn.o_proj", "input.0", "/0_Attention/3_{attention}", "output.0"),
    (".post_attention_layernorm", "input.0", "/1_ElewiseOperation", "output.0"),
    ("", "output.0", "/3_ElewiseOperation", "output.0"),
]

WRONG_IN_MSIT = [
    # the fused projections of gate and up, which are four times as wide
    (
        ".mlp.down_proj",
        "output.0",
        "/2_MlpGateUpWeightPack/0_NormLinear/1_LinearNoQuant/0_LinearOperation",
        "output.0",
    ),
    # the weights of the attention, which have as many elements by chance
    (".self_attn", "output.1", "/0_Attention", "output.0"),
]


@pytest.fixture(scope="module")
def plans(unpacked: Unpack) -> list[tuple[Slice, Slice, SlicePlan]]:
    dumps = [open_dump(unpacked(f"msit/{name}")) for name in ("llama12_golden_fp32", "atb12_bf16")]
    pairing = pair_slices(*dumps, MatchingRules())
    slices = [(read_slice(dumps[0], one), read_slice(dumps[1], other)) for one, other in pairing.pairs]
    return [(*both, match_slices(*both, MatchingRules())) for both in slices]


def held(plan: SlicePlan) -> set[tuple[str, str, str, str]]:
    """Return what is compared, by nodes and tensors; what is joined is not among it."""
    return {
        (pair.golden_node, pair.golden.label, pair.target_node, pair.target.label)
        for pair in plan.pairs
        if pair.joining is None
    }


def in_layers(rows: list[tuple[str, str, str, str]], token: int) -> set[tuple[str, str, str, str]]:
    first, name = (2, "Prefill_layer") if token == 0 else (18, "Decoder_layer")
    attention = "SelfAttentionOperation" if token == 0 else "PagedAttentionOperation"
    return {
        (
            f"root.model.layers.{layer}{golden}",
            golden_tensor,
            f"{first + layer}_{name}{target.format(attention=attention)}",
            target_tensor,
        )
        for layer in range(LAYERS)
        for golden, golden_tensor, target, target_tensor in rows
    }


def test_what_msit_compares_in_layers_is_compared_but_for_what_is_wrong(
    plans: list[tuple[Slice, Slice, SlicePlan]],
) -> None:
    assert len(plans) == TOKENS
    for token, (_, _, plan) in enumerate(plans):
        assert in_layers(OF_MSIT, token) <= held(plan)
        assert in_layers(MISSED_BY_MSIT, token) <= held(plan)
        assert not in_layers(WRONG_IN_MSIT, token) & held(plan)


def test_what_msit_compares_outside_of_layers_is_compared(
    plans: list[tuple[Slice, Slice, SlicePlan]],
) -> None:
    for token, (_, _, plan) in enumerate(plans):
        embed, norm, head, linear = (
            ("0_WordEmbedding", "14_RmsNormOperation", "15_LmHead", "1_LinearNoQuant")
            if token == 0
            else ("16_WordEmbedding", "30_RmsNormOperation", "31_LmHead", "0_LinearNoQuant")
        )
        expected = {
            ("root.model.embed_tokens", embed),
            ("root.model.norm", norm),
            ("root.lm_head", head),
            ("root.lm_head", f"{head}/{linear}"),
            ("root.lm_head", f"{head}/{linear}/0_LinearOperation"),
        }
        assert {(one, "output.0", other, "output.0") for one, other in expected} <= held(plan)


def test_fused_projections_and_rotations_of_every_layer_are_compared(
    plans: list[tuple[Slice, Slice, SlicePlan]],
) -> None:
    for _, _, plan in plans:
        joined = [
            (pair.joining, pair.target_node.partition("/")[2], pair.target.label) for pair in plan.pairs
        ]
        pack, block = "0_Attention/0_QKVLinearSplitPack/0_NormLinear", "2_MlpGateUpWeightPack/0_NormLinear"
        for node in (pack, block):
            for inside in ("", "/1_LinearNoQuant", "/1_LinearNoQuant/0_LinearOperation"):
                assert joined.count((Joining.CONCATENATED, f"{node}{inside}", "output.0")) == LAYERS
        rope = "0_Attention/1_RotaryPositionEmbedding"
        for node in (rope, f"{rope}/0_RopeOperation"):
            for tensor in ("output.0", "output.1"):
                assert joined.count((Joining.ROTATED, node, tensor)) == LAYERS


def test_only_containers_and_what_fills_the_cache_have_no_counterpart(
    plans: list[tuple[Slice, Slice, SlicePlan]],
) -> None:
    for token, (_, _, plan) in enumerate(plans):
        assert set(plan.unmatched_golden) == {"root", "root.model", "root.model.layers"}
        left = {name for name in plan.unmatched_target if not name.endswith("ReshapeAndCacheOperation")}
        assert len(plan.unmatched_target) - len(left) == LAYERS
        # In the decode pass the head has no operation that picks the last token.
        assert left <= ({"15_LmHead/0_GatherOperation"} if token == 0 else set())
        assert all(pair.incomparable is None for pair in plan.pairs)
        assert not any(match.doubtful for match in plan.matches)
