"""Refuse requests that were addressed to another host: a foreign name made to point here.

What a Host header may be is in RFC 9110 and 3986; it is given once, and it is one of these, of ours:

    localhost    proxy.example.org:8765    127.0.0.1:8765    [::1]    [::1]:8765

and what is asked for begins with a slash: `GET http://other.example/ HTTP/1.1`, which names a host a second
time, is refused, too.
"""

import ipaddress
import re
import socket
from http import HTTPStatus

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from firstdrift.wording.message import Message
from firstdrift_server.answers import error_answer
from firstdrift_server.settings import Settings, is_loopback

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

_HOST = re.compile(r"(?:(?P<name>[A-Za-z0-9._-]+)|\[(?P<address>[0-9A-Fa-f:.]+)\])(?::(?P<port>[0-9]{1,5}))?")
_LAST_PORT = 65535


class HostGuard:
    """Let through what was addressed to this server by one of its own names.

    A page can make its own name resolve to this machine (DNS rebinding), but it cannot make the
    browser send another Host than that name. Where the server listens at every address, any IP address
    is fine for the same reason: nobody can make an address resolve to something else.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        """Collect the names this server answers to."""
        self.app = app
        self.names = LOCAL_NAMES | set(map(_bare, (settings.host, *settings.allowed_hosts)))
        self.any_address = not is_loopback(settings.host)
        if self.any_address:
            self.names |= {socket.gethostname().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 400."""
        if scope["type"] != "http" or self._is_for_us(scope):
            await self.app(scope, receive, send)
            return
        error, hint = Message.of("server.other_host"), Message.of("server.allow_host")
        response = error_answer(Request(scope), HTTPStatus.BAD_REQUEST, error, hint)
        await response(scope, receive, send)

    def _is_for_us(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"host"]
        name = host_name(given[0].decode("latin-1")) if len(given) == 1 else None
        return name is not None and self.knows(name) and scope["path"].startswith("/")

    def knows(self, name: str) -> bool:
        """Tell whether a host name is one of ours."""
        return name in self.names or (self.any_address and _is_address(name))


def host_name(header: str) -> str | None:
    """Return the name or address in a Host header, without its port; None if the header is none."""
    found = _HOST.fullmatch(header)
    if found is None or int(found["port"] or 0) > _LAST_PORT:
        return None
    if found["name"] is not None:
        return found["name"].lower()
    try:
        return str(ipaddress.IPv6Address(found["address"]))
    except ValueError:
        return None


def _bare(name: str) -> str:
    """Write a name as `host_name` returns it."""
    bare = name.strip("[]")
    return str(ipaddress.ip_address(bare)) if _is_address(bare) else bare.lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
