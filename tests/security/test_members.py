"""Members log in like the owner, are known by name, and are worth nothing once they are removed."""

import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from messages import says, stated
from route_walk import routes
from soak import record
from sqlalchemy import text

from firstdrift.catalogue.engine import reading, writing
from firstdrift.catalogue.people.audit import Act, Entered, Sought, entries
from firstdrift.catalogue.people.members import add_member, list_members, remove_member
from firstdrift_server.app import create_app
from firstdrift_server.brake import AT_ONCE, Brake
from firstdrift_server.sessions import SESSION_SECONDS
from firstdrift_server.settings import settings_from

FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture
def app(tmp_path: Path, token: str) -> FastAPI:
    return create_app(settings_from(roots=[tmp_path], data_dir=tmp_path / "data", token=token))


@pytest.fixture
def browser(app: FastAPI) -> Iterator[TestClient]:
    """Somebody who has shown nothing yet."""
    with TestClient(app, base_url="http://localhost:8765", follow_redirects=False) as client:
        yield client


def another(app: FastAPI, cookies: dict[str, str] | None = None) -> TestClient:
    return TestClient(app, base_url="http://localhost:8765", follow_redirects=False, cookies=cookies)


def add(app: FastAPI, name: str = "ann", *, may_write: bool = True) -> str:
    with writing(app.state.context.engine) as session:
        return add_member(session, name, may_write=may_write)[1]


def remove(app: FastAPI, name: str = "ann") -> None:
    with writing(app.state.context.engine) as session:
        remove_member(session, name)


def entered(app: FastAPI) -> tuple[Entered, ...]:
    with reading(app.state.context.engine) as session:
        return entries(session, Sought(), 1000)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_a_member_logs_in_by_link_by_form_and_by_header(app: FastAPI, browser: TestClient) -> None:
    token = add(app)
    assert browser.get("/version", headers=bearer(token)).status_code == 200
    link = browser.get("/board", params={"token": token})
    assert (link.status_code, link.headers["location"]) == (303, "/board")
    assert "Max-Age=2592000" in link.headers["set-cookie"]
    assert browser.get("/version").status_code == 200
    by_form = another(app)
    assert by_form.post("/login", data={"token": token, "wanted": "/new"}).headers["location"] == "/new"
    by_address = another(app)
    pasted = f"http://127.0.0.1:8765/?token={token}"
    assert by_address.post("/login", data={"token": pasted}).status_code == 303
    for client in (by_form, by_address):
        assert client.get("/api/v1/comparisons").status_code == 200
        assert client.post("/dumps/follow", data={"path": "/nowhere"}).status_code == 404, "it may be asked"
    assert [(one.act, one.name) for one in entered(app)] == [(Act.LOGGED_IN, "ann")] * 3


def test_whoever_is_removed_is_out_at_once_and_so_is_every_copy_of_their_cookie(
    app: FastAPI, browser: TestClient
) -> None:
    token, other = add(app), add(app, "bob")
    browser.get("/", params={"token": token})
    beside = another(app)
    beside.get("/", params={"token": other})
    copy = another(app, dict(browser.cookies))
    assert {one.get("/version").status_code for one in (browser, beside, copy)} == {200}
    remove(app)
    for client in (browser, copy):
        assert client.get("/version").status_code == HTTPStatus.UNAUTHORIZED
        assert client.get("/", params={"token": token}).status_code == HTTPStatus.UNAUTHORIZED
        assert client.post("/api/v1/comparisons", json={}).status_code == HTTPStatus.UNAUTHORIZED
    assert another(app).get("/version", headers=bearer(token)).status_code == HTTPStatus.UNAUTHORIZED
    assert beside.get("/version").status_code == 200, "somebody else stays"
    add(app)
    assert browser.get("/version").status_code == HTTPStatus.UNAUTHORIZED, (
        "the name alone brings nothing back"
    )


def test_a_session_of_a_member_ends_by_logging_out_and_after_thirty_days(
    app: FastAPI, browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = add(app)
    browser.get("/", params={"token": token})
    copy = another(app, dict(browser.cookies))
    stays = another(app)
    stays.get("/", params={"token": token})
    assert browser.post("/logout", headers=FORM).status_code == 303
    assert copy.get("/version").status_code == HTTPStatus.UNAUTHORIZED
    assert stays.get("/version").status_code == 200
    restarted = another(create_app(app.state.context.settings), dict(copy.cookies))
    assert restarted.get("/version").status_code == HTTPStatus.UNAUTHORIZED, "after a restart, too"
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + SESSION_SECONDS + 1)
    assert stays.get("/version").status_code == HTTPStatus.UNAUTHORIZED


def test_nobody_becomes_another_member_or_the_owner_by_changing_the_cookie(
    app: FastAPI, browser: TestClient
) -> None:
    browser.get("/", params={"token": add(app)})
    (name, cookie), *_ = browser.cookies.items()
    expiry, secret, number, signature = cookie.split(".")
    for forged in (
        f"{expiry}.{secret}.{signature}",
        f"{expiry}.{secret}.2.{signature}",
        f"{expiry}.{secret}..{signature}",
        f"{expiry}.{secret}.{number}.",
        f"9{expiry}.{secret}.{number}.{signature}",
        f".{signature}",
    ):
        assert another(app, {name: forged}).get("/version").status_code == HTTPStatus.UNAUTHORIZED, forged


def test_who_guesses_the_token_of_a_member_is_slowed_down_and_members_get_in_all_the_same(
    app: FastAPI, browser: TestClient
) -> None:
    token = add(app)
    guesses = [f"{number:043d}" for number in range(20)]
    statuses = [browser.get("/", params={"token": guess}).status_code for guess in guesses]
    assert set(statuses) == {401, 429}
    assert browser.get("/version", headers=bearer(token)).status_code == 200
    assert browser.get("/", params={"token": token}).status_code == 303
    kept = [entry for entry in entered(app) if entry.act == Act.REFUSED]
    assert [(entry.actor, entry.times) for entry in kept] == [("stranger", statuses.count(401))]
    assert statuses.count(401) < AT_ONCE


def test_a_viewer_sees_everything_and_changes_nothing(app: FastAPI, browser: TestClient) -> None:
    browser.get("/", params={"token": add(app, "vera", may_write=False)})
    for path in ("/", "/new", "/board", "/audit", "/api/v1/comparisons", "/api/v1/audit", "/dumps"):
        assert browser.get(path).status_code in (200, 303), path
    refused = 0
    for method, path in routes(app):
        if method in ("GET", "HEAD") or path in ("/logout", "/language"):
            continue
        answer = browser.request(method, path.replace("{", "").replace("}", ""), headers=FORM)
        assert answer.status_code == HTTPStatus.FORBIDDEN, (method, path)
        assert says(answer.text, "server.changes_nothing"), (method, path)
        refused += 1
    assert refused > 50
    record("login", f"of {refused} routes that may change something all refuse a member who only looks")
    home = browser.get("/").text
    assert "is-looker" in home
    assert "only-looks" in stated(home)
    assert (
        "您可以查看这里的一切"
        in browser.post("/new", headers=FORM | {"accept-language": "zh", "accept": "text/html"}).text
    )
    assert browser.post("/language", data={"language": "zh"}).status_code == 303
    assert browser.post("/logout", headers=FORM).status_code == 303
    assert [one.act for one in entered(app)] == [Act.LOGGED_OUT, Act.LOGGED_IN]


def test_when_a_member_was_seen_last_is_known(app: FastAPI, browser: TestClient) -> None:
    token = add(app)
    assert browser.get("/version", headers=bearer(token)).status_code == 200
    with reading(app.state.context.engine) as session:
        (ann,) = list_members(session)
    assert ann.seen_at is not None
    for _ in range(20):
        browser.get("/version", headers=bearer(token))
    with reading(app.state.context.engine) as session:
        assert list_members(session) == (ann,), "not written again for every page"


def test_where_no_token_is_asked_for_there_are_no_members(tmp_path: Path) -> None:
    client = another(create_app(settings_from(roots=[tmp_path], data_dir=tmp_path)))
    assert client.get("/version", headers=bearer("a" * 43)).status_code == 200
    assert client.get("/audit").status_code == 200


def test_a_database_that_is_away_lets_no_member_in_and_says_so(
    app: FastAPI, browser: TestClient, token: str
) -> None:
    member = add(app)
    browser.get("/", params={"token": member})
    app.state.context.sessions._brake = Brake()
    with writing(app.state.context.engine) as session:
        session.execute(text("ALTER TABLE members RENAME TO gone"))
    for client in (browser, another(app)):
        answer = client.get("/version", headers=bearer(member))
        assert answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE
        assert answer.headers["retry-after"]
    assert browser.get("/static/x/app.css").status_code == 404, "files need no database"
    assert another(app).get("/version", headers=bearer(token)).status_code == 200, "nor does the owner"
