"""Read dumps and their slices into the catalogue, each the first time that it is needed."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from firstdrift.catalogue.dumps import changes
from firstdrift.catalogue.dumps import records as dumps
from firstdrift.catalogue.dumps.records import IndexedSlice
from firstdrift.catalogue.engine import reading
from firstdrift.dumps.detect import open_dump
from firstdrift.dumps.growth import fingerprints, is_fresh, settled
from firstdrift.dumps.storage.fingerprints import last_written
from firstdrift.errors import DumpNotFoundError, DumpUnreadableError
from firstdrift.groups import known_items
from firstdrift.model.slice import Dump, Problem, Slice, SliceListing
from firstdrift.parallel.slices import read_merged, read_slice
from firstdrift_worker.work import Work

REST_SECONDS: Final = 10.0
"""The last slice of a dump that grows is complete when it has not changed for so long."""


@dataclass(frozen=True, slots=True)
class Indexed:
    """A dump of which the catalogue knows the slices.

    Attributes:
        files: its fingerprint.
        grows: it is still being written, as far as that shows.
        is_fresh: it was written a moment ago.
        damages: why slices of it could not be read, by their ids; none is tried twice.
    """

    id: int
    dump: Dump
    files: str
    slices: dict[SliceListing, IndexedSlice]
    grows: bool = False
    is_fresh: bool = False
    damages: dict[int, DumpUnreadableError] = field(default_factory=dict)


def index_dump(work: Work, path: Path, known: int | None) -> Indexed:
    """Index the dump at a path, or what of it has changed; one that is gone is taken as it was."""
    try:
        files, written = dumps.fingerprint_and_date(path)
    except DumpNotFoundError:
        if known is None:
            raise
        return load_indexed(work, known)
    with reading(work.engine) as session:
        found = dumps.find_dump(session, path, files)
    dump_id, has_more = (found.id, False) if found else _look(work, path, files)
    indexed, fresh = load_indexed(work, dump_id), is_fresh(written)
    grows = bool(indexed.dump.unfinished) or (has_more and fresh)
    return replace(indexed, grows=grows, is_fresh=fresh)


def still_grows(indexed: Indexed) -> bool:
    """Tell whether a dump grows, or has changed since it was indexed, if that was when it was written."""
    return indexed.grows or (indexed.is_fresh and dumps.changed_since(indexed.dump.path, indexed.files))


def _look(work: Work, path: Path, files: str) -> tuple[int, bool]:
    """Index a dump, or what of it has changed; return its id, and whether there is more of it."""
    with reading(work.engine) as session:
        grows = changes.was_growing(session, path)

    def read(dump: Dump, listing: SliceListing) -> Slice:
        with work.reading_dump(listing.directory):
            return read_slice(dump, listing)

    with work.reading_dump(path):
        dump = open_dump(path)
        of_slices = fingerprints(dump)
    dump = settled(dump, read, _has_to_rest) if grows else settled(dump, read)
    looked = changes.Looked(dump, files, of_slices)
    with work.writing() as session:
        return changes.index_again(session, looked)


def _has_to_rest(listing: SliceListing) -> bool:
    """Tell whether a slice of a dump that grows was changed too short a time ago to be complete."""
    return is_fresh(last_written(listing.directory), REST_SECONDS)


def load_indexed(work: Work, dump_id: int) -> Indexed:
    """Return a dump that is indexed."""
    with reading(work.engine) as session:
        dump = dumps.load_dump(session, dump_id)
        slices = dumps.slices_of_dump(session, dump_id)
        files = dumps.get_dump(session, dump_id).fingerprint
    return Indexed(dump_id, dump, files, {indexed.listing: indexed for indexed in slices})


def with_merged(work: Work, indexed: Indexed, listings: Iterable[SliceListing]) -> Indexed:
    """Index the slices that are merged from those of ranks for this comparison."""
    merged = [listing for listing in listings if listing.parts and listing not in indexed.slices]
    if not merged:
        return indexed
    with work.writing() as session:
        dumps.add_merged_slices(session, indexed.id, merged)
    with reading(work.engine) as session:
        slices = dumps.slices_of_dump(session, indexed.id)
    return replace(indexed, slices={found.listing: found for found in slices})


def is_still_damaged(work: Work, indexed: Indexed, listing: SliceListing) -> bool:
    """Tell whether a slice, or one that it is merged from, could not be read before, and cannot now."""
    parts = (indexed.slices[part] for part in listing.parts or (listing,))
    damaged = [part.id for part in parts if part.nodes is None and part.problems]
    return any(read_indexed(work, indexed, part) is None for part in damaged)


def read_indexed(work: Work, indexed: Indexed, slice_id: int) -> Slice | None:
    """Read a slice from the catalogue; from its dump, and into the catalogue, the first time."""
    with reading(work.engine) as session:
        known = dumps.get_slice(session, slice_id)
        if known.merged is None and known.nodes is not None:
            return dumps.load_slice(session, slice_id)
    if known.merged is not None:
        return _read_merged(work, indexed, slice_id, known.merged)
    if slice_id in indexed.damages:
        return None
    try:
        with work.reading_dump(known.directory):
            read = read_slice(indexed.dump, known.listing)
    except DumpUnreadableError as error:
        indexed.damages[slice_id] = error
        with work.writing() as session:
            problem = Problem(str(error.path or known.directory), error.message)
            dumps.add_damage(session, slice_id, problem)
        return None
    dumps.add_nodes(work.writing, slice_id, read, known.files)
    return read


def _read_merged(work: Work, indexed: Indexed, slice_id: int, listing: SliceListing) -> Slice | None:
    """Merge a slice from those of its ranks, of which none may be damaged."""
    parts = {part: read_indexed(work, indexed, indexed.slices[part].id) for part in listing.parts}
    known = known_items(parts)
    if len(known) < len(parts):
        return None
    merged = read_merged(listing, known.__getitem__)
    dumps.add_nodes(work.writing, slice_id, merged)
    return merged
