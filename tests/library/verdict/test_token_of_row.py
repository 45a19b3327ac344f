"""Rows that were moved to be compared by token are named by sequence and place of their token."""

import pytest
from library.verdict.made_slices import Call, make
from msgspec.structs import replace

from firstdrift.matching.plan import TensorPair
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.verdict.token_of_row import token_of_row, worst_token

PIECES = ((0, 0, 2), (1, 3, 2), (0, 2, 1))
"""Of sequence 0 the first two tokens, of sequence 1 the fourth and the fifth, of sequence 0 the third."""


def pair(shape: tuple[int, ...], tokens: tuple[tuple[int, int, int], ...] = PIECES) -> TensorPair:
    record = TensorRecord(Role.OUTPUT, "0", "float32", shape)
    return TensorPair(0, "x", "x", record, record, tokens=tokens)


@pytest.mark.parametrize(("row", "token"), [(0, (0, 0)), (1, (0, 1)), (2, (1, 3)), (3, (1, 4)), (4, (0, 2))])
def test_a_row_is_of_the_token_that_lies_there(row: int, token: tuple[int, int]) -> None:
    assert token_of_row(pair((5, 32)), row) == token


def test_rows_of_the_heads_of_a_token_are_of_that_token() -> None:
    assert [token_of_row(pair((5, 4, 8)), row) for row in (0, 3, 4, 19)] == [(0, 0), (0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize(
    "of",
    [pair((5, 32), ()), pair((7, 32)), pair(())],
    ids=["rows-as-they-lie", "no-row-for-each-token", "no-shape"],
)
def test_of_other_rows_no_token_is_known(of: TensorPair) -> None:
    assert token_of_row(of, 0) is None


def test_the_worst_row_is_said_where_rows_were_moved() -> None:
    made = make(Call("Functional.relu.0.forward", outputs=[0.5]))
    (moved,) = (replace(one, tokens=((3, 5, 16),)) for one in made.plan.pairs)
    (measured,) = made.measurements
    assert measured.errors is not None
    (said,) = worst_token(moved, measured)
    assert said.arguments == {"sequence": 3, "position": 5 + (measured.errors.worst_row or 0)}
    assert worst_token(made.plan.pairs[0], measured) == ()
