"""A match plan: what corresponds to what, by which rule, and everything left over.

A plan is made from names, shapes and statistics alone; it can be shown and checked without a tensor.
"""

from enum import StrEnum
from itertools import chain
from typing import Final, TypeAlias

from msgspec import Struct

from firstdrift.matching.manual.edits import Edit
from firstdrift.matching.manual.mapping import MappingFile
from firstdrift.model.slice import Coordinates, Layout, SliceListing
from firstdrift.model.tensor import GRADIENT, INPUT, OUTPUT, Parts, Role, TensorRecord
from firstdrift.wording.message import Message

Messages: TypeAlias = tuple[Message, ...]
"""Clauses, to be said one after the other."""


class Origin(StrEnum):
    """The rule that found a match."""

    EXACT = "exact"
    FUZZY = "fuzzy"
    MAPPING = "mapping"
    STRUCTURE = "structure"
    MANUAL = "manual"


class Joining(StrEnum):
    """How the parts of a pair make up the one tensor that is compared.

    The first part of a tensor that is rearranged is itself; what follows, a golden and a target tensor each,
    confirms in what order it lies. One that is a view has none: its record says how it is read.
    """

    CONCATENATED = "concatenated"
    SUMMED = "summed"
    ROTATED = "rotated"
    OF_EXPERTS = "of experts"
    STACKED = "stacked"
    REARRANGED = "rearranged"
    VIEW = "view"


class NodeMatch(Struct, frozen=True, gc=False):
    """Golden node(s) and target node(s) held to be the same.

    Attributes:
        golden: names of the golden nodes; more than one where they were fused in the target, none where
            the golden dump has no such node and its values are known from other nodes all the same.
        target: names of the target nodes; likewise. One of the two has one name.
        origin: the rule that found it.
        score: how sure it is, 0 to 1; 1 for exact and manual.
        doubtful: shown, but not compared, until a person confirms it.
        reasons: what spoke for it, one clause each.
        operands: of a sum whose inputs were not recorded, the nodes that made them as far as order tells.
    """

    golden: tuple[str, ...]
    target: tuple[str, ...]
    origin: Origin
    score: float = 1.0
    doubtful: bool = False
    reasons: Messages = ()
    operands: tuple[str, ...] = ()


_MADE: Final = (OUTPUT, GRADIENT)
"""What a node makes: it stays so where another node of the other run is given it."""


class TensorPair(Struct, frozen=True, gc=False):
    """One golden tensor and one target tensor of a match.

    A tensor that is joined from those of several nodes bears the key of the first; its shape and its
    statistics are those of the whole, and its data lie in its parts.

    Attributes:
        match: index of the match in the plan.
        golden_node: name of the golden node the tensor belongs to; of the first, if it is joined.
        target_node: name of the target node.
        golden: the golden tensor.
        target: the target tensor.
        transform: what is done to the two before they are compared, in order; empty if nothing.
        incomparable: why the two cannot be compared, known from their records alone; None if they can.
        golden_parts: what the golden tensor is joined from; empty if it is one tensor.
        target_parts: likewise for the target tensor; one of the two is empty.
        joining: how the parts are joined; None if there are none.
        part_nodes: of parts that belong to a node each, these; else empty.
        tokens: of rows that were moved to be compared by token, which these are, piece by piece: the golden
            sequence, the place of the first token in it, how many rows. Empty of rows as they lie.
        witnesses: what lies as parts do that are laid side by side: parts and whole of each.
        by_statistics: whether nothing but statistics tells that the two were made by the same: their elements
            may lie in another order.
    """

    match: int
    golden_node: str
    target_node: str
    golden: TensorRecord
    target: TensorRecord
    transform: Messages = ()
    incomparable: Message | None = None
    golden_parts: tuple[TensorRecord, ...] = ()
    target_parts: tuple[TensorRecord, ...] = ()
    joining: Joining | None = None
    part_nodes: tuple[str, ...] = ()
    tokens: tuple[tuple[int, int, int], ...] = ()
    witnesses: tuple[tuple[TensorRecord, ...], ...] = ()
    by_statistics: bool = False

    @property
    def role(self) -> Role:
        """What its tensors are to their nodes; an output, or a gradient, is one beside an input."""
        role = self.target.role
        return self.golden.role if role is INPUT and self.golden.role in _MADE else role

    @property
    def is_joined(self) -> bool:
        """True if one of its tensors is made up of several, of nodes, of ranks or of passes."""
        places = self.golden.location, self.target.location
        return any(
            (self.joining, self.golden.shards, self.target.shards, *(at and at.shards for at in places))
        )

    @property
    def without_values(self) -> tuple[str, ...]:
        """Sides, "golden" or "target", of which not all values were saved: of each part of what is joined."""
        return tuple(
            side
            for side, records in self._recorded().items()
            if any(record.location is None for record in records)
        )

    def _recorded(self) -> dict[str, tuple[TensorRecord, ...]]:
        """Return what was recorded of either side: one tensor, or the parts of what is joined."""
        golden = () if self.joining is Joining.REARRANGED else self.golden_parts
        return {"golden": golden or (self.golden,), "target": self.target_parts or (self.target,)}

    @property
    def parts(self) -> Parts:
        """What its joined tensor is joined from, and how."""
        return Parts(
            self.golden_parts or self.target_parts,
            are_golden=bool(self.golden_parts),
            summed=self.joining is Joining.SUMMED,
            rotated=self.joining is Joining.ROTATED,
            of_experts=self.joining is Joining.OF_EXPERTS,
            stacked=self.joining is Joining.STACKED,
            rearranged=self.joining is Joining.REARRANGED,
            witnesses=self.witnesses,
        )

    @property
    def data_bytes(self) -> int:
        """An estimate, made from records alone, of how much data is read to measure the pair."""
        if self.incomparable is not None or (self.golden.location is None and not self.golden_parts):
            return 0
        records = [*chain.from_iterable(self._recorded().values())]
        if any(record.location is None for record in records):
            return 0
        return sum(record.data_bytes for record in records)


class UnmatchedTensor(Struct, frozen=True, gc=False):
    """A tensor of a matched node that has no partner on the other side."""

    match: int
    node: str
    record: TensorRecord

    @property
    def place(self) -> tuple[str, str]:
        """The name of its node, and its label."""
        return self.node, self.record.label


class ToCompare(Struct, frozen=True, gc=False):
    """What of a golden slice there is to compare.

    Attributes:
        aside: names of the golden nodes that are not among it: no tensor of them was recorded, they were not
            asked for, or the target dump records nothing of their kind.
        outputs: what holds what the model gives, as (golden node, label of the tensor); any of them tells it.
        before: what holds what the node that gives it is given, likewise.
        target_nodes: how many nodes of the target dump recorded a tensor.
        alike: golden nodes without partner, and one with a partner that gives the same values.
    """

    aside: tuple[str, ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()
    before: tuple[tuple[str, str], ...] = ()
    target_nodes: int = 0
    alike: tuple[tuple[str, str], ...] = ()


class SlicePlan(Struct, frozen=True):
    """What corresponds to what in one pair of slices.

    Every node of both slices is in exactly one match or in one of the unmatched lists; every tensor
    of a matched node is in exactly one pair or one of the unmatched tensor lists, but for what the parts
    of a fused node share: that is in one pair with each of them.

    Attributes:
        golden: which golden slice; likewise target.
        matches: in the order of the target nodes.
        pairs: what is compared.
        unmatched_golden: names of the golden nodes left over; likewise unmatched_target.
        unmatched_golden_tensors: tensors of matched nodes left over; likewise unmatched_target_tensors.
        notes: remarks, such as which entries of a mapping file matched nothing, and why.
        to_compare: what there is to compare; None of a plan of an earlier version.
    """

    golden: SliceListing
    target: SliceListing
    matches: tuple[NodeMatch, ...]
    pairs: tuple[TensorPair, ...]
    unmatched_golden: tuple[str, ...]
    unmatched_target: tuple[str, ...]
    unmatched_golden_tensors: tuple[UnmatchedTensor, ...] = ()
    unmatched_target_tensors: tuple[UnmatchedTensor, ...] = ()
    notes: Messages = ()
    to_compare: ToCompare | None = None


class SlicePairing(Struct, frozen=True):
    """Which slices of two dumps are compared with each other, and which are left over."""

    pairs: tuple[tuple[SliceListing, SliceListing], ...]
    unmatched_golden: tuple[Coordinates, ...]
    unmatched_target: tuple[Coordinates, ...]
    notes: Messages = ()


class MatchingRules(Struct, frozen=True):
    """Which rules may be used, and what the user said about slices.

    Attributes:
        exact: same path, direction and call under matched ancestors.
        fuzzy: same path inside a matched module, call numbers ignored but order kept.
        mappings: what mapping files say; it wins over every other rule but the edits.
        edits: what people said of single nodes, in order; it is laid over what the rules have found.
        structure: order-preserving alignment of the children of matched parents.
        step: compare only this step.
        rank: compare only this rank.
        token: compare only this token.
        token_offset: golden token n is compared with target token n + offset.
        golden_layout: over how many ranks the golden model is spread; None to find out, where the dumps
            have other numbers of ranks. Likewise target_layout.
    """

    exact: bool = True
    fuzzy: bool = False
    structure: bool = True
    step: int | None = None
    rank: int | None = None
    token: int | None = None
    token_offset: int = 0
    mappings: tuple[MappingFile, ...] = ()
    golden_layout: Layout | None = None
    target_layout: Layout | None = None
    edits: tuple[Edit, ...] = ()
