"""What names still tell where modules around are matched, and which of nested modules is meant.

mlp ═════════ mlp            matched
├─ experts ═══ ├─ experts     of one name, each the only one: the same, whatever they hold
└─ gate ══════ └─ gate

embedding ── word_embeddings: the weight lies in the inner one, and the other run has the weight
"""

from collections.abc import Iterator

from firstdrift.groups import alone
from firstdrift.matching.pairing import Pairing
from firstdrift.matching.structure.sequence_alignment import Pair
from firstdrift.matching.tree import SliceTree, call_key, tensors_of
from firstdrift.model.tensor import Role
from firstdrift.operators.kinds import CHARACTERISTIC
from firstdrift.operators.paths import runs_through_head
from firstdrift.operators.recognise import kind_of


def same_names(inner: Pairing) -> Iterator[Pair]:
    """Yield the free modules of one name, each the only one in a matched module of either side."""
    for golden, target in [(inner.golden.root, inner.target.root), *inner.pairs()]:
        sides = (
            inner.free_golden(inner.golden.forward[golden]),
            inner.free_target(inner.target.forward[target]),
        )
        named = [
            alone(side, tree.relative_name)
            for tree, side in zip((inner.golden, inner.target), sides, strict=True)
        ]
        for name, first in named[0].items():
            pair = first, named[1].get(name, -1)
            if pair[1] >= 0 and inner.is_free(pair) and not _are_other_kinds(inner, pair):
                yield pair


def same_paths(inner: Pairing) -> Iterator[Pair]:
    """Yield the free modules of one full path and call, wherever the two runs have called them from."""
    sides = (
        (inner.golden, inner.free_golden(range(inner.golden.root))),
        (inner.target, inner.free_target(range(inner.target.root))),
    )
    named = [{call_key(tree.nodes[index]): index for index in free} for tree, free in sides]
    for call, golden in named[0].items():
        pair = golden, named[1].get(call, -1)
        if pair[1] >= 0 and inner.is_free(pair) and not _are_other_kinds(inner, pair):
            yield pair


def _are_other_kinds(inner: Pairing, pair: Pair) -> bool:
    """Tell whether two modules are known to do other things."""
    kinds = kind_of(inner.golden.nodes[pair[0]]), kind_of(inner.target.nodes[pair[1]])
    return kinds[0] is not kinds[1] and CHARACTERISTIC.issuperset(kinds)


def with_weight(tree: SliceTree, node: int, *, partner_has_weight: bool) -> int:
    """Return the only module inside a node that has weights, where the node has none and its partner has."""
    if not partner_has_weight or has_weight(tree, node):
        return node
    inside = [below for below in _below(tree, node) if has_weight(tree, below)]
    return inside[0] if len(inside) == 1 else node


def has_weight(tree: SliceTree, node: int) -> bool:
    """Tell whether a module has parameters of its own."""
    return bool(tree.nodes[node].records(Role.PARAMETER))


def _below(tree: SliceTree, node: int) -> Iterator[int]:
    waiting = list(tree.forward[node])
    while waiting:
        below = waiting.pop()
        waiting += tree.forward[below]
        yield below


def heads(inner: Pairing) -> Iterator[Pair]:
    """Yield what gives the logits last: the head of one run, and what follows its head in the other.

    An engine may compute the logits of the last tokens past the module that has the weight.
    """
    trees = inner.golden, inner.target
    last = [_last(tree) for tree in trees]
    if None in last:
        return
    golden, target = (int(each or 0) for each in last)
    widths = [_width(tree, node) for tree, node in zip(trees, (golden, target), strict=True)]
    is_named = any(
        runs_through_head(tree.nodes[node].path) for tree, node in zip(trees, (golden, target), strict=True)
    )
    if is_named and None not in widths and widths[0] == widths[1] and inner.is_free((golden, target)):
        yield golden, target


def _last(tree: SliceTree) -> int | None:
    """Return the module that ran last and holds no others."""
    leaves = [node for node in range(len(tree.nodes)) if not tree.forward[node] and _width(tree, node)]
    return leaves[-1] if leaves else None


def _width(tree: SliceTree, node: int) -> int | None:
    given = tensors_of(tree.nodes[node], Role.OUTPUT)
    return given[0].shape[-1] if given and given[0].shape else None
