"""Whoever logs out is out: the cookie opens nothing any more, wherever a copy of it is."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from messages import stated

from firstdrift_server.app import create_app
from firstdrift_server.ended import EndedSessions
from firstdrift_server.sessions import SESSION_SECONDS
from firstdrift_server.settings import settings_from

FORM = {"content-type": "application/x-www-form-urlencoded"}
BUTTON = 'action="/logout"'


@pytest.fixture
def owner(tmp_path: Path, token: str) -> Iterator[TestClient]:
    """Somebody who has logged in, on a server of their own."""
    with TestClient(
        create_app(settings_from(roots=[tmp_path], data_dir=tmp_path, token=token)),
        base_url="http://localhost:8765",
        follow_redirects=False,
    ) as client:
        client.get("/", params={"token": token})
        yield client


def beside(owner: TestClient, cookies: dict[str, str], settings: object = None) -> TestClient:
    """Somebody else with these cookies, at the same server, or at one that was started after it."""
    app = owner.app if settings is None else create_app(settings)  # type: ignore[arg-type]
    return TestClient(app, base_url="http://localhost:8765", cookies=cookies, follow_redirects=False)


def session(number: int) -> str:
    return f"{int(time.time()) + SESSION_SECONDS + number}.{number:032x}"


def test_the_cookie_is_taken_back_and_a_copy_of_it_is_worth_nothing(owner: TestClient, token: str) -> None:
    copy = dict(owner.cookies)
    another = beside(owner, {})
    another.get("/", params={"token": token})
    assert owner.get("/version").status_code == 200
    answer = owner.post("/logout", headers=FORM)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?left=yes")
    assert dict(owner.cookies) == {}
    assert "logged-out" in stated(owner.get("/login?left=yes").text)
    thief = beside(owner, copy)
    assert thief.get("/version").status_code == 401
    assert thief.post("/logout", headers=FORM).status_code == 401
    assert another.get("/version").status_code == 200, "another browser of theirs"


def test_logging_out_outlasts_the_process_and_tells_the_servers_beside(owner: TestClient) -> None:
    copy, settings = dict(owner.cookies), owner.app.state.context.settings  # type: ignore[attr-defined]
    second = beside(owner, copy, settings)
    assert second.get("/version").status_code == 200
    owner.post("/logout", headers=FORM)
    until = time.monotonic() + 30
    while second.get("/version").status_code == 200:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert beside(owner, copy, settings).get("/version").status_code == 401


def test_where_the_disk_is_full_a_session_ends_as_long_as_the_server_lives(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ended = EndedSessions(tmp_path / "missing" / "file")
    ended.add(session(1))
    assert session(1) in ended
    assert "cannot be written" in caplog.text


def test_only_who_is_logged_in_is_shown_the_button(
    owner: TestClient, client: TestClient, stranger: TestClient, token: str
) -> None:
    for path in ("/", "/new", "/board", "/no-such-page", "/login", "/c/99"):
        assert BUTTON in owner.get(path).text, path
        assert BUTTON not in client.get(path).text, "no token is set there"
        assert BUTTON not in stranger.get(path).text
        assert BUTTON not in stranger.get(path, headers={"authorization": f"Bearer {token}"}).text
    assert "退出登录" in owner.get("/", headers={"accept-language": "zh"}).text
    assert client.post("/logout", headers=FORM).status_code == 404
    assert stranger.post("/logout", headers=FORM).status_code == 401
    assert owner.get("/logout").status_code == 405, "a link or an image logs nobody out"
    assert owner.post("/logout", headers=FORM | {"sec-fetch-site": "cross-site"}).status_code == 403
    assert owner.get("/version").status_code == 200


def test_so_many_are_remembered_and_those_that_began_before_are_over_too(tmp_path: Path) -> None:
    file = tmp_path / "ended"
    ended = EndedSessions(file, most=3)
    for number in (10, 20, 30, 40, 50):
        ended.add(session(number))
    for known in (ended, EndedSessions(file, most=3)):
        assert len(known._ended) <= 3
        assert all(session(number) in known for number in (10, 20, 30, 40, 50))
        assert session(5) in known, "it began before one that was forgotten"
        assert session(35) not in known
        assert session(60) not in known


def test_what_has_expired_and_what_is_damaged_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "ended"
    expired = f"{int(time.time()) - 1}.{7:032x}"
    file.write_bytes(f"{expired}\n{session(1)}\nnonsense\n".encode() + os.urandom(50))
    assert session(1) in EndedSessions(file)
    assert file.read_text().split() == [session(1)]
