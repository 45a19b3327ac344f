"""Whatever is asked, of whatever route, the answer was meant: no fault, and errors in one shape."""

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from asked_routes import Route, parameter_names, routes_of
from fastapi import FastAPI
from fastapi.testclient import TestClient
from soak import record, rounds

HTML = {"accept": "text/html"}
HEADERS: Sequence[Mapping[str, str | bytes]] = (
    *(
        {},
        {},
        {},
        HTML,
        HTML,
        {"accept": "*/*;q=9"},
        {"accept-language": "zh;q=x,,;"},
        {"range": "bytes=9-1"},
    ),
    *(
        {"host": "[::1]/c/1?"},
        {"host": "[::1"},
        {"host": b"\xff"},
        {"origin": "null"},
        {"content-length": "-1"},
    ),
    *(
        {"cookie": 'firstdrift_name=%FF%00; firstdrift_language="; =; a'},
        {"cookie": b"firstdrift_name=\xb9\xfe"},
    ),
    *(
        {"if-none-match": "*"},
        {"authorization": "Bearer \\"},
        {"authorization": b"\xff"},
        {"accept-encoding": "x;q"},
    ),
)
FORM = "application/x-www-form-urlencoded"
REQUESTS = rounds(1500, 8000)
SEED = 20240229

NUMBERS = ("0", "1", "2", "3", "4")
ODD_NUMBERS = (
    "-1",
    "007",
    "1.5",
    "1e3",
    str(2**31),
    str(2**63 - 1),
    str(2**63),
    "9" * 30,
    "9" * 5000,
    "\u0661",
    "",
)
ODD_TEXTS = (
    *(
        "",
        " ",
        "\0",
        "\x1a",
        "a\0b",
        "\n\r\t",
        "%",
        "%00",
        "'",
        '"',
        "\\",
        "\\x",
        "\\xb9",
        "..",
        "../../etc/passwd",
    ),
    *(
        "/",
        "//",
        "/proc/self/mem",
        "null",
        "NaN",
        "-",
        "-1",
        "0-",
        "1-0",
        ".",
        "..0",
        "[",
        "(",
        "(?P<",
        "(a+)+$",
    ),
    *(
        "*",
        "café",
        "\u202e",
        "\U0001f600",
        "\u0663",
        "yes",
        "no",
        "true",
        "all",
        "golden",
        "target",
        "x" * 9000,
        "0." * 2000,
    ),
)
ODD_BYTES = ("%FF", "%ED%A0%80", "%B9%FE", "%00", "%", "%zz", "+", "&", "=", "%F0%9F%98", ";")
"""As they stand in an address; what they stand for is no UTF-8, or nothing."""

WORDS = (
    *(
        "error",
        "pass",
        "warning",
        "incomparable",
        "unmatched",
        "tree",
        "execution",
        "name",
        "recent",
        "dumps",
        "bin",
    ),
    *("comparisons", "csv", "xlsx", "json", "html", "md", "msit", "msprobe", "firstdrift", "layer_mapping"),
    *(
        "match",
        "unmatch",
        "rows",
        "state",
        "picked",
        "effect",
        "suggestions",
        "edit",
        "undo",
        "begin",
        "import",
    ),
    *(
        "rank",
        "step",
        "token",
        "relative_l2",
        "cosine_similarity",
        "output",
        "input",
        "forward",
        "7d",
        "1h",
        "never",
    ),
)
BODIES = (
    b"",
    b"{",
    b"{}",
    b"[]",
    b"null",
    b"0",
    b'"\\ud800"',
    b"\xff\xfe",
    b"\0",
    b"NaN",
    b"1e999",
    b"9" * 5000,
    b"[" * 100_000,
    b'{"a":' * 20_000,
    b'{"path": "\\u0000", "golden": "\\udcb9", "target": "\\udcb9"}',
)
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        -1,
        0,
        1,
        2**31,
        2**63,
        10**30,
        0.5,
        1e308,
        "",
        "x",
        "\0",
        "\ud800",
        "\udcb9",
        "x" * 9000,
    ),
    *([], {}, [None], [[]], [{}], {"": ""}, ["x"] * 50, "1", "/", "match", "unmatch"),
)
TYPES = (
    "application/json",
    FORM,
    "text/plain",
    "multipart/form-data; boundary=x",
    "multipart/form-data",
    "",
    "a/b/c",
)


def takes_away(route: Route) -> bool:
    """Tell what is asked for last, so that the others find something."""
    return route.method == "DELETE" or route.path.endswith(("delete", "remove", "revoke", "cancel"))


class Generator:
    """Makes requests, the same ones from the same seed."""

    def __init__(self, app: FastAPI, texts: Sequence[str]) -> None:
        """Prepare to ask `app`; `texts` are names and paths that it knows."""
        self._random = random.Random(SEED)  # noqa: S311 - to be the same each time
        self._names = parameter_names(app)
        self._known = texts

    def text(self) -> str:
        kinds = (NUMBERS, NUMBERS, ODD_NUMBERS, ODD_TEXTS, ODD_TEXTS, WORDS, self._known)
        return self._random.choice(self._random.choice(kinds))

    def part(self, name: str) -> str:
        """Give what stands in a gap of a path: mostly something that is there."""
        words = {"part": WORDS, "change": WORDS, "secret": ODD_TEXTS, "folder": ODD_TEXTS, "name": ODD_TEXTS}
        if self._random.random() < 0.75:
            usual = ("0", "0", "1") if name == "position" else NUMBERS
            return quote(self._random.choice(words.get(name, usual)), safe="") or "-"
        return quote(self._random.choice((*ODD_NUMBERS, *ODD_TEXTS)), safe="") or "-"

    def pairs(self) -> Iterator[str]:
        for _ in range(self._random.choice((0, 0, 1, 1, 2, 3, 6))):
            value = self._random.choice(ODD_BYTES) if self._random.random() < 0.1 else quote(self.text())
            yield f"{self._random.choice(self._names)}={value}"

    def value(self, depth: int = 0) -> Any:  # noqa: ANN401 (whatever JSON has)
        kind = self._random.random()
        if kind < 0.3 and depth < 3:
            return self._random.choice(([self.value(depth + 1)], {self.text(): self.value(depth + 1)}))
        return self._random.choice(VALUES) if kind < 0.7 else self.text()

    def body(self, route: Route) -> tuple[bytes, str]:
        if route.method in ("GET", "HEAD"):
            return b"", ""
        if self._random.random() < 0.2:
            return self._random.choice(BODIES), self._random.choice(TYPES)
        if route.path.startswith("/api/"):
            chosen = [name for name in route.fields if self._random.random() < 0.8]
            return json.dumps({name: self.value() for name in chosen}).encode(), "application/json"
        return "&".join([*self.pairs(), *self.pairs()]).encode(), FORM

    def request(self, client: TestClient, route: Route) -> httpx2.Request:
        path = re.sub(r"\{(\w+)(?::\w+)?\}", lambda gap: self.part(gap[1]), route.path)
        body, kind = self.body(route)
        suffix = self._random.choice(("", "", "", ".json"))
        address = f"{path}{suffix}?{'&'.join(self.pairs())}"
        headers = ({"content-type": kind} if kind else {}) | dict(self._random.choice(HEADERS))
        return client.build_request(route.method, address, content=body, headers=headers)


def complaints(answer: httpx2.Response) -> Iterator[str]:
    """Say what is wrong with an answer, whatever was asked."""
    if answer.status_code == 500:
        yield "is a fault"
    if "Traceback (most recent call last)" in answer.text:
        yield "shows where in the code it failed"
    data = answer.request.url.path.startswith("/api/")
    kind = answer.headers.get("content-type", "")
    is_page = answer.request.headers.get("accept") == "text/html" and not data
    is_page = is_page and answer.request.method != "HEAD" and not answer.request.url.path.endswith(".json")
    if answer.status_code >= 400 and is_page and not kind.startswith("text/html"):
        yield f"is an error for people as {kind or 'nothing'}"
    if answer.status_code >= 400 and data and answer.request.method != "HEAD":
        if not kind.startswith("application/json"):
            yield f"is an error as {kind or 'nothing'}"
            return
        said = json.loads(answer.text)
        if (
            set(said) != {"ok", "error", "status", "hint", "message", "advice", "request"}
            or said["ok"]
            or said["status"] != answer.status_code
        ):
            yield "is an error in another shape"
    if kind.startswith("application/json") and answer.content:
        json.loads(answer.content.decode("utf-8"), parse_constant=lambda name: pytest.fail(f"{name} in JSON"))


@pytest.fixture
def texts(dumps: Mapping[str, tuple[Path, Path]]) -> list[str]:
    """Paths and names that mean something to the server."""
    return [
        *(str(path) for pair in dumps.values() for path in pair),
        "Module.model.layers.0",
        "model",
        "lm_head",
    ]


def test_suggestions_for_nothing_are_refused_with_what_is_missing(client: TestClient) -> None:
    answer = client.get("/c/1/s/0/match/suggestions", headers={"accept": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["message"]["id"] == "server.no_node_named"
    assert answer.json()["hint"]


def test_no_request_is_answered_by_a_fault_and_errors_have_one_shape(
    client: TestClient, texts: Sequence[str]
) -> None:
    app: Any = client.app
    generator, routes = Generator(app, texts), routes_of(app)
    wanted = [route for route in routes for _ in range(1 + REQUESTS // len(routes))]
    random.Random(SEED).shuffle(wanted)  # noqa: S311 - likewise
    wanted.sort(key=takes_away)
    wrong = []
    for route in wanted:
        request = generator.request(client, route)
        answer = client.send(request)
        wrong += [
            f"{route.method} {str(request.url)[:300]} {request.content[:200]!r} {said}"
            for said in complaints(answer)
        ]
    assert wrong == []
    record(
        "error_shape", f"{len(wanted):,} requests to all {len(routes)} routes, pages too: 0 faults, one shape"
    )


@pytest.mark.parametrize(
    "method", ["OPTIONS", "HEAD", "TRACE", "PATCH", "PROPFIND", "GET", "POST", "DELETE", "PUT"]
)
def test_what_no_route_takes_is_an_error_in_the_one_shape(client: TestClient, method: str) -> None:
    for path in (
        "/api/v1/comparisons/1",
        "/api/v1/nothing",
        "/api/",
        "/api",
        "/c/1/",
        "/c/1/export/x",
        "/api/v1/browse/",
    ):
        answer = client.request(method, path)
        assert list(complaints(answer)) == [], (method, path)
