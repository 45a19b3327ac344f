"""Match the modules of two implementations of one model, before anything else is matched below them.

What the modules do, in which part of a layer, how wide they are and whose weights they have is aligned as
one line over the whole model, whatever containers the one or the other has recorded; what most layers say
then holds for all. Values of activations only decide between equals: a fault changes them from there on.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from firstdrift.groups import known
from firstdrift.matching.cross_framework.align import Aligned, align_lines
from firstdrift.matching.cross_framework.layer_ops import Layer, Line, lay_out
from firstdrift.matching.cross_framework.match import add_aligned, called, is_convincing, is_topology
from firstdrift.matching.implementations.activations import activations
from firstdrift.matching.implementations.layer_votes import LayerPair, by_majority, layer_pair
from firstdrift.matching.implementations.norm_inside import has_norm_inside, with_norm
from firstdrift.matching.implementations.other_implementation import (
    ModulesAlone,
    are_other_implementations,
    modules_alone,
)
from firstdrift.matching.implementations.same_names import heads, same_names, same_paths
from firstdrift.matching.implementations.same_weights import (
    between_matches,
    same_shapes,
    same_weights,
)
from firstdrift.matching.implementations.thresholds import BY_MAJORITY
from firstdrift.matching.pairing import Join, Nodes, Pairing
from firstdrift.matching.plan import Messages, Origin
from firstdrift.matching.structure.sequence_alignment import Pair
from firstdrift.matching.structure.similarity import Evidence
from firstdrift.matching.tree import SliceTree, build_tree, is_operator
from firstdrift.model.slice import Slice
from firstdrift.model.tensor import Role
from firstdrift.wording.message import Message

_TAKE_THE_SAME: Final[Messages] = (Message.of("matching.reason.take_the_same"),)
_AS_IN_MOST_LAYERS: Final[Messages] = (Message.of("matching.reason.as_in_most_layers"),)


def match_implementations(work: Pairing, golden: Slice, target: Slice) -> bool:
    """Match the modules of two implementations of one model; tell whether they are that.

    Nothing is done to what is matched already.
    """
    trees = work.golden, work.target
    if not work.rules.structure or any(map(_is_matched_otherwise, trees)):
        return False
    if not are_other_implementations(*trees) or _does_by_operators(*trees):
        return False
    sides = modules_alone(golden.listing, work.golden), modules_alone(target.listing, work.target)
    trees = build_tree(sides[0].dumped), build_tree(sides[1].dumped)
    inner = Pairing(*trees, work.rules, Evidence(*trees))
    lines: tuple[Line, Line] = lay_out(trees[0]), lay_out(trees[1])
    aligned = align_lines(trees, *lines)
    work.are_other = inner.are_other = True
    if not is_convincing(lines, aligned):
        _match_left(work, inner, sides, (same_weights, between_matches))
        return True
    inner.lines = lines
    add_aligned(inner, aligned)
    sure = (with_norm(inner, nodes) for nodes, found in inner.matches() if not found.doubtful)
    elected = by_majority(list(_layer_pairs(inner, aligned)), sure)
    for nodes, _ in elected:
        free = inner.free_golden(nodes[0])
        inner.partners.update(dict.fromkeys(free, nodes[1][0]))
    for nodes, is_elected in elected:
        _transfer(work, inner, sides, _innermost(inner, nodes), is_elected=is_elected)
    _match_left(
        work, inner, sides, (same_weights, between_matches, same_names, same_paths, same_shapes, heads)
    )
    for pair in list(activations(work)):
        work.add_sure(pair, Origin.STRUCTURE, _TAKE_THE_SAME, BY_MAJORITY)
    return True


def _innermost(inner: Pairing, nodes: Nodes) -> Nodes:
    """Return a pair of modules, of nested ones the one with the weight if the other has the weight."""
    if not len(nodes[0]) == len(nodes[1]) == 1:
        return nodes
    (golden,), (target,) = nodes
    has_weight = _has_weight(inner.golden, golden), _has_weight(inner.target, target)
    if has_weight == (False, True):
        return (_with_weight(inner.golden, golden),), (target,)
    if has_weight == (True, False):
        return (golden,), (_with_weight(inner.target, target),)
    return nodes


def _has_weight(tree: SliceTree, node: int) -> bool:
    return bool(tree.nodes[node].records(Role.PARAMETER))


def _with_weight(tree: SliceTree, node: int) -> int:
    """Return the only module inside a node that has weights, where there is one; else the node."""
    found = [below for below in tree.inside(node) if _has_weight(tree, below)]
    return found[0] if len(found) == 1 else node


def _match_left(
    work: Pairing,
    inner: Pairing,
    sides: tuple[ModulesAlone, ModulesAlone],
    rules: Iterable[Callable[[Pairing], Iterator[Pair]]],
) -> None:
    """Match what is left over by rules that need no line of both runs."""
    for rule in rules:
        for pair in filter(inner.is_free, list(rule(inner))):
            inner.add_weighed(pair, BY_MAJORITY)
            _transfer(work, inner, sides, ((pair[0],), (pair[1],)), is_elected=False)


def _is_matched_otherwise(tree: SliceTree) -> bool:
    """Tell whether a run is a topology of operations, or was compiled: that is matched by what it tells."""
    return is_topology(tree) or any(node.sources for node in tree.nodes)


def _does_by_operators(golden: SliceTree, target: SliceTree) -> bool:
    """Tell whether one run alone recorded operators, and these and its modules are called like nothing there.

    Then what modules do in the one is done by operators in the other, of another library.
    """
    have = [any(map(is_operator, tree.nodes)) for tree in (golden, target)]
    return have[0] is not have[1] and called(golden).isdisjoint(called(target))


def _layer_pairs(inner: Pairing, aligned: Iterable[Aligned]) -> Iterator[LayerPair]:
    for pair in aligned:
        if isinstance(pair.golden, Layer) and not pair.doubtful:
            yield layer_pair((inner.golden, inner.target), (pair.golden.node, pair.target.node))


def _transfer(
    work: Pairing,
    inner: Pairing,
    sides: tuple[ModulesAlone, ModulesAlone],
    nodes: Nodes,
    *,
    is_elected: bool,
) -> None:
    """Enter a match of modules alone into that of all nodes."""
    golden, target = (
        tuple(known(side.places[node] for node in own)) for side, own in zip(sides, nodes, strict=True)
    )
    if [len(golden), len(target)] != [*map(len, nodes)]:
        return  # a container that was not recorded
    score, reasons = BY_MAJORITY, _AS_IN_MOST_LAYERS if is_elected else ()
    found = inner.found.get(nodes[1][0])
    if found is not None and inner.partners.get(nodes[0][0]) == nodes[1][0]:
        score, reasons = found.score, found.reasons
    pair = golden[0], target[0]
    if not len(golden) == len(target) == 1:
        has_norm = has_norm_inside(work, (golden, target))
        work.add_join(Join(golden, target, Origin.STRUCTURE, score, reasons, has_norm=has_norm))
    elif work.is_free(pair) and _have_one_place(work, pair):
        work.add_same_place(pair)
    elif work.is_free(pair):
        work.add_sure(pair, Origin.STRUCTURE, reasons, score)


def _have_one_place(work: Pairing, pair: tuple[int, int]) -> bool:
    golden, target = work.golden.nodes[pair[0]], work.target.nodes[pair[1]]
    return work.rules.exact and (golden.path, golden.call) == (target.path, target.call)
