"""What is promised of suggestions for nodes without partner, on dumps that msprobe wrote."""

from collections.abc import Callable
from pathlib import Path

import pytest
from messages import ids

from firstdrift.dumps.detect import open_dump
from firstdrift.errors import SettingsError
from firstdrift.matching.match import find_matches, match_slices
from firstdrift.matching.pairing import Pairing, start_pairing
from firstdrift.matching.plan import MatchingRules
from firstdrift.matching.structure.suggestions import Suggestion, suggest
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Slice, SliceListing
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.parallel.slices import read_slice

Unpack = Callable[[str], Path]


def work_on(folder: Path, *, structure: bool) -> Pairing:
    dumps = [open_dump(folder / side) for side in ("golden", "target")]
    golden, target = (read_slice(dump, dump.slices[0]) for dump in dumps)
    return find_matches(golden, target, MatchingRules(structure=structure))[0]


@pytest.fixture(scope="module")
def by_name(unpacked: Unpack) -> Pairing:
    """Renamed modules, of which matching by name alone leaves 46 and 50 nodes over."""
    return work_on(unpacked("msprobe/d4_renamed"), structure=False)


@pytest.fixture(scope="module")
def frameworks(unpacked: Unpack) -> Pairing:
    """Megatron against Hugging Face."""
    return work_on(unpacked("msprobe/qwen2_layermap_stat_mix"), structure=False)


def true_partner(name: str) -> str:
    """Return the golden name of a target node of the renamed dump; operators keep their order by name."""
    shifted = {"Tensor.__mul__.39": "Tensor.__mul__.38"}
    return (
        shifted.get(name.rpartition(".")[0], name.rpartition(".")[0]).replace(".feed_forward.", ".mlp.")
        + name[name.rindex(".") :]
    )


def test_the_true_partner_of_a_renamed_node_comes_first(by_name: Pairing) -> None:
    new = {"Tensor.__mul__.30", "Tensor.__add__.18"}
    free = [node.name for at, node in enumerate(by_name.target.nodes) if at not in by_name.found]
    names = [name for name in free if name.rpartition(".")[0] not in new]
    assert len(names) == 46
    for name in names:
        first, *others = suggest(by_name, target=name)
        assert first.golden == (true_partner(name),)
        assert all(other.score < first.score for other in others)
        back, *_ = suggest(by_name, golden=first.golden[0])
        assert (back.golden, back.target) == (first.golden, first.target)


def test_every_score_lies_between_0_and_1_and_has_its_reasons(by_name: Pairing, frameworks: Pairing) -> None:
    for work in (by_name, frameworks):
        free = [node.name for at, node in enumerate(work.target.nodes) if at not in work.found]
        for name in free[::7]:
            ranked = suggest(work, target=name, most=5)
            assert len(ranked) <= 5
            assert [one.score for one in ranked] == sorted((one.score for one in ranked), reverse=True)
            for one in ranked:
                assert 0 < one.score <= 1
                assert one.reasons
                assert one.target[0] == name or name in one.target


def test_what_was_fused_is_suggested_whole_and_of_its_own_layer_first(frameworks: Pairing) -> None:
    layers = "Module.0.module.module.decoder.layers"
    for at in range(4):
        fused = f"{layers}.{at}.self_attention.linear_qkv.ColumnParallelLinear.forward.0"
        first = suggest(frameworks, target=fused)[0]
        parts = [f"Module.module.model.layers.{at}.self_attn.{name}_proj.Linear.forward.0" for name in "qkv"]
        assert first.golden == tuple(parts)
        assert "reason.shapes_join" in ids(first.reasons)
        assert suggest(frameworks, golden=parts[1])[0].target == (fused,)


def test_a_doubtful_partner_is_suggested_as_such(unpacked: Unpack) -> None:
    work = work_on(unpacked("msprobe/llama_structure_mix_attn"), structure=True)
    doubtful = [(found.golden, target) for target, found in work.found.items() if found.doubtful]
    assert doubtful
    for golden, target in doubtful[:10]:
        names = work.golden.nodes[golden].name, work.target.nodes[target].name
        for asked in ({"target": names[1]}, {"golden": names[0]}):
            known = [one for one in suggest(work, **asked, most=1000) if one.doubtful]
            assert [(one.golden, one.target) for one in known] == [((names[0],), (names[1],))]


def test_nothing_that_has_a_partner_is_suggested(by_name: Pairing) -> None:
    taken = {by_name.golden.nodes[golden].name for golden in by_name.partners}
    name = "Module.model.layers.3.feed_forward.LlamaMLP.backward.0"
    ranked = suggest(by_name, target=name, most=1000)
    assert len(ranked) > 5
    assert all(isinstance(one, Suggestion) and taken.isdisjoint(one.golden) for one in ranked)
    assert all(".backward" in one.golden[0] for one in ranked)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({}, "suggestion.one_node"),
        ({"golden": "a", "target": "b"}, "suggestion.one_node"),
        ({"golden": "a"}, "edit.no_node"),
        ({"target": "b"}, "edit.no_node"),
    ],
)
def test_a_question_about_no_node_is_refused(by_name: Pairing, asked: dict[str, str], why: str) -> None:
    with pytest.raises(SettingsError) as refused:
        suggest(by_name, **asked)
    assert refused.value.message.id == f"matching.{why}"


def test_place_alone_makes_no_module_of_an_operator(frameworks: Pairing) -> None:
    first, *_ = suggest(frameworks, golden="Torch.arange.0.forward")
    assert first.target == ("Torch.arange.0.forward",)


def test_a_module_is_suggested_though_what_it_wraps_fits_better() -> None:
    def module(path: str, type_name: str, parent: str | None) -> Node:
        given = (TensorRecord(Role.OUTPUT, "0", "float32", (2, 8)),)
        return Node(path, path, NodeKind.MODULE, type_name, Direction.FORWARD, 0, 0, parent, given)

    golden = (module("mlp", "GatedMLP", None), module("mlp.up", "Linear", "mlp"))
    target = (
        module("outer", "Wrapper", None),
        module("outer.mlp", "GatedMLP", "outer"),
        module("outer.mlp.up", "Linear", "outer.mlp"),
    )
    listing = SliceListing(Coordinates(), Path("made"))
    work = start_pairing(Slice(listing, golden), Slice(listing, target), MatchingRules())
    assert work.evidence.score(0, 0, neighbours=0) < work.evidence.score(0, 1, neighbours=0)
    assert {one.target[0] for one in suggest(work, golden="mlp")} >= {"outer", "outer.mlp"}


@pytest.mark.parametrize("token", [0, 1])
def test_across_frameworks_the_true_partner_is_among_the_first_five(unpacked: Unpack, token: int) -> None:
    """Names, paths and values tell nothing: what is done, how wide it is, and where in a layer does."""
    dumps = [open_dump(unpacked(f"msit/{name}")) for name in ("llama4_bf16", "atb4_bf16")]
    golden, target = (
        next(read_slice(dump, one) for one in dump.slices if one.coordinates.token == token) for dump in dumps
    )
    work, _ = find_matches(golden, target, MatchingRules(structure=False))
    matches = match_slices(golden, target, MatchingRules()).matches
    partners = {name: match.target for match in matches for name in match.golden if match.target}
    found = [
        any(one.target == true for one in suggest(work, golden=name, most=5))
        for name, true in partners.items()
    ]
    assert len(found) > 50
    assert all(found)
