"""What is wrong with values that somebody sent, or set."""

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict

from firstdrift.errors import SettingsError
from firstdrift.paths import spelt
from firstdrift.wording.message import Message, joined, verbatim
from firstdrift.wording.text import text_of

PathText = Annotated[str, BeforeValidator(lambda given: spelt(given) if isinstance(given, str) else given)]
"""A path as a client writes it; what of it no UTF-8 can be, as "\\udcb2" in JSON may say, is `spelt`."""

_LONGEST_NUMBER: Final = 9
"""Far beyond any id, row or place."""

MOST: Final = 5
"""So many problems are told at once."""


class Sent(BaseModel):
    """What a client sends: it says what is known here, and nothing else."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class InvalidValueError(ValueError):
    """A value that makes no sense, found by a validator of ours.

    Attributes:
        message: why.
    """

    def __init__(self, message: Message) -> None:
        """Keep what is to be said."""
        super().__init__(text_of(message))
        self.message = message


def require_known(value: str, known: Collection[str], otherwise: Message) -> None:
    """Refuse what is none of the known values, and list them."""
    if value not in known:
        raise SettingsError(otherwise, hint=Message.of("server.choose_one_of", names=tuple(known)))


def read_number(text: str | None, name: str) -> int | None:
    """Read a whole number from an address; None if there is none."""
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER):
        raise SettingsError(Message.of("server.not_a_number", name=name, text=text[:20]))
    return int(text)


def complaint(problems: Iterable[Mapping[str, Any]], *, without: int = 0) -> Message:
    """Say what is wrong, as Pydantic lists it, without the first steps of places, such as "query"."""
    return joined(*(_problem(problem, without) for problem in islice(problems, MOST)))


def _problem(problem: Mapping[str, Any], without: int) -> Message:
    name = ".".join(map(str, problem["loc"][without:]))
    known = _KNOWN.get(problem["type"])
    if known is None:
        return Message.of("server.invalid_value", name=name, why=verbatim(problem["msg"]))
    message, told = known
    return Message(message, {"name": name} | ({"limit": problem["ctx"][told]} if told else {}))


_NO_INTEGER: Final = ("server.no_integer", "")
_KNOWN: Final[Mapping[str, tuple[str, str]]] = {
    "missing": ("server.missing_value", ""),
    "int_parsing": _NO_INTEGER,
    "int_parsing_size": _NO_INTEGER,
    "int_type": _NO_INTEGER,
    "int_from_float": _NO_INTEGER,
    "greater_than_equal": ("server.too_small", "ge"),
    "less_than_equal": ("server.too_large", "le"),
    "enum": ("server.not_one_of", "expected"),
    "literal_error": ("server.not_one_of", "expected"),
    "string_too_long": ("server.too_long", "max_length"),
    "too_long": ("server.too_many_entries", "max_length"),
}
"""By the type of a problem: what is said, and what of what is known is its limit."""
