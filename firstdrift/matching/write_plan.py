"""Write a plan of what was matched: matches in the order of the target nodes, tensors, what is left over."""

from collections.abc import Container, Iterator
from itertools import product
from typing import Final

from msgspec.structs import replace

from firstdrift.groups import not_in
from firstdrift.matching.axis_names import lay_alike
from firstdrift.matching.cross_framework.match import add_inferred
from firstdrift.matching.cross_framework.pair_values import pair_values
from firstdrift.matching.cross_framework.unrecorded_sums import add_operands
from firstdrift.matching.experts.seen_in_order import in_order
from firstdrift.matching.fused.arrangement_witnesses import with_witnesses
from firstdrift.matching.fused.inner_weights import pair_inner_weights
from firstdrift.matching.fused.joined_tensors import pair_experts, pair_joined
from firstdrift.matching.fused.stacked_experts import pair_stacks
from firstdrift.matching.implementations.boundaries import with_boundaries
from firstdrift.matching.implementations.element_order import with_order_of_layers
from firstdrift.matching.implementations.handed_on import add_handed_on
from firstdrift.matching.implementations.handed_on_gradients import pair_handed_on
from firstdrift.matching.implementations.norm_inside import pair_with_norm
from firstdrift.matching.implementations.pair_tensors import Pairer, pairer_of, with_views
from firstdrift.matching.implementations.tied_weights import with_sums_of_gradients
from firstdrift.matching.implementations.token_order import as_recorded as left_as_recorded
from firstdrift.matching.implementations.token_order import by_sequence, say_order, turned_batch
from firstdrift.matching.manual.said_views import pair_said_views
from firstdrift.matching.pairing import Join, Pairing
from firstdrift.matching.plan import Messages, NodeMatch, Origin, SlicePlan, TensorPair, UnmatchedTensor
from firstdrift.matching.ranks.partial_dump import as_recorded, spread_of_pairs, without_parts
from firstdrift.matching.ranks.partial_pairs import say_partial_dump, settle_partial_dump
from firstdrift.matching.ranks.shards import settle_shards
from firstdrift.matching.structure.compiled_graphs import pair_compiled
from firstdrift.matching.structure.sequence_alignment import Pair
from firstdrift.matching.tensors import TensorPairing, without
from firstdrift.matching.tokens.rows import Nodes, common_rows
from firstdrift.matching.tree import is_operator, records_by_place
from firstdrift.model.node import Node
from firstdrift.model.slice import Slice
from firstdrift.model.tensor import is_part_of_rank
from firstdrift.parallel.point_to_point import is_communication
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named

_SAID: Final = (Origin.MANUAL, Origin.MAPPING)
"""By whom it is said that two operators do the same, so that nothing else has to tell."""


def write_plan(golden: Slice, target: Slice, work: Pairing, notes: Messages) -> SlicePlan:
    """Write the matches down in the order of the target nodes, with the tensors of those that are certain."""
    if work.spread is not None:
        golden, target = work.spread.widened(golden, target)
    tensors = TensorPairing()
    matches = _pair_seen(work, golden, target, tensors)
    inferred = add_inferred(work, matches, tensors)
    handed = add_handed_on(work, matches, tensors)
    if work.are_other:
        pair_handed_on(work.golden, work.target, matches, tensors)
    stacked = pair_stacks(golden.nodes, target.nodes, matches, tensors)
    pair_inner_weights(golden.nodes, target.nodes, matches, tensors)
    add_operands(matches, (work.golden, work.target), work.lines)
    pairs = tensors.pairs if work.spread is None else list(map(without_parts, tensors.pairs))
    plan = SlicePlan(
        golden=golden.listing,
        target=target.listing,
        matches=tuple(matches),
        pairs=tuple(with_witnesses(settle_shards(list(map(lay_alike, pairs)), target.nodes))),
        unmatched_golden=_unmatched(golden, work.partners.keys() | inferred[0] | handed[0], stacked[0]),
        unmatched_target=_unmatched(target, work.found.keys() | inferred[1] | handed[1], stacked[1]),
        unmatched_golden_tensors=tuple(map(_as_recorded, tensors.unmatched_golden)),
        unmatched_target_tensors=tuple(map(_as_recorded, tensors.unmatched_target)),
    )
    plan = _settle_partial_dump(plan, work)
    return replace(plan, notes=(*notes, *plan.notes, *_notes_on_ranks(plan, golden, target)))


def _pair_seen(work: Pairing, golden: Slice, target: Slice, tensors: TensorPairing) -> list[NodeMatch]:
    """Pair the tensors as they are seen: rows by token, and views of other implementations."""
    recorded: Nodes = golden.nodes, target.nodes
    batch = turned_batch(work.golden, work.target, work.pairs()) if work.are_other else None
    seen: Nodes = recorded if batch is None else (golden.nodes, by_sequence(target.nodes, batch))
    rows = common_rows(seen, (golden, target), of_one_code=not work.are_other)
    if rows is not None:
        seen = rows.see(seen)
    pairer = pairer_of(work.golden, work.target) if work.are_other else None
    matches = _pair_tensors(work, recorded, seen, tensors, pairer)
    if pairer is not None:
        tensors.pairs = list(map(with_views, with_order_of_layers(tensors.pairs, pairer.linear)))
    if rows is not None:
        tensors.pairs = list(map(rows.say, tensors.pairs))
    tensors.pairs = in_order(tensors.pairs, work.target, work.moved)
    if pairer is not None:
        outermost = {node.name for node in work.golden.nodes_at(work.golden.forward[work.golden.root])}
        pairs = with_boundaries(tensors.pairs, outermost)
        tensors.pairs = with_sums_of_gradients(pairs, work.golden, work.target)
    if batch is not None:
        tensors.pairs = say_order(tensors.pairs, records_by_place(target.nodes))
    if seen is not recorded:
        places = records_by_place(golden.nodes), records_by_place(target.nodes)
        tensors.unmatched_golden = left_as_recorded(tensors.unmatched_golden, places[0])
        tensors.unmatched_target = left_as_recorded(tensors.unmatched_target, places[1])
    return matches


def _pair_tensors(
    work: Pairing, recorded: Nodes, seen: Nodes, tensors: TensorPairing, pairer: Pairer | None
) -> list[NodeMatch]:
    """Pair the tensors of all matches; a match of several nodes stands where the first target node is."""
    matches: list[NodeMatch] = []
    operators: list[tuple[int, Node, Node]] = []
    joins = {join.target: join for join in work.joins}
    for indexes, found in work.matches():
        first = [seen[0][index] for index in indexes[0]]
        second = [seen[1][index] for index in indexes[1]]
        if found.joined:
            tensors.add(_pair_join(len(matches), joins[indexes[1]], (first, second), work, pairer))
        elif found.doubtful:  # a person has yet to confirm it
            tensors.leave(len(matches), first, second)
        elif pairer is not None and found.origin not in _SAID and any(map(is_operator, first + second)):
            operators.append((len(matches), first[0], second[0]))
        else:
            pair = indexes[0][0], indexes[1][0]
            nodes = _pair_said(tensors, len(matches), (first[0], second[0]), recorded, work, pair)
            _pair_single(tensors, len(matches), nodes, work, pair[1], pairer)
        names = [tuple(node.name for node in side) for side in (first, second)]
        how = found.origin, found.score, found.doubtful, found.reasons
        matches.append(NodeMatch(names[0], names[1], *how))
    if pairer is not None:
        for row, golden_node, target_node in operators:  # modules tell what they work on
            pairer.pair_operators(tensors, row, golden_node, target_node)
    tensors.pairs.sort(key=lambda pair: pair.match)
    return matches


def _pair_said(
    tensors: TensorPairing, row: int, seen: tuple[Node, Node], recorded: Nodes, work: Pairing, pair: Pair
) -> tuple[Node, Node]:
    """Pair what mapping files name, views of it as it was recorded; return the nodes with what is left."""
    seen = tensors.pair_said(row, *seen, work.said_tensors.get(pair, {}))
    views = work.said_views.get(pair, ())
    if not views:
        return seen
    left = pair_said_views(tensors, row, (recorded[0][pair[0]], recorded[1][pair[1]]), views)
    labels = [{record.label for record in node.tensors} for node in left]
    golden, target = (
        without(node, [record.label for record in node.tensors if record.label not in kept])
        for node, kept in zip(seen, labels, strict=True)
    )
    return golden, target


def _are_seen_as_views(nodes: tuple[Node, Node]) -> bool:
    """Tell whether two modules may hold views of each other; what ranks hold of one name is laid together."""
    golden, target = nodes
    is_cut = any(record.shards is not None for node in nodes for record in node.tensors)
    return not any(map(is_operator, nodes)) and not (is_cut and golden.path == target.path)


def _pair_single(
    tensors: TensorPairing,
    row: int,
    nodes: tuple[Node, Node],
    work: Pairing,
    index: int,
    pairer: Pairer | None,
) -> None:
    """Pair the tensors of one node with those of one other; `index` is that of the target node."""
    match = work.found[index]
    if pairer is not None and match.origin is not Origin.MANUAL and _are_seen_as_views(nodes):
        pairer.pair(tensors, row, *nodes)
    elif work.lines and match.origin is Origin.STRUCTURE:
        pair_values(tensors, row, work, work.lines, (match.golden, index))
    else:
        tensors.pair(row, *nodes)


def _pair_join(
    row: int, join: Join, nodes: tuple[list[Node], list[Node]], work: Pairing, pairer: Pairer | None
) -> TensorPairing:
    """Pair the tensors of what was fused; those that a mapping file names are no parts of others."""
    own = TensorPairing()
    if join.has_norm and pairer is not None:
        pair_with_norm(own, row, nodes, pairer)
    elif join.experts:
        pair_experts(own, row, *nodes, join.experts)
    elif join.compiled:
        pair_compiled(own, row, *nodes)
    else:
        pair_joined(own, row, *nodes)
    joined = {(pair.golden.label, pair.target.label) for pair in own.pairs}
    for pair, (golden, target) in zip(join.pairs(), product(*nodes), strict=True):
        said = work.said_tensors.get(pair, {})
        own.pair_said(row, golden, target, {key: of for key, of in said.items() if (of, key) not in joined})
    own.drop_paired()
    return own


def _unmatched(dumped: Slice, matched: Container[int], stacked: Container[str]) -> tuple[str, ...]:
    """Return the names of the nodes that are in no match; of weights of experts names are known."""
    free = (node.name for index, node in enumerate(dumped.nodes) if index not in matched)
    return tuple(not_in(free, stacked))


def _as_recorded(tensor: UnmatchedTensor) -> UnmatchedTensor:
    return replace(tensor, record=as_recorded(tensor.record))


def _settle_partial_dump(plan: SlicePlan, work: Pairing) -> SlicePlan:
    """Settle what can be compared where one of the two dumps is that of one rank without the others."""
    trees = work.golden, work.target
    spread = work.spread or spread_of_pairs(plan.pairs, trees)
    if spread is None:
        return plan
    listing = plan.target if spread.is_target else plan.golden
    if listing.parts:
        return plan
    pairs = settle_partial_dump(plan.pairs, plan.matches, trees, spread, listing.coordinates.rank or 0)
    return replace(plan, pairs=tuple(pairs), notes=(say_partial_dump(spread, pairs),))


def _is_part_left_open(pair: TensorPair) -> bool:
    """Tell whether a pair could be compared if the one rank that was asked for were not alone."""
    if pair.incomparable is None:
        return False
    parts = filter(is_part_of_rank, (pair.golden, pair.target))
    return any(part.shards and not part.shards.of for part in parts)


def _notes_on_ranks(plan: SlicePlan, golden: Slice, target: Slice) -> Iterator[Message]:
    """Say how much one rank alone leaves open, and which nodes have no partner as only one run had ranks."""
    parts = sum(map(_is_part_left_open, plan.pairs))
    if parts:
        yield Message.of("matching.note.parts_of_one_rank", parts=parts, pairs=len(plan.pairs))
    talks = _communicating(golden), _communicating(target)
    left = {"golden": talks[0].intersection(plan.unmatched_golden)} if not talks[1] else {}
    left |= {"target": talks[1].intersection(plan.unmatched_target)} if not talks[0] else {}
    for side, nodes in left.items():
        if nodes:
            yield Message.of("matching.note.communication", nodes=len(nodes), side=side_named(side))


def _communicating(dumped: Slice) -> set[str]:
    return {node.name for node in dumped.nodes if is_communication(node.type_name)}
