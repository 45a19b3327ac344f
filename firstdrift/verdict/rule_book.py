"""The tables of rules as people read them: what explains an error, a node is called, and a whole run has."""

from collections.abc import Mapping
from typing import Final

from firstdrift.verdict.classes import ALL_CLASS_RULES
from firstdrift.verdict.explanations import BOUNDS, FACTORS, FLOORS
from firstdrift.verdict.fixed_thresholds import DOCUMENT
from firstdrift.verdict.rule import Rule
from firstdrift.verdict.systematic import SYSTEMATIC_RULES
from firstdrift.wording.message import Message

__all__ = ["DOCUMENT", "ENTRIES", "TABLES", "title_of"]

TABLES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "bounds": BOUNDS,
    "factors": FACTORS,
    "floors": FLOORS,
    "classes": ALL_CLASS_RULES,
    "systematic": SYSTEMATIC_RULES,
}
"""The rules of each table in the order in which they are asked."""

ENTRIES: Final[Mapping[str, Rule]] = {rule.name: rule for table in TABLES.values() for rule in table}
"""The rules by name."""


def title_of(table: str) -> Message:
    """Say what a table holds."""
    return Message.of(f"rule.table.{table}")
