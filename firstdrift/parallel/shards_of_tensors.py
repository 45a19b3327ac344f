"""What the tensors that ranks hold are to one another: the same, side by side, or summed by a collective.

What they are to the whole is not asked here: that shows when they are held against the other dump.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from math import isfinite, prod
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from firstdrift.errors import TensorUnreadableError
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
    for records in by_label.values():
        if only in (None, *records):
            held = tuple(records.values())
            missing = tuple(rank for rank in merged.held if rank not in records) if merged.alike else ()
            total = totals.get(_values(held))
            shown = _guessed_whole(held)
            if total is not None:
                shown = replace(total, role=held[0].role, key=held[0].key, shape=held[0].shape)
            yield replace(shown, shards=Shards(tuple(records), held, total, missing=missing, only=only))


def _guessed_whole(held: Sequence[TensorRecord]) -> TensorRecord:
    """Return what shards look like as a whole, as far as can be told before they are matched.

    Where ranks hold other values each, they are taken to be side by side along the last dimension.
    """
    first = held[0]
    of_one_shape = len({record.shape for record in held}) == 1
    if len(held) == 1 or not of_one_shape or not first.shape or not is_floating(first.dtype):
        return first
    same = agree(held)
    if same is None:
        same = _begin_alike(held)
    return first if same else replace(first, shape=(*first.shape[:-1], len(held) * first.shape[-1]))


# ---- whether ranks hold the same


def agree(parts: Sequence[TensorRecord]) -> bool | None:
    """Tell whether ranks hold the same tensor, by what was recorded of it; None if nothing was."""
    if all(part.digest is not None for part in parts):
        return len({part.digest for part in parts}) == 1
    known = [part.statistics for part in parts if part.statistics is not None]
    return all(_are_near(known[0], other) for other in known[1:]) if len(known) == len(parts) else None


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
            given = [_first(node, Role.INPUT) for node in merged.held.values()]
            values = _values([record for record in given if record is not None])
            total = None if None in given or values is None else _reduced(merged)
            if total is not None:
                totals.setdefault(values, total)
    return totals


def _reduced(merged: MergedNode) -> TensorRecord | None:
    """Return the sum that an operator made: on each rank, or each rank its part of the first dimension."""
    if sum_over_ranks(merged.node.type_name) == "whole":
        return _first(merged.node, Role.OUTPUT)
    whole = _first(merged.node, Role.INPUT)
    given = [_first(node, Role.OUTPUT) for node in merged.held.values()]
    parts = [part for part in given if part is not None]
    shapes = {part.shape for part in parts}
    shape = shapes.pop() if len(shapes) == 1 and len(parts) == len(given) else None
    if not shape or whole is None or whole.shape != (len(parts) * shape[0], *shape[1:]):
        return None
    locations = [part.location for part in parts if part.location is not None]
    return replace(
        parts[0],
        shape=whole.shape,
        statistics=join_statistics(parts),
        digest=None,
        location=shared_location(locations, 0) if len(locations) == len(parts) else None,
        problem=next((part.problem for part in parts if part.problem is not None), None),
        shards=Shards(tuple(merged.held), tuple(parts), sharding=Sharding.CONCATENATED, axis=0),
    )


def _first(node: Node, role: Role) -> TensorRecord | None:
    return next((record for record in node.tensors if record.role is role and record.is_tensor), None)


def _adds_up(node: Node) -> bool:
    operators = [record.scalar or "" for record in node.tensors if record.dtype.endswith("ReduceOp")]
    return all("SUM" in operator for operator in operators)


def _values(records: Sequence[TensorRecord]) -> Hashable:
    """Return what tells tensors of several ranks from others; None where nothing was recorded."""
    if len(records) < 2 or not all(each.statistics or each.digest for each in records):  # noqa: PLR2004
        return None
    return tuple((prod(each.shape or ()), each.statistics, each.digest) for each in records)
