"""What is promised of mapping files and of modules that were fused."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from library.matching.made_models import Call, Written, models, write
from mapping_reading import read_mapping
from msgspec.structs import replace

from firstdrift import Options, compare
from firstdrift.dumps.detect import open_dump
from firstdrift.matching.manual.mapping import MappingEntry, MappingFile, MappingKind
from firstdrift.matching.match import match_slices
from firstdrift.matching.plan import Joining, MatchingRules, Origin, SlicePlan
from firstdrift.matching.tensors import BY_MAPPING
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Slice, SliceListing
from firstdrift.model.tensor import Role, Statistics, TensorRecord
from firstdrift.parallel.slices import read_slice
from firstdrift.wording.message import Message

Unpack = Callable[[str], Path]
MAPPINGS = Path(__file__).parents[2] / "mappings"

CASES = [
    ("qwen2_layermap_stat_L0_clean", "golden", "target", "layer_mapping_qwen2.yaml"),
    ("qwen2_layermap_stat_L0_clean", "target", "golden", "layer_mapping_qwen2_reversed.yaml"),
    ("qwen2_layermap_stat_mix", "golden", "target", "layer_mapping_qwen2.yaml"),
    ("qwen2_layermap_stat_mix", "target", "golden", "layer_mapping_qwen2_reversed.yaml"),
    ("qwen25vl_layermap_stat_mix", "golden", "target", "layer_mapping_qwen25vl.yaml"),
    ("qwen25vl_layermap_stat_mix", "target", "golden", "layer_mapping_qwen25vl_reversed.yaml"),
]

WITHOUT_COUNTERPART = {
    "SiLUActivation": "the other side calls an operator",
    "GELU": "the other side calls an operator",
    "DotProductAttention": "the other side computes it in the attention itself",
    "Dropout": "the other side has no dropout of embeddings",
    "LanguageModelEmbedding": "holds what corresponds to embed_tokens, and the dropout",
    "TransformerBlock": "holds the layers, which the other side has in the model itself",
    "Qwen2VLVisionTransformerBlock": "holds the blocks, likewise",
    "Qwen2VLViT": "holds the vision tower without its merger",
}


def read(folder: Path) -> Slice:
    dump = open_dump(folder)
    return read_slice(dump, dump.slices[0])


def rules(*names: str) -> MatchingRules:
    return MatchingRules(mappings=tuple(read_mapping(MAPPINGS / name) for name in names))


def said(kind: MappingKind, *entries: tuple[str, str]) -> MatchingRules:
    listed = tuple(MappingEntry(line, one, (other,)) for line, (one, other) in enumerate(entries, start=1))
    return MatchingRules(mappings=(MappingFile("said.yaml", kind, listed),))


def partners(plan: SlicePlan) -> dict[str, tuple[str, ...]]:
    return {name: match.golden for match in plan.matches for name in match.target}


@pytest.mark.parametrize(("dump", "golden", "target", "mapping"), CASES)
def test_no_module_is_left_over_that_has_a_counterpart(
    unpacked: Unpack, dump: str, golden: str, target: str, mapping: str
) -> None:
    folder = unpacked(f"msprobe/{dump}")
    sides = read(folder / golden), read(folder / target)
    plan = match_slices(*sides, rules(mapping))
    left = {*plan.unmatched_golden}, {*plan.unmatched_target}
    for side, names in zip(sides, left, strict=True):
        modules = [node for node in side.nodes if node.name in names and node.kind is not NodeKind.API]
        assert {node.type_name for node in modules} <= WITHOUT_COUNTERPART.keys()
    assert plan.notes == ()


@pytest.mark.parametrize(("dump", "golden", "target", "mapping"), CASES[:2])
def test_identical_weights_give_no_finding(
    unpacked: Unpack, dump: str, golden: str, target: str, mapping: str
) -> None:
    folder = unpacked(f"msprobe/{dump}")
    report = compare(folder / golden, folder / target, Options(matching=rules(mapping)))
    assert report.findings.first_bad_node is None
    assert report.findings.suspects == ()
    assert report.counts.error == report.counts.warning == 0
    assert report.counts.passed > 200


@pytest.mark.parametrize(
    ("case", "module"),
    [
        *zip(
            CASES[2:],
            (
                "0.module.module.decoder.layers.2.mlp.linear_fc2",
                "module.model.layers.2.mlp.down_proj",
                "0.module.module.image_encoder.encoder.blocks.layers.0.self_attention.linear_proj",
                "module.model.visual.blocks.0.attn.proj",
            ),
            strict=True,
        )
    ],
)
def test_the_planted_fault_is_the_first_bad_node_across_frameworks(
    unpacked: Unpack, case: tuple[str, str, str, str], module: str
) -> None:
    dump, golden, target, mapping = case
    folder = unpacked(f"msprobe/{dump}")
    report = compare(folder / golden, folder / target, Options(matching=rules(mapping)))
    assert report.findings.first_bad_node is not None
    assert report.findings.first_bad_node.module == module


def test_fused_modules_are_matched_with_all_their_parts(unpacked: Unpack) -> None:
    folder = unpacked("msprobe/qwen2_layermap_stat_L0_clean")
    plan = match_slices(read(folder / "golden"), read(folder / "target"), rules("layer_mapping_qwen2.yaml"))
    found = partners(plan)
    for layer in range(4):
        inside, known = (
            f"Module.0.module.module.decoder.layers.{layer}",
            f"Module.module.model.layers.{layer}",
        )
        for direction in ("forward.0", "backward.0", "parameters_grad.0"):
            assert found[f"{inside}.self_attention.linear_qkv.ColumnParallelLinear.{direction}"] == tuple(
                f"{known}.self_attn.{part}_proj.Linear.{direction}" for part in "qkv"
            )
            assert found[f"{inside}.mlp.linear_fc1.ColumnParallelLinear.{direction}"] == tuple(
                f"{known}.mlp.{part}_proj.Linear.{direction}" for part in ("gate", "up")
            )
    joined = [pair for pair in plan.pairs if pair.joining is Joining.CONCATENATED]
    assert {pair.golden.shape for pair in joined} == {pair.target.shape for pair in joined}
    assert Counter(pair.target.role for pair in joined) == {
        Role.OUTPUT: 8, Role.PARAMETER: 12, Role.INPUT: 8, Role.GRADIENT: 12
    }  # fmt: skip
    outputs = {pair.transform for pair in joined if pair.golden.role is Role.OUTPUT}
    joined_last = "matching.transform.joined_last"
    assert outputs == {
        (Message.of(joined_last, parts=("q_proj", "k_proj", "v_proj")),),
        (Message.of(joined_last, parts=("gate_proj", "up_proj")),),
    }


def test_reasons_say_file_and_line(unpacked: Unpack) -> None:
    folder = unpacked("msprobe/qwen2_layermap_stat_L0_clean")
    plan = match_slices(read(folder / "golden"), read(folder / "target"), rules("layer_mapping_qwen2.yaml"))
    by_name = {match.target[0]: match for match in plan.matches}
    down = by_name["Module.0.module.module.decoder.layers.3.mlp.linear_fc2.RowParallelLinear.forward.0"]
    assert down.origin is Origin.MAPPING
    assert [reason.arguments for reason in down.reasons] == [
        {
            "file": "layer_mapping_qwen2.yaml",
            "line": 22,
            "scope": "MLP",
            "target": "linear_fc2",
            "golden": ("down_proj",),
        }
    ]


def test_names_of_tensors_are_matched_as_said(unpacked: Unpack) -> None:
    folder = unpacked("msprobe/llama_stat_mix_perturb")
    plan = match_slices(read(folder / "golden"), read(folder / "target"), rules("data_mapping_llama.yaml"))
    found = partners(plan)
    assert found["Functional.linear.0.forward"] == ("Functional.linear.7.forward",)
    assert found["Functional.linear.0.backward"] != found["Functional.linear.0.forward"]
    q_proj = "Module.model.layers.{}.self_attn.q_proj.Linear.forward.0"
    assert found[q_proj.format(0)] == (q_proj.format(1),)
    assert plan.notes == ()


def test_tensors_of_other_keys_are_paired_as_said_and_what_is_missing_is_noted() -> None:
    golden = write((Call("a", "Linear"),), backward=False)
    target = write((Call("b", "Linear"),), backward=False)
    other = TensorRecord(Role.OUTPUT, "1", "float32", (2, 16, 64), Statistics(1, 0, 0, 1))
    golden.nodes[0] = replace(golden.nodes[0], tensors=(*golden.nodes[0].tensors, other))
    chosen = said(
        MappingKind.DATA,
        ("Module.b.Linear.forward.0.output.0", "Module.a.Linear.forward.0.output.1"),
        ("Module.b.Linear.forward.0.output.7", "Module.a.Linear.forward.0.output.0"),
        ("Module.c.Linear.forward.0.output.0", "Module.a.Linear.forward.0.output.0"),
    )
    plan = match_slices(golden.slice, target.slice, chosen)
    pairs = {(pair.golden.label, pair.target.label): pair.transform for pair in plan.pairs}
    assert pairs == {("output.1", "output.0"): (BY_MAPPING,), ("input.0", "input.0"): ()}
    assert unused(plan) == [(2, "no_tensor"), (3, "absent")]


def unused(plan: SlicePlan) -> list[tuple[object, str]]:
    """Return the line of each entry that matched nothing, and why."""
    found = []
    for note in plan.notes:
        entry, why = note.arguments["entry"], note.arguments["why"]
        assert isinstance(entry, Message)
        assert isinstance(why, Message)
        found.append((entry.arguments["line"], why.id.removeprefix("matching.mapping.")))
    return found


CELLS = write((Call("net", "Cell", (Call("fc1", "Dense"), Call("fc2", "Dense"))),))
MODULES = write((Call("net", "Module", (Call("lin1", "Linear"), Call("fc2", "Linear"))),))


@pytest.mark.parametrize(
    "entries",
    [
        (("net.fc1.Dense", "net.lin1.Linear"), ("net.fc2.Dense", "net.fc2.Linear")),
        (("Dense", "Linear"), ("fc1", "lin1")),
    ],
    ids=["whole names", "parts of names"],
)
def test_cell_mappings_of_both_forms_are_applied(entries: tuple[tuple[str, str], ...]) -> None:
    chosen = replace(said(MappingKind.CELL, *entries, ("none", "some")), structure=False)
    plan = match_slices(MODULES.slice, CELLS.slice, chosen)
    found = partners(plan)
    for direction in ("forward.0", "backward.0"):
        assert found[f"Module.net.fc1.Dense.{direction}"] == (f"Module.net.lin1.Linear.{direction}",)
        assert found[f"Module.net.fc2.Dense.{direction}"] == (f"Module.net.fc2.Linear.{direction}",)
    assert unused(plan) == [(3, "no_target_name")]


def layers(name: str, class_name: str, count: int) -> Written:
    return write(tuple(Call(f"layers.{at}", "Layer", (Call(name, class_name),)) for at in range(count)))


def test_operator_types_with_underscores_are_matched_layer_by_layer() -> None:
    golden, target = layers("mlp", "Llama_MLP", 3), layers("ffn", "Gate_Up", 3)
    chosen = replace(
        said(MappingKind.OPERATOR, ("Gate_Up_outtensor0", "Llama_MLP_output_0"), ("None", "Llama_MLP")),
        structure=False,
    )
    plan = match_slices(golden.slice, target.slice, chosen)
    found = partners(plan)
    for at in range(3):
        assert found[f"Module.layers.{at}.ffn.Gate_Up.forward.0"] == (
            f"Module.layers.{at}.mlp.Llama_MLP.forward.0",
        )
    assert unused(plan) == [(2, "absent")]


def test_operator_types_of_unequal_number_are_not_matched_and_that_is_noted() -> None:
    golden, target = layers("mlp", "MLP", 2), layers("ffn", "Gate", 3)
    chosen = replace(said(MappingKind.OPERATOR, ("Gate", "MLP")), structure=False)
    plan = match_slices(golden.slice, target.slice, chosen)
    assert partners(plan)["Module.layers.1.ffn.Gate.forward.0"]
    none = match_slices(layers("mlp", "Other", 2).slice, target.slice, chosen)
    assert unused(none) == [(1, "other_counts")]
    counts = {"layer": 0, "target": 1, "target_type": "Gate", "golden": 0, "golden_type": "MLP"}
    why = none.notes[0].arguments["why"]
    assert isinstance(why, Message)
    assert why.arguments == counts


def attention(*parts: tuple[str, int], statistics: dict[str, Statistics] | None = None) -> Slice:
    calls = tuple(
        Call(name, "Linear", shape=(2, 16, size), number=at) for at, (name, size) in enumerate(parts)
    )
    written = write((Call("attn", "Attention", (*calls, Call("o_proj", "Linear", number=9))),))
    nodes = []
    for node in written.nodes:
        first, second = node.tensors
        if node.path.count(".") and node.direction is Direction.FORWARD:
            first = replace(first, shape=(2, 16, 64))
            second = replace(second, statistics=(statistics or {}).get(node.path, second.statistics))
        nodes.append(replace(node, tensors=(first, second)))
    return replace(written.slice, nodes=tuple(nodes))


SEPARATE = (("q_proj", 64), ("k_proj", 32), ("v_proj", 32))


@pytest.mark.parametrize("name", ["qkv_proj", "W_pack", "query_key_value", "linear_qkv", "c_attn"])
def test_fused_projections_are_found_by_name_and_shape_on_either_side(name: str) -> None:
    fused = f"Module.attn.{name}.Linear.forward.0"
    parts = tuple(f"Module.attn.{part}.Linear.forward.0" for part, _ in SEPARATE)
    plan = match_slices(attention(*SEPARATE), attention((name, 128)), MatchingRules())
    assert partners(plan)[fused] == parts
    back = match_slices(attention((name, 128)), attention(*SEPARATE), MatchingRules())
    match = next(match for match in back.matches if match.golden == (fused,))
    assert match.target == parts
    output = next(pair for pair in back.pairs if pair.target_parts and pair.golden_node == fused)
    assert [part.shape for part in output.target_parts] == [(2, 16, 64), (2, 16, 32), (2, 16, 32)]
    assert output.target.shape == (2, 16, 128)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_tensor_said_of_one_operator_of_what_was_fused_matches_all_of_them(reverse: bool) -> None:
    def linear(name: str, size: int, number: int) -> Call:
        inner = Call("Functional.linear", shape=(2, 16, size), number=number)
        return Call(name, "Linear", (inner,), (2, 16, size), number)

    apart = write((Call("mlp", "MLP", (linear("gate_proj", 32, 1), linear("up_proj", 32, 2))),)).slice
    fused = write((Call("mlp", "MLP", (linear("gate_up_proj", 64, 3),)),)).slice
    item = "Functional.linear.0.forward.input.0"
    sides = (fused, apart) if reverse else (apart, fused)
    plan = match_slices(*sides, said(MappingKind.DATA, (item, item)))
    operators = tuple(f"Functional.linear.{at}.forward" for at in range(2))
    both = (operators, operators[:1])
    assert (both[::-1] if reverse else both) in {(match.golden, match.target) for match in plan.matches}
    assert plan.notes == ()
    alone = write((Call("Functional.linear"),)).slice
    plan = match_slices(alone, alone, said(MappingKind.DATA, (item, item)))
    assert partners(plan)[operators[0]] == operators[:1]


@pytest.mark.parametrize("reverse", [False, True])
def test_what_stands_between_parts_is_matched_with_what_follows_the_whole(reverse: bool) -> None:
    apart = (("gate_proj", 32), ("act_fn", 32), ("up_proj", 32))
    fused = (("gate_up_proj", 64), ("activation_fn", 32))
    sides = attention(*apart), attention(*fused)
    plan = match_slices(*(reversed(sides) if reverse else sides), MatchingRules())
    found = {(*match.golden, *match.target) for match in plan.matches}
    act = tuple(f"Module.attn.{name}.Linear.forward.0" for name in ("act_fn", "activation_fn"))
    assert (act[::-1] if reverse else act) in found
    assert (*plan.unmatched_golden, *plan.unmatched_target) == ()


def test_what_does_not_join_is_not_held_to_be_fused() -> None:
    plan = match_slices(attention(*SEPARATE), attention(("qkv_proj", 96)), MatchingRules())
    assert all(len(match.golden) == len(match.target) == 1 for match in plan.matches)


def test_a_whole_of_unknown_name_is_found_by_its_values() -> None:
    parts = {
        f"attn.{name}": Statistics(1.0 + at, -2.0, 0.1 * at, 10.0) for at, (name, _) in enumerate(SEPARATE)
    }
    whole = {"attn.mixed": Statistics(3.0, -2.0, (0.1 * 32 + 0.2 * 32) / 128, 300**0.5)}
    other = {"attn.mixed": Statistics(5.0, -2.0, 0.0, 99.0)}
    golden = attention(*SEPARATE, statistics=parts)
    plan = match_slices(golden, attention(("mixed", 128), statistics=whole), MatchingRules())
    assert len(partners(plan)["Module.attn.mixed.Linear.forward.0"]) == 3
    plan = match_slices(golden, attention(("mixed", 128), statistics=other), MatchingRules())
    assert len(partners(plan).get("Module.attn.mixed.Linear.forward.0", ())) < 2


@settings(deadline=None, max_examples=60)
@given(golden=models(), target=models())
def test_whatever_a_mapping_says_every_node_is_in_one_match_or_left_over(
    golden: tuple[Call, ...], target: tuple[Call, ...]
) -> None:
    sides = write(golden).slice, write(target).slice
    entries = [
        MappingEntry(1, "part_a", ("part_b",), "TopLayer"),
        MappingEntry(2, "part_b", ("part_a.part_a",), "MLP"),
        MappingEntry(3, "part_c.part_a", ("part_a",), "Norm"),
    ]
    mapping = MappingFile("drawn.yaml", MappingKind.LAYER, tuple(entries))
    plan = match_slices(*sides, MatchingRules(mappings=(mapping,)))
    for side, matched, left in (
        (sides[0], [name for match in plan.matches for name in match.golden], plan.unmatched_golden),
        (sides[1], [name for match in plan.matches for name in match.target], plan.unmatched_target),
    ):
        assert sorted((*matched, *left)) == sorted(node.name for node in side.nodes)


def test_outputs_and_layers_of_absurd_numbers_match_nothing_and_harm_nothing(tmp_path: Path) -> None:
    long = "9" * 5000
    said = {"Linear_outtensor0": [f"Dense_output_{long}"], "Linear": ["Dense"]}
    (tmp_path / "op_mapping_file.json").write_text(json.dumps(said))
    mapping = read_mapping(tmp_path)
    nodes = tuple(
        Node(name, f"layers.{long}.x", NodeKind.MODULE, kind, Direction.FORWARD, 0, at, None, ())
        for at, (name, kind) in enumerate([("a", "Linear"), ("b", "Dense")])
    )
    dumped = Slice(SliceListing(Coordinates(), tmp_path), nodes)
    assert len(match_slices(dumped, dumped, MatchingRules(mappings=(mapping,))).matches) == 2
