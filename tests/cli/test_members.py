"""`firstdrift member` and `firstdrift audit`: while a server runs, on SQLite and on PostgreSQL."""

import json
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from running import running

TOKEN = "correct horse battery staple, seven times a day"  # noqa: S105
Run = Callable[..., object]


@pytest.fixture
def where(request: pytest.FixtureRequest, tmp_path: Path, database: str) -> tuple[str, ...]:
    """Options that say where the database is; of SQLite in the data directory of the server."""
    del request
    sqlite = ("--data-dir", str(tmp_path / "data"))
    return sqlite if database.startswith("sqlite") else ("--database-url", database)


def status(port: int, path: str, token: str) -> int:
    asked = Request(f"http://127.0.0.1:{port}{path}", headers={"authorization": f"Bearer {token}"})
    try:
        with urlopen(asked, timeout=60) as answer:  # noqa: S310
            return int(answer.status)
    except HTTPError as refused:
        return refused.code


def test_members_come_and_go_while_the_server_runs(
    firstdrift: Callable[..., Run], tmp_path: Path, where: tuple[str, ...]
) -> None:
    options = where if where[0] == "--database-url" else ()
    with running(tmp_path, "server", *options, FIRSTDRIFT_TOKEN=TOKEN) as server:
        added = firstdrift("member", "add", "ann", *where)
        token = added.out.strip()
        assert (added.status, len(token), "ann" in added.err) == (0, 43, True)
        assert status(server.port, "/version", token) == 200
        viewer = firstdrift("member", "add", "Bob Li", "--viewer", *where).out.strip()
        assert status(server.port, "/version", viewer) == 200
        listed = json.loads(firstdrift("member", "list", "--json", *where).out)["members"]
        assert [(one["name"], one["may_write"], one["is_active"]) for one in listed] == [
            ("Bob Li", False, True),
            ("ann", True, True),
        ]
        assert all(one["seen_at"] for one in listed)
        table = firstdrift("member", "list", *where).out.splitlines()
        assert ["look" in table[1], "change" in table[2], len(table)] == [True, True, 3]
        again = firstdrift("member", "add", "ann", *where)
        assert (again.status, again.out, "already" in again.err) == (2, "", True)
        assert firstdrift("member", "remove", "ann", *where).status == 0
        assert status(server.port, "/version", token) == 401
        assert status(server.port, "/version", viewer) == 200
        assert firstdrift("member", "remove", "ann", *where).status == 2
        assert "removed 20" in firstdrift("member", "list", *where).out
    entered = json.loads(firstdrift("audit", "--json", *where).out)["entries"]
    assert [(one["who"], one["act"], one["subject"]) for one in entered if one["who"] == "terminal"] == [
        ("terminal", "member removed", "ann"),
        ("terminal", "member added", "Bob Li"),
        ("terminal", "member added", "ann"),
    ]
    lines = firstdrift("audit", "--who", "terminal", "--act", "member added", "--limit", "1", *where).out
    assert lines.splitlines()[0].endswith("added a member  member Bob Li")
    assert token not in json.dumps(entered)


def test_a_member_can_be_added_before_the_server_is_started_first(
    firstdrift: Callable[..., Run], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    token = firstdrift("member", "add", "ann", "--data-dir", data).out.strip()
    assert (data.stat().st_mode & 0o777, (data / "firstdrift.db").stat().st_mode & 0o777) == (0o700, 0o600)
    with running(tmp_path, "server", FIRSTDRIFT_TOKEN=TOKEN) as server:
        assert status(server.port, "/version", token) == 200


@pytest.mark.parametrize("command", [("member", "list"), ("member", "remove", "ann"), ("audit",)])
def test_what_is_not_there_is_not_made(
    firstdrift: Callable[..., Run], tmp_path: Path, command: tuple[str, ...]
) -> None:
    ended = firstdrift(*command, "--data-dir", tmp_path / "nowhere")
    assert (ended.status, ended.out, "no database here" in ended.err) == (2, "", True)
    assert not (tmp_path / "nowhere").exists()


def test_no_password_is_taken_from_the_command_line(firstdrift: Callable[..., Run], tmp_path: Path) -> None:
    for url in ("postgresql://me:hunter2x@localhost/db", "postgresql://localhost/db?password=hunter2x"):
        for command in (("check",), ("member", "list"), ("server", str(tmp_path)), ("worker",)):
            ended = firstdrift(*command, "--database-url", url)
            assert (ended.status, "hunter2x" in ended.out + ended.err) == (2, False), command
            assert "FIRSTDRIFT_DATABASE_URL" in ended.err


def test_what_serve_was_asked_to_compare_is_in_the_log(
    firstdrift: Callable[..., Run], tmp_path: Path, unpacked: Callable[[str], Path]
) -> None:
    pair = unpacked("msprobe/d4_renamed")
    asked = ("--compare", str(pair / "golden"), str(pair / "target"), str(pair))
    with running(tmp_path, "serve", *asked, FIRSTDRIFT_TOKEN=TOKEN):
        pass
    (entry,) = json.loads(firstdrift("audit", "--json", "--data-dir", tmp_path / "data").out)["entries"]
    assert (entry["who"], entry["act"], entry["comparison"]) == ("terminal", "compared", 1)
