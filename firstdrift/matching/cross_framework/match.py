"""Match the nodes of two dumps whose frameworks call nothing alike: a torch module tree and an ATB topology.

What the two do is aligned operator by operator (`align`); modules follow from the operators that they hold.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from string import digits
from typing import Final

from msgspec.structs import replace

from firstdrift.groups import known
from firstdrift.matching.cross_framework.align import Aligned, align_lines, align_ops
from firstdrift.matching.cross_framework.inferred_values import Inference, Inferred, Known
from firstdrift.matching.cross_framework.layer_ops import (
    Layer,
    Line,
    Op,
    block_of,
    first_output,
    is_op,
    lay_out,
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
    Tensor,
    golden_first,
    join_records,
    pair_of,
    possible_wholes,
)
from firstdrift.matching.pairing import Found, Join, Pairing
from firstdrift.matching.plan import NodeMatch, Origin, TensorPair
from firstdrift.matching.ranks.partial_dump import spread_of_lines
from firstdrift.matching.tensors import TensorPairing, left_over
from firstdrift.matching.tree import SliceTree, is_operator
from firstdrift.model.tensor import TensorRecord
from firstdrift.operators.kinds import CHARACTERISTIC
from firstdrift.operators.paths import PARTS_OF_LAYER
from firstdrift.wording.message import Message

_SAME_BLOCK: Final = {
    "attention": (Message.of("matching.reason.same_block.attention"),),
    "cross attention": (Message.of("matching.reason.same_block.cross_attention"),),
    "mlp": (Message.of("matching.reason.same_block.mlp"),),
    "": (),
}
_BY_WIDTH: Final = {
    True: (KNOWN_WIDTH, (Message.of("matching.reason.same_output_width"),)),
    False: (NO_WIDTH, ()),
}
"""How sure a pair of operators is, and what is said of it, by whether the widths of both are known."""

_SAME_OPERATORS: Final = Message.of("matching.reason.same_operators")


def match_across_frameworks(work: Pairing, *, late: bool) -> bool:
    """Match what is not matched yet, if the dumps are of different frameworks; tell whether they are.

    Args:
        work: what is matched; `work.lines` is set.
        late: whether the other rules have had their turn, and what they found counts.
    """
    if not work.rules.structure or work.are_other:
        return False
    is_sure = work.lines is not None or (
        not late and is_topology(work.golden) is not is_topology(work.target)
    )
    if not is_sure and not (_were_hardly_found(work) if late else _call_nothing_alike(work)):
        return False
    lines, aligned = _align(work)
    if not is_sure and not is_convincing(lines, aligned):
        return False
    work.lines = lines
    add_aligned(work, aligned)
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
    wider = (replace(tree, known_contents={}, known_weights={}) for tree in work.spread.widened(*trees))
    work.golden, work.target = trees = next(wider), next(wider)
    lines = lay_out(trees[0]), lay_out(trees[1])
    return lines, align_lines(trees, *lines)


def add_aligned(work: Pairing, aligned: list[Aligned]) -> None:
    """Match the layers, the operators, and then the modules inside the layers."""
    layers = [pair for pair in aligned if isinstance(pair.golden, Layer)]
    for number, pair in enumerate(layers, 1):
        reason = Message.of("matching.reason.layer", number=number, layers=len(layers))
        _add(work, (pair.golden.node, pair.target.node), pair, reason)
    for pair in aligned:
        if isinstance(pair.golden, Op) and isinstance(pair.target, Op):
            _add_ops(work, pair, pair.golden, pair.target)
    joins = {join.golden[0]: join for join in work.joins}
    for pair in layers:
        _match_modules(work, pair, joins)


def add_inferred(
    work: Pairing, matches: list[NodeMatch], tensors: TensorPairing
) -> tuple[frozenset[int], frozenset[int]]:
    """Add to a plan the nodes without partner whose values are known from other nodes; return which they are.

    Nothing is added if the two dumps are of one framework.
    """
    if work.lines is None:
        return frozenset(), frozenset()
    pairs = [pair for pair in tensors.pairs if pair.incomparable is None]
    golden = Inference(work, work.lines, pairs, of_target=False).infer()
    target = Inference(work, work.lines, pairs, of_target=True).infer()
    added_golden = [_add_inferred_node(each, work, matches, tensors, of_target=False) for each in golden]
    added_target = [_add_inferred_node(each, work, matches, tensors, of_target=True) for each in target]
    return frozenset(added_golden), frozenset(added_target)


def _add_inferred_node(
    inferred: Inferred,
    work: Pairing,
    matches: list[NodeMatch],
    tensors: TensorPairing,
    *,
    of_target: bool,
) -> int:
    """Add a node without partner, and its tensors; return the node."""
    own, other = golden_first(work.golden, work.target, own_is_golden=not of_target)
    node, row = own.nodes[inferred.node], len(matches)
    taken = {(node.name, record.label) for records, _ in inferred.values for record in records}
    left = (tensors.unmatched_golden, tensors.unmatched_target)[of_target]
    left += left_over(row, [node], taken)
    tensors.pairs += [
        _inferred_pair(row, node.name, *value, other, of_target=of_target) for value in inferred.values
    ]
    reasons = tuple(dict.fromkeys(known.why for _, known in inferred.values))
    sides = golden_first((node.name,), (), own_is_golden=not of_target)
    matches.append(NodeMatch(*sides, Origin.STRUCTURE, INFERRED, reasons=reasons))
    return inferred.node


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
    names = tuple(other.nodes[index].name for index in known.nodes)
    own = Tensor(node, _as_one(records, known), records[1:] and records)
    there = Tensor(names[0], known.record, known.parts)
    golden, target = golden_first(own, there, own_is_golden=not of_target)
    said = known.transform or reshape_to_fit(golden.record, target.record)
    pair = pair_of(match, golden, target, said, known.joining)
    return replace(pair, part_nodes=names) if len(known.parts) == len(names) > 1 else pair


def _as_one(records: tuple[TensorRecord, ...], known: Known) -> TensorRecord:
    """Return what a node gives as one tensor: several joined, one whole where ranks have shards of it."""
    if len(records) > 1:
        return join_records(records, -1)
    is_as_it_is = known.joining is None or known.record.shards is not None
    wholes = [] if is_as_it_is else possible_wholes(records[0])
    return next((whole for whole in wholes if fit(whole, known.record)), records[0])


def is_topology(tree: SliceTree) -> bool:
    """Tell a topology of operations, as ATB calls its operators, from a tree of modules."""
    operators = list(filter(is_operator, tree.nodes))
    named = sum(node.type_name.endswith("Operation") for node in operators)
    return 2 * named > len(operators)


def _call_nothing_alike(work: Pairing) -> bool:
    """Tell whether two dumps of forward passes have nothing that they call alike: no class, nor any module.

    What modules are called counts where a dump does not tell the class of all of them.
    """
    trees = work.golden, work.target
    types_told = all(node.type_name for tree in trees for node in tree.nodes)
    words = [called(tree) | (set() if types_told else _labels(tree)) for tree in trees]
    return words[0].isdisjoint(words[1]) and not any((*trees[0].backward, *trees[1].backward))


def _labels(tree: SliceTree) -> set[str]:
    """Return what the modules of a dump are called, but for numbers; with a point, as no class is."""
    labels = {node.path.rpartition(".")[2] for node in tree.nodes if not is_operator(node)}
    return {f".{label}" for label in labels if label.strip(digits)}


def _were_hardly_found(work: Pairing) -> bool:
    """Tell whether two dumps call hardly anything alike, and hardly anything was found by name."""
    golden, target = work.golden, work.target
    if not (golden.nodes and target.nodes):
        return False
    types = called(golden), called(target)
    if len(types[0] & types[1]) > SHARED_TYPES * len(types[0] | types[1]):
        return False
    by_rule = sum(found.origin not in (Origin.MAPPING, Origin.MANUAL) for found in work.found.values())
    return by_rule <= SHARED_NODES * min(len(golden.nodes), len(target.nodes))


def called(tree: SliceTree) -> set[str]:
    """Return the classes and operators of a dump, as far as it tells them."""
    return {node.type_name for node in tree.nodes if node.type_name}


def _add(
    work: Pairing, nodes: tuple[int, int], pair: Aligned, *reasons: Message, score: float = KNOWN_WIDTH
) -> None:
    if nodes[0] not in work.partners and nodes[1] not in work.found:
        score = DOUBTFUL_LAYER if pair.doubtful else score
        work.add(nodes, Found(nodes[0], Origin.STRUCTURE, score, doubtful=pair.doubtful, reasons=reasons))


def _add_ops(work: Pairing, pair: Aligned, golden: Op, target: Op) -> None:
    score, reasons_of_width = _BY_WIDTH[None not in (golden.width, target.width)]
    reasons = (
        Message.of("matching.reason.same_kind", kind=golden.kind.value),
        *(_SAME_BLOCK[golden.block] if golden.block == target.block else ()),
        *reasons_of_width,
        *_told_by_names(work, golden, target),
    )
    first, second = _recorded(work.golden, golden), _recorded(work.target, target)
    if not golden.parts and not target.parts:
        _add(work, (first[0], second[0]), pair, *reasons, score=score)
    elif not pair.doubtful:
        reasons = (_fused(work, golden, target), *reasons)
        experts = golden.experts or target.experts
        work.add_join(Join(first, second, Origin.STRUCTURE, score, reasons, experts=experts))


def _told_by_names(work: Pairing, *ops: Op) -> Iterator[Message]:
    """Say of which operators only name and weight tell what they do."""
    for tree, op in zip((work.golden, work.target), ops, strict=True):
        if not tree.nodes[op.node].type_name:
            yield Message.of("matching.reason.no_class", node=tree.relative_name(op.node))


def _fused(work: Pairing, golden: Op, target: Op) -> Message:
    sides = (work.golden, golden), (work.target, target)
    (of_parts, parts), (of_whole, whole) = golden_first(*sides, own_is_golden=bool(golden.parts))
    name, experts = of_whole.relative_name(whole.node), len(parts.experts)
    if not experts:
        names = tuple(map(of_parts.relative_name, parts.nodes))
        return Message.of("matching.reason.fused", whole=name, parts=names)
    # Each column is named by the first expert: there may be hundreds.
    names = tuple(map(of_parts.relative_name, parts.nodes[::experts]))
    return Message.of("matching.reason.fused_experts", whole=name, parts=names, experts=experts)


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


def is_convincing(lines: tuple[Line, Line], aligned: list[Aligned]) -> bool:
    """Tell whether most of what is characteristic of one of two runs was found in the other."""
    there = [_characteristic(line.ops) for line in lines]
    matched = [
        _characteristic(pair.golden for pair in aligned),
        _characteristic(pair.target for pair in aligned),
    ]
    is_most = any(number >= LEAST_SHARED * total for number, total in zip(matched, there, strict=True))
    return min(matched) >= LEAST_OPS and is_most


def _characteristic(units: Iterable[Op | Layer]) -> int:
    """Count the nodes of operators of which a model is made."""
    ops = (unit for unit in units if isinstance(unit, Op))
    return sum(len(op.nodes) for op in ops if op.kind in CHARACTERISTIC)


def _match_modules(work: Pairing, layers: Aligned, joined: Mapping[int, Join]) -> None:
    """Match the modules of two layers that have most of their matched operators in common."""
    golden = _modules(work.golden, layers.golden.node)
    target = _modules(work.target, layers.target.node)
    joins = known(map(joined.get, work.golden.inside(layers.golden.node)))
    first = {node: _matched_below(work, node, joins, of_golden=True) for node in golden}
    second = {node: _matched_below(work, node, joins, of_golden=False) for node in target}
    scores = [(_share(first[one], second[other]), one, other) for one, other in product(golden, target)]
    scores = [score for score in scores if score[0] >= LEAST_SHARED] + _only_ones(work, layers)
    for _, one, other in sorted(scores, key=lambda score: -score[0]):
        _add(work, (one, other), layers, _SAME_OPERATORS, score=SAME_CONTENTS)


def _share(first: set[int | None], second: set[int | None]) -> float:
    return len(first & second) / max(1, len(first | second))


def _matched_below(work: Pairing, module: int, joins: Sequence[Join], *, of_golden: bool) -> set[int | None]:
    """Return the matches below a module of either side, each by its first target node.

    Who holds a part of what was fused does not hold it.
    """
    below = set((work.golden if of_golden else work.target).inside(module))
    found = set(map(work.partners.get if of_golden else work.first_target, below))
    torn = (join for join in joins if not below.issuperset(join.golden if of_golden else join.target))
    return found.difference([None], (join.target[0] for join in torn))


def _only_ones(work: Pairing, layers: Aligned) -> list[tuple[float, int, int]]:
    """Return the modules that are the only one of their part of a layer on either side."""
    golden, target = (
        sorted(tree.modules(tree.inside(layer.node)))
        for tree, layer in ((work.golden, layers.golden), (work.target, layers.target))
    )
    found: list[tuple[float, int, int]] = []
    for part in PARTS_OF_LAYER:
        first, second = _outermost(work.golden, golden, part), _outermost(work.target, target, part)
        if len(first) == len(second) == 1:
            found.append((0.0, first[0], second[0]))
    return found


def _outermost(tree: SliceTree, modules: Sequence[int], part: str) -> list[int]:
    """Return the modules of a part of a layer that lie in no other such."""
    of_part = [node for node in modules if block_of(tree, node) == part]
    return [node for node in of_part if tree.parents[node] not in of_part]


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
