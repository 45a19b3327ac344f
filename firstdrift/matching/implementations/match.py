"""Match the modules of two implementations of one model, before anything else is matched below them.

What the modules do, in which part of a layer, how wide they are and whose weights they have is aligned as
one line over the whole model, whatever containers the one or the other has recorded; what most layers say
then holds for all. Values of activations only decide between equals: a fault changes them from there on.
"""

from collections.abc import Iterable, Iterator

from firstdrift.groups import known
from firstdrift.matching.cross_framework.align import Aligned, align_lines
from firstdrift.matching.cross_framework.layer_ops import Layer, Line, lay_out
from firstdrift.matching.cross_framework.match import add_aligned, called, is_convincing, is_topology
from firstdrift.matching.implementations.layer_votes import LayerPair, Nodes, by_majority, layer_pair
from firstdrift.matching.implementations.other_implementation import (
    ModulesAlone,
    are_other_implementations,
    modules_alone,
)
from firstdrift.matching.implementations.same_names import (
    has_weight,
    heads,
    same_names,
    same_paths,
    with_weight,
)
from firstdrift.matching.implementations.thresholds import BY_MAJORITY
from firstdrift.matching.pairing import Found, Join, Pairing
from firstdrift.matching.plan import Messages, Origin
from firstdrift.matching.structure.similarity import Evidence
from firstdrift.matching.tree import SliceTree, build_tree, is_operator
from firstdrift.model.slice import Slice
from firstdrift.wording.message import Message

_AS_IN_MOST_LAYERS = (Message.of("matching.reason.as_in_most_layers"),)


def match_implementations(work: Pairing, golden: Slice, target: Slice) -> bool:
    """Match the modules of two implementations of one model; tell whether they are that.

    Nothing is done to what is matched already.
    """
    trees = work.golden, work.target
    if not work.rules.structure or any(map(_is_matched_otherwise, trees)):
        return False
    if not are_other_implementations(*trees) or _does_by_operators(*trees):
        return False
    sides = modules_alone(golden.listing, work.golden.nodes), modules_alone(target.listing, work.target.nodes)
    inner = _start(work, sides)
    trees = inner.golden, inner.target
    lines: tuple[Line, Line] = lay_out(trees[0]), lay_out(trees[1])
    aligned = align_lines(trees, *lines)
    work.are_other = inner.are_other = True
    if not is_convincing(lines, aligned):
        return True
    inner.lines = lines
    add_aligned(inner, aligned)
    elected = by_majority(list(_layer_pairs(inner, aligned)), _matches(inner))
    for nodes, is_elected in elected:
        _transfer(work, inner, sides, _innermost(inner, nodes), is_elected=is_elected)
    _match_by_name(work, inner, sides)
    return True


def _innermost(inner: Pairing, nodes: Nodes) -> Nodes:
    """Return a pair of modules, of nested ones the one with the weight if the other has the weight."""
    if not len(nodes[0]) == len(nodes[1]) == 1:
        return nodes
    (golden,), (target,) = nodes
    weights = has_weight(inner.golden, golden), has_weight(inner.target, target)
    return (
        (with_weight(inner.golden, golden, partner_has_weight=weights[1]),),
        (with_weight(inner.target, target, partner_has_weight=weights[0]),),
    )


def _match_by_name(work: Pairing, inner: Pairing, sides: tuple[ModulesAlone, ModulesAlone]) -> None:
    """Match what names tell inside what is matched, and the heads."""
    for rule in (same_names, same_paths, heads):
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


def _start(work: Pairing, sides: tuple[ModulesAlone, ModulesAlone]) -> Pairing:
    trees = build_tree(sides[0].dumped), build_tree(sides[1].dumped)
    return Pairing(*trees, work.rules, Evidence(*trees))


def _layer_pairs(inner: Pairing, aligned: Iterable[Aligned]) -> Iterator[LayerPair]:
    for pair in aligned:
        if isinstance(pair.golden, Layer) and not pair.doubtful:
            yield layer_pair((inner.golden, inner.target), (pair.golden.node, pair.target.node))


def _matches(inner: Pairing) -> Iterator[Nodes]:
    """Yield what is matched and certain, in execution order of the target."""
    joins = {join.target[0]: join for join in inner.joins}
    for target, found in sorted(inner.found.items()):
        if target in joins:
            yield joins[target].golden, joins[target].target
        elif found.is_sure_pair:
            yield (found.golden,), (target,)


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
    found = inner.found.get(nodes[1][0])
    is_as_found = found is not None and inner.partners.get(nodes[0][0]) == nodes[1][0]
    score, reasons = (found.score, found.reasons) if found and is_as_found else (BY_MAJORITY, ())
    reasons = (*reasons, *_said(is_elected=is_elected and not is_as_found))
    if len(golden) == len(target) == 1:
        pair = golden[0], target[0]
        if not work.is_free(pair):
            return
        if _have_one_place(work, pair):
            work.add_same_place(pair)
        else:
            work.add(pair, Found(pair[0], Origin.STRUCTURE, score, doubtful=False, reasons=reasons))
    else:
        work.add_join(Join(golden, target, Origin.STRUCTURE, score, reasons))


def _have_one_place(work: Pairing, pair: tuple[int, int]) -> bool:
    golden, target = work.golden.nodes[pair[0]], work.target.nodes[pair[1]]
    return work.rules.exact and (golden.path, golden.call) == (target.path, target.call)


def _said(*, is_elected: bool) -> Messages:
    return _AS_IN_MOST_LAYERS if is_elected else ()
