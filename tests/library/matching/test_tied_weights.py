"""Gradients of copies of one weight are added up; parameters that are the same constant are no copies."""

from pathlib import Path

import pytest

from firstdrift.matching.implementations.tied_weights import with_sums_of_gradients
from firstdrift.matching.plan import Joining, TensorPair
from firstdrift.matching.tree import build_tree
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Slice, SliceListing
from firstdrift.model.tensor import Role, Statistics, TensorRecord

LISTING, SHAPE = SliceListing(Coordinates(), Path("made")), (4, 8)
DRAWN, ZEROS = Statistics(2.0, -1.0, 0.1, 5.0), Statistics(0.0, 0.0, 0.0, 0.0)


def record(role: Role, told: Statistics, digest: str | None = None) -> TensorRecord:
    return TensorRecord(role, "weight", "float32", SHAPE, told, digest)


def nodes(path: str, weight: Statistics, gradient: float, at: int) -> list[Node]:
    """Make a module with a weight, and its gradient."""
    told = Statistics(gradient, -gradient, gradient / 9, 3 * gradient)
    parameter = record(Role.PARAMETER, weight, "crc32:1a2b3c4d:128")
    made = (
        ("forward", "Linear", Direction.FORWARD, parameter),
        ("parameters_grad", "parameters_grad", Direction.BACKWARD, record(Role.GRADIENT, told)),
    )
    return [
        Node(f"{path}.Linear.{name}.0", path, NodeKind.MODULE, kind, way, 0, 2 * at + place, None, (tensor,))
        for place, (name, kind, way, tensor) in enumerate(made)
    ]


@pytest.mark.parametrize(("weight", "is_summed"), [(DRAWN, True), (ZEROS, False)], ids=["drawn", "zeros"])
def test_only_copies_of_drawn_weights_are_one_parameter(weight: Statistics, *, is_summed: bool) -> None:
    golden = nodes("embed", weight, 3.0, 0)
    target = [*nodes("embed", weight, 1.0, 0), *nodes("head", weight, 2.0, 1)]
    first, second = golden[1], target[1]
    pair = TensorPair(0, first.name, second.name, first.tensors[0], second.tensors[0])
    trees = [build_tree(Slice(LISTING, tuple(side))) for side in (golden, target)]
    (found,) = with_sums_of_gradients([pair], trees[0], trees[1])
    assert (found.joining is Joining.SUMMED) is is_summed
