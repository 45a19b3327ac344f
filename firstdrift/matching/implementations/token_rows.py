"""Which rows are of tokens that both runs have, where one was given padding that the other was not.

golden   ids [[5, 7, 9], [0, 0, 4]]   mask [[1, 1, 1], [0, 0, 1]]   rows 0 to 2, and 5, of six
target   ids [5, 7, 9, 4]                                           all four rows

A row is told by its token: the tokens that are left without padding have to be the same on both sides. An
attention mask tells padding; where none was recorded, a number that the rows of tokens begin or end with.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from math import prod
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.storage.views import ROWS, SHAPED
from firstdrift.groups import known
from firstdrift.matching.implementations.thresholds import (
    MOST_MASKS,
    MOST_PADDINGS,
    MOST_TOKENS,
    TOKEN_DIMENSIONS,
)
from firstdrift.matching.implementations.views import rows_of, with_steps
from firstdrift.matching.plan import Joining, TensorPair
from firstdrift.matching.structure.sequence_alignment import Pair
from firstdrift.matching.tree import tensors_of
from firstdrift.model.node import Node
from firstdrift.model.tensor import Role, TensorRecord, ViewStep, is_floating
from firstdrift.operators.kinds import OpKind
from firstdrift.operators.recognise import kind_of
from firstdrift.parallel.shards_of_tensors import first_values
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named

Nodes: TypeAlias = tuple[Sequence[Node], Sequence[Node]]
"""The golden and the target nodes."""

Tokens: TypeAlias = tuple[float, ...]


class Rows(Struct, frozen=True):
    """Which rows of one run are compared.

    Attributes:
        shape: sequences and their length with padding.
        runs: of each sequence the first row that is compared, and how many are; empty if all are.
    """

    shape: tuple[int, ...]
    runs: tuple[int, ...] = ()

    def kept(self, tokens: Tokens) -> Tokens:
        """Return the tokens that are left without padding."""
        if not self.runs:
            return tokens
        pairs = zip(self.runs[::2], self.runs[1::2], strict=True)
        return tuple(token for first, count in pairs for token in tokens[first : first + count])

    def see(self, nodes: Sequence[Node]) -> Sequence[Node]:
        """See the tensors of nodes without the rows of padding, where their values were saved."""
        if not self.runs:
            return nodes
        return [replace(node, tensors=tuple(map(self._seen, node.tensors))) for node in nodes]

    def _seen(self, record: TensorRecord) -> TensorRecord:
        behind = self._behind(record.shape or ())
        is_value = record.role in (Role.INPUT, Role.OUTPUT) and record.shards is None
        if behind is None or record.location is None or not is_value:
            return record
        steps = ViewStep(SHAPED, (prod(self.shape), *behind)), ViewStep(ROWS, self.runs)
        return replace(with_steps(record, *steps), shape=(sum(self.runs[1::2]), *behind))

    def _behind(self, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the sizes behind sequence and length, or behind flat rows; None of what has neither."""
        if shape[: len(self.shape)] == self.shape:
            return shape[len(self.shape) :]
        return shape[1:] if len(shape) == TOKEN_DIMENSIONS and shape[0] == prod(self.shape) else None


def common_rows(nodes: Nodes, matched: Iterable[Pair]) -> tuple[Rows, Rows] | None:
    """Return the rows of the tokens that both runs have; None where those are all, or nothing tells."""
    ids = next(_token_ids(nodes, matched), None)
    read = ids and first_values(ids, MOST_TOKENS)
    if ids is None or not read:
        return None
    golden, target = (tuple(values.tolist()) for values in read)
    if golden == target:
        return None
    theirs: dict[Tokens, Rows] = {}
    for way in _ways(nodes[1], ids[1], target):
        theirs.setdefault(way.kept(target), way)
    ours = ((way, way.kept(golden)) for way in _ways(nodes[0], ids[0], golden))
    return next(((way, theirs[kept]) for way, kept in ours if kept and kept in theirs), None)


def say_rows(pair: TensorPair) -> TensorPair:
    """Say of which rows are compared, where not all are: what was recorded of all says nothing of them."""
    golden, target = _taken(pair.golden, *pair.golden_parts), _taken(pair.target, *pair.target_parts)
    said = tuple(
        Message.of("matching.transform.rows_of_tokens", side=side_named(side), rows=rows)
        for side, rows in (("golden", golden), ("target", target))
        if rows
    )
    if not said:
        return pair
    return replace(
        pair,
        golden=replace(pair.golden, statistics=None) if golden else pair.golden,
        target=replace(pair.target, statistics=None) if target else pair.target,
        golden_parts=tuple(replace(part, statistics=None) for part in pair.golden_parts),
        target_parts=tuple(replace(part, statistics=None) for part in pair.target_parts),
        transform=(*said, *pair.transform),
        joining=pair.joining or Joining.VIEW,
    )


def _taken(*records: TensorRecord) -> int:
    """Return how many rows are taken of a tensor of which some are compared, or of its parts; else 0."""
    locations = known(record.location for record in records)
    of_parts = (place for location in locations for place in (location, *location.shards))
    return max((sum(rows_of(place)[1::2]) for place in of_parts), default=0)


def _token_ids(nodes: Nodes, matched: Iterable[Pair]) -> Iterator[tuple[TensorRecord, TensorRecord]]:
    """Yield what tables of words were given, the first of them first."""
    for pair in sorted(matched):
        both = nodes[0][pair[0]], nodes[1][pair[1]]
        if all(kind_of(node) is OpKind.LOOKUP for node in both):
            ids = [_whole_numbers(node)[:1] for node in both]
            yield from zip(*ids, strict=False)


def _whole_numbers(node: Node) -> list[TensorRecord]:
    return [each for each in tensors_of(node, Role.INPUT) if each.shape and not is_floating(each.dtype)]


def _ways(nodes: Sequence[Node], ids: TensorRecord, tokens: Tokens) -> Iterator[Rows]:
    """Yield in what ways tokens may be without padding, the surest first."""
    shape = ids.shape or ()
    yield Rows(shape)
    if len(shape) == TOKEN_DIMENSIONS and prod(shape) == len(tokens):
        told = chain(_told_by_masks(nodes, ids), _told_by_padding(tokens, shape[1]))
        yield from filter(None, (_rows(shape, is_kept) for is_kept in told))


def _told_by_masks(nodes: Sequence[Node], ids: TensorRecord) -> Iterator[Sequence[bool]]:
    """Yield what is no padding, as tensors of zeros and ones say that are as large as the token ids."""
    records = chain.from_iterable(map(_whole_numbers, nodes))
    masks = {record.location: record for record in records if record.shape == ids.shape}
    masks.pop(ids.location, None)
    read = (first_values([mask], MOST_TOKENS) for mask in islice(masks.values(), MOST_MASKS))
    yield from (values[0] == 1.0 for values in known(read) if set(values[0].tolist()) == {0.0, 1.0})


def _told_by_padding(tokens: Tokens, length: int) -> Iterator[Sequence[bool]]:
    """Yield what is no padding, if that is a number with which a sequence begins or ends."""
    ends = Counter((*tokens[::length], *tokens[length - 1 :: length]))
    for padding in sorted(token for token, _ in ends.most_common(MOST_PADDINGS)):
        yield [token != padding for token in tokens]


def _rows(shape: tuple[int, ...], is_kept: Sequence[bool]) -> Rows | None:
    """Return the rows that are kept, if they are in one piece of each sequence."""
    runs: list[int] = []
    for first in range(0, len(is_kept), shape[1]):
        kept = [at for at in range(first, first + shape[1]) if is_kept[at]]
        if not kept or kept[-1] - kept[0] >= len(kept):
            return None
        runs += [kept[0], len(kept)]
    return Rows(shape, tuple(runs))
