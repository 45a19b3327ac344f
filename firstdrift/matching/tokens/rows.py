"""See the tensors of two runs with their rows in one order, where rows tell their tokens.

golden   [2, 9, 64]   as [18, 64], of it rows 13 to 17, then 0 to 8     target   [14, 64], all of it

Statistics hold for rows in any order, if all are taken; of some of them, values are needed. What has no row
for each token, as an attention mask or a cache, lies in an order that nothing tells.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from math import prod
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.storage.views import ROWS, SHAPED, SWAPPED
from firstdrift.groups import firsts, known
from firstdrift.matching.implementations.views import rows_of, with_steps
from firstdrift.matching.plan import Joining, TensorPair
from firstdrift.matching.tokens.aligned import Aligned, Piece, aligned, as_they_lie, exchanges_sequences
from firstdrift.matching.tokens.given import Given, read_recorded, token_values
from firstdrift.matching.tokens.thresholds import HEAD_DIMENSIONS
from firstdrift.model.node import Node
from firstdrift.model.slice import Slice
from firstdrift.model.tensor import Role, TensorRecord, ViewStep
from firstdrift.parallel.token_ids import behind_rows
from firstdrift.wording.message import Message

Nodes: TypeAlias = tuple[Sequence[Node], Sequence[Node]]
"""The golden and the target nodes."""

NOT_TOLD: Final = "matching.incomparable.rows_not_told"
_SAID: Final = "matching.transform.said"
"""The id of what is said of a view that a mapping file names."""


class Rows(Struct, frozen=True):
    """Which rows of one run are compared, and in which order.

    Attributes:
        shape: that of the token ids: sequences and their length with padding, or flat rows.
        runs: first row and number of rows, for each piece of them.
        sequences: of its sequences, which are compared, in which order; empty if pieces are no sequences.
        of: how many sequences it has.
    """

    shape: tuple[int, ...]
    runs: tuple[int, ...]
    sequences: tuple[int, ...] = ()
    of: int = 0

    @property
    def are_all(self) -> bool:
        """Whether all rows are taken."""
        return sum(self.runs[1::2]) == prod(self.shape)

    @property
    def are_in_order(self) -> bool:
        """Whether all rows are taken as they lie."""
        return self.are_all and list(self.runs[::2]) == sorted(self.runs[::2])

    def see(self, nodes: Sequence[Node]) -> list[Node]:
        """See what nodes were given and have given with the rows that are compared alone."""
        return [replace(node, tensors=tuple(map(self._seen, node.tensors))) for node in nodes]

    def _seen(self, record: TensorRecord) -> TensorRecord:
        is_value = record.role in (Role.INPUT, Role.OUTPUT) and record.is_tensor
        if not is_value or record.shards is not None or record.problem is not None or not record.shape:
            return record
        behind = behind_rows(record.shape, self.shape)
        if behind is not None:
            return self._taken(record, behind)
        if self._is_by_head(record.shape):
            turned = with_steps(record, ViewStep(SWAPPED, (1, 2)))
            return self._taken(turned, (record.shape[1], record.shape[3]))
        if record.shape[0] == self.of > 1 and len(record.shape) > 1:
            return self._by_sequence(record)
        return record

    def _is_by_head(self, shape: tuple[int, ...]) -> bool:
        if len(shape) != HEAD_DIMENSIONS or len(self.shape) == 1:
            return False
        return (shape[0], shape[2]) == self.shape and self.shape[1] not in (shape[1], shape[3])

    def _taken(self, record: TensorRecord, behind: tuple[int, ...]) -> TensorRecord:
        if self.are_in_order and len(self.shape) == 1:
            return record
        seen = with_steps(record, ViewStep(SHAPED, (prod(self.shape), *behind)), *self._steps(self.runs))
        why = Message.of(NOT_TOLD) if record.location is None and not self.are_all else None
        return replace(seen, shape=(sum(self.runs[1::2]), *behind), digest=None, problem=why)

    def _by_sequence(self, record: TensorRecord) -> TensorRecord:
        """See what each sequence has one of, such as logits of its last token, in the order of the other."""
        if self.sequences == tuple(range(self.of)):
            return record
        if not self.sequences or record.location is None:
            return replace(record, problem=Message.of(NOT_TOLD))
        seen = with_steps(record, *self._steps([*chain.from_iterable((at, 1) for at in self.sequences)]))
        return replace(seen, shape=(len(self.sequences), *(record.shape or ())[1:]), statistics=None)

    def _steps(self, runs: Sequence[int]) -> tuple[ViewStep, ...]:
        return () if runs is self.runs and self.are_in_order else (ViewStep(ROWS, tuple(runs)),)

    def without_statistics(self, record: TensorRecord) -> TensorRecord:
        """Return a tensor without what was recorded of all its rows, where not all are compared."""
        return record if self.are_all else replace(record, statistics=None)

    def holds_tokens(self, record: TensorRecord) -> bool:
        """Tell whether a dimension of a tensor may be that of rows, of sequences or of their length."""
        sizes = {*self.shape, prod(self.shape), self.of} - {1}
        return record.role in (Role.INPUT, Role.OUTPUT) and not sizes.isdisjoint(record.shape or ())


class CommonRows(Struct, frozen=True):
    """Which rows of two runs are compared.

    Attributes:
        golden: those of the golden run; likewise target.
        pieces: which tokens they are of.
    """

    golden: Rows
    target: Rows
    pieces: tuple[Piece, ...]

    def see(self, nodes: Nodes) -> Nodes:
        """See the tensors of both runs so."""
        return self.golden.see(nodes[0]), self.target.see(nodes[1])

    @property
    def count(self) -> int:
        """How many rows are compared."""
        return sum(piece.count for piece in self.pieces)

    def say(self, pair: TensorPair) -> TensorPair:
        """Say of which tokens the rows of a pair are, or that nothing tells it."""
        if any(how.id == _SAID for how in pair.transform):
            return pair
        shapes = pair.golden.shape, pair.target.shape
        are_rows = all(shape and shape[0] == self.count for shape in shapes)
        taken = max(_taken(pair.golden, *pair.golden_parts), _taken(pair.target, *pair.target_parts))
        if not are_rows and not taken:
            return self._without_rows(pair)
        rows = self.count if are_rows else taken
        said = Message.of("matching.transform.rows_of_tokens", rows=rows)
        tokens = tuple((one.sequence, one.place, one.count) for one in self.pieces)
        return replace(
            pair,
            golden=self.golden.without_statistics(pair.golden),
            target=self.target.without_statistics(pair.target),
            golden_parts=tuple(map(self.golden.without_statistics, pair.golden_parts)),
            target_parts=tuple(map(self.target.without_statistics, pair.target_parts)),
            transform=(said, *pair.transform),
            joining=pair.joining or Joining.VIEW,
            tokens=tokens if rows == self.count else (),
        )

    def _without_rows(self, pair: TensorPair) -> TensorPair:
        holds = self.golden.holds_tokens(pair.golden) or self.target.holds_tokens(pair.target)
        if not holds or (pair.incomparable is None and _as_recorded_alike(pair)):
            return pair
        return replace(pair, incomparable=Message.of(NOT_TOLD), transform=(), joining=None)


def _as_recorded_alike(pair: TensorPair) -> bool:
    """Tell whether two tensors hold the same values, as digests or statistics say, in whatever order."""
    golden, target = pair.golden, pair.target
    if golden.digest is not None and golden.digest == target.digest:
        return True
    return golden.statistics is not None and golden.statistics == target.statistics


def common_rows(nodes: Nodes, slices: tuple[Slice, Slice], *, of_one_code: bool = False) -> CommonRows | None:
    """Return the rows of the tokens that both runs have; None if they are as they lie, or nothing tells.

    Args:
        nodes: those of both runs as they are compared.
        slices: the slices that they are of.
        of_one_code: whether the runs are of one implementation: it takes the sequences of a batch as they
            come, and another order of them is another order of the data.
    """
    ids = list(map(token_values, nodes))
    in_passes = any(dumped.listing.rows for dumped in slices)
    if None in ids or (ids[0] == ids[1] and not in_passes):
        return None
    sides = zip(nodes, slices, strict=True)
    found = aligned(*(read_recorded(side, dumped.listing.rows) for side, dumped in sides))
    if found is None or (as_they_lie(found) and not in_passes):
        return None
    if of_one_code and exchanges_sequences(found):
        return None
    return CommonRows(_rows(found, 0), _rows(found, 1), found.pieces)


def _rows(found: Aligned, side: int) -> Rows:
    given = found.sides[side]
    runs = chain.from_iterable((piece.rows[side], piece.count) for piece in found.pieces)
    return Rows(given.shape, tuple(runs), _sequences(given, found.pieces, side), len(given.runs))


def _sequences(given: Given, pieces: Iterable[Piece], side: int) -> tuple[int, ...]:
    """Return which sequence each piece is, if each is one as a whole on its side."""
    own = [(piece.runs[side], piece.count) for piece in pieces]
    is_whole = all(len(given.runs[run].ids) == count for run, count in own)
    return tuple(firsts(own)) if is_whole else ()


def _taken(*records: TensorRecord) -> int:
    """Return how many rows are taken of a tensor of which some are compared, or of its parts; else 0."""
    locations = known(record.location for record in records)
    of_parts = (place for location in locations for place in (location, *location.shards))
    return max((sum(rows_of(place)[1::2]) for place in of_parts), default=0)
