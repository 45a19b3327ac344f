"""Match the nodes of two dumps whose frameworks call nothing alike: a torch module tree and an ATB topology.

What the two do is aligned operator by operator (`align`); modules follow from the operators that they hold.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Final

from firstdrift.matching.cross_framework.align import Aligned, align_lines, align_ops
from firstdrift.matching.cross_framework.inferred_values import Inferred, Known, infer_values
from firstdrift.matching.cross_framework.layer_ops import (
    Layer,
    Line,
    Op,
    block_of,
    first_output,
    is_op,
    lay_out,
    nodes_below,
)
from firstdrift.matching.cross_framework.pair_values import fit, reshape_to_fit
from firstdrift.matching.cross_framework.thresholds import (
    DOUBTFUL_LAYER,
    INFERRED,
    KNOWN_WIDTH,
    LEAST_OPS,
    LEAST_SHARED,
    NO_WIDTH,
    SAME_CONTENTS,
    SHARED_NODES,
    SHARED_TYPES,
)
from firstdrift.matching.fused.joined_tensors import (
    ARRANGED_BY_VALUES,
    concatenated,
    join_records,
    whole_axes,
)
from firstdrift.matching.pairing import Found, Join, Pairing
from firstdrift.matching.plan import Joining, NodeMatch, Origin, TensorPair, UnmatchedTensor
from firstdrift.matching.ranks.partial_dump import spread_of_lines
from firstdrift.matching.tensors import TensorPairing
from firstdrift.matching.tree import SliceTree, is_operator
from firstdrift.model.tensor import TensorRecord
from firstdrift.operators.kinds import CHARACTERISTIC
from firstdrift.operators.paths import PARTS_OF_LAYER
from firstdrift.wording.message import Message

_SAME_BLOCK: Final = {
    "attention": Message.of("matching.reason.same_block.attention"),
    "cross attention": Message.of("matching.reason.same_block.cross_attention"),
    "mlp": Message.of("matching.reason.same_block.mlp"),
}
_SAME_OUTPUT_WIDTH: Final = Message.of("matching.reason.same_output_width")
_SAME_OPERATORS: Final = Message.of("matching.reason.same_operators")
_PARTS_JOINED: Final = Message.of("matching.transform.parts_joined")


def match_across_frameworks(work: Pairing, *, late: bool) -> bool:
    """Match what is not matched yet, if the dumps are of different frameworks; tell whether they are.

    Args:
        work: what is matched; `work.lines` is set.
        late: whether the other rules have had their turn, and what they found counts.
    """
    if not work.rules.structure:
        return False
    is_sure = work.lines is not None or (
        not late and _is_topology(work.golden) is not _is_topology(work.target)
    )
    if not is_sure and not (_were_hardly_found(work) if late else _call_nothing_alike(work)):
        return False
    lines, aligned = _align(work)
    if not is_sure and not _is_convincing(lines, aligned):
        return False
    work.lines = lines
    _add_aligned(work, aligned)
    work.fresh.clear()
    work.joins_entered = len(work.joins)
    return True


def _align(work: Pairing) -> tuple[tuple[Line, Line], list[Aligned]]:
    """Align the two runs; once more with wider tensors of the one that is that of one rank."""
    trees = work.golden, work.target
    lines = lay_out(trees[0]), lay_out(trees[1])
    aligned = align_lines(trees, *lines)
    layers = ((pair.golden, pair.target) for pair in aligned)
    work.spread = spread_of_lines(lines, layers, partial(align_ops, trees))
    if work.spread is None:
        return lines, aligned
    trees = work.widen()
    lines = lay_out(trees[0]), lay_out(trees[1])
    return lines, align_lines(trees, *lines)


def _add_aligned(work: Pairing, aligned: list[Aligned]) -> None:
    """Match the layers, the operators, and then the modules inside the layers."""
    layers = [pair for pair in aligned if isinstance(pair.golden, Layer)]
    for number, pair in enumerate(layers, 1):
        reason = Message.of("matching.reason.layer", number=number, layers=len(layers))
        _add(work, (pair.golden.node, pair.target.node), pair, reason)
    for pair in aligned:
        if isinstance(pair.golden, Op) and isinstance(pair.target, Op):
            _add_ops(work, pair, pair.golden, pair.target)
    for pair in layers:
        _match_modules(work, pair)


def add_inferred(
    work: Pairing, matches: list[NodeMatch], tensors: TensorPairing
) -> tuple[frozenset[int], frozenset[int]]:
    """Add to a plan the nodes without partner whose values are known from other nodes; return which they are.

    Nothing is added if the two dumps are of one framework.
    """
    if work.lines is None:
        return frozenset(), frozenset()
    known = [pair for pair in tensors.pairs if pair.incomparable is None]
    golden = infer_values(work, work.lines, known, of_target=False)
    target = infer_values(work, work.lines, known, of_target=True)
    for inferred in golden:
        _add_inferred_node(inferred, (work.golden, work.target), matches, tensors, of_target=False)
    for inferred in target:
        _add_inferred_node(inferred, (work.target, work.golden), matches, tensors, of_target=True)
    return frozenset(inferred.node for inferred in golden), frozenset(inferred.node for inferred in target)


def _add_inferred_node(
    inferred: Inferred,
    trees: tuple[SliceTree, SliceTree],
    matches: list[NodeMatch],
    tensors: TensorPairing,
    *,
    of_target: bool,
) -> None:
    """Add a node without partner, and its tensors; `trees` are its own and that of the other dump."""
    node = trees[0].nodes[inferred.node]
    match = len(matches)
    taken = {record.label for records, _ in inferred.values for record in records}
    left = tensors.unmatched_target if of_target else tensors.unmatched_golden
    rest = (record for record in node.tensors if record.label not in taken)
    left += [UnmatchedTensor(match, node.name, record) for record in rest]
    tensors.pairs += [
        _inferred_pair(match, node.name, *value, trees[1], of_target=of_target) for value in inferred.values
    ]
    reasons = tuple(dict.fromkeys(known.why for _, known in inferred.values))
    golden, target = ((), (node.name,)) if of_target else ((node.name,), ())
    matches.append(NodeMatch(golden, target, Origin.STRUCTURE, INFERRED, reasons=reasons))


def _inferred_pair(
    match: int,
    node: str,
    records: tuple[TensorRecord, ...],
    known: Known,
    other: SliceTree,
    *,
    of_target: bool,
) -> TensorPair:
    """Pair what a node gives, one tensor or several as one, with where its value is known from."""
    own_parts = records if len(records) > 1 else ()
    joining = Joining.CONCATENATED if own_parts else known.joining
    if own_parts:
        own = join_records(records, -1)
    else:
        own = records[0] if joining is None else _whole(records[0], known.record)
    names = [other.nodes[index].name for index in known.nodes]
    sides = (node, own, own_parts), (names[0], known.record, known.parts)
    golden, target = sides[::-1] if of_target else sides
    said = known.transform or ((_PARTS_JOINED, ARRANGED_BY_VALUES) if own_parts else ())
    return TensorPair(
        match=match,
        golden_node=golden[0],
        target_node=target[0],
        golden=golden[1],
        target=target[1],
        transform=said or reshape_to_fit(golden[1], target[1]),
        golden_parts=golden[2],
        target_parts=target[2],
        joining=joining,
        part_nodes=tuple(names) if joining is Joining.OF_EXPERTS else (),
    )


def _whole(record: TensorRecord, other: TensorRecord) -> TensorRecord:
    """Return a tensor as a whole, if ranks have shards of it and the other tensor is as large as these."""
    if record.shards is None or other.shards is not None:
        return record
    wholes = (concatenated(record, axis) for axis in whole_axes(record))
    return next((whole for whole in wholes if fit(whole, other)), record)


def _is_topology(tree: SliceTree) -> bool:
    """Tell a topology of operations, as ATB calls its operators, from a tree of modules."""
    operators = [node for node in tree.nodes if is_operator(node)]
    named = sum(node.type_name.endswith("Operation") for node in operators)
    return 2 * named > len(operators)


def _call_nothing_alike(work: Pairing) -> bool:
    """Tell whether two dumps of forward passes have nothing that they call alike: no class, nor any module.

    What modules are called counts where a dump does not tell the class of all of them.
    """
    trees = work.golden, work.target
    if any((*trees[0].backward, *trees[1].backward)):
        return False
    types = [_types(tree) for tree in trees]
    if not types[0].isdisjoint(types[1]):
        return False
    if all(node.type_name for tree in trees for node in tree.nodes):
        return True
    labels = [
        {node.path.rpartition(".")[2] for node in tree.nodes if not is_operator(node)} for tree in trees
    ]
    return not any(label and not label.isdigit() for label in labels[0] & labels[1])


def _were_hardly_found(work: Pairing) -> bool:
    """Tell whether two dumps call hardly anything alike, and hardly anything was found by name."""
    types = [_types(tree) for tree in (work.golden, work.target)]
    if not all(tree.nodes for tree in (work.golden, work.target)):
        return False
    if len(types[0] & types[1]) > SHARED_TYPES * len(types[0] | types[1]):
        return False
    by_rule = sum(found.origin not in (Origin.MAPPING, Origin.MANUAL) for found in work.found.values())
    return by_rule <= SHARED_NODES * min(len(work.golden.nodes), len(work.target.nodes))


def _types(tree: SliceTree) -> set[str]:
    """Return the classes and operators of a dump, as far as it tells them."""
    return {node.type_name for node in tree.nodes if node.type_name}


def _add(
    work: Pairing, nodes: tuple[int, int], pair: Aligned, *reasons: Message, score: float = KNOWN_WIDTH
) -> None:
    if nodes[0] not in work.partners and nodes[1] not in work.found:
        score = DOUBTFUL_LAYER if pair.doubtful else score
        work.add(nodes, Found(nodes[0], Origin.STRUCTURE, score, doubtful=pair.doubtful, reasons=reasons))


def _add_ops(work: Pairing, pair: Aligned, golden: Op, target: Op) -> None:
    known = golden.width is not None and target.width is not None
    score = KNOWN_WIDTH if known else NO_WIDTH
    reasons = [Message.of("matching.reason.same_kind", kind=golden.kind.value)]
    if golden.block and golden.block == target.block:
        reasons.append(_SAME_BLOCK[golden.block])
    if known:
        reasons.append(_SAME_OUTPUT_WIDTH)
    reasons += _told_by_names(work, golden, target)
    first, second = _recorded(work.golden, golden), _recorded(work.target, target)
    if not golden.parts and not target.parts:
        _add(work, (first[0], second[0]), pair, *reasons, score=score)
    elif not pair.doubtful:
        reasons.insert(0, _fused(work, golden, target))
        experts = golden.experts or target.experts
        work.add_join(Join(first, second, Origin.STRUCTURE, score, tuple(reasons), experts=experts))


def _told_by_names(work: Pairing, *ops: Op) -> Iterator[Message]:
    """Say of which operators only name and weight tell what they do."""
    for tree, op in zip((work.golden, work.target), ops, strict=True):
        if not tree.nodes[op.node].type_name:
            yield Message.of("matching.reason.no_class", node=tree.relative_name(op.node))


def _fused(work: Pairing, golden: Op, target: Op) -> Message:
    trees = (work.golden, work.target) if golden.parts else (work.target, work.golden)
    parts, whole = (golden, target) if golden.parts else (target, golden)
    # Of experts, each column is named by the first of them: there may be hundreds.
    names = tuple(trees[0].relative_name(node) for node in parts.nodes[:: len(parts.experts) or 1])
    name, experts = trees[1].relative_name(whole.node), len(parts.experts)
    if experts:
        return Message.of("matching.reason.fused_experts", whole=name, parts=names, experts=experts)
    return Message.of("matching.reason.fused", whole=name, parts=names)


def _recorded(tree: SliceTree, op: Op) -> tuple[int, ...]:
    """Return the nodes of an operator; instead of one without outputs, the module around it that it ends."""
    if op.parts:
        return op.parts
    node = op.node
    while first_output(tree, node) is None:
        parent = tree.parents[node]
        if parent == tree.root or tree.forward[parent][-1] != node:
            return (op.node,)
        node = parent
    return (node,)


def _is_convincing(lines: tuple[Line, Line], aligned: list[Aligned]) -> bool:
    """Tell whether most of what is characteristic of one of two runs was found in the other."""
    there = [sum(op.kind in CHARACTERISTIC for op in line.ops) for line in lines]
    sides = [pair.golden for pair in aligned], [pair.target for pair in aligned]
    matched = [
        sum(len(op.nodes) for op in side if isinstance(op, Op) and op.kind in CHARACTERISTIC)
        for side in sides
    ]
    is_most = any(number >= LEAST_SHARED * total for number, total in zip(matched, there, strict=True))
    return min(matched) >= LEAST_OPS and is_most


def _match_modules(work: Pairing, layers: Aligned) -> None:
    """Match the modules of two layers that have most of their matched operators in common."""
    golden = _modules(work.golden, layers.golden.node)
    target = _modules(work.target, layers.target.node)
    inside = set(nodes_below(work.golden, layers.golden.node))
    joins = [join for join in work.joins if join.golden[0] in inside]
    first = {node: _matched_below(work, node, joins, of_golden=True) for node in golden}
    second = {node: _matched_below(work, node, joins, of_golden=False) for node in target}
    scores = [(_share(first[one], second[other]), one, other) for one, other in product(golden, target)]
    scores = [score for score in scores if score[0] >= LEAST_SHARED] + _only_ones(work, golden, target)
    for _, one, other in sorted(scores, key=lambda score: -score[0]):
        _add(work, (one, other), layers, _SAME_OPERATORS, score=SAME_CONTENTS)


def _share(first: set[int], second: set[int]) -> float:
    return len(first & second) / max(1, len(first | second))


def _matched_below(work: Pairing, module: int, joins: Sequence[Join], *, of_golden: bool) -> set[int]:
    """Return the target nodes of the matches below a module of either side; of a fused one the first.

    Who holds a part of what was fused does not hold it.
    """
    below = set(nodes_below(work.golden if of_golden else work.target, module))
    if of_golden:
        found = {work.partners[node] for node in below if node in work.partners}
    else:
        found = {node for node in below if node in work.found}
    for join in joins:
        found.difference_update(join.target)
        if below.issuperset(join.golden if of_golden else join.target):
            found.add(join.target[0])
    return found


def _only_ones(work: Pairing, golden: Sequence[int], target: Sequence[int]) -> list[tuple[float, int, int]]:
    """Return the modules that are the only one of their part of a layer on either side."""
    found: list[tuple[float, int, int]] = []
    for block in PARTS_OF_LAYER:
        first = _outermost(work.golden, [node for node in golden if block_of(work.golden, node) == block])
        second = _outermost(work.target, [node for node in target if block_of(work.target, node) == block])
        if len(first) == len(second) == 1:
            found.append((0.0, first[0], second[0]))
    return found


def _outermost(tree: SliceTree, nodes: list[int]) -> list[int]:
    return [node for node in nodes if tree.parents[node] not in nodes]


def _modules(tree: SliceTree, layer: int) -> list[int]:
    """Return the modules in a layer that are no operators, the outermost first."""
    found: list[int] = []
    waiting = list(tree.forward[layer])
    while waiting:
        node = waiting.pop(0)
        if not is_op(tree, node):
            found.append(node)
            waiting += tree.forward[node]
    return found
