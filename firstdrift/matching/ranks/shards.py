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
from itertools import groupby
from typing import Final

from msgspec.structs import replace

from firstdrift.matching.fused.joined_tensors import concatenated, whole_axes
from firstdrift.matching.plan import TensorPair
from firstdrift.matching.ranks.select_shard import narrow_to_rank, say_part
from firstdrift.matching.tensors import relate_shapes
from firstdrift.model.node import Node
from firstdrift.model.tensor import Role, Sharding, Shards, TensorRecord, is_floating, shared_location
from firstdrift.parallel.expert_parallel import OWN_EXPERTS
from firstdrift.parallel.merge_ranks import agree

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
        of_match = list(group)
        # What an operator makes of shards depends on what it was given: inputs come first.
        first = {at: _settle(pair, reduces=False) for at, pair in enumerate(of_match) if _is_given(pair)}
        reduces = any(_is_part(pair) for pair in first.values())
        settled += [
            first[at] if at in first else _settle(pair, reduces=reduces) for at, pair in enumerate(of_match)
        ]
    settled = _with_summed_gradients(pairs, settled, {node.name: node.path for node in target})
    return list(map(narrow_to_rank, settled))


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
    return pair.target.role in (Role.INPUT, Role.OUTPUT) and any(
        side.shards is not None
        and side.shards.sharding is Sharding.CONCATENATED
        and side.shards.axis != len(side.shape or ()) - 1
        for side in (pair.golden, pair.target)
    )


def _is_given(pair: TensorPair) -> bool:
    return pair.target.role in (Role.INPUT, Role.PARAMETER)


def _is_part(pair: TensorPair) -> bool:
    """Tell whether a pair shows that each rank had only a part of what was to be computed with."""
    shards = (pair.golden.shards, pair.target.shards)
    return any(
        each is not None and each.sharding in (Sharding.CONCATENATED, Sharding.SUMMED) for each in shards
    )


def _settle(pair: TensorPair, *, reduces: bool) -> TensorPair:
    for name, side in (("golden", pair.golden), ("target", pair.target)):
        if side.problem == OWN_EXPERTS:
            return replace(pair, incomparable=f"{name}: {OWN_EXPERTS}", transform="")
    return _settle_shards(pair, reduces=reduces)


def _settle_shards(pair: TensorPair, *, reduces: bool) -> TensorPair:
    golden, target = pair.golden, pair.target
    if golden.shards is None and target.shards is None:
        return pair
    if not golden.is_tensor or not target.is_tensor:
        return _settle_scalars(pair)
    if pair.joining is not None:
        return replace(pair, golden=_complete(golden, reduces), target=_complete(target, reduces))
    said = [_ranks(side.shards) for side in (golden, target) if side.shards and len(side.shards.ranks) > 1]
    for one, other in _arrangements(golden, target):
        transform, why = relate_shapes(one.shape, other.shape)
        if why is None:
            return _settled(pair, _complete(one, reduces), _complete(other, reduces), transform)
    damaged = [text for side in (golden, target) if side.shards and (text := _damaged(side.shards))]
    if damaged:
        return replace(pair, incomparable="; ".join(damaged), transform="")
    if lost := [_lost(side.shards) for side in (golden, target) if side.shards and side.shards.missing]:
        return replace(pair, incomparable="; ".join(lost), transform="")
    if not said:
        return _settled(pair, _complete(golden, reduces), _complete(target, reduces), None)
    shapes = f"{_shapes(golden)} against {_shapes(target)}"
    why = f"the shards of {' and '.join(said)} join to no common shape: {shapes}"
    return replace(pair, incomparable=why, transform="")


def _arrangements(golden: TensorRecord, target: TensorRecord) -> Iterator[tuple[TensorRecord, TensorRecord]]:
    """Yield in what ways shards can be laid together: as they are, one side joined, both sides joined."""
    one, other = _single(golden), _single(target)
    if one is not None and other is not None:
        yield one, other
    if one is not None:
        yield from ((one, concatenated(target, axis)) for axis in whole_axes(target))
    if other is not None:
        yield from ((concatenated(golden, axis), other) for axis in whole_axes(golden))
    for axis in set(whole_axes(golden)) & set(whole_axes(target)):
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
    locations = tuple(part.location for part in shards.records if part.location is not None)
    if len(locations) < len(shards.records):
        why = f"{_ranks(shards)} hold parts of a sum, whose statistics do not follow from those of the parts"
        return replace(record, statistics=None, digest=None, problem=record.problem or why, shards=settled)
    location = shared_location(locations, None)
    return replace(record, statistics=None, digest=None, location=location, shards=settled)


def _sharding(record: TensorRecord, shards: Shards, reduces: bool) -> Sharding:
    parts = shards.records
    if len(parts) == 1 or not is_floating(record.dtype) or agree(parts):
        return Sharding.REPLICATED
    if shards.total is not None or (reduces and any(part.statistics for part in parts)):
        return Sharding.SUMMED
    undecided = all(part.location is not None for part in parts) and not any(
        part.statistics for part in parts
    )
    return Sharding.BY_VALUES if undecided else Sharding.REPLICATED


def _settled(
    pair: TensorPair, golden: TensorRecord, target: TensorRecord, transform: str | None
) -> TensorPair:
    """Put the settled records into a pair, and say in its transform what was done."""
    said = [text for side in (golden, target) if (text := _say(side))]
    before = pair.transform.partition(";")[0] if "paired by" in pair.transform else ""
    if transform is None:
        before, reshape = pair.transform, ""
    else:
        reshape = transform
    incomparable = pair.incomparable if transform is None else None
    texts = [text for text in (before, *said, reshape) if text]
    return replace(pair, golden=golden, target=target, transform="; ".join(texts), incomparable=incomparable)


def _say(record: TensorRecord) -> str:
    shards = record.shards
    if shards is None or len(shards.ranks) == 1:
        return ""
    ranks = _ranks(shards)
    if shards.only is not None and shards.sharding is not Sharding.SUMMED:
        is_open = shards.sharding is Sharding.BY_VALUES
        said = f"what rank {shards.only} holds, a copy or a part of a sum, as the values tell"
        return said if is_open else say_part(shards)
    match shards.sharding:
        case Sharding.CONCATENATED:
            return f"{ranks} joined along dimension {shards.axis}"
        case Sharding.SUMMED if shards.total is not None:
            operator = "all-reduce" if shards.total.shards is None else "reduce-scatter"
            return f"sum over {ranks}, as the {operator} gave it"
        case Sharding.SUMMED:
            return f"sum over {ranks}"
        case Sharding.BY_VALUES:
            return f"each of {ranks}, or their sum, as the values tell"
        case _:
            return f"each of {ranks}"


def _settle_scalars(pair: TensorPair) -> TensorPair:
    """Compare arguments that are dealt out over ranks (numbers of heads, sizes) by their sum."""
    sides = []
    for side, other in ((pair.golden, pair.target), (pair.target, pair.golden)):
        shards = side.shards
        if shards is None:
            sides.append(side)
            continue
        held = [part.scalar or "" for part in shards.records]
        numbers = all(part.dtype == "int" and _is_int(part.scalar) for part in shards.records)
        dealt_out = (
            len(held) > 1
            and numbers
            and _is_int(other.scalar)
            and other.scalar not in held
            and sum(map(int, held)) == int(other.scalar or 0)
        )
        if dealt_out:
            settled = replace(shards, sharding=Sharding.SUMMED)
            sides.append(replace(side, scalar=other.scalar, shards=settled))
        else:
            settled = replace(shards, sharding=Sharding.REPLICATED)
            other_one = (part for part in shards.records if part.scalar != other.scalar)
            sides.append(replace(next(other_one, side), shards=settled))
    return _settled(pair, sides[0], sides[1], None)


def _is_int(text: str | None) -> bool:
    return text is not None and _WHOLE.fullmatch(text) is not None


def _damaged(shards: Shards) -> str:
    known = zip(shards.ranks, shards.records, strict=True)
    return "; ".join(f"rank {rank}: {record.problem}" for rank, record in known if record.problem)


def _lost(shards: Shards) -> str:
    missing = ", ".join(map(str, shards.missing))
    return f"nothing was recorded of it on rank {missing}, on rank {', '.join(map(str, shards.ranks))} it was"


def _ranks(shards: Shards | None) -> str:
    return f"ranks {'+'.join(map(str, shards.ranks))}" if shards else ""


def _shapes(record: TensorRecord) -> str:
    if record.shards is None:
        return str(list(record.shape or ()))
    return " and ".join(str(list(shard.shape or ())) for shard in record.shards.records)
