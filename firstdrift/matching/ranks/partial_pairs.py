"""Say what of a plan can be compared where one dump is that of one rank of a model without the others.

A part is left out: nothing says which part of the whole it is. What is as large as the whole and was made of
parts may be an addend, until the next communication adds them up: its values decide.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from math import prod
from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from firstdrift.matching.cross_framework.layer_ops import first_input, layer_nodes
from firstdrift.matching.plan import NodeMatch, TensorPair
from firstdrift.matching.ranks.partial_dump import LINEAR, Spread, part
from firstdrift.matching.ranks.thresholds import MOST_DIGITS
from firstdrift.matching.tree import SliceTree, indexes_by_name, tensors_of
from firstdrift.model.node import Node
from firstdrift.model.tensor import Role, Sharding, Shards, TensorRecord, is_floating, is_part_of_rank
from firstdrift.operators.kinds import OpKind
from firstdrift.operators.recognise import kind_of
from firstdrift.parallel.point_to_point import is_communication
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import shape

_DIVIDED: Final = Message.of("matching.incomparable.divided_among_ranks")


def settle_partial_dump(
    pairs: Sequence[TensorPair],
    matches: Sequence[NodeMatch],
    trees: tuple[SliceTree, SliceTree],
    spread: Spread,
    rank: int,
) -> list[TensorPair]:
    """Say of each pair of a plan whether it can be compared, where one dump is that of one rank.

    Args:
        pairs: what is to be compared.
        matches: the matches that they belong to.
        trees: of golden and target.
        spread: which dump is that of one rank.
        rank: which rank that is.
    """
    addends = _Addends(pairs, matches, trees, spread)
    return [_settle(pair, spread, rank, may_be_addend=addends.has(pair)) for pair in pairs]


def say_partial_dump(spread: Spread, pairs: Sequence[TensorPair]) -> Message:
    """Say that a dump is that of one rank, and what follows from that."""
    left_out = sum(is_part_of_rank(spread.own(pair)) for pair in pairs)
    return Message.of("matching.note.one_rank_alone", side=spread.side, ranks=spread.ranks, parts=left_out)


def _settle(pair: TensorPair, spread: Spread, rank: int, *, may_be_addend: bool) -> TensorPair:
    own, whole = spread.own(pair), spread.whole(pair)
    if _is_dealt_out(own.scalar, whole.scalar, spread.ranks):
        return replace(pair, incomparable=_DIVIDED, transform=())
    if not (own.is_tensor and whole.is_tensor) or own.shards is not None:
        return pair
    if (why := _say_part(pair, spread)) is not None:
        settled = _with_sharding(pair, spread, rank, Sharding.CONCATENATED)
        return replace(settled, incomparable=why, transform=())
    is_single = pair.incomparable is None and pair.joining is None
    is_addend = may_be_addend and is_single and is_floating(own.dtype)
    return _with_sharding(pair, spread, rank, Sharding.BY_VALUES) if is_addend else pair


def _with_sharding(pair: TensorPair, spread: Spread, rank: int, sharding: Sharding) -> TensorPair:
    own = spread.own(pair)
    shards = Shards((rank,), (own,), sharding=sharding, only=rank, of=spread.ranks)
    own = replace(own, shards=shards)
    return replace(pair, target=own) if spread.is_target else replace(pair, golden=own)


def _is_dealt_out(own: str | None, whole: str | None, ranks: int) -> bool:
    """Tell whether an argument is a number that is dealt out to the ranks: of heads, of columns."""
    if own is None or whole is None or not own.isdecimal() or not whole.isdecimal():
        return False
    return max(len(own), len(whole)) <= MOST_DIGITS and int(whole) == ranks * int(own) > 0


def _say_part(pair: TensorPair, spread: Spread) -> Message | None:
    """Say that the one rank has a part of a tensor; None if it has not."""
    golden, target = pair.golden.shape, pair.target.shape
    if golden is None or target is None:
        return None
    shapes = {"side": spread.side, "golden": shape(golden), "target": shape(target)}
    how = part(golden, target)
    if how is not None and how.of_target is spread.is_target:
        return Message.of("matching.incomparable.one_of_parts", **shapes, parts=how.times)
    is_smaller = prod(spread.own(pair).shape or ()) < prod(spread.whole(pair).shape or ())
    is_part = pair.incomparable is None and is_smaller
    return Message.of("matching.incomparable.part_only", **shapes) if is_part else None


class _Addends:
    """The tensors of the one rank that may be parts of a sum: as large as the whole, yet made of parts."""

    def __init__(
        self,
        pairs: Sequence[TensorPair],
        matches: Sequence[NodeMatch],
        trees: tuple[SliceTree, SliceTree],
        spread: Spread,
    ) -> None:
        self._spread = spread
        self._trees = trees
        self._tree = trees[spread.is_target]
        self._numbers = [indexes_by_name(tree.nodes) for tree in trees]
        self._layers = layer_nodes(self._tree)
        by_rows = self._by_rows(pairs)
        self._giving: set[str] = set()
        self._given_on: set[str] = set()
        self._names = {
            Role.OUTPUT: self._giving,
            Role.INPUT: self._given_on,
            Role.GRADIENT: {node.name for node in self._tree.nodes if node.path in by_rows},
        }
        for match in matches:
            if len(match.golden) == len(match.target) == 1 and not match.doubtful:
                indices = self._numbers[0][match.golden[0]], self._numbers[1][match.target[0]]
                if self._adds_up(*indices):
                    self._mark(indices[spread.is_target])

    def has(self, pair: TensorPair) -> bool:
        """Tell whether what the one rank holds of a pair may be a part of a sum."""
        return self._name(pair) in self._names.get(self._spread.own(pair).role, ())

    def _name(self, pair: TensorPair) -> str:
        return pair.target_node if self._spread.is_target else pair.golden_node

    def _by_rows(self, pairs: Sequence[TensorPair]) -> frozenset[str]:
        """Return the modules that ran on a part of the rows: gradients of their parameters are addends."""
        values = (pair for pair in pairs if pair.target.role in (Role.INPUT, Role.OUTPUT))
        parts = ((self._name(pair), part(pair.golden.shape, pair.target.shape)) for pair in values)
        own = self._numbers[self._spread.is_target]
        rows = [own[name] for name, how in parts if how and how.axis != -1]
        return frozenset(map(attrgetter("path"), self._tree.nodes_at(rows)))

    def _adds_up(self, golden: int, target: int) -> bool:
        """Tell whether a node was given parts: what it gives as a whole may be a part of a sum."""
        own = (golden, target)[self._spread.is_target]
        node = self._tree.nodes[own]
        given = self._given(golden, target)
        if not given:
            kind = kind_of(node)
            return kind is OpKind.LOOKUP or (kind in LINEAR and self._is_in_layer(own))
        width = next((record.shape[-1] for record in tensors_of(node, Role.OUTPUT) if record.shape), None)
        return any(self._is_summed_over(*records, width) for records in given)

    def _is_summed_over(self, golden: TensorRecord, target: TensorRecord, width: int | None) -> bool:
        """Tell whether the one rank has a part of what is given, and the output is not as long a part."""
        how = part(golden.shape, target.shape)
        if how is None or how.of_target is not self._spread.is_target:
            return False
        return golden.role is Role.INPUT or how.axis == -1 or how.size != width

    def _given(self, golden: int, target: int) -> list[tuple[TensorRecord, TensorRecord]]:
        """Return what both nodes were given, and their parameters."""
        nodes = self._trees[0].nodes[golden], self._trees[1].nodes[target]
        inputs = _common(*nodes, Role.INPUT)
        if not inputs:
            firsts = first_input(self._trees[0], golden), first_input(self._trees[1], target)
            inputs = [(firsts[0], firsts[1])] if firsts[0] and firsts[1] else []
        return inputs + _common(*nodes, Role.PARAMETER)

    def _mark(self, index: int) -> None:
        """Mark a node that adds up, what is inside it, and what follows in its part of the layer.

        That ends with the next communication. Where there is none, the modules around it, up to the layer,
        may hand its addend on.
        """
        nodes = self._tree.nodes
        around = self._around(index)
        reached = self._reached(index, around)
        self._giving.update(nodes[at].name for at in (*_below(self._tree, index), *reached))
        self._given_on.update(nodes[at].name for at in reached if at not in around)

    def _reached(self, index: int, around: list[int]) -> list[int]:
        """Return what follows a node in its part of the layer, else in the model, until they communicate."""
        is_in_layer = self._is_in_layer(index)
        part_of_layer = chain.from_iterable(_below(self._tree, block) for block in around[-2:-1])
        following = part_of_layer if is_in_layer else range(len(self._tree.nodes))
        after = sorted(at for at in following if at > index)
        talks = (at for at, node in enumerate(self._tree.nodes_at(after)) if is_communication(node.type_name))
        return after[: next(talks, len(after) if is_in_layer else 0)]

    def _is_in_layer(self, index: int) -> bool:
        around = self._around(index)
        return bool(around) and around[-1] in self._layers

    def _around(self, index: int) -> list[int]:
        """Return the modules around a node, the innermost first, up to its layer if it is in one."""
        around = list(self._tree.around(index))
        layer = next((at for at, module in enumerate(around) if module in self._layers), len(around))
        return around[: layer + 1]


def _common(golden: Node, target: Node, role: Role) -> list[tuple[TensorRecord, TensorRecord]]:
    """Return the tensors of a role that two nodes have, where they hold fractions."""
    others = {record.key: record for record in tensors_of(golden, role)}
    own = (record for record in tensors_of(target, role) if is_floating(record.dtype))
    return [(others[record.key], record) for record in own if record.key in others]


def _below(tree: SliceTree, index: int) -> Iterator[int]:
    """Yield a node and those inside it."""
    waiting = [index]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += tree.forward[node]
        waiting += tree.backward[node]
