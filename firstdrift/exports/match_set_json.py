"""Write a match set as JSON that `--mapping` reads back; names may hold anything."""

from typing import Any

from msgspec import to_builtins

from firstdrift.matching.manual.edits import Edit, MatchSetFile
from firstdrift.matching.manual.match_set_file import FORMAT, MARK
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
