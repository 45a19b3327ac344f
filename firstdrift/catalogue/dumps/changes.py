"""Index a dump again: slices that are as they were keep their rows, and all others are read anew.

as it was          keeps its row, its nodes, and what was measured of it
changed            gets a new row in its place; the old one stays for comparisons that show it
new                gets a row
gone               its row stays, likewise, and is no longer one of the dump
being written      a row that says so, and has no nodes until it is complete
"""

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from firstdrift.catalogue.columns import Now
from firstdrift.catalogue.dumps.following import is_followed
from firstdrift.catalogue.dumps.nodes import has_nodes
from firstdrift.catalogue.dumps.records import (
    INDEX_VERSION,
    add_dump,
    entries_of_dump,
    find_dump,
    slice_entry,
)
from firstdrift.catalogue.tables import DumpEntry, SliceEntry
from firstdrift.model.slice import Dump, SliceListing
from firstdrift.wording.message import Message


class Looked(Struct, frozen=True):
    """A dump as its reader lists it, and by what it and each of its slices are told from what they were."""

    dump: Dump
    files: str
    of_slices: Mapping[SliceListing, str]

    @property
    def state(self) -> str:
        """By what this is told from other states of the dump: its files, and which slices are unfinished."""
        if not self.dump.unfinished:
            return self.files
        names = repr([one.listing for one in self.dump.unfinished])
        return f"{self.files}:{blake2b(names.encode(errors='surrogateescape'), digest_size=8).hexdigest()}"


def was_growing(session: Session, path: Path) -> bool:
    """Tell whether a dump was still being written when it was looked at last, or is looked at by itself."""
    entry = _newest(session, path)
    entries = [] if entry is None else entries_of_dump(session, entry.id)
    return any(one.unfinished is not None for one in entries) or is_followed(session, path)


def index_again(session: Session, looked: Looked) -> tuple[int, bool]:
    """Index a dump, or what of it has changed; return its id, and whether there is more of it than before."""
    entry = _newest(session, looked.dump.path)
    if entry is not None:
        session.refresh(entry, with_for_update=True)  # two workers may look at once
    found = find_dump(session, looked.dump.path, looked.state)
    if found is not None:
        return found.id, False
    if entry is None or entry.format != looked.dump.format:
        return add_dump(session, looked.dump, looked.state, looked.of_slices), False
    has_more = _index_slices(session, entry.id, looked)
    dump = looked.dump
    entry.fingerprint, entry.evidence, entry.problems = looked.state, dump.evidence, dump.problems
    entry.attributes, entry.indexed_at = dict(dump.attributes), Now()
    session.flush()
    return entry.id, has_more


def _newest(session: Session, path: Path) -> DumpEntry | None:
    """Look up the newest entry of the dump at a path, if this version indexed it."""
    last = select(func.max(DumpEntry.id)).where(DumpEntry.path == str(path)).scalar_subquery()
    this = DumpEntry.fingerprint.startswith(f"{INDEX_VERSION}:")
    return session.scalars(select(DumpEntry).where(DumpEntry.id == last, this)).one_or_none()


def _index_slices(session: Session, dump_id: int, looked: Looked) -> bool:
    entries = entries_of_dump(session, dump_id)
    known = {_listing(one): one for one in entries if one.merged is None}
    reasons = {one.listing: one.reason for one in looked.dump.unfinished}
    free = max((one.position for one in entries), default=-1) + 1
    there = dict.fromkeys((*looked.dump.slices, *reasons))
    gone = {listing for listing in known if listing not in there}
    new: list[tuple[SliceListing, int]] = []
    for listing in there:
        entry = known.get(listing)
        if entry is None:
            new.append((listing, free + len(new)))
        elif not _take_over(session, entry, looked.of_slices.get(listing), reasons.get(listing)):
            gone.add(listing)
            new.append((listing, entry.position))
    _set_aside(session, entries, gone)
    session.add_all(
        slice_entry(
            dump_id, position, listing, files=looked.of_slices.get(listing), unfinished=reasons.get(listing)
        )
        for listing, position in new
    )
    return any(listing not in known for listing, _ in new)


def _take_over(session: Session, entry: SliceEntry, files: str | None, unfinished: Message | None) -> bool:
    """Let an entry stand for a slice as it is now, if nothing is known of what it was."""
    is_same = files is not None and entry.files == files
    if not is_same and (entry.unfinished is None or entry.nodes is not None or has_nodes(session, entry.id)):
        return False
    entry.files, entry.unfinished = files, unfinished
    return True


def _set_aside(session: Session, entries: list[SliceEntry], gone: set[SliceListing]) -> None:
    """Let slices that are not as they were, and what was merged from them, be none of the dump any more."""
    for entry in entries:
        parts = (_listing(entry),) if entry.merged is None else entry.merged.parts
        if not gone.isdisjoint(parts):
            entry.position = -entry.id
    session.flush()


def _listing(entry: SliceEntry) -> SliceListing:
    return SliceListing(entry.coordinates, Path(entry.directory))
