"""What the tensors that ranks hold are to one another: the same, side by side, or summed by a collective.

What they are to the whole is not asked here: that shows when they are held against the other dump.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import filterfalse
from math import isfinite, prod
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from firstdrift.errors import TensorUnreadableError
from firstdrift.groups import known
from firstdrift.model.node import Node
from firstdrift.model.tensor import (
    Role,
    Sharding,
    Shards,
    Statistics,
    TensorRecord,
    is_floating,
    join_statistics,
    shared_location,
)
from firstdrift.operators.properties import sum_over_ranks
from firstdrift.parallel.declared_shards import declared_whole
from firstdrift.parallel.merged_nodes import MergedNode

if TYPE_CHECKING:
    import numpy.typing as npt

_SAME: Final = 1e-3
"""Difference of statistics, relative to the norm, up to which ranks hold the same tensor."""

_SAMPLE: Final = 1024
_LOOKS_SAME: Final = 1e-2

Totals = Mapping[Hashable, TensorRecord]
"""Sums over ranks that were recorded, by what tells the values that were summed from others."""


def tensors_of(merged: MergedNode, totals: Totals, only: int | None) -> Iterator[TensorRecord]:
    """Yield the tensors of a merged node, or those that one rank holds, each with what every rank holds."""
    by_label: dict[str, dict[int, TensorRecord]] = defaultdict(dict)
    for rank, node in merged.held.items():
        for record in node.tensors:
            by_label[record.label][rank] = record
    ranks = merged.held if merged.alike else ()
    for records in by_label.values():
        if only in (None, *records):
            held = tuple(records.values())
            whole = declared_whole(held) if only is None and len(held) == len(merged.held) else None
            if whole is not None:
                yield whole
                continue
            missing = tuple(filterfalse(records.__contains__, ranks))
            total = totals.get(_values(held))
            shards = Shards(tuple(records), held, total, missing=missing, only=only)
            yield replace(_shown(held, total), shards=shards)


def _shown(held: Sequence[TensorRecord], total: TensorRecord | None) -> TensorRecord:
    if total is None:
        return _guessed_whole(held)
    return replace(total, role=held[0].role, key=held[0].key, shape=held[0].shape)


def _guessed_whole(held: Sequence[TensorRecord]) -> TensorRecord:
    """Return what shards look like as a whole, as far as can be told before they are matched.

    Where ranks hold other values each, they are taken to be side by side along the last dimension.
    """
    first = held[0]
    others = [record for record in held[1:] if record.shape == first.shape]
    if not 0 < len(others) == len(held) - 1 or not first.shape or not is_floating(first.dtype):
        return first
    same = agree(held)
    if same or (same is None and _begin_alike(held)):
        return first
    return replace(first, shape=(*first.shape[:-1], len(held) * first.shape[-1]))


# ---- whether ranks hold the same


def agree(parts: Sequence[TensorRecord]) -> bool | None:
    """Tell whether ranks hold the same tensor, by what was recorded of it; None if nothing was."""
    if all(part.digest is not None for part in parts):
        return len({part.digest for part in parts}) == 1
    recorded = known(part.statistics for part in parts)
    if len(recorded) < len(parts):
        return None
    return all(_are_near(recorded[0], other) for other in recorded[1:])


def _are_near(one: Statistics, other: Statistics) -> bool:
    scale = max((abs(value) for value in (one.maximum, one.minimum) if value is not None), default=0.0)
    return (
        _is_near(one.maximum, other.maximum, scale)
        and _is_near(one.minimum, other.minimum, scale)
        and _is_near(one.mean, other.mean, scale)
        and _is_near(one.norm, other.norm, abs(one.norm or 0.0))
    )


def _is_near(one: float | None, other: float | None, unit: float) -> bool:
    """Tell whether two numbers are near, if both are known; infinities and NaN are near one another."""
    if one is None or other is None or one == other:
        return True
    if isfinite(one) and isfinite(other):
        return not abs(one - other) > _SAME * unit  # a unit that is NaN tells nothing
    return not isfinite(one) and not isfinite(other)


def _begin_alike(held: Sequence[TensorRecord]) -> bool:
    """Tell whether tensors begin with the same values on all ranks; True where they cannot be read."""
    import numpy as np

    samples = first_values(held, _SAMPLE)
    if samples is None:
        return True
    if len({sample.shape for sample in samples}) > 1:
        return False
    with np.errstate(all="ignore"):
        apart = [np.linalg.norm(sample - samples[0]) for sample in samples[1:]]
        return not any(apart > _LOOKS_SAME * np.linalg.norm(samples[0]))


def first_values(records: Iterable[TensorRecord], most: int) -> "list[npt.NDArray[Any]] | None":
    """Return the first values of tensors, so many of each; None where one cannot be read."""
    import numpy as np

    from firstdrift.dumps.storage.tensor_data import load_tensor

    samples = []
    for record in records:
        if record.location is None or record.problem is not None:
            return None
        try:
            values = load_tensor(record.location).reshape(-1)[:most]
        except TensorUnreadableError:
            return None
        samples.append(values.astype(np.complex128 if values.dtype.kind == "c" else np.float64))
    return samples


# ---- sums that collectives made


def find_totals(nodes: Iterable[MergedNode]) -> Totals:
    """Find the sums that all-reduces and reduce-scatters made, by the values that went in."""
    totals: dict[Hashable, TensorRecord] = {}
    for merged in nodes:
        if len(merged.held) > 1 and sum_over_ranks(merged.node.type_name) and _adds_up(merged.node):
            given = _firsts(merged, Role.INPUT)
            values, total = _values(given), _reduced(merged, given)
            if values is not None and total is not None:
                totals.setdefault(values, total)
    return totals


def _reduced(merged: MergedNode, given: Sequence[TensorRecord]) -> TensorRecord | None:
    """Return the sum that an operator made: on each rank, or each rank its part of the first dimension."""
    if sum_over_ranks(merged.node.type_name) == "whole":
        return _first(merged.node, Role.OUTPUT)
    parts = _firsts(merged, Role.OUTPUT)
    shapes = {part.shape and (len(parts) * part.shape[0], *part.shape[1:]) for part in parts}
    if not given or not given[0].shape or shapes != {given[0].shape}:
        return None
    locations = known(part.location for part in parts)
    return replace(
        parts[0],
        shape=given[0].shape,
        statistics=join_statistics(parts),
        digest=None,
        location=shared_location(locations, 0) if len(locations) == len(parts) else None,
        problem=next(iter(known(part.problem for part in parts)), None),
        shards=Shards(tuple(merged.held), tuple(parts), sharding=Sharding.CONCATENATED, axis=0),
    )


def _firsts(merged: MergedNode, role: Role) -> list[TensorRecord]:
    """Return the first tensor of a role that each rank has; none if not all have one."""
    firsts = [_first(node, role) for node in merged.held.values()]
    return [] if None in firsts else known(firsts)


def _first(node: Node, role: Role) -> TensorRecord | None:
    return next((record for record in node.records(role) if record.is_tensor), None)


def _adds_up(node: Node) -> bool:
    operators = [record.scalar or "" for record in node.tensors if record.dtype.endswith("ReduceOp")]
    return all("SUM" in operator for operator in operators)


def _values(records: Sequence[TensorRecord]) -> Hashable:
    """Return what tells tensors of several ranks from others; None where nothing was recorded."""
    if len(records) < 2 or not all(each.statistics or each.digest for each in records):  # noqa: PLR2004
        return None
    return tuple((prod(each.shape or ()), each.statistics, each.digest) for each in records)
