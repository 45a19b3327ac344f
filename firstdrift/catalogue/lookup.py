"""What looking up and adding have in common: entries become records, and what is not there has an error."""

from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar

from msgspec import Struct
from sqlalchemy import ColumnElement, SQLColumnExpression
from sqlalchemy.orm import Session

from firstdrift.errors import NotInCatalogueError
from firstdrift.groups import fields_of, not_in
from firstdrift.paths import unspelt
from firstdrift.wording.message import Message

Made = TypeVar("Made", bound=Struct)
Found = TypeVar("Found")


def record_of(kind: type[Made], entry: Any, **others: Any) -> Made:  # noqa: ANN401 (an entry, or columns)
    """Make a record of the columns that are called as its fields are, and of what else is given."""
    return kind(**fields_of(entry, _columns(kind, *others)), **others)


@cache
def _columns(kind: type[Struct], *others: str) -> tuple[str, ...]:
    return tuple(not_in(kind.__struct_fields__, others))


def mentions(word: str, columns: Iterable[SQLColumnExpression[str]]) -> list[ColumnElement[bool]]:
    """Ask of each column whether it contains a word, upper or lower case, as it was typed or is kept."""
    words = dict.fromkeys((word, unspelt(word)))
    return [column.icontains(each, autoescape=True) for each in words for column in columns]


def required(found: Found | None, absence: Message) -> Found:
    """Return what was found; None is a `NotInCatalogueError`."""
    if found is None:
        raise NotInCatalogueError(absence)
    return found


def added(session: Session, entry: Any) -> int:  # noqa: ANN401 (an entry with an id)
    """Add an entry; return its id."""
    session.add(entry)
    session.flush()
    made: int = entry.id
    return made
