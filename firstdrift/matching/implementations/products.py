"""Products with one matrix by other names: `linear(x, weight)` is `matmul(x, weight transposed)`.

They share no argument by name. The matrix is told by its elements; what else they are given, where it is not
known what made it, by values that are about the same: what is made of one token, and one token of what was
made of all, are the same quantity.
"""

from firstdrift.groups import alone, known
from firstdrift.matching.implementations.thresholds import OTHER_FORM, TIMES_NEARER, TWO_PARTS
from firstdrift.matching.implementations.views import Seen, seen, swapped
from firstdrift.matching.plan import TensorPair
from firstdrift.matching.structure.statistics_similarity import elements_key, value_distance
from firstdrift.matching.tensors import TensorPairing
from firstdrift.model.node import Direction, Node
from firstdrift.model.tensor import Role, TensorRecord, is_floating
from firstdrift.operators.properties import is_product


def are_products_by_other_names(golden: Node, target: Node) -> bool:
    """Tell whether two operators of the forward pass multiply by a matrix, and share no argument by name."""
    names = golden.type_name, target.type_name
    return golden.direction is not Direction.BACKWARD and names[0] != names[1] and all(map(is_product, names))


def is_given(record: TensorRecord) -> bool:
    """Tell whether an operator is given a tensor that holds fractions."""
    return record.role is Role.INPUT and record.is_tensor and is_floating(record.dtype)


def same_matrices(left: TensorPairing) -> list[Seen]:
    """Return the matrices that two products are given, of what is not paired yet; tokens may be one."""
    sides = left.unmatched_golden, left.unmatched_target
    golden, target = (
        alone((each.record for each in side if _is_matrix(each.record)), elements_key) for side in sides
    )
    shared = ((golden[key], target[key]) for key in golden if key is not None and key in target)
    return known(
        seen(first, second if first.shape == second.shape else swapped(second)) for first, second in shared
    )


def multiply_the_same(own: TensorPairing) -> bool:
    """Tell whether two products are given one matrix, about the same to multiply it with, and no more.

    A bias that the one adds, the other run adds by an operator of its own.
    """
    given = [pair for pair in own.pairs if is_given(pair.golden)]
    factors = [pair for pair in given if not _are_one_matrix(pair)]
    are_all = len(factors) < len(given) and not is_given_more(own)
    return are_all and all(map(_are_about_the_same, factors))


def is_given_more(own: TensorPairing) -> bool:
    """Tell whether one of two operators is given fractions that have no partner."""
    return any(is_given(each.record) for each in (*own.unmatched_golden, *own.unmatched_target))


def _is_matrix(record: TensorRecord) -> bool:
    return is_given(record) and len(record.shape or ()) == TWO_PARTS


def _are_one_matrix(pair: TensorPair) -> bool:
    key = elements_key(pair.golden)
    return _is_matrix(pair.golden) and key is not None and key == elements_key(pair.target)


def _are_about_the_same(pair: TensorPair) -> bool:
    distance = value_distance(pair.golden, pair.target)
    return distance is not None and distance * TIMES_NEARER < OTHER_FORM
