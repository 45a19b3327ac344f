"""What the entries of both tables of rules have in common."""

from typing import ClassVar

from msgspec import Struct

from firstdrift.verdict.judgement import NodeClass
from firstdrift.wording.message import Message


class Rule(Struct, frozen=True):
    """An entry of a table of rules; its sentence stands in `wording/rule_sentences/`.

    Attributes:
        id: what it is called, within its kind.
        place: the heading, or the bold word, of docs/verdict.md where it is described.
        thresholds: names of the thresholds that it goes by.
        node_class: what a node is called by it; None of what explains an error.
    """

    id: str
    place: str
    thresholds: tuple[str, ...] = ()
    node_class: NodeClass | None = None

    kind: ClassVar[str]

    @property
    def name(self) -> str:
        """What rows keep of it: "explanation.input", "class.source"."""
        return f"{self.kind}.{self.id}"

    @property
    def why(self) -> Message:
        """One sentence of why."""
        return Message.of(f"rule.{self.name}")
