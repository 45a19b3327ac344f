"""The rules by which nodes are judged, as text and as JSON."""

from typing import Any

from firstdrift.groups import fields_of
from firstdrift.verdict.movable_thresholds import DEFAULTS
from firstdrift.verdict.rule import Rule
from firstdrift.verdict.rule_book import DOCUMENT, TABLES, title_of
from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of


def rules_text() -> str:
    """Return both tables in order: the name of each rule, its sentence, its thresholds, its place."""
    lines: list[str] = []
    for table, entries in TABLES.items():
        lines += [f"{text_of(title_of(table))}:", ""]
        for entry in entries:
            lines += _lines(entry)
        lines.append("")
    return "\n".join(lines)


def _lines(entry: Rule) -> list[str]:
    called = f" ({entry.node_class})" if entry.node_class is not None else ""
    document = Message.of("rule.table.document", document=DOCUMENT, place=entry.place)
    lines = [f"  {entry.name}{called}", f"      {text_of(entry.why)}"]
    known = [f"{name}={getattr(DEFAULTS, name):g}" for name in entry.thresholds]
    if known:
        lines.append(f"      {text_of(Message.of('rule.table.thresholds', thresholds=tuple(known)))}")
    return [*lines, f"      {text_of(document)}"]


def rules_object() -> dict[str, Any]:
    """Return both tables in order, as JSON objects."""
    return {table: list(map(_object, entries)) for table, entries in TABLES.items()}


def _object(entry: Rule) -> dict[str, Any]:
    return {
        "name": entry.name,
        "why": entry.why,
        "class": None if entry.node_class is None else entry.node_class.value,
        "thresholds": fields_of(DEFAULTS, entry.thresholds),
        "document": DOCUMENT,
        "place": entry.place,
    }
