import time
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from messages import stated

from firstdrift_server.app import create_app
from firstdrift_server.guards.login import local_address
from firstdrift_server.sessions import SESSION_SECONDS, Sessions
from firstdrift_server.settings import settings_from


def test_a_link_with_the_token_is_exchanged_for_a_cookie_and_the_token_leaves_the_address(
    stranger: TestClient, token: str
) -> None:
    answer = stranger.get("/version", params={"a": "1", "token": token, "b": "x y"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/version?a=1&b=x+y")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert token not in cookie
    assert stranger.get("/version").status_code == 200


def test_a_script_sends_the_token_as_a_header(stranger: TestClient, token: str) -> None:
    assert stranger.get("/version", headers={"authorization": f"Bearer {token}"}).status_code == 200
    refused = stranger.get(
        "/version", headers={"authorization": f"Basic {token}", "accept": "application/json"}
    )
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")


def test_a_person_types_the_token_and_arrives_where_they_were_going(stranger: TestClient, token: str) -> None:
    form = stranger.get("/c/7", params={"slice": "2"})
    assert form.status_code == 401
    assert '"/c/7?slice=2"' in form.text
    wrong = stranger.post("/login", data={"token": "wrong", "wanted": "/c/7?slice=2"})
    assert "wrong" in stated(wrong.text)
    right = stranger.post("/login", data={"token": token, "wanted": "/c/7?slice=2"})
    assert (right.status_code, right.headers["location"]) == (303, "/c/7?slice=2")
    assert stranger.get("/version").status_code == 200


@pytest.mark.parametrize("wrong", ["", "wrong", "correct horse battery stapl", "\u00e9", "a" * 10_000])
def test_a_wrong_token_opens_nothing(stranger: TestClient, wrong: str) -> None:
    assert stranger.get("/version", params={"token": wrong}).status_code == 401
    assert stranger.get("/version").status_code == 401


def test_a_cookie_dies_with_the_token_it_was_given_for(
    stranger: TestClient, token: str, tmp_path: Path
) -> None:
    stranger.get("/", params={"token": token})
    cookies = dict(stranger.cookies)
    (name,) = cookies
    changed = create_app(settings_from(token=f"{token} 2", data_dir=tmp_path))
    later = TestClient(
        changed, base_url="http://localhost", cookies=cookies | {Sessions(f"{token} 2").cookie: cookies[name]}
    )
    assert later.get("/version").status_code == 401


def test_a_cookie_dies_after_thirty_days(
    stranger: TestClient, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger.get("/", params={"token": token})
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + SESSION_SECONDS - 60)
    assert stranger.get("/version").status_code == 200
    monkeypatch.setattr(time, "time", lambda: now + SESSION_SECONDS + 60)
    assert stranger.get("/version").status_code == 401


@pytest.mark.parametrize(
    "address",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "evil.example",
        "",
        "/\t/evil.example",
        "javascript:x",
    ],
)
def test_nobody_is_sent_to_another_site_after_logging_in(
    stranger: TestClient, token: str, address: str
) -> None:
    assert local_address(address) == "/"
    answer = stranger.post("/login", data={"token": token, "wanted": address})
    assert answer.headers["location"] == "/"
    assert stranger.get("//evil.example/", params={"token": token}).headers["location"] == "/"
