"""Who has shown a token, the owner or a member: the cookie that stands for it, and the brake on guessing."""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from threading import Lock

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from firstdrift.catalogue.people.members import Member
from firstdrift_server.brake import Brake
from firstdrift_server.ended import EndedSessions
from firstdrift_server.tokens import SURE_BITS, estimated_bits
from firstdrift_server.visitors import standing_of

SESSION_SECONDS = 30 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of showing a token.

    Attributes:
        right: whoever showed it is let in.
        wait: seconds until another one is looked at; this one was not, unless it is right.
        shown: whether one was shown at all.
        member: whose token it is; None for the owner's.
    """

    right: bool
    wait: float = 0.0
    shown: bool = True
    member: Member | None = None


class Sessions:
    """Cookies that prove the token was shown; they die with the token, by logging out, and after thirty days.

    Whoever shows wrong tokens has to wait (`firstdrift_server.brake`), and a right one does not open
    meanwhile, or the waiting would be for nothing. Only a token that nobody can hit upon, such as those of
    members, lets its owner in at once: others who guess, perhaps from behind the same proxy, cannot keep them
    out.
    """

    def __init__(
        self,
        token: str,
        ended: Path | None = None,
        brake: Brake | None = None,
        member_of: Callable[[str], Member | None] = lambda _: None,
    ) -> None:
        """Derive what is needed from the token.

        Args:
            token: of the owner; sessions are signed with it.
            ended: the file of the sessions that were ended.
            brake: on those who guess.
            member_of: says whose token was shown; None for nobody's.
        """
        self._member_of = member_of
        self._token = token.encode()
        self._sure = estimated_bits(token) >= SURE_BITS
        self._ended = EndedSessions(ended)
        self._brake = brake or Brake()
        self._lock = Lock()
        # Servers on several ports of one host share their cookies: each needs a name of its own.
        self.cookie = f"firstdrift_{self._sign('cookie name')[:8]}"

    def is_token(self, shown: str) -> bool:
        """Compare in constant time."""
        return hmac.compare_digest(shown.encode("utf-8", "surrogatepass"), self._token)

    def again(self, shown: str) -> Attempt:
        """Look at a token that somebody who is in already shows, and so guesses nothing."""
        if self.is_token(shown):
            return Attempt(right=True)
        member = self._member_of(shown)
        return Attempt(right=member is not None, member=member)

    def attempt(self, request: Request, shown: str) -> Attempt:
        """Look at a token that was shown, if it is not too early for that."""
        address = request.client.host if request.client is not None else ""
        right = self.is_token(shown)
        member = None if right else self._member_of(shown)
        if member is not None:
            return Attempt(right=True, member=member)
        with self._lock:
            wait = self._brake.wait(address)
            if right and (self._sure or not wait):
                return Attempt(right=True)
            if not wait:
                self._brake.failed(address)
                standing_of(request).has_failed = True
            return Attempt(right=False, wait=wait)

    def session_of(self, request: Request) -> str | None:
        """Return the session whose cookie a request carries; None if there is none, or it is over."""
        session, _, signature = request.cookies.get(self.cookie, "").rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign(session).encode()):
            return None
        is_over = int(session.partition(".")[0]) <= time.time() or session in self._ended
        return None if is_over else session

    def welcome(self, request: Request, address: str, member: Member | None = None) -> Response:
        """Give the visitor, the owner or a member, a cookie and send them on."""
        response = RedirectResponse(address, HTTPStatus.SEE_OTHER)
        session = f"{int(time.time()) + SESSION_SECONDS}.{secrets.token_hex(16)}"
        if member is not None:
            session = f"{session}.{member.id}"
        standing = standing_of(request)
        standing.has_token, standing.member, standing.has_entered = True, member, True
        response.set_cookie(
            self.cookie,
            f"{session}.{self._sign(session)}",
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="lax",
            secure=request.scope["scheme"] == "https",
        )
        return response

    @staticmethod
    def number_of(session: str | None) -> int | None:
        """Return the id of the member whose session it is; None for the owner's, and for none."""
        _, _, number = (session or "").partition(".")[2].partition(".")
        return int(number) if number else None

    def farewell(self, session: str | None, address: str) -> Response:
        """End a session, take its cookie back, and send the visitor on."""
        if session is not None:
            self._ended.add(session)
        response = RedirectResponse(address, HTTPStatus.SEE_OTHER)
        response.delete_cookie(self.cookie, httponly=True, samesite="lax")
        return response

    def _sign(self, text: str) -> str:
        return hmac.new(self._token, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
