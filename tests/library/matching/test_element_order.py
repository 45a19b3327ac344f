"""What lies in another order than its weight, or than in the layers beside it, is a fault and stays one."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from msgspec.structs import replace

from firstdrift.comparison.stages import measure_pairs
from firstdrift.matching.implementations.element_order import with_order_of_layers
from firstdrift.matching.implementations.pair_tensors import pairer_of
from firstdrift.matching.plan import SlicePlan, TensorPair
from firstdrift.matching.tensors import TensorPairing
from firstdrift.matching.tree import build_tree
from firstdrift.metrics.measurement import IN_OTHER_ORDER, Measurement, MeasurementKind
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Slice, SliceListing
from firstdrift.model.tensor import DataLocation, Role, Statistics, TensorRecord

LAYERS, TOKENS, HEADS, HEAD, TAKEN = 3, 5, 3, 8, 16
ALL = frozenset(range(LAYERS))
NONE: frozenset[int] = frozenset()
LISTING = SliceListing(Coordinates(), Path("made"))


def turned(array: np.ndarray) -> np.ndarray:
    """Let the halves of each head take turns along the last dimension."""
    heads = array.reshape(*array.shape[:-1], HEADS, 2, HEAD // 2)
    return heads.swapaxes(-1, -2).reshape(array.shape)


def saved(folder: Path, role: Role, key: str, array: np.ndarray) -> TensorRecord:
    file = folder / f"{len(list(folder.iterdir()))}.npy"
    np.save(file, array)
    return TensorRecord(role, key, "float32", array.shape, location=DataLocation(file, "npy"))


def run(
    folder: Path, name: str, *, weights: frozenset[int], outputs: frozenset[int], has_weights: bool
) -> Slice:
    """Save a run of one linear module a layer, in some of which weights or outputs lie in turns."""
    nodes = []
    for at in range(LAYERS):
        dice = np.random.default_rng(at)
        taken = dice.normal(size=(TOKENS, TAKEN)).astype("float32")
        weight = dice.normal(size=(HEADS * HEAD, TAKEN)).astype("float32")
        given = taken @ weight.T
        tensors = [
            saved(folder, Role.INPUT, "0", taken),
            saved(folder, Role.OUTPUT, "0", turned(given) if at in outputs else given),
        ]
        if has_weights:
            laid = turned(weight.T).T if at in weights else weight
            tensors.append(saved(folder, Role.PARAMETER, "weight", laid))
        path = f"layers.{at}.{name}"
        nodes.append(
            Node(path, path, NodeKind.MODULE, "Linear", Direction.FORWARD, 0, at, None, tuple(tensors))
        )
    return Slice(LISTING, tuple(nodes))


@pytest.mark.parametrize(
    ("weights", "outputs", "has_weights", "differing"),
    [
        pytest.param(ALL, ALL, True, set(), id="as-the-weights-do"),
        pytest.param(NONE, frozenset({1}), True, {"layers.1.wq output.0"}, id="one-output-turned-by-a-fault"),
        pytest.param(NONE, ALL, True, {f"layers.{at}.wq output.0" for at in ALL}, id="all-turned-by-a-fault"),
        pytest.param(frozenset({1}), NONE, True, {"layers.1.wq parameter.weight"}, id="one-weight-turned"),
        pytest.param(NONE, ALL, False, set(), id="without-weights-as-all-layers-do"),
        pytest.param(NONE, frozenset({1}), False, {"layers.1.wq output.0"}, id="without-weights-as-no-other"),
        pytest.param(NONE, frozenset({0, 1}), False, set(), id="without-weights-as-the-layer-beside"),
        pytest.param(NONE, frozenset({0, 2}), False, set(), id="without-weights-as-a-layer-further-away"),
        pytest.param(frozenset({0, 2}), frozenset({0, 2}), True, set(), id="the-last-but-one-layer-alone"),
        pytest.param(NONE, NONE, True, set(), id="as-it-is"),
    ],
)
def test_an_order_holds_only_where_a_witness_confirms_it(
    tmp_path: Path,
    weights: frozenset[int],
    outputs: frozenset[int],
    has_weights: bool,
    differing: set[str],
) -> None:
    golden = run(tmp_path, "q_proj", weights=NONE, outputs=NONE, has_weights=has_weights)
    target = run(tmp_path, "wq", weights=weights, outputs=outputs, has_weights=has_weights)
    pairer, tensors = pairer_of(build_tree(golden), build_tree(target)), TensorPairing()
    for row, nodes in enumerate(zip(golden.nodes, target.nodes, strict=True)):
        pairer.pair(tensors, row, *nodes)
    pairs = tuple(with_order_of_layers(tensors.pairs, pairer.linear))
    assert len(pairs) == LAYERS * (2 + has_weights)
    measured = measure_pairs(SlicePlan(LISTING, LISTING, (), pairs, (), ()), 0, len(pairs))
    found = {
        f"{pair.target_node} {pair.target.label}"
        for pair, one in zip(pairs, measured, strict=True)
        if one.errors is not None and one.errors.relative_l2 > 1e-3
    }
    assert all(one.errors is not None for one in measured)
    assert found == differing


@pytest.mark.parametrize(
    ("weights", "alone"), [(frozenset({0, 2}), {"layers.1.wq"}), (NONE, set()), (ALL, set())]
)
def test_a_layer_that_lies_otherwise_than_those_beside_it_is_told(
    tmp_path: Path, weights: frozenset[int], alone: set[str]
) -> None:
    golden = run(tmp_path, "q_proj", weights=NONE, outputs=NONE, has_weights=True)
    target = run(tmp_path, "wq", weights=weights, outputs=weights, has_weights=True)
    pairer, tensors = pairer_of(build_tree(golden), build_tree(target)), TensorPairing()
    for row, nodes in enumerate(zip(golden.nodes, target.nodes, strict=True)):
        pairer.pair(tensors, row, *nodes)
    pairs = tuple(with_order_of_layers(tensors.pairs, pairer.linear))
    measured = measure_pairs(SlicePlan(LISTING, LISTING, (), pairs, (), ()), 0, len(pairs))
    told = {
        pair.target_node
        for pair, one in zip(pairs, measured, strict=True)
        if one.reason is not None and one.reason.id == "metrics.unlike_witnesses"
    }
    assert told == alone


def test_a_weight_that_stands_in_no_layers_tells_its_order_itself(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).normal(size=(TAKEN, HEADS * HEAD)).astype("float32")
    nodes = [
        Node(name, name, NodeKind.MODULE, "Linear", Direction.FORWARD, 0, 0, None, (record,))
        for name, record in (
            ("head", saved(tmp_path, Role.PARAMETER, "weight", weight.T)),
            ("output", saved(tmp_path, Role.PARAMETER, "weight", turned(weight).T)),
        )
    ]
    sides = [Slice(LISTING, (node,)) for node in nodes]
    pairer, tensors = pairer_of(*map(build_tree, sides)), TensorPairing()
    pairer.pair(tensors, 0, *nodes)
    pairs = tuple(with_order_of_layers(tensors.pairs, pairer.linear))
    (measured,) = measure_pairs(SlicePlan(LISTING, LISTING, (), pairs, (), ()), 0, 1)
    assert measured.errors is not None
    assert measured.errors.relative_l2 == 0.0


def a_pair(folder: Path, golden: np.ndarray, target: np.ndarray, *, by_statistics: bool) -> TensorPair:
    sides = [
        replace(
            saved(folder, Role.INPUT, "0", array),
            statistics=Statistics(
                float(array.max()), float(array.min()), float(array.mean()), float(np.linalg.norm(array))
            ),
        )
        for array in (golden, target)
    ]
    return TensorPair(0, "pad.0", "pad.1", *sides, by_statistics=by_statistics)


def measured(pair: TensorPair) -> Measurement:
    return measure_pairs(SlicePlan(LISTING, LISTING, (), (pair,), (), (), (), ()), 0, 1)[0]


@settings(max_examples=20, deadline=None)
@given(seed=some.integers(0, 999), by=some.integers(1, 7))
def test_what_statistics_alone_tell_is_not_compared_if_it_lies_in_another_order(seed: int, by: int) -> None:
    array = np.random.default_rng(seed).normal(size=(2, 8, 8, 16)).astype("float32")
    rolled = np.roll(array, by, axis=1) * np.float32(1 + 1e-6)
    with TemporaryDirectory() as folder:
        unsure = measured(a_pair(Path(folder), array, rolled, by_statistics=True))
        sure = measured(a_pair(Path(folder), array, rolled, by_statistics=False))
    assert unsure.reason == IN_OTHER_ORDER
    assert sure.kind is MeasurementKind.DATA


@settings(max_examples=50, deadline=None)
@given(seed=some.integers(0, 999), size=some.floats(1e-7, 1))
def test_noise_is_no_other_order(seed: int, size: float) -> None:
    dice = np.random.default_rng(seed)
    array = dice.normal(size=(2, 8, 16)).astype("float32")
    noisy = array + dice.normal(0, size, array.shape).astype("float32")
    with TemporaryDirectory() as folder:
        assert measured(a_pair(Path(folder), array, noisy, by_statistics=True)).kind is MeasurementKind.DATA


@pytest.mark.parametrize("seed", range(20))
def test_shares_that_are_others_are_no_other_order(tmp_path: Path, seed: int) -> None:
    """They lie between 0 and 1 on both sides, so that their ends tell nothing."""
    dice = np.random.default_rng(seed)
    sides = []
    for _ in range(2):
        scores = np.exp(dice.normal(size=(2, 4, 16, 16))) * np.tri(16)
        sides.append((scores / scores.sum(-1, keepdims=True)).astype("float32"))
    assert measured(a_pair(tmp_path, *sides, by_statistics=True)).kind is MeasurementKind.DATA


def test_rounding_that_leaves_statistics_equal_is_no_other_order(tmp_path: Path) -> None:
    array = np.random.default_rng(7).normal(size=(2, 8, 16)).astype("float32")
    pair = a_pair(tmp_path, array, np.nextafter(array, np.float32(9)), by_statistics=True)
    alike = replace(pair, target=replace(pair.target, statistics=pair.golden.statistics))
    assert measured(alike).kind is MeasurementKind.DATA
