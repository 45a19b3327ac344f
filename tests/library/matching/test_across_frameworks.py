"""What is promised of matching a torch module tree with an ATB topology, whatever the model is like."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from library.matching.made_frameworks import Model, Writer, atb_of, torch_of, wrong_pairs
from msgspec.structs import replace

from firstdrift.matching.match import match_slices
from firstdrift.matching.plan import Joining, MatchingRules, SlicePlan
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Slice, SliceListing
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.verdict.tree import build_rows

CONTAINERS = {"root", "root.model", "root.model.layers", "root.model.encoder", "root.visual.blocks"}
OTHER_NAMES = {
    "LinearOperation": "MyDense",
    "LinearNoQuant": "Dense",
    "RmsNormOperation": "FastNorm",
    "Attention": "Attn",
    "MlpGateUpWeightPack": "FFN",
    "Decoder_layer": "Block",
    "SelfAttentionOperation": "FlashAttentionScore",
    "GatherOperation": "EmbeddingLookup",
}


def plan_of(golden: Writer, target: Writer) -> SlicePlan:
    return match_slices(golden.slice, target.slice, MatchingRules())


def left_of_atb(plan: SlicePlan) -> set[str]:
    """Return the types of operations left over; of all models, those that fill the cache are."""
    return {name.rpartition("_")[2] for name in plan.unmatched_target} - {"ReshapeAndCacheOperation"}


def matched_with(plan: SlicePlan, target: str) -> tuple[str, ...]:
    return next(match.golden for match in plan.matches if target in match.target)


@pytest.mark.parametrize("statistics", [False, True])
@pytest.mark.parametrize(
    "model",
    [
        Model(layers=1),
        Model(layers=4),
        Model(layers=13),
        Model(key_value=32),
        Model(inner=32),
        Model(gated=False),
        Model(encoder=3, layers=2),
        Model(query_norm=True),
        Model(alibi=True, gated=False, key_value=32),
        Model(vision=2, layers=3),
        Model(vision=1, layers=1),
    ],
    ids=str,
)
def test_every_operation_is_matched_with_what_has_its_values(model: Model, statistics: bool) -> None:
    torch, atb = torch_of(model, statistics=statistics), atb_of(model, statistics=statistics)
    plan = plan_of(torch, atb)
    assert wrong_pairs(plan, torch, atb) == []
    assert left_of_atb(plan) == set()
    assert set(plan.unmatched_golden) <= CONTAINERS
    assert not any(match.doubtful for match in plan.matches)
    assert all(pair.incomparable is None for pair in plan.pairs)


@pytest.mark.parametrize(
    ("model", "apart", "left"),
    [
        (Model(), True, set()),
        (Model(parallel=True), False, {"ElewiseOperation"}),  # the sum of the two blocks is in no module
        (Model(experts=8), False, {"GatingOperation", "GroupedMatmulOperation"}),  # inside one torch module
    ],
    ids=["nothing", "a sum", "experts"],
)
def test_what_only_one_framework_has_is_left_over(model: Model, apart: bool, left: set[str]) -> None:
    torch, atb = torch_of(model), atb_of(model, apart=apart)
    plan = plan_of(torch, atb)
    assert wrong_pairs(plan, torch, atb) == []
    assert left_of_atb(plan) == left
    assert set(plan.unmatched_golden) <= CONTAINERS


@pytest.mark.parametrize("layers", [1, 3])
def test_experts_are_no_layers_and_their_block_is_matched_as_a_whole(layers: int) -> None:
    model = Model(layers=layers, experts=4, listed=True)
    torch, atb = torch_of(model), atb_of(model)
    plan = plan_of(torch, atb)
    assert wrong_pairs(plan, torch, atb) == []
    assert matched_with(plan, "2_Decoder_layer/2_Moe") == ("root.model.layers.0.mlp",)
    assert all("experts" in name for name in set(plan.unmatched_golden) - CONTAINERS)


BLOOM = Model(alibi=True, gated=False, key_value=32, fused=True)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("model", [Model(fused=True), BLOOM], ids=["rotary", "bloom"])
def test_a_fused_torch_module_is_held_against_its_parts(model: Model, apart: bool) -> None:
    torch, atb = torch_of(model), atb_of(model, apart=apart)
    plan = plan_of(torch, atb)
    assert wrong_pairs(plan, torch, atb) == []
    joined = [pair for pair in plan.pairs if "query_key_value" in pair.golden_node and pair.target_parts]
    assert [pair.joining for pair in joined] == [Joining.CONCATENATED] * 2
    assert all(len(pair.target_parts) == 3 for pair in joined)


@pytest.mark.parametrize("statistics", [False, True])
def test_operations_are_known_by_what_they_do_and_not_by_the_names_of_one_library(statistics: bool) -> None:
    torch = torch_of(Model(), statistics=statistics)
    atb = atb_of(Model(), statistics=statistics, rename=OTHER_NAMES)
    plan = plan_of(torch, atb)
    assert wrong_pairs(plan, torch, atb) == []
    assert left_of_atb(plan) == set()


@pytest.mark.parametrize("statistics", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("at_once", "told"), [(False, True), (False, False), (True, True), (True, False)])
def test_an_activation_of_the_gate_alone_is_told_from_one_that_multiplies(
    statistics: bool, packed: bool, at_once: bool, told: bool
) -> None:
    torch = torch_of(Model(packed=packed), statistics=statistics)
    atb = atb_of(Model(), statistics=statistics, at_once=at_once, told=told)
    for golden, target in ((torch, atb), (atb, torch)):
        plan = plan_of(golden, target)
        assert wrong_pairs(plan, golden, target) == []
        left = (*plan.unmatched_golden, *plan.unmatched_target)
        assert not any("ActivationOperation" in name for name in left)
        both = {name for match in plan.matches for name in match.golden if match.target}
        assert any(name.endswith(("act_fn", "_ActivationOperation")) for name in both) is not at_once


def test_of_unequal_numbers_of_layers_values_tell_which_is_missing() -> None:
    model = Model(layers=5)
    torch, atb = torch_of(model, statistics=True), atb_of(model, statistics=True, without=frozenset({2}))
    plan = plan_of(torch, atb)
    assert wrong_pairs(plan, torch, atb) == []
    assert left_of_atb(plan) == set()
    assert all(name.startswith("root.model.layers.2") for name in set(plan.unmatched_golden) - CONTAINERS)


def test_of_unequal_numbers_of_layers_none_is_compared_where_nothing_tells() -> None:
    model = Model(layers=5)
    torch, atb = torch_of(model), atb_of(model, without=frozenset({2}))
    plan = plan_of(torch, atb)
    assert wrong_pairs(plan, torch, atb) == []
    assert not any("layers" in pair.golden_node for pair in plan.pairs)
    layers = [match for match in plan.matches if any("layers" in name for name in match.golden)]
    assert layers
    assert all(match.doubtful for match in layers)


def test_what_is_fused_and_what_stands_between_modules_is_said() -> None:
    plan = plan_of(torch_of(Model()), atb_of(Model()))
    layer, attention = "2_Decoder_layer", "root.model.layers.0.self_attn"
    parts = tuple(f"{attention}.{part}_proj" for part in "qkv")
    pack = f"{layer}/0_Attention/0_QKVLinearSplitPack"
    assert matched_with(plan, f"{pack}/1_LinearNoQuant") == parts
    assert matched_with(plan, layer) == ("root.model.layers.0",)
    assert matched_with(plan, f"{layer}/0_Attention") == (attention,)
    held = {
        pair.target_node: (pair.golden_node, pair.golden.label)
        for pair in plan.pairs
        if not matched_with(plan, pair.target_node)
    }
    assert held[f"{layer}/0_Attention/3_SelfAttentionOperation"] == (f"{attention}.o_proj", "input.0")
    assert held[f"{layer}/1_ElewiseOperation"] == ("root.model.layers.0.norm_2", "input.0")
    assert held[f"{layer}/3_ElewiseOperation"] == ("root.model.layers.0", "output.0")
    sums = {match.target: match.operands for match in plan.matches if match.operands}
    assert sums[f"{layer}/3_ElewiseOperation",] == (
        f"{layer}/1_ElewiseOperation",
        f"{layer}/2_MlpGateUpWeightPack/5_LinearNoQuant",
    )


MODELS = st.builds(
    Model,
    layers=st.integers(1, 4),
    hidden=st.sampled_from([32, 64]),
    key_value=st.sampled_from([8, 16, 32]),
    inner=st.sampled_from([32, 64, 96]),
    fused=st.booleans(),
    gated=st.booleans(),
    packed=st.booleans(),
    experts=st.sampled_from([0, 0, 4]),
    listed=st.booleans(),
    vision=st.integers(0, 2),
    encoder=st.integers(0, 2),
    parallel=st.booleans(),
    query_norm=st.booleans(),
)


@settings(deadline=None, max_examples=40)
@given(
    MODELS,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sets(st.integers(0, 3), max_size=2),
    st.booleans(),
)
def test_no_model_is_matched_wrongly_or_crosswise_or_twice(
    model: Model, statistics: bool, apart: bool, at_once: bool, without: set[int], reverse: bool
) -> None:
    torch = torch_of(model, statistics=statistics)
    atb = atb_of(model, statistics=statistics, apart=apart, at_once=at_once, without=frozenset(without))
    golden, target = (atb, torch) if reverse else (torch, atb)
    plan = plan_of(golden, target)
    assert wrong_pairs(plan, golden, target) == []
    for written, side, left in (
        (golden, "golden", plan.unmatched_golden),
        (target, "target", plan.unmatched_target),
    ):
        matched = [name for match in plan.matches for name in getattr(match, side)]
        assert Counter([*matched, *left]) == Counter(node.name for node in written.nodes)
    require_order(plan, golden, target)
    rows = build_rows(golden.slice, target.slice, plan)
    assert len(rows) == len(plan.matches) + len(plan.unmatched_golden) + len(plan.unmatched_target)


def require_order(plan: SlicePlan, golden: Writer, target: Writer) -> None:
    """Require that layers, and of each layer norms and sums, come in one order on both sides."""
    orders = [{node.name: node.order for node in side.nodes} for side in (golden, target)]
    both = [match for match in plan.matches if match.golden and match.target]
    for is_one in (_is_layer, _is_norm):
        found = [
            (orders[1][match.target[0]], orders[0][match.golden[0]])
            for match in both
            if is_one(match.golden[0]) or is_one(match.target[0])
        ]
        assert [first for _, first in sorted(found)] == sorted(first for _, first in found)


def _is_layer(name: str) -> bool:
    return name.endswith("_layer")


def _is_norm(name: str) -> bool:
    return name.endswith("RmsNormOperation")


@settings(deadline=None, max_examples=20)
@given(MODELS, st.booleans())
def test_equal_topologies_are_matched_node_by_node(model: Model, statistics: bool) -> None:
    for written in (torch_of(model, statistics=statistics), atb_of(model, statistics=statistics)):
        plan = plan_of(written, written)
        assert [match.golden for match in plan.matches] == [(node.name,) for node in written.nodes]
        assert all(match.golden == match.target for match in plan.matches)


def test_each_of_many_experts_is_matched_with_what_it_was_fused_to() -> None:
    def calls(*names: str) -> Iterator[tuple[str, int]]:
        yield "norm", 16
        for expert in range(40):
            yield from ((f"experts.{expert}.{name}", 64 // len(names)) for name in names)

    golden = _layer(calls("gate_proj", "up_proj"), "Linear", NodeKind.MODULE)
    target = _layer(calls("gate_up"), "LinearOperation", NodeKind.API)
    plan = match_slices(golden, target, MatchingRules())
    joined = [match for match in plan.matches if len(match.golden) > 1]
    assert [match.target[0] for match in joined] == [f"layers.0.experts.{at}.gate_up" for at in range(40)]
    assert [match.golden for match in joined] == [
        (f"layers.0.experts.{at}.gate_proj", f"layers.0.experts.{at}.up_proj") for at in range(40)
    ]


def test_very_long_runs_without_layers_are_aligned_in_order() -> None:
    widths = [width for at in range(1100) for width in ([8, 16] if at % 7 else [8])]
    golden = [
        _node(f"Torch.linear.{at}", "Torch.linear", NodeKind.API, None, width)
        for at, width in enumerate(widths)
    ]
    target = [
        _node(f"{at}_LinearOperation", "LinearOperation", NodeKind.API, None, width)
        for at, width in enumerate(widths)
    ]
    plan = match_slices(_slice(golden), _slice(target[3:]), MatchingRules())
    # The first that are missing in the target may be held for others of the same width.
    assert [match.golden[0] for match in plan.matches][-2000:] == [node.name for node in golden][-2000:]
    assert [match.target[0] for match in plan.matches][-2000:] == [node.name for node in target][-2000:]


def _layer(calls: Iterable[tuple[str, int]], type_name: str, kind: NodeKind) -> Slice:
    """Make a layer of one norm, and linear steps in modules of their own."""
    nodes: list[Node] = []
    for name, width in calls:
        path = f"layers.0.{name}"
        around = path.rpartition(".")[0]
        if nodes and nodes[-1].parent not in (around, "layers.0"):
            nodes.append(_node(str(nodes[-1].parent), "Expert", NodeKind.MODULE, "layers.0.experts", 16))
        is_norm = name == "norm"
        nodes.append(_node(path, "RmsNorm" if is_norm else type_name, kind, around, width))
    nodes.append(_node(str(nodes[-1].parent), "Expert", NodeKind.MODULE, "layers.0.experts", 16))
    nodes.append(_node("layers.0.experts", "Experts", NodeKind.MODULE, "layers.0", 16))
    nodes.append(_node("layers.0", f"{kind}Block", NodeKind.MODULE, None, 16))
    return _slice(nodes)


def _node(name: str, type_name: str, kind: NodeKind, parent: str | None, width: int) -> Node:
    tensors = (
        TensorRecord(Role.INPUT, "0", "float32", (4, 16)),
        TensorRecord(Role.OUTPUT, "0", "float32", (4, width)),
    )
    return Node(name, name, kind, type_name, Direction.FORWARD, 0, 0, parent, tensors)


def _slice(nodes: list[Node]) -> Slice:
    ordered = tuple(replace(node, order=at) for at, node in enumerate(nodes))
    return Slice(SliceListing(Coordinates(), Path()), ordered)
