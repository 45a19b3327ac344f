"""Refuse requests that were addressed to another host: a foreign name made to point here."""

import ipaddress
import socket
from http import HTTPStatus

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from firstdrift_server.answers import error_answer
from firstdrift_server.settings import Settings, is_loopback

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class HostGuard:
    """Let through what was addressed to this server by one of its own names.

    A page can make its own name resolve to this machine (DNS rebinding), but it cannot make the
    browser send another Host than that name. Where the server listens at every address, any IP address
    is fine for the same reason: nobody can make an address resolve to something else.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        """Collect the names this server answers to."""
        self.app = app
        self.names = LOCAL_NAMES | {_bare(name) for name in (settings.host, *settings.allowed_hosts)}
        self.any_address = not is_loopback(settings.host)
        if self.any_address:
            self.names |= {socket.gethostname().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 400."""
        if scope["type"] != "http" or self.knows(_hostname(Request(scope).headers.get("host", ""))):
            await self.app(scope, receive, send)
            return
        error = "this server does not answer to that host name"
        hint = "Open the address that firstdrift printed, or add the name to FIRSTDRIFT_ALLOWED_HOSTS"
        response = error_answer(Request(scope), HTTPStatus.BAD_REQUEST, error, hint)
        await response(scope, receive, send)

    def knows(self, name: str) -> bool:
        """Tell whether a host name is one of ours."""
        return name in self.names or (self.any_address and _is_address(name))


def _hostname(host: str) -> str:
    """Take the port off a Host header."""
    if host.startswith("["):
        return _bare(host.partition("]")[0])
    name, colon, port = host.partition(":")
    return _bare(name) if not colon or port.isdecimal() else ""


def _bare(name: str) -> str:
    return name.strip("[]").lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
