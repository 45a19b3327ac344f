"""Products with one matrix by other names, `linear` and `matmul`, are compared where they do the same."""

from pathlib import Path

import numpy as np
import pytest

from firstdrift.comparison.stages import measure_pairs
from firstdrift.matching.implementations.pair_tensors import pairer_of
from firstdrift.matching.plan import SlicePlan
from firstdrift.matching.tensors import TensorPairing
from firstdrift.matching.tree import build_tree
from firstdrift.metrics.dtypes import Array
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Slice, SliceListing
from firstdrift.model.tensor import DataLocation, Role, Statistics, TensorRecord

LISTING, TAKEN = SliceListing(Coordinates(), Path("made")), 16


def saved(folder: Path, role: Role, key: str, array: Array) -> TensorRecord:
    file = folder / f"{len(list(folder.iterdir()))}.npy"
    np.save(file, array)
    told = Statistics(*map(float, (array.max(), array.min(), array.mean(), np.linalg.norm(array))))
    return TensorRecord(role, key, "float32", array.shape, told, location=DataLocation(file, "npy"))


def operator(folder: Path, name: str, given: list[Array], gave: Array) -> Node:
    inputs = [saved(folder, Role.INPUT, str(at), array) for at, array in enumerate(given)]
    tensors = (*inputs, saved(folder, Role.OUTPUT, "0", gave))
    return Node(name, name, NodeKind.API, name.split(".")[1], Direction.FORWARD, 0, 0, None, tensors)


def compared(
    folder: Path, width: int, *, has_bias: bool, tokens: tuple[int, ...] = (2, 9)
) -> dict[str, float | None]:
    """Return how far apart the tensors of `linear` and `matmul` are; None if they are not compared."""
    dice = np.random.default_rng(7)
    sizes = ((*tokens, TAKEN), (width, TAKEN), (width,))
    words, weight, bias = (dice.normal(size=size).astype("float32") for size in sizes)
    product = words @ weight.T
    nodes = (
        operator(
            folder,
            "Functional.linear.0.forward",
            [words, weight, bias][: 2 + has_bias],
            product + bias if has_bias else product,
        ),
        operator(folder, "Tensor.__matmul__.0.forward", [words, weight.T], product),
    )
    pairer = pairer_of(*(build_tree(Slice(LISTING, (node,))) for node in nodes))
    tensors = TensorPairing()
    pairer.pair_operators(tensors, 0, *nodes)
    plan = SlicePlan(LISTING, LISTING, (), tuple(tensors.pairs), (), ())
    measured = measure_pairs(plan, 0, len(plan.pairs))
    return {
        pair.golden.label: None if one.errors is None else one.errors.relative_l2
        for pair, one in zip(plan.pairs, measured, strict=True)
    }


@pytest.mark.parametrize(("width", "of_matrix"), [(24, 0.0), (TAKEN, None)], ids=["oblong", "square"])
def test_a_matrix_may_lie_either_way_round(tmp_path: Path, width: int, of_matrix: float | None) -> None:
    """Of one as wide as high shapes do not tell how it lies."""
    found = compared(tmp_path, width, has_bias=False)
    assert found == {"input.0": 0.0, "output.0": 0.0, "input.1": of_matrix}


def test_a_product_that_adds_a_bias_is_another_one(tmp_path: Path) -> None:
    assert set(compared(tmp_path, 24, has_bias=True).values()) == {None}


def test_what_is_multiplied_may_be_a_matrix_itself(tmp_path: Path) -> None:
    assert compared(tmp_path, 24, has_bias=False, tokens=(9,)) == {
        "input.0": 0.0,
        "input.1": 0.0,
        "output.0": 0.0,
    }
