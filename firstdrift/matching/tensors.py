"""Pair the tensors of two matched nodes.

input.0              [1, 5, 896]  ── input.hidden_states [5, 896]     paired by shape; reshape
input.attention_mask [1, 1, 5, 5]    (no partner)
output.0             [1, 5, 896]  ── output.0            [1, 5, 896]
"""

from collections.abc import Collection, Container, Hashable, Iterable, Mapping, Sequence
from itertools import accumulate
from math import prod
from operator import attrgetter, mul, ne
from typing import Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from firstdrift.dumps.checkpoint import how_dequantised
from firstdrift.groups import firsts, grouped, seconds
from firstdrift.matching.plan import Messages, TensorPair, UnmatchedTensor
from firstdrift.matching.structure.sequence_alignment import Pair
from firstdrift.matching.structure.statistics_similarity import bare_shape, known_distances, value_distance
from firstdrift.matching.thresholds import ARGUMENTS_AGREE, TIMES_FARTHER
from firstdrift.matching.tree import Place, are_of_one_family, is_operator, operator_family
from firstdrift.model.node import BACKWARD, Node
from firstdrift.model.tensor import INPUT, OUTPUT, Role, TensorRecord, is_floating
from firstdrift.operators.properties import is_commutative
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import shape, side_named

BY_SHAPE: Final = Message.of("matching.transform.by_shape")
"""Said of a pair whose keys differ."""

_EXCHANGED: Final = Message.of("matching.transform.exchanged")
"""Said of a pair whose keys differ as the operator was given its two arguments the other way round."""

BY_MAPPING: Final = Message.of("matching.transform.by_mapping")
"""Said of a pair that a mapping file names."""

_LOOKS: Final = attrgetter("key", "role", "shape")

Shape: TypeAlias = tuple[int, ...]

Records = dict[int, TensorRecord]
"""The records of one role that are not paired yet, by their position in the node."""


class TensorPairing(Struct):
    """The tensors of the matches of a plan: those paired so far, and those left over."""

    pairs: list[TensorPair] = field(default_factory=list)
    unmatched_golden: list[UnmatchedTensor] = field(default_factory=list)
    unmatched_target: list[UnmatchedTensor] = field(default_factory=list)

    def leave(
        self,
        match: int,
        golden: Iterable[Node],
        target: Iterable[Node],
        taken: tuple[Container[Place], Container[Place]] = ((), ()),
    ) -> None:
        """List the tensors of the nodes of a match that are not taken as left over."""
        self.unmatched_golden += left_over(match, golden, taken[0])
        self.unmatched_target += left_over(match, target, taken[1])

    def drop_paired(self) -> None:
        """Take out of what was left over what is paired."""
        golden = {(pair.golden_node, pair.golden.label) for pair in self.pairs}
        target = {(pair.target_node, pair.target.label) for pair in self.pairs}
        self.unmatched_golden = [one for one in self.unmatched_golden if one.place not in golden]
        self.unmatched_target = [one for one in self.unmatched_target if one.place not in target]

    def add(self, other: "TensorPairing") -> None:
        """Add what was paired and left over elsewhere."""
        self.pairs += other.pairs
        self.unmatched_golden += other.unmatched_golden
        self.unmatched_target += other.unmatched_target

    def pair(self, match: int, golden: Node, target: Node) -> None:
        """Pair the tensors of a match by role and key, where keys differ by order and shape.

        Operators of different names share their results, not their arguments: only results are paired.
        """
        names = golden.name, target.name
        is_alike = _are_alike(golden.tensors, target.tensors) and _share_arguments(golden, target)
        if is_alike and not _exchanged_role(golden, target):
            alike = zip(golden.tensors, target.tensors, strict=True)
            self.pairs += [_tensor_pair(match, names, records) for records in alike]
            return
        paired = _pair_positions(golden, target)
        for (first, second), remark in sorted(paired.items(), key=lambda item: item[0][1]):
            records = golden.tensors[first], target.tensors[second]
            self.pairs.append(_tensor_pair(match, names, records, remark))
        self.unmatched_golden += _left_over(match, golden, set(firsts(paired)))
        self.unmatched_target += _left_over(match, target, set(seconds(paired)))

    def pair_said(self, match: int, golden: Node, target: Node, said: Mapping[str, str]) -> tuple[Node, Node]:
        """Pair what a mapping file says, and return the nodes with what is left.

        `said` has the label of a golden tensor by that of the target tensor.
        """
        if not said:
            return golden, target
        first, second = ({record.label: record for record in node.tensors} for node in (golden, target))
        labels = {theirs: own for theirs, own in said.items() if own in first and theirs in second}
        for theirs, own in labels.items():
            records = first[own], second[theirs]
            self.pairs.append(_tensor_pair(match, (golden.name, target.name), records, BY_MAPPING))
        return without(golden, labels.values()), without(target, labels)


def left_over(match: int, nodes: Iterable[Node], taken: Container[Place]) -> list[UnmatchedTensor]:
    """List the tensors of nodes of a match that are not taken."""
    return [
        UnmatchedTensor(match, node.name, record)
        for node in nodes
        for record in node.tensors
        if (node.name, record.label) not in taken
    ]


def without(node: Node, labels: Collection[str]) -> Node:
    """Return a node without the tensors of some labels."""
    return replace(node, tensors=tuple(record for record in node.tensors if record.label not in labels))


def relate_shapes(golden: Shape | None, target: Shape | None) -> tuple[Messages, Message | None]:
    """Say how two shapes can be compared: what to do first, if anything, or why they cannot.

    They can if they differ by dimensions of size 1, or by flattening batch and sequence, which are the
    first two. An unknown shape is left to whoever reads the data.
    """
    if golden == target or golden is None or target is None:
        return (), None
    first, second = bare_shape(golden), bare_shape(target)
    if first == second or _flattened(first) == second or first == _flattened(second):
        return (reshape(golden, target),), None
    return (), shapes_differ(golden, target)


def merge(golden: Shape, target: Shape) -> bool:
    """Tell whether shapes differ by nothing but dimensions of size 1 and merged ones."""
    if prod(golden) != prod(target):
        return False
    ends = [set(accumulate(shape, mul)) - {1} for shape in (golden, target)]
    return ends[0] <= ends[1] or ends[1] <= ends[0]


def shapes_differ(golden: Shape, target: Shape) -> Message:
    """Say that two tensors cannot be compared, as their shapes differ."""
    return Message.of("matching.incomparable.shapes_differ", golden=shape(golden), target=shape(target))


def reshape(golden: Shape, target: Shape) -> Message:
    """Say that a tensor is reshaped before it is compared."""
    return Message.of("matching.transform.reshape", golden=shape(golden), target=shape(target))


def _flattened(sizes: Shape) -> Shape | None:
    return (sizes[0] * sizes[1], *sizes[2:]) if len(sizes) > 1 else None


def _are_alike(golden: tuple[TensorRecord, ...], target: tuple[TensorRecord, ...]) -> bool:
    """Tell whether the records of two nodes go together one by one: the path that equal nodes take."""
    return list(map(_LOOKS, golden)) == list(map(_LOOKS, target))


def _share_arguments(golden: Node, target: Node) -> bool:
    return not is_operator(golden) or not is_operator(target) or are_of_one_family(golden, target)


def _tensor_pair(
    match: int,
    names: tuple[str, str],
    records: tuple[TensorRecord, TensorRecord],
    remark: Message | None = None,
) -> TensorPair:
    golden, target = records
    transform, incomparable = relate_shapes(golden.shape, target.shape)
    if golden.is_tensor is not target.is_tensor:
        kinds = {"golden": _kind_of(golden), "target": _kind_of(target)}
        transform, incomparable = (), Message.of("matching.incomparable.other_kinds", **kinds)
    made = [how_dequantised(record) for record in records if record.location is not None]
    if any(made):
        made = list(map(how_dequantised, records))
        transform = (*_dequantised(made), *transform)
        if all(made):
            # Both were rounded to whole numbers already: what is left has to agree like other floats.
            golden, target = replace(golden, dtype="float32"), replace(target, dtype="float32")
    if remark is not None:
        transform = (remark, *transform)
    return TensorPair(match, *names, golden, target, transform, incomparable)


def _dequantised(scales: list[tuple[str, ...]]) -> Messages:
    """Say on which side a tensor was made from others: "target dequantised with weight_scale"."""
    if scales[0] == scales[1]:
        return (Message.of("matching.transform.both_dequantised", scales=scales[0]),)
    return tuple(
        Message.of("matching.transform.dequantised", side=side_named(side), scales=by)
        for side, by in zip(("golden", "target"), scales, strict=True)
        if by
    )


def _kind_of(record: TensorRecord) -> Message:
    if not record.is_tensor:
        return Message.of("matching.kind.argument", type=record.dtype)
    if record.shape is None:
        return Message.of("matching.kind.tensor")
    return Message.of("matching.kind.tensor_of_shape", shape=shape(record.shape))


def _left_over(match: int, node: Node, taken: set[int]) -> list[UnmatchedTensor]:
    return [
        UnmatchedTensor(match, node.name, record)
        for position, record in enumerate(node.tensors)
        if position not in taken
    ]


def _pair_positions(golden: Node, target: Node) -> dict[Pair, Message | None]:
    """Pair the positions of two nodes' tensors, each pair with a remark if its keys differ."""
    roles: Iterable[Role] = Role
    if not _share_arguments(golden, target):
        roles = (INPUT if target.direction is BACKWARD else OUTPUT,)
    free_order = is_operator(target) and _has_free_order(target)
    exchanged = _exchanged_role(golden, target)
    paired: dict[Pair, Message | None] = {}
    for role in roles:
        first, second = _of_role(golden, role), _of_role(target, role)
        if role is exchanged:
            crossed = list(zip(_floating(first), reversed(_floating(second)), strict=True))
            paired |= dict.fromkeys(_taken(crossed, first, second), _EXCHANGED)
        paired |= dict.fromkeys(_pair_equal_keys(first, second, fitting=True))
        paired |= dict.fromkeys(_pair_by_shape(first, second, free_order=free_order), BY_SHAPE)
        paired |= dict.fromkeys(_pair_equal_keys(first, second, fitting=False))
    return paired


def _exchanged_role(golden: Node, target: Node) -> Role | None:
    """Return the role of the two arguments, or of their gradients, that lie the other way round; or None.

    Sums and products say nothing of their order: `act(gate) * up` and `up * act(gate)` are one. Where both
    have one shape, recorded statistics tell which is which, if they tell it clearly.
    """
    are_operators = is_operator(golden) and is_operator(target) and are_of_one_family(golden, target)
    if not are_operators or not is_commutative(operator_family(target.type_name)):
        return None
    role = OUTPUT if target.direction is BACKWARD else INPUT
    first, second = (
        [node.tensors[at] for at in _floating(_of_role(node, role))] for node in (golden, target)
    )
    return role if len(first) == len(second) == 2 and _are_exchanged(first, second) else None  # noqa: PLR2004


def _are_exchanged(golden: Sequence[TensorRecord], target: Sequence[TensorRecord]) -> bool:
    """Tell whether two tensors are clearly nearer to the two of the other side in reverse order."""
    near = known_distances(golden, reversed(target))
    if len(near) < len(golden) or min(near) > ARGUMENTS_AGREE:
        return False
    own = map(value_distance, golden, target)
    far = [1.0 if distance is None else distance for distance in own]
    return min(near) * TIMES_FARTHER < min(far) and max(near) <= max(far)


def _of_role(node: Node, role: Role) -> Records:
    return {at: record for at, record in enumerate(node.tensors) if record.role is role}


def _floating(records: Records) -> list[int]:
    return [at for at, record in records.items() if record.is_tensor and is_floating(record.dtype)]


def _has_free_order(operator: Node) -> bool:
    """Tell whether the order of arguments says nothing: autograd has its own, addition commutes."""
    return operator.direction is BACKWARD or is_commutative(operator_family(operator.type_name))


def _pair_equal_keys(golden: Records, target: Records, *, fitting: bool) -> list[Pair]:
    """Take the records of equal keys out of both sides; if `fitting`, only those that can be compared."""
    by_key = {record.key: at for at, record in reversed(golden.items())}
    pairs: list[Pair] = []
    for second, record in target.items():
        first = by_key.get(record.key)
        if first is not None and (not fitting or _fit(golden[first], record)):
            pairs.append((first, second))
            del by_key[record.key]
    return _taken(pairs, golden, target)


def _taken(pairs: list[Pair], golden: Records, target: Records) -> list[Pair]:
    for first, second in pairs:
        del golden[first], target[second]
    return pairs


def _fit(golden: TensorRecord, target: TensorRecord) -> bool:
    return golden.is_tensor is target.is_tensor and relate_shapes(golden.shape, target.shape)[1] is None


def _pair_by_shape(golden: Records, target: Records, *, free_order: bool) -> list[Pair]:
    """Take out in order what has one shape, where both sides have equally many of it and keys of other kinds.

    Keys are of other kinds if one is a position and the other a keyword, or they are nested differently.
    That does not matter where the order is free.
    """
    first, second = _by_shape(golden), _by_shape(target)
    pairs: list[Pair] = []
    for sizes, positions in first.items():
        others = second.get(sizes, [])
        kinds = [_kind(golden[at].key) for at in positions], [_kind(target[at].key) for at in others]
        if len(positions) == len(others) and (free_order or all(map(ne, *kinds))):
            pairs += zip(positions, others, strict=True)
    return _taken(pairs, golden, target)


def _by_shape(records: Records) -> dict[Hashable, list[int]]:
    shapes = {at: record.shape for at, record in records.items() if record.shape is not None}
    return grouped(shapes, lambda at: bare_shape(shapes[at]) if records[at].is_tensor else records[at].dtype)


def _kind(key: str) -> tuple[bool, ...]:
    """Tell positions from keywords at each level of a key: "0.mask" is a position, then a keyword."""
    return tuple(part.isdigit() for part in key.split("."))
