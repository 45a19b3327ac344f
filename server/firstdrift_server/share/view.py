"""Links to a comparison: those that are open, and the addresses they have."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from fastapi import Request
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.records import Comparison, get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import slice_labels_of
from firstdrift.catalogue.sharing.links import ShareLink, active_links, link_to, shared_comparison
from firstdrift.errors import NotInCatalogueError
from firstdrift.groups import fields_of
from firstdrift.wording.message import Message
from firstdrift_server.context import Context
from firstdrift_server.parts.addresses import comparison_address, query_of, share_address
from firstdrift_server.parts.sentence import first_position
from firstdrift_server.parts.summary import comparison_summary
from firstdrift_server.settings import is_loopback
from firstdrift_server.validation import require_known
from firstdrift_server.visitors import view_asked_of

LASTS: Mapping[str, timedelta | None] = {
    "1h": timedelta(hours=1),
    "1d": timedelta(days=1),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
    "90d": timedelta(days=90),
    "never": None,
}
"""What the form offers."""


def share_view(
    session: Session, context: Context, comparison_id: int, wanted: str | None = None
) -> dict[str, Any]:
    """Lay out the page of the links to a comparison; a new link is to lead to the view that is `wanted`."""
    shown = shared_comparison(session, comparison_id)
    comparison = get_comparison(session, shown)
    settings = context.settings
    return {
        "comparison": shown,
        "address": share_address(shown),
        "slice_address": _first_slice(session, comparison),
        "comparison_address": comparison_address(comparison_id),
        "summary": comparison_summary(session, comparison),
        "links": list(map(link_view, active_links(session, shown))),
        "view": view_within(session, shown, wanted) or comparison_address(comparison_id),
        "lasts": list(LASTS),
        "is_open": settings.secret is None,
        "is_local": is_loopback(settings.host),
        "made": None,
        "made_address": None,
    }


def _first_slice(session: Session, comparison: Comparison) -> str | None:
    """Return where the slice is that is looked at first; None where there is none yet."""
    pairs = slice_labels_of(session, comparison.id)
    found = first_position(pairs, comparison.findings)
    first = found if found is not None else next((pair.position for pair in pairs), None)
    return None if first is None else f"{comparison_address(comparison.id)}/s/{first}"


def link_view(link: ShareLink) -> dict[str, Any]:
    """Describe a link; its secret is not known any more."""
    names = ("id", "label", "may_write", "created_at", "expires_at", "seen_at")
    return {"comparison": link.comparison_id} | fields_of(link, names)


def view_within(session: Session, shown: int, wanted: str | None) -> str | None:
    """Return the address of a view if it shows something of a comparison, or of results over it."""
    asked = view_asked_of(wanted or "")
    if wanted is None or asked is None:
        return None
    try:
        return wanted if shared_comparison(session, asked.comparison) == shown else None
    except NotInCatalogueError:
        return None


def link_address(request: Request, secret: str, view: str | None = None) -> str:
    """Return the address that opens a link, and leads to a view of the comparison."""
    query = f"?{query_of({'to': view})}" if view else ""
    return f"{str(request.base_url).rstrip('/')}/share/{secret}{query}"


def lasting(chosen: str) -> timedelta | None:
    """Say how long a link lasts that was chosen in the form."""
    require_known(chosen, LASTS, Message.of("server.no_such_duration", chosen=chosen[:40]))
    return LASTS[chosen]


def address_for(session: Session, link: ShareLink, wanted: str | None) -> str:
    """Return where a visitor arrives: at the view that the link leads to, else at the overview."""
    asked = view_asked_of(wanted or "")
    if wanted is not None and asked is not None and link_to(session, asked.comparison, (link,)) is not None:
        return wanted
    return comparison_address(link.comparison_id)
