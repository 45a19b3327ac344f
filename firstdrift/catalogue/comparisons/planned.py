"""What judging a pair of slices takes, put together again from all that is kept of it."""

from importlib.metadata import version

from msgspec.structs import replace
from sqlalchemy import select
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.kept import matches_of, unpack_rest
from firstdrift.catalogue.comparisons.measurements import MEASUREMENTS_VERSION
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair
from firstdrift.catalogue.comparisons.tree import all_kept_rows, all_pairs
from firstdrift.catalogue.tables import PlanEntry
from firstdrift.comparison.session import Planned
from firstdrift.metrics.measurement import Measurement


def version_of_plans() -> str:
    """Say which firstdrift makes plans, and of which version its measurements are."""
    return f"{version('firstdrift')}, measurements {MEASUREMENTS_VERSION}"


def load_planned(session: Session, pair: SlicePair) -> tuple[Planned, tuple[Measurement, ...]] | None:
    """Give what was judged of a slice pair: its plan, its tree and the measurement of each pair.

    None if this version has not kept it; another one may have matched otherwise.
    """
    here = (PlanEntry.slice_pair_id == pair.id, PlanEntry.version == version_of_plans())
    packed = session.scalar(select(PlanEntry.content).where(*here))
    rest = unpack_rest(packed) if packed is not None else None
    if rest is None:
        return None
    rows = list(all_kept_rows(session, pair.id))
    pairs = list(all_pairs(session, pair.id))
    plan = replace(
        rest,
        matches=matches_of(rows),
        pairs=tuple(found.plan for found in pairs),
        unmatched_golden_tensors=pair.unmatched_golden,
        unmatched_target_tensors=pair.unmatched_target,
        notes=pair.notes,
    )
    return Planned(plan, tuple(row.tree for row in rows)), tuple(found.measurement for found in pairs)
