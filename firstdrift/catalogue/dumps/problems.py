"""All that is known to be wrong with an indexed dump: its listing, its slices, and single tensors of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from firstdrift.catalogue.dumps.records import IndexedDump, IndexedSlice
from firstdrift.catalogue.tables import ComputedEntry, NodeEntry, SliceEntry, TensorEntry, computed_of
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
    positions = {known.id: known.position for known in slices}
    tensors = _tensors(session, dump, positions, max(0, most - len(found)))
    return tuple(found[:most]) + tensors[0], len(found) + tensors[1]


def _tensors(
    session: Session, dump: IndexedDump, positions: Mapping[int, int], most: int
) -> tuple[tuple[KnownProblem, ...], int]:
    """List the tensors that cannot be read: it showed in their header, or as their values were read."""
    why = func.coalesce(TensorEntry.problem, ComputedEntry.problem)
    mine = select(SliceEntry.id).where(SliceEntry.dump_id == dump.id, SliceEntry.merged.is_(None))
    here = (TensorEntry.slice_id.in_(mine), why.is_not(None))
    value = (TensorEntry.slice_id, TensorEntry.node, TensorEntry.position)
    same = computed_of(TensorEntry)
    count = session.scalar(
        select(func.count()).select_from(TensorEntry).outerjoin(ComputedEntry, same).where(*here)
    )
    listed = session.execute(
        select(TensorEntry.slice_id, TensorEntry.file, NodeEntry.name, why)
        .select_from(TensorEntry)
        .outerjoin(ComputedEntry, same)
        .join(NodeEntry, (NodeEntry.slice_id == TensorEntry.slice_id) & (NodeEntry.order == TensorEntry.node))
        .where(*here)
        .order_by(*value)
        .limit(most)
    )
    found = (
        KnownProblem(positions[slice_id], _seen_from(dump.path, file) if file else name, reason)
        for slice_id, file, name, reason in listed
    )
    return tuple(sorted(found, key=lambda problem: problem.slice_position or 0)), count or 0


def _seen_from(dump: Path, file: str) -> str:
    """Write the path of a file as seen from the dump, if it lies below it."""
    path = Path(file)
    return str(path.relative_to(dump)) if path.is_relative_to(dump) else file
