"""Find modules that were fused into one.

    golden   q_proj ─┐
             k_proj ─┼─ linear_qkv   target
             v_proj ─┘

Names say what may have been fused; shapes, and values where there are any, say whether it was.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from firstdrift.matching.fused.joined_tensors import join_records, joined_axis
from firstdrift.matching.fused.thresholds import BY_NAME, FITS, SAME_VALUES
from firstdrift.matching.pairing import Join, Pairing
from firstdrift.matching.plan import Messages, Origin
from firstdrift.matching.structure.sequence_alignment import Pair
from firstdrift.matching.structure.statistics_similarity import value_distance
from firstdrift.matching.tree import SliceTree, is_operator
from firstdrift.model.node import Direction, Node
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.operators.fused import fusions
from firstdrift.wording.message import Message

_SHAPES_JOIN: Final = Message.of("matching.reason.shapes_join")
_VALUES_AGREE: Final = Message.of("matching.reason.values_of_whole_agree")
_SAME_OPERATORS: Final = Message.of("matching.reason.same_operators_inside")


def join_siblings(work: Pairing, golden: list[int], target: list[int]) -> None:
    """Match what was fused on one side and not on the other, among siblings that are not matched yet."""
    for parts in _groups(work.golden, work.free_golden(golden)):
        for whole in work.free_target(target):
            said = _says_fused(work.golden, parts, work.target, whole)
            if said is not None:
                work.add_join(Join(parts, (whole,), Origin.STRUCTURE, said[0], said[1]))
                break
    for parts in _groups(work.target, work.free_target(target)):
        for whole in work.free_golden(golden):
            said = _says_fused(work.target, parts, work.golden, whole)
            if said is not None:
                work.add_join(Join((whole,), parts, Origin.STRUCTURE, said[0], said[1]))
                break


def possible_joins(work: Pairing, node: int, *, of_golden: bool) -> Iterator[Join]:
    """Yield what a node may have been fused with, or from, among the nodes that have no partner.

    The modules around them need not correspond.
    """
    golden = work.free_golden(list(range(work.golden.root)))
    target = work.free_target(list(range(work.target.root)))
    tree, other = (work.golden, work.target) if of_golden else (work.target, work.golden)
    free, others = (golden, target) if of_golden else (target, golden)
    siblings = [index for index in free if tree.parents[index] == tree.parents[node]]
    cases = [
        (tree, parts, other, whole) for parts in _groups(tree, siblings) if node in parts for whole in others
    ]
    cases += [(other, parts, tree, node) for parts in parts_of_one(other, others)]
    for of_parts, parts, of_whole, whole in cases:
        said = _says_fused(of_parts, parts, of_whole, whole)
        if said is not None:
            nodes = (parts, (whole,)) if of_parts is work.golden else ((whole,), parts)
            yield Join(nodes[0], nodes[1], Origin.STRUCTURE, said[0], said[1])


def complete_join(work: Pairing, pair: Pair, origin: Origin, reason: Message) -> Join | None:
    """Return the match of a part, its siblings and their whole, where a pair of part and whole was said.

    None where the shapes of the two fit each other, or those of the parts do not join to that of the whole.
    """
    golden, target = pair
    sides = ((work.golden, golden, work.target, target), (work.target, target, work.golden, golden))
    for of_parts, part, of_whole, whole in sides:
        if is_operator(of_parts.nodes[part]):
            continue
        siblings = of_parts.forward[of_parts.parents[part]]
        for parts in _groups(of_parts, siblings):
            if part in parts and _fit(of_parts, parts, of_whole, whole):
                nodes = (parts, (whole,)) if of_parts is work.golden else ((whole,), parts)
                reasons = (reason, _describe(of_parts, parts, of_whole, whole), _SHAPES_JOIN)
                return Join(nodes[0], nodes[1], origin, 1.0, reasons)
    return None


def join_operators(work: Pairing, join: Join) -> None:
    """Match the operators inside a match of several nodes, where each part runs those of the whole."""
    golden = [work.golden.forward[node] for node in join.golden]
    target = [work.target.forward[node] for node in join.target]
    kinds = {tuple(work.golden.nodes[child].type_name for child in children) for children in golden}
    kinds |= {tuple(work.target.nodes[child].type_name for child in children) for children in target}
    nodes = [work.golden.nodes[child] for children in golden for child in children]
    if len(kinds) != 1 or not all(map(is_operator, nodes)):
        return
    for position in range(len(golden[0])):
        inside = (
            tuple(children[position] for children in golden),
            tuple(children[position] for children in target),
        )
        work.add_join(Join(*inside, join.origin, join.score, (_SAME_OPERATORS,)))


def parts_of_one(tree: SliceTree, nodes: Iterable[int]) -> Iterator[tuple[int, ...]]:
    """Yield groups of modules whose names say that they may be fused, in the order of joining."""
    by_parent: dict[int, list[int]] = {}
    for node in nodes:
        by_parent.setdefault(tree.parents[node], []).append(node)
    for siblings in by_parent.values():
        yield from _groups(tree, siblings)


def _groups(tree: SliceTree, siblings: list[int]) -> Iterator[tuple[int, ...]]:
    """Yield what may be the parts of something fused: modules of one call whose names belong together."""
    by_name: dict[tuple[str, int, Direction], int] = {}
    for index in siblings:
        node = tree.nodes[index]
        if not is_operator(node):
            by_name.setdefault((tree.relative_name(index).lower(), node.call, node.direction), index)
    for fusion in fusions():
        for names in fusion.parts:
            for (name, call, direction), first in by_name.items():
                if name == names[0]:
                    parts = [first, *(by_name.get((other, call, direction), -1) for other in names[1:])]
                    if -1 not in parts:
                        yield tuple(parts)


def _says_fused(
    of_parts: SliceTree, parts: tuple[int, ...], of_whole: SliceTree, whole: int
) -> tuple[float, Messages] | None:
    """Return score and reasons if parts were fused into a whole: by name and shape, or by shape and value."""
    nodes = [of_parts.nodes[part] for part in parts]
    node = of_whole.nodes[whole]
    if is_operator(node) or node.direction is not nodes[0].direction or node.call != nodes[0].call:
        return None
    names = {of_parts.relative_name(part).lower() for part in parts}
    known = any(
        of_whole.relative_name(whole).lower() in fusion.whole and names in map(set, fusion.parts)
        for fusion in fusions()
    )
    fit = _fit(of_parts, parts, of_whole, whole)
    described = _describe(of_parts, parts, of_whole, whole)
    agree = fit is True and _values_agree(nodes, node)
    if agree:
        return (1.0 if known else FITS), (described, _SHAPES_JOIN, _VALUES_AGREE)
    if known and fit is not False:
        return (FITS, (described, _SHAPES_JOIN)) if fit else (BY_NAME, (described,))
    return None


def _fit(of_parts: SliceTree, parts: tuple[int, ...], of_whole: SliceTree, whole: int) -> bool | None:
    """Tell whether the outputs or parameters of parts join to those of a whole; None if none are known."""
    pairs = list(_joined_pairs([of_parts.nodes[part] for part in parts], of_whole.nodes[whole]))
    if not pairs:
        return None
    return all(
        joined_axis([part.shape for part in known], record.shape) is not None for known, record in pairs
    )


def _values_agree(parts: list[Node], whole: Node) -> bool:
    distances: list[float] = []
    for known, record in _joined_pairs(parts, whole):
        axis = joined_axis([part.shape for part in known], record.shape)
        distance = value_distance(join_records(known, axis), record) if axis is not None else None
        if distance is not None:
            distances.append(distance)
    return bool(distances) and max(distances) <= SAME_VALUES


def _joined_pairs(parts: list[Node], whole: Node) -> Iterator[tuple[list[TensorRecord], TensorRecord]]:
    """Yield the first output and the weight of each part, each with that of the whole."""
    result = Role.INPUT if whole.direction is Direction.BACKWARD else Role.OUTPUT
    for role in (result, Role.PARAMETER):
        record = _first(whole, role)
        known = [_first(part, role) for part in parts]
        found = [part for part in known if part is not None]
        if record is not None and record.shape is not None and len(found) == len(parts):
            yield found, record


def _first(node: Node, role: Role) -> TensorRecord | None:
    of_role = (tensor for tensor in node.tensors if tensor.role is role)
    return next((tensor for tensor in of_role if tensor.is_tensor and tensor.shape), None)


def _describe(of_parts: SliceTree, parts: tuple[int, ...], of_whole: SliceTree, whole: int) -> Message:
    names = tuple(of_parts.relative_name(part) for part in parts)
    return Message.of("matching.reason.fused", whole=of_whole.relative_name(whole), parts=names)
