"""Read the files in which match sets are kept, and mapping files of other tools beside them.

{"firstdrift_match_set": 1,
 "name": "renamed MLPs",
 "edits": [{"kind": "match", "golden": ["..."], "target": ["..."], "descendants": true}],
 "mappings": []}
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec

from firstdrift.errors import SettingsError
from firstdrift.matching.manual.edits import MatchSetFile, checked
from firstdrift.matching.manual.mapping_files import parse_mapping, read_mapping_text
from firstdrift.matching.manual.thresholds import DEEPEST
from firstdrift.wording.message import Message, verbatim

MARK: Final = "firstdrift_match_set"
"""The key that tells a match set from mapping files; its value is the version of the format."""

FORMAT: Final = 1


def read_matches(files: Iterable[Path], *, within: Sequence[Path] | None = None) -> MatchSetFile:
    """Read mapping files and match sets, and put together what they say, in their order.

    Each must lie below one of the real paths of `within`, where whoever asks sees no more of these files than
    what is answered. None: the files are those of whoever asks.

    Raises:
        SettingsError: a file cannot be read, or says something that makes no sense.
        PathOutsideRootsError: one lies elsewhere.
    """
    sets = [
        parse_matches(*read_mapping_text(path, within=within), may_quote=within is None) for path in files
    ]
    return MatchSetFile(
        name=", ".join(each.name for each in sets),
        edits=tuple(chain.from_iterable(each.edits for each in sets)),
        mappings=tuple(chain.from_iterable(each.mappings for each in sets)),
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
        document = json.loads(text)
        _require_format(document, path)
        match_set = msgspec.convert({"name": path.name} | document, MatchSetFile)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        reason = Message.of("matching.match_set.unreadable", why=verbatim(str(error)))
        raise SettingsError(reason, path=path) from error
    for number, edit in enumerate(match_set.edits, 1):
        try:
            checked(edit)
        except SettingsError as error:
            reason = Message.of("matching.match_set.edit", number=number, why=error.message)
            raise SettingsError(reason, path=path, hint=error.advice) from error
    return match_set


def _is_match_set(text: str) -> bool:
    """Tell by the text alone, so that a damaged match set is not taken for a damaged mapping."""
    return text.lstrip().startswith("{") and f'"{MARK}"' in text


def _require_format(document: Any, path: Path) -> None:  # noqa: ANN401 (what JSON has)
    """Refuse what is laid out otherwise than a match set, before it is read."""
    if (why := _shape_problem(document)) is not None:
        raise SettingsError(Message.of("matching.match_set.unreadable", why=why), path=path)
    if MARK not in document:
        raise SettingsError(Message.of("matching.match_set.no_mark", mark=MARK), path=path)
    if document[MARK] != FORMAT:
        which = document[MARK] if isinstance(document[MARK], int) else "?"
        reason = Message.of("matching.match_set.other_format", format=which, known=FORMAT)
        raise SettingsError(reason, path=path, hint=Message.of("matching.hint.newer_version"))


def _shape_problem(document: Any) -> Message | None:  # noqa: ANN401 (what JSON has)
    """Say what is wrong with the layout of a match set: no object, or one too deep."""
    if not isinstance(document, Mapping | list):
        return Message.of("matching.match_set.no_object")
    return Message.of("matching.match_set.too_deep") if _depth(document) > DEEPEST else None


def _depth(document: Any) -> int:  # noqa: ANN401 (what JSON has)
    """Return how many levels of objects and lists lie in each other, counted no further than the deepest."""
    level, depth = [document], 0
    while level and depth <= DEEPEST:
        inner = (held.values() if isinstance(held, Mapping) else held for held in level)
        level = [value for values in inner for value in values if isinstance(value, Mapping | list)]
        depth += 1
    return depth
