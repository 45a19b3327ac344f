"""A view mapping says how tensors are seen as each other, and gives the same pairs when it is read back."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from mapping_reading import read_mapping
from messages import says

from firstdrift.comparison.stages import measure_pairs
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.dumps.storage.views import ROWS
from firstdrift.errors import SettingsError, TensorUnreadableError
from firstdrift.exports.view_mapping import view_mapping
from firstdrift.matching.manual.mapping import MappingKind
from firstdrift.matching.match import match_slices
from firstdrift.matching.plan import Joining, MatchingRules, SlicePlan
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Slice, SliceListing
from firstdrift.model.tensor import DataLocation, Role, TensorRecord, ViewStep

TOKENS, HIDDEN, INNER, LAYERS, BATCH = 9, 12, 16, 3, 2
Tensors = list[tuple[Role, str, np.ndarray]]


def saved(folder: Path, role: Role, key: str, array: np.ndarray) -> TensorRecord:
    file = folder / f"{len(list(folder.iterdir()))}.npy"
    np.save(file, array)
    return TensorRecord(role, key, "float32", array.shape, location=DataLocation(file, "npy"))


def written(folder: Path, modules: list[tuple[str, str, Tensors]]) -> Slice:
    nodes = [
        Node(
            f"Module.{path}.{class_name}.forward.0",
            path,
            NodeKind.MODULE,
            class_name,
            Direction.FORWARD,
            0,
            at,
            None,
            tuple(saved(folder, *tensor) for tensor in tensors),
        )
        for at, (path, class_name, tensors) in enumerate(modules)
    ]
    return Slice(SliceListing(Coordinates(step=0), folder), tuple(nodes))


def runs(folder: Path) -> tuple[Slice, Slice]:
    """Save two runs of one model: q, k, v apart and as one, a matrix transposed, batch and sequence too."""
    golden: list[tuple[str, str, Tensors]] = []
    target: list[tuple[str, str, Tensors]] = []
    state = np.random.default_rng(0).normal(size=(BATCH, TOKENS, HIDDEN)).astype("float32")
    for at in range(LAYERS):
        dice = np.random.default_rng(at)
        weights = [
            dice.normal(size=(size, HIDDEN)).astype("float32") / 4 for size in (HIDDEN,) * 3 + (INNER,)
        ]
        given = [state @ weight.T for weight in weights]
        turned = state.swapaxes(0, 1)
        for name, weight, result in zip(("q_proj", "k_proj", "v_proj"), weights, given, strict=False):
            golden.append(
                (
                    f"model.layers.{at}.self_attn.{name}",
                    "Linear",
                    [
                        (Role.INPUT, "0", state),
                        (Role.OUTPUT, "0", result),
                        (Role.PARAMETER, "weight", weight),
                    ],
                )
            )
        whole = np.concatenate([result.swapaxes(0, 1) for result in given[:3]], axis=-1)
        joined = np.concatenate(weights[:3])
        target.append(
            (
                f"decoder.layers.{at}.attention.qkv",
                "ColumnParallelLinear",
                [(Role.INPUT, "0", turned), (Role.OUTPUT, "0", whole), (Role.PARAMETER, "weight", joined)],
            )
        )
        for side, path, class_name, result, weight in (
            (golden, f"model.layers.{at}.mlp.up", "Linear", given[3], weights[3]),
            (target, f"decoder.layers.{at}.ffn.fc", "Conv1D", given[3].swapaxes(0, 1), weights[3].T),
        ):
            taken = state if side is golden else turned
            side.append(
                (
                    path,
                    class_name,
                    [
                        (Role.INPUT, "0", taken),
                        (Role.OUTPUT, "0", result),
                        (Role.PARAMETER, "weight", weight),
                    ],
                )
            )
        state = np.tanh(given[3][..., :HIDDEN])
    return written(folder, golden), written(folder, target)


def viewed(plan: SlicePlan) -> dict[tuple[str, str, str], tuple[str, float]]:
    """Return the pairs that are joined or seen otherwise, with how, and how far they are apart."""
    measured = measure_pairs(plan, 0, len(plan.pairs))
    return {
        (pair.golden_node, pair.target_node, pair.target.label): (str(pair.joining), one.errors.relative_l2)
        for pair, one in zip(plan.pairs, measured, strict=True)
        if pair.joining is not None and one.errors is not None
    }


def test_a_view_mapping_that_is_read_back_gives_the_same_pairs(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    golden, target = runs(tmp_path / "data")
    plan = match_slices(golden, target, MatchingRules())
    text = view_mapping([plan])
    (tmp_path / "views.yaml").write_text(text)
    mapping = read_mapping(tmp_path / "views.yaml")
    assert mapping.kind is MappingKind.VIEW
    rules = MatchingRules(exact=False, structure=False, mappings=(mapping,))
    again = match_slices(golden, target, rules)
    assert again.notes == ()
    single = {match.target[0] for match in plan.matches if len(match.golden) == len(match.target) == 1}
    expected = {at: how for at, how in viewed(plan).items() if at[1] in single}
    found = {at: how for at, how in viewed(again).items() if at[1] in single}
    assert expected
    assert found == expected
    assert {(match.golden, match.target) for match in again.matches} == {
        (match.golden, match.target) for match in plan.matches
    }


def test_it_says_what_is_done_for_programs_and_for_people(tmp_path: Path) -> None:
    plan = match_slices(*runs(tmp_path), MatchingRules())
    items = yaml.safe_load(view_mapping([plan]))
    said = {str(item["target"][0]).partition("Module.decoder.layers.1.")[2]: item for item in items}
    whole = said["attention.qkv.ColumnParallelLinear.forward.0.output.0"]
    assert [name.rpartition(".Linear")[0] for name in whole["golden"]] == [
        f"Module.model.layers.1.self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj")
    ]
    assert whole["view"][0] == str(Joining.CONCATENATED)
    weight = said["ffn.fc.Conv1D.forward.0.parameters.weight"]
    assert "target swapped 0 1" in weight["view"]
    assert said["ffn.fc.Conv1D.forward.0.input.0"]["view"] == ["rearranged", "target swapped 0 1"]
    assert says(said["ffn.fc.Conv1D.forward.0.input.0"]["how"], "matching.transform.by_sequence")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("- target: Module.a.L.forward.0.output.0\n", "matching.mapping.no_key"),
        ("- {target: A.forward.0.output.0, golden: b}\n", "matching.mapping.names_no_tensor"),
        (
            "- {target: A.a.forward.0.output.0, golden: B.b.forward.0.output.0, view: [turned]}\n",
            "matching.mapping.no_view",
        ),
        (
            "- {target: Module.a.L.forward.0.output.0, golden: Module.b.L.forward.0.output.0, seen: x}\n",
            "matching.mapping.unknown_view_key",
        ),
        (
            "- {target: $, golden: $}\n".replace(
                "$", str([f"a.{at}.forward.0.output.0" for at in range(100)])
            ),
            "matching.mapping.many_in_item",
        ),
    ],
)
def test_what_is_no_view_is_refused_with_its_line(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "views.yaml").write_text(text)
    with pytest.raises(SettingsError) as refused:
        read_mapping(tmp_path / "views.yaml")
    problem = refused.value.message.arguments["problem"]
    assert getattr(problem, "id", None) == why


def test_where_nothing_is_seen_otherwise_it_says_nothing(tmp_path: Path) -> None:
    golden, _ = runs(tmp_path)
    text = view_mapping([match_slices(golden, golden, MatchingRules())])
    assert text == "{}\n"


def test_a_tensor_that_no_slice_has_is_noted(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    file = tmp_path / "views.yaml"
    file.write_text(
        "- target: Module.decoder.layers.0.ffn.fc.Conv1D.forward.0.output.7\n"
        "  golden: Module.model.layers.0.mlp.up.Linear.forward.0.output.0\n"
    )
    rules = MatchingRules(mappings=(read_mapping(file),))
    notes = match_slices(*runs(tmp_path / "data"), rules).notes
    assert [note.id for note in notes] == ["matching.mapping.unused"]


@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param((0, 10**18), id="more rows than there are"),
        pytest.param((-1, 1), id="before the first"),
        pytest.param((3, -1), id="fewer than none"),
        pytest.param((0, 4) * 1000, id="the same again and again"),
        pytest.param((0, 1, 2), id="a run without an end"),
    ],
)
def test_rows_that_a_tensor_does_not_have_are_refused(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    np.save(tmp_path / "a.npy", np.zeros((4, 2)))
    location = DataLocation(tmp_path / "a.npy", "npy", view=(ViewStep(ROWS, numbers),))
    with pytest.raises(TensorUnreadableError):
        load_tensor(location)
