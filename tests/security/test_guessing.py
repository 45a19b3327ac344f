"""Who guesses the token is slowed down, and keeps nobody else out for more than seconds."""

import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from messages import stated
from running import Browser, Running, running

from firstdrift_server.brake import AT_ONCE, FREE, LONGEST_SECONDS, MOST_ADDRESSES, PER_SECOND, Brake

GUESSABLE = "a long random secret"
"""Strong enough to be accepted, not strong enough to be let in at once while others guess."""

HOST = "Host: localhost"
FORM = "Content-Type: application/x-www-form-urlencoded"

WAYS: list[Callable[[Running, str, str], tuple[int, str]]] = [
    lambda server, token, more: server.ask(f"GET /?token={quote(token)} HTTP/1.1", HOST, more),
    lambda server, token, more: server.ask(f"GET /health?token={quote(token)} HTTP/1.1", HOST, more),
    lambda server, token, more: server.ask("GET / HTTP/1.1", HOST, f"Authorization: Bearer {token}", more),
    lambda server, token, more: server.ask(
        *("POST /login HTTP/1.1", HOST, FORM, f"Content-Length: {len(quote(token)) + 6}", more),
        body=f"token={quote(token)}",
    ),
]
NOTHING_MORE = "Accept: */*"


class Clock:
    """A clock that somebody sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(params=WAYS, ids=["link", "link to an open page", "header", "form"])
def way(request: pytest.FixtureRequest) -> Callable[[Running, str, str], tuple[int, str]]:
    found: Callable[[Running, str, str], tuple[int, str]] = request.param
    return found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, "server", FIRSTDRIFT_TOKEN=GUESSABLE) as server:
        yield server


def test_of_hundreds_of_guesses_a_few_are_looked_at(
    server: Running, way: Callable[[Running, str, str], tuple[int, str]]
) -> None:
    browser, address = Browser(), f"http://127.0.0.1:{server.port}"
    assert browser.open(f"{address}/login", f"token={quote(GUESSABLE)}".encode())[0] == 200
    began, answers = time.monotonic(), []
    while len(answers) < 300:
        answers.append(way(server, f"guess {len(answers)}", NOTHING_MORE))
    seconds = time.monotonic() - began
    refused = [said for status, said in answers if status == HTTPStatus.TOO_MANY_REQUESTS]
    assert FREE < len(answers) - len(refused) <= FREE + 2 + seconds
    waits = [int(said.lower().partition("retry-after: ")[2].split()[0]) for said in refused]
    assert all(1 <= wait <= LONGEST_SECONDS for wait in waits)
    # A right one opens nothing meanwhile, or guessing would go on; whoever is logged in notices nothing.
    while way(server, "one more guess", NOTHING_MORE)[0] == HTTPStatus.TOO_MANY_REQUESTS:
        time.sleep(0.05)  # A guess that is looked at begins the longest wait.
    assert way(server, GUESSABLE, NOTHING_MORE)[0] == HTTPStatus.TOO_MANY_REQUESTS
    assert browser.open(f"{address}/")[0] == 200


def test_who_was_slowed_down_gets_in_some_seconds_later(server: Running) -> None:
    while WAYS[0](server, "guess", NOTHING_MORE)[0] != HTTPStatus.TOO_MANY_REQUESTS:
        pass
    over = time.monotonic() + LONGEST_SECONDS + 30
    while WAYS[0](server, GUESSABLE, NOTHING_MORE)[0] != HTTPStatus.SEE_OTHER:
        assert time.monotonic() < over
        time.sleep(0.2)


def test_guesses_from_everywhere_are_slowed_down_together(server: Running) -> None:
    began, looked_at = time.monotonic(), 0
    for number in range(400):
        more = f"X-Forwarded-For: 203.0.{number // 250}.{number % 250}"
        looked_at += WAYS[0](server, "guess", more)[0] != HTTPStatus.TOO_MANY_REQUESTS
    assert looked_at <= AT_ONCE + 1 + PER_SECOND * (time.monotonic() - began)
    over = time.monotonic() + 30
    while WAYS[0](server, GUESSABLE, "X-Forwarded-For: 198.51.100.1")[0] != HTTPStatus.SEE_OTHER:
        assert time.monotonic() < over
        time.sleep(0.2)


def test_who_guesses_behind_the_same_proxy_does_not_keep_the_owner_of_a_strong_token_out(
    stranger: TestClient, token: str
) -> None:
    statuses = [stranger.get("/", params={"token": f"{number}"}).status_code for number in range(20)]
    assert set(statuses) == {401, 429}
    assert stranger.get("/version", headers={"authorization": f"Bearer {token}"}).status_code == 200
    assert stranger.get("/", params={"token": token}).status_code == 303
    assert stranger.get("/version").status_code == 200


def test_a_script_and_a_person_are_told_when_to_try_again(stranger: TestClient) -> None:
    for number in range(20):
        stranger.post("/login", data={"token": f"{number}"})
    page = stranger.post("/login", data={"token": "one more", "wanted": "/c/7"})
    assert (page.status_code, page.headers["retry-after"]) == (429, "1")
    assert "wait-1" in stated(page.text)
    assert '"/c/7"' in page.text
    in_chinese = stranger.get("/", params={"token": "wrong"}, headers={"accept-language": "zh"})
    assert "请在 1 秒后再试" in in_chinese.text
    data = stranger.get(
        "/api/v1/comparisons", headers={"authorization": "Bearer wrong", "accept": "application/json"}
    )
    said = data.json()
    assert (said["ok"], said["status"], data.headers["retry-after"]) == (False, 429, "1")
    assert said["message"]["id"] == "server.too_many_wrong_tokens"


def test_the_page_that_refuses_a_token_does_not_quote_it(stranger: TestClient) -> None:
    for _ in range(FREE + 2):
        answer = stranger.get("/c/7", params={"slice": "2", "token": "nearly right"})
        assert answer.status_code in (401, 429)
        assert "nearly" not in answer.text
        assert "/c/7?slice=2" in answer.text


def test_a_token_of_a_dump_in_an_address_is_no_guess(stranger: TestClient, token: str) -> None:
    stranger.get("/", params={"token": token})
    for number in range(3 * FREE):
        assert stranger.get("/new", params={"token": number}).status_code == 200
    assert "token=11" in stranger.get("/new", params={"token": "11"}).text
    stranger.cookies.clear()
    assert stranger.get("/", params={"token": "wrong"}).status_code == 401


def test_each_address_waits_for_itself_and_twice_as_long_each_time() -> None:
    clock = Clock()
    brake = Brake(clock)
    waits = []
    for _ in range(FREE + 6):
        assert brake.wait("10.0.0.1") == 0.0
        brake.failed("10.0.0.1")
        waits.append(brake.wait("10.0.0.1"))
        clock.now += waits[-1]
    assert waits == [0.0] * FREE + [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    brake.failed("10.0.0.1")
    assert brake.wait("10.0.0.2") == 0.0
    assert brake.wait("::ffff:10.0.0.1") == LONGEST_SECONDS
    clock.now += 901
    brake.failed("10.0.0.1")
    assert brake.wait("10.0.0.1") == 0.0


def test_one_ipv6_network_is_one_guesser_and_what_is_no_address_is_one_too() -> None:
    brake = Brake(Clock())
    for number in range(FREE + 1):
        brake.failed(f"2001:db8::{number}")
        brake.failed("no address" * 100)
    assert brake.wait("2001:db8::ffff") == brake.wait("no address" * 100) == 1.0
    assert brake.wait("2001:db8:0:1::1") == 0.0


def test_guessing_from_many_addresses_takes_no_memory_and_is_forgiven_within_seconds() -> None:
    clock = Clock()
    brake = Brake(clock)
    for number in range(3 * MOST_ADDRESSES):
        clock.now += 1 / PER_SECOND
        brake.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(brake._failures) == MOST_ADDRESSES
    for number in range(AT_ONCE):
        brake.failed(f"192.0.2.{number}")
    assert 0.0 < brake.wait("198.51.100.1") <= 1.0
    clock.now += 1.0
    assert brake.wait("198.51.100.1") == 0.0
