"""See the tensors of two runs with their rows in one order, where rows tell their tokens.

golden   [2, 9, 64]   as [18, 64], of it rows 13 to 17, then 0 to 8     target   [14, 64], all of it

Statistics hold for rows in any order, if all are taken; of some of them, values are needed. What has no row
for each token, as an attention mask or a cache, lies in an order that nothing tells. Parameters have no rows
of tokens, nor has a matrix that a product multiplies them by, whatever their sizes.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import prod
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.storage.views import ROWS, SHAPED, SWAPPED
from firstdrift.groups import firsts, known
from firstdrift.matching.implementations.thresholds import TWO_PARTS
from firstdrift.matching.implementations.views import rows_of, with_steps
from firstdrift.matching.plan import Joining, TensorPair
from firstdrift.matching.tokens.aligned import Aligned, Piece, aligned, as_they_lie, exchanges_sequences
from firstdrift.matching.tokens.given import Given, read_recorded, token_values
from firstdrift.matching.tokens.thresholds import HEAD_DIMENSIONS
from firstdrift.model.node import Node
from firstdrift.model.slice import Slice
from firstdrift.model.tensor import Role, TensorRecord, ViewStep
from firstdrift.operators.kinds import ErrorModel
from firstdrift.operators.properties import error_model
from firstdrift.parallel.token_ids import behind_rows
from firstdrift.wording.message import Message

Nodes: TypeAlias = tuple[Sequence[Node], Sequence[Node]]
"""The golden and the target nodes."""

NOT_TOLD: Final = "matching.incomparable.rows_not_told"
_VALUES: Final = (Role.INPUT, Role.OUTPUT)
"""What may have a row for each token."""
_SAID: Final = "matching.transform.said"
"""The id of what is said of a view that a mapping file names."""


class Rows(Struct, frozen=True):
    """Which rows of one run are compared, and in which order.

    Attributes:
        shape: that of the token ids: sequences and their length with padding, or flat rows.
        runs: first row and number of rows, for each piece of them.
        sequences: of its sequences, which are compared, in which order; empty if pieces are no sequences.
        of: how many sequences it has.
        factors: matrices that products multiply rows by, whatever their sizes: name of the node and label.
    """

    shape: tuple[int, ...]
    runs: tuple[int, ...]
    sequences: tuple[int, ...] = ()
    of: int = 0
    factors: frozenset[tuple[str, str]] = frozenset()

    @property
    def are_all(self) -> bool:
        """Whether all rows are taken."""
        return sum(self.runs[1::2]) == prod(self.shape)

    @property
    def are_in_order(self) -> bool:
        """Whether all rows are taken as they lie."""
        return self.are_all and list(self.runs[::2]) == sorted(self.runs[::2])

    @property
    def exchanges_all(self) -> bool:
        """Whether all sequences are taken, in whatever order."""
        return sorted(self.sequences) == list(range(self.of))

    def see(self, nodes: Sequence[Node]) -> list[Node]:
        """See what nodes were given and have given with the rows that are compared alone."""
        return [replace(node, tensors=tuple(self._seen_of(node))) for node in nodes]

    def _seen_of(self, node: Node) -> Iterator[TensorRecord]:
        return (
            record if (node.name, record.label) in self.factors else self._seen(record)
            for record in node.tensors
        )

    def _seen(self, record: TensorRecord) -> TensorRecord:
        is_value = record.role in _VALUES and record.is_tensor
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
        if not self.sequences or (record.location is None and not self.exchanges_all):
            return replace(record, problem=Message.of(NOT_TOLD))
        seen = with_steps(record, *self._steps([*chain.from_iterable((at, 1) for at in self.sequences)]))
        told = record.statistics if self.exchanges_all else None
        return replace(seen, shape=(len(self.sequences), *(record.shape or ())[1:]), statistics=told)

    def _steps(self, runs: Sequence[int]) -> tuple[ViewStep, ...]:
        return () if runs is self.runs and self.are_in_order else (ViewStep(ROWS, tuple(runs)),)

    def without_statistics(self, record: TensorRecord) -> TensorRecord:
        """Return a tensor without what was recorded of all its rows, where not all are compared."""
        return record if self.are_all else replace(record, statistics=None)

    def holds_tokens(self, record: TensorRecord) -> bool:
        """Tell whether a dimension of a tensor may be that of rows, of sequences or of their length."""
        sizes = {*self.shape, prod(self.shape), self.of} - {1}
        return record.role in _VALUES and not sizes.isdisjoint(record.shape or ())


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
        if self._is_factor(pair):
            return _not_told(pair) if _taken(pair.golden, pair.target) else pair
        rows = self._rows_of(pair)
        if not rows:
            return self._without_rows(pair)
        said = Message.of("matching.transform.rows_of_tokens", rows=rows)
        tokens = tuple((one.sequence, one.place, one.count) for one in self.pieces)
        if rows == self.count:
            pair = self._of_these_rows(pair)
        return replace(
            pair,
            transform=(said, *pair.transform),
            joining=pair.joining or Joining.VIEW,
            tokens=tokens if rows == self.count else (),
        )

    def _is_factor(self, pair: TensorPair) -> bool:
        golden, target = (pair.golden_node, pair.golden.label), (pair.target_node, pair.target.label)
        return golden in self.golden.factors or target in self.target.factors

    def _of_these_rows(self, pair: TensorPair) -> TensorPair:
        return replace(
            pair,
            golden=self.golden.without_statistics(pair.golden),
            target=self.target.without_statistics(pair.target),
            golden_parts=tuple(map(self.golden.without_statistics, pair.golden_parts)),
            target_parts=tuple(map(self.target.without_statistics, pair.target_parts)),
        )

    def _rows_of(self, pair: TensorPair) -> int:
        """Return how many rows a pair has, of tokens or of sequences; 0 if none are told."""
        if pair.golden.role not in _VALUES:
            return 0
        sizes = {(shape or (0,))[0] for shape in (pair.golden.shape, pair.target.shape)}
        are_sequences = self.golden.exchanges_all and self.target.exchanges_all and sizes == {self.golden.of}
        if sizes == {self.count} or (are_sequences and self.golden.of > 1):
            return sizes.pop()
        return max(_taken(pair.golden, *pair.golden_parts), _taken(pair.target, *pair.target_parts))

    def _without_rows(self, pair: TensorPair) -> TensorPair:
        holds = self.golden.holds_tokens(pair.golden) or self.target.holds_tokens(pair.target)
        if not holds or (pair.incomparable is None and _as_recorded_alike(pair)):
            return pair
        return _not_told(pair)


def _not_told(pair: TensorPair) -> TensorPair:
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
    return CommonRows(_rows(found, 0, nodes[0]), _rows(found, 1, nodes[1]), found.pieces)


def _rows(found: Aligned, side: int, nodes: Sequence[Node]) -> Rows:
    given = found.sides[side]
    runs = chain.from_iterable((piece.rows[side], piece.count) for piece in found.pieces)
    sequences = _sequences(given, found.pieces, side)
    factors = frozenset(_factors(nodes, given.shape))
    return Rows(given.shape, tuple(runs), sequences, len(given.runs), factors)


def _factors(nodes: Iterable[Node], rows: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    """Yield what is no row of tokens of the inputs of products: matrices behind the first that has some."""
    for node in nodes:
        if error_model(node.type_name) is ErrorModel.PRODUCT:
            given = node.records(Role.INPUT)
            with_rows = [record for record in given if behind_rows(record.shape, rows) is not None]
            matrices = (record for record in with_rows[1:] if len(record.shape or ()) == TWO_PARTS)
            yield from ((node.name, record.label) for record in matrices)


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
