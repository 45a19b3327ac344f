"""Passes of one process are laid one after the other: a row for each token, in the order they were given."""

from pathlib import Path

import pytest

from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Slice, SliceListing
from firstdrift.model.tensor import Role, Statistics, TensorRecord
from firstdrift.parallel.merge_passes import merge_passes

FLAT = ((4,), (5,))
BATCHED = ((2, 3), (2, 1))


def output(shape: tuple[int, ...], largest: float = 1.0, role: Role = Role.OUTPUT) -> TensorRecord:
    return TensorRecord(role, "0", "float32", shape, statistics=Statistics(largest, -largest, 0.0, largest))


def merged(rows: tuple[tuple[int, ...], ...], *held: TensorRecord | None) -> TensorRecord:
    """Lay the tensor that each pass has of one node, or lacks."""
    (node,) = laid(rows, *([] if record is None else [node_of("q", record)] for record in held)).nodes
    return node.tensors[0]


def node_of(name: str, record: TensorRecord) -> Node:
    return Node(name, name, NodeKind.MODULE, "Linear", Direction.FORWARD, 0, 0, None, (record,))


def laid(rows: tuple[tuple[int, ...], ...], *passes: list[Node]) -> Slice:
    listing = SliceListing(Coordinates(step=0), Path("dump"), rows=rows)
    return merge_passes(listing, [Slice(listing, tuple(nodes)) for nodes in passes])


def test_rows_are_added_up_and_statistics_are_those_of_all() -> None:
    record = merged(FLAT, output((4, 64)), output((5, 64), 3.0))
    assert (record.shape, record.problem) == ((9, 64), None)
    assert record.statistics is not None
    assert (record.statistics.maximum, record.statistics.minimum) == (3.0, -3.0)


def test_sequences_of_a_batch_are_laid_flat() -> None:
    assert merged(BATCHED, output((2, 3, 64)), output((2, 1, 64))).shape == (8, 64)


def test_weights_are_those_of_the_first_pass() -> None:
    first = output((64, 64), role=Role.PARAMETER)
    assert merged(FLAT, first, output((64, 64), 9.0, Role.PARAMETER)) == first


@pytest.mark.parametrize(
    ("held", "problem"),
    [
        pytest.param((output((4, 64)), None), "dumps.passes.not_in_all", id="one-pass-alone-ran-it"),
        pytest.param((output((4, 64)), output((5, 32))), "dumps.passes.no_rows", id="of-another-width"),
    ],
)
def test_what_cannot_be_laid_says_why(held: tuple[TensorRecord | None, ...], problem: str) -> None:
    said = merged(FLAT, *held).problem
    assert said is not None
    assert said.id == problem


def test_nodes_keep_the_order_in_which_they_first_ran() -> None:
    first = [node_of(name, output((4, 64))) for name in ("q", "k")]
    second = [node_of(name, output((5, 64))) for name in ("k", "lm_head", "q")]
    nodes = laid(FLAT, first, second).nodes
    assert [(node.name, node.order) for node in nodes] == [("q", 0), ("k", 1), ("lm_head", 2)]
