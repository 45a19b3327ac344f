"""Activations that one run calls by themselves, and the other may hold in a module.

golden   gate_proj ──▶ act_fn [silu] ──▶        gate_proj ═══ w1
target   w1 ──▶ silu ──▶                        silu      ═══ silu

Each is the only one that takes what a module gives, and the two modules are the same. That they are called
otherwise says nothing against it: one of the two may be the wrong one.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import pairwise

from firstdrift.groups import grouped
from firstdrift.matching.cross_framework.layer_ops import first_input, first_output
from firstdrift.matching.pairing import Pairing
from firstdrift.matching.structure.sequence_alignment import Pair
from firstdrift.matching.structure.statistics_similarity import value_key
from firstdrift.matching.tree import SliceTree, is_operator
from firstdrift.model.node import Direction
from firstdrift.operators.kinds import OpKind
from firstdrift.operators.recognise import kind_of


def activations(work: Pairing) -> Iterator[Pair]:
    """Yield the free activations that alone take what two modules give that are the same."""
    takers = _takers(work.golden), _takers(work.target)
    for golden, target in work.pairs():
        keys = value_key(first_output(work.golden, golden)), value_key(first_output(work.target, target))
        found = takers[0].get(keys[0], ()), takers[1].get(keys[1], ())
        if (pair := _one_each(work, *found)) is not None and work.is_free(pair):
            yield pair


def _takers(tree: SliceTree) -> Mapping[Hashable, Sequence[int]]:
    """Return the activations of the forward pass by what tells the values that they take."""
    found = (
        at
        for at, node in enumerate(tree.nodes)
        if node.direction is not Direction.BACKWARD and kind_of(node) is OpKind.ACTIVATE
    )
    takers = grouped(found, lambda at: value_key(first_input(tree, at)))
    takers.pop(None, None)
    return takers


def _one_each(work: Pairing, golden: Sequence[int], target: Sequence[int]) -> Pair | None:
    """Return the two activations if either run has one: both calls, or else what lies around these."""
    lines = _nested(work.golden, golden), _nested(work.target, target)
    if not all(lines):
        return None
    calls = lines[0][-1], lines[1][-1]
    are_calls = is_operator(work.golden.nodes[calls[0]]) and is_operator(work.target.nodes[calls[1]])
    return calls if are_calls else (lines[0][0], lines[1][0])


def _nested(tree: SliceTree, nodes: Sequence[int]) -> list[int]:
    """Return nodes of which each lies in the one before; nothing if they lie side by side."""
    line = sorted(nodes, key=lambda at: len(list(tree.around(at))))
    lie_inside = (outer in tree.around(inner) for outer, inner in pairwise(line))
    return line if all(lie_inside) else []
