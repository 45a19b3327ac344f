"""Order-preserving alignment of two sequences.

    a b c d          a b c d
    │ │    ╲    ─▶   pairs (0, 0), (1, 1), (3, 4): they never cross
    a b x y d

Three tools, from the fastest to the most careful: the longest chain of given pairs, the longest common
subsequence of keys, and the alignment of the highest gain.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import pairwise, takewhile
from math import inf, isqrt
from operator import eq
from typing import TypeAlias

from firstdrift.groups import alone

Pair: TypeAlias = tuple[int, int]
"""Position in the first sequence, position in the second."""

Gap: TypeAlias = tuple[range, range]
"""What lies between two neighbouring pairs, on either side."""


def unique_pairs(first: Sequence[Hashable | None], second: Sequence[Hashable | None]) -> list[Pair]:
    """Pair the keys that occur exactly once in both sequences; None is no key."""
    positions, others = (alone(range(len(keys)), keys.__getitem__) for keys in (first, second))
    return [(at, others[key]) for key, at in positions.items() if key is not None and key in others]


def longest_chain(pairs: Iterable[Pair]) -> list[Pair]:
    """Return a longest selection of pairs that do not cross, by position; each position occurs once."""
    ends: list[int] = []
    last_of = [-1]
    before: list[int] = []
    ordered = sorted(pairs, key=lambda pair: (pair[0], -pair[1]))
    for index, (_, position) in enumerate(ordered):
        length = bisect_left(ends, position)
        before.append(last_of[length])
        ends[length : length + 1] = [position]
        last_of[length + 1 : length + 2] = [index]
    chain: list[Pair] = []
    index = last_of[-1]
    while index >= 0:
        chain.append(ordered[index])
        index = before[index]
    return chain[::-1]


def gaps_between(chain: Sequence[Pair], first: int, second: int) -> list[Gap]:
    """Return what a chain leaves over of two sequences of given lengths: one gap more than it has pairs."""
    bounds = [(-1, -1), *chain, (first, second)]
    return [
        (range(left + 1, next_left), range(right + 1, next_right))
        for (left, right), (next_left, next_right) in pairwise(bounds)
    ]


def common_subsequence(first: Sequence[Hashable], second: Sequence[Hashable]) -> list[Pair]:
    """Return a longest common subsequence: pairs of equal keys that do not cross.

    Bit-parallel (H. Hyyrö, "Bit-parallel LCS-length computation revisited", 2004): one row of the table is
    one integer. Rows are kept at intervals and computed again on the way back, so 36,000 keys a side
    take a few megabytes.
    """
    start = common_beginning(first, second)
    end = common_beginning(reversed(first[start:]), reversed(second[start:]))
    middle = _subsequence_of_middle(first[start : len(first) - end], second[start : len(second) - end])
    return [
        *((index, index) for index in range(start)),
        *((start + left, start + right) for left, right in middle),
        *((len(first) - index, len(second) - index) for index in range(end, 0, -1)),
    ]


def best_alignment(
    first: int, second: int, gain: Callable[[int, int], float], bonus: float = 0.0
) -> list[Pair]:
    """Return the pairs of the highest total gain that do not cross, of two sequences of given lengths.

    A pair without gain is never made. The bonus is for two pairs that follow each other, or stand at the
    ends of both sequences.
    """
    best = [[0.0] * (second + 1) for _ in range(first + 1)]
    paired = [[-inf] * (second + 1) for _ in range(first + 1)]
    paired[first][second] = 0.0
    for left in range(first - 1, -1, -1):
        row, below = best[left], best[left + 1]
        paired_row, paired_below = paired[left], paired[left + 1]
        for right in range(second - 1, -1, -1):
            highest = max(below[right], row[right + 1])
            gained = gain(left, right)
            if gained > 0:
                gained += max(below[right + 1], paired_below[right + 1] + bonus)
                paired_row[right] = gained
                highest = max(highest, gained)
            row[right] = highest
    return _walk(best, paired, bonus)


def _walk(best: list[list[float]], paired: list[list[float]], bonus: float) -> list[Pair]:
    """Follow the best choices through the table; on a tie pair early."""
    pairs: list[Pair] = []
    left = right = 0
    follows = True
    while best[left][right] > 0:
        if paired[left][right] + bonus * follows >= best[left][right]:
            pairs.append((left, right))
            left, right, follows = left + 1, right + 1, True
        elif best[left][right] == best[left][right + 1]:
            right, follows = right + 1, False
        else:
            left, follows = left + 1, False
    return pairs


def common_beginning(first: Iterable[Hashable], second: Iterable[Hashable]) -> int:
    """Return how many keys two sequences have in common from their beginnings on."""
    return len(list(takewhile(bool, map(eq, first, second))))


def _subsequence_of_middle(first: Sequence[Hashable], second: Sequence[Hashable]) -> list[Pair]:
    """Keep a row at intervals on the way down; on the way back fill each interval in again.

    Bit `left` of row `right` is 0 where first[: left + 1] has one key more in common with
    second[:right] than first[:left] has.
    """
    numbers: dict[Hashable, int] = {}
    for position, key in enumerate(first):
        numbers[key] = numbers.get(key, 0) | 1 << position
    masks = [numbers.get(key, 0) for key in second]
    all_ones = (1 << len(first)) - 1
    interval = isqrt(len(second)) + 1
    kept = [all_ones]
    for start in range(0, len(second), interval):
        kept.append(_rows(kept[-1], masks[start : start + interval], all_ones)[-1])
    pairs: list[Pair] = []
    left = len(first) - 1
    for block in range(len(kept) - 2, -1, -1):
        start = block * interval
        rows = _rows(kept[block], masks[start : start + interval], all_ones)
        left = _walk_back(rows, start, left, pairs)
    return pairs[::-1]


def _rows(row: int, masks: Sequence[int], all_ones: int) -> list[int]:
    rows = [row]
    for mask in masks:
        matched = row & mask
        row = (row + matched | row - matched) & all_ones
        rows.append(row)
    return rows


def _walk_back(rows: list[int], start: int, left: int, pairs: list[Pair]) -> int:
    """Follow the table through one block of rows, from its last row up; return the column it leaves at."""
    right = len(rows) - 1
    while right > 0 and left >= 0:
        if rows[right] >> left & 1:
            left -= 1
        elif not rows[right - 1] >> left & 1:
            right -= 1
        else:
            pairs.append((left, start + right - 1))
            left, right = left - 1, right - 1
    return left
