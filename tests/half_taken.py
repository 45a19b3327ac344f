"""Somebody who takes only the beginning of an answer."""

import asyncio
from collections.abc import MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from fastapi import FastAPI

Message = MutableMapping[str, Any]


def taken(app: FastAPI, path: str, count: int, *, leaves: bool) -> list[Message]:
    """Take so many messages of an answer, then go away, or take nothing any more; give what was taken."""
    # In a thread: a browser of the same process has an event loop in this one.
    with ThreadPoolExecutor(1) as thread:
        took = asyncio.wait_for(_taken(app, path, count, leaves=leaves), 20)
        return thread.submit(asyncio.run, took).result()


async def _taken(app: FastAPI, path: str, count: int, *, leaves: bool) -> list[Message]:
    messages: list[Message] = []
    enough = asyncio.Event()

    async def receive() -> Message:
        await enough.wait()
        if not leaves:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        messages.append(message)
        if len(messages) >= count:
            enough.set()
            await asyncio.Event().wait()

    with suppress(TimeoutError):
        await app(asked(path), receive, send)
    return messages


def asked(address: str, host: str = "localhost", cookie: str = "") -> dict[str, Any]:
    """Ask for an address as servers hand it to applications."""
    path, _, query = address.partition("?")
    return {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", host.encode()), (b"cookie", cookie.encode())],
        "scheme": "http",
        "server": ("localhost", 80),
        "client": ("127.0.0.1", 1),
        "http_version": "1.1",
        "root_path": "",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
    }
