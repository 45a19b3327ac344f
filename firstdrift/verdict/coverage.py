"""How much of the golden dump was compared, in numbers."""

from collections.abc import Sequence

from msgspec import Struct

from firstdrift.verdict.fixed_thresholds import LEAST_COVERED
from firstdrift.wording.message import Message


class Coverage(Struct, frozen=True):
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

    def __add__(self, other: "Coverage") -> "Coverage":
        """Add up two slices."""
        return Coverage(*(a + b for a, b in zip(self.values(), other.values(), strict=True)))

    def values(self) -> tuple[int, ...]:
        """Give the numbers in the order of the fields."""
        return tuple(getattr(self, name) for name in Coverage.__struct_fields__)

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
        return self.has_nodes and self.has_outputs and not self.outputs_alone

    @property
    def said(self) -> Message:
        """How much was compared, as a clause."""
        nodes = Message.of("coverage.nodes", nodes=self.nodes, compared=self.compared_nodes)
        if not self.outputs:
            return Message.of("coverage.no_outputs_recorded", nodes=nodes)
        if not self.compared_outputs:
            return Message.of("coverage.without_outputs", nodes=nodes)
        if not self.has_outputs:
            given = Message.of("coverage.slices", slices=self.outputs, compared=self.compared_outputs)
            return Message.of("coverage.some_outputs", nodes=nodes, given=given)
        return Message.of(
            "coverage.with_hidden" if self.before_outputs else "coverage.with_outputs", nodes=nodes
        )


def whole_coverage(known: Sequence[Coverage | None]) -> Coverage | None:
    """Add up what was compared of all slices; None if it is not known of one."""
    told = [one for one in known if one is not None]
    return sum(told, Coverage()) if told and len(told) == len(known) else None
