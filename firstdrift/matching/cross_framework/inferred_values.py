"""Find the values of nodes that one dump has and the other has not, at the neighbours of the missing node.

    torch    o_proj input.0                     ═══  PagedAttentionOperation output.0   (o_proj is given it)
             post_attention_layernorm input.0   ═══  ElewiseOperation (add) output.0    (the norm is given it)
             layers.7 output.0                  ═══  ElewiseOperation (add) output.0    (it ends the layer)
             q_proj, k_proj, v_proj output.0    ═══  SplitOperation output.0, 1, 2

What an operator is given was made by the missing node only if nothing recorded before it holds the same
values.
"""

from collections.abc import Hashable, Iterator, Sequence
from itertools import chain, groupby, islice, pairwise
from operator import attrgetter
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.groups import known, positions
from firstdrift.matching.cross_framework.layer_ops import (
    Line,
    first_input,
    first_output,
    outputs_of,
)
from firstdrift.matching.cross_framework.pair_values import fit, is_split, reshape_to_fit
from firstdrift.matching.cross_framework.thresholds import NEAR
from firstdrift.matching.fused.joined_tensors import (
    ARRANGED_BY_VALUES,
    are_located,
    golden_first,
    join_rows,
    joined_axis,
    say_rows,
    tensors_in,
)
from firstdrift.matching.pairing import Pairing
from firstdrift.matching.plan import Joining, Messages, TensorPair
from firstdrift.matching.structure.statistics_similarity import value_key
from firstdrift.matching.tree import SliceTree, indexes_by_name
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
_PARTS_JOINED: Final = Message.of("matching.transform.parts_joined")

_BEFORE_ROTATION: Final = {OpKind.NORM: NEAR, OpKind.SPLIT: 1, OpKind.LINEAR: NEAR}
"""What gives queries and keys before they are rotated, and how many of it may."""


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

    def may_hold(self, record: TensorRecord) -> bool:
        """Tell whether it may be the value of a tensor, by its shape; of what is joined that is known."""
        return bool(self.parts) or fit(self.record, record)


Values: TypeAlias = tuple[tuple[tuple[TensorRecord, ...], Known], ...]
"""Outputs, one by one or several as one tensor, and where each is known from."""


class Inferred(Struct, frozen=True):
    """A node without partner, and where its outputs are known from."""

    node: int
    values: Values


Found: TypeAlias = dict[str, Known | None]
"""Where outputs are known from, by label, as far as they are."""


class Inference:
    """Infers the outputs of one dump's nodes from what the other dump recorded."""

    def __init__(
        self, work: Pairing, lines: tuple[Line, Line], pairs: list[TensorPair], *, of_target: bool
    ) -> None:
        """Take what is matched, both dumps as lines, what can be compared, and whose nodes are missing."""
        trees = work.golden, work.target
        self._tree, self._other = trees[of_target], trees[not of_target]
        self._matched = set((work.partners, work.found)[of_target])
        self._partners: dict[int | None, int] = {
            pair[of_target]: pair[not of_target] for pair in work.pairs() if not work.found[pair[1]].doubtful
        }
        self._experts = _experts_of(work, of_target=of_target)
        self._line = [op for op in lines[of_target].ops if op.kind is not OpKind.STORE]
        self._angles = _angles(self._other, lines[not of_target])
        self._ops = [op.node for op in self._line]
        self._places = positions(self._ops)
        self._after: dict[int, int] = dict(pairwise(self._ops))
        self._before = {after: node for node, after in self._after.items()}
        self._first_seen = _first_seen(self._other)
        self._known = _known_from(work, pairs, of_target=of_target)

    def infer(self) -> list[Inferred]:
        """Return the nodes without partner whose outputs the other dump holds, in execution order.

        They are found in rounds, as modules share values with what is inside them, until nothing is new.
        """
        inferred: dict[int, Values] = {}
        forward = set(chain.from_iterable(self._tree.forward))
        waiting = [index for index in sorted(forward - self._matched) if outputs_of(self._tree, index)]
        known = -1
        while len(inferred) > known:
            known = len(inferred)
            for index in waiting:
                if index not in inferred and (values := self._values_of(index)):
                    inferred[index] = values
        return [Inferred(index, inferred[index]) for index in sorted(inferred)]

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
        before = self._before.get(index, -1)
        known = self._of_partner_before(index, "matching.reason.parts_as_one")
        if known is None or (before, "output.0") in self._known:
            return None
        is_whole = joined_axis(outputs, known.record) == -1 and is_split(self._tree, before, index)
        said = (_PARTS_JOINED, ARRANGED_BY_VALUES)
        return replace(known, transform=said, joining=Joining.CONCATENATED) if is_whole else None

    def _of_partner_before(self, index: int, how: str) -> Known | None:
        """Return what the partner of the operator before a node gives; None if that was not recorded."""
        partner = self._partners.get(self._before.get(index))
        record = None if partner is None else first_output(self._other, partner)
        return self._known_at(partner, record, how)

    def _known_at(self, node: int | None, record: TensorRecord | None, how: str) -> Known | None:
        if node is None or record is None:
            return None
        return Known((node,), record, self._why(how, node))

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
        records = {record.label: record for record in outputs}
        fitting = (
            {
                label: known
                for label, known in rule(index, outputs).items()
                if known is not None and known.may_hold(records[label])
            }
            for rule in rules
        )
        return next(filter(None, fitting), {})

    def _as_around(self, index: int, _: list[TensorRecord]) -> Found:
        """Find the values of a node that ends a module, or of nodes that make its outputs one by one."""
        parent = self._tree.parents[index]
        ends = self._ends(parent) if parent != self._tree.root else ()
        shared = {record.label: (parent, whole.label) for child, record, whole in ends if child == index}
        return self._shared(shared, _ENDS)

    def _as_inside(self, index: int, _: list[TensorRecord]) -> Found:
        """Find the values of a module from what ends it."""
        ends = self._ends(index)
        return self._shared({whole.label: (child, record.label) for child, record, whole in ends}, _ENDED)

    def _ends(self, module: int) -> Iterator[tuple[int, TensorRecord, TensorRecord]]:
        """Yield what the last nodes inside a module give, each with that of the module which it may be."""
        wholes = outputs_of(self._tree, module)[::-1]
        children = reversed(self._tree.forward[module])
        given = ((child, record) for child in children for record in reversed(outputs_of(self._tree, child)))
        last = list(islice(given, len(wholes)))
        for (child, record), whole in zip(last, wholes[: len(last)], strict=True):
            if len(last) == len(wholes) and _may_be_one(record, whole):
                yield child, record, whole

    def _shared(self, shared: dict[str, tuple[int, str]], why: Message) -> Found:
        found = {label: self._known.get(other) for label, other in shared.items()}
        return {label: known and replace(known, why=why) for label, known in found.items()}

    def _as_split(self, index: int, outputs: list[TensorRecord]) -> Found:
        """Find the values of what splits a fused tensor: those of its parts."""
        before = self._before.get(index, -1)
        known = self._known.get((before, "output.0"))
        if known is None or kind_of(self._tree.nodes[index]) is not OpKind.SPLIT:
            return {}
        if known.joining is Joining.OF_EXPERTS:
            return self._as_split_experts(known, before, outputs)
        if known.joining is not Joining.CONCATENATED or len(known.parts) != len(outputs):
            return {}
        return {
            record.label: self._known_at(node, part, "matching.reason.output_of")
            for record, node, part in zip(outputs, known.nodes, known.parts, strict=True)
        }

    def _as_split_experts(self, known: Known, before: int, outputs: list[TensorRecord]) -> Found:
        """Find the values of what splits the rows of experts: those of one of their operators each."""
        experts = self._experts.get(before)
        if experts is None or len(known.parts) != len(experts.numbers) * len(outputs):
            return {}
        found: dict[str, Known | None] = {}
        for at, record in enumerate(outputs):
            own = slice(at * len(experts.numbers), (at + 1) * len(experts.numbers))
            why = self._why("matching.reason.output_of_each_expert", known.nodes[own][0])
            found[record.label] = _rows_of(known.nodes[own], known.parts[own], record, experts.numbers, why)
        return found

    def _as_given_to_experts(self, index: int, outputs: list[TensorRecord]) -> Found:
        """Find the value of a node by what the experts are given that run together after it."""
        experts = self._following_experts(index, outputs[0])
        if experts is None or kind_of(self._tree.nodes[index]) not in _MAKERS_FOR_EXPERTS:
            return {}
        parts = known(first_input(self._other, node) for node in experts.nodes)
        if [self._first_seen.get(value_key(part)) for part in parts] != list(experts.nodes):
            return {}
        why = self._why("matching.reason.input_of_each_expert", experts.nodes[0])
        return {outputs[0].label: _rows_of(experts.nodes, parts, outputs[0], experts.numbers, why)}

    def _following_experts(self, index: int, output: TensorRecord) -> "_Experts | None":
        """Return the experts that run soon after a node, with nothing as large in between."""
        place = self._places.get(index, len(self._ops))
        for following in self._ops[place + 1 : place + 1 + NEAR]:
            if following in self._experts:
                return self._experts[following]
            if any(fit(between, output) for between in outputs_of(self._tree, following)[:1]):
                return None
        return None

    def _as_reduced(self, index: int, outputs: list[TensorRecord]) -> Found:
        """Find the value of a sum over ranks: that of the whole operator, which the other dump has as one."""
        if kind_of(self._tree.nodes[index]) is not OpKind.REDUCE:
            return {}
        return {outputs[0].label: self._of_partner_before(index, "matching.reason.completes")}

    def _as_given_on(self, index: int, outputs: list[TensorRecord]) -> Found:
        """Find the value of a node by what the operator after it is given."""
        partner = self._partners.get(self._after.get(index))
        if partner is None or len(outputs) > 1 or kind_of(self._tree.nodes[index]) not in _MAKERS:
            return {}
        record = first_input(self._other, partner)
        is_new = self._first_seen.get(value_key(record)) == partner
        return (
            {outputs[0].label: self._known_at(partner, record, "matching.reason.input_of")} if is_new else {}
        )

    def _as_rotated(self, index: int, outputs: list[TensorRecord]) -> Found:
        """Find the values of a rotation by position: the other dump has what is rotated, and the angles."""
        place = self._places.get(index, -1)
        if place < 0 or self._line[place].kind is not OpKind.ROTATE:
            return {}
        rotated = zip(outputs, self._given_to_rotation(place) if self._angles else (), strict=False)
        return {record.label: self._rotated(known, record) for record, known in rotated}

    def _rotated(self, known: Known, record: TensorRecord) -> Known | None:
        """Say that a value is another one, rotated; None unless the values of all were saved."""
        parts = (known.record, *self._angles)
        if not are_located([*parts, record]):
            return None
        joined = replace(known.record, statistics=None, digest=None, location=None)
        rotation = Message.of("matching.transform.rotated", node=self._other.relative_name(known.nodes[0]))
        transform = (rotation, *reshape_to_fit(known.record, record))
        why = self._why("matching.reason.rotates", known.nodes[0])
        return Known(known.nodes, joined, why, parts, transform, Joining.ROTATED)

    def _given_to_rotation(self, place: int) -> list[Known]:
        """Return queries and keys as they were before: from norms, a split or linear operators."""
        before = self._line[max(0, place - NEAR) : place][::-1]
        kind, alike = next(groupby(before, attrgetter("kind")), (OpKind.OTHER, iter(())))
        states: list[Known] = []
        for op in islice(alike, _BEFORE_ROTATION.get(kind, 0)):
            outputs = outputs_of(self._tree, op.node)
            known = filter(None, (self._known.get((op.node, record.label)) for record in outputs))
            whole = [value for value in known if not value.parts]
            if len(whole) < len(outputs):
                break
            states[:0] = whole
        return states[:2] if len(states) > 1 else []

    def _why(self, how: str, node: int) -> Message:
        return Message.of(how, node=self._other.relative_name(node))


def _angles(tree: SliceTree, line: Line) -> tuple[TensorRecord, ...]:
    """Return cosine and sine, if a dump has only one table of them."""
    tables = [op.node for op in line.ops if op.kind is OpKind.POSITIONS]
    match [outputs_of(tree, table) for table in tables]:
        case [[cosine, sine]] if cosine.shape == sine.shape:
            return cosine, sine
    return ()


def _known_from(work: Pairing, pairs: list[TensorPair], *, of_target: bool) -> dict[tuple[int, str], Known]:
    """Return the outputs of matched nodes with what the other dump has of them."""
    numbers = indexes_by_name(work.golden.nodes), indexes_by_name(work.target.nodes)
    of_other = attrgetter("golden" if of_target else "target")
    groups = {group[0]: group for group in map(of_other, work.joins)}
    known: dict[tuple[int, str], Known] = {}
    for pair in pairs:
        own, other = golden_first(*tensors_in(pair), own_is_golden=not of_target)
        if own.record.role is Role.OUTPUT and not own.parts:
            first = numbers[not of_target][other.node]
            nodes, said = (groups[first], pair.transform) if other.parts else ((first,), ())
            why = Message.of("matching.reason.same_tensor", node=own.node)
            found = Known(nodes, other.record, why, other.parts, said, pair.joining)
            known[numbers[of_target][own.node], own.record.label] = found
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
    joins = (
        (join, golden_first(join.golden, join.target, own_is_golden=not of_target)) for join in work.joins
    )
    return {
        own[0]: _Experts(others[: len(join.experts)], join.experts)
        for join, (own, others) in joins
        if join.experts and len(own) == 1
    }


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
    said = say_rows(experts, [*parts, whole])
    return Known(tuple(nodes), joined, why, tuple(parts), said, Joining.OF_EXPERTS)


def _first_seen(tree: SliceTree) -> dict[Hashable, int]:
    """Return the node that first took or gave each value, in the order in which nodes finished."""
    values = (
        (value_key(record), index)
        for index, node in reversed(list(enumerate(tree.nodes)))
        for record in node.tensors
    )
    return {key: index for key, index in values if key is not None}
