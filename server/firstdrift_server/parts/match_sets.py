"""The match set that a comparison holds the results of, and those that are laid over one."""

from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.matches.match_sets import (
    MatchSet,
    laid_over,
    list_match_sets,
    no_match_set,
)
from firstdrift.errors import SettingsError
from firstdrift.wording.message import Message
from firstdrift_server.parts.addresses import comparison_address, match_address
from firstdrift_server.parts.summary import ComparisonSummary, comparison_summary


class MatchSetView(Struct, frozen=True, kw_only=True):
    """The match set whose results a comparison holds.

    Attributes:
        version: whose results these are; another one may be in force.
        is_in_force: it is that one.
        comparison: id of the comparison that it is laid over, `original` its address.
        match: address of the page on which the set is changed.
    """

    id: int
    name: str
    version: int
    is_in_force: bool
    comparison: int
    original: str
    match: str


class ResultsView(Struct, frozen=True, kw_only=True):
    """A match set that is laid over a comparison, and what its results say first."""

    name: str
    results: ComparisonSummary


def match_set_of(session: Session, comparison: int, position: int = 0) -> MatchSetView | None:
    """Describe the match set whose results a comparison holds; None if it holds none."""
    known = laid_over(session, comparison)
    if known is None:
        return None
    version = next(one.version for one in known.versions if one.results_id == comparison)
    return MatchSetView(
        id=known.id,
        name=known.name,
        version=version,
        is_in_force=known.version == version,
        comparison=known.comparison_id,
        original=comparison_address(known.comparison_id),
        match=match_address(known.comparison_id, position, set=known.id),
    )


def results_over(session: Session, comparison: int) -> list[ResultsView]:
    """List the match sets over a comparison that decide anything, the oldest first."""
    found = ((known, known.results()) for known in list_match_sets(session, comparison))
    return [
        ResultsView(name=known.name, results=comparison_summary(session, get_comparison(session, results)))
        for known, results in found
        if results is not None and results != comparison
    ]


def set_shown(session: Session, comparison: int) -> MatchSet:
    """Return the match set whose results are shown, or what stands for a comparison as it was found.

    Raises:
        SettingsError: these are results of a version that is not in force any more.
    """
    known = laid_over(session, comparison)
    if known is None:
        return no_match_set(session, comparison)
    if known.results() != comparison:
        raise SettingsError(Message.of("server.version_not_in_force", name=known.name, version=known.version))
    return known
