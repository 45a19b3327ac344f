"""Read dumps and their slices into the catalogue, each the first time that it is needed."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from firstdrift.catalogue.dumps import records as dumps
from firstdrift.catalogue.dumps.records import IndexedSlice
from firstdrift.catalogue.engine import reading
from firstdrift.dumps.detect import open_dump
from firstdrift.errors import DumpNotFoundError, DumpUnreadableError
from firstdrift.groups import known_items
from firstdrift.model.slice import Dump, Problem, Slice, SliceListing
from firstdrift.parallel.slices import read_merged, read_slice
from firstdrift_worker.work import Work


@dataclass(frozen=True, slots=True)
class Indexed:
    """A dump of which the catalogue knows the slices.

    Attributes:
        damages: why slices of it could not be read.
    """

    id: int
    dump: Dump
    slices: dict[SliceListing, IndexedSlice]
    damages: list[DumpUnreadableError] = field(default_factory=list)


def index_dump(work: Work, path: Path, known: int | None) -> Indexed:
    """Index the dump at a path, if it has not been as it is now; one that is gone is taken as it was."""
    try:
        files = dumps.fingerprint(path)
    except DumpNotFoundError:
        if known is None:
            raise
    else:
        with reading(work.engine) as session:
            found = dumps.find_dump(session, path, files)
        known = found.id if found else _add_dump(work, path, files)
    return load_indexed(work, known)


def load_indexed(work: Work, dump_id: int) -> Indexed:
    """Return a dump that is indexed."""
    with reading(work.engine) as session:
        dump = dumps.load_dump(session, dump_id)
        slices = dumps.slices_of_dump(session, dump_id)
    return Indexed(dump_id, dump, {indexed.listing: indexed for indexed in slices})


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


def _add_dump(work: Work, path: Path, files: str) -> int:
    with work.reading_dump(path):
        dump = open_dump(path)
    with work.writing() as session:
        found = dumps.find_dump(session, path, files)  # by another worker, meanwhile
        return found.id if found else dumps.add_dump(session, dump, files)


def read_indexed(work: Work, indexed: Indexed, slice_id: int) -> Slice | None:
    """Read a slice from the catalogue; from its dump, and into the catalogue, the first time."""
    with reading(work.engine) as session:
        known = dumps.get_slice(session, slice_id)
        if known.merged is None and known.nodes is not None:
            return dumps.load_slice(session, slice_id)
    if known.merged is not None:
        return _read_merged(work, indexed, slice_id, known.merged)
    try:
        with work.reading_dump(known.directory):
            read = read_slice(indexed.dump, known.listing)
    except DumpUnreadableError as error:
        indexed.damages.append(error)
        with work.writing() as session:
            problem = Problem(str(error.path or known.directory), error.message)
            dumps.add_damage(session, slice_id, problem)
        return None
    dumps.add_nodes(work.writing, slice_id, read)
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
