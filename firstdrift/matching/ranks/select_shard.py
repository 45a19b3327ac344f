"""Compare what one rank holds of a model with what the other dump has of all of it.

    rank 1 holds     a copy            ─▶  it is compared
                     a part            ─▶  it is compared with its part of the whole, if values were saved
                     an addend         ─▶  nothing to compare it with: only the sum is in the other dump,
                                           unless their statistics agree

What it holds was told by the other ranks (`shards.py`). What cannot be compared says why, and what to do.
"""

from msgspec.structs import replace

from firstdrift.matching.plan import TensorPair
from firstdrift.model.tensor import Sharding, Shards, TensorRecord, is_part_of_rank, say_addend
from firstdrift.parallel.merge_ranks import agree
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import ranks_named


def narrow_to_rank(pair: TensorPair) -> TensorPair:
    """Leave of a settled pair what the one rank holds that was asked for; all, where none was.

    Args:
        pair: what is compared; shards say what they are to the whole.
    """
    parts = pair.golden_parts, pair.target_parts
    shards = [one.shards for one in (pair.golden, pair.target, *parts[0], *parts[1])]
    if not any(one is not None and one.only is not None for one in shards):
        return pair
    why = pair.incomparable or _why_not(pair)
    if why is not None:
        return replace(
            pair,
            golden=_own_part(pair.golden),
            target=_own_part(pair.target),
            golden_parts=tuple(map(_own, parts[0])),
            target_parts=tuple(map(_own, parts[1])),
            incomparable=why,
            transform=(),
        )
    transform = pair.transform
    if any(one is not None and one.sharding is Sharding.SUMMED for one in shards) and pair.target.is_tensor:
        transform = ()
    if pair.joining is not None:
        own = (part_of_rank(one) for one in shards[:2] if one is not None)
        transform = (*transform, *(said for said in own if said is not None))
    return replace(
        pair,
        golden=_compared(pair.golden, pair),
        target=_compared(pair.target, pair),
        golden_parts=tuple(map(_own, parts[0])),
        target_parts=tuple(map(_own, parts[1])),
        transform=transform,
    )


def part_of_rank(shards: Shards) -> Message | None:
    """Say of shards of which one is compared which part of the whole that is; None if it is no part."""
    if shards.only is None or shards.sharding is not Sharding.CONCATENATED:
        return None
    ranks = ranks_named(shards.ranks)
    return Message.of("matching.transform.part_of_rank", rank=shards.only, ranks=ranks, axis=shards.axis)


def _why_not(pair: TensorPair) -> Message | None:
    """Return why what a rank holds cannot be compared with what the other dump has; None if it can."""
    for side, other, other_parts in (
        (pair.golden, pair.target, pair.target_parts),
        (pair.target, pair.golden, pair.golden_parts),
    ):
        shards = side.shards
        if shards is None or shards.only is None or not side.is_tensor:
            continue
        if shards.sharding is Sharding.SUMMED and not agree((_own(side), other)):
            return say_addend(shards)
        if shards.sharding is Sharding.CONCATENATED:
            needed = (*shards.records, *(other_parts or (other,)))
            if any(record.location is None for record in needed):
                return Message.of("matching.incomparable.part_without_values", rank=shards.only)
    for part in (*pair.golden_parts, *pair.target_parts):
        if part.shards is not None and _own(part).shape != part.shape:
            return Message.of("matching.incomparable.parts_of_joined", rank=part.shards.only)
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
    undecided = shards.sharding is Sharding.BY_VALUES and pair.joining is None
    if undecided or shards.sharding is Sharding.CONCATENATED:
        return replace(_own(record), shards=shards)
    return _own(record)
