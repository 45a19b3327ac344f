"""What one run does by an operator alone, and the other in a module that runs nothing else.

golden   norm ── lm_head ( linear )        target   norm ── linear, with the weight of the embedding
"""

from collections.abc import Callable, Hashable, Iterator
from itertools import chain

from firstdrift.groups import alone
from firstdrift.matching.implementations.same_names import of_one_key
from firstdrift.matching.pairing import Pairing
from firstdrift.matching.structure.sequence_alignment import Pair
from firstdrift.matching.structure.statistics_similarity import bare_shape_of
from firstdrift.matching.tree import SliceTree, is_operator, tensors_of
from firstdrift.model.tensor import Role


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
