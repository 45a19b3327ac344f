"""Find the values of nodes that one dump has and the other has not, at the neighbours of the missing node.

    torch    o_proj input.0                     ═══  PagedAttentionOperation output.0   (o_proj is given it)
             post_attention_layernorm input.0   ═══  ElewiseOperation (add) output.0    (the norm is given it)
             layers.7 output.0                  ═══  ElewiseOperation (add) output.0    (it ends the layer)
             q_proj, k_proj, v_proj output.0    ═══  SplitOperation output.0, 1, 2

What a step is given was made by the missing node only if nothing recorded before it holds the same values.
"""

from collections.abc import Hashable, Sequence
from itertools import accumulate, product, starmap
from math import prod
from operator import mul
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.matching.cross_framework.layer_ops import (
    Layer,
    Line,
    Step,
    first_input,
    first_output,
    is_step,
    steps_below,
    value_key,
)
from firstdrift.matching.fused.fused_experts import has_experts
from firstdrift.matching.fused.joined_tensors import join_rows, joined_axis, say_rows
from firstdrift.matching.pairing import Pairing
from firstdrift.matching.plan import Joining, Messages, TensorPair, UnmatchedTensor
from firstdrift.matching.tensors import TensorPairing, relate_shapes, reshape
from firstdrift.matching.tree import SliceTree
from firstdrift.model.node import Node
from firstdrift.model.tensor import Role, TensorRecord, is_floating, possible_shapes
from firstdrift.operators.kinds import Work
from firstdrift.operators.properties import adds_as_well
from firstdrift.operators.recognise import work_of
from firstdrift.wording.message import Message

_MAKERS: Final = frozenset({Work.ADD, Work.MULTIPLY, Work.ATTEND, Work.LOOKUP, Work.ACTIVATE, Work.GATE})
_MAKERS_FOR_EXPERTS: Final = _MAKERS | {Work.ROUTE}
"""What makes a value of its own that the next step is given."""

_NEAR: Final = 4
"""Steps before a rotation, or experts, among which what makes their input is looked for."""

_ROTATION: Final = 3
"""A rotation takes what it rotates, cosine and sine."""

_ENDS: Final = Message.of("matching.reason.last_in_module")
_ENDED: Final = Message.of("matching.reason.given_by_last_node")
"""Part of the name of what adds the residual as well."""


class Known(Struct, frozen=True):
    """Where a value is known from.

    Attributes:
        nodes: indices of the nodes that hold it; more than one if it is joined from their tensors.
        record: its record there; that of all parts joined, if it is.
        why: how it is known.
        parts: the tensors it is joined from; empty if it is one.
        transform: what is done to them before they are compared.
        joining: how they are joined; None if there are none.
    """

    nodes: tuple[int, ...]
    record: TensorRecord
    why: Message
    parts: tuple[TensorRecord, ...] = ()
    transform: Messages = ()
    joining: Joining | None = None


class Lent(Struct, frozen=True):
    """A node without partner, and where its outputs are known from, one by one or several as one tensor."""

    node: int
    values: tuple[tuple[tuple[TensorRecord, ...], Known], ...]


def pair_values(tensors: TensorPairing, match: int, work: Pairing, golden: int, target: int) -> None:
    """Pair the tensors of a match across frameworks; those that do not hold one value are left over.

    A module may hold a norm or a sum that its partner has outside. Its input is paired only if the first
    steps inside correspond, its output only if the last ones do or both end with what the other lacks.
    A single number beside experts (the gate of a shared one, for one token) is left over: it may be what is
    left of large ones that cancel, and an ATB dump seldom says of which.
    """
    nodes = work.golden.nodes[golden], work.target.nodes[target]
    pairs: list[tuple[TensorRecord, TensorRecord]] = []
    if _begin_alike(work, golden, target):
        pairs += [*zip(*(_tensors(node, Role.INPUT)[:1] for node in nodes), strict=False)]
    if _end_alike(work, golden, target):
        is_module = not is_step(work.golden, golden) or not is_step(work.target, target)
        last = 1 if is_module else None
        pairs += [*zip(*(_tensors(node, Role.OUTPUT)[:last] for node in nodes), strict=False)]
    other_length = [pair for pair in pairs if _are_of_other_length(nodes, pair)]
    pairs = [pair for pair in pairs if fit(*pair)]
    if any(_is_single(record) for pair in pairs for record in pair) and _are_beside_experts(
        work, golden, target
    ):
        pairs = [pair for pair in pairs if not any(map(_is_single, pair))]
    names = nodes[0].name, nodes[1].name
    tensors.pairs += [TensorPair(match, *names, *pair, reshape_to_fit(*pair)) for pair in pairs]
    tensors.pairs += [
        TensorPair(match, *names, *pair, incomparable=relate_shapes(pair[0].shape, pair[1].shape)[1])
        for pair in other_length
    ]
    taken = {id(record) for pair in (*pairs, *other_length) for record in pair}
    for left, node in ((tensors.unmatched_golden, nodes[0]), (tensors.unmatched_target, nodes[1])):
        left += [
            UnmatchedTensor(match, node.name, record) for record in node.tensors if id(record) not in taken
        ]


def _are_of_other_length(nodes: tuple[Node, Node], pair: tuple[TensorRecord, TensorRecord]) -> bool:
    """Tell whether two embeddings made as wide vectors of other numbers of tokens: they were given others."""
    shapes = pair[0].shape, pair[1].shape
    if any(work_of(node) is not Work.LOOKUP for node in nodes) or not shapes[0] or not shapes[1]:
        return False
    return (
        pair[0].role is Role.OUTPUT and shapes[0][-1] == shapes[1][-1] and prod(shapes[0]) != prod(shapes[1])
    )


def _is_single(record: TensorRecord) -> bool:
    return record.shape is not None and prod(record.shape) == 1


def _are_beside_experts(work: Pairing, golden: int, target: int) -> bool:
    """Tell whether two nodes lie in layers that both have experts."""
    if work.foreign is None:
        return False
    layers = (
        _layer_around(work.golden, work.foreign[0], golden),
        _layer_around(work.target, work.foreign[1], target),
    )
    trees = work.golden, work.target
    return all(
        layer is not None and has_experts(tree, layer) for tree, layer in zip(trees, layers, strict=True)
    )


def _layer_around(tree: SliceTree, line: Line, node: int) -> Layer | None:
    around = {node}
    while node != tree.root:
        node = tree.parents[node]
        around.add(node)
    return next((unit for unit in line.units if isinstance(unit, Layer) and unit.node in around), None)


def lend_values(
    work: Pairing, lines: tuple[Line, Line], pairs: list[TensorPair], *, to_target: bool
) -> list[Lent]:
    """Return the nodes without partner of one dump whose outputs the other dump holds, in execution order.

    Args:
        work: what is matched.
        lines: the two dumps as lines of steps.
        pairs: the tensors of what is matched.
        to_target: whether the nodes are the target's.
    """
    return _Lender(work, lines, pairs, to_target=to_target).lend()


def fit(golden: TensorRecord, target: TensorRecord) -> bool:
    """Tell whether two tensors have the same elements, but for dimensions of size 1 and merged ones."""
    if is_floating(golden.dtype) is not is_floating(target.dtype):
        return False
    if golden.shape is None or target.shape is None or golden.shape == target.shape:
        return True
    return any(starmap(_merge, product(possible_shapes(golden), possible_shapes(target))))


def _merge(golden: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Tell whether shapes differ by nothing but dimensions of size 1 and merged ones."""
    if prod(golden) != prod(target):
        return False
    ends = [set(accumulate(shape, mul)) for shape in (golden, target)]
    return ends[0] - {1} <= ends[1] or ends[1] - {1} <= ends[0]


def reshape_to_fit(golden: TensorRecord, target: TensorRecord) -> Messages:
    """Say how two tensors that fit are brought to one shape."""
    if golden.shape == target.shape or golden.shape is None or target.shape is None:
        return ()
    return (reshape(golden.shape, target.shape),)


class _Lender:
    """Knows the values of one dump's tensors by those of the other."""

    def __init__(
        self, work: Pairing, lines: tuple[Line, Line], pairs: list[TensorPair], *, to_target: bool
    ) -> None:
        self._tree, self._other = (work.target, work.golden) if to_target else (work.golden, work.target)
        self._matched = set(work.found if to_target else work.partners)
        joins = ((join.golden, join.target) for join in work.joins)
        self._joined = {(of_golden if to_target else of_target) for of_golden, of_target in joins}
        self._partners = {
            (other if to_target else one): (one if to_target else other)
            for one, other in work.pairs()
            if not work.found[other].doubtful
        }
        self._experts = _experts_of(work, to_target=to_target)
        self._line = [step for step in lines[to_target].steps if step.work is not Work.STORE]
        self._other_line = list(lines[not to_target].steps)
        self._steps = [step.node for step in self._line]
        self._forward = {child for children in self._tree.forward for child in children}
        self._places = {node: place for place, node in enumerate(self._steps)}
        self._first_seen = _first_seen(self._other)
        self._known = self._known_from(pairs, to_target=to_target)

    def lend(self) -> list[Lent]:
        """Return what is lent: modules share values with what is inside them, so this goes in rounds."""
        lent: dict[int, Lent] = {}
        waiting = [
            index
            for index in range(len(self._tree.nodes))
            if index not in self._matched and index in self._forward and _outputs(self._tree, index)
        ]
        grown = True
        while grown:
            grown = False
            for index in waiting:
                values = self._lent(index) if index not in lent else ()
                if values:
                    lent[index] = Lent(index, values)
                    grown = True
        return [lent[index] for index in sorted(lent)]

    def _lent(self, index: int) -> tuple[tuple[tuple[TensorRecord, ...], Known], ...]:
        outputs = _outputs(self._tree, index)
        whole = self._as_parts(index, outputs)
        if whole is not None:
            return ((tuple(outputs), whole),)
        found = self._values(index, outputs)
        self._known |= {(index, label): known for label, known in found.items()}
        return tuple(((record,), found[record.label]) for record in outputs if record.label in found)

    def _as_parts(self, index: int, outputs: list[TensorRecord]) -> Known | None:
        """Find the fused tensor of the other dump that a node of this one splits."""
        before = self._before(index)
        partner = self._partners.get(before) if before is not None else None
        if before is None or partner is None or len(outputs) == 1 or (before, "output.0") in self._known:
            return None
        record = first_output(self._other, partner)
        if (
            not is_split(self._tree, before, index)
            or record is None
            or joined_axis(_shapes(outputs), record.shape) != -1
        ):
            return None
        return Known((partner,), record, self._why("matching.reason.parts_as_one", partner))

    def _known_from(self, pairs: list[TensorPair], *, to_target: bool) -> dict[tuple[int, str], Known]:
        numbers = {node.name: index for index, node in enumerate(self._tree.nodes)}
        others = {node.name: index for index, node in enumerate(self._other.nodes)}
        groups = {group[0]: group for group in self._joined}
        known: dict[tuple[int, str], Known] = {}
        for pair in pairs:
            own, name = (pair.target, pair.target_node) if to_target else (pair.golden, pair.golden_node)
            record, node = (pair.golden, pair.golden_node) if to_target else (pair.target, pair.target_node)
            own_parts, parts = (
                (pair.target_parts, pair.golden_parts)
                if to_target
                else (pair.golden_parts, pair.target_parts)
            )
            if own.role is not Role.OUTPUT or own_parts or pair.incomparable is not None:
                continue
            nodes = groups[others[node]] if parts else (others[node],)
            transform = pair.transform if parts else ()
            why = Message.of("matching.reason.same_tensor", node=name)
            known[numbers[name], own.label] = Known(nodes, record, why, parts, transform, pair.joining)
        return known

    def _values(self, index: int, outputs: list[TensorRecord]) -> dict[str, Known]:
        rules = (
            self._as_around,
            self._as_inside,
            self._as_split,
            self._as_reduced,
            self._as_given_on,
            self._as_rotated,
        )
        for rule in rules:
            found = rule(index, outputs)
            fitting = {
                record.label: found[record.label]
                for record in outputs
                if record.label in found
                and (found[record.label].parts or fit(found[record.label].record, record))
            }
            if fitting:
                return fitting
        return {}

    def _as_around(self, index: int, _: list[TensorRecord]) -> dict[str, Known]:
        """Find the values of a node that ends a module, or of nodes that make its outputs one by one."""
        parent = self._tree.parents[index]
        if parent == self._tree.root:
            return {}
        whole = _outputs(self._tree, parent)
        shared = [
            (record, of_whole)
            for (child, record), of_whole in zip(self._last_given(parent), whole, strict=False)
            if child == index and _may_be_one(record, of_whole)
        ]
        return self._shared({record.label: (parent, other.label) for record, other in shared}, _ENDS)

    def _as_inside(self, index: int, outputs: list[TensorRecord]) -> dict[str, Known]:
        """Find the values of a module from what ends it."""
        shared = {
            record.label: (child, given.label)
            for record, (child, given) in zip(outputs, self._last_given(index), strict=False)
            if _may_be_one(record, given)
        }
        return self._shared(shared, _ENDED)

    def _last_given(self, module: int) -> list[tuple[int, TensorRecord]]:
        """Return what a module gives by what makes it: as many tensors of the last nodes inside it."""
        count = len(_outputs(self._tree, module))
        last: list[tuple[int, TensorRecord]] = []
        for child in reversed(self._tree.forward[module]):
            if len(last) >= count:
                break
            last[:0] = [(child, record) for record in _outputs(self._tree, child)]
        return last[-count:] if 0 < count <= len(last) else []

    def _shared(self, shared: dict[str, tuple[int, str]], why: Message) -> dict[str, Known]:
        return {
            label: replace(known, why=why)
            for label, other in shared.items()
            if (known := self._known.get(other)) is not None
        }

    def _as_split(self, index: int, outputs: list[TensorRecord]) -> dict[str, Known]:
        """Find the values of what splits a fused tensor: those of its parts."""
        before = self._before(index)
        if work_of(self._tree.nodes[index]) is not Work.SPLIT or before is None:
            return {}
        known = self._known.get((before, "output.0"))
        if known is not None and known.joining is Joining.OF_EXPERTS:
            return self._as_split_experts(known, before, outputs)
        if known is None or known.joining is not Joining.CONCATENATED or len(known.parts) != len(outputs):
            return {}
        return {
            record.label: Known((node,), part, self._why("matching.reason.output_of", node))
            for record, node, part in zip(outputs, known.nodes, known.parts, strict=True)
            if fit(part, record)
        }

    def _as_split_experts(self, known: Known, before: int, outputs: list[TensorRecord]) -> dict[str, Known]:
        """Find the values of what splits the rows of experts: those of one of their steps each."""
        experts = self._experts.get(before)
        if experts is None or len(known.parts) != len(experts.numbers) * len(outputs):
            return {}
        found: dict[str, Known] = {}
        for at, record in enumerate(outputs):
            own = slice(at * len(experts.numbers), (at + 1) * len(experts.numbers))
            why = self._why("matching.reason.output_of_each_expert", known.nodes[own][0])
            if rows := _rows_of(known.nodes[own], known.parts[own], record, experts.numbers, why):
                found[record.label] = rows
        return found

    def _as_given_to_experts(self, index: int, outputs: list[TensorRecord]) -> dict[str, Known]:
        """Find the value of a node by what the experts are given that run together after it."""
        place = self._places[index]
        for following in self._steps[place + 1 : place + 1 + _NEAR]:
            experts = self._experts.get(following)
            if experts is None:
                between = first_output(self._tree, following)
                if between is not None and fit(between, outputs[0]):
                    break
                continue
            parts = [first_input(self._other, node) for node in experts.nodes]
            first_seen = [self._first_seen.get(value_key(part)) for part in parts]
            if first_seen != list(experts.nodes):
                break
            why = self._why("matching.reason.input_of_each_expert", experts.nodes[0])
            known = [part for part in parts if part is not None]
            rows = _rows_of(experts.nodes, known, outputs[0], experts.numbers, why)
            return {outputs[0].label: rows} if rows else {}
        return {}

    def _as_reduced(self, index: int, outputs: list[TensorRecord]) -> dict[str, Known]:
        """Find the value of a sum over ranks: that of the whole operator, which the other dump has as one."""
        before = self._before(index)
        partner = self._partners.get(before) if before is not None else None
        if work_of(self._tree.nodes[index]) is not Work.REDUCE or partner is None:
            return {}
        record = first_output(self._other, partner)
        if record is None:
            return {}
        return {outputs[0].label: Known((partner,), record, self._why("matching.reason.completes", partner))}

    def _as_given_on(self, index: int, outputs: list[TensorRecord]) -> dict[str, Known]:
        """Find the value of a node by what the step after it is given."""
        place = self._places.get(index)
        if place is None or place + 1 == len(self._steps):
            return {}
        if self._experts and work_of(self._tree.nodes[index]) in _MAKERS_FOR_EXPERTS:
            rows = self._as_given_to_experts(index, outputs)
            if rows:
                return rows
        if len(outputs) > 1:
            return {}
        partner = self._partners.get(self._steps[place + 1])
        record = first_input(self._other, partner) if partner is not None else None
        if record is None or partner is None or work_of(self._tree.nodes[index]) not in _MAKERS:
            return {}
        key = value_key(record)
        if key is None or self._first_seen[key] != partner:
            return {}
        return {outputs[0].label: Known((partner,), record, self._why("matching.reason.input_of", partner))}

    def _as_rotated(self, index: int, outputs: list[TensorRecord]) -> dict[str, Known]:
        """Find the values of a rotation by position: the other dump has what is rotated, and the angles."""
        place = self._places.get(index)
        if place is None or self._line[place].work is not Work.ROTATE:
            return {}
        states = self._given_to_rotation(place)
        angles = self._angles()
        rotated: dict[str, Known] = {}
        for record, known in zip(outputs, states, strict=False):
            parts = (known.record, *angles)
            if len(parts) == _ROTATION and all(part.location is not None for part in (*parts, record)):
                name = self._name(known.nodes[0])
                joined = replace(known.record, statistics=None, digest=None, location=None)
                why = self._why("matching.reason.rotates", known.nodes[0])
                rotation = Message.of("matching.transform.rotated", node=name)
                transform = (rotation, *reshape_to_fit(known.record, record))
                rotated[record.label] = Known(known.nodes, joined, why, parts, transform, Joining.ROTATED)
        return rotated

    def _given_to_rotation(self, place: int) -> list[Known]:
        """Return queries and keys as they were before: from norms of their own, a split or linear steps."""
        found: list[Known] = []
        works: list[Work] = []
        for step in reversed(self._line[max(0, place - _NEAR) : place]):
            outputs = _outputs(self._tree, step.node)
            known = [self._known.get((step.node, record.label)) for record in outputs]
            if step.work not in (Work.NORM, Work.SPLIT, Work.LINEAR) or None in known:
                break
            if works and step.work is not works[-1]:
                break
            if any(one is None or one.parts for one in known):
                break
            works.append(step.work)
            found[:0] = [one for one in known if one is not None]
            if step.work is Work.SPLIT:
                break
        return found[:2] if len(found) > 1 else []

    def _angles(self) -> tuple[TensorRecord, ...]:
        """Return cosine and sine, if the other dump has only one table of them."""
        tables = [step.node for step in self._other_line if step.work is Work.POSITIONS]
        if len(tables) != 1:
            return ()
        given = _outputs(self._other, tables[0])
        return tuple(given) if len(given) == _ROTATION - 1 and given[0].shape == given[1].shape else ()

    def _before(self, index: int) -> int | None:
        place = self._places.get(index, 0)
        return self._steps[place - 1] if place else None

    def _name(self, node: int) -> str:
        return self._other.relative_name(node)

    def _why(self, how: str, node: int) -> Message:
        return Message.of(how, node=self._name(node))


def _may_be_one(record: TensorRecord, other: TensorRecord) -> bool:
    """Tell whether two tensors of one dump may be the same: nothing that was recorded tells them apart."""
    keys = value_key(record), value_key(other)
    return record.shape == other.shape and (None in keys or keys[0] == keys[1])


class _Experts(Struct, frozen=True):
    """What experts give, or are given, that run together in the other dump.

    Attributes:
        nodes: indices of the first step of each of them.
        numbers: their numbers.
    """

    nodes: tuple[int, ...]
    numbers: tuple[int, ...]


def _experts_of(work: Pairing, *, to_target: bool) -> dict[int, _Experts]:
    """Return the experts of which the other dump has the steps one by one, by the node that runs them."""
    found: dict[int, _Experts] = {}
    for join in work.joins:
        own, others = (join.target, join.golden) if to_target else (join.golden, join.target)
        if join.experts and len(own) == 1:
            found[own[0]] = _Experts(others[: len(join.experts)], join.experts)
    return found


def _rows_of(
    nodes: Sequence[int],
    parts: Sequence[TensorRecord],
    whole: TensorRecord,
    experts: Sequence[int],
    why: Message,
) -> Known | None:
    """Say that a value is that of the rows of experts; None unless the shapes prove it."""
    joined = join_rows(parts)
    if joined is None or not fit(joined, whole):
        return None
    said = say_rows(experts, located=all(part.location is not None for part in (*parts, whole)))
    return Known(tuple(nodes), joined, why, tuple(parts), said, Joining.OF_EXPERTS)


def _first_seen(tree: SliceTree) -> dict[Hashable, int]:
    """Return the node that first took or gave each value, in the order in which nodes finished."""
    seen: dict[Hashable, int] = {}
    for index, node in enumerate(tree.nodes):
        for record in node.tensors:
            key = value_key(record) if record.is_tensor else None
            if key is not None:
                seen.setdefault(key, index)
    return seen


def _tensors(node: Node, role: Role) -> list[TensorRecord]:
    return [record for record in node.tensors if record.role is role and record.is_tensor]


def is_split(tree: SliceTree, step: int, following: int) -> bool:
    """Tell whether what a step gives is split into parts by the one that follows it."""
    whole, parts = first_output(tree, step), _outputs(tree, following)
    if whole is None or len(parts) == 1 or work_of(tree.nodes[following]) is not Work.SPLIT:
        return False
    return joined_axis(_shapes(parts), whole.shape) == -1


def _outputs(tree: SliceTree, index: int) -> list[TensorRecord]:
    return _tensors(tree.nodes[index], Role.OUTPUT)


def _shapes(records: list[TensorRecord]) -> list[tuple[int, ...] | None]:
    return [record.shape for record in records]


def _begin_alike(work: Pairing, golden: int, target: int) -> bool:
    first, second = steps_below(work.golden, golden), steps_below(work.target, target)
    if not first or not second:
        return True
    return second[0].node in work.found and _are_matched(work, first[0], second[0])


def _end_alike(work: Pairing, golden: int, target: int) -> bool:
    """Tell whether what ends two steps or modules gives the same value."""
    first, second = (
        [step for step in steps_below(tree, node) if step.work is not Work.STORE]
        for tree, node in ((work.golden, golden), (work.target, target))
    )
    adds = [
        adds_as_well(tree.nodes[node].type_name)
        for tree, node in ((work.golden, golden), (work.target, target))
    ]
    if not first or not second:
        splits = (
            _is_split_up(work, golden, of_target=False),
            _is_split_up(work, target, of_target=True),
        )
        return not any(adds) and not any(splits)
    one, other = first[-1], second[-1]
    if _are_matched(work, one, other):
        return _hands_on(work.golden, golden, one) is not False and (
            _hands_on(work.target, target, other) is not False
        )
    is_one, is_other = one.node in work.partners, other.node in work.found
    if not _are_layers(work, golden) and not _multiply_alike(work, first, second):
        return False
    if not is_one and not is_other:
        return True
    if is_one and is_other:
        return False
    return _ends_with_more(work, (golden, target), (one, other), missing_in_golden=is_one)


def _multiply_alike(work: Pairing, first: Sequence[Step], second: Sequence[Step]) -> bool:
    """Tell whether all linear steps of two modules correspond: neither holds what the other has outside.

    Experts that run together may be hidden in one module of the other.
    """
    inside = {step.node for step in second}
    partners = [
        work.partners.get(step.node)
        for step in first
        if step.work is Work.LINEAR or (step.work is Work.GROUPED and step.node in work.partners)
    ]
    products = {
        step.node
        for step in second
        if step.work is Work.LINEAR or (step.work is Work.GROUPED and step.node in work.found)
    }
    return all(partner in inside for partner in partners) and products <= _with_parts(work, partners)


def _with_parts(work: Pairing, targets: Sequence[int | None]) -> set[int]:
    """Return target nodes, and those that were fused with them."""
    joined = (join.target for join in work.joins if join.target[0] in targets)
    return {node for node in targets if node is not None}.union(*joined)


def _are_layers(work: Pairing, golden: int) -> bool:
    units = work.foreign[0].units if work.foreign is not None else ()
    return any(isinstance(unit, Layer) and unit.node == golden for unit in units)


def _is_split_up(work: Pairing, node: int, *, of_target: bool) -> bool:
    """Tell whether what a linear step gives is split next: its arrangement is known by the parts alone."""
    tree = work.target if of_target else work.golden
    if work.foreign is None or work_of(tree.nodes[node]) is not Work.LINEAR:
        return False
    following = work.foreign[of_target].following(node)
    return following is not None and is_split(tree, node, following)


def _ends_with_more(
    work: Pairing, nodes: tuple[int, int], last: tuple[Step, Step], *, missing_in_golden: bool
) -> bool:
    """Tell whether a module ends with something more than the other, which is there but not recorded."""
    short, more = (0, 1) if missing_in_golden else (1, 0)
    tree = (work.golden, work.target)[short]
    hands_on = _hands_on(tree, nodes[short], last[short])
    if last[more].work is Work.REDUCE:
        return hands_on is not False
    return hands_on is False or (hands_on is None and last[more].work is Work.ADD)


def _hands_on(tree: SliceTree, module: int, last: Step) -> bool | None:
    """Tell whether a module gives what its last step gives; None if not known."""
    keys = value_key(first_output(tree, module)), value_key(first_output(tree, last.node))
    return None if None in keys else keys[0] == keys[1]


def _are_matched(work: Pairing, golden: Step, target: Step) -> bool:
    return (
        golden.node in work.partners
        and target.node in work.found
        and (
            work.partners[golden.node] == target.node
            or work.partners[golden.node] == work.partners.get(work.found[target.node].golden, -1)
        )
    )
