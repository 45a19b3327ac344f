"""Answers in strict JSON."""

from collections.abc import Mapping

import msgspec
from starlette.responses import JSONResponse, Response

from firstdrift.paths import spelt
from firstdrift.strict_json import to_json
from firstdrift_server.reader_language import VARY, language_now


class StrictJSONResponse(JSONResponse):
    """An answer in strict JSON."""

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        """Set the headers; what is kept on the way is kept by language."""
        super().init_headers(headers)
        self.headers.setdefault("vary", VARY)

    def render(self, content: object) -> bytes:
        """Encode the content in the language of the reader; names of files that are no UTF-8 are `spelt`."""
        return to_json(content, language=language_now(), names=spelt).encode()


class ManyNumbersResponse(Response):
    """An answer in strict JSON that holds many numbers: it is encoded as it is.

    Non-finite numbers are spelled out in it already, and its names are `encodable`.
    """

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Encode the content."""
        return msgspec.json.encode(content)
