"""Matches as fields of a form."""

import msgspec

from firstdrift.errors import SettingsError
from firstdrift.matching.manual.edits import Edit, match
from firstdrift.wording.message import Message

MOST_ACCEPTED = 20
"""So many matches are accepted at once."""


def written_edit(edit: Edit) -> str:
    """Write a match as a field."""
    return msgspec.json.encode({"golden": edit.golden, "target": edit.target}).decode()


def read_edits(written: list[str]) -> tuple[Edit, ...]:
    """Read the matches that were chosen.

    Raises:
        SettingsError: there are none, too many, or what was sent is none.
    """
    if not 0 < len(written) <= MOST_ACCEPTED:
        raise SettingsError(Message.of("server.no_matches_chosen", most=MOST_ACCEPTED))
    return tuple(map(_edit, written))


def _edit(written: str) -> Edit:
    try:
        names = msgspec.json.decode(written, type=dict[str, list[str]])
    except msgspec.DecodeError as error:
        raise SettingsError(Message.of("server.no_matches_chosen", most=MOST_ACCEPTED)) from error
    return match(names.get("golden", ()), names.get("target", ()))
