"""Where dumps lie and what they are, asked of child processes: recognising one opens its files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from firstdrift.dumps.detect import dumps_below, open_dump, recognise
from firstdrift.dumps.storage.folders import sub_folders
from firstdrift.errors import DumpError, PathOutsideRootsError
from firstdrift.matching.manual.edits import MatchSetFile
from firstdrift.matching.manual.match_set_file import parse_matches, read_matches
from firstdrift.matching.plan import MatchingRules
from firstdrift.matching.slice_selection import require_chosen_slices
from firstdrift.paths import inside
from firstdrift.wording.message import Message

DEEPEST = 3
"""So many folders that hold nothing but one folder are opened to find the dump."""


def recognised(path: Path) -> tuple[str, tuple[Message, ...]]:
    """Return the format of the dump at a path, and the evidence for it.

    Raises:
        DumpError: there is no dump, and why.
    """
    found = recognise(path)
    if found is None:
        dump = open_dump(path)  # says why not
        return dump.format, dump.evidence
    return found


def real_dump(roots: Sequence[Path], wanted: str) -> Path:
    """Return the real path of a dump under the roots.

    Raises:
        PathOutsideRootsError: it leads elsewhere.
        DumpError: there is no dump, and why.
    """
    path = inside(roots, wanted)
    recognised(path)
    return path


def require_chosen(golden: Path, target: Path, chosen: MatchingRules) -> None:
    """Make sure that both dumps have the step, rank and token that were chosen.

    Raises:
        SettingsError: one has not, and what it has.
        DumpError: a file that all else hangs on is damaged.
    """
    require_chosen_slices(open_dump(golden), open_dump(target), chosen)


def said_by_files(files: Sequence[Path], roots: Sequence[Path]) -> MatchSetFile:
    """Read mapping files and match sets under the roots.

    Raises:
        SettingsError: a file cannot be read, or says something that makes no sense.
    """
    return read_matches(files, within=roots)


def said_by_text(name: str, text: str) -> MatchSetFile:
    """Read the text of a mapping file or match set.

    Raises:
        SettingsError: it makes no sense, and where.
    """
    return parse_matches(Path(name), text)


def dump_in(landed: Path) -> dict[str, Any]:
    """Say which dump lies in a folder, or alone in it; without one its format is null.

    `holds` names the dumps below a folder that holds several: one of them is to be chosen. Where that is
    empty too, there is no dump in it, and `problem` says why.
    """
    folder, found = _alone_in(landed)
    below = dumps_below(landed) if found is None else []
    if len(below) == 1 and (found := recognise(below[0])):
        folder = below[0]
    dump_format, evidence = found or (None, ())
    return {
        "path": str(folder if found else landed),
        "format": dump_format,
        "evidence": evidence,
        "holds": [] if found else [str(one.relative_to(landed)) for one in below],
        "problem": why_none(landed, found, below),
    }


def _alone_in(landed: Path) -> tuple[Path, tuple[str, tuple[Message, ...]] | None]:
    """Open folders that hold nothing but one folder, as far as to a dump."""
    folder, found = landed, recognise(landed)
    for _ in range(DEEPEST):
        inner = sub_folders(folder) if found is None else []
        if len(inner) != 1:
            break
        folder, found = inner[0], recognise(inner[0])
    return folder, found


def why_none(path: Path, *found: object) -> Message | None:
    """Say why there is no dump at a path; None if there is one, or anything was found in it."""
    if any(found):
        return None
    try:
        open_dump(path)
    except DumpError as error:
        return error.message
    return None


def dumps_inside(roots: Sequence[Path], wanted: str) -> list[tuple[str, str]]:
    """Find the dumps in a folder under the roots that is none itself: path, and path from there.

    There are none where it cannot be looked into.
    """
    try:
        folder = inside(roots, wanted)
        found = dumps_below(folder) if folder.is_dir() else []
    except (OSError, PathOutsideRootsError):
        return []
    return [(str(dump), str(dump.relative_to(folder))) for dump in found]
