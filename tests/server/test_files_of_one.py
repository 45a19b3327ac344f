"""Whoever takes files slowly leaves room for the files of others."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from coroutines import run
from starlette.requests import Request
from starlette.types import Message as Event
from starlette.types import Send

from firstdrift.catalogue.people.members import Member
from firstdrift_server.app import create_app
from firstdrift_server.context import FILES_OF_ONE, VISITORS_AT_ONCE
from firstdrift_server.guards import turns as module
from firstdrift_server.guards.turns import TurnGuard
from firstdrift_server.settings import settings_from
from firstdrift_server.visitors import Visit, standing_of

NOW = datetime.now(UTC)


def test_one_member_who_takes_files_slowly_leaves_room_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.2)
    app = create_app(settings_from(roots=[tmp_path], data_dir=tmp_path / "data"))
    taken = asyncio.Event()

    async def slow_file(_scope: object, _receive: object, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await taken.wait()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def ask(member: int, answers: asyncio.Queue[int]) -> None:
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/c/1/export",
            "query_string": b"format=csv",
            "headers": [],
            "app": app,
        }
        standing = standing_of(Request(scope))
        standing.member = Member(
            member, f"member {member}", may_write=True, added_at=NOW, seen_at=None, removed_at=None
        )

        async def send(event: Event) -> None:
            if event["type"] == "http.response.start":
                await answers.put(event["status"])

        async def receive() -> Event:
            await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        await TurnGuard(slow_file)(scope, receive, send)

    async def all_of_it() -> None:
        first, second = asyncio.Queue[int](), asyncio.Queue[int]()
        asked = [asyncio.create_task(ask(1, first)) for _ in range(VISITORS_AT_ONCE[Visit.FILE] + 2)]
        statuses = sorted([await first.get() for _ in asked])
        assert statuses == [200] * FILES_OF_ONE + [503] * (len(asked) - FILES_OF_ONE)
        other = asyncio.create_task(ask(2, second))
        assert await second.get() == 200
        taken.set()
        await asyncio.gather(*asked, other)

    run(all_of_it())
    app.state.context.engine.dispose()
