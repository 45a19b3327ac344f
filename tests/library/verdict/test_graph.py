"""What rows hand on to each other is told by equal tensors, and by the order where these do not tell."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.tensor import Role, Statistics, TensorRecord
from firstdrift.verdict.graph import Edge, Member, edges_of

SHAPE = (2, 8)


def tensor(role: Role, place: int, value: int | None, shape: tuple[int, ...] = SHAPE) -> TensorRecord:
    """A tensor that is told by a number; None for one of which nothing was recorded."""
    known = None if value is None else Statistics(value + 0.5, -value, value / 8, value + 1.0)
    return TensorRecord(role, str(place), "float32", shape, known)


def node(
    order: int, takes: Sequence[int | None], gives: Sequence[int | None], shape: tuple[int, ...] = SHAPE
) -> Node:
    tensors = [tensor(Role.INPUT, place, value, shape) for place, value in enumerate(takes)]
    tensors += [tensor(Role.OUTPUT, place, value, shape) for place, value in enumerate(gives)]
    name = f"node{order}"
    return Node(name, name, NodeKind.API, "op", Direction.FORWARD, 0, order, None, tuple(tensors))


def member(row: int, takes: Sequence[int | None], gives: Sequence[int | None]) -> Member:
    return Member(row, (node(row, takes, gives),))


def ends(edges: Sequence[Edge]) -> list[tuple[int | None, int | None]]:
    return [(edge.source, edge.goal) for edge in edges]


def test_an_equal_tensor_is_what_was_handed_on() -> None:
    layer = [node(9, [1], [5])]
    edges = edges_of(layer, [member(0, [1], [2]), member(1, [2], [3]), member(2, [1, 3], [5])])
    assert ends(edges) == [(None, 0), (0, 1), (None, 2), (1, 2), (2, None)]
    assert {edge.shapes for edge in edges} == {(SHAPE,)}
    assert not any(edge.by_order for edge in edges)


def test_of_equal_tensors_the_last_was_handed_on() -> None:
    assert ends(edges_of((), [member(0, [], [4]), member(1, [4], [4]), member(2, [4], [])])) == [
        (0, 1),
        (1, 2),
    ]


def test_a_view_of_a_tensor_is_the_same_tensor() -> None:
    flat = Member(1, (node(1, [2], [3], (16,)),))
    assert edges_of((), [member(0, [1], [2]), flat]) == (Edge(0, 1, ((16,),)),)


def test_where_nothing_tells_a_row_follows_the_one_before_it() -> None:
    edges = edges_of((), [member(0, [None], [None]), member(1, [None], [7]), member(2, [7], [])])
    assert edges == (Edge(1, 2, (SHAPE,)), Edge(0, 1, (), by_order=True))


def test_rows_are_looked_at_as_they_ran_however_they_are_given() -> None:
    rows = [member(0, [1], [2]), member(1, [2], [3]), member(2, [3], [])]
    assert edges_of((), rows[::-1]) == edges_of((), rows)


def test_a_row_of_several_nodes_takes_and_gives_what_they_do() -> None:
    fused = Member(1, (node(1, [2], [5]), node(2, [2], [6])))
    assert ends(edges_of((), [member(0, [], [2]), fused, member(3, [6], []), member(4, [5], [])])) == [
        (0, 1),
        (1, 3),
        (1, 4),
    ]


def test_what_a_module_gives_as_it_was_given_passes_through_no_row() -> None:
    assert edges_of([node(9, [1], [1])], ()) == ()


def test_nothing_has_no_edges() -> None:
    assert edges_of((), ()) == ()


VALUES = st.lists(st.one_of(st.none(), st.integers(1, 6)), max_size=3)
CALLS = st.lists(st.tuples(VALUES, VALUES), max_size=12)


@given(calls=CALLS, module=st.tuples(VALUES, VALUES))
def test_edges_lead_from_what_ran_to_what_ran_later_and_leave_no_row_alone(
    calls: list[tuple[list[int | None], list[int | None]]], module: tuple[list[int | None], list[int | None]]
) -> None:
    rows = [member(10 + place, *call) for place, call in enumerate(calls)]
    edges = edges_of([node(99, *module)], rows)
    known = {row.row for row in rows}
    for edge in edges:
        assert {edge.source, edge.goal} <= known | {None}
        assert edge.source != edge.goal
        assert edge.source is None or edge.goal is None or edge.source < edge.goal
        assert bool(edge.shapes) != edge.by_order
    assert len(ends(edges)) == len(set(ends(edges)))
    given_something = {edge.goal for edge in edges}
    assert known - given_something <= {min(known, default=None)}
    by_order = [edge for edge in edges if edge.by_order]
    assert all(edge.goal == (edge.source or 0) + 1 for edge in by_order)


@pytest.mark.parametrize("value", [None, 3])
def test_an_edge_says_by_what_it_is_known(value: int | None) -> None:
    edges = edges_of((), [member(0, [], [value]), member(1, [value], [])])
    assert [edge.by_order for edge in edges] == [value is None]
