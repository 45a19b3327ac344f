"""Dumps that were indexed, so that what lies in them is known without reading their files again."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct
from sqlalchemy import Row, Select, SQLColumnExpression, func, or_, select
from sqlalchemy.orm import Session

from firstdrift.catalogue.dumps.nodes import PackedNodes, add_blocks, all_nodes, nodes_named, pack_nodes
from firstdrift.catalogue.lookup import added, mentions, record_of, required
from firstdrift.catalogue.tables import DumpEntry, SliceEntry
from firstdrift.dumps.storage.fingerprints import digest_and_date
from firstdrift.errors import DumpNotFoundError
from firstdrift.groups import fields_of, not_in
from firstdrift.model.node import Node
from firstdrift.model.slice import (
    RECORDED_ORDER,
    Coordinates,
    Dump,
    OrderOrigin,
    Problem,
    Slice,
    SliceListing,
    Unfinished,
)
from firstdrift.wording.message import Message

INDEX_VERSION = 13
"""Counts up when readers find other things than before, so that an old index is not taken for new."""


IS_AS_IT_WAS = SliceEntry.position >= 0
"""Of slices that are as they were when their dump was indexed last."""


class DumpOrder(StrEnum):
    """Which dumps of a list come first."""

    NEWEST = "newest"
    NAME = "name"
    FORMAT = "format"


_ORDERS: dict[DumpOrder, SQLColumnExpression[Any]] = {
    DumpOrder.NEWEST: DumpEntry.indexed_at.desc(),
    DumpOrder.NAME: DumpEntry.path,
    DumpOrder.FORMAT: DumpEntry.format,
}


class IndexedDump(Struct, frozen=True):
    """A dump as it was when it was indexed.

    Attributes:
        fingerprint: of its files at that time.
        slices: how many it holds.
    """

    id: int
    path: Path
    format: str
    evidence: tuple[Message, ...]
    attributes: dict[str, str | Message]
    problems: tuple[Problem, ...]
    fingerprint: str
    indexed_at: datetime
    slices: int


class IndexedSlice(Struct, frozen=True):
    """A slice of an indexed dump.

    Attributes:
        position: by which it is named.
        order_origin: how the order of its nodes is known; None until they are indexed.
        problems: what could not be used of it; with `nodes` None, why it could not be read at all.
        nodes: how many; None until they are indexed.
        tensors: how many, Python scalars not counted; None until they are indexed.
        merged: how it was merged from the slices of ranks; None if it lies in the dump.
        files: by which its files are told from what they were; None if that is not known.
        unfinished: what shows that it is still being written; None if it is complete.
    """

    id: int
    dump_id: int
    position: int
    coordinates: Coordinates
    directory: Path
    order_origin: OrderOrigin | None
    problems: tuple[Problem, ...]
    nodes: int | None
    tensors: int | None
    merged: SliceListing | None = None
    files: str | None = None
    unfinished: Message | None = None

    @property
    def listing(self) -> SliceListing:
        """The slice as its reader lists it, or as it was merged."""
        return self.merged or SliceListing(self.coordinates, self.directory)


def fingerprint(path: Path) -> str:
    """Digest the names, sizes and modification times of all files of a dump, without opening any.

    The version of the index stands before the digest: an index of another version is made anew, though the
    files are the same.

    Raises:
        DumpNotFoundError: there is nothing at the path.
    """
    return fingerprint_and_date(path)[0]


def fingerprint_and_date(path: Path) -> tuple[str, float]:
    """Give the fingerprint of a dump, and when it was last written (seconds since 1970); raises likewise."""
    if not path.exists():
        raise DumpNotFoundError(Message.of("dumps.nothing_here"), path=path)
    digest, written = digest_and_date(path)
    return f"{INDEX_VERSION}:{digest}", written


def changed_since_indexed(dump: IndexedDump) -> bool:
    """Tell whether the files of a dump are other ones now, or are gone; looks at every file's date."""
    return changed_since(dump.path, dump.fingerprint)


def changed_since(path: Path, files: str) -> bool:
    """Tell likewise of the dump at a path that had a fingerprint, whatever indexed it then."""
    try:
        now = fingerprint(path)
    except DumpNotFoundError:
        return True
    return now.split(":")[1] != files.split(":")[1]


def get_dump(session: Session, dump_id: int) -> IndexedDump:
    """Look up an indexed dump."""
    found = session.execute(_dumps().where(DumpEntry.id == dump_id)).one_or_none()
    return _dump(required(found, Message.of("catalogue.no_dump", dump=dump_id)))


def list_dumps(
    session: Session, *, text: str = "", order: DumpOrder = DumpOrder.NEWEST, limit: int = 100, skip: int = 0
) -> tuple[IndexedDump, ...]:
    """List the dumps that are indexed, each as it was last.

    Args:
        session: a reading session.
        text: only those whose path or format contain each of its words, upper or lower case.
        order: which come first.
        limit: at most so many.
        skip: leave out so many, to go on with a list.
    """
    last = select(func.max(DumpEntry.id)).group_by(DumpEntry.path)
    asked = _dumps().where(DumpEntry.id.in_(last))
    for word in text.split():
        asked = asked.where(or_(*mentions(word, (DumpEntry.path, DumpEntry.format))))
    found = session.execute(asked.order_by(_ORDERS[order], DumpEntry.id.desc()).limit(limit).offset(skip))
    return tuple(map(_dump, found))


def find_dump(session: Session, path: Path, files: str) -> IndexedDump | None:
    """Look up the index of the dump at a path whose fingerprint is `files`."""
    here = (DumpEntry.path == str(path), DumpEntry.fingerprint == files)
    found = session.execute(_dumps().where(*here)).one_or_none()
    return None if found is None else _dump(found)


def add_dump(
    session: Session, dump: Dump, files: str, of_slices: Mapping[SliceListing, str] | None = None
) -> int:
    """Index a dump and its slices, without their nodes; return its id.

    `files` and `of_slices` tell the dump, and each of its slices, from what they are once they have changed.
    """
    entry = DumpEntry(
        path=str(dump.path),
        format=dump.format,
        fingerprint=files,
        evidence=dump.evidence,
        attributes=dict(dump.attributes),
        problems=dump.problems,
    )
    dump_id = added(session, entry)
    why = {one.listing: one.reason for one in dump.unfinished}
    told = of_slices or {}
    session.add_all(
        slice_entry(dump_id, position, listing, files=told.get(listing), unfinished=why.get(listing))
        for position, listing in enumerate((*dump.slices, *why))
    )
    session.flush()
    return dump_id


def add_merged_slices(session: Session, dump_id: int, listings: Iterable[SliceListing]) -> None:
    """Index slices that are merged from those of ranks, without their nodes; known ones are kept."""
    here = SliceEntry.dump_id == dump_id
    merged = (here, SliceEntry.merged.is_not(None), IS_AS_IT_WAS)
    known = set(session.scalars(select(SliceEntry.merged).where(*merged)))
    last = session.scalar(select(func.max(SliceEntry.position)).where(here)) or 0
    new = not_in(listings, known)
    session.add_all(
        _entry(dump_id, position, listing, merged=listing) for position, listing in enumerate(new, last + 1)
    )


def slice_entry(
    dump_id: int, position: int, listing: SliceListing, *, files: str | None, unfinished: Message | None
) -> SliceEntry:
    """Make the entry of a slice that lies in a dump, without its nodes."""
    own = {"rank": listing.coordinates.rank, "files": files, "unfinished": unfinished}
    return _entry(dump_id, position, listing, **own)


def _entry(dump_id: int, position: int, listing: SliceListing, **others: Any) -> SliceEntry:  # noqa: ANN401
    where = fields_of(listing.coordinates, ("step", "token", "micro_step"))
    place = {"dump_id": dump_id, "position": position, "directory": str(listing.directory)}
    return SliceEntry(problems=(), **place, **where, **others)


def load_dump(session: Session, dump_id: int) -> Dump:
    """Restore a dump as its reader gave it."""
    dump = get_dump(session, dump_id)
    slices = slices_of_dump(session, dump_id)
    own = [indexed for indexed in slices if indexed.merged is None]
    listings = tuple(indexed.listing for indexed in own if indexed.unfinished is None)
    unfinished = tuple(Unfinished(one.listing, one.unfinished) for one in own if one.unfinished is not None)
    told = dump.path, dump.format, dump.evidence, listings, dump.problems, dump.attributes
    return Dump(*told, unfinished=unfinished)


def has_unfinished(session: Session, dump_id: int) -> bool:
    """Tell whether a slice of a dump was still being written when it was indexed last."""
    here = (SliceEntry.dump_id == dump_id, IS_AS_IT_WAS, SliceEntry.unfinished.is_not(None))
    return session.scalar(select(SliceEntry.id).where(*here).limit(1)) is not None


def slices_of_dump(session: Session, dump_id: int) -> tuple[IndexedSlice, ...]:
    """List the slices of an indexed dump in the order of execution, then those merged from ranks."""
    return tuple(map(_slice, entries_of_dump(session, dump_id)))


def entries_of_dump(session: Session, dump_id: int) -> list[SliceEntry]:
    """List the entries of the slices of a dump as it was indexed last, in that order."""
    found = session.scalars(select(SliceEntry).where(SliceEntry.dump_id == dump_id, IS_AS_IT_WAS))
    return sorted(found, key=lambda one: (one.merged is not None, one.coordinates.sort_key(), one.position))


def ids_of_slices(session: Session, dump_id: int) -> dict[SliceListing, int]:
    """Say which slice of a dump has which id; of one that has changed, the one that is there now."""
    every = select(SliceEntry).where(SliceEntry.dump_id == dump_id).order_by(SliceEntry.position)
    return {_slice(entry).listing: entry.id for entry in session.scalars(every)}


def get_slice(session: Session, slice_id: int) -> IndexedSlice:
    """Look up a slice of an indexed dump."""
    absence = Message.of("catalogue.no_slice", slice=slice_id)
    return _slice(required(session.get(SliceEntry, slice_id), absence))


class PackedSliceOfDump(Struct, frozen=True):
    """What is kept of a slice of a dump, packed: its nodes and tensors, and how many there are."""

    packed: PackedNodes
    order_origin: OrderOrigin
    problems: tuple[Problem, ...]
    nodes: int
    tensors: int


def pack_slice_of_dump(read: Slice) -> PackedSliceOfDump:
    """Pack what is kept of a slice of a dump."""
    tensors = sum(len(node.tensors) for node in read.nodes)
    return PackedSliceOfDump(
        pack_nodes(read.nodes), read.order_origin, read.problems, len(read.nodes), tensors
    )


def add_nodes(
    writing: Callable[[], AbstractContextManager[Session]],
    slice_id: int,
    read: Slice,
    files: str | None = None,
) -> None:
    """Index the nodes and tensors of a slice, in several transactions that may be repeated.

    `files` told its files from others before they were read: they are left out if these are others now.
    """
    add_packed_nodes(writing, slice_id, pack_slice_of_dump(read), files)


def add_packed_nodes(
    writing: Callable[[], AbstractContextManager[Session]],
    slice_id: int,
    read: PackedSliceOfDump,
    files: str | None = None,
) -> None:
    """Index the nodes and tensors of a slice as they were packed, likewise."""

    @contextmanager
    def unchanged() -> Iterator[Session]:
        with writing() as session:
            held = select(SliceEntry.files).where(SliceEntry.id == slice_id).with_for_update(key_share=True)
            if session.scalar(held) != files:
                raise _ChangedError
            yield session

    with suppress(_ChangedError):
        add_blocks(unchanged, slice_id, read.packed)
        with unchanged() as session:
            entry = session.get_one(SliceEntry, slice_id)
            entry.order_origin, entry.problems = read.order_origin, read.problems
            entry.nodes, entry.tensors = read.nodes, read.tensors


class _ChangedError(Exception):
    """The files of a slice are not those any more that were read."""


def add_damage(session: Session, slice_id: int, problem: Problem) -> None:
    """Record why a slice cannot be read at all."""
    session.get_one(SliceEntry, slice_id).problems = (problem,)


def load_slice(session: Session, slice_id: int) -> Slice:
    """Restore a slice, with nodes and tensors, as its reader gave it."""
    indexed = get_slice(session, slice_id)
    nodes = tuple(all_nodes(session, slice_id))
    return Slice(indexed.listing, nodes, indexed.order_origin or RECORDED_ORDER, indexed.problems)


def load_node(session: Session, slice_id: int, name: str) -> Node:
    """Look up a node of an indexed slice by its name, with its tensors."""
    found = nodes_named(session, slice_id, (name,)).get(name)
    return required(found, Message.of("catalogue.no_node", name=name))


def _dumps() -> Select[*tuple[Any, ...]]:
    lie_there = (SliceEntry.dump_id == DumpEntry.id, SliceEntry.merged.is_(None), IS_AS_IT_WAS)
    slices = select(func.count()).where(*lie_there, SliceEntry.unfinished.is_(None)).scalar_subquery()
    return select(DumpEntry, slices)


def _dump(found: Row[*tuple[Any, ...]]) -> IndexedDump:
    entry, slices = found
    return record_of(IndexedDump, entry, path=Path(entry.path), slices=slices)


def _slice(entry: SliceEntry) -> IndexedSlice:
    return record_of(IndexedSlice, entry, directory=Path(entry.directory))
