"""Compare what one rank holds of a model with what the other dump has of all of it.

    rank 1 holds     a copy            ─▶  it is compared
                     a part            ─▶  it is compared with its part of the whole, if values were saved
                     an addend         ─▶  nothing to compare it with: only the sum is in the other dump,
                                           unless their statistics agree

What it holds was told by the other ranks (`shards.py`). What cannot be compared says why, and what to do.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from firstdrift.groups import known
from firstdrift.matching.plan import Messages, TensorPair
from firstdrift.model.tensor import Sharding, Shards, TensorRecord, is_part_of_rank, say_addend
from firstdrift.parallel.shards_of_tensors import agree
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import ranks_named


def narrow_to_rank(pair: TensorPair) -> TensorPair:
    """Leave of a settled pair what the one rank holds that was asked for; all, where none was.

    Args:
        pair: what is compared; shards say what they are to the whole.
    """
    parts = pair.golden_parts, pair.target_parts
    shards = shards_of(pair.golden, pair.target, *parts[0], *parts[1])
    if all(held.only is None for held in shards):
        return pair
    own = replace(pair, golden_parts=tuple(map(_own, parts[0])), target_parts=tuple(map(_own, parts[1])))
    why = pair.incomparable or _why_not(pair)
    if why is not None:
        sides = _own_part(pair.golden), _own_part(pair.target)
        return replace(own, golden=sides[0], target=sides[1], incomparable=why, transform=())
    sides = _compared(pair.golden, pair), _compared(pair.target, pair)
    return replace(own, golden=sides[0], target=sides[1], transform=_transform(pair, shards))


def shards_of(*records: TensorRecord) -> list[Shards]:
    """Return what ranks hold of those tensors that are of several."""
    return known(record.shards for record in records)


def _transform(pair: TensorPair, shards: Sequence[Shards]) -> Messages:
    """Say what is done to a pair; a sum that is not made is not said, but of which rank a joined part is."""
    is_summed = any(held.sharding is Sharding.SUMMED for held in shards)
    transform = () if is_summed and pair.target.is_tensor else pair.transform
    if pair.joining is None:
        return transform
    return (*transform, *known(map(part_of_rank, shards_of(pair.golden, pair.target))))


def part_of_rank(shards: Shards) -> Message | None:
    """Say of shards of which one is compared which part of the whole that is; None if it is no part."""
    if shards.only is None or shards.sharding is not Sharding.CONCATENATED:
        return None
    ranks = ranks_named(shards.ranks)
    return Message.of("matching.transform.part_of_rank", rank=shards.only, ranks=ranks, axis=shards.axis)


def _why_not(pair: TensorPair) -> Message | None:
    """Return why what a rank holds cannot be compared with what the other dump has; None if it can."""
    parts = (*pair.golden_parts, *pair.target_parts)
    cut = (part.shards for part in parts if part.shards is not None and _own(part).shape != part.shape)
    reasons = (
        _why_not_side(pair.golden, pair.target, pair.target_parts),
        _why_not_side(pair.target, pair.golden, pair.golden_parts),
        *(Message.of("matching.incomparable.parts_of_joined", rank=shards.only) for shards in cut),
    )
    return next(iter(known(reasons)), None)


def _why_not_side(
    side: TensorRecord, other: TensorRecord, other_parts: Sequence[TensorRecord]
) -> Message | None:
    shards = side.shards
    if shards is None or shards.only is None or not side.is_tensor:
        return None
    needed = (*shards.records, *(other_parts or (other,)))
    match shards.sharding:
        case Sharding.SUMMED if not agree((_own(side), other)):
            return say_addend(shards)
        case Sharding.CONCATENATED if None in [record.location for record in needed]:
            return Message.of("matching.incomparable.part_without_values", rank=shards.only)
        case _:
            return None


def _own(record: TensorRecord) -> TensorRecord:
    """Return what the one rank holds."""
    own = record.shards.own if record.shards is not None else None
    return record if own is None else replace(own, role=record.role, key=record.key)


def _own_part(record: TensorRecord) -> TensorRecord:
    """Return what the one rank holds, and that it is a part, if it is."""
    return replace(_own(record), shards=record.shards) if is_part_of_rank(record) else _own(record)


def _compared(record: TensorRecord, pair: TensorPair) -> TensorRecord:
    """Return what the one rank holds; with what the others hold, where their values are needed as well."""
    shards = record.shards
    if shards is None or shards.only is None:
        return record
    if not record.is_tensor and shards.sharding is Sharding.SUMMED:
        return replace(record, shards=None)
    by_values = shards.sharding is Sharding.BY_VALUES and pair.joining is None
    is_open_until_read = by_values or shards.sharding is Sharding.CONCATENATED
    return replace(_own(record), shards=shards) if is_open_until_read else _own(record)
