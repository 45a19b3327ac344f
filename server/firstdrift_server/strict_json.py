"""Answers in strict JSON."""

import msgspec
from starlette.responses import Response

from firstdrift.strict_json import plain, to_json
from firstdrift_server.reader_language import language_now


class StrictJSONResponse(Response):
    """An answer in strict JSON."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Encode the content in the language of the reader; names of files that are no UTF-8 are `spelt`."""
        return to_json(plain(content, language_now())).encode()


class ManyNumbersResponse(Response):
    """An answer in strict JSON that holds many numbers: it is encoded as it is.

    Non-finite numbers are spelled out in it already, and its names are `encodable`.
    """

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Encode the content."""
        return msgspec.json.encode(content)
