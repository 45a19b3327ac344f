"""What names still tell where modules around are matched, and which of nested modules is meant.

mlp ═════════ mlp            matched
├─ experts ═══ ├─ experts     of one name, each the only one: the same, whatever they hold
└─ gate ══════ └─ gate

embedding ── word_embeddings: the weight lies in the inner one, and the other run has the weight
"""

from collections.abc import Hashable, Iterator, Mapping

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
        first, second = inner.free_golden(inner.golden.forward[golden]), inner.target.forward[target]
        yield from of_one_key(
            inner,
            alone(first, inner.golden.relative_name),
            alone(inner.free_target(second), inner.target.relative_name),
        )


def same_paths(inner: Pairing) -> Iterator[Pair]:
    """Yield the free modules of one full path and call, wherever the two runs have called them from."""
    golden, target = inner.free_golden(range(inner.golden.root)), inner.free_target(range(inner.target.root))
    yield from of_one_key(
        inner,
        {call_key(inner.golden.nodes[index]): index for index in golden},
        {call_key(inner.target.nodes[index]): index for index in target},
    )


def of_one_key(
    inner: Pairing, golden: Mapping[Hashable, int], target: Mapping[Hashable, int]
) -> Iterator[Pair]:
    """Yield the free modules of one key that are not known to do other things."""
    for key, first in golden.items():
        if key in target and inner.is_free(pair := (first, target[key])):
            kinds = kind_of(inner.golden.nodes[first]), kind_of(inner.target.nodes[target[key]])
            if kinds[0] is kinds[1] or not CHARACTERISTIC.issuperset(kinds):
                yield pair


def heads(inner: Pairing) -> Iterator[Pair]:
    """Yield what gives the logits last: the head of one run, and what follows its head in the other.

    An engine may compute the logits of the last tokens past the module that has the weight.
    """
    for golden, target in zip(_last(inner.golden), _last(inner.target), strict=False):
        paths = inner.golden.nodes[golden].path, inner.target.nodes[target].path
        are_as_wide = _width(inner.golden, golden) == _width(inner.target, target)
        if are_as_wide and any(map(runs_through_head, paths)) and inner.is_free((golden, target)):
            yield golden, target


def _last(tree: SliceTree) -> list[int]:
    """Return the module that ran last and holds no others; nothing if none gives anything."""
    return [node for node in range(len(tree.nodes)) if not tree.forward[node] and _width(tree, node)][-1:]


def _width(tree: SliceTree, node: int) -> int | None:
    given = tensors_of(tree.nodes[node], Role.OUTPUT)
    return given[0].shape[-1] if given and given[0].shape else None
