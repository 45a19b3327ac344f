"""Which comparisons tell what a healthy run is off by, for another to be judged by."""

from pathlib import Path
from typing import Final

from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.records import get_comparison, list_comparisons
from firstdrift.catalogue.tables import JobState
from firstdrift.errors import NotInCatalogueError
from firstdrift_server.parts.summary import distinct_names

MOST_BASELINES: Final = 50


class BaselineChoice(Struct, frozen=True):
    """A comparison that can be chosen as a baseline, by its target; nameless if it is gone or hidden."""

    id: int
    name: str
    path: str
    is_chosen: bool


def baseline_choices(
    session: Session, golden: Path | None, chosen: int | None, *, but: int | None = None
) -> list[BaselineChoice]:
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
    gone = []
    if chosen is not None and chosen not in [one.id for one in found]:
        try:
            found.append(get_comparison(session, chosen))
        except NotInCatalogueError:
            gone = [BaselineChoice(chosen, "", "", is_chosen=True)]
    paths = [(one.id, str(one.golden_path), str(one.target_path)) for one in found]
    return gone + [
        BaselineChoice(number, distinct_names(golden_path, path)[1], path, is_chosen=number == chosen)
        for number, golden_path, path in paths
    ]
