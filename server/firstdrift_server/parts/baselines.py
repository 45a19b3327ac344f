"""Which comparisons tell what a healthy run is off by, for another to be judged by."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.records import Comparison, get_comparison, list_comparisons
from firstdrift.catalogue.tables import JobState
from firstdrift.errors import NotInCatalogueError
from firstdrift_server.parts.summary import distinct_names

MOST_BASELINES: Final = 50


def baseline_choices(
    session: Session, golden: Path | None, chosen: int | None, *, but: int | None = None
) -> list[dict[str, Any]]:
    """List the finished comparisons of a golden dump, the newest first, and the one that is chosen.

    Args:
        session: a reading session.
        golden: the golden dump; without one there is nothing to choose from.
        chosen: the id of the comparison that is chosen; it is listed whatever it is.
        but: the comparison that is to be judged, which is no baseline of itself.
    """
    listed = list_comparisons(session, limit=MOST_BASELINES, text=str(golden)) if golden else ()
    found = [
        one for one in listed if one.golden_path == golden and one.id != but and one.state is JobState.DONE
    ]
    if chosen is not None and chosen not in [one.id for one in found]:
        try:
            found.append(get_comparison(session, chosen))
        except NotInCatalogueError:
            return [{"id": chosen, "name": "", "path": "", "is_chosen": True}, *_choices(found, chosen)]
    return _choices(found, chosen)


def _choices(found: Sequence[Comparison], chosen: int | None) -> list[dict[str, Any]]:
    return [
        {
            "id": one.id,
            "name": distinct_names(str(one.golden_path), str(one.target_path))[1],
            "path": str(one.target_path),
            "is_chosen": one.id == chosen,
        }
        for one in found
    ]
