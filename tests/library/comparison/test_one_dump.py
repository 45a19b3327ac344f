"""A dump without a partner: tree, statistics, stacks, NaN and infinities."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from firstdrift.comparison.single_dump import SliceView, view_dump
from firstdrift.errors import DumpNotFoundError, SettingsError
from firstdrift.wording.message import Message

Unpacked = Callable[[str], Path]

HEALTHY = [
    "msprobe/dp2_stat_mix/target",
    "msprobe/llama_stat_mix_identical/golden",
    "msprobe/llama_stat_mix_attn/target",
    "msprobe/megatron_microstep_stat_mix/golden",
    "msprobe/mixtral_stat_mix_perturb/golden",
    "msprobe/qwen25vl_layermap_stat_mix/golden",
    "msit/llama4_bf16",
    "msit/atb12_bf16_stats",
]


@pytest.fixture
def views(unpacked: Unpacked) -> Callable[[str], list[SliceView]]:
    def view(name: str) -> list[SliceView]:
        family, archive, *inside = name.split("/")
        return list(view_dump(unpacked(f"{family}/{archive}").joinpath(*inside)))

    return view


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_overflows_in_a_healthy_dump(views: Callable[[str], list[SliceView]], name: str) -> None:
    for view in views(name):
        assert (view.overflow, view.first_from_finite, view.unknown) == ((), None, 0)
        assert view.looked_at


def test_a_weight_that_is_not_finite_is_where_it_begins(views: Callable[[str], list[SliceView]]) -> None:
    (view,) = views("msprobe/llama_stat_mix_nan/target")
    first = view.overflow[0]
    assert (first.node, first.level) == ("Functional.linear.12.forward", "high")
    assert first.reason == Message.of("overflow.in", tensors=("input.1", "output.0"))
    assert view.first_from_finite is None, "the MLP around it gets finite inputs, but the weight is inside"


def test_where_finite_inputs_give_infinity_is_named(views: Callable[[str], list[SliceView]]) -> None:
    (view,) = views("msprobe/zoo_tensor_mix/golden")
    found = view.first_from_finite
    assert found is not None
    assert (found.node, found.level) == ("Torch.add.6.forward", "critical")
    assert found == view.overflow[0]
    assert view.unknown == 1, "the one that cannot be read is counted"


def test_parents_come_before_what_is_inside_them(views: Callable[[str], list[SliceView]]) -> None:
    for view in views("msit/llama4_stats1_bf16"):
        place = {each.node.name: at for at, each in enumerate(view.nodes)}
        depth = {each.node.name: each.depth for each in view.nodes}
        assert len(place) == 59
        for each in view.nodes:
            if each.node.parent is not None:
                assert place[each.node.parent] < place[each.node.name]
                assert depth[each.node.parent] == each.depth - 1


def test_statistics_are_computed_where_only_values_were_saved(unpacked: Unpacked) -> None:
    (recorded,) = view_dump(unpacked("msit/llama4_stats1_golden"), token=1)
    (saved,) = view_dump(unpacked("msit/llama4_golden_fp32"), token=1)
    pairs = [
        (one, other)
        for a, b in zip(recorded.nodes, saved.nodes, strict=True)
        for one, other in zip(a.tensors, b.tensors, strict=True)
    ]
    assert {(one.origin, other.origin) for one, other in pairs} == {("statistics", "data")}
    for one, other in pairs:
        assert one.values is not None
        assert other.values is not None
        assert other.values.norm == pytest.approx(one.values.norm, rel=1e-5)
        assert other.values.maximum == pytest.approx(one.values.maximum, rel=1e-6)


def test_stacks_are_there_where_they_were_recorded(views: Callable[[str], list[SliceView]]) -> None:
    (view,) = views("msprobe/llama_stat_mix_identical/golden")
    stacks = {each.node.name: each.stack for each in view.nodes}
    assert any("embedding" in frame for frame in stacks["Functional.embedding.0.forward"])


def test_a_file_that_cannot_be_read_spoils_its_own_tensor(tmp_path: Path) -> None:
    np.save(tmp_path / "whole.npy", np.array([1.0, np.inf]))
    np.save(tmp_path / "cut.npy", np.ones(100_000))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "cut.npy").read_bytes()[:1000])
    (view,) = view_dump(tmp_path)
    assert [found.node for found in view.overflow] == ["whole"]
    assert (view.unknown, view.looked_at) == (1, 1)


def test_a_slice_that_is_not_there_is_an_error_that_says_which_are(
    unpacked: Unpacked, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match="9"):
        list(view_dump(unpacked("msit/llama4_stats1_golden"), token=9))
    with pytest.raises(DumpNotFoundError):
        list(view_dump(tmp_path / "gone"))
