"""Statistics that a job has computed from the values of tensors that were saved without any."""

from collections.abc import Collection, Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from firstdrift.catalogue.bulk import insert_many
from firstdrift.catalogue.dumps.nodes import Place
from firstdrift.catalogue.tables import ComputedEntry
from firstdrift.comparison.single_dump import TensorView, view_recorded
from firstdrift.groups import firsts, gathered, seconds
from firstdrift.metrics.measurement import SideSummary
from firstdrift.model.tensor import TensorRecord
from firstdrift.wording.message import Message

_COMPUTED = ComputedEntry.__table__
Computed = Mapping[Place, tuple[SideSummary | None, Message | None]]
"""What was found in the values of tensors, or why they cannot be read."""


def add_computed(session: Session, slice_id: int, found: Mapping[Place, TensorView]) -> None:
    """Keep statistics that were computed; those that are there already stay."""
    insert_many(
        session,
        ComputedEntry,
        {
            "node": firsts(found),
            "position": seconds(found),
            "summary": [view.values for view in found.values()],
            "problem": [view.problem for view in found.values()],
        },
        on_conflict="ON CONFLICT DO NOTHING",
        slice_id=slice_id,
    )


def computed_of_slice(session: Session, slice_id: int) -> Computed:
    """Give what was found in the values of tensors of a slice, as far as they were read."""
    columns = _COMPUTED.c
    asked = select(columns.node, columns.position, columns.summary, columns.problem)
    found = session.execute(asked.where(columns.slice_id == slice_id))
    return {(node, position): (summary, problem) for node, position, summary, problem in found}


def unreadable_values(session: Session, slice_ids: Collection[int]) -> dict[int, dict[Place, Message]]:
    """Say of which tensors of slices the values could not be read, and why; by slice."""
    columns = _COMPUTED.c
    here = (columns.slice_id.in_(slice_ids), columns.problem.is_not(None))
    found = session.execute(
        select(columns.slice_id, columns.node, columns.position, columns.problem).where(*here)
    )
    by_slice = gathered((owner, ((node, position), problem)) for owner, node, position, problem in found)
    return {owner: dict(problems) for owner, problems in by_slice.items()}


def view_of(place: Place, record: TensorRecord, computed: Computed) -> TensorView | None:
    """Say what is known of a tensor; None if its values would have to be read."""
    known = view_recorded(record)
    if known is not None or place not in computed:
        return known
    summary, problem = computed[place]
    return TensorView(record, summary, "data" if summary is not None else "", problem)
