"""Which comparisons tell what a healthy run is off by, for another to be judged by."""

from pathlib import Path
from typing import Final

from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.records import Comparison, get_comparison, list_comparisons
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
    wanted = (golden, JobState.DONE)
    found = [one for one in listed if (one.golden_path, one.state) == wanted and one.id != but]
    gone = []
    if chosen is not None and all(one.id != chosen for one in found):
        try:
            found.append(get_comparison(session, chosen))
        except NotInCatalogueError:
            gone = [BaselineChoice(chosen, "", "", is_chosen=True)]
    return [*gone, *(_choice(one, is_chosen=one.id == chosen) for one in found)]


def _choice(one: Comparison, *, is_chosen: bool) -> BaselineChoice:
    golden, target = str(one.golden_path), str(one.target_path)
    return BaselineChoice(one.id, distinct_names(golden, target)[1], target, is_chosen)
