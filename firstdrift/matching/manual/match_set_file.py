"""Read the files in which match sets are kept, and mapping files of other tools beside them.

{"firstdrift_match_set": 1,
 "name": "renamed MLPs",
 "edits": [{"kind": "match", "golden": ["..."], "target": ["..."], "descendants": true}],
 "mappings": []}
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from firstdrift.errors import SettingsError
from firstdrift.matching.manual.edits import MatchSetFile, checked
from firstdrift.matching.manual.mapping_files import parse_mapping, read_mapping_text

MARK: Final = "firstdrift_match_set"
"""The key that tells a match set from mapping files; its value is the version of the format."""

FORMAT: Final = 1

_DEEPEST: Final = 6


def read_matches(files: Iterable[Path], *, within: Sequence[Path] | None = None) -> MatchSetFile:
    """Read mapping files and match sets, and put together what they say, in their order.

    Args:
        files: where they lie.
        within: real paths, below one of which each must lie, for one who sees no more of these files than
            what is answered. None: the files are those of whoever asks.

    Raises:
        SettingsError: a file cannot be read, or says something that makes no sense.
        PathOutsideRootsError: one lies elsewhere.
    """
    read = [
        parse_matches(*read_mapping_text(path, within=within), may_quote=within is None) for path in files
    ]
    return MatchSetFile(
        name=", ".join(said.name for said in read),
        edits=tuple(edit for said in read for edit in said.edits),
        mappings=tuple(mapping for said in read for mapping in said.mappings),
    )


def parse_matches(path: Path, text: str, *, may_quote: bool = True) -> MatchSetFile:
    """Read what a file says: a match set, or a mapping file of any of the other tools.

    Unless an error may quote the text, a mapping must be one beyond doubt (`parse_mapping`).

    Raises:
        SettingsError: it makes no sense; the error names the file.
    """
    if not _is_match_set(text):
        return MatchSetFile(path.name, mappings=(parse_mapping(path, text, may_quote=may_quote),))
    try:
        said = json.loads(text)
        _refuse_depth(said)
        if MARK not in said:
            raise ValueError(f"{MARK} is no key of it")  # noqa: TRY301
        if said[MARK] != FORMAT:
            which = said[MARK] if isinstance(said[MARK], int) else "another"
            raise SettingsError(
                f"is a match set of format {which}, of which this version knows {FORMAT} only",
                path=path,
                hint="Read it with a newer firstdrift",
            )
        read = msgspec.convert({"name": path.name} | said, MatchSetFile)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise SettingsError(f"is no match set: {error}", path=path) from error
    for number, edit in enumerate(read.edits, 1):
        try:
            checked(edit)
        except SettingsError as error:
            raise SettingsError(f"edit {number}: {error.reason}", path=path, hint=error.hint) from error
    return read


def _is_match_set(text: str) -> bool:
    """Tell by the text alone, so that a damaged match set is not taken for a damaged mapping."""
    return text.lstrip().startswith("{") and f'"{MARK}"' in text


def _refuse_depth(said: Any, depth: int = 0) -> None:  # noqa: ANN401 (what JSON has)
    if depth > _DEEPEST:
        raise ValueError("it is nested too deeply")
    if isinstance(said, Mapping | list):
        for inner in said.values() if isinstance(said, Mapping) else said:
            _refuse_depth(inner, depth + 1)
    elif depth == 0:
        raise ValueError("it is no object")
