"""What the tensors of several ranks are to the one tensor that the other dump has in their place.

    rank 0  rank 1          whole
    [6, 16] [6, 16]   ──▶   [6, 32]    side by side along the dimension that gives the shape (column parallel)
    [3, 32] [3, 32]   ──▶   [6, 32]    likewise, where each rank has its part of the sequence
    [6, 32] [6, 32]   ──▶   [6, 32]    the same on all ranks, each compared; or, where they differ among
                                       themselves and come from shards, to be added up (row parallel)

Nothing is read: shapes and statistics tell, and where there are none, the values will.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby, starmap
from operator import ne
from typing import Final

from msgspec.structs import replace

from firstdrift.groups import known
from firstdrift.matching.fused.joined_tensors import concatenated, whole_axes
from firstdrift.matching.plan import Messages, TensorPair
from firstdrift.matching.ranks.select_shard import narrow_to_rank, part_of_rank, shards_of
from firstdrift.matching.ranks.zigzag import in_zigzag
from firstdrift.matching.tensors import BY_SHAPE, relate_shapes
from firstdrift.model.node import Node
from firstdrift.model.tensor import Role, Sharding, Shards, TensorRecord, is_floating, shared_location
from firstdrift.parallel.expert_parallel import OWN_EXPERTS
from firstdrift.parallel.shards_of_tensors import agree
from firstdrift.wording.message import Message, joined
from firstdrift.wording.phrases import ranks_named, shape, side_named

_WHOLE: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)


def settle_shards(pairs: Sequence[TensorPair], target: Sequence[Node]) -> list[TensorPair]:
    """Settle for each pair of a plan with shards what they are to the whole.

    Args:
        pairs: what is compared.
        target: the target nodes: they say which module a gradient is of.
    """
    if not any(pair.golden.shards or pair.target.shards for pair in pairs):
        return list(pairs)
    settled: list[TensorPair] = []
    for _, group in groupby(pairs, key=lambda pair: pair.match):
        settled += _settle_match(list(group))
    settled = _with_summed_gradients(pairs, settled, {node.name: node.path for node in target})
    return list(map(narrow_to_rank, in_zigzag(settled)))


def _settle_match(pairs: list[TensorPair]) -> list[TensorPair]:
    """Settle the pairs of one match: inputs first, as what it makes of shards depends on them."""
    given = {at: _settle(pair, reduces=False) for at, pair in enumerate(pairs) if _is_given(pair)}
    reduces = any(map(_is_part, given.values()))
    return [given.get(at) or _settle(pair, reduces=reduces) for at, pair in enumerate(pairs)]


def _with_summed_gradients(
    pairs: Sequence[TensorPair], settled: list[TensorPair], paths: Mapping[str, str]
) -> list[TensorPair]:
    """Take gradients of parameters for parts of a sum where each rank ran their module on its own rows."""
    by_rows = {paths.get(pair.target_node) for pair in settled if _lies_by_rows(pair)}
    return [
        _settle(pair, reduces=True)
        if pair.target.role is Role.GRADIENT and paths.get(pair.target_node) in by_rows
        else one
        for pair, one in zip(pairs, settled, strict=True)
    ]


def _lies_by_rows(pair: TensorPair) -> bool:
    """Tell whether ranks hold rows of what a node takes or gives: along another dimension than the last."""
    places = (
        (held.axis, len(side.shape or ()) - 1)
        for side in (pair.golden, pair.target)
        if (held := side.shards) and held.sharding is Sharding.CONCATENATED
    )
    return pair.target.role in (Role.INPUT, Role.OUTPUT) and any(starmap(ne, places))


def _is_given(pair: TensorPair) -> bool:
    return pair.target.role in (Role.INPUT, Role.PARAMETER)


def _is_part(pair: TensorPair) -> bool:
    """Tell whether a pair shows that each rank had only a part of what was to be computed with."""
    shards = shards_of(pair.golden, pair.target)
    return any(held.sharding in (Sharding.CONCATENATED, Sharding.SUMMED) for held in shards)


def _settle(pair: TensorPair, *, reduces: bool) -> TensorPair:
    apart = {"golden": pair.golden.problem, "target": pair.target.problem}
    side = next((side for side, problem in apart.items() if problem == OWN_EXPERTS), None)
    if side is not None:
        return _left_out(pair, Message.of("matching.incomparable.own_experts", side=side_named(side)))
    return _settle_shards(pair, reduces=reduces)


def _settle_shards(pair: TensorPair, *, reduces: bool) -> TensorPair:
    golden, target = pair.golden, pair.target
    if not shards_of(golden, target):
        return pair
    if not (golden.is_tensor and target.is_tensor):
        return _settle_scalars(pair)
    if pair.joining is not None:
        return replace(pair, golden=_complete(golden, reduces), target=_complete(target, reduces))
    # What has the same shape was cut that way; another shape of as many elements may be so by chance.
    for one, other in sorted(_arrangements(golden, target), key=lambda pair: pair[0].shape != pair[1].shape):
        transform, why = relate_shapes(one.shape, other.shape)
        if why is None:
            return _settled(pair, _complete(one, reduces), _complete(other, reduces), transform)
    why_not = _why_unlike(golden, target)
    if why_not is not None:
        return _left_out(pair, why_not)
    return _settled(pair, _complete(golden, reduces), _complete(target, reduces), None)


def _why_unlike(golden: TensorRecord, target: TensorRecord) -> Message | None:
    """Say why shards do not make up the other tensor; None if each side is of one rank."""
    shards = shards_of(golden, target)
    unusable = [*chain.from_iterable(map(_damaged, shards))] or known(map(_lost, shards))
    if unusable:
        return joined(*unusable)
    ranks = tuple(ranks_named(held.ranks) for held in shards if len(held.ranks) > 1)
    shapes = {"golden": _shapes(golden), "target": _shapes(target)}
    return Message.of("matching.incomparable.shards_do_not_join", ranks=ranks, **shapes) if ranks else None


def _left_out(pair: TensorPair, why: Message) -> TensorPair:
    return replace(pair, incomparable=why, transform=())


def _arrangements(golden: TensorRecord, target: TensorRecord) -> Iterator[tuple[TensorRecord, TensorRecord]]:
    """Yield in what ways shards can be laid together: as they are, one side joined, both sides joined."""
    one, other = _single(golden), _single(target)
    if one is not None and other is not None:
        yield one, other
    if one is not None:
        yield from ((one, concatenated(target, axis)) for axis in whole_axes(target))
    if other is not None:
        yield from ((concatenated(golden, axis), other) for axis in whole_axes(golden))
    for axis in set(whole_axes(golden)).intersection(whole_axes(target)):
        yield concatenated(golden, axis), concatenated(target, axis)


def _single(record: TensorRecord) -> TensorRecord | None:
    """Return a record of the shape that each rank holds; None if they hold other shapes each."""
    if record.shards is None:
        return record
    shapes = {shard.shape for shard in record.shards.records}
    return replace(record, shape=shapes.pop()) if len(shapes) == 1 else None


def _complete(record: TensorRecord, reduces: bool) -> TensorRecord:
    """Say what shards of the shape of the whole are: all the same, or to be added up."""
    shards = record.shards
    if shards is None or shards.sharding is not None:
        return record
    sharding = _sharding(record, shards, reduces)
    settled = replace(shards, sharding=sharding)
    if sharding is not Sharding.SUMMED:
        return replace(shards.records[0], shards=settled)
    if shards.total is not None:
        return replace(shards.total, role=record.role, key=record.key, shape=record.shape, shards=settled)
    locations = shards.locations
    if len(locations) < len(shards.records):
        why = Message.of("matching.incomparable.addends_without_values", ranks=ranks_named(shards.ranks))
        problem = record.problem or why
        return replace(record, statistics=None, digest=None, problem=problem, shards=settled)
    location = shared_location(locations, None)
    return replace(record, statistics=None, digest=None, location=location, shards=settled)


def _sharding(record: TensorRecord, shards: Shards, reduces: bool) -> Sharding:
    parts = shards.records
    if len(parts) == 1 or not is_floating(record.dtype) or agree(parts):
        return Sharding.REPLICATED
    is_recorded = bool(known(part.statistics for part in parts))
    if shards.total is not None or (reduces and is_recorded):
        return Sharding.SUMMED
    is_open = not is_recorded and len(shards.locations) == len(parts)
    return Sharding.BY_VALUES if is_open else Sharding.REPLICATED


def _settled(
    pair: TensorPair, golden: TensorRecord, target: TensorRecord, transform: Messages | None
) -> TensorPair:
    """Put the settled records into a pair, and say in its transform what was done."""
    said = tuple(known(map(_how_merged, (golden, target))))
    pair = replace(pair, golden=golden, target=target)
    if transform is None:
        return replace(pair, transform=pair.transform + said)
    before = tuple(how for how in pair.transform if how == BY_SHAPE)
    return replace(pair, transform=before + said + transform, incomparable=None)


def _how_merged(record: TensorRecord) -> Message | None:
    """Say what of several ranks is compared; None if there is only one."""
    shards = record.shards
    if shards is None or len(shards.ranks) == 1:
        return None
    if shards.only is not None and shards.sharding is not Sharding.SUMMED:
        is_open = shards.sharding is Sharding.BY_VALUES
        copy_or_addend = Message.of("matching.transform.copy_or_addend_of_rank", rank=shards.only)
        return copy_or_addend if is_open else part_of_rank(shards)
    if shards.sharding is Sharding.CONCATENATED:
        ranks = ranks_named(shards.ranks)
        return Message.of("matching.transform.ranks_joined", ranks=ranks, axis=shards.axis)
    return Message.of(_merging(shards), ranks=ranks_named(shards.ranks))


def _merging(shards: Shards) -> str:
    """Return the id of the message that says how ranks are compared that are not joined."""
    match shards.sharding:
        case Sharding.SUMMED if shards.total is not None:
            is_scattered = shards.total.shards is not None
            return f"matching.transform.{'reduce_scattered' if is_scattered else 'all_reduced'}"
        case Sharding.SUMMED:
            return "matching.transform.ranks_summed"
        case Sharding.BY_VALUES:
            return "matching.transform.ranks_or_their_sum"
        case _:
            return "matching.transform.each_rank"


def _settle_scalars(pair: TensorPair) -> TensorPair:
    """Compare arguments that are dealt out over ranks (numbers of heads, sizes) by their sum."""
    golden, target = pair.golden, pair.target
    return _settled(pair, _settled_scalar(golden, target), _settled_scalar(target, golden), None)


def _settled_scalar(side: TensorRecord, other: TensorRecord) -> TensorRecord:
    shards = side.shards
    if shards is None:
        return side
    if _are_dealt_out(shards, other.scalar):
        return replace(side, scalar=other.scalar, shards=replace(shards, sharding=Sharding.SUMMED))
    unlike = (part for part in shards.records if part.scalar != other.scalar)
    return replace(next(unlike, side), shards=replace(shards, sharding=Sharding.REPLICATED))


def _are_dealt_out(shards: Shards, whole: str | None) -> bool:
    """Tell whether the whole numbers that ranks have add up to the one of the other dump."""
    held = [part.scalar or "" for part in shards.records]
    if len(held) < 2 or whole is None or whole in held:  # noqa: PLR2004 (several)
        return False
    are_whole = {part.dtype for part in shards.records} == {"int"}
    are_numbers = are_whole and all(map(_WHOLE.fullmatch, (*held, whole)))
    return are_numbers and sum(map(int, held)) == int(whole)


def _damaged(shards: Shards) -> Iterator[Message]:
    for rank, record in zip(shards.ranks, shards.records, strict=True):
        if record.problem:
            yield Message.of("matching.incomparable.on_rank", rank=rank, why=record.problem)


def _lost(shards: Shards) -> Message | None:
    lost = Message.of("matching.incomparable.lost", missing=shards.missing, ranks=shards.ranks)
    return lost if shards.missing else None


def _shapes(record: TensorRecord) -> tuple[Message, ...]:
    records = record.shards.records if record.shards is not None else (record,)
    return tuple(shape(each.shape or ()) for each in records)
