"""Both tables of rules as people read them: what explains an error, and what a node is called."""

from typing import Final

from msgspec import Struct

from firstdrift.verdict.classes import ALL_CLASS_RULES
from firstdrift.verdict.explanations import BOUNDS, FACTORS, FLOORS, Explanation
from firstdrift.verdict.judgement import NodeClass
from firstdrift.wording.message import Message

DOCUMENT: Final = "docs/verdict.md"


class Entry(Struct, frozen=True):
    """An entry of a table.

    Attributes:
        name: "class.source", as rows keep it.
        why: one sentence of why.
        place: the heading, or the bold word, of docs/verdict.md where it is described.
        thresholds: names of the thresholds that it goes by.
        node_class: what a node is called by it; None of what explains an error.
    """

    name: str
    why: Message
    place: str
    thresholds: tuple[str, ...]
    node_class: NodeClass | None = None


def _entry(one: Explanation) -> Entry:
    return Entry(one.name, one.why, one.place, one.thresholds)


TABLES: Final = {
    "bounds": tuple(map(_entry, BOUNDS)),
    "factors": tuple(map(_entry, FACTORS)),
    "floors": tuple(map(_entry, FLOORS)),
    "classes": tuple(
        Entry(one.name, one.why, one.place, one.thresholds, one.node_class) for one in ALL_CLASS_RULES
    ),
}
"""The entries of each table in the order in which they are asked."""

ENTRIES: Final = {entry.name: entry for table in TABLES.values() for entry in table}
"""The entries by name."""


def title_of(table: str) -> Message:
    """Say what a table holds."""
    return Message.of(f"rule.table.{table}")
