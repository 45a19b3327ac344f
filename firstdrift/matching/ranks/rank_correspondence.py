"""Tell whether ranks of one number have the same part of a model.

golden  rank 0, 1     the same nodes, tensors as large,         rank 0 ── rank 0, and rank 1 is left over
target  rank 0        values nearer to rank 0 than to rank 1
                      else the target has the whole model       rank 0+1 ── rank 0

golden  rank 0, 1     tensors of one are shards of the other's  rank 0+1 ── rank 0+1
target  rank 0, 1     else                                      rank 0 ── rank 0, rank 1 ── rank 1
"""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice, starmap
from typing import Final

from firstdrift.groups import firsts, grouped, known
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
from firstdrift.matching.tree import modules_among
from firstdrift.model.slice import Slice
from firstdrift.model.tensor import Role, TensorRecord, is_floating
from firstdrift.parallel.shards_of_tensors import first_values

_CHUNK: Final = re.compile(r"\d{1,9}(?=\.)")


Tensors = dict[tuple[str, str], TensorRecord]
Records = tuple[TensorRecord, ...]
"""A tensor as several slices have it."""


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
    common = _as_large(_common(own, same, beside))
    # Parameters are looked at by themselves: no fault changes them.
    kinds = grouped(common, lambda records: records[0].role is Role.PARAMETER)
    return any(map(_are_nearer, kinds.values()))


def _are_nearer(common: Sequence[Records]) -> bool:
    """Tell whether most of the first tensors of which ranks hold other values are nearer to the same rank."""
    is_recorded = all(record.statistics is not None for record in common[0])
    answers = (_is_nearer(*records) for records in common[: LOOKED_AT if is_recorded else LOADED])
    told = list(islice(known(answers), TOLD))
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
    chunks = [len(_chunks(side)) for side in sides]
    if min(chunks) < 2 <= max(chunks):  # noqa: PLR2004
        cut = chunks[1] > chunks[0]
        return ranks == 2 or _is_stage_of(sides[cut], sides[not cut], ranks)  # noqa: PLR2004
    pairs = _common(golden, target)
    copies = _as_large(pairs)
    shards = [how.of_target for how in known(starmap(shard, pairs)) if how.times == ranks]
    is_target = 2 * sum(shards) > len(shards)
    are_shards = len(shards) > LEAST_SHARDS * len(pairs) and len(copies) >= LEAST_COPIES * len(pairs)
    return are_shards and _is_stage_of(sides[not is_target], sides[is_target], ranks)


def _is_stage_of(stage: Slice, whole: Slice, ranks: int) -> bool:
    """Tell whether a rank has about as few of the nodes as it has if each rank is a stage of its own."""
    return ranks * len(stage.nodes) < STAGE * len(whole.nodes)


def _chunks(dumped: Slice) -> set[str]:
    """Return the numbers of the chunks of layers that a rank of a virtual pipeline has: 0.model, 1.model."""
    found = {node.path.partition(".")[::2] for node in dumped.nodes if _CHUNK.match(node.path)}
    tops = {rest.partition(".")[0] for _, rest in found}
    return set(firsts(found)) if len(tops) == 1 and not tops.pop().isdigit() else set()


def _are_laid_out_alike(one: Slice, other: Slice) -> bool:
    common = _common(one, other)
    are_as_large = len(_as_large(common)) >= SAME_LAYOUT * len(common)
    return bool(common) and are_as_large and _is_all_in(one, other)


def _is_all_in(one: Slice, other: Slice) -> bool:
    """Tell whether a slice has no modules that another one lacks; of operators alone, no operators."""
    modules = _modules(one), _modules(other)
    held, others = modules if all(modules) else ({node.name for node in side.nodes} for side in (one, other))
    return bool(held) and len(held & others) >= SAME_LAYOUT * len(held)


def _modules(dumped: Slice) -> set[str]:
    return {node.path for node in modules_among(dumped.nodes)}


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


def _common(*slices: Slice) -> list[Records]:
    """Return the tensors that all of some slices have, in order."""
    tensors = list(map(_tensors, slices))
    keys = set(tensors[0]).intersection(*tensors[1:])
    return [tuple(of_slice[key] for of_slice in tensors) for key in tensors[0] if key in keys]


def _as_large(common: Iterable[Records]) -> list[Records]:
    """Return those that are of one shape in all slices."""
    return [records for records in common if len({record.shape for record in records}) == 1]


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
