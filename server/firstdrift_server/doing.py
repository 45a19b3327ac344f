"""What a request does that the audit log keeps, by its route.

request ─▶ its route ─▶ a deed ─▶ written in the transaction of the change (`Context.writing`),
                                  or before the answer, of what changes files (guards/audit.py)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fastapi import Request
from msgspec.structs import replace
from sqlalchemy.orm import Session
from starlette.types import Scope

from firstdrift.catalogue.people.audit import Act, Actor, Deed, Who, enter, id_in
from firstdrift.catalogue.sharing.links import ShareLink
from firstdrift_server.visitors import standing_of

_COMPARISON = "/c/{comparison}"
_MATCH = "/c/{comparison}/s/{position}/match"
_API = "/api/v1/comparisons"
_API_COMPARISON = "/api/v1/comparisons/{comparison}"
_SETS = "/api/v1/match-sets/{match_set}"
_UPLOADS = "/api/v1/uploads"

ACTS: Final[Mapping[tuple[str, str], Act]] = {
    ("POST", "/new"): Act.COMPARED,
    ("POST", _API): Act.COMPARED,
    ("POST", f"{_COMPARISON}/again"): Act.JUDGED_AGAIN,
    ("POST", f"{_API_COMPARISON}/again"): Act.JUDGED_AGAIN,
    ("POST", f"{_COMPARISON}/rules"): Act.JUDGED_AGAIN,
    ("POST", f"{_API_COMPARISON}/rules"): Act.JUDGED_AGAIN,
    ("POST", f"{_COMPARISON}/new"): Act.COMPARED_NEW,
    ("POST", f"{_API_COMPARISON}/new"): Act.COMPARED_NEW,
    ("POST", f"{_COMPARISON}/follow"): Act.FOLLOWED,
    ("POST", f"{_COMPARISON}/note"): Act.DESCRIBED,
    ("POST", f"{_COMPARISON}/cancel"): Act.CANCELLED,
    ("POST", f"{_API_COMPARISON}/cancel"): Act.CANCELLED,
    ("POST", "/api/v1/jobs/{job}/cancel"): Act.CANCELLED,
    ("POST", f"{_COMPARISON}/delete"): Act.DELETED,
    ("DELETE", _API_COMPARISON): Act.DELETED,
    ("POST", f"{_COMPARISON}/restore"): Act.RESTORED,
    ("POST", f"{_API_COMPARISON}/restore"): Act.RESTORED,
    ("POST", "/dumps"): Act.DUMP_READ,
    ("POST", "/api/v1/dumps"): Act.DUMP_READ,
    ("POST", "/dumps/follow"): Act.FOLLOWED,
    ("POST", "/api/v1/dumps/follow"): Act.FOLLOWED,
    ("POST", _UPLOADS): Act.UPLOAD_BEGUN,
    ("PUT", _UPLOADS + "/{upload}/files/{number}"): Act.PART_SENT,
    ("POST", _UPLOADS + "/{upload}/complete"): Act.UPLOADED,
    ("DELETE", _UPLOADS + "/{upload}"): Act.UPLOAD_CANCELLED,
    ("POST", "/uploaded/remove"): Act.UPLOAD_DELETED,
    ("DELETE", _UPLOADS + "/dumps/{name}"): Act.UPLOAD_DELETED,
    ("POST", "/uploaded/restore"): Act.UPLOAD_RESTORED,
    ("POST", _UPLOADS + "/dumps/{name}/restore"): Act.UPLOAD_RESTORED,
    ("POST", f"{_MATCH}/edit"): Act.MATCHED,
    ("POST", f"{_MATCH}/undo"): Act.UNDONE,
    ("POST", f"{_MATCH}/redo"): Act.REDONE,
    ("POST", f"{_MATCH}/begin"): Act.SET_BEGUN,
    ("POST", f"{_MATCH}/rename"): Act.SET_RENAMED,
    ("POST", f"{_MATCH}/delete"): Act.SET_DELETED,
    ("POST", f"{_MATCH}/restore"): Act.SET_RESTORED,
    ("POST", f"{_MATCH}/import"): Act.IMPORTED,
    ("POST", "/c/{comparison}/s/{position}/likely"): Act.MATCHED,
    ("POST", f"{_API_COMPARISON}/match-sets"): Act.SET_BEGUN,
    ("POST", f"{_SETS}/edits"): Act.MATCHED,
    ("POST", f"{_SETS}/undo"): Act.UNDONE,
    ("POST", f"{_SETS}/redo"): Act.REDONE,
    ("POST", f"{_SETS}/rename"): Act.SET_RENAMED,
    ("DELETE", _SETS): Act.SET_DELETED,
    ("POST", f"{_SETS}/restore"): Act.SET_RESTORED,
    ("POST", f"{_SETS}/import"): Act.IMPORTED,
    ("POST", f"{_COMPARISON}/share"): Act.SHARED,
    ("POST", f"{_API_COMPARISON}/links"): Act.SHARED,
    ("POST", _COMPARISON + "/share/{link}/revoke"): Act.REVOKED,
    ("DELETE", _API_COMPARISON + "/links/{link}"): Act.REVOKED,
    ("GET", "/share/{secret}"): Act.OPENED,
    ("GET", f"{_COMPARISON}/export"): Act.EXPORTED,
    ("GET", f"{_API_COMPARISON}/export"): Act.EXPORTED,
    ("POST", _COMPARISON + "/s/{position}/n/{row}/notes"): Act.NOTE_WRITTEN,
    ("POST", _API_COMPARISON + "/slices/{position}/rows/{row}/notes"): Act.NOTE_WRITTEN,
    ("POST", _COMPARISON + "/notes/{note}/delete"): Act.NOTE_DELETED,
    ("DELETE", _API_COMPARISON + "/notes/{note}"): Act.NOTE_DELETED,
    ("POST", _COMPARISON + "/notes/{note}/restore"): Act.NOTE_RESTORED,
    ("POST", _API_COMPARISON + "/notes/{note}/restore"): Act.NOTE_RESTORED,
    ("POST", "/logout"): Act.LOGGED_OUT,
}
"""By method and path of a route. Logging in is kept by the guard, whatever the route."""

CHANGE_NOTHING: Final = frozenset(
    {("POST", "/language"), ("POST", f"{_API_COMPARISON}/preview"), ("POST", "/login")}
)
"""Routes of methods that may change something, and do not."""

_KINDS: Final[Mapping[str, str]] = {
    "link": "link",
    "note": "note",
    "match_set": "match_set",
    "job": "job",
    "upload": "upload",
    "name": "path",
}
"""What else than a comparison the path of a route may name."""

_SCOPE: Final = "firstdrift.doing"


@dataclass(slots=True)
class Doing:
    """What a request does, of which more becomes known while it is done.

    Attributes:
        deed: for the log.
        is_entered: whether it is in the log.
    """

    deed: Deed
    is_entered: bool = False

    def about(self, kind: str = "", subject: object = "", comparison: int | None = None) -> None:
        """Say of what it is, where the path does not."""
        known = self.deed
        self.deed = replace(
            known,
            kind=kind or known.kind,
            subject=str(subject) if kind else known.subject,
            comparison=known.comparison if comparison is None else comparison,
        )

    def by(self, link: ShareLink) -> None:
        """Say through which link somebody comes who has just shown its secret."""
        self.deed = replace(self.deed, who=_through(link))

    def enter(self, session: Session) -> None:
        """Write it into the log, once, in the transaction of the change."""
        if not self.is_entered:
            enter(session, self.deed)


def begin(request: Request) -> Doing | None:
    """Say what a request does, once its route is known; None if it is nothing that the log keeps."""
    act = _act_of(request.scope)
    if act is None:
        return None
    named = request.scope["path_params"]
    kind, subject = next(((kind, named[name]) for name, kind in _KINDS.items() if name in named), ("", ""))
    known = Deed(
        act, who_asks(request), address_of(request), id_in(str(named.get("comparison"))), kind, subject
    )
    doing = request.scope[_SCOPE] = Doing(known)
    return doing


def begun(scope: Scope) -> Doing | None:
    """Return what a request does, as `begin` has found it."""
    found: Doing | None = scope.get(_SCOPE)
    return found


def who_asks(request: Request) -> Who:
    """Say who asks, as far as the guards have found out."""
    standing = standing_of(request)
    if standing.link is not None:
        return _through(standing.link)
    if standing.member is not None:
        return Who(Actor.MEMBER, standing.member.name, standing.member.id)
    if standing.has_token:
        return Who(Actor.OWNER)
    return Who(Actor.OPEN if request.app.state.context.sessions is None else Actor.STRANGER)


def _through(link: ShareLink) -> Who:
    return Who(Actor.LINK, link.label, link.id)


def address_of(request: Request) -> str:
    """Return the address from which a request came."""
    return request.client.host[:64] if request.client is not None else ""


def _act_of(scope: Scope) -> Act | None:
    path = getattr(scope.get("route"), "path", "")
    change = scope.get("path_params", {}).get("change", "")
    return ACTS.get((scope["method"], path.replace("{change}", change)))
