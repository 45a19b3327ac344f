"""What a request asks for, taken from its request line.

Never from `request.url`, which is made from the Host header as well: whoever sends `Host: [::1]/static/x?`
could choose its path.
"""

from urllib.parse import parse_qsl, quote, urlencode

from starlette.types import Scope

TOKEN = "token"  # noqa: S105 - the name of a parameter
"""Where an address may hold the token of the server; on /new it is a token of a dump."""


def asked_address(scope: Scope) -> str:
    """Return path and query as a browser writes them."""
    query = scope["query_string"].decode("latin-1")
    return f"{_path(scope)}?{query}" if query else _path(scope)


def address_without_token(scope: Scope) -> str:
    """Return path and query, fit to be put into a page or to be sent on to."""
    asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    query = urlencode([(name, value) for name, value in asked if name != TOKEN])
    return f"{_path(scope)}?{query}" if query else _path(scope)


def _path(scope: Scope) -> str:
    return quote(scope["path"], safe="/:@!$&'()*+,;=")
