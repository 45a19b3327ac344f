"""Write a match set as JSON that `--mapping` reads back; names may hold anything."""

from typing import Any

from firstdrift.matching.manual.edits import Edit, MatchSetFile
from firstdrift.matching.manual.mapping import MappingFile
from firstdrift.matching.manual.match_set_file import FORMAT, MARK
from firstdrift.strict_json import to_json


def match_set_text(said: MatchSetFile) -> str:
    """Return the text of a match set file."""
    written = {
        MARK: FORMAT,
        "name": said.name,
        "edits": [edit_object(edit) for edit in said.edits],
        "mappings": [_mapping_object(mapping) for mapping in said.mappings],
    }
    return to_json(written, indent=1) + "\n"


def edit_object(edit: Edit) -> dict[str, Any]:
    """Describe an edit as JSON has it."""
    return {
        "kind": edit.kind.value,
        "golden": list(edit.golden),
        "target": list(edit.target),
        "descendants": edit.descendants,
    }


def _mapping_object(mapping: MappingFile) -> dict[str, Any]:
    return {
        "name": mapping.name,
        "kind": mapping.kind.value,
        "entries": [
            {"line": entry.line, "target": entry.target, "golden": list(entry.golden), "scope": entry.scope}
            for entry in mapping.entries
        ],
    }
