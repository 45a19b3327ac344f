"""Rows of experts are laid as they lie in the whole, and what is off stays off."""

import numpy as np
import pytest
from messages import ids_of

from firstdrift.metrics.arrangement import in_turns as arrangements
from firstdrift.metrics.comparability import DoNotFitError
from firstdrift.metrics.dtypes import Array
from firstdrift.metrics.experts.expert_rows import stack_experts
from firstdrift.wording.message import Message

RANDOM = np.random.default_rng(3)


def rows(count: int, width: int = 16) -> Array:
    return RANDOM.standard_normal((count, width)).astype(np.float32)


def test_rows_of_each_expert_lie_in_the_order_that_fits_the_values() -> None:
    first, second = rows(5), rows(7)
    whole = np.concatenate([first[[3, 0, 4, 1, 2]], second[::-1]])
    noisy = whole + 1e-2 * rows(12)
    stacked, said, _ = stack_experts([first, second], noisy, arrangements)
    assert np.array_equal(stacked, whole)
    assert said == Message.of("metrics.arranged", how=Message.of("metrics.by_row"))


def test_rows_that_already_fit_stay_where_they_are() -> None:
    first, second = rows(5), rows(7)
    whole = np.concatenate([first, second])
    stacked, said, _ = stack_experts([first, second], whole + 1e-3, arrangements)
    assert np.array_equal(stacked, whole)
    assert said == Message.of("metrics.arranged", how=Message.of("metrics.by_expert"))


def test_a_row_that_went_to_another_expert_moves_no_other() -> None:
    first, second = rows(4), rows(4)
    whole = np.concatenate([first[:3], rows(1), second])
    stacked, *_ = stack_experts([first[:3], np.concatenate([first[3:], second])], whole, arrangements)
    assert np.flatnonzero(np.any(stacked != whole, axis=1)).tolist() == [3]


@pytest.mark.parametrize("factor", [-1.0, 0.0, 1.5])
def test_an_expert_that_is_off_is_not_arranged_away(factor: float) -> None:
    first, second = rows(6), rows(6)
    whole = np.concatenate([first[::-1], factor * second[::-1]])
    stacked, *_ = stack_experts([first, second], whole, arrangements)
    assert np.array_equal(stacked[:6], whole[:6])
    off = np.linalg.norm(stacked[6:] - whole[6:]) / np.linalg.norm(second)
    assert off > 0.4


@pytest.mark.parametrize("copies", [2, 5])
@pytest.mark.parametrize("noise", [0.0, 1e-2])
def test_equal_rows_are_each_held_against_one_of_their_own(copies: int, noise: float) -> None:
    first, second = np.tile(rows(6), (copies, 1)), np.tile(rows(7), (copies, 1))
    whole = np.concatenate([RANDOM.permutation(first), RANDOM.permutation(second)])
    for wanted in (whole + noise * rows(len(whole)), whole * (1 + noise)):
        stacked, *_ = stack_experts([first, second], wanted, arrangements)
        assert np.array_equal(stacked, whole)


def test_rows_that_are_nearly_equal_are_each_held_against_one_of_their_own() -> None:
    whole = np.tile(rows(6), (40, 1)) + 1e-3 * rows(240)
    shuffled = RANDOM.permutation(whole) + 1e-3 * rows(240)
    stacked, *_ = stack_experts([shuffled], whole, arrangements)
    assert np.linalg.norm(stacked - whole) < 1e-2 * np.linalg.norm(whole)


def test_of_many_rows_those_astray_alone_are_moved() -> None:
    parts = [rows(3000, 8), rows(3000, 8)]
    whole = np.concatenate(parts)
    moved = whole.copy()
    moved[100:140] = RANDOM.permutation(moved[100:140])
    stacked, said, _ = stack_experts(parts, moved + 1e-3 * rows(6000, 8), arrangements)
    assert np.array_equal(stacked, moved)
    assert said == Message.of("metrics.arranged", how=Message.of("metrics.by_row"))


def test_of_too_many_rows_astray_the_order_is_left_and_that_is_said() -> None:
    whole = rows(9000, 2)
    stacked, said, _ = stack_experts([whole[::-1]], whole, arrangements)
    assert np.array_equal(stacked, whole[::-1])
    assert "metrics.rows_left" in ids_of(said)


@pytest.mark.parametrize("swapped", [False, True])
def test_what_each_computes_of_one_input_lies_side_by_side(swapped: bool) -> None:
    gates, ups = [rows(3), rows(2)], [rows(3), rows(2)]
    columns = [np.concatenate(gates), np.concatenate(ups)]
    whole = np.concatenate(columns[::-1] if swapped else columns, axis=1)[[2, 1, 0, 4, 3]]
    stacked, *_ = stack_experts([*gates, *ups], whole, arrangements)
    assert np.array_equal(stacked, whole)


def test_without_a_whole_all_rows_are_there() -> None:
    stacked, said, _ = stack_experts([rows(3), rows(2)], None, arrangements)
    assert (stacked.shape, said) == ((5, 16), None)


@pytest.mark.parametrize("whole", [(6, 16), (16, 5), (5, 15), (5, 32), (0,), ()])
def test_rows_that_do_not_add_up_are_refused(whole: tuple[int, ...]) -> None:
    with pytest.raises(DoNotFitError):
        stack_experts([rows(3), rows(2)], np.zeros(whole, np.float32), arrangements)


def test_many_rows_are_found_block_by_block() -> None:
    parts = [rows(1500, 8), rows(1500, 8)]
    orders = [RANDOM.permutation(1500) for _ in parts]
    whole = np.concatenate([part[order] for part, order in zip(parts, orders, strict=True)])
    stacked, *_ = stack_experts(parts, whole, arrangements)
    assert np.array_equal(stacked, whole)


@pytest.mark.parametrize("parts", [[(3, 16), (2, 15)], [(), (2, 16)], [(3, 0), (2, 0)]], ids=str)
def test_parts_of_other_widths_are_refused(parts: list[tuple[int, ...]]) -> None:
    with pytest.raises(DoNotFitError):
        stack_experts([np.zeros(shape) for shape in parts], np.zeros((5, 16)), arrangements)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_what_is_not_finite_or_huge_is_laid_where_it_is(value: float) -> None:
    first, second = rows(2).astype(np.float64), rows(3).astype(np.float64)
    second[1] = value
    whole = np.concatenate([first, second])
    stacked, *_ = stack_experts([first, second], whole, arrangements)
    assert np.array_equal(stacked, whole, equal_nan=True)
