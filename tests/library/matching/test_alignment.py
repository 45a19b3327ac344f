"""What is promised of aligning two sequences, checked against the plain definition."""

from functools import cache
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from firstdrift.matching.structure.sequence_alignment import (
    Pair,
    best_alignment,
    common_subsequence,
    gaps_between,
    longest_chain,
    unique_pairs,
)

KEYS = st.lists(st.integers(0, 4), max_size=25)
LENGTHS = st.integers(0, 6)


def crosses(pairs: list[Pair]) -> bool:
    return any(one[0] >= other[0] or one[1] >= other[1] for one, other in pairwise(pairs))


@given(KEYS, KEYS)
def test_a_common_subsequence_is_as_long_as_any(first: list[int], second: list[int]) -> None:
    pairs = common_subsequence(first, second)

    @cache
    def longest(left: int, right: int) -> int:
        if left == len(first) or right == len(second):
            return 0
        if first[left] == second[right]:
            return 1 + longest(left + 1, right + 1)
        return max(longest(left + 1, right), longest(left, right + 1))

    assert len(pairs) == longest(0, 0)
    assert all(first[left] == second[right] for left, right in pairs)
    assert not crosses(pairs)


@settings(deadline=None)
@given(st.integers(0, 400), st.sets(st.integers(0, 399)))
def test_a_long_sequence_is_found_in_one_with_insertions(length: int, after: set[int]) -> None:
    first = [at % 7 for at in range(length)]
    second = [key for at, key in enumerate(first) for key in ([key, 99] if at in after else [key])]
    assert len(common_subsequence(first, second)) == length


@settings(deadline=None)
@given(LENGTHS, LENGTHS, st.sampled_from([0.0, 0.01]), st.data())
def test_the_best_alignment_gains_as_much_as_any(
    first: int, second: int, bonus: float, data: st.DataObject
) -> None:
    worth = st.sampled_from([-1.0, 0.0, 0.5, 1.0])
    gains = [[data.draw(worth) for _ in range(second)] for _ in range(first)]
    pairs = best_alignment(first, second, lambda left, right: gains[left][right], bonus)

    @cache
    def most(left: int, right: int, *, follows: bool) -> float:
        if (left, right) == (first, second):
            return bonus * follows
        if left == first or right == second:
            return 0.0
        skipped = max(most(left + 1, right, follows=False), most(left, right + 1, follows=False))
        if gains[left][right] <= 0:
            return skipped
        return max(skipped, gains[left][right] + bonus * follows + most(left + 1, right + 1, follows=True))

    ends = [(-1, -1), *pairs, (first, second)]
    total = sum(gains[left][right] for left, right in pairs)
    total += bonus * sum(other == (one[0] + 1, one[1] + 1) for one, other in pairwise(ends))
    assert abs(total - most(0, 0, follows=True)) < 1e-9
    assert not crosses(pairs)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_the_longest_chain_uses_no_position_twice_and_never_crosses(pairs: list[Pair]) -> None:
    chain = longest_chain(pairs)
    assert set(chain) <= set(pairs)
    assert not crosses(chain)
    assert bool(chain) is bool(pairs)


def test_the_longest_chain_drops_what_crosses() -> None:
    assert longest_chain([(0, 0), (1, 5), (2, 1), (3, 2)]) == [(0, 0), (2, 1), (3, 2)]


def test_keys_that_occur_twice_on_one_side_are_not_paired() -> None:
    assert unique_pairs(["a", "b", None, "c"], ["c", "b", "b", None]) == [(3, 0)]


def test_what_lies_before_between_and_after_the_pairs_is_left_over() -> None:
    gaps = gaps_between([(1, 0), (2, 3)], 4, 4)
    assert gaps == [(range(1), range(0)), (range(2, 2), range(1, 3)), (range(3, 4), range(4, 4))]
