"""Nobody chooses with a Host header what the server takes for the path of a request."""

import re
import string
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running import Running, running

from firstdrift_server.brake import Brake
from firstdrift_server.guards.host import host_name

NAMES = st.text(string.ascii_letters + string.digits + "._-", min_size=1)
FOURS = st.ip_addresses(v=4).map(str)
SIXES = st.ip_addresses(v=6)
PORTS = st.one_of(st.just(""), st.integers(0, 65535).map(":{}".format))
PIECES = st.sampled_from(
    [*"[]:/?#@%&\\,;= \t.-_0aZ", "localhost", "127.0.0.1", "[::1]", ":8765", ":65536", "%00", "é", "::1"]
)
ANYTHING = st.lists(PIECES, max_size=8).map("".join) | st.text(st.characters(max_codepoint=255), max_size=20)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("server"), "server") as server:
        yield server


@given(NAMES | FOURS, PORTS)
def test_a_name_with_or_without_a_port_is_read(name: str, port: str) -> None:
    assert host_name(f"{name}{port}") == name.lower()


@given(
    SIXES,
    PORTS,
    st.sampled_from([str, lambda address: address.exploded, lambda address: str(address).upper()]),
)
def test_an_ipv6_address_is_read_however_it_is_written(address: object, port: str, write: object) -> None:
    assert callable(write)
    assert host_name(f"[{write(address)}]{port}") == str(address)


@given(ANYTHING)
def test_what_is_read_as_a_host_is_one_and_nothing_else(header: str) -> None:
    name = host_name(header)
    if name is not None:
        url = urlsplit(f"http://{header}/path")
        assert (url.path, url.query, url.fragment, url.username) == ("/path", "", "", None)
        assert url.port is None or 0 <= url.port <= 65535
        assert name == (host_name(f"[{url.hostname}]") if ":" in name else url.hostname)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(header=ANYTHING, path=st.sampled_from(["/", "/version", "/api/v1/comparisons", "/c/1"]))
def test_no_host_header_opens_anything(stranger: TestClient, header: str, path: str) -> None:
    answer = stranger.get(path, headers={"host": header.encode("latin-1")})
    assert answer.status_code in (400, 401), header
    assert answer.status_code == 400 or host_name(header) is not None


@pytest.mark.parametrize(
    "host",
    [
        "[::1]/static/x?",
        "[::1]/static/x#",
        "[::1]/login?x=",
        "[::1]static",
        "[::1]:8765/health?",
        "[::1]:8765x",
        "[::1]:65536",
        "[::1%25eth0]",
        "[::1",
        "::1",
        "localhost/static/x?",
        "localhost?",
        "localhost#",
        "localhost:",
        "localhost:99999",
        "localhost:\uff18",
        "x@localhost",
        "localhost:1@localhost",
        "localhost, localhost",
        "localhost\\static",
        "local%68ost",
        "localhost.",
        "127.0.0.1.",
        "0x7f.1",
    ],
)
def test_a_host_that_is_none_is_refused(server: Running, host: str) -> None:
    assert server.ask("GET /version HTTP/1.1", f"Host: {host.encode().decode('latin-1')}")[0] == 400


@pytest.mark.parametrize("hosts", [(), ("localhost", "localhost"), ("localhost", "evil.example")])
def test_a_request_names_one_host(server: Running, hosts: tuple[str, ...]) -> None:
    for version in ("1.0", "1.1"):
        status, _ = server.ask(f"GET /health HTTP/{version}", *(f"Host: {host}" for host in hosts))
        assert status == 400, version


@pytest.mark.parametrize(
    "target",
    [
        "http://evil.example/health",
        "http://localhost/health",
        "http://localhost/static/x?",
        "https://evil.example/",
        "//evil.example/../health",
        "evil.example:80",
        "*",
        "static/x",
        "@evil.example/static/",
    ],
)
def test_the_request_line_names_no_other_host(server: Running, target: str) -> None:
    status, said = server.ask(f"GET {target} HTTP/1.1", "Host: localhost")
    assert status == (401 if target.startswith("//") else 400)
    assert "evil.example/health" not in said.partition("\r\n\r\n")[0]


def test_an_encoded_question_mark_or_slash_is_part_of_the_path(stranger: TestClient) -> None:
    for path in ("/version%3f/static/x", "/static%2f..%2fversion", "/%2e%2e/static/../version", "/login%3Fx"):
        stranger.app.state.context.sessions._brake = Brake()  # type: ignore[attr-defined]
        assert stranger.get(path).status_code in (401, 404), path
        assert "data-build" not in stranger.get(path).text


def test_the_address_after_logging_in_is_that_of_the_request_line(stranger: TestClient, token: str) -> None:
    answer = stranger.get("/c/1%3fx%23y/%E4%B8%AD?a=1%262&token=" + token.replace(" ", "%20"))
    assert answer.headers["location"] == "/c/1%3Fx%23y/%E4%B8%AD?a=1%262"


def test_nothing_in_the_server_asks_what_the_host_header_is_a_part_of() -> None:
    files = (Path(__file__).parents[2] / "server").rglob("*.py")
    assert [
        file.name for file in files if re.search(r"request\.url\.|request\.url\b[^`]", file.read_text())
    ] == []
