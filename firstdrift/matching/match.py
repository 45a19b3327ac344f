"""Find out which golden node is which target node.

Forward trees are matched from the root down: the children of two matched nodes are paired by name, then
what is left between two pairs is aligned. A backward node follows its forward node, so that it needs
aligning only where the forward pass was not recorded.

    golden                  target
    mlp ═══════════════════ feed_forward       aligned: same contents, shapes and values
    └─ linear.3 ═══════════ linear.4           same operator, same place
    mlp.backward ══════════ feed_forward.backward     follows the forward pair
"""

import re
from collections import deque
from collections.abc import Container, Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from firstdrift.matching.cross_framework.match import add_inferred, match_foreign
from firstdrift.matching.cross_framework.pair_values import pair_values
from firstdrift.matching.cross_framework.unrecorded_sums import add_operands
from firstdrift.matching.fused.find_fused import join_operators
from firstdrift.matching.fused.joined_tensors import pair_experts, pair_joined
from firstdrift.matching.fused.stacked_experts import pair_stacks
from firstdrift.matching.manual.apply_edits import apply_edits
from firstdrift.matching.manual.apply_mapping import apply_mappings
from firstdrift.matching.manual.edits import Edit
from firstdrift.matching.pairing import INSIDE_CORRESPONDS, Found, Join, Pairing, start_pairing
from firstdrift.matching.plan import (
    MatchingRules,
    Messages,
    NodeMatch,
    Origin,
    SlicePlan,
    TensorPair,
    UnmatchedTensor,
)
from firstdrift.matching.ranks.partial_dump import (
    as_recorded,
    say_lone_rank,
    settle_lone_rank,
    spread_of_pairs,
    widen_slice,
    without_parts,
)
from firstdrift.matching.ranks.shards import settle_shards
from firstdrift.matching.structure.child_alignment import pair_siblings
from firstdrift.matching.structure.compiled_graphs import match_compiled, pair_compiled
from firstdrift.matching.structure.module_lists import without_lists
from firstdrift.matching.structure.name_only_dumps import find_namesakes
from firstdrift.matching.structure.operator_dumps import beside_flat
from firstdrift.matching.structure.sequence_alignment import Pair
from firstdrift.matching.tensors import TensorPairing
from firstdrift.matching.thresholds import AROUND
from firstdrift.matching.tree import SliceTree, call_key, holds_gradients, is_operator
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Slice
from firstdrift.model.tensor import is_part_of_rank
from firstdrift.parallel.point_to_point import is_communication
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named

_CHUNK: Final = re.compile(r"^\d{1,9}\.")


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
    slices = without_lists(known.golden, known.target), without_lists(known.target, known.golden)
    slices = beside_flat(*slices), beside_flat(*reversed(slices))
    work = start_pairing(*slices, rules)
    notes = (*known.notes, *apply_mappings(work))
    known.match(work)
    _match_trees(work)
    return work, notes


def lay_edits_over(
    golden: Slice, target: Slice, work: Pairing, notes: Messages, edits: Iterable[Edit]
) -> SlicePlan:
    """Change what was matched as people said, in place, and write the plan."""
    return _plan(golden, target, work, notes + lay_edits_on(work, edits))


def lay_edits_on(work: Pairing, edits: Iterable[Edit]) -> Messages:
    """Change what was matched as people said, in place; return remarks on edits that could not be applied."""
    return apply_edits(work, edits, _match_trees)


def _match_trees(work: Pairing) -> None:
    """Match what is not matched yet, from the roots down."""
    if match_compiled(work) or match_foreign(work, late=False):
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
        grown |= work.rules.structure and _match_around(work)
        _match_below(work)
    _match_gradients(work)
    match_foreign(work, late=True)


def _match_whole_models(work: Pairing) -> None:
    """Match the models themselves, whatever they are called, which a dump may not tell."""
    golden, target = (
        [index for index in tree.forward[tree.root] if tree.nodes[index].kind is NodeKind.MODEL]
        for tree in (work.golden, work.target)
    )
    if len(golden) == len(target) == 1 and golden[0] not in work.partners and target[0] not in work.found:
        work.add_same_place((golden[0], target[0]))


def _match_only_chunks(work: Pairing) -> None:
    """Match the calls of the model, where one dump calls it a chunk of the model: `model` and `0.model`.

    One rank of a pipeline has too little of the model for its likeness to tell.
    """
    (golden, paths), (target, other_paths) = _modules_at_top(work.golden), _modules_at_top(work.target)
    named = {_CHUNK.sub("", path) for path in paths | other_paths}
    is_one = len(paths) == len(other_paths) == len(named) == 1 and len(golden) == len(target)
    if not work.rules.structure or not is_one or paths == other_paths:
        return
    for pair in zip(golden, target, strict=True):
        if pair[0] not in work.partners and pair[1] not in work.found:
            work.add_weighed(pair, AROUND)


def _modules_at_top(tree: SliceTree) -> tuple[list[int], set[str]]:
    """Return the modules that lie in no other one, in the order of their calls, and their paths."""
    found = [index for index in tree.forward[tree.root] if not is_operator(tree.nodes[index])]
    return found, {tree.nodes[index].path for index in found}


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
        leader = work.target.forward_calls.get(call)
        if backward in work.found or leader is None or leader not in work.found:
            continue
        if work.found[leader].joined:
            continue
        golden_leader = work.found[leader].golden
        golden = work.golden.backward_calls.get(call_key(work.golden.nodes[golden_leader]))
        if golden is not None and golden not in work.partners:
            work.follow((golden, backward), leader)


def _follow_joins(work: Pairing) -> None:
    """Match the backward nodes of what was fused."""
    for join in tuple(work.joins):
        golden = [work.golden.backward_calls.get(call_key(work.golden.nodes[index])) for index in join.golden]
        target = [work.target.backward_calls.get(call_key(work.target.nodes[index])) for index in join.target]
        _follow_join(work, join, golden, target)


def _follow_join(work: Pairing, join: Join, golden: list[int | None], target: list[int | None]) -> None:
    """Record a match that follows from one of several nodes, if all its nodes were recorded."""
    golden_known = tuple(index for index in golden if index is not None)
    target_known = tuple(index for index in target if index is not None)
    if len(golden_known) == len(golden) and len(target_known) == len(target):
        reasons = (Message.of("matching.reason.follows", leader=work.target.nodes[join.target[0]].name),)
        work.add_join(replace(join, golden=golden_known, target=target_known, reasons=reasons))


def _match_backward(work: Pairing) -> bool:
    """Pair the backward children of all matches by name and alignment; tell whether any was found."""
    matched = [
        (found.golden, target)
        for target, found in work.found.items()
        if not found.doubtful and not found.joined
    ]
    waiting = deque([(work.golden.root, work.target.root), *matched])
    found: list[Pair] = []
    while waiting:
        golden, target = waiting.popleft()
        if work.golden.backward[golden] and work.target.backward[target]:
            siblings = (
                _without_orphans(work.golden, golden, work.partners),
                _without_orphans(work.target, target, work.found),
            )
            pair_siblings(work, *siblings, exact=work.is_exact(target))
            found += work.fresh
            waiting += [pair for pair in work.fresh if not work.found[pair[1]].doubtful]
            work.fresh.clear()
    work.fresh += found
    return bool(found)


def _match_around(work: Pairing) -> bool:
    """Match modules around modules most of which correspond to each other; tell whether any was found."""
    found = False
    for golden, node in enumerate(work.golden.nodes):
        if golden in work.partners or is_operator(node) or node.direction is Direction.BACKWARD:
            continue
        partners = [work.partners[index] for index in work.golden.forward[golden] if index in work.partners]
        for target in dict.fromkeys(work.target.parents[index] for index in partners):
            if target != work.target.root and target not in work.found and _correspond(work, golden, target):
                reasons = (INSIDE_CORRESPONDS, *work.evidence.reasons(golden, target))
                found = True
                work.add(
                    (golden, target),
                    Found(golden, Origin.STRUCTURE, AROUND, doubtful=False, reasons=reasons),
                )
                break
    return found


def _correspond(work: Pairing, golden: int, target: int) -> bool:
    """Tell whether two modules hang at matched ones and share most of their matched modules, at least two."""
    above = work.golden.parents[golden], work.target.parents[target]
    if above != (work.golden.root, work.target.root) and work.partners.get(above[0], -1) != above[1]:
        return False
    first = [index for index in work.golden.forward[golden] if index in work.partners]
    second = [index for index in work.target.forward[target] if index in work.found]
    first = [index for index in first if not is_operator(work.golden.nodes[index])]
    second = [index for index in second if not is_operator(work.target.nodes[index])]
    shared = len({work.partners[index] for index in first} & set(second))
    return shared > 1 and 2 * shared > max(len(first), len(second))


def _without_orphans(tree: SliceTree, parent: int, matched: Container[int]) -> list[int]:
    """Return the backward children without those whose forward node has no partner: they have none either.

    Recomputed forward nodes do not count: the backward pass through them is that of the first computation.
    """
    kept: list[int] = []
    for index in tree.backward[parent]:
        forward = tree.forward_calls.get(call_key(tree.nodes[index]))
        if index in matched or forward is None or forward in matched or forward in tree.recomputed:
            kept.append(index)
    return kept


def _match_gradients(work: Pairing) -> None:
    """Match the gradients of parameters: they follow their module, or its path where it was not recorded."""
    golden_nodes, target_nodes = work.golden.nodes, work.target.nodes
    by_path = {(golden_nodes[index].path, golden_nodes[index].call): index for index in work.golden.gradients}
    modules = [index for index, node in enumerate(target_nodes) if not is_operator(node)]
    recorded = {target_nodes[index].path for index in modules if not holds_gradients(target_nodes[index])}
    leaders = {target_nodes[index].path: index for index in reversed(modules) if index in work.found}
    _join_gradients(work)
    for index in work.target.gradients:
        node = target_nodes[index]
        if index in work.found:
            continue
        leader = leaders.get(node.path)
        path = node.path if leader is None else golden_nodes[work.found[leader].golden].path
        partner = by_path.get((path, node.call))
        if partner is None or partner in work.partners:
            continue
        if leader is not None and work.found[leader].joined:
            continue
        if leader is not None:
            work.follow((partner, index), leader)
        elif node.path not in recorded and work.rules.exact:
            work.add_same_place((partner, index))


def _join_gradients(work: Pairing) -> None:
    """Match the gradients of the parameters of what was fused."""
    sides = [
        {(tree.nodes[index].path, tree.nodes[index].call): index for index in tree.gradients}
        for tree in (work.golden, work.target)
    ]
    calls = sorted({call for _, call in sides[1]})
    for join in tuple(work.joins):
        for call in calls:
            golden = [sides[0].get((work.golden.nodes[index].path, call)) for index in join.golden]
            target = [sides[1].get((work.target.nodes[index].path, call)) for index in join.target]
            _follow_join(work, join, golden, target)


def _plan(golden: Slice, target: Slice, work: Pairing, notes: Messages) -> SlicePlan:
    """Write the matches down in the order of the target nodes, with the tensors of those that are certain."""
    if work.spread is not None and work.spread.is_target:
        target = widen_slice(target, work.spread.ranks)
    elif work.spread is not None:
        golden = widen_slice(golden, work.spread.ranks)
    matches: list[NodeMatch] = []
    tensors = TensorPairing()
    joins = {join.target[0]: join for join in work.joins}
    for index, found in sorted(work.found.items()):
        first, second = golden.nodes[found.golden], target.nodes[index]
        names: tuple[tuple[str, ...], ...] = ((first.name,), (second.name,))
        if found.joined:
            join = joins.get(index)
            if join is None:
                continue
            parts = [golden.nodes[at] for at in join.golden], [target.nodes[at] for at in join.target]
            if join.experts:
                pair_experts(tensors, len(matches), *parts, join.experts)
            else:
                (pair_compiled if join.compiled else pair_joined)(tensors, len(matches), *parts)
            names = tuple(node.name for node in parts[0]), tuple(node.name for node in parts[1])
        elif found.doubtful:
            tensors.leave(len(matches), first, second)
        elif work.foreign and found.origin is Origin.STRUCTURE:
            pair_values(tensors, len(matches), work, found.golden, index)
        else:
            tensors.pair(len(matches), first, second, work.said_tensors.get((found.golden, index)))
        matches.append(
            NodeMatch(names[0], names[1], found.origin, found.score, found.doubtful, found.reasons)
        )
    inferred = add_inferred(work, matches, tensors)
    stacked = pair_stacks(golden.nodes, target.nodes, matches, tensors)
    add_operands(matches, (work.golden, work.target), work.foreign)
    pairs = tensors.pairs if work.spread is None else list(map(without_parts, tensors.pairs))
    plan = SlicePlan(
        golden=golden.listing,
        target=target.listing,
        matches=tuple(matches),
        pairs=tuple(settle_shards(pairs, target.nodes)),
        unmatched_golden=tuple(
            node.name
            for index, node in enumerate(golden.nodes)
            if index not in work.partners and index not in inferred[0] and node.name not in stacked[0]
        ),
        unmatched_target=tuple(
            node.name
            for index, node in enumerate(target.nodes)
            if index not in work.found and index not in inferred[1] and node.name not in stacked[1]
        ),
        unmatched_golden_tensors=tuple(map(_as_recorded, tensors.unmatched_golden)),
        unmatched_target_tensors=tuple(map(_as_recorded, tensors.unmatched_target)),
    )
    plan = _settle_lone_rank(plan, work)
    return replace(plan, notes=(*notes, *plan.notes, *_notes_on_ranks(plan, golden, target)))


def _as_recorded(tensor: UnmatchedTensor) -> UnmatchedTensor:
    return replace(tensor, record=as_recorded(tensor.record)) if tensor.record.shards is not None else tensor


def _settle_lone_rank(plan: SlicePlan, work: Pairing) -> SlicePlan:
    """Settle what can be compared where one of the two dumps is that of one rank without the others."""
    listings = plan.golden, plan.target
    spread = work.spread or spread_of_pairs(plan.pairs, (work.golden, work.target))
    if spread is None or listings[spread.is_target].parts:
        return plan
    rank = listings[spread.is_target].coordinates.rank or 0
    trees = work.golden, work.target
    pairs = settle_lone_rank(plan.pairs, plan.matches, trees, spread, rank)
    return replace(plan, pairs=tuple(pairs), notes=(say_lone_rank(spread, pairs),))


def _is_part_left_open(pair: TensorPair) -> bool:
    """Tell whether a pair could be compared if the one rank that was asked for were not alone."""
    parts = [one for one in (pair.golden, pair.target) if is_part_of_rank(one)]
    return pair.incomparable is not None and any(one.shards and not one.shards.of for one in parts)


def _notes_on_ranks(plan: SlicePlan, golden: Slice, target: Slice) -> Iterator[Message]:
    """Say how much one rank alone leaves open, and which nodes have no partner as only one run had ranks."""
    parts = sum(map(_is_part_left_open, plan.pairs))
    if parts:
        yield Message.of("matching.note.parts_of_one_rank", parts=parts, pairs=len(plan.pairs))
    sides = (
        ("golden", golden, plan.unmatched_golden, target),
        ("target", target, plan.unmatched_target, golden),
    )
    for name, own, unmatched, other in sides:
        talks = {node.name for node in own.nodes if is_communication(node.type_name)}
        left = sum(node in talks for node in unmatched)
        if left and not any(is_communication(node.type_name) for node in other.nodes):
            yield Message.of("matching.note.communication", nodes=left, side=side_named(name))
