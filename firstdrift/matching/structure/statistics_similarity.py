"""How far the recorded statistics of tensors agree.

golden   norm 6.5789  max 0.8203        6.5790  0.8203    agree: the same thing, whatever it is called
target   norm 6.5789  max 0.8203        9.1022  1.4411    differ: says nothing, a fault may lie before it
"""

from collections.abc import Hashable, Iterable
from functools import lru_cache
from math import isfinite, isnan, log10, prod, sqrt

from firstdrift.groups import known
from firstdrift.matching.structure.thresholds import AGREES, DIFFERS, EQUAL
from firstdrift.model.node import Node
from firstdrift.model.tensor import Role, Statistics, TensorRecord, is_floating


@lru_cache(maxsize=4096)
def bare_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Leave out the dimensions of size 1."""
    return tuple(size for size in shape if size != 1)


def bare_shape_of(record: TensorRecord | None) -> tuple[int, ...] | None:
    """Return the shape of a tensor without dimensions of size 1; None where it is unknown."""
    return None if record is None or record.shape is None else bare_shape(record.shape)


def agreement(golden: Node, target: Node, role: Role) -> float | None:
    """Return how well the statistics of the tensors of a role agree, 0 to 1; None if nothing is known.

    1 is agreement to a thousandth, 0 a difference of a tenth or more.
    """
    distances = known_distances(golden.records(role), target.records(role))
    return sum(map(_closeness, distances)) / len(distances) if distances else None


def agreed(golden: Node, target: Node, role: Role) -> float:
    """Return the same; 0 if nothing is known."""
    return agreement(golden, target, role) or 0.0


def known_distances(golden: Iterable[TensorRecord], target: Iterable[TensorRecord]) -> list[float]:
    """Return the distance of each two tensors of which it says something."""
    return known(map(value_distance, golden, target))


def _closeness(distance: float) -> float:
    if distance <= AGREES:
        return 1.0
    return max(0.0, log10(DIFFERS / distance) / log10(DIFFERS / AGREES))


def value_distance(golden: TensorRecord, target: TensorRecord) -> float | None:
    """Return the largest relative difference of the statistics of two tensors of floating dtype.

    Maximum and minimum are measured by the largest absolute value, the mean by the root mean square. None
    where that says nothing: other dtypes, other shapes, constants, or nothing recorded.
    """
    if bare_shape_of(golden) != bare_shape_of(target) or not is_floating(golden.dtype):
        return None
    if golden.digest is not None and golden.digest == target.digest:
        return 0.0
    first, second = _telling(golden), _telling(target)
    if first is None or second is None:
        return None
    return _largest_difference(first, second, prod(golden.shape or ()))


def _telling(record: TensorRecord) -> Statistics | None:
    """Return the statistics of a tensor; None if there are none, or they are those of a constant."""
    recorded = record.statistics
    if recorded is None or recorded.maximum is None or recorded.maximum == recorded.minimum:
        return None
    return recorded


def _largest_difference(first: Statistics, second: Statistics, size: int) -> float | None:
    extremes = (first.maximum, first.minimum, second.maximum, second.minimum)
    largest = max(abs(value or 0.0) for value in extremes)
    norm = max(first.norm or 0.0, second.norm or 0.0)
    root_mean_square = norm / sqrt(max(1, size))
    differences = (
        _difference(first.maximum, second.maximum, largest),
        _difference(first.minimum, second.minimum, largest),
        _difference(first.norm, second.norm, norm),
        _difference(first.mean, second.mean, root_mean_square),
    )
    return max(known(differences), default=None)


def _difference(golden: float | None, target: float | None, scale: float) -> float | None:
    """Return |golden - target| / scale; 1 if only one is finite, None if that says nothing."""
    if golden is None or target is None or scale == 0:
        return None
    if isfinite(golden) and isfinite(target):
        return abs(golden - target) / scale if isfinite(scale) else None
    return None if golden == target or (isnan(golden) and isnan(target)) else 1.0


def value_key(record: TensorRecord | None) -> Hashable | None:
    """Return what tells the values of a tensor from others of the same dump; None if nothing does."""
    if record is None or record.shape is None:
        return None
    if record.digest is not None:
        return prod(record.shape), record.digest
    known = record.statistics
    if known is None or known.norm is None or known.maximum == known.minimum:
        return None
    return prod(record.shape), known.maximum, known.minimum, known.mean, known.norm


def elements_key(record: TensorRecord) -> Hashable | None:
    """Return what tells the elements of a tensor, in whatever order they lie; None if nothing does.

    Mean and norm are left out: their last digits follow the order of adding up.
    """
    told = _telling(record)
    return None if told is None else (prod(record.shape or ()), told.maximum, told.minimum)


def have_equal_outputs(golden: Node, target: Node) -> bool:
    """Tell whether the first outputs of two nodes have equal shapes and equal statistics."""
    first, second = _primary_output(golden), _primary_output(target)
    if first is None or second is None or first.shape != second.shape:
        return False
    distance = value_distance(first, second)
    return distance is not None and distance <= EQUAL


def fingerprint(node: Node) -> Hashable | None:
    """Return shape, norm and maximum of a node's first output, rounded; None if they say nothing."""
    output = _primary_output(node)
    recorded = output and _telling(output)
    if not output or not recorded:
        return None
    values = known((recorded.norm, recorded.maximum))
    if len(values) < 2 or not all(map(isfinite, values)):  # noqa: PLR2004 (both)
        return None
    return output.shape and bare_shape(output.shape), *map("{:.3e}".format, values)


def _primary_output(node: Node) -> TensorRecord | None:
    return next((tensor for tensor in node.records(Role.OUTPUT) if is_floating(tensor.dtype)), None)
