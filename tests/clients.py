"""A script's side of a server: one connection that is kept, and opened again where it breaks."""

import http.client
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

PATIENCE = 120.0
"""Seconds in which each request is answered, also on a machine that does much else."""


class Client:
    """Asks a server; whoever asks it from several threads needs one for each."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        self._where, self._headers = urlsplit(url), dict(headers or {})
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, said: object = None, raw: bytes | None = None) -> tuple[int, bytes]:
        """Give status and body of an answer.

        Raises:
            OSError: the server, or the connection, is no more; so of `http.client.HTTPException`.
        """
        headers = self._headers | ({} if said is None else {"Content-Type": "application/json"})
        body = raw if said is None else json.dumps(said).encode()
        if self._connection is None:
            self._connection = http.client.HTTPConnection(
                self._where.hostname or "", self._where.port, timeout=PATIENCE
            )
        is_kept = self._connection.sock is not None
        try:
            self._connection.request(method, path, body, headers)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if is_kept and method == "GET" and isinstance(error, http.client.RemoteDisconnected):
                return self.ask(method, path)  # a server keeps no connection for ever
            raise

    def data(self, method: str, path: str, said: object = None, raw: bytes | None = None) -> Any:  # noqa: ANN401
        """Give the JSON of an answer that is well."""
        status, body = self.ask(method, path, said, raw)
        assert status < 300, (method, path, status, body[:500])
        return json.loads(body)

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        """Leave no connection open."""
        self.close()
