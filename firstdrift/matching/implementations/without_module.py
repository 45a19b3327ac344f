"""What one run does by an operator alone, and the other in a module that runs nothing else.

golden   norm ── lm_head ( linear )        target   norm ── linear, with the weight of the embedding
golden   decoder ── lm_head ( linear )     target   decoder ( norm ── matmul, with that weight )
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from itertools import chain, filterfalse

from firstdrift.groups import alone
from firstdrift.matching.implementations.same_names import of_one_key
from firstdrift.matching.implementations.thresholds import TWO_PARTS
from firstdrift.matching.pairing import Pairing
from firstdrift.matching.structure.sequence_alignment import Pair
from firstdrift.matching.structure.statistics_similarity import bare_shape_of, elements_key
from firstdrift.matching.tree import SliceTree, is_operator, tensors_of
from firstdrift.model.node import Direction, Node
from firstdrift.model.tensor import Role
from firstdrift.operators.properties import is_product


def without_module(work: Pairing) -> Iterator[Pair]:
    """Yield operators that alone do something beside matched modules: in a module of their own in one run."""
    pairs = [pair for pair in work.pairs() if work.found[pair[1]].is_sure_pair]
    for golden, target in chain([(work.golden.root, work.target.root)], pairs):
        for wraps in ((True, False), (False, True)):
            yield from of_one_key(
                work,
                _operators(work.golden, golden, work.free_golden, in_modules=wraps[0]),
                _operators(work.target, target, work.free_target, in_modules=wraps[1]),
            )


def with_weight(work: Pairing) -> Iterator[Pair]:
    """Yield free products of matrices that alone have a weight in their run, and the same in both runs.

    Those of modules that are the same are compared with their modules.
    """
    golden = _by_weight(work.golden, work.free_golden(range(work.golden.root)))
    target = _by_weight(work.target, work.free_target(range(work.target.root)))
    pairs = ((golden[key], target[key]) for key in golden if key in target)
    yield from filterfalse(partial(_are_in_one, work), pairs)


def _are_in_one(work: Pairing, pair: Pair) -> bool:
    """Tell whether two nodes lie in modules that are the same."""
    return work.partners.get(work.golden.parents[pair[0]]) == work.target.parents[pair[1]]


def _by_weight(tree: SliceTree, free: Iterable[int]) -> dict[Hashable, int]:
    """Return products of the forward pass by the values of a matrix that no other one is given."""
    products = (at for at in free if _is_product(tree.nodes[at]))
    given = [(at, key) for at in products for key in _matrices(tree.nodes[at])]
    return {key: at for key, (at, _) in alone(given, lambda one: one[1]).items()}


def _is_product(node: Node) -> bool:
    return is_operator(node) and node.direction is Direction.FORWARD and is_product(node.type_name)


def _matrices(node: Node) -> set[Hashable]:
    """Return what tells the values of the matrices that a node is given, whichever way round they lie."""
    matrices = (record for record in tensors_of(node, Role.INPUT) if len(record.shape or ()) == TWO_PARTS)
    return set(map(elements_key, matrices)) - {None}


def _operators(
    tree: SliceTree, around: int, free: Callable[[list[int]], list[int]], *, in_modules: bool
) -> dict[Hashable, int]:
    """Return by what they do the free operators right in a module, or each alone in a module in it."""
    inside = free(tree.forward[around])
    if in_modules:
        contents = [tree.forward[index] for index in tree.modules(inside)]
        inside = free([each[0] for each in contents if len(each) == 1])
    operators = [index for index in inside if is_operator(tree.nodes[index])]
    return alone(operators, lambda index: _work_of(tree, index))


def _work_of(tree: SliceTree, operator: int) -> Hashable:
    node = tree.nodes[operator]
    shapes = [tuple(map(bare_shape_of, tensors_of(node, role))) for role in (Role.INPUT, Role.OUTPUT)]
    return node.type_name, *shapes
