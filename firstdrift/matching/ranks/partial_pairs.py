"""Say what of a plan can be compared where one dump is that of one rank of a model without the others.

A part is left out: nothing says which part of the whole it is. What is as large as the whole and was made of
parts may be an addend, until the next communication adds them up: its values decide.
"""

from collections.abc import Iterator, Sequence
from itertools import takewhile
from math import prod
from typing import Final

from msgspec.structs import replace

from firstdrift.matching.cross_framework.layer_ops import first_input, layer_nodes
from firstdrift.matching.plan import NodeMatch, TensorPair
from firstdrift.matching.ranks.partial_dump import Spread, part
from firstdrift.matching.ranks.thresholds import MOST_DIGITS
from firstdrift.matching.tree import SliceTree
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
    if not own.is_tensor or not whole.is_tensor:
        is_dealt_out = _is_dealt_out(own.scalar, whole.scalar, spread.ranks)
        return replace(pair, incomparable=_DIVIDED, transform=()) if is_dealt_out else pair
    if own.shards is not None:
        return pair
    if (why := _say_part(pair, spread)) is not None:
        settled = _with_sharding(pair, spread, rank, Sharding.CONCATENATED)
        return replace(settled, incomparable=why, transform=())
    is_single = pair.incomparable is None and pair.joining is None
    if is_single and may_be_addend and is_floating(own.dtype):
        return _with_sharding(pair, spread, rank, Sharding.BY_VALUES)
    return pair


def _with_sharding(pair: TensorPair, spread: Spread, rank: int, sharding: Sharding) -> TensorPair:
    own = spread.own(pair)
    shards = Shards((rank,), (own,), sharding=sharding, only=rank, of=spread.ranks)
    own = replace(own, shards=shards)
    return replace(pair, target=own) if spread.is_target else replace(pair, golden=own)


def _is_dealt_out(own: str | None, whole: str | None, ranks: int) -> bool:
    """Tell whether an argument is a number that is dealt out to the ranks: of heads, of columns."""
    if own is None or whole is None or not own.isdecimal() or not whole.isdecimal():
        return False
    return len(whole) <= MOST_DIGITS and int(own) > 0 and int(whole) == ranks * int(own)


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
        self._numbers = [{node.name: at for at, node in enumerate(tree.nodes)} for tree in trees]
        self._layers = layer_nodes(self._tree)
        self._paths = self._by_rows(pairs)
        self._giving: set[str] = set()
        self._given_on: set[str] = set()
        for match in matches:
            if len(match.golden) == len(match.target) == 1 and not match.doubtful:
                indices = self._numbers[0][match.golden[0]], self._numbers[1][match.target[0]]
                if self._adds_up(*indices):
                    self._mark(indices[spread.is_target])

    def has(self, pair: TensorPair) -> bool:
        """Tell whether what the one rank holds of a pair may be a part of a sum."""
        name = self._name(pair)
        match self._spread.own(pair).role:
            case Role.GRADIENT:
                return self._path(name) in self._paths
            case Role.OUTPUT:
                return name in self._giving
            case Role.INPUT:
                return name in self._given_on
            case _:
                return False

    def _name(self, pair: TensorPair) -> str:
        return pair.target_node if self._spread.is_target else pair.golden_node

    def _path(self, name: str) -> str:
        return self._tree.nodes[self._numbers[self._spread.is_target][name]].path

    def _by_rows(self, pairs: Sequence[TensorPair]) -> frozenset[str]:
        """Return the modules that ran on a part of the rows: gradients of their parameters are addends."""
        values = (pair for pair in pairs if pair.target.role in (Role.INPUT, Role.OUTPUT))
        parts = ((pair, part(pair.golden.shape, pair.target.shape)) for pair in values)
        return frozenset(self._path(self._name(pair)) for pair, how in parts if how and how.axis != -1)

    def _adds_up(self, golden: int, target: int) -> bool:
        """Tell whether a node was given parts: what it gives as a whole may be a part of a sum."""
        own = (golden, target)[self._spread.is_target]
        given = self._given(golden, target)
        if not given:
            kind = kind_of(self._tree.nodes[own])
            is_linear = kind in (OpKind.LINEAR, OpKind.GROUPED)
            return kind is OpKind.LOOKUP or (is_linear and self._is_in_layer(own))
        outputs = (record for record in self._tree.nodes[own].tensors if record.role is Role.OUTPUT)
        width = next((record.shape[-1] for record in outputs if record.is_tensor and record.shape), None)
        parts = ((record.role, part(record.shape, other.shape)) for record, other in given)
        return any(
            how.of_target is self._spread.is_target
            and (role is Role.INPUT or how.axis == -1 or how.size != width)
            for role, how in parts
            if how is not None
        )

    def _given(self, golden: int, target: int) -> list[tuple[TensorRecord, TensorRecord]]:
        """Return what both nodes were given, and their parameters."""
        nodes = self._trees[0].nodes[golden], self._trees[1].nodes[target]
        known = {record.label: record for record in nodes[0].tensors if record.is_tensor}
        own = (
            record
            for record in nodes[1].tensors
            if record.role in (Role.INPUT, Role.PARAMETER) and record.is_tensor and is_floating(record.dtype)
        )
        given = [(known[record.label], record) for record in own if record.label in known]
        firsts = first_input(self._trees[0], golden), first_input(self._trees[1], target)
        if not any(record.role is Role.INPUT for record, _ in given) and firsts[0] and firsts[1]:
            given.append((firsts[0], firsts[1]))
        return given

    def _mark(self, index: int) -> None:
        """Mark a node that adds up, what is inside it, and what follows in its part of the layer.

        That ends with the next communication. Where there is none, the modules around it, up to the layer,
        may hand its addend on.
        """
        nodes = self._tree.nodes
        self._giving.update(nodes[below].name for below in _below(self._tree, index))
        around = self._around(index)
        is_in_layer = self._is_in_layer(index)
        block = around[-2] if is_in_layer and len(around) > 1 else None
        following = [] if is_in_layer else list(range(index + 1, len(nodes)))
        if block is not None:
            following = sorted(at for at in _below(self._tree, block) if at > index)
        reached = list(takewhile(lambda at: not is_communication(nodes[at].type_name), following))
        if block is not None or len(reached) < len(following):
            self._giving.update(nodes[at].name for at in reached)
            self._given_on.update(nodes[at].name for at in reached if at not in around)

    def _is_in_layer(self, index: int) -> bool:
        around = self._around(index)
        return bool(around) and around[-1] in self._layers

    def _around(self, index: int) -> list[int]:
        """Return the modules around a node, the innermost first, up to its layer if it is in one."""
        around: list[int] = []
        while (index := self._tree.parents[index]) != self._tree.root:
            around.append(index)
            if index in self._layers:
                break
        return around


def _below(tree: SliceTree, index: int) -> Iterator[int]:
    """Yield a node and those inside it."""
    waiting = [index]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += tree.forward[node]
        waiting += tree.backward[node]
