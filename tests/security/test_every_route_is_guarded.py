import re

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from route_walk import routes

from firstdrift_frontend.assets import build
from firstdrift_server.brake import Brake
from firstdrift_server.guards.headers import HEADERS, OF_FILES

OPEN_TO_STRANGERS = {
    ("GET", "/health"),
    ("GET", "/ready"),
    ("GET", "/static/{folder}/{name:path}"),
    ("GET", "/login"),
    ("GET", "/help"),
    ("GET", "/share/{secret}"),
    ("POST", "/login"),
}
LOGIN = {("GET", "/login"): 401, ("POST", "/login"): 415}
"""The page at which a token is asked for, and what it answers to who shows none in a form."""
CROSS_SITE = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "empty"}
FOREIGN_ORIGIN = {"origin": "https://evil.example"}


def address(path: str) -> str:
    """Fill in the parameters of a route."""
    return re.sub(r"\{[^}]+\}", "1", path)


def test_the_walk_finds_the_routes(app: FastAPI) -> None:
    found = set(routes(app))
    assert OPEN_TO_STRANGERS - {("GET", "/ready")} <= found
    assert len(found) > 5


def test_every_route_refuses_a_foreign_host(app: FastAPI, client: TestClient) -> None:
    for method, path in routes(app):
        for host in ("evil.example", "evil.example:8765", "localhost.evil.example", "", "192.0.2.1"):
            answer = client.request(method, address(path), headers={"host": host})
            assert answer.status_code == 400, (method, path, host)


def test_every_route_refuses_what_another_site_sends(app: FastAPI, client: TestClient) -> None:
    for method, path in routes(app):
        for headers in (
            CROSS_SITE,
            CROSS_SITE | {"sec-fetch-site": "same-site"},
            FOREIGN_ORIGIN,
            {"origin": "null"},
        ):
            answer = client.request(method, address(path), headers=headers)
            assert answer.status_code == 403, (method, path, headers)


def test_no_route_is_open_to_strangers_but_those_on_the_list(
    locked_app: FastAPI, stranger: TestClient
) -> None:
    for method, path in routes(locked_app):
        locked_app.state.context.sessions._brake = Brake()  # no guess is too early
        for headers in ({}, {"authorization": "Bearer wrong"}, {"cookie": "firstdrift_00000000=1.2.3"}):
            status = stranger.request(method, address(path), headers=headers).status_code
            is_refused = status == LOGIN.get((method, path), 401)
            assert is_refused is ((method, path) not in OPEN_TO_STRANGERS - LOGIN.keys()), (
                method,
                path,
                status,
            )


@pytest.mark.parametrize("path", ["/", "/no-such-page", "/c/999999", "/api/v1/comparisons/999999", "/health"])
def test_every_answer_carries_the_security_headers(client: TestClient, path: str) -> None:
    of_ours = {"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}
    for headers in ({}, {"host": "evil.example"}, CROSS_SITE, {"sec-fetch-site": "same-site"}, *of_ours):
        answer = client.get(path, headers=headers)
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        is_severed = answer.headers.get("cross-origin-opener-policy") == "same-origin"
        assert is_severed is (headers not in of_ours), headers
    assert (
        "unsafe-inline" not in HEADERS["content-security-policy"].partition("script-src")[2].partition(";")[0]
    )


def test_scripts_and_styles_carry_what_concerns_files(client: TestClient) -> None:
    answer = client.get(f"/static/{build()}/app.js")
    assert answer.status_code == 200
    assert {name: answer.headers.get(name) for name in OF_FILES} == OF_FILES
    assert client.get("/static/no-such-file.js").headers["content-security-policy"]
