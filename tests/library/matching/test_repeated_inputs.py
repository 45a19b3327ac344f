"""What a module is given more than once has a gradient in parts, which are compared as their sum."""

from pathlib import Path

import numpy as np
import pytest

from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.matching.implementations.repeated_inputs import repeated_inputs, whole_gradient
from firstdrift.matching.tree import build_tree
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Slice, SliceListing
from firstdrift.model.tensor import DataLocation, Role, Statistics, TensorRecord


def tensor(role: Role, key: str, value: float) -> TensorRecord:
    return TensorRecord(role, key, "float32", (2, 3), Statistics(value, -value, 0.0, value))


def attention(*given: float) -> Slice:
    """A run of one module that is given some tensors, one value each."""
    inputs = tuple(tensor(Role.INPUT, str(at), value) for at, value in enumerate(given))
    gradients = tuple(tensor(Role.OUTPUT, str(at), value + 9) for at, value in enumerate(given))
    nodes = [
        Node(f"attention.{way.value}.0", "attention", NodeKind.MODULE, "Attention", way, 0, at, None, tensors)
        for at, (way, tensors) in enumerate(((Direction.FORWARD, inputs), (Direction.BACKWARD, gradients)))
    ]
    return Slice(SliceListing(Coordinates(), Path("made")), tuple(nodes))


@pytest.mark.parametrize(
    ("given", "times"), [((1, 1, 1), 3), ((1, 1, 2), 2), ((1, 2, 2), 0), ((1, 2, 1), 0), ((1,), 0)]
)
def test_how_often_the_first_tensor_is_given(given: tuple[float, ...], times: int) -> None:
    found = repeated_inputs(build_tree(attention(*given)))
    assert found == ({"attention.backward.0": times} if times else {})


def test_the_parts_of_a_gradient_are_added_up(tmp_path: Path) -> None:
    parts = []
    for at in range(3):
        np.save(tmp_path / f"{at}.npy", np.full((2, 3), 10.0**at, "float32"))
        location = DataLocation(tmp_path / f"{at}.npy", "npy")
        parts.append(TensorRecord(Role.OUTPUT, str(at), "float32", (2, 3), location=location))
    found = whole_gradient("target", parts, 3)
    assert found is not None
    assert found[0].location is not None
    assert load_tensor(found[0].location).tolist() == [[111.0] * 3] * 2
    assert whole_gradient("target", parts[:1], 3) is None  # the others were given by keyword


def test_a_sum_of_which_only_statistics_are_known_is_not_known() -> None:
    assert whole_gradient("target", [tensor(Role.OUTPUT, str(at), at + 1) for at in range(2)], 2) is None
