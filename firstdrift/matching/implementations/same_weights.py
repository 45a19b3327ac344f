"""What weights still tell of the modules that no line of both runs has: they are the same numbers.

golden   word_embeddings ─ position_embeddings ─ token_type_embeddings
target   word ─ token_type ─ position           looked up in another order
"""

from collections.abc import Callable, Hashable, Iterator

from firstdrift.groups import alone
from firstdrift.matching.cross_framework.weights import weight_keys
from firstdrift.matching.implementations.same_names import of_one_key
from firstdrift.matching.pairing import Pairing
from firstdrift.matching.structure.sequence_alignment import Pair
from firstdrift.matching.tree import SliceTree
from firstdrift.model.tensor import Role


def same_weights(inner: Pairing) -> Iterator[Pair]:
    """Yield the free modules whose weights no other free module of their run has."""
    yield from _alone_in_both(inner, weight_keys)


def same_shapes(inner: Pairing) -> Iterator[Pair]:
    """Yield the free modules that alone have a class and the shapes of their weights in their run."""
    yield from _alone_in_both(inner, _class_and_shapes)


def _alone_in_both(inner: Pairing, key: Callable[[SliceTree, int], Hashable]) -> Iterator[Pair]:
    golden = alone(_free_leaves(inner.golden, inner.free_golden), lambda at: key(inner.golden, at))
    target = alone(_free_leaves(inner.target, inner.free_target), lambda at: key(inner.target, at))
    yield from of_one_key(inner, golden, target)


def _free_leaves(tree: SliceTree, free: Callable[[range], list[int]]) -> list[int]:
    """Return the free modules that have weights and hold no other modules."""
    return [at for at in free(range(tree.root)) if weight_keys(tree, at) and not tree.forward[at]]


def _class_and_shapes(tree: SliceTree, module: int) -> Hashable:
    node = tree.nodes[module]
    return node.type_name, tuple(record.shape for record in node.records(Role.PARAMETER))
