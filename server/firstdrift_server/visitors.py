"""Who looks at a page: somebody with the token, or a visitor who came through a link to one comparison.

/share/SECRET  ─▶  the secret in a cookie of its own, and on to /c/7 (it leaves the address bar)
the cookie     ─▶  what `asked_of` knows of comparison 7 can be read; nothing else is there (404)

The page that matches nodes is not: everything on it decides, or reads dumps to say what a decision would
change. What has no partner can be read in the tree and beside it, and so can the results of match sets.

A server on which no token is set stands open, so that nobody is a visitor there.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from urllib.parse import unquote, urlsplit

from fastapi import Request
from starlette.responses import Response

from firstdrift.catalogue.people.members import Member
from firstdrift.catalogue.sharing.links import LONGEST, ShareLink

NAME_COOKIE = "firstdrift_name"
"""How somebody called themselves when they wrote a note last."""

_SCOPE = "firstdrift.standing"
_MOST_COOKIES = 50

_NUMBER = "[0-9]{1,18}"
_COMPARISON = f"/(?:api/v1/comparisons|c)/(?P<comparison>{_NUMBER})"
_PAGES = f"|/export|/rules|/s/{_NUMBER}/(?:tree|tree/rows|graph|graph/layers|unmatched|n/{_NUMBER})"
_NODE = f"(?:/s/{_NUMBER}/n/{_NUMBER}|/slices/{_NUMBER}/rows/{_NUMBER})"
_CHARTS = f"|/(?:chart|layers|notes|slices|rules/preview)|/slices/{_NUMBER}/(?:scatter|unmatched|rows)"
_DATA = f"{_CHARTS}|{_NODE}(?:/tensors/{_NUMBER})?"
_READ = re.compile(f"{_COMPARISON}(?:{_PAGES}{_DATA})")
_OF_KIND = re.compile(f"{_COMPARISON}/(?P<kind>export|rules|rules/preview)")
_WRITTEN = re.compile(f"{_COMPARISON}(?:{_NODE}/notes|/notes/{_NUMBER}(?:|/delete|/restore))")


class Visit(Enum):
    """What a visitor asks for, by how much it takes: a page or data, what other rules say, a file."""

    PAGE = auto()
    RULES = auto()
    FILE = auto()


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks at a page.

    Attributes:
        link: through which a visitor came; None for somebody with the token, or where none is set.
        name: how they called themselves last.
        is_logged_in: whether there is a session that they can end.
        member: who has logged in by a token of their own; None for the owner and for visitors.
    """

    link: ShareLink | None = None
    name: str = ""
    is_logged_in: bool = False
    member: Member | None = None

    @property
    def only_looks(self) -> bool:
        """Whether they see everything, and may change nothing."""
        return self.member is not None and not self.member.may_write

    @property
    def may_write(self) -> bool:
        """Whether they may write notes."""
        return not self.only_looks if self.link is None else self.link.may_write

    @property
    def sees_others(self) -> bool:
        """Whether they see other comparisons than the one they look at."""
        return self.link is None

    def may_change(self, link_id: int | None) -> bool:
        """Tell whether they may delete what was written through a link; None for without one."""
        return self.may_write and (self.link is None or self.link.id == link_id)


@dataclass(slots=True)
class Standing:
    """What guards have found out of who asks.

    Attributes:
        session: of whoever has logged in.
        has_token: whether they have the token, by a session or by showing it.
        is_refused: whether they are not let through.
        link: through which a visitor came.
        member: whose token it is; None for the owner's.
        has_entered: whether they were given a session just now.
        has_failed: whether they showed a wrong token, which was looked at.
    """

    session: str | None = None
    has_token: bool = False
    is_refused: bool = False
    link: ShareLink | None = None
    member: Member | None = None
    has_entered: bool = False
    has_failed: bool = False


def standing_of(request: Request) -> Standing:
    """Return what is known of who asks, to be read and to be added to."""
    standing: Standing = request.scope.setdefault(_SCOPE, Standing())
    return standing


@dataclass(frozen=True, slots=True)
class Asked:
    """What of which comparison a request is about: to read it, or to write notes."""

    comparison: int
    writes: bool = False


def asked_of(method: str, path: str) -> Asked | None:
    """Say what a request asks of one comparison; None if it is nothing that a visitor may ask."""
    if method in ("GET", "HEAD") and (found := _READ.fullmatch(path)):
        return Asked(int(found["comparison"]))
    if method in ("POST", "DELETE") and (found := _WRITTEN.fullmatch(path)):
        return Asked(int(found["comparison"]), writes=True)
    return None


def kind_of_visit(path: str, query: bytes) -> Visit:
    """Say what a visitor asks for; without a query the rules in force are shown, which takes no trial."""
    found = _OF_KIND.fullmatch(path)
    if found is None or (found["kind"] == "rules" and not query):
        return Visit.PAGE
    return Visit.FILE if found["kind"] == "export" else Visit.RULES


def view_asked_of(address: str) -> Asked | None:
    """Say of which comparison an address on this server shows something; None if of none."""
    path = unquote(urlsplit(address).path)
    is_page = address.startswith("/c/") and address.isprintable()
    return asked_of("GET", path.removesuffix(".json")) if is_page else None


def viewer_of(request: Request) -> Viewer:
    """Return who looks."""
    standing, name = standing_of(request), unquote(request.cookies.get(NAME_COOKIE, ""))
    is_logged_in = standing.session is not None
    return Viewer(standing.link, name, is_logged_in=is_logged_in, member=standing.member)


def shown_secrets(request: Request, cookie: str) -> list[str]:
    """Return the secrets of links that a visitor has been given cookies for."""
    prefix = _prefix(cookie)
    return [value for name, value in request.cookies.items() if name.startswith(prefix)][:_MOST_COOKIES]


def give_secret(response: Response, request: Request, cookie: str, link: ShareLink, secret: str) -> None:
    """Put the secret of a link into a cookie of its own, for as long as the link lasts.

    `cookie` names that of those who have the token, which is another for each server of a host.
    """
    longest = LONGEST if link.expires_at is None else link.expires_at - datetime.now(UTC)
    response.set_cookie(
        f"{_prefix(cookie)}{link.comparison_id}",
        secret,
        max_age=max(1, int(longest.total_seconds())),
        httponly=True,
        samesite="lax",
        secure=request.scope["scheme"] == "https",
    )


def _prefix(cookie: str) -> str:
    return f"{cookie}_share_"
