"""Which calls of ranks belong together, and which rank is off alone."""

import math

import pytest

from firstdrift.metrics.measurement import RankError
from firstdrift.tensors import Role, TensorRecord
from firstdrift.verdict.communication import group_of, peer_of, rank_alone


@pytest.mark.parametrize(
    ("errors", "alone"),
    [
        ([0.0, 0.5], 1),
        ([1e-7, 2e-7], None),
        ([0.5, 0.4], None),
        ([0.0, math.inf, 0.0], 1),
        ([0.0, None], None),
        ([0.5], 0),
        ([], None),
    ],
)
def test_a_rank_is_off_alone_if_all_others_agree(errors: list[float | None], alone: int | None) -> None:
    by_rank = [RankError(rank, error) for rank, error in enumerate(errors)]
    assert rank_alone(by_rank) == alone


def argument(key: str, dtype: str, scalar: str) -> TensorRecord:
    return TensorRecord(Role.INPUT, key, dtype, (), scalar=scalar)


def test_the_group_of_a_call_is_read_from_its_process_group() -> None:
    group = argument("group", "torch.ProcessGroup", "{'group_ranks': [0, 2], 'group_id': '77849d8c'}")
    assert group_of([argument("op", "str", "[9]"), group]) == (0, 2)
    assert group_of([]) == ()


def test_the_peer_of_a_call_is_read_from_its_arguments() -> None:
    assert peer_of([argument("dst", "int", "3")]) == 3
    assert peer_of([argument("async_op", "bool", "True")]) is None
