"""Links through which a comparison can be read by whoever has them.

    new_link ─▶ secret ─▶ /share/{secret} ─▶ open_links ─▶ shows

Of a secret only the digest is kept, so that the database opens nothing. Whether a link opens something is
asked of the database each time: it expires, and is revoked, at once.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial

from msgspec import Struct
from sqlalchemy import ColumnElement, or_, select, update
from sqlalchemy.orm import Session

from firstdrift.catalogue.columns import Now
from firstdrift.catalogue.comparisons.records import require_comparison
from firstdrift.catalogue.lookup import added, record_of, required
from firstdrift.catalogue.secret import digest_of, new_secret
from firstdrift.catalogue.tables import ComparisonEntry, MatchSetEntry, MatchSetVersionEntry, ShareLinkEntry
from firstdrift.errors import SettingsError
from firstdrift.wording.message import Message

SHORTEST, LONGEST = timedelta(hours=1), timedelta(days=90)
LONGEST_LABEL = 200
MOST_ACTIVE = 100
"""So many links of one comparison can be open at a time."""


class ShareLink(Struct, frozen=True):
    """A link; fields as those of `firstdrift.catalogue.tables.ShareLinkEntry`."""

    id: int
    comparison_id: int
    label: str
    may_write: bool
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    seen_at: datetime | None


_link = partial(record_of, ShareLink)


def shared_comparison(session: Session, comparison_id: int) -> int:
    """Return the comparison that links and notes belong to: of results of a match set, the one below."""
    require_comparison(session, comparison_id)
    below = _below(session, comparison_id)
    return comparison_id if below is None else below


def new_link(
    session: Session,
    comparison_id: int,
    lasts: timedelta | None,
    *,
    may_write: bool = False,
    label: str = "",
) -> tuple[int, str]:
    """Make a link to a comparison; return its id, and its secret, which cannot be had again.

    Args:
        session: a writing session.
        comparison_id: which is shown, with its slices and the results of its match sets.
        lasts: from `SHORTEST` to `LONGEST`; None for as long as it is not revoked.
        may_write: whether notes may be written through it.
        label: for whom it is.

    Raises:
        SettingsError: it would last too short or too long, or there are too many links.
    """
    shown = shared_comparison(session, comparison_id)
    if lasts is not None and not SHORTEST <= lasts <= LONGEST:
        raise SettingsError(
            Message.of("catalogue.link.duration"), hint=Message.of("catalogue.hint.link_for_ever")
        )
    if len(label) > LONGEST_LABEL:
        raise SettingsError(Message.of("catalogue.link.long_label", most=LONGEST_LABEL))
    if len(active_links(session, shown)) >= MOST_ACTIVE:
        raise SettingsError(
            Message.of("catalogue.link.many", most=MOST_ACTIVE), hint=Message.of("catalogue.hint.revoke_some")
        )
    secret = new_secret()
    entry = ShareLinkEntry(
        comparison_id=shown,
        digest=digest_of(secret),
        label=label.strip(),
        may_write=may_write,
        expires_at=None if lasts is None else Now(lasts.total_seconds()),
    )
    return added(session, entry), secret


def active_links(session: Session, comparison_id: int) -> tuple[ShareLink, ...]:
    """List the links to a comparison that open something now, the oldest first."""
    here = ShareLinkEntry.comparison_id == comparison_id
    found = session.scalars(select(ShareLinkEntry).where(here, *_is_active()).order_by(ShareLinkEntry.id))
    return tuple(map(_link, found))


def revoke_link(session: Session, comparison_id: int, link_id: int) -> None:
    """Take a link back: it opens nothing from now on."""
    shown = shared_comparison(session, comparison_id)
    here = (ShareLinkEntry.id == link_id, ShareLinkEntry.comparison_id == shown)
    absence = Message.of("catalogue.no_link", comparison=comparison_id, link=link_id)
    required(session.scalar(select(ShareLinkEntry.id).where(*here)), absence)
    # One that was revoked before keeps its time.
    session.execute(update(ShareLinkEntry).where(*here, *_is_active()).values(revoked_at=Now()))


def open_links(session: Session, shown: Iterable[str]) -> tuple[ShareLink, ...]:
    """Give the links that are opened by some secrets; those expired, revoked or unknown open nothing."""
    digests = list(map(digest_of, shown))
    if not digests:
        return ()
    found = session.scalars(
        select(ShareLinkEntry)
        .join(ComparisonEntry, ComparisonEntry.id == ShareLinkEntry.comparison_id)
        .where(ShareLinkEntry.digest.in_(digests), ComparisonEntry.deleted_at.is_(None), *_is_active())
    )
    return tuple(map(_link, found))


def note_seen(session: Session, link_id: int) -> None:
    """Keep that a link was opened just now."""
    session.execute(update(ShareLinkEntry).where(ShareLinkEntry.id == link_id).values(seen_at=Now()))


def link_to(session: Session, comparison_id: int, links: Sequence[ShareLink]) -> ShareLink | None:
    """Return the link, of some, that shows a comparison: itself, or as results of a match set over it.

    Of several, one through which notes may be written.
    """
    below = _below(session, comparison_id)
    to_it = [link for link in links if link.comparison_id in (comparison_id, below)]
    return max(to_it, key=lambda link: link.may_write, default=None)


def _below(session: Session, comparison_id: int) -> int | None:
    """Return the comparison below the match set whose results a comparison holds; None if it holds none."""
    return session.scalar(
        select(MatchSetEntry.comparison_id)
        .join(MatchSetVersionEntry, MatchSetVersionEntry.match_set_id == MatchSetEntry.id)
        .where(MatchSetVersionEntry.results_id == comparison_id, MatchSetEntry.deleted_at.is_(None))
    )


def _is_active() -> tuple[ColumnElement[bool], ...]:
    return (
        ShareLinkEntry.revoked_at.is_(None),
        or_(ShareLinkEntry.expires_at.is_(None), ShareLinkEntry.expires_at > Now()),
    )
