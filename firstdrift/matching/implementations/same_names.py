"""What names still tell where modules around are matched, and which of nested modules is meant.

mlp ═════════ mlp            matched
├─ experts ═══ ├─ experts     of one name, each the only one: the same, whatever they hold
└─ gate ══════ └─ gate

embedding ── word_embeddings: the weight lies in the inner one, and the other run has the weight
"""

from collections.abc import Hashable, Iterator, Mapping

from firstdrift.groups import alone
from firstdrift.matching.implementations.views import is_made_larger
from firstdrift.matching.pairing import Pairing
from firstdrift.matching.structure.sequence_alignment import Pair
from firstdrift.matching.tree import SliceTree, call_key, tensors_of
from firstdrift.model.node import Node
from firstdrift.model.tensor import Role
from firstdrift.operators.kinds import CHARACTERISTIC, OpKind
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
        nodes = inner.golden.nodes[golden], inner.target.nodes[target]
        is_head = any(runs_through_head(node.path) for node in nodes)
        if is_head and inner.is_free((golden, target)) and _give_the_same(*nodes):
            yield golden, target


def _give_the_same(golden: Node, target: Node) -> bool:
    """Tell whether two nodes give as many logits; of linear ones one may have a larger vocabulary."""
    widths = _width(golden, Role.OUTPUT), _width(target, Role.OUTPUT)
    if widths[0] == widths[1]:
        return True
    are_linear = kind_of(golden) is kind_of(target) is OpKind.LINEAR
    given = _width(golden, Role.INPUT), _width(target, Role.INPUT)
    return are_linear and given[0] == given[1] and is_made_larger(*widths)


def _last(tree: SliceTree) -> list[int]:
    """Return the module that ran last and holds no others; nothing if none gives anything."""
    leaves = (at for at, node in enumerate(tree.nodes) if not tree.forward[at] and _width(node, Role.OUTPUT))
    return list(leaves)[-1:]


def _width(node: Node, role: Role) -> int:
    """Return the size of the last dimension of what a node takes or gives first; 0 where it is unknown."""
    records = tensors_of(node, role)
    return (records[0].shape or (0,))[-1] if records else 0
