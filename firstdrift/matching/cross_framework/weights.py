"""Whether weights are the same numbers, however they are fused, transposed or laid out.

q_proj 3.0, k_proj 2.0, v_proj 2.0      norms of parts
qkv    4.123                            that of the whole: squares add up

No input changes a weight, and most weights agree even where one is wrong.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import fsum, isfinite, log, prod, sqrt

from firstdrift.groups import firsts
from firstdrift.matching.cross_framework.thresholds import SAME_WEIGHT
from firstdrift.matching.tree import SliceTree
from firstdrift.model.node import Node
from firstdrift.model.tensor import Role, TensorRecord, is_floating

Sum = tuple[int, float]
"""How many elements there are, and the norm of all of them."""


def have_same_weights(
    trees: tuple[SliceTree, SliceTree], golden: Sequence[int], target: Sequence[int]
) -> bool:
    """Tell whether the weights of some nodes, taken together, are those of others."""
    sums = [_sum_of(tree.nodes_at(nodes)) for tree, nodes in zip(trees, (golden, target), strict=True)]
    first, second = sums
    if first is None or second is None or first[0] != second[0]:
        return False
    return abs(first[1] - second[1]) <= SAME_WEIGHT * max(first[1], second[1])


def share_of_weights(trees: tuple[SliceTree, SliceTree], golden: int, target: int) -> float:
    """Return how many of the weights in two modules are the same, of the one that has fewer."""
    keys = weight_keys(trees[0], golden), weight_keys(trees[1], target)
    fewest = min(map(len, keys))
    return len(keys[0] & keys[1]) / fewest if fewest else 0.0


def weight_keys(tree: SliceTree, module: int) -> frozenset[tuple[int, int]]:
    """Return size and norm of the weights in a module; the norm by steps, of which two are far apart."""
    if module not in tree.known_weights:
        known = map(_norm_of, tree.contents(module).parameters)
        keys = frozenset((size, round(log(norm) / SAME_WEIGHT)) for size, norm in known if norm > 0)
        tree.known_weights[module] = keys
    return tree.known_weights[module]


def _sum_of(nodes: Iterable[Node]) -> Sum | None:
    records = [record for node in nodes for record in node.records(Role.PARAMETER)]
    parts = [_norm_of(record) for record in records if is_floating(record.dtype)]
    if not parts or any(norm <= 0 for _, norm in parts):
        return None
    return sum(firsts(parts)), sqrt(fsum(norm * norm for _, norm in parts))


@lru_cache(maxsize=1 << 14)
def _norm_of_statistics(shape: tuple[int, ...], norm: float | None, is_constant: bool) -> Sum:
    is_known = norm is not None and isfinite(norm) and not is_constant
    return prod(shape), (norm or 0.0) if is_known else 0.0


def _norm_of(record: TensorRecord) -> Sum:
    """Return size and norm of a weight; norm 0 where it says nothing: not recorded, or a constant."""
    told = record.statistics
    if told is None or record.shape is None:
        return 0, 0.0
    return _norm_of_statistics(record.shape, told.norm, told.maximum == told.minimum)
