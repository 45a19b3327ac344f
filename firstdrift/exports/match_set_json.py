"""Write a match set as JSON that `--mapping` reads back; names may hold anything."""

from pathlib import Path
from typing import Any

from msgspec import to_builtins

from firstdrift.comparison.report import Report
from firstdrift.comparison.suggested_matches import suggested_matches
from firstdrift.matching.manual.edits import Edit, MatchSetFile
from firstdrift.matching.manual.match_set_file import FORMAT, MARK
from firstdrift.paths import encodable
from firstdrift.strict_json import to_json


def match_set_text(content: MatchSetFile) -> str:
    """Return the text of a match set file."""
    written: dict[str, Any] = {MARK: FORMAT} | to_builtins(content)
    for mapping in written["mappings"]:
        del mapping["may_quote"]
    return to_json(written, indent=1) + "\n"


def edit_object(edit: Edit) -> dict[str, Any]:
    """Describe an edit as JSON has it."""
    described: dict[str, Any] = to_builtins(edit)
    return described


def write_suggested_matches(report: Report, file: Path) -> int:
    """Write a draft of a match set: what may belong together, with scores, and what else is left over.

    Returns:
        How many matches it suggests.

    What is read back are the edits; scores and what is left over are there for whoever edits them.

    Raises:
        OSError: it cannot be written.
        DumpError: one of the dumps cannot be used any more.
    """
    found = suggested_matches(report)
    written = {
        MARK: FORMAT,
        "name": "",
        "edits": [edit_object(one.edit) | {"score": round(one.score, 2)} for one in found.matches],
        "mappings": [],
        "no_partner": {"golden": list(found.golden), "target": list(found.target)},
    }
    file.write_text(encodable(to_json(written, indent=1)) + "\n", "utf-8", newline="\n")
    return len(found.matches)
