"""How much of the golden dump was compared, in numbers."""

from collections.abc import Sequence
from operator import add
from typing import Self

from msgspec import Struct

from firstdrift.groups import known
from firstdrift.verdict.fixed_thresholds import LEAST_COVERED
from firstdrift.wording.message import Message


class Tally(Struct, frozen=True):
    """Counts of a slice, which add up to those of several."""

    def __add__(self, other: Self) -> Self:
        """Add field by field."""
        return type(self)(*map(add, self.values(), other.values()))

    def values(self) -> tuple[int, ...]:
        """Give the counts in the order of the fields."""
        return tuple(getattr(self, name) for name in self.__struct_fields__)


class Coverage(Tally, frozen=True):
    """What of a slice, or of several, was compared.

    Attributes:
        nodes: golden nodes that there are to compare.
        compared_nodes: how many of them were.
        backward_nodes: how many of the nodes are of the backward pass, gradients of parameters included;
            likewise compared_backward_nodes.
        outputs: 1 for each slice of which the golden dump tells what the model gives.
        compared_outputs: of how many slices that was compared.
        before_outputs: of how many of these it was what the head is given, as the target has logits of the
            last token alone, and nothing tells these of the golden run.
        target_nodes: how many nodes of the target dump recorded a tensor.
        outputs_alone: of how many slices the golden dump holds what the model gives and nothing else, though
            the target dump holds more: nothing of the way to it was compared.
        left_out: how many slices of the golden dump were not compared.
        unmatched_golden: how many golden nodes have no match, in slices that were compared; likewise
            unmatched_target.
        unmatched_beside: golden nodes without a match that are not among `nodes`: that they were not compared
            hinders no verdict, and is said all the same.
    """

    nodes: int = 0
    compared_nodes: int = 0
    backward_nodes: int = 0
    compared_backward_nodes: int = 0
    outputs: int = 0
    compared_outputs: int = 0
    before_outputs: int = 0
    target_nodes: int = 0
    outputs_alone: int = 0
    left_out: int = 0
    unmatched_golden: int = 0
    unmatched_target: int = 0
    unmatched_beside: int = 0

    @property
    def has_nodes(self) -> bool:
        """Whether enough of the nodes was compared, of either pass."""
        forward = self.nodes - self.backward_nodes, self.compared_nodes - self.compared_backward_nodes
        passes = forward, (self.backward_nodes, self.compared_backward_nodes)
        return all(compared >= LEAST_COVERED.value * nodes for nodes, compared in passes)

    @property
    def has_outputs(self) -> bool:
        """Whether what the model gives was compared."""
        return self.compared_outputs == self.outputs

    @property
    def is_enough(self) -> bool:
        """Whether enough was compared to say that two runs agree, where nothing differs."""
        return self.has_nodes and self.has_outputs

    @property
    def is_one_tensor(self) -> bool:
        """Whether each dump is of one node, and that was compared: two tensors, and no model."""
        return self.nodes == self.compared_nodes == self.target_nodes == 1

    @property
    def said(self) -> Message:
        """How much was compared, as a clause."""
        said = self._said_of_compared
        if self.unmatched_golden or self.unmatched_target:
            unmatched = {"golden": self.unmatched_golden, "target": self.unmatched_target}
            said = Message.of("coverage.unmatched", said=said, **unmatched)
        if not self.left_out:
            return said
        return Message.of("coverage.left_out", said=said, slices=self.left_out)

    @property
    def _said_of_compared(self) -> Message:
        if self.is_one_tensor:
            return Message.of("coverage.one_tensor")
        there = self.nodes + self.unmatched_beside
        nodes = Message.of("coverage.nodes", nodes=there, compared=self.compared_nodes)
        if not self.outputs:
            return Message.of("coverage.no_outputs_recorded", nodes=nodes)
        if not self.compared_outputs:
            return Message.of("coverage.without_outputs", nodes=nodes)
        if not self.has_outputs:
            given = Message.of("coverage.slices", slices=self.outputs, compared=self.compared_outputs)
            return Message.of("coverage.some_outputs", nodes=nodes, given=given)
        if self.outputs_alone:
            return Message.of("coverage.outputs_alone", nodes=nodes)
        return Message.of(
            "coverage.with_hidden" if self.before_outputs else "coverage.with_outputs", nodes=nodes
        )


def whole_coverage(slices: Sequence[Coverage | None], left_out: int = 0) -> Coverage | None:
    """Add up what was compared of all slices; None if it is not known of one.

    Args:
        slices: what was compared of each.
        left_out: how many slices of the golden dump were not compared.
    """
    told = known(slices)
    return sum(told, Coverage(left_out=left_out)) if told and len(told) == len(slices) else None
