"""What weights tell of the modules that no line of both runs has: they are the same numbers.

golden   word_embeddings ─ position_embeddings ─ token_type_embeddings
target   word ─ token_type ─ position           looked up in another order

golden   conv1 ══ bn1 ══ relu ── conv2 (one faulty weight) ══ bn2
target   conv1 ══ bn1 ══ relu ── conv2                     ══ bn2     what stands between is the same
"""

from collections.abc import Callable, Hashable, Iterator
from itertools import pairwise

from firstdrift.groups import alone, positions
from firstdrift.matching.cross_framework.weights import weight_keys
from firstdrift.matching.implementations.same_names import of_one_key
from firstdrift.matching.pairing import Pairing
from firstdrift.matching.structure.sequence_alignment import Pair
from firstdrift.matching.structure.statistics_similarity import value_key
from firstdrift.matching.tree import SliceTree, tensors_of
from firstdrift.model.tensor import Role
from firstdrift.operators.kinds import OpKind
from firstdrift.operators.recognise import kind_of


def same_weights(inner: Pairing) -> Iterator[Pair]:
    """Yield the free modules whose weights no other free module of their run has: by number, then by norm."""
    for key in (_values, weight_keys):
        yield from _alone_in_both(inner, key)


def same_shapes(inner: Pairing) -> Iterator[Pair]:
    """Yield the free modules that alone have a class and the shapes of their weights in their run."""
    yield from _alone_in_both(inner, _class_and_shapes)


def between_matches(inner: Pairing) -> Iterator[Pair]:
    """Yield the free modules that alone do something between two modules that are the same in both runs."""
    golden, target = _leaves(inner.golden), _leaves(inner.target)
    places = positions(target)
    matched = [(at, inner.partners.get(node)) for at, node in enumerate(golden)]
    anchors = [(at, places[to]) for at, to in matched if to in places]
    for (first, start), (last, end) in pairwise([(-1, -1), *anchors, (len(golden), len(target))]):
        yield from of_one_key(
            inner,
            alone(inner.free_golden(golden[first + 1 : last]), lambda at: _work_of(inner.golden, at)),
            alone(inner.free_target(target[start + 1 : end]), lambda at: _work_of(inner.target, at)),
        )


def _alone_in_both(inner: Pairing, key: Callable[[SliceTree, int], Hashable]) -> Iterator[Pair]:
    golden = alone(_with_weights(inner.golden, inner.free_golden), lambda at: key(inner.golden, at))
    target = alone(_with_weights(inner.target, inner.free_target), lambda at: key(inner.target, at))
    yield from of_one_key(inner, golden, target)


def _with_weights(tree: SliceTree, free: Callable[[list[int]], list[int]]) -> list[int]:
    """Return the free modules that have weights and hold no other modules."""
    return [at for at in free(_leaves(tree)) if weight_keys(tree, at)]


def _leaves(tree: SliceTree) -> list[int]:
    """Return the modules that hold no others, in execution order."""
    return [at for at in range(tree.root) if not tree.forward[at]]


def _values(tree: SliceTree, module: int) -> Hashable:
    return frozenset(map(value_key, tree.nodes[module].records(Role.PARAMETER)))


def _class_and_shapes(tree: SliceTree, module: int) -> Hashable:
    node = tree.nodes[module]
    return node.type_name, tuple(record.shape for record in node.records(Role.PARAMETER))


def _work_of(tree: SliceTree, module: int) -> Hashable:
    """Return what a module does, with weights of which shapes, and how large what it gives is."""
    node = tree.nodes[module]
    kind = kind_of(node)
    given = tuple(record.shape for record in tensors_of(node, Role.OUTPUT))
    shapes = tuple(sorted(record.shape or () for record in node.records(Role.PARAMETER)))
    return node.type_name if kind is OpKind.OTHER else kind, shapes, given
