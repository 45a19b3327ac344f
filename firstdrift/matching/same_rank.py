"""Tell whether ranks of one number have the same part of a model.

golden  rank 0, 1     the same nodes, tensors as large,         rank 0 ── rank 0, and rank 1 is left over
target  rank 0        values nearer to rank 0 than to rank 1
                      else the target has the whole model       rank 0+1 ── rank 0

golden  rank 0, 1     tensors of one are shards of the other's  rank 0+1 ── rank 0+1
target  rank 0, 1     else                                      rank 0 ── rank 0, rank 1 ── rank 1
"""

import re
from collections.abc import Iterator
from typing import Final

from firstdrift.dumps.data import load_tensor
from firstdrift.dumps.dump import Slice
from firstdrift.errors import TensorUnreadableError
from firstdrift.matching.lone_rank import part
from firstdrift.matching.values import value_distance
from firstdrift.tensors import Role, TensorRecord, is_floating

_SAME: Final = 0.95
"""Share of nodes, and of tensors as large, from which on two slices are laid out alike."""

_TELLING: Final = 0.02
"""Relative difference from which on ranks hold other values each."""

_NEARER: Final = 0.2
"""Share of the difference from another rank up to which a tensor belongs to a rank."""

_SHARDS: Final = 0.1
"""Share of tensors that are shards of the other dump's, from which on that was spread otherwise."""

_COPIES: Final = 0.3
"""Share of tensors that are as large all the same, as what passes from layer to layer is."""

_CHUNK: Final = re.compile(r"\d{1,9}(?=\.)")
_LOOKED_AT: Final = 32
_SAMPLE: Final = 4096

Tensors = dict[tuple[str, str], TensorRecord]


def hold_same_part(own: Slice, same: Slice, other: Slice) -> bool:
    """Tell whether a rank of one dump holds the part of a model that the same rank of the other dump holds.

    A run that is not spread has more nodes than a stage of a pipeline, and larger tensors than a shard; where
    a dump has neither, it has nothing that is near one rank alone.

    Args:
        own: what a rank holds of a dump that has few ranks.
        same: what the rank of that number holds of the other dump.
        other: what another rank holds of that dump.
    """
    if not _are_laid_out_alike(own, same):
        return False
    if not _have_same_nodes(same, other):
        return True
    told = [nearer for at in _looked_at(own, same, other) if (nearer := _is_nearer(*at)) is not None]
    return sum(told) > len(told) / 2


def are_spread_otherwise(golden: Slice, target: Slice) -> bool:
    """Tell whether ranks of one number hold other parts of a model: a shard of a layer, another stage."""
    chunks = sorted(len(_chunks(one)) for one in (golden, target))
    if chunks[0] < 2 <= chunks[1]:  # noqa: PLR2004
        return True
    tensors, others = _tensors(golden), _tensors(target)
    shapes = [(tensors[key], others[key].shape) for key in tensors.keys() & others.keys()]
    copies = sum(record.shape == shape for record, shape in shapes)
    known = [(record, how) for record, shape in shapes if (how := part(record.shape, shape)) is not None]
    shards = sum(how.axis == -1 or record.role is Role.PARAMETER for record, how in known)
    return shards > _SHARDS * len(shapes) and copies >= _COPIES * len(shapes)


def _chunks(dumped: Slice) -> set[str]:
    """Return the numbers of the chunks of layers that a rank of a virtual pipeline has: 0.model, 1.model."""
    return {found[0] for node in dumped.nodes if (found := _CHUNK.match(node.path))}


def _are_laid_out_alike(one: Slice, other: Slice) -> bool:
    tensors, others = _tensors(one), _tensors(other)
    common = tensors.keys() & others.keys()
    as_large = sum(tensors[key].shape == others[key].shape for key in common)
    return _have_same_nodes(one, other) and bool(common) and as_large >= _SAME * len(common)


def _have_same_nodes(one: Slice, other: Slice) -> bool:
    names = {node.name for node in one.nodes}, {node.name for node in other.nodes}
    return len(names[0] & names[1]) >= _SAME * max(map(len, names))


def _tensors(dumped: Slice) -> Tensors:
    return {
        (node.name, record.label): record
        for node in dumped.nodes
        for record in node.tensors
        if record.is_tensor and record.shape and is_floating(record.dtype)
    }


def _looked_at(*slices: Slice) -> Iterator[tuple[TensorRecord, TensorRecord, TensorRecord]]:
    """Yield tensors of equal shapes, parameters first: no fault before them has changed them."""
    own, same, other = map(_tensors, slices)
    common = [
        (own[key], same[key], other[key])
        for key in own
        if key in same and key in other and own[key].shape == same[key].shape == other[key].shape
    ]
    common.sort(key=lambda records: records[0].role is not Role.PARAMETER)
    yield from common[:: max(1, len(common) // _LOOKED_AT)]


def _is_nearer(own: TensorRecord, same: TensorRecord, other: TensorRecord) -> bool | None:
    """Tell whether a tensor is nearer to the same rank than to another; None if these are as one."""
    between = _distance(same, other)
    if between is None or between < _TELLING:
        return None
    distance = _distance(own, same)
    return None if distance is None else distance < _NEARER * between


def _distance(one: TensorRecord, other: TensorRecord) -> float | None:
    """Return how far two tensors are apart, relative to the larger one; None if nothing is known of them."""
    if one.digest is not None and other.digest is not None and one.digest == other.digest:
        return 0.0
    known = value_distance(one, other)
    return _distance_of_values(one, other) if known is None else known


def _distance_of_values(one: TensorRecord, other: TensorRecord) -> float | None:
    import numpy as np

    samples = []
    for record in (one, other):
        if record.location is None or record.problem is not None:
            return None
        try:
            values = load_tensor(record.location).reshape(-1)[:_SAMPLE]
        except TensorUnreadableError:
            return None
        samples.append(values.astype(np.complex128 if values.dtype.kind == "c" else np.float64))
    if samples[0].shape != samples[1].shape:
        return None
    with np.errstate(all="ignore"):
        size = max(float(np.linalg.norm(sample)) for sample in samples)
        apart = float(np.linalg.norm(samples[0] - samples[1]))
    return apart / size if np.isfinite(apart) and 0 < size < np.inf else None
