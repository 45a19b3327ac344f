"""Records that are kept in blocks: written some hundreds at a time, and found again by their places.

A place is what a block is numbered by: the order of a node, the index of a row or of a pair. Blocks may have
any length, for they are found by their first place.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct
from sqlalchemy import ColumnElement, FromClause, Select, select
from sqlalchemy.orm import Session

from firstdrift.catalogue.packing import Block
from firstdrift.groups import gathered

Kept = TypeVar("Kept", bound=Struct)
Item = TypeVar("Item")
Record_co = TypeVar("Record_co", covariant=True)
Blocks: TypeAlias = FromClause
"""A table whose rows are blocks: its key is whose they are, and their first place."""

_MOST_KEPT = 32
"""So many blocks are remembered by who reads here and there in them."""


def split(records: Sequence[Item], length: int) -> Iterator[tuple[int, Sequence[Item]]]:
    """Cut records into pieces of a length, each with the number of those before it."""
    for start in range(0, len(records), length):
        yield start, records[start : start + length]


def key_of(blocks: Blocks) -> tuple[ColumnElement[int], ColumnElement[int]]:
    """Return the columns that say whose a block is, and its first place."""
    owner, first = blocks.primary_key
    return owner, first


def contents(session: Session, blocks: Blocks, owner: int) -> Iterator[tuple[int, bytes]]:
    """Give all blocks of an owner in their order, as they come: first place and content."""
    found = session.execute(_select(blocks, owner).execution_options(yield_per=8))
    return ((first, content) for first, content in found)


def contents_at(
    session: Session, blocks: Blocks, owner: int, places: Iterable[int]
) -> Iterator[tuple[int, bytes]]:
    """Give the blocks of an owner in which some places are, in their order."""
    _, first = key_of(blocks)
    wanted = set(homes(firsts_of(session, blocks, owner), places).values())
    found = session.execute(_select(blocks, owner).where(first.in_(wanted))) if wanted else ()
    return ((first, content) for first, content in found)


def firsts_of(session: Session, blocks: Blocks, owner: int) -> Sequence[int]:
    """List the first places of the blocks of an owner."""
    of, first = key_of(blocks)
    return session.scalars(select(first).where(of == owner).order_by(first)).all()


def homes(firsts: Sequence[int], places: Iterable[int]) -> dict[int, int]:
    """Say in which block each place is, by its first place; a place before all blocks is in none."""
    return {place: firsts[at - 1] for place in places if (at := bisect_right(firsts, place))}


def _select(blocks: Blocks, owner: int) -> Select[int, bytes]:
    of, first = key_of(blocks)
    return select(first, blocks.c.content).where(of == owner).order_by(first)


class Opened(Protocol[Record_co]):
    """A block that was read."""

    def at(self, places: Sequence[int]) -> Mapping[int, Record_co]:
        """Look up the records at some places; those that there are none at are left out."""


class Numbered(Generic[Kept]):
    """A block whose records are numbered from its first place on."""

    def __init__(self, kind: type[Kept], first: int, content: bytes) -> None:
        """Open it."""
        self._first, self._block = first, Block(kind, content)
        self._known: dict[int, Kept] = {}

    def at(self, places: Sequence[int]) -> Mapping[int, Kept]:
        """Look up the records at some places."""
        here = [place for place in places if place - self._first < len(self._block)]
        new = [place for place in here if place not in self._known]
        self._known |= zip(new, self._block.at([place - self._first for place in new]), strict=True)
        return {place: self._known[place] for place in here}


class Reader(Generic[Record_co]):
    """Looks up records of an owner by their places, and remembers the blocks that it read last."""

    def __init__(
        self, session: Session, blocks: Blocks, owner: int, opened: Callable[[int, bytes], Opened[Record_co]]
    ) -> None:
        """Say how a block is opened, of which the first place and the content are given."""
        self._session, self._query, self._opened = session, _select(blocks, owner), opened
        _, self._first = key_of(blocks)
        self._firsts = firsts_of(session, blocks, owner)
        self._known: dict[int, Opened[Record_co]] = {}

    def at(self, places: Iterable[int]) -> dict[int, Record_co]:
        """Look up the records at some places; those that there are none at are left out."""
        of_blocks = gathered((first, place) for place, first in homes(self._firsts, places).items())
        self._read(of_blocks.keys() - self._known.keys())
        found: dict[int, Record_co] = {}
        for first, wanted in of_blocks.items():
            found |= self._known[first].at(wanted)
        for first in list(self._known)[:-_MOST_KEPT]:
            del self._known[first]
        return found

    def _read(self, firsts: Collection[int]) -> None:
        if firsts:
            for first, content in self._session.execute(self._query.where(self._first.in_(firsts))):
                self._known[first] = self._opened(first, content)
