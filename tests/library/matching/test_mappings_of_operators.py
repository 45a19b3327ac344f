"""What mapping files say of operators: layer, data and API mappings, and one that says nothing."""

from pathlib import Path

import pytest
from library.matching.made_mindspore import LAYER_MAPPING, write_both
from library.matching.made_models import Call, write
from mapping_reading import read_mapping
from messages import outline
from msgspec.structs import replace

from firstdrift.dumps.detect import open_dump
from firstdrift.errors import SettingsError
from firstdrift.matching.manual.mapping import MappingEntry, MappingKind
from firstdrift.matching.manual.mapping_files import parse_mapping
from firstdrift.matching.match import match_slices
from firstdrift.matching.plan import MatchingRules, Origin, SlicePlan
from firstdrift.matching.tensors import BY_MAPPING
from firstdrift.model.slice import Slice
from firstdrift.model.tensor import Role, Statistics, TensorRecord
from firstdrift.parallel.slices import read_slice

MODULE = "Module.mlp.MLP.forward.0"


def read(folder: Path) -> Slice:
    dump = open_dump(folder)
    return read_slice(dump, dump.slices[0])


def matched(text: str, golden: Slice, target: Slice, **others: bool) -> SlicePlan:
    mapping = parse_mapping(Path("mapping.yaml"), text)
    return match_slices(golden, target, MatchingRules(mappings=(mapping,), **others))


def partners(plan: SlicePlan) -> dict[str, str]:
    return {name: match.golden[0] for match in plan.matches for name in match.target if match.golden}


def pairs_of(plan: SlicePlan, node: str) -> dict[str, str]:
    """Return the label of the golden tensor by that of the target tensor, of one target node."""
    return {pair.target.label: pair.golden.label for pair in plan.pairs if pair.target_node == node}


def reasons(plan: SlicePlan) -> list[str]:
    return [outline(note) for note in plan.notes]


def test_a_layer_mapping_names_operators_of_other_libraries(tmp_path: Path) -> None:
    golden, target = map(read, write_both(tmp_path))
    plan = matched(LAYER_MAPPING, golden, target)
    found = partners(plan)
    assert found["Mint.logical_or.0.forward"] == "Tensor.__or__.0.forward"
    assert found["Primitive.norm.RmsNorm.0.forward"] == "NPU.npu_rms_norm.0.forward"
    for direction in ("forward", "backward"):
        attention = f"Functional.flash_attention_score.0.{direction}"
        assert found[attention] == f"NPU.npu_fusion_attention.0.{direction}"
    by_mapping = {
        match.target[0] for match in plan.matches if match.origin is Origin.MAPPING and match.target
    }
    assert "Mint.logical_or.0.forward" in by_mapping
    assert found["Tensor.__add__.1.forward"] == "Tensor.__add__.0.forward"
    assert "Tensor.__add__.0.forward" not in found
    assert plan.notes == ()


_EMBEDDING = "language_model.embedding.word_embeddings.VocabParallelEmbedding.forward.0"
_LAYER = "language_model.encoder.layers.0"
_CELL, _MODULE = f"Cell.network_with_loss.module.{_LAYER}", f"Module.module.module.{_LAYER}"

OF_UPSTREAM: list[tuple[str, str | None, str, str]] = [
    # target node, golden node, labels of tensors that are the same, labels that have no partner
    ("Tensor.__add__.0.forward", None, "", "input.0 input.1 output.0"),
    ("Tensor.__bool__.1.forward", None, "", "input.0 output.0"),
    ("Tensor.__add__.1.forward", "Tensor.__add__.0.forward", "input.0 input.1 output.0", ""),
    ("Mint.logical_or.0.forward", "Tensor.__or__.0.forward", "input.0 input.1 output.0", ""),
    (
        "Distributed.all_reduce.0.forward",
        "Distributed.all_reduce.0.forward",
        "input.0 input.group output.0 output.1",
        "",
    ),
    (
        f"Cell.network_with_loss.module.{_EMBEDDING}",
        f"Module.module.module.{_EMBEDDING}",
        "input.0 output.0",
        "",
    ),
    (
        "Primitive.norm.RmsNorm.0.forward",
        "NPU.npu_rms_norm.0.forward",
        "input.0 input.1 output.0 output.1",
        "",
    ),
    (
        f"{_CELL}.ParallelTransformerLayer.forward.0",
        f"{_MODULE}.ParallelTransformerLayer.forward.0",
        "input.0 output.0",
        "",
    ),
    (f"{_CELL}.input_norm.FusedRMSNorm.backward.0", None, "", "input.0 output.0"),
    (
        f"{_CELL}.attention.ParallelAttention.forward.0",
        f"{_MODULE}.self_attention.ParallelAttention.forward.0",
        "output.0 output.1",
        "",
    ),
    ("Mint.cos.0.forward", "Torch.cos.0.forward", "input.0 output.0", ""),
    (
        "Functional.flash_attention_score.0.forward",
        "NPU.npu_fusion_attention.0.forward",
        "input.0 input.1 input.2 input.3 output.0",
        "input.attn_mask input.scalar_value input.pre_tokens input.next_tokens input.input_layout",
    ),
    (
        "Functional.flash_attention_score.0.backward",
        "NPU.npu_fusion_attention.0.backward",
        "input.0 output.0 output.1 output.2 output.3",
        "",
    ),
]
"""What msprobe's own test of layer mappings expects: 13 pairs of operators and modules, 44 of tensors."""


@pytest.fixture
def as_upstream(tmp_path: Path) -> SlicePlan:
    """Return what is matched of dumps as those of msprobe's own test, by the mapping of that test."""
    return matched(LAYER_MAPPING, *map(read, write_both(tmp_path, ("input_norm.FusedRMSNorm.forward.0",))))


def test_the_list_of_upstream_has_13_nodes_and_44_tensors() -> None:
    labels = [label for _, _, same, alone in OF_UPSTREAM for label in (*same.split(), *alone.split())]
    assert (len(OF_UPSTREAM), len(labels)) == (13, 44)


@pytest.mark.parametrize(("target", "golden", "same", "alone"), OF_UPSTREAM)
def test_a_layer_mapping_matches_what_the_test_of_upstream_expects(
    as_upstream: SlicePlan, target: str, golden: str | None, same: str, alone: str
) -> None:
    assert partners(as_upstream).get(target) == golden
    assert pairs_of(as_upstream, target) == {label: label for label in same.split()}
    held = {tensor.record.label for tensor in as_upstream.unmatched_target_tensors if tensor.node == target}
    if golden is None:
        assert target in as_upstream.unmatched_target
    else:
        assert held == set(alone.split())


def calls(*names: str) -> Slice:
    """Return a slice of a module that calls operators."""
    inner = tuple(Call(name, number=at) for at, name in enumerate(names, start=1))
    return write((Call("mlp", "MLP", inner),)).slice


def test_the_calls_of_one_module_are_matched_in_order() -> None:
    golden, target = calls("Torch.a", "Torch.b", "Torch.a"), calls("Mint.x", "Mint.x", "Mint.y")
    plan = matched("MLP:\n  x: a\n", golden, target, structure=False)
    assert [partners(plan).get(f"Mint.x.{at}.forward") for at in (0, 1)] == [
        "Torch.a.0.forward",
        "Torch.a.1.forward",
    ]
    assert "Mint.y.0.forward" not in partners(plan)


def test_the_function_that_called_an_operator_may_stand_between() -> None:
    plan = matched("MLP:\n  x: softmax_core.a\n", calls("Torch.a"), calls("Mint.x"), structure=False)
    assert partners(plan)["Mint.x.0.forward"] == "Torch.a.0.forward"


def test_an_operator_that_is_not_there_is_noted() -> None:
    plan = matched("MLP:\n  x: none\n  y: a\n", calls("Torch.a"), calls("Mint.x"), structure=False)
    assert len(plan.notes) == 2
    assert "absent" in reasons(plan)[0]
    assert "no_target_path" in reasons(plan)[1]


def test_a_data_mapping_with_equal_labels_pairs_arguments_of_operators_of_other_names() -> None:
    golden, target = calls("Torch.a"), calls("Mint.x")
    assert pairs_of(matched("Mint.x.0.forward: Torch.a.0.forward\n", golden, target), "Mint.x.0.forward") == {
        "output.0": "output.0"
    }
    plan = matched("Mint.x.0.forward.input.0: Torch.a.0.forward.input.0\n", golden, target)
    assert pairs_of(plan, "Mint.x.0.forward") == {"input.0": "input.0", "output.0": "output.0"}
    transforms = [pair.transform for pair in plan.pairs if pair.target_node == "Mint.x.0.forward"]
    assert transforms == [(BY_MAPPING,), ()]


def with_inputs(of: Slice, count: int) -> Slice:
    """Give each operator of a slice so many inputs."""
    inputs = tuple(
        TensorRecord(Role.INPUT, str(key), "float32", (2, 16, 64), Statistics(1.0, 0.0, 0.1 * key, 5.0 + key))
        for key in range(count)
    )
    return replace(
        of,
        nodes=tuple(
            replace(node, tensors=(*inputs, node.tensors[-1])) if "forward" in node.name else node
            for node in of.nodes
        ),
    )


APIS = """\
- ms_api: Mint.x
  pt_api: Torch.a
  ms_args: [0, 1]
  pt_args: [1, 0]
  ms_output: [0]
  pt_output: [0]
"""


def test_an_api_mapping_says_which_operators_and_which_of_their_tensors_are_the_same() -> None:
    golden, target = with_inputs(calls("Torch.a", "Torch.a"), 3), with_inputs(calls("Mint.x", "Mint.x"), 3)
    plan = matched(APIS, golden, target, structure=False)
    for at in (0, 1):
        assert partners(plan)[f"Mint.x.{at}.forward"] == f"Torch.a.{at}.forward"
        assert partners(plan)[f"Mint.x.{at}.backward"] == f"Torch.a.{at}.backward"
        labels = {"input.0": "input.1", "input.1": "input.0", "output.0": "output.0"}
        assert pairs_of(plan, f"Mint.x.{at}.forward") == labels  # input.2 is in no list
    assert plan.notes == ()


def test_without_lists_all_tensors_of_equal_keys_are_the_same() -> None:
    golden, target = with_inputs(calls("Torch.a"), 2), with_inputs(calls("Mint.x"), 2)
    plan = matched("- {ms_api: Mint.x, pt_api: Torch.a}\n", golden, target)
    shared = pairs_of(plan, "Mint.x.0.forward")
    assert shared == {label: label for label in ("input.0", "input.1", "output.0")}


def test_what_an_api_mapping_cannot_match_is_noted() -> None:
    text = (
        "- {ms_api: Mint.x, pt_api: Torch.a, ms_args: [7], pt_args: [0]}\n"
        "- {ms_api: Mint.none, pt_api: Torch.a}\n"
        "- {ms_api: Mint.y, pt_api: Torch.none}\n"
        "- {ms_api: Mint.y, pt_api: Torch.b}\n"
    )
    golden, target = calls("Torch.a", "Torch.b", "Torch.b"), calls("Mint.x", "Mint.y")
    said = reasons(matched(text, golden, target, structure=False))
    kinds = ("no_tensor", "absent", "absent", "other_numbers_of_calls")
    assert len(said) == len(kinds)
    assert all(kind in one for kind, one in zip(kinds, said, strict=True))


def test_entries_of_an_api_mapping_know_their_lines() -> None:
    mapping = parse_mapping(Path("api.yaml"), APIS)
    assert mapping.kind is MappingKind.API
    assert mapping.entries[:2] == (
        MappingEntry(1, "Mint.x", ("Torch.a",)),
        MappingEntry(1, "input.0", ("input.1",), "Mint.x"),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- {ms_api: a}\n", "at_line 1 no_key pt_api"),
        ("- {ms_api: a, pt_api: b, ms_args: [0]}\n", "at_key 1 quoted 'a' unequal_lists ms_args pt_args"),
        ("- {ms_api: a, pt_api: b, args: [0]}\n", "at_key 1 quoted 'args' unknown_key"),
        ("- {ms_api: a, pt_api: b}\n- c\n", "at_line 2 mapping_expected text quoted 'c'"),
        ("- {ms_api: a, pt_api: [b]}\n", "at_key 1 quoted 'pt_api' holds_no_name list"),
    ],
)
def test_what_is_wrong_with_an_api_mapping_is_said(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "api.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        read_mapping(path)
    assert outline(caught.value.message) == said


@pytest.mark.parametrize("may_quote", [True, False])
def test_an_empty_mapping_says_nothing_and_that_is_noted(may_quote: bool) -> None:
    mapping = parse_mapping(Path("empty.yaml"), "{}\n", may_quote=may_quote)
    assert mapping.entries == ()
    golden = calls("Torch.a")
    plan = match_slices(golden, golden, MatchingRules(mappings=(mapping,)))
    assert reasons(plan) == ["says_nothing empty.yaml"]
    assert partners(plan)[MODULE] == MODULE
