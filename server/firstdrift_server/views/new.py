"""The form for a new comparison: two folder browsers, the options, and the command that does the same."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from firstdrift.comparison.levels import LEVELS
from firstdrift.comparison.report import Options
from firstdrift.errors import FirstdriftError, PathOutsideRootsError
from firstdrift.paths import inside
from firstdrift.verdict.judge import RULES
from firstdrift_server.choices import Choice, require_slices
from firstdrift_server.views.command_line import compare_command
from firstdrift_server.views.folders import describe_choice, list_folder

SIDES = ("golden", "target")


def new_view(roots: Sequence[Path], fields: Mapping[str, str]) -> dict[str, Any]:
    """Lay the form out as far as it has been filled in; what is wrong with a field stands beside it."""
    options, problem = _options(fields)
    golden, target = (fields.get(side, "").strip() for side in SIDES)
    sides = [_side(roots, side, fields) for side in SIDES]
    chosen = [Path(side["entry"].path) for side in sides if side["entry"] is not None]
    if problem is None and len(chosen) == len(SIDES):
        problem = _missing(chosen[0], chosen[1], options)
    return {
        "fields": {name: fields.get(name, "") for name in Choice.model_fields},
        "sides": sides,
        "is_same": len(chosen) == len(SIDES) and len(set(chosen)) == 1,
        "options": options,
        "rule_sets": RULES,
        "levels": LEVELS,
        "command": compare_command(golden, target, options),
        "roots": [str(root) for root in roots],
        "problem": problem,
        "hint": "",
    }


def _options(fields: Mapping[str, str]) -> tuple[Options, str | None]:
    try:
        return Choice.from_fields(fields).options(), None
    except FirstdriftError as error:
        return Options(), error.reason


def new_address(golden: str, target: str, options: Options, note: str = "") -> str:
    """Return the address of the form filled in with these choices."""
    matching = options.matching
    fields: dict[str, object] = {"golden": golden, "target": target, "rules": options.rules, "note": note}
    fields |= {"level": options.level, "token_offset": matching.token_offset or None}
    fields |= {name: getattr(matching, name) for name in ("step", "rank", "token")}
    for box in ("fuzzy", "structure"):
        fields |= {f"{box}_box": 1, box: "yes" if getattr(matching, box) else None}
    return f"/new?{urlencode({name: value for name, value in fields.items() if value not in (None, '')})}"


def _missing(golden: Path, target: Path, options: Options) -> str | None:
    try:
        require_slices(golden, target, options)
    except FirstdriftError as error:
        return error.reason
    return None


def _side(roots: Sequence[Path], side: str, fields: Mapping[str, str]) -> dict[str, Any]:
    chosen, problem, hint = fields.get(side, "").strip(), None, ""
    entry = folder = None
    try:
        entry = describe_choice(roots, chosen)
    except FirstdriftError as error:
        problem, hint = error.reason, error.hint
    try:
        folder = list_folder(roots, _shown_folder(roots, side, fields))
    except FirstdriftError as error:
        folder = list_folder(roots, "")
        problem = problem or error.reason

    def address(**changed: str) -> str:
        kept = {name: value for name, value in fields.items() if value}
        return f"/new?{urlencode(kept | changed)}"

    return {
        "side": side,
        "path": chosen,
        "entry": entry,
        "problem": problem,
        "hint": hint,
        "folder": folder,
        "at": folder.itself.path if folder.itself else "",
        "addresses": {
            shown.path: {
                "open": address(**{f"{side}_at": shown.path}),
                "choose": address(**{side: shown.path, f"{side}_at": str(Path(shown.path).parent)}),
            }
            for shown in (*folder.entries, *folder.above, *((folder.itself,) if folder.itself else ()))
        },
        "top": address(**{f"{side}_at": ""}),
    }


def _shown_folder(roots: Sequence[Path], side: str, fields: Mapping[str, str]) -> str:
    """Show the folder that was opened; else the one the chosen dumps lie in; else the top."""
    if f"{side}_at" in fields:
        return fields[f"{side}_at"]
    chosen = next((fields[name].strip() for name in (side, *SIDES) if fields.get(name, "").strip()), "")
    parent = Path(chosen).parent
    try:
        is_listed = bool(chosen) and inside(roots, parent).is_dir()
    except (OSError, PathOutsideRootsError):  # a folder that may not be looked into, or none at all
        is_listed = False
    return str(parent) if is_listed else ""
