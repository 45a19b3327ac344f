"""Which dump, and which slice of it, a page is about."""

from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.dumps.records import IndexedDump, IndexedSlice, get_dump, slices_of_dump
from firstdrift.errors import NotInCatalogueError
from firstdrift.wording.message import Message
from firstdrift_server.parts.addresses import dump_address


class DumpSummary(Struct, frozen=True):
    """Which dump a page is about; its name are the last parts of its path."""

    id: int
    path: str
    name: str
    format: str
    address: str


def dump_summary(dump: IndexedDump) -> DumpSummary:
    """Say which dump a page is about."""
    name = "/".join(dump.path.parts[-2:]).lstrip("/")
    return DumpSummary(dump.id, str(dump.path), name, dump.format, dump_address(dump.id))


def own_slices(session: Session, dump_id: int) -> tuple[IndexedSlice, ...]:
    """List the slices that lie in a dump, without those that were merged from ranks for a comparison."""
    return tuple(known for known in slices_of_dump(session, dump_id) if known.merged is None)


def slice_at(session: Session, dump_id: int, position: int) -> IndexedSlice:
    """Look up a slice of a dump."""
    get_dump(session, dump_id)
    for known in own_slices(session, dump_id):
        if known.position == position:
            return known
    raise NotInCatalogueError(Message.of("server.dump_without_slice", dump=dump_id, slice=position))
