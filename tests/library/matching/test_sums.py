"""What sums without recorded inputs add is told by order."""

from pathlib import Path

import pytest

from firstdrift.matching.cross_framework.unrecorded_sums import add_operands
from firstdrift.matching.plan import NodeMatch, Origin
from firstdrift.matching.tree import SliceTree, build_tree
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Slice, SliceListing
from firstdrift.model.tensor import Role, TensorRecord


def residual_stream(layers: int) -> SliceTree:
    """Make a run of which only outputs are known: a table, then layer by layer a linear step and a sum."""
    names = ["Torch.embedding.0", *(f"Torch.{one}.{n}" for n in range(layers) for one in ("linear", "add"))]
    given = (TensorRecord(Role.OUTPUT, "0", "float32", (5, 32)),)
    nodes = [
        Node(name, name, NodeKind.API, name.rpartition(".")[0], Direction.FORWARD, 0, order, None, given)
        for order, name in enumerate(names)
    ]
    return build_tree(Slice(SliceListing(Coordinates(), Path("made")), tuple(nodes)))


def added(last: int, *matched: int) -> tuple[str, ...]:
    trees = residual_stream(last + 1), residual_stream(last + 1)
    names = [f"Torch.add.{number}" for number in (*matched, last)]
    matches = [NodeMatch((name,), (name,), Origin.EXACT) for name in names]
    add_operands(matches, trees, None)
    return matches[-1].operands


def test_a_sum_adds_the_sum_before_it_and_the_step_before_it() -> None:
    assert added(5, 4) == ("Torch.add.4", "Torch.linear.5")
    assert added(0) == ("Torch.embedding.0", "Torch.linear.0")


def test_what_a_sum_without_partner_adds_stands_for_it() -> None:
    assert added(5, 3) == ("Torch.add.3", "Torch.linear.4", "Torch.linear.5")


@pytest.mark.parametrize("layers", [9, 3000])
def test_of_many_sums_without_partner_the_last_ones_are_taken_apart(layers: int) -> None:
    last = layers - 1
    expected = [f"Torch.add.{last - 3}", *(f"Torch.linear.{last - 2 + number}" for number in range(3))]
    assert list(added(last)) == expected
