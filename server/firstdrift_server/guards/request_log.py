"""Give each request an id, by which its lines in the log are found, and count and log its answer.

X-Request-ID: 5f2c…    taken from a proxy in front if it is well-formed, else made; answered likewise
"""

import logging
import re
import secrets
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Event

from firstdrift.logs import about
from firstdrift_server.traffic import Requested, Traffic, requested

log = logging.getLogger("firstdrift.server")

HEADER = "x-request-id"
QUIET = frozenset({"/health", "/ready", "/metrics", "/static/{folder}/{name:path}"})
"""Routes that are asked so often that only what goes wrong with them is logged."""

_WELL_FORMED = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_FIRST_ERROR = 400


@dataclass(frozen=True, slots=True)
class RequestLog:
    """Met first and left last, so that what other guards answer is counted, too."""

    app: ASGIApp
    traffic: Traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on under its id; count and log what becomes of it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        told = requested(scope)
        told.id = _id_of(Headers(scope=scope))

        async def send_with_id(message: Event) -> None:
            if message["type"] == "http.response.start":
                told.status = message["status"]
                MutableHeaders(scope=message)[HEADER] = told.id
            await send(message)

        self.traffic.under_way += 1
        with about(request=told.id):
            try:
                await self.app(scope, receive, send_with_id)
            finally:
                self.traffic.under_way -= 1
                self._tell(scope["method"], told)

    def _tell(self, method: str, told: Requested) -> None:
        seconds = self.traffic.add(method, told)
        if told.route in QUIET and told.status < _FIRST_ERROR:
            return
        # Neither path nor query: a path may be the secret of a link, a query may hold the token.
        facts = {"route": told.route, "method": method, "status": told.status, "seconds": round(seconds, 4)}
        log.info("%s %s: %d", method, told.route, told.status, extra=facts)


def _id_of(headers: Headers) -> str:
    given = headers.getlist(HEADER)
    is_usable = len(given) == 1 and _WELL_FORMED.fullmatch(given[0])
    return given[0] if is_usable else secrets.token_hex(8)
