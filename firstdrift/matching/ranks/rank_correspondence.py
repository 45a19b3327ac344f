"""Tell whether ranks of one number have the same part of a model.

golden  rank 0, 1     the same nodes, tensors as large,         rank 0 ── rank 0, and rank 1 is left over
target  rank 0        values nearer to rank 0 than to rank 1
                      else the target has the whole model       rank 0+1 ── rank 0

golden  rank 0, 1     tensors of one are shards of the other's  rank 0+1 ── rank 0+1
target  rank 0, 1     else                                      rank 0 ── rank 0, rank 1 ── rank 1
"""

import re
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from firstdrift.matching.ranks.partial_dump import shard
from firstdrift.matching.ranks.thresholds import (
    LEAST_COPIES,
    LEAST_SHARDS,
    LOADED,
    LOOKED_AT,
    NEARER,
    SAME_LAYOUT,
    SAMPLE,
    STAGE,
    TELLING,
    TOLD,
)
from firstdrift.matching.structure.statistics_similarity import value_distance
from firstdrift.matching.tree import is_operator
from firstdrift.model.slice import Slice
from firstdrift.model.tensor import Role, TensorRecord, is_floating
from firstdrift.parallel.shards_of_tensors import first_values

_CHUNK: Final = re.compile(r"\d{1,9}(?=\.)")


Tensors = dict[tuple[str, str], TensorRecord]
Records = tuple[TensorRecord, TensorRecord, TensorRecord]


def hold_same_part(own: Slice, same: Slice, other: Callable[[], Slice]) -> bool:
    """Tell whether a rank of one dump holds the part of a model that the same rank of the other dump holds.

    It may have recorded less of it, such as no backward pass.
    A run that is not spread has more nodes than a stage of a pipeline, and larger tensors than a shard; where
    a dump has neither, it has nothing that is near one rank alone.

    Args:
        own: what a rank holds of a dump that has few ranks.
        same: what the rank of that number holds of the other dump.
        other: reads what another rank holds of that dump; it is asked for only where it can tell more.
    """
    if not _are_laid_out_alike(own, same):
        return False
    beside = other()
    if not _have_same_nodes(same, beside):
        return True
    return any(map(_are_nearer, _common(own, same, beside)))


def _are_nearer(common: Sequence[Records]) -> bool:
    """Tell whether most of the first tensors of which ranks hold other values are nearer to the same rank."""
    is_recorded = bool(common) and all(record.statistics is not None for record in common[0])
    known = (_is_nearer(*records) for records in common[: LOOKED_AT if is_recorded else LOADED])
    told = list(islice((nearer for nearer in known if nearer is not None), TOLD))
    return 2 * sum(told) > len(told)


def are_spread_otherwise(golden: Slice, target: Slice, ranks: int) -> bool:
    """Tell whether ranks of one number hold other parts of one model: a shard of all layers, or one stage.

    Only where all ranks are needed for one model on either side: copies of a model are not to be merged.

    Args:
        golden: what a rank holds of the golden dump.
        target: what the rank of that number holds of the target dump.
        ranks: how many ranks either dump has.
    """
    sides = golden, target
    chunks = [len(_chunks(one)) for one in sides]
    if min(chunks) < 2 <= max(chunks):  # noqa: PLR2004
        cut = chunks[1] > chunks[0]
        return ranks == 2 or _is_stage_of(sides[cut], sides[not cut], ranks)  # noqa: PLR2004
    tensors, others = _tensors(golden), _tensors(target)
    pairs = [(tensors[key], others[key]) for key in tensors.keys() & others.keys()]
    copies = sum(record.shape == other.shape for record, other in pairs)
    shards = [how.of_target for pair in pairs if (how := shard(*pair)) is not None and how.times == ranks]
    is_target = 2 * sum(shards) > len(shards)
    return (
        len(shards) > LEAST_SHARDS * len(pairs)
        and copies >= LEAST_COPIES * len(pairs)
        and _is_stage_of(sides[not is_target], sides[is_target], ranks)
    )


def _is_stage_of(stage: Slice, whole: Slice, ranks: int) -> bool:
    """Tell whether a rank has about as few of the nodes as it has if each rank is a stage of its own."""
    return ranks * len(stage.nodes) < STAGE * len(whole.nodes)


def _chunks(dumped: Slice) -> set[str]:
    """Return the numbers of the chunks of layers that a rank of a virtual pipeline has: 0.model, 1.model."""
    found = {node.path.partition(".")[::2] for node in dumped.nodes if _CHUNK.match(node.path)}
    tops = {rest.partition(".")[0] for _, rest in found}
    return {number for number, _ in found} if len(tops) == 1 and not tops.pop().isdigit() else set()


def _are_laid_out_alike(one: Slice, other: Slice) -> bool:
    tensors, others = _tensors(one), _tensors(other)
    common = tensors.keys() & others.keys()
    as_large = sum(tensors[key].shape == others[key].shape for key in common)
    return _is_all_in(one, other) and bool(common) and as_large >= SAME_LAYOUT * len(common)


def _is_all_in(one: Slice, other: Slice) -> bool:
    """Tell whether a slice has no modules that another one lacks; of operators alone, no operators."""
    modules = _modules(one), _modules(other)
    held, others = modules if all(modules) else ({node.name for node in side.nodes} for side in (one, other))
    return bool(held) and len(held & others) >= SAME_LAYOUT * len(held)


def _modules(dumped: Slice) -> set[str]:
    return {node.path for node in dumped.nodes if not is_operator(node)}


def _have_same_nodes(one: Slice, other: Slice) -> bool:
    names = {node.name for node in one.nodes}, {node.name for node in other.nodes}
    return len(names[0] & names[1]) >= SAME_LAYOUT * max(map(len, names))


def _tensors(dumped: Slice) -> Tensors:
    return {
        (node.name, record.label): record
        for node in dumped.nodes
        for record in node.tensors
        if record.is_tensor and record.shape and is_floating(record.dtype)
    }


def _common(*slices: Slice) -> tuple[list[Records], list[Records]]:
    """Return the tensors of equal shapes, in order: parameters, which no fault changes, and the rest."""
    own, same, other = map(_tensors, slices)
    common = [
        (own[key], same[key], other[key])
        for key in own
        if key in same and key in other and own[key].shape == same[key].shape == other[key].shape
    ]
    parameters = [records for records in common if records[0].role is Role.PARAMETER]
    return parameters, [records for records in common if records[0].role is not Role.PARAMETER]


def _is_nearer(own: TensorRecord, same: TensorRecord, other: TensorRecord) -> bool | None:
    """Tell whether a tensor is nearer to the same rank than to another; None if these are as one."""
    between = _distance(same, other)
    if between is None or between < TELLING:
        return None
    distance = _distance(own, same)
    return None if distance is None else distance < NEARER * between


def _distance(one: TensorRecord, other: TensorRecord) -> float | None:
    """Return how far two tensors are apart, relative to the larger one; None if nothing is known of them."""
    if one.digest is not None and other.digest is not None and one.digest == other.digest:
        return 0.0
    known = value_distance(one, other)
    return _distance_of_values(one, other) if known is None else known


def _distance_of_values(one: TensorRecord, other: TensorRecord) -> float | None:
    import numpy as np

    samples = first_values((one, other), SAMPLE)
    if samples is None or samples[0].shape != samples[1].shape:
        return None
    with np.errstate(all="ignore"):
        size = max(float(np.linalg.norm(sample)) for sample in samples)
        apart = float(np.linalg.norm(samples[0] - samples[1]))
    return apart / size if np.isfinite(apart) and 0 < size < np.inf else None
