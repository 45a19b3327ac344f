import re
import time

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from route_walk import routes
from soak import record

from firstdrift.catalogue.people.members import add_member, remove_member
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


HOSTS = ("evil.example", "evil.example:8765", "localhost.evil.example", "", "192.0.2.1")


def test_every_route_refuses_a_foreign_host(app: FastAPI, client: TestClient) -> None:
    walked = list(routes(app))
    for method, path in walked:
        for host in HOSTS:
            answer = client.request(method, address(path), headers={"host": host})
            assert answer.status_code == 400, (method, path, host)
    asked = len(walked) * len(HOSTS)
    record("other_sites", f"{len(walked)} routes with {len(HOSTS)} foreign hosts: {asked} of {asked} refused")


SENT = (
    *(CROSS_SITE | {"sec-fetch-site": site} for site in ("cross-site", "same-site", "nonsense", "")),
    CROSS_SITE | {"sec-fetch-mode": "cors"},
    CROSS_SITE | {"sec-fetch-dest": "image"},
    CROSS_SITE | {"sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
    CROSS_SITE | {"origin": "http://localhost:8765"},
    FOREIGN_ORIGIN,
    {"origin": "null"},
    {"origin": "http://localhost:8766"},
)
"""What a browser sends of a page of another site, and what it never does."""


def test_every_route_refuses_what_another_site_sends(app: FastAPI, client: TestClient) -> None:
    walked = list(routes(app))
    for method, path in walked:
        for headers in SENT:
            answer = client.request(method, address(path), headers=headers)
            assert answer.status_code == 403, (method, path, headers)
    asked = len(walked) * len(SENT)
    record("other_sites", f"{len(walked)} routes with {len(SENT)} sets of headers: all {asked} refused")


def wrong_tokens(app: FastAPI) -> list[dict[str, str]]:
    """Give what shows nothing, or nothing that is right: of nobody, and of somebody who was removed."""
    context = app.state.context
    with context.writing() as session:
        member, token = add_member(session, "gone")
        remove_member(session, "gone")
    text = f"{int(time.time()) + 1000}.{'a' * 32}.{member}"
    cookie = f"{context.sessions.cookie}={text}.{context.sessions._sign(text)}"
    return [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Bearer {token}"},
        {"cookie": "firstdrift_00000000=1.2.3"},
        {"cookie": cookie},
        {"cookie": f"{context.sessions.cookie}_share_1={token}"},
    ]


def test_no_route_is_open_to_strangers_but_those_on_the_list(
    locked_app: FastAPI, stranger: TestClient
) -> None:
    walked, shown = list(routes(locked_app)), wrong_tokens(locked_app)
    for method, path in walked:
        locked_app.state.context.sessions._brake = Brake()  # no guess is too early
        for headers in shown:
            status = stranger.request(method, address(path), headers=headers).status_code
            is_refused = status == LOGIN.get((method, path), 401)
            assert is_refused is ((method, path) not in OPEN_TO_STRANGERS - LOGIN.keys()), (
                method,
                path,
                status,
            )
    stay = len(walked) - len(OPEN_TO_STRANGERS - LOGIN.keys())
    record(
        "login",
        f"{len(walked)} routes, {len(walked) * len(shown)} requests without a right token: {stay} routes are"
        f" closed, {len(OPEN_TO_STRANGERS)} are open by a list",
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
