"""Find out which golden node is which target node.

Forward trees are matched from the root down: the children of two matched nodes are paired by name, then
what is left between two pairs is aligned. A backward node follows its forward node, so that it needs
aligning only where the forward pass was not recorded.

    golden                  target
    mlp ═══════════════════ feed_forward       aligned: same contents, shapes and values
    └─ linear.3 ═══════════ linear.4           same operator, same place
    mlp.backward ══════════ feed_forward.backward     follows the forward pair
"""

from collections import deque
from collections.abc import Container, Iterable, Mapping
from itertools import product

from msgspec.structs import replace

from firstdrift.groups import known, seconds
from firstdrift.matching.cross_framework.match import match_across_frameworks
from firstdrift.matching.experts.seen_in_order import experts_in_order, leave_loops
from firstdrift.matching.fused.find_fused import join_operators
from firstdrift.matching.implementations.match import match_implementations
from firstdrift.matching.implementations.without_module import with_weight, without_module
from firstdrift.matching.manual.apply_edits import apply_edits
from firstdrift.matching.manual.apply_mapping import apply_mappings
from firstdrift.matching.manual.edits import Edit
from firstdrift.matching.pairing import INSIDE_CORRESPONDS, Join, Pairing, start_pairing
from firstdrift.matching.plan import MatchingRules, Messages, Origin, SlicePlan
from firstdrift.matching.structure.child_alignment import pair_siblings
from firstdrift.matching.structure.compiled_graphs import match_compiled
from firstdrift.matching.structure.hung_alike import hung_alike
from firstdrift.matching.structure.name_only_dumps import find_namesakes
from firstdrift.matching.structure.sequence_alignment import Pair
from firstdrift.matching.thresholds import AROUND
from firstdrift.matching.tree import SliceTree, call_key, holds_gradients, is_operator
from firstdrift.matching.write_plan import write_plan
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Slice
from firstdrift.parallel.layer_numbers import without_chunk


def match_slices(golden: Slice, target: Slice, rules: MatchingRules) -> SlicePlan:
    """Say for each node of two slices what it corresponds to, and pair the tensors of what is certain.

    Siblings are matched in order; only modules of the same path may have changed places. No node is in two
    matches, and two equal slices are matched node by node. Matches are in the order of the target nodes.
    """
    work, notes = find_matches(golden, target, rules)
    return lay_edits_over(golden, target, work, notes, rules.edits)


def find_matches(golden: Slice, target: Slice, rules: MatchingRules) -> tuple[Pairing, Messages]:
    """Match two slices by all rules but the edits; return what is matched, and remarks."""
    known = find_namesakes(golden, target)
    experts = experts_in_order(known.golden, known.target)
    slices = hung_alike(known.golden, experts.renumber(known.target))
    work = start_pairing(*slices, rules)
    work.moved = experts.moved
    notes = (*known.notes, *experts.notes, *apply_mappings(work))
    known.match(work)
    match_implementations(work, *slices)
    _match_trees(work)
    leave_loops(work)
    return work, notes


def lay_edits_over(
    golden: Slice, target: Slice, work: Pairing, notes: Messages, edits: Iterable[Edit]
) -> SlicePlan:
    """Change what was matched as people said, in place, and write the plan."""
    return write_plan(golden, target, work, notes + lay_edits_on(work, edits))


def lay_edits_on(work: Pairing, edits: Iterable[Edit]) -> Messages:
    """Change what was matched as people said, in place; return remarks on edits that could not be applied."""
    return apply_edits(work, edits, _match_trees)


def _match_trees(work: Pairing) -> None:
    """Match what is not matched yet, from the roots down."""
    if match_compiled(work) or match_across_frameworks(work, late=False):
        return
    _match_whole_models(work)
    _match_only_chunks(work)
    tops = _top(work.golden, work.target), _top(work.target, work.golden)
    pair_siblings(work, work.golden.forward[tops[0]], work.target.forward[tops[1]], exact=True)
    _match_below(work)
    grown = True
    while grown:
        _follow_forward(work)
        _follow_joins(work)
        _match_below(work)
        grown = _match_backward(work)
        grown |= work.rules.structure and (_match_around(work) or _match_without_module(work))
        _match_below(work)
    _match_gradients(work)
    match_across_frameworks(work, late=True)


def _match_whole_models(work: Pairing) -> None:
    """Match the models themselves, whatever they are called, which a dump may not tell."""
    golden, target = (
        [index for index in tree.forward[tree.root] if tree.nodes[index].kind is NodeKind.MODEL]
        for tree in (work.golden, work.target)
    )
    if len(golden) == len(target) == 1 and work.is_free((golden[0], target[0])):
        work.add_same_place((golden[0], target[0]))


def _match_only_chunks(work: Pairing) -> None:
    """Match the calls of the model, where one dump calls it a chunk of the model: `model` and `0.model`.

    One rank of a pipeline has too little of the model for its likeness to tell.
    """
    golden, target = (tree.modules(tree.forward[tree.root]) for tree in (work.golden, work.target))
    if not work.rules.structure or len(golden) != len(target):
        return
    nodes = work.golden.nodes_at(golden), work.target.nodes_at(target)
    paths, others = ({node.path for node in side} for side in nodes)
    named = set(map(without_chunk, paths | others))
    if len(paths) == len(others) == len(named) == 1 and paths != others:
        for pair in filter(work.is_free, zip(golden, target, strict=True)):
            work.add_weighed(pair, AROUND)


def _top(tree: SliceTree, other: SliceTree) -> int:
    """Return what holds the topmost modules that both dumps have; some record the model itself as well."""
    top = [index for index in tree.forward[tree.root] if _is_whole_model(tree.nodes[index])]
    others = (other.nodes[index] for index in other.forward[other.root])
    return tree.root if len(top) != 1 or any(map(_is_whole_model, others)) else top[0]


def _is_whole_model(node: Node) -> bool:
    return node.kind is NodeKind.MODEL or (not node.path and not is_operator(node))


def _match_below(work: Pairing) -> None:
    """Pair the forward children of every new match, down to the leaves; not those of doubtful ones."""
    while work.fresh:
        golden, target = work.fresh.popleft()
        if not work.found[target].doubtful:
            children = work.golden.forward[golden], work.target.forward[target]
            pair_siblings(work, *children, exact=work.is_exact(target))
    for join in work.joins[work.joins_entered :]:
        join_operators(work, join)
    work.joins_entered = len(work.joins)


def _follow_forward(work: Pairing) -> None:
    """Match the backward nodes of matched forward nodes."""
    for call, backward in work.target.backward_calls.items():
        leader = work.target.forward_calls.get(call, -1)
        match = work.found.get(leader)
        if match is None or match.joined:
            continue
        golden = work.golden.backward_of(match.golden)
        if golden is not None and work.is_free((golden, backward)):
            work.follow((golden, backward), leader)


def _follow_joins(work: Pairing) -> None:
    """Match the backward nodes of what was fused."""
    for join in tuple(work.joins):
        _follow_join(
            work, join, map(work.golden.backward_of, join.golden), map(work.target.backward_of, join.target)
        )


def _follow_join(
    work: Pairing, join: Join, golden: Iterable[int | None], target: Iterable[int | None]
) -> None:
    """Record a match that follows from one of several nodes, if all its nodes were recorded."""
    sides = [tuple(known(side)) for side in (golden, target)]
    if list(map(len, sides)) == [len(join.golden), len(join.target)]:
        reasons = (work.follows(join.target[0]),)
        work.add_join(replace(join, golden=sides[0], target=sides[1], reasons=reasons))


def _match_backward(work: Pairing) -> bool:
    """Pair the backward children of all matches by name and alignment; tell whether any was found."""
    matched = [(match.golden, target) for target, match in work.found.items() if match.is_sure_pair]
    waiting = deque([(work.golden.root, work.target.root), *matched])
    alone = (
        {golden for golden, target in matched if work.target.backward_of(target) is None},
        {target for golden, target in matched if work.golden.backward_of(golden) is None},
    )
    fresh: list[Pair] = []
    while waiting:
        golden, target = waiting.popleft()
        if work.golden.backward[golden] and work.target.backward[target]:
            siblings = (
                _without_orphans(work.golden, golden, work.partners, work.target, alone[0]),
                _without_orphans(work.target, target, work.found, work.golden, alone[1]),
            )
            pair_siblings(work, *siblings, exact=work.is_exact(target))
            fresh += work.fresh
            waiting += [pair for pair in work.fresh if not work.found[pair[1]].doubtful]
            work.fresh.clear()
    work.fresh += fresh
    return bool(fresh)


def _match_without_module(work: Pairing) -> bool:
    """Match operators that one of two implementations has in a module; tell whether any was found."""
    was_found = False
    for pair in filter(work.is_free, [*without_module(work), *with_weight(work)] if work.are_other else []):
        work.add_sure(pair, Origin.STRUCTURE, work.evidence.reasons(*pair), AROUND)
        was_found = True
    return was_found


def _match_around(work: Pairing) -> bool:
    """Match modules around modules most of which correspond to each other; tell whether any was found."""
    before = len(work.found)
    modules = work.golden.modules(range(len(work.golden.nodes)))
    for golden in work.free_golden(modules):
        if work.golden.nodes[golden].direction is not Direction.BACKWARD:
            around = _around_partners(work, golden)
            target = next((other for other in around if _correspond(work, golden, other)), None)
            if target is not None:
                reasons = (INSIDE_CORRESPONDS, *work.evidence.reasons(golden, target))
                work.add_sure((golden, target), Origin.STRUCTURE, reasons, AROUND)
    return len(work.found) > before


def _around_partners(work: Pairing, golden: int) -> list[int]:
    """Return the free modules around the partners of what a golden module holds."""
    partners = known(map(work.partners.get, work.golden.forward[golden]))
    around = dict.fromkeys(work.target.parents[index] for index in partners)
    return work.free_target(target for target in around if target != work.target.root)


def _correspond(work: Pairing, golden: int, target: int) -> bool:
    """Tell whether two modules share most of their matched modules, at least two.

    They hang at matched ones, too, or, of two implementations, which record other containers, share all. What
    is beside the one and inside the other tells that the other is the layer around it. So does a number in a
    list.
    """
    above = work.golden.parents[golden], work.target.parents[target]
    if work.are_other and _is_layer(work.golden, golden) is not _is_layer(work.target, target):
        return False
    if not _hang_alike(work, above) and not (work.are_other and _hold_the_same(work, golden, target)):
        return False
    inside = set(work.golden.modules(work.golden.forward[golden]))
    others = set(work.target.modules(work.target.forward[target]))
    partners, found = _partners(work, inside), _found(work, others)
    beside = work.golden.forward[above[0]], work.target.forward[above[1]]
    if not (found - inside).isdisjoint(beside[0]) or not (partners - others).isdisjoint(beside[1]):
        return False
    shared = len(partners & others)
    return shared > 1 and 2 * shared > max(len(partners), len(found))


def _partners(work: Pairing, golden: Iterable[int]) -> set[int]:
    """Return the target nodes that some golden ones are matched with."""
    return {work.partners[own] for own in golden if own in work.partners}


def _found(work: Pairing, target: Iterable[int]) -> set[int]:
    """Return the golden nodes that some target ones are matched with."""
    return {work.found[other].golden for other in target if other in work.found}


def _hang_alike(work: Pairing, above: tuple[int, int]) -> bool:
    return above == (work.golden.root, work.target.root) or work.partners.get(above[0], -1) == above[1]


def _hold_the_same(work: Pairing, golden: int, target: int) -> bool:
    """Tell whether all matched nodes inside two modules are matched with one inside the other."""
    inside, others = set(work.golden.inside(golden)), set(work.target.inside(target))
    return _partners(work, inside) <= others and _found(work, others) <= inside


def _is_layer(tree: SliceTree, module: int) -> bool:
    """Tell whether a module is a numbered element of a list, as layers are."""
    return tree.nodes[module].path.rpartition(".")[2].isdigit()


def _without_orphans(
    tree: SliceTree, parent: int, matched: Container[int], other: SliceTree, alone: Container[int]
) -> list[int]:
    """Return the backward children that may be matched by themselves, and those that are matched.

    One whose forward node was recorded follows it: where that has no partner, or its partner no backward
    node, it has none either. Recomputed forward nodes do not count: the backward pass through them is that
    of the first computation.
    """
    siblings, may_run_again = tree.backward[parent], bool(other.recomputed)
    forward = (tree.forward_calls.get(call_key(node)) for node in tree.nodes_at(siblings))
    return [
        index
        for index, leader in zip(siblings, forward, strict=True)
        if leader is None
        or index in matched
        or leader in tree.recomputed
        or (leader in matched and (may_run_again or leader not in alone))
    ]


def _match_gradients(work: Pairing) -> None:
    """Match the gradients of parameters: they follow their module, or its path where it was not recorded."""
    nodes = work.target.nodes
    modules = work.target.modules(range(len(nodes)))
    recorded = {node.path for node in work.target.nodes_at(modules) if not holds_gradients(node)}
    leaders = {nodes[index].path: index for index in reversed(modules) if index in work.found}
    golden, target = _gradients(work.golden), _gradients(work.target)
    _join_gradients(work, golden, target)
    for index in work.free_target(work.target.gradients):
        path, call = nodes[index].path, nodes[index].call
        leader = leaders.get(path)
        if leader is not None:
            _follow_module(work, golden, index, leader)
        elif path not in recorded and work.rules.exact and (path, call) in golden:
            pair = golden[path, call], index
            if work.is_free(pair):
                work.add_same_place(pair)


def _follow_module(work: Pairing, golden: Mapping[tuple[str, int], int], index: int, leader: int) -> None:
    """Match a target node that holds gradients, as its module was matched."""
    match = work.found[leader]
    partner = golden.get((work.golden.nodes[match.golden].path, work.target.nodes[index].call))
    if partner is not None and partner not in work.partners and not match.joined:
        work.follow((partner, index), leader)


def _gradients(tree: SliceTree) -> dict[tuple[str, int], int]:
    """Return the nodes that hold gradients of parameters, by path and call."""
    return {(tree.nodes[index].path, tree.nodes[index].call): index for index in tree.gradients}


def _join_gradients(
    work: Pairing, golden: Mapping[tuple[str, int], int], target: Mapping[tuple[str, int], int]
) -> None:
    """Match the gradients of the parameters of what was fused."""
    calls = sorted(set(seconds(target)))
    for join, call in product(tuple(work.joins), calls):
        _follow_join(
            work,
            join,
            (golden.get((work.golden.nodes[index].path, call)) for index in join.golden),
            (target.get((work.target.nodes[index].path, call)) for index in join.target),
        )
