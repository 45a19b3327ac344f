"""What a module gives beside its result, and nothing takes, may be another quantity in each of two runs."""

import pytest

from firstdrift.matching.implementations.boundaries import with_boundaries
from firstdrift.matching.plan import TensorPair
from firstdrift.model.tensor import Role, Statistics, TensorRecord


def record(role: Role, key: str, value: float) -> TensorRecord:
    told = Statistics(value / 2, -value / 3, value / 50, value)
    return TensorRecord(role, key, "float32", (4, 8), told)


def pair(role: Role, key: str, values: tuple[float, float], direction: str = "forward") -> TensorPair:
    names = [f"Module.{name}.{direction}.0" for name in ("attn.Attention", "attention.SelfAttention")]
    first, second = (record(role, key, value) for value in values)
    return TensorPair(int(role is Role.INPUT), names[0], names[1], first, second)


FIRST, SCORES, ROUNDED = (5.0, 5.0), (2.0, 3.0), (2.0, 2.02)


@pytest.mark.parametrize(
    ("beside", "direction", "is_apart"),
    [
        (SCORES, "forward", True),
        (ROUNDED, "forward", False),  # a fault that is small, or rounding
        (SCORES, "backward", False),  # gradients of several uses are added up before anything takes them
    ],
)
def test_what_nobody_takes_is_another_quantity_where_it_is_far_off_in_the_forward_pass(
    beside: tuple[float, float], direction: str, *, is_apart: bool
) -> None:
    said = with_boundaries(
        [pair(Role.OUTPUT, "0", FIRST, direction), pair(Role.OUTPUT, "1", beside, direction)]
    )
    reasons = [one.incomparable and one.incomparable.id for one in said]
    assert reasons == [None, "matching.incomparable.taken_by_none" if is_apart else None]


def test_what_is_taken_is_compared() -> None:
    outputs = [pair(Role.OUTPUT, "0", FIRST), pair(Role.OUTPUT, "1", SCORES)]
    said = with_boundaries([*outputs, pair(Role.INPUT, "0", SCORES)])
    assert [one.incomparable for one in said] == [None] * 3


def test_what_the_model_itself_gives_is_taken_by_who_called_it() -> None:
    outputs = [pair(Role.OUTPUT, "0", FIRST), pair(Role.OUTPUT, "1", SCORES)]
    said = with_boundaries(outputs, {outputs[0].golden_node})
    assert [one.incomparable for one in said] == [None] * 2
