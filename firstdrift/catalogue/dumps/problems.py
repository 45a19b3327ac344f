"""All that is known to be wrong with an indexed dump: its listing, its slices, and single tensors of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.dumps.computed import unreadable_values
from firstdrift.catalogue.dumps.nodes import Place, blocks_at, blocks_with_problems, tensors_of
from firstdrift.catalogue.dumps.records import IndexedDump, IndexedSlice
from firstdrift.model.node import Node
from firstdrift.wording.message import Message


class KnownProblem(Struct, frozen=True):
    """Something that could not be used.

    Attributes:
        slice_position: of the slice that it is about; None if it shows in the listing already.
        file: which one, as seen from the dump; the name of the node where the tensor has no file.
        reason: why.
    """

    slice_position: int | None
    file: str
    reason: Message


def problems_of_dump(
    session: Session, dump: IndexedDump, slices: Sequence[IndexedSlice], *, most: int
) -> tuple[tuple[KnownProblem, ...], int]:
    """List what is wrong with a dump as far as its slices were read, and say how much there is in all.

    Args:
        session: a reading session.
        dump: the dump.
        slices: those that lie in it.
        most: list so many.
    """
    found = [KnownProblem(None, problem.file, problem.reason) for problem in dump.problems]
    found += [
        KnownProblem(known.position, problem.file, problem.reason)
        for known in slices
        for problem in known.problems
    ]
    of_tensors = list(chain.from_iterable(_tensors(session, dump, slices)))
    return tuple((found + of_tensors)[:most]), len(found) + len(of_tensors)


def _tensors(
    session: Session, dump: IndexedDump, slices: Sequence[IndexedSlice]
) -> Iterator[Iterator[KnownProblem]]:
    """List the tensors that cannot be read: it showed in their header, or as their values were read."""
    ids = [known.id for known in slices]
    of_headers, of_values = blocks_with_problems(session, ids), unreadable_values(session, ids)
    for known in slices:
        failed = of_values.get(known.id, {})
        places = {*of_headers.get(known.id, ()), *(order for order, _ in failed)}
        if places:
            yield _of_slice(dump, known, blocks_at(session, known.id, places), failed)


def _of_slice(
    dump: IndexedDump, known: IndexedSlice, nodes: Iterable[Node], failed: Mapping[Place, Message]
) -> Iterator[KnownProblem]:
    for place, node, record in tensors_of(nodes):
        why = record.problem or failed.get(place)
        if why is not None:
            file = _seen_from(dump.path, str(record.location.file)) if record.location else node.name
            yield KnownProblem(known.position, file, why)


def _seen_from(dump: Path, file: str) -> str:
    """Write the path of a file as seen from the dump, if it lies below it."""
    path = Path(file)
    return str(path.relative_to(dump)) if path.is_relative_to(dump) else file
