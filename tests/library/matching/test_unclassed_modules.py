"""A dump that does not tell the classes of its modules is matched as one that tells them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from library.matching.made_frameworks import Model, Writer, atb_of, torch_of, wrong_pairs
from msgspec.structs import replace

from firstdrift.dumps.detect import open_dump
from firstdrift.matching.match import match_slices
from firstdrift.matching.plan import MatchingRules, SlicePlan
from firstdrift.matching.slices import pair_slices
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Slice
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.operators.kinds import OpKind
from firstdrift.operators.recognise import kind_of, kind_of_label, kind_of_type
from firstdrift.parallel.slices import read_slice
from firstdrift.wording.message import Message

Unpack = Callable[[str], Path]

FAMILIES = {
    "as transformers calls Llama": ({}, Model()),
    "GPT-2": (
        {
            "embed_tokens": "wte",
            "layers": "h",
            "norm_1": "ln_1",
            "norm_2": "ln_2",
            "norm": "ln_f",
            "self_attn": "attn",
            "query_key_value": "c_attn",
            "o_proj": "c_proj",
            "gate_proj": "c_fc",
            "act_fn": "act",
            "down_proj": "c_proj",
        },
        Model(fused=True, gated=False),
    ),
    "BLOOM, GPT-NeoX, Falcon": (
        {
            "embed_tokens": "word_embeddings",
            "norm_1": "input_layernorm",
            "norm_2": "post_attention_layernorm",
            "norm": "ln_f",
            "self_attn": "self_attention",
            "o_proj": "dense",
            "gate_proj": "dense_h_to_4h",
            "act_fn": "gelu_impl",
            "down_proj": "dense_4h_to_h",
            "lm_head": "embed_out",
        },
        Model(fused=True, gated=False),
    ),
    "Megatron": (
        {
            "embed_tokens": "word_embeddings",
            "norm_1": "input_layernorm",
            "norm_2": "pre_mlp_layernorm",
            "norm": "final_layernorm",
            "self_attn": "self_attention",
            "query_key_value": "linear_qkv",
            "o_proj": "linear_proj",
            "gate_up_proj": "linear_fc1",
            "act_fn": "activation_func",
            "down_proj": "linear_fc2",
            "lm_head": "output_layer",
        },
        Model(fused=True, packed=True),
    ),
    "Llama as Meta wrote it": (
        {
            "embed_tokens": "tok_embeddings",
            "norm_1": "attention_norm",
            "norm_2": "ffn_norm",
            "self_attn": "attention",
            "q_proj": "wq",
            "k_proj": "wk",
            "v_proj": "wv",
            "o_proj": "wo",
            "mlp": "feed_forward",
            "gate_proj": "w1",
            "up_proj": "w3",
            "down_proj": "w2",
            "lm_head": "output",
        },
        Model(),
    ),
    "BART, OPT": (
        {
            "norm_1": "self_attn_layer_norm",
            "norm_2": "final_layer_norm",
            "norm": "layer_norm",
            "o_proj": "out_proj",
            "gate_proj": "fc1",
            "act_fn": "activation_fn",
            "down_proj": "fc2",
        },
        Model(gated=False),
    ),
    "BERT": (
        {
            "layers": "layer",
            "self_attn": "attention",
            "q_proj": "query",
            "k_proj": "key",
            "v_proj": "value",
            "o_proj": "dense",
            "norm_1": "layernorm_before",
            "norm_2": "layernorm_after",
            "gate_proj": "intermediate_dense",
            "act_fn": "intermediate_act_fn",
            "down_proj": "output_dense",
        },
        Model(gated=False),
    ),
    "vision transformers": (
        {
            "layers": "blocks",
            "norm_1": "norm1",
            "norm_2": "norm2",
            "self_attn": "attn",
            "query_key_value": "qkv",
            "o_proj": "proj",
            "gate_proj": "fc1",
            "act_fn": "act",
            "down_proj": "fc2",
        },
        Model(fused=True, gated=False),
    ),
}


def renamed(writer: Writer, names: dict[str, str]) -> Writer:
    def spelled(name: str) -> str:
        return ".".join(names.get(part, part) for part in name.split("."))

    writer.nodes = [
        replace(
            node,
            name=spelled(node.name),
            path=spelled(node.path),
            parent=node.parent and spelled(node.parent),
        )
        for node in writer.nodes
    ]
    return writer


def without_classes(writer: Writer) -> Writer:
    writer.nodes = [replace(node, type_name="") for node in writer.nodes]
    return writer


def correspondence(plan: SlicePlan) -> tuple[object, ...]:
    """Return all that a plan says but its reasons."""
    return (
        [(match.golden, match.target, match.doubtful, match.score) for match in plan.matches],
        [
            (pair.golden_node, pair.golden.label, pair.target_node, pair.target.label, pair.transform)
            for pair in plan.pairs
        ],
        plan.unmatched_golden,
        plan.unmatched_target,
    )


@pytest.mark.parametrize("statistics", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_modules_of_any_family_are_matched_as_their_classes_would_have_it(
    family: str, statistics: bool
) -> None:
    names, model = FAMILIES[family]
    classed = renamed(torch_of(model, statistics=statistics), names)
    unclassed = without_classes(renamed(torch_of(model, statistics=statistics), names))
    atb = atb_of(model, statistics=statistics)
    expected = match_slices(classed.slice, atb.slice, MatchingRules())
    plan = match_slices(unclassed.slice, atb.slice, MatchingRules())
    assert len(plan.pairs) > 20
    assert correspondence(plan) == correspondence(expected)
    assert wrong_pairs(plan, unclassed, atb) == []


@pytest.mark.parametrize(
    "model",
    [
        Model(layers=1),
        Model(layers=13),
        Model(inner=32),
        Model(encoder=3, layers=2),
        Model(query_norm=True),
        Model(experts=8),
        Model(experts=8, listed=True),
        Model(parallel=True),
    ],
    ids=str,
)
@pytest.mark.parametrize("at_once", [False, True])
def test_models_of_any_structure_are_matched_without_classes(model: Model, at_once: bool) -> None:
    atb = atb_of(model, at_once=at_once)
    expected = match_slices(torch_of(model).slice, atb.slice, MatchingRules())
    unclassed = without_classes(torch_of(model))
    plan = match_slices(unclassed.slice, atb.slice, MatchingRules())
    assert correspondence(plan) == correspondence(expected)
    assert match_slices(atb.slice, unclassed.slice, MatchingRules()).unmatched_golden == plan.unmatched_target


def test_what_a_reader_did_not_tell_is_said_with_the_match() -> None:
    plan = match_slices(without_classes(torch_of(Model())).slice, atb_of(Model()).slice, MatchingRules())
    reasons = [match.reasons for match in plan.matches if match.golden == ("root.model.norm",)]
    assert Message.of("matching.reason.no_class", node="norm") in reasons[0]


def module(path: str, *tensors: tuple[Role, str, tuple[int, ...]], dtype: str = "float32") -> Node:
    records = tuple(
        TensorRecord(role, key, dtype if role is Role.INPUT else "float32", shape)
        for role, key, shape in tensors
    )
    return Node(path, path, NodeKind.MODULE, "", Direction.FORWARD, 0, 0, None, records)


TAKEN, GIVEN, WEIGHT = (Role.INPUT, "0"), (Role.OUTPUT, "0"), (Role.PARAMETER, "weight")


@pytest.mark.parametrize(
    ("label", "kind"),
    [
        ("q_proj", OpKind.LINEAR),
        ("W_pack", OpKind.LINEAR),
        ("Wqkv", OpKind.LINEAR),
        ("kv_a_proj_with_mqa", OpKind.LINEAR),
        ("dense_4h_to_h", OpKind.LINEAR),
        ("lm_head", OpKind.LINEAR),
        ("LayerNorm", OpKind.NORM),
        ("kv_a_layernorm", OpKind.NORM),
        ("norm_f", OpKind.NORM),
        ("ln_post", OpKind.NORM),
        ("word_embeddings_layernorm", OpKind.NORM),
        ("word_embeddings", OpKind.LOOKUP),
        ("wte", OpKind.LOOKUP),
        ("rotary_pos_emb", OpKind.POSITIONS),
        ("act_fn", OpKind.ACTIVATE),
        ("core_attention", OpKind.ATTEND),
        *(
            (unclear, OpKind.OTHER)
            for unclear in (
                *("self_attn", "self_attention", "mlp", "layers", "experts", "model", "decoder", "7", ""),
                *("dropout", "norm_dropout", "activation_dropout", "proj_drop", "attn_drop", "drop_path"),
                *("position_embeddings", "patch_embed", "conv1", "conv_proj", "linear_attn", "gate", "proj"),
                *("q", "k", "v", "out", "head", "pooler", "embeddings", "DenseReluDense", "k_cache", "scale"),
            )
        ),
    ],
)
def test_a_name_that_is_not_clear_tells_nothing(label: str, kind: OpKind) -> None:
    assert kind_of_label(label) is kind


@pytest.mark.parametrize(
    ("node", "kind"),
    [
        (module("anything", (*TAKEN, (1, 5, 64)), (*GIVEN, (1, 5, 32)), (*WEIGHT, (32, 64))), OpKind.LINEAR),
        (module("anything", (*TAKEN, (1, 5, 64)), (*GIVEN, (1, 5, 32)), (*WEIGHT, (64, 32))), OpKind.LINEAR),
        (module("anything", (*TAKEN, (1, 5, 64)), (*GIVEN, (1, 5, 64)), (*WEIGHT, (64,))), OpKind.NORM),
        (
            module("anything", (*TAKEN, (1, 5)), (*GIVEN, (1, 5, 64)), (*WEIGHT, (99, 64)), dtype="int64"),
            OpKind.LOOKUP,
        ),
        (module("anything", (*TAKEN, (1, 5, 64)), (*GIVEN, (1, 5, 32)), (*WEIGHT, (8, 4))), OpKind.OTHER),
        # one weight is no proof where there are others
        (
            module(
                "any",
                (*TAKEN, (1, 64)),
                (*GIVEN, (1, 64)),
                (*WEIGHT, (64,)),
                (Role.PARAMETER, "up_weight", (64,)),
            ),
            OpKind.OTHER,
        ),
        (module("self_attn.q", (*TAKEN, (1, 5, 64)), (*GIVEN, (1, 5, 32))), OpKind.LINEAR),
        (module("mlp.gate", (*TAKEN, (5, 64)), (*GIVEN, (5, 2)), (Role.OUTPUT, "1", (5, 2))), OpKind.OTHER),
        # a convolution of patches gives other rows than it takes
        (module("patch_embed.proj", (*TAKEN, (1, 3, 224, 224)), (*GIVEN, (1, 768, 14, 14))), OpKind.OTHER),
        (module("down_proj", (*TAKEN, (1, 10, 64)), (*GIVEN, (1, 5, 32))), OpKind.OTHER),
        (module("input_layernorm", (*TAKEN, (1, 5, 64)), (*GIVEN, (1, 5, 32))), OpKind.OTHER),
        (module("embed_tokens", (*TAKEN, (1, 5, 64)), (*GIVEN, (1, 5, 64))), OpKind.OTHER),
        (module("act_fn", (*TAKEN, (1, 5, 128)), (*GIVEN, (1, 5, 64))), OpKind.GATE),
        (module("act_fn", (*TAKEN, (1, 5, 64)), (*GIVEN, (1, 5, 64))), OpKind.ACTIVATE),
        (module("act_fn", (*TAKEN, (1, 5, 64)), (*GIVEN, (1, 1, 64))), OpKind.OTHER),
    ],
)
def test_weights_and_shapes_tell_what_a_module_does_or_that_its_name_misleads(
    node: Node, kind: OpKind
) -> None:
    assert kind_of(node) is kind


def test_a_class_that_is_recorded_counts_whatever_a_module_is_called() -> None:
    assert kind_of(replace(module("q_proj"), type_name="LlamaRMSNorm")) is OpKind.NORM
    assert kind_of(replace(module("q_proj"), type_name="Identity")) is OpKind.OTHER


def test_the_linear_layer_of_gpt_2_is_told_from_a_convolution_of_nearly_the_same_name() -> None:
    assert kind_of_type("Conv1D") is OpKind.LINEAR
    assert kind_of_type("Conv1d") is kind_of_type("Functional.conv1d") is OpKind.CONVOLVE


def slices(golden: Path, target: Path) -> list[tuple[Slice, Slice]]:
    dumps = open_dump(golden), open_dump(target)
    pairs = pair_slices(*dumps, MatchingRules()).pairs
    return [(read_slice(dumps[0], one), read_slice(dumps[1], other)) for one, other in pairs]


def without_tree(dump: Path, to: Path) -> Path:
    shutil.copytree(dump, to)
    for file in to.rglob("model_tree.json"):
        file.unlink()
    return to


def as_plain(dump: Path, to: Path) -> Path:
    """Write the tensors of a msit dump as files whose names are those of modules."""
    for file in dump.rglob("torch_tensors/*/*/root.*/*.pth"):
        token = to / f"token{file.parts[-3]}"
        token.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, token / f"{file.parts[-2].removeprefix('root.')}.{file.stem}.pt")
    return to


@pytest.mark.parametrize(
    ("golden", "target"), [("llama4_golden_fp32", "atb4_bf16"), ("llama12_golden_fp32", "atb12_bf16_bad")]
)
def test_a_real_dump_without_its_tree_is_matched_pair_by_pair_as_with_it(
    unpacked: Unpack, tmp_path: Path, golden: str, target: str
) -> None:
    whole, atb = unpacked(f"msit/{golden}"), unpacked(f"msit/{target}")
    expected = [match_slices(*both, MatchingRules()) for both in slices(whole, atb)]
    cut = slices(without_tree(whole, tmp_path / "cut"), atb)
    assert {node.type_name for node in cut[0][0].nodes} == {""}
    plans = [match_slices(*both, MatchingRules()) for both in cut]
    assert list(map(correspondence, plans)) == list(map(correspondence, expected))
    assert all(len(plan.pairs) > 100 for plan in plans)


def test_plain_files_named_after_modules_are_held_against_atb(unpacked: Unpack, tmp_path: Path) -> None:
    whole, atb = unpacked("msit/llama4_golden_fp32"), unpacked("msit/atb4_bf16")
    expected = [match_slices(*both, MatchingRules()) for both in slices(whole, atb)]
    plans = [
        match_slices(*both, MatchingRules()) for both in slices(as_plain(whole, tmp_path / "plain"), atb)
    ]
    for plan, other in zip(plans, expected, strict=True):
        compared = [(f"root.{pair.golden_node}", pair.golden.label, pair.target_node) for pair in plan.pairs]
        assert compared == [(pair.golden_node, pair.golden.label, pair.target_node) for pair in other.pairs]


@pytest.mark.parametrize("has_tree", [False, True])
@pytest.mark.parametrize("msprobe", ["llama_stat_mix_perturb", "llama_tensor_L0_bf16"])
def test_modules_of_msit_and_msprobe_are_matched_by_name_whether_classes_and_lists_are_recorded_or_not(
    unpacked: Unpack, tmp_path: Path, msprobe: str, has_tree: bool
) -> None:
    whole = unpacked("msit/llama4_golden_fp32")
    golden = whole if has_tree else without_tree(whole, tmp_path / "cut")
    dumps = open_dump(golden), open_dump(unpacked(f"msprobe/{msprobe}") / "golden")
    both = [read_slice(dump, dump.slices[0]) for dump in dumps]
    for plan in (
        match_slices(both[0], both[1], MatchingRules()),
        match_slices(both[1], both[0], MatchingRules()),
    ):
        paths = {node.name: node.path for side in both for node in side.nodes}
        matched = [(paths[match.golden[0]], paths[match.target[0]]) for match in plan.matches]
        assert all(golden == target for golden, target in matched)
        assert {"model.layers.3.mlp.down_proj", "lm_head", "model.embed_tokens"} <= {
            one for one, _ in matched
        }
        assert {"root", "root.model.layers"} in (set(plan.unmatched_golden), set(plan.unmatched_target))
