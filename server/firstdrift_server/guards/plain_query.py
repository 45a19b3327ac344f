r"""Understand bytes in an address that are no UTF-8: `?path=/data/%B2%E2` is read as `?path=/data/\xb2\xe2`.

Scripts send names of files so; whoever reads an address would find signs there that stand for any byte.
"""

from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote_to_bytes, urlencode

from starlette.types import ASGIApp, Receive, Scope, Send

from firstdrift.paths import spelt


@dataclass(frozen=True, slots=True)
class PlainQuery:
    """Spell such bytes before anybody looks at the address."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with an address that is text."""
        query = scope.get("query_string", b"")
        if not _is_text(query):
            scope = {**scope, "query_string": urlencode(fields(query)).encode()}
        await self.app(scope, receive, send)


def fields(encoded: bytes) -> list[tuple[str, str]]:
    """Take apart what an address, or a form, says; bytes that are no UTF-8 are `spelt`."""
    text = encoded.decode("utf-8", "surrogateescape")
    pairs = parse_qsl(text, keep_blank_values=True, errors="surrogateescape")
    return [(spelt(name), spelt(value)) for name, value in pairs]


def _is_text(query: bytes) -> bool:
    try:
        (unquote_to_bytes(query) if b"%" in query else query).decode()
    except UnicodeDecodeError:
        return False
    return True
