from collections.abc import Callable

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from messages import refuses
from starlette.datastructures import Headers

from firstdrift.errors import SettingsError
from firstdrift_server.app import create_app
from firstdrift_server.guards.origin import is_own
from firstdrift_server.settings import settings_from

HOST = {"host": "localhost:8765"}


def link(site: str) -> dict[str, str]:
    return {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8765", "127.0.0.1:1", "[::1]", "[::1]:8765", "LOCALHOST"]
)
def test_a_visitor_on_this_machine_is_answered(client: TestClient, host: str) -> None:
    assert client.get("/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost:8765@evil.example",
        "localhost:x",
        "[::2]",
        "10.0.0.1",
        "[",
        "a]",
    ],
)
def test_a_name_that_was_made_to_point_here_is_turned_away(client: TestClient, host: str) -> None:
    assert client.get("/health", headers={"host": host}).status_code == 400


@pytest.mark.parametrize("host", ["10.0.0.1:8765", "[2001:db8::1]", "proxy.example.org", "localhost"])
def test_a_server_for_others_answers_to_addresses_and_to_names_it_was_told(host: str, token: str) -> None:
    names = "proxy.example.org, other.example.org"
    settings = settings_from(host="0.0.0.0", token=token, allowed_hosts=names)  # noqa: S104
    client = TestClient(create_app(settings))
    assert client.get("/health", headers={"host": host}).status_code == 200
    assert client.get("/health", headers={"host": "evil.example"}).status_code == 400


@pytest.mark.parametrize(
    ("method", "headers", "own"),
    [
        pytest.param("POST", {"sec-fetch-site": "same-origin"}, True, id="our own form"),
        pytest.param("POST", {"sec-fetch-site": "none"}, True, id="a reload by the user"),
        pytest.param("POST", {}, True, id="curl"),
        pytest.param("POST", {"origin": "http://localhost:8765"}, True, id="our own form, older browser"),
        pytest.param("POST", {"origin": "https://localhost:8765"}, True, id="behind a TLS proxy"),
        pytest.param("POST", {"origin": "http://localhost:9999"}, False, id="another port"),
        pytest.param("POST", {"origin": "http://localhost"}, False, id="no port"),
        pytest.param("POST", {"origin": "null"}, False, id="a sandboxed frame"),
        pytest.param("POST", {"origin": ""}, False, id="an empty origin"),
        pytest.param("POST", {"origin": "https://evil.example"}, False, id="another site"),
        pytest.param("POST", link("cross-site"), False, id="a form of another site"),
        pytest.param("POST", link("same-site"), False, id="a form of another port"),
        pytest.param("GET", link("cross-site"), True, id="a followed link"),
        pytest.param("GET", link("cross-site") | {"sec-fetch-dest": "iframe"}, False, id="a frame"),
        pytest.param(
            "GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, False, id="an image"
        ),
        pytest.param("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}, False, id="a fetch"),
        pytest.param("GET", {"origin": "https://evil.example"}, False, id="a fetch, older browser"),
        pytest.param("DELETE", {"sec-fetch-site": "cross-site"}, False, id="a deletion"),
        pytest.param("GET", {"sec-fetch-site": "something-new"}, False, id="a value nobody knows yet"),
    ],
)
def test_who_counts_as_our_own(method: str, headers: dict[str, str], own: bool) -> None:
    assert is_own(method, Headers(HOST | headers)) == own


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", ""])  # noqa: S104
def test_others_are_not_served_without_a_token(host: str) -> None:
    with refuses(SettingsError, "server.others_could_reach"):
        settings_from(host=host)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
def test_one_s_own_machine_needs_no_token(host: str) -> None:
    assert settings_from(host=host).secret is None


def test_a_token_that_is_easily_guessed_is_refused() -> None:
    with refuses(SettingsError, "server.short_token", least=16):
        settings_from(token="secret")  # noqa: S106


def test_a_body_larger_than_allowed_is_refused_whether_or_not_its_length_is_declared(
    app: FastAPI, client: TestClient
) -> None:
    largest = app.state.context.settings.largest_body
    pieces: Callable[[], object] = lambda: (b"x" * 65536 for _ in range(largest // 65536 + 1))  # noqa: E731
    form = {"content-type": "application/x-www-form-urlencoded"}
    for content in (b"x" * (largest + 1), pieces()):
        answer = client.post("/login", content=content, headers=form | {"accept": "application/json"})
        assert (answer.status_code, answer.json()["ok"]) == (413, False)


@pytest.mark.parametrize("length", ["9" * 5000, "-1", "1e3", ""])
def test_a_length_that_is_none_is_refused(client: TestClient, length: str) -> None:
    form = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
    answer = client.post("/login", content=b"x", headers=form | {"content-length": length})
    assert answer.status_code == 413
