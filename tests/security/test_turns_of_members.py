"""Members, whatever they ask for and however slowly they take or send it, leave turns to the owner."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from half_taken import Message, asked
from working import wait_until, worker

from firstdrift.catalogue.engine import writing
from firstdrift.catalogue.people.members import add_member
from firstdrift_server.app import create_app
from firstdrift_server.context import MEMBERS_AT_ONCE, TRIED_BY_MEMBERS, WRITTEN_AT_ONCE
from firstdrift_server.guards import turns
from firstdrift_server.settings import settings_from

ADDRESS = "http://localhost:8765"
TRIAL, FILE, PAGE = "/c/1/rules?factor=9", "/c/1/export?format=csv", "/c/1"
CHUNK = "/api/v1/uploads/0123456789abcdef/files/0?offset=0"
SENT, TAKEN = "http.request", "http.response.body"
"""From where on nothing is sent, or taken, any more."""


class Place(NamedTuple):
    """A server with a comparison, and who asks it."""

    app: FastAPI
    owner: dict[str, str]
    member: dict[str, str]
    other: dict[str, str]

    def send(self, address: str, headers: dict[str, str], text: str = "said") -> int:
        client = TestClient(self.app, base_url=ADDRESS, headers=headers, follow_redirects=False)
        return client.post(address, data={"note": text}).status_code

    def ask(self, address: str, headers: dict[str, str]) -> int:
        client = TestClient(self.app, base_url=ADDRESS, headers=headers, follow_redirects=False)
        return client.get(address).status_code


@pytest.fixture
def place(
    tmp_path: Path, unpacked: Callable[[str], Path], token: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    pair, owner = unpacked("msprobe/d4_renamed"), {"authorization": f"Bearer {token}"}
    settings = settings_from(roots=[pair], data_dir=tmp_path, token=token, host="0.0.0.0")  # noqa: S104
    app = create_app(settings)
    with writing(app.state.context.engine) as session:
        of_ann, of_bob = (
            {"authorization": f"Bearer {add_member(session, name)[1]}"} for name in ("ann", "bob")
        )
    with worker(settings.database), TestClient(app, base_url=ADDRESS, headers=owner) as client:
        wanted = {"golden": str(pair / "golden"), "target": str(pair / "target")}
        assert client.post("/api/v1/comparisons", json=wanted).status_code == 201
        wait_until(lambda: not client.get("/api/v1/jobs?only_open=true").json()["jobs"])
        monkeypatch.setattr(turns, "WAIT_SECONDS", 0.5)
        yield Place(app, owner, of_ann, of_bob)


async def _held(app: FastAPI, scope: Message, until: str, is_held: asyncio.Event) -> None:
    """Ask for something, and send nothing of its body, or take nothing of that of its answer."""

    async def receive() -> Message:
        if until == SENT:
            is_held.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        is_refused = message.get("status", 200) != 200
        if is_refused or (until == TAKEN and message.get("body")):
            is_held.set()
            await asyncio.Event().wait()

    await app(scope, receive, send)


async def _beside(place: Place, count: int, scope: Message, until: str, ask: Callable[[], int]) -> int:
    events = [asyncio.Event() for _ in range(count)]
    asking = [asyncio.create_task(_held(place.app, {**scope}, until, event)) for event in events]
    try:
        await asyncio.wait_for(asyncio.gather(*(event.wait() for event in events)), 60)
        return await asyncio.to_thread(ask)
    finally:
        for one in asking:
            one.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


def beside_a_member(place: Place, count: int, address: str, until: str, ask: Callable[[], int]) -> int:
    """Ask for something while a member holds so many requests; give the status of the answer."""
    scope = asked(address, "localhost:8765")
    token, form = place.member["authorization"].encode(), b"application/x-www-form-urlencoded"
    scope["headers"] += [(b"authorization", token), (b"content-type", form)]
    scope["method"] = "GET" if until == TAKEN else "PUT" if address == CHUNK else "POST"
    with ThreadPoolExecutor(1) as thread:  # that of the tests may have the loop of a browser
        return thread.submit(asyncio.run, _beside(place, count, scope, until, ask)).result()


def test_trials_of_members_leave_one_to_the_owner(place: Place) -> None:
    of_members = place.app.state.context.trials_of_members
    while of_members.take():
        pass
    assert place.ask(TRIAL, place.owner) == 200
    assert place.ask(TRIAL, place.member) == 503
    of_members.give_back(TRIED_BY_MEMBERS)
    assert place.ask(TRIAL, place.member) == 200


@pytest.mark.parametrize("address", ["/api/v1/comparisons/1/preview", "/c/1/note", "/api/v1/uploads", CHUNK])
def test_what_a_member_sends_slowly_keeps_nobody_else_waiting(place: Place, address: str) -> None:
    def ask() -> int:
        assert place.ask(TRIAL, place.other) == 200
        assert place.ask(PAGE, place.member) == 200
        assert place.send("/c/1/note", place.other) == 303
        return place.send("/c/1/note", place.member)

    assert beside_a_member(place, MEMBERS_AT_ONCE, address, SENT, ask) == 503, "but their own"
    assert place.send("/c/1/note", place.member) == 303


def test_what_a_member_sends_is_no_larger_than_it_may_be(place: Place) -> None:
    assert place.send("/c/1/note", place.member, "x" * (1 << 21)) == 413


def test_files_that_members_take_slowly_leave_one_to_the_owner(place: Place) -> None:
    count = WRITTEN_AT_ONCE + 1
    assert beside_a_member(place, count, FILE, TAKEN, lambda: place.ask(FILE, place.owner)) == 200
    assert beside_a_member(place, count, FILE, TAKEN, lambda: place.ask(FILE, place.member)) == 503
    assert beside_a_member(place, count, FILE, TAKEN, lambda: place.ask(PAGE, place.member)) == 200
    assert place.ask(FILE, place.member) == 200
