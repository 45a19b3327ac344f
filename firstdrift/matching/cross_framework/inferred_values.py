"""Find the values of nodes that one dump has and the other has not, at the neighbours of the missing node.

    torch    o_proj input.0                     ═══  PagedAttentionOperation output.0   (o_proj is given it)
             post_attention_layernorm input.0   ═══  ElewiseOperation (add) output.0    (the norm is given it)
             layers.7 output.0                  ═══  ElewiseOperation (add) output.0    (it ends the layer)
             q_proj, k_proj, v_proj output.0    ═══  SplitOperation output.0, 1, 2

What an operator is given was made by the missing node only if nothing recorded before it holds the same
values.
"""

from collections.abc import Hashable, Sequence
from itertools import takewhile
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.matching.cross_framework.layer_ops import (
    Line,
    first_input,
    first_output,
    value_key,
)
from firstdrift.matching.cross_framework.pair_values import (
    fit,
    is_split,
    outputs_of,
    reshape_to_fit,
    shapes_of,
)
from firstdrift.matching.cross_framework.thresholds import NEAR, ROTATION
from firstdrift.matching.fused.joined_tensors import join_rows, joined_axis, say_rows
from firstdrift.matching.pairing import Pairing
from firstdrift.matching.plan import Joining, Messages, TensorPair
from firstdrift.matching.tree import SliceTree
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.operators.kinds import OpKind
from firstdrift.operators.recognise import kind_of
from firstdrift.wording.message import Message

_MAKERS: Final = frozenset(
    {OpKind.ADD, OpKind.MULTIPLY, OpKind.ATTEND, OpKind.LOOKUP, OpKind.ACTIVATE, OpKind.GATE}
)
_MAKERS_FOR_EXPERTS: Final = _MAKERS | {OpKind.ROUTE}
"""What makes a value of its own that the next operator is given."""


_ENDS: Final = Message.of("matching.reason.last_in_module")
_ENDED: Final = Message.of("matching.reason.given_by_last_node")


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


class Inferred(Struct, frozen=True):
    """A node without partner, and where its outputs are known from, one by one or several as one tensor."""

    node: int
    values: tuple[tuple[tuple[TensorRecord, ...], Known], ...]


Values = tuple[tuple[tuple[TensorRecord, ...], Known], ...]


def infer_values(
    work: Pairing, lines: tuple[Line, Line], pairs: list[TensorPair], *, of_target: bool
) -> list[Inferred]:
    """Return the nodes without partner of one dump whose outputs the other dump holds, in execution order.

    Args:
        work: what is matched.
        lines: the two dumps as lines of operators.
        pairs: the tensors of what is matched.
        of_target: whether the nodes are the target's.
    """
    return _Inference(work, lines, pairs, of_target=of_target).infer()


class _Inference:
    """Infers the outputs of one dump's nodes from what the other dump recorded."""

    def __init__(
        self, work: Pairing, lines: tuple[Line, Line], pairs: list[TensorPair], *, of_target: bool
    ) -> None:
        self._tree, self._other = (work.target, work.golden) if of_target else (work.golden, work.target)
        self._matched = set(work.found if of_target else work.partners)
        sure = (pair for pair in work.pairs() if not work.found[pair[1]].doubtful)
        self._partners: dict[int | None, int] = {pair[of_target]: pair[not of_target] for pair in sure}
        self._experts = _experts_of(work, of_target=of_target)
        self._line = [op for op in lines[of_target].ops if op.kind is not OpKind.STORE]
        self._other_line = list(lines[not of_target].ops)
        self._ops = [op.node for op in self._line]
        self._places = {node: place for place, node in enumerate(self._ops)}
        self._first_seen = _first_seen(self._other)
        self._known = _known_from(work, pairs, of_target=of_target)

    def infer(self) -> list[Inferred]:
        """Infer in rounds, as modules share values with what is inside them, until nothing new is known."""
        inferred: dict[int, Inferred] = {}
        forward = {child for children in self._tree.forward for child in children}
        waiting = [index for index in sorted(forward - self._matched) if outputs_of(self._tree, index)]
        known = -1
        while len(inferred) > known:
            known = len(inferred)
            for index in waiting:
                values = self._values_of(index) if index not in inferred else ()
                if values:
                    inferred[index] = Inferred(index, values)
        return [inferred[index] for index in sorted(inferred)]

    def _values_of(self, index: int) -> Values:
        outputs = outputs_of(self._tree, index)
        whole = self._as_parts(index, outputs)
        if whole is not None:
            return ((tuple(outputs), whole),)
        values = self._by_rules(index, outputs)
        self._known |= {(index, label): known for label, known in values.items()}
        return tuple(((record,), values[record.label]) for record in outputs if record.label in values)

    def _as_parts(self, index: int, outputs: list[TensorRecord]) -> Known | None:
        """Find the fused tensor of the other dump that a node of this one splits."""
        before = self._before(index)
        partner = self._partners.get(before)
        record = None if partner is None else first_output(self._other, partner)
        if before is None or partner is None or record is None or (before, "output.0") in self._known:
            return None
        is_whole = len(outputs) > 1 and joined_axis(shapes_of(outputs), record.shape) == -1
        if not is_whole or not is_split(self._tree, before, index):
            return None
        return Known((partner,), record, self._why("matching.reason.parts_as_one", partner))

    def _by_rules(self, index: int, outputs: list[TensorRecord]) -> dict[str, Known]:
        """Return the values that the first rule finds of which some fit."""
        rules = (
            self._as_around,
            self._as_inside,
            self._as_split,
            self._as_reduced,
            self._as_given_to_experts,
            self._as_given_on,
            self._as_rotated,
        )
        shapes = {record.label: record for record in outputs}
        found = (rule(index, outputs) for rule in rules)
        fitting = (
            {
                label: known
                for label, known in values.items()
                if known.parts or fit(known.record, shapes[label])
            }
            for values in found
        )
        return next(filter(None, fitting), {})

    def _as_around(self, index: int, _: list[TensorRecord]) -> dict[str, Known]:
        """Find the values of a node that ends a module, or of nodes that make its outputs one by one."""
        parent = self._tree.parents[index]
        if parent == self._tree.root:
            return {}
        whole = outputs_of(self._tree, parent)
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
        count = len(outputs_of(self._tree, module))
        last: list[tuple[int, TensorRecord]] = []
        for child in reversed(self._tree.forward[module]):
            if len(last) >= count:
                break
            last[:0] = [(child, record) for record in outputs_of(self._tree, child)]
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
        if kind_of(self._tree.nodes[index]) is not OpKind.SPLIT or before is None:
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
        """Find the values of what splits the rows of experts: those of one of their operators each."""
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
        following = self._following_experts(index, outputs[0])
        if following is None or kind_of(self._tree.nodes[index]) not in _MAKERS_FOR_EXPERTS:
            return {}
        nodes, numbers = following.nodes, following.numbers
        parts = [part for node in nodes if (part := first_input(self._other, node)) is not None]
        if [self._first_seen.get(value_key(part)) for part in parts] != list(nodes):
            return {}
        why = self._why("matching.reason.input_of_each_expert", nodes[0])
        rows = _rows_of(nodes, parts, outputs[0], numbers, why)
        return {outputs[0].label: rows} if rows else {}

    def _following_experts(self, index: int, output: TensorRecord) -> "_Experts | None":
        """Return the experts that run soon after a node, with nothing as large in between."""
        if index not in self._places:
            return None
        place = self._places[index]
        for following in self._ops[place + 1 : place + 1 + NEAR]:
            if following in self._experts:
                return self._experts[following]
            between = first_output(self._tree, following)
            if between is not None and fit(between, output):
                return None
        return None

    def _as_reduced(self, index: int, outputs: list[TensorRecord]) -> dict[str, Known]:
        """Find the value of a sum over ranks: that of the whole operator, which the other dump has as one."""
        partner = self._partners.get(self._before(index))
        if partner is None or kind_of(self._tree.nodes[index]) is not OpKind.REDUCE:
            return {}
        record = first_output(self._other, partner)
        why = self._why("matching.reason.completes", partner)
        return {} if record is None else {outputs[0].label: Known((partner,), record, why)}

    def _as_given_on(self, index: int, outputs: list[TensorRecord]) -> dict[str, Known]:
        """Find the value of a node by what the operator after it is given."""
        place = self._places.get(index, len(self._ops))
        partner = next(map(self._partners.get, self._ops[place + 1 : place + 2]), None)
        if partner is None or len(outputs) > 1 or kind_of(self._tree.nodes[index]) not in _MAKERS:
            return {}
        record = first_input(self._other, partner)
        key = value_key(record)
        if record is None or key is None or self._first_seen[key] != partner:
            return {}
        return {outputs[0].label: Known((partner,), record, self._why("matching.reason.input_of", partner))}

    def _as_rotated(self, index: int, outputs: list[TensorRecord]) -> dict[str, Known]:
        """Find the values of a rotation by position: the other dump has what is rotated, and the angles."""
        place = self._places.get(index)
        if place is None or self._line[place].kind is not OpKind.ROTATE:
            return {}
        states = self._given_to_rotation(place)
        angles = self._angles()
        rotated: dict[str, Known] = {}
        for record, known in zip(outputs, states, strict=False):
            parts = (known.record, *angles)
            if len(parts) == ROTATION and all(part.location is not None for part in (*parts, record)):
                name = self._name(known.nodes[0])
                joined = replace(known.record, statistics=None, digest=None, location=None)
                why = self._why("matching.reason.rotates", known.nodes[0])
                rotation = Message.of("matching.transform.rotated", node=name)
                transform = (rotation, *reshape_to_fit(known.record, record))
                rotated[record.label] = Known(known.nodes, joined, why, parts, transform, Joining.ROTATED)
        return rotated

    def _given_to_rotation(self, place: int) -> list[Known]:
        """Return queries and keys as they were before: from norms, a split or linear operators."""
        before = self._line[max(0, place - NEAR) : place][::-1]
        kind = before[0].kind if before else OpKind.OTHER
        if kind not in (OpKind.NORM, OpKind.SPLIT, OpKind.LINEAR):
            return []
        states: list[Known] = []
        for op in takewhile(lambda op: op.kind is kind, before[: 1 if kind is OpKind.SPLIT else NEAR]):
            outputs = outputs_of(self._tree, op.node)
            known = [self._known.get((op.node, record.label)) for record in outputs]
            whole = [value for value in known if value is not None and not value.parts]
            if len(whole) < len(known):
                break
            states[:0] = whole
        return states[:2] if len(states) > 1 else []

    def _angles(self) -> tuple[TensorRecord, ...]:
        """Return cosine and sine, if the other dump has only one table of them."""
        tables = [op.node for op in self._other_line if op.kind is OpKind.POSITIONS]
        if len(tables) != 1:
            return ()
        given = outputs_of(self._other, tables[0])
        return tuple(given) if len(given) == ROTATION - 1 and given[0].shape == given[1].shape else ()

    def _before(self, index: int) -> int | None:
        place = self._places.get(index, 0)
        return self._ops[place - 1] if place else None

    def _name(self, node: int) -> str:
        return self._other.relative_name(node)

    def _why(self, how: str, node: int) -> Message:
        return Message.of(how, node=self._name(node))


def _known_from(work: Pairing, pairs: list[TensorPair], *, of_target: bool) -> dict[tuple[int, str], Known]:
    """Return the outputs of matched nodes with what the other dump has of them."""
    trees = (work.golden, work.target)
    numbers = [{node.name: index for index, node in enumerate(tree.nodes)} for tree in trees]
    joins = [join.golden if of_target else join.target for join in work.joins]
    groups = {group[0]: group for group in joins}
    known: dict[tuple[int, str], Known] = {}
    for pair in pairs:
        sides = (
            (pair.golden_node, pair.golden, pair.golden_parts),
            (pair.target_node, pair.target, pair.target_parts),
        )
        name, own, own_parts = sides[of_target]
        node, record, parts = sides[not of_target]
        if own.role is Role.OUTPUT and not own_parts and pair.incomparable is None:
            first = numbers[not of_target][node]
            why = Message.of("matching.reason.same_tensor", node=name)
            known[numbers[of_target][name], own.label] = (
                Known(groups[first], record, why, parts, pair.transform, pair.joining)
                if parts
                else Known((first,), record, why, joining=pair.joining)
            )
    return known


def _may_be_one(record: TensorRecord, other: TensorRecord) -> bool:
    """Tell whether two tensors of one dump may be the same: nothing that was recorded tells them apart."""
    keys = value_key(record), value_key(other)
    return record.shape == other.shape and (None in keys or keys[0] == keys[1])


class _Experts(Struct, frozen=True):
    """What experts give, or are given, that run together in the other dump.

    Attributes:
        nodes: indices of the first operator of each of them.
        numbers: their numbers.
    """

    nodes: tuple[int, ...]
    numbers: tuple[int, ...]


def _experts_of(work: Pairing, *, of_target: bool) -> dict[int, _Experts]:
    """Return the experts of which the other dump has the operators one by one, by the node that runs them."""
    found: dict[int, _Experts] = {}
    for join in work.joins:
        own, others = (join.target, join.golden) if of_target else (join.golden, join.target)
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
