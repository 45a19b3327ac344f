"""Which rows of two runs are of one token, as pieces that are moved together.

golden   [[5, 7, 9], [0, 4, 6]]      rows 4, 5, then 0, 1, 2
target   [4, 6, 5, 7, 9]             all five

Rows are laid as those of the target lie. They are taken so only where one run has no token that the other
lacks, and ends each of its sequences where the other does: anything else is another input.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import prod
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.matching.tokens.given import Given, Recorded, Run, surest, ways
from firstdrift.matching.tokens.thresholds import MOST_PIECES
from firstdrift.matching.tokens.tree import Nodes, TokenTree

Sides: TypeAlias = tuple[Given, Given]
"""What the golden and the target run were given."""


class Piece(Struct, frozen=True):
    """Rows of one sequence that follow each other on both sides.

    Attributes:
        rows: the first of them in the golden run, and in the target.
        runs: which run of the golden side they are of, and which of the target.
        sequence: the golden sequence, from 0.
        place: the place of the first token in it, from 0, padding not counted.
        count: how many rows.
    """

    rows: tuple[int, int]
    runs: tuple[int, int]
    sequence: int
    place: int
    count: int


class Aligned(Struct, frozen=True):
    """Which rows are of one token.

    Attributes:
        sides: what both runs were given.
        pieces: in the order of the target rows.
    """

    sides: Sides
    pieces: tuple[Piece, ...]


def aligned(golden: Sequence[Recorded], target: Sequence[Recorded]) -> Aligned | None:
    """Return which rows are of one token; None where nothing tells, or the runs were given other tokens."""
    found = (_aligned(sides, in_passes=max(len(golden), len(target)) > 1) for sides in _ways(golden, target))
    return next(filter(None, found), None)


def _ways(golden: Sequence[Recorded], target: Sequence[Recorded]) -> Iterator[Sides]:
    """Yield how both may have been given what they were, the surest first."""
    sure = surest(golden), surest(target)
    if sure[0] and sure[1]:
        yield sure[0], sure[1]
    theirs: defaultdict[object, list[Given]] = defaultdict(list)
    for way in ways(target):
        for key in _what(way):
            theirs[key].append(way)
    for way in ways(golden):
        yield from ((way, other) for key in _what(way) for other in theirs.get(key, ())[:1])


def _what(given: Given) -> tuple[object, object]:
    """Return the tokens without padding, one after the other, and as sequences in any order."""
    return (
        tuple(chain.from_iterable(run.ids for run in given.runs)),
        frozenset((run.start or 0, run.ids) for run in given.runs),
    )


def _aligned(sides: Sides, *, in_passes: bool) -> Aligned | None:
    sides, nodes, tree = _placed(sides)
    held = [set(chain.from_iterable(filter(None, side))) for side in nodes]
    less, more = sorted(held, key=len)
    if not less or not less <= more:
        return None
    if not in_passes and not tree.last_of(less) <= tree.last_of(more):
        return None
    pieces = tuple(_pieces(sides, nodes, tree))
    if not pieces or len(pieces) > MOST_PIECES:
        return None
    return Aligned(sides, pieces)


def _placed(sides: Sides) -> tuple[Sides, list[list[Nodes]], TokenTree]:
    """Place all runs; rows of which nothing tells how many sequences they hold are divided as the other's."""
    tree = TokenTree()
    divided = _divided(sides[0], sides[1]), _divided(sides[1], sides[0])
    return divided, tree.place(divided), tree


def _divided(given: Given, other: Given) -> Given:
    if all(run.start is not None for run in given.runs) or len(given.runs) != 1:
        return given
    tree = TokenTree()
    (placed,) = tree.place([other])
    ends = tree.last_of(chain.from_iterable(filter(None, placed)))
    (run,) = given.runs
    lengths = tree.divided(run.ids, ends)
    return given if lengths is None else replace(given, runs=tuple(_cut(run, lengths)))


def _cut(run: Run, lengths: Iterable[int]) -> Iterator[Run]:
    at = 0
    for length in lengths:
        yield replace(run, row=run.row + at, ids=run.ids[at : at + length], start=0)
        at += length


def _pieces(sides: Sides, nodes: Sequence[Sequence[Nodes]], tree: TokenTree) -> Iterator[Piece]:
    """Yield the rows of the target with those of the golden run; of equal sequences each has one."""
    golden: defaultdict[int, deque[tuple[int, int]]] = defaultdict(deque)
    sequences = _sequences(sides[0], nodes[0], tree)
    for at, row, node in _rows(sides[0], nodes[0]):
        golden[node].append((at, row))
    pieces: list[Piece] = []
    for at, row, node in _rows(sides[1], nodes[1]):
        if golden[node]:
            own, first = golden[node].popleft()
            piece = Piece((first, row), (own, at), sequences[own], tree.depths[node] - 1, 1)
            if pieces and _follows(pieces[-1], piece):
                before = pieces.pop()
                piece = replace(before, count=before.count + 1)
            pieces.append(piece)
    yield from pieces


def _rows(given: Given, nodes: Sequence[Nodes]) -> Iterator[tuple[int, int, int]]:
    """Yield of each row whose token is known its run, its number, and the node of its token."""
    for at, (run, placed) in enumerate(zip(given.runs, nodes, strict=True)):
        yield from ((at, run.row + offset, node) for offset, node in enumerate(placed or ()))


def _follows(before: Piece, piece: Piece) -> bool:
    rows = before.rows[0] + before.count, before.rows[1] + before.count
    return before.runs == piece.runs and piece.rows == rows


def _sequences(given: Given, nodes: Sequence[Nodes], tree: TokenTree) -> list[int]:
    """Number the sequences of a side: in its batch, or in the order in which they begin."""
    numbers: list[int] = []
    by_end: dict[int, int] = {}
    following = 0
    for run, placed in zip(given.runs, nodes, strict=True):
        goes_on = by_end.get(tree.parents[placed[0]]) if placed else None
        number = goes_on if run.slot is None else run.slot
        numbers.append(following if number is None else number)
        following = max(following, numbers[-1] + 1)
        if placed:
            by_end[placed[-1]] = numbers[-1]
    return numbers


def exchanges_sequences(found: Aligned) -> bool:
    """Tell whether two batches of one shape have the same sequences in another order."""
    first, second = (side.shape for side in found.sides)
    golden, target = (side.runs for side in found.sides)
    together = ((golden[piece.runs[0]], target[piece.runs[1]]) for piece in found.pieces)
    return first == second and len(first) > 1 and any(one.slot != other.slot for one, other in together)


def as_they_lie(found: Aligned) -> bool:
    """Tell whether all rows of both runs are compared as they lie."""
    flat = [prod(side.shape) for side in found.sides]
    count = sum(piece.count for piece in found.pieces)
    return flat[0] == flat[1] == count and all(piece.rows[0] == piece.rows[1] for piece in found.pieces)
