"""Response headers that tell the browser what these pages never do."""

from dataclasses import dataclass
from http.client import OK

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Plotly sets styles on elements it creates; nothing else needs 'unsafe-inline', and scripts never do.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not "no-referrer": browsers would send "Origin: null" with our own forms.
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}

OF_FILES = {name: HEADERS[name] for name in ("x-content-type-options", "cross-origin-resource-policy")}
"""What scripts and styles need of them: the others speak of pages, and would be a third of a small file."""

# Takes a page out of the hands of the site that opened it. Once browsers see the header they begin another
# process for the page, as long as all the rest of opening a tree takes: it is left out where they say that no
# other site did.
SEVERED = {"cross-origin-opener-policy": "same-origin"}
NO_OTHER_SITE = frozenset({"same-origin", "none"})


@dataclass(frozen=True, slots=True)
class SecurityHeaders:
    """Add the headers to every response, errors included."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and add to the answer."""
        added = HEADERS
        if scope["type"] == "http" and Headers(scope=scope).get("sec-fetch-site") not in NO_OTHER_SITE:
            added = HEADERS | SEVERED
        is_file = scope["type"] == "http" and scope["path"].startswith("/static/")

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(OF_FILES if is_file and message["status"] == OK else added)
                headers.setdefault("cache-control", "private, no-cache")
            await send(message)

        await self.app(scope, receive, send_with_headers)
