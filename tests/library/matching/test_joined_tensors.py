"""Tensors that are parts of a wider one, as far as shapes tell."""

import pytest
from msgspec.structs import replace

from firstdrift.matching.fused.joined_tensors import whole_axes
from firstdrift.matching.slice_selection import spelled
from firstdrift.model.tensor import Role, Shards, TensorRecord


def record(*shape: int) -> TensorRecord:
    return TensorRecord(Role.OUTPUT, "0", "float32", shape)


@pytest.mark.parametrize(
    ("parts", "axes"),
    [
        ([(4, 8), (4, 8)], [1, 0]),
        ([(4, 8), (4, 6)], [1]),
        ([(4, 8), (2, 6)], []),
        ([(4, 8, 16), (4, 8)], []),
        ([(4, 8), (4, 8, 16)], []),
        ([(), (4,)], []),
    ],
)
def test_shards_lie_side_by_side_only_where_all_else_is_alike(
    parts: list[tuple[int, ...]], axes: list[int]
) -> None:
    shards = Shards(tuple(range(len(parts))), tuple(record(*shape) for shape in parts))
    assert whole_axes(replace(record(*parts[0]), shards=shards)) == axes


def test_numbers_that_come_twice_are_spelled_once() -> None:
    assert spelled([1, 1, 3]) == "1, 3"
