"""What server and worker log: lines that programs read, that name what they are about, and tell no secret."""

import json
import logging
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from running import running
from soak import record

from firstdrift.logs import HIDDEN, JSON, about, set_up, without_secrets

TOKEN = "a-token-that-nobody-guesses-2c91f0"  # noqa: S105
SECRET = "lk_7pT2u9XkQwEr"  # noqa: S105
FORGED = 'name\n{"level": "ERROR", "message": "forged"}\r\x1b[2J\u2028\x85end'
HEADER = {"authorization": f"Bearer {TOKEN}"}


def ask(url: str, body: object = None, **headers: str) -> tuple[int, Any, dict[str, str]]:
    """Ask for something in JSON; give status, answer and head."""
    data = None if body is None else json.dumps(body).encode()
    known = {"accept": "application/json", "content-type": "application/json", **headers}
    request = urllib.request.Request(url, data, known)  # noqa: S310 - a server of ours
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return answer.status, json.load(answer), {k.lower(): v for k, v in answer.headers.items()}
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused), {k.lower(): v for k, v in refused.headers.items()}


@pytest.fixture
def restored() -> Iterator[None]:
    root = logging.getLogger()
    before = [*root.handlers], root.level
    yield
    root.handlers[:], root.level = before


@pytest.mark.parametrize("written", ["text", "json"])
@pytest.mark.usefixtures("restored")
def test_a_name_cannot_forge_a_line(written: str, capsys: pytest.CaptureFixture[str]) -> None:
    set_up(written)
    with about(request="r1", job=7):
        try:
            raise ValueError(FORGED)  # noqa: TRY301
        except ValueError:
            logging.getLogger("firstdrift").exception("%s cannot be read", FORGED)
    lines = capsys.readouterr().err.splitlines()
    if written == "json":
        (line,) = map(json.loads, lines)
        assert line["message"] == f"{FORGED} cannot be read"
        assert (line["says"], line["request"], line["job"]) == ("%s cannot be read", "r1", 7)
        assert line["level"] == "ERROR"
        assert FORGED in line["traceback"]
    else:
        assert lines[0].endswith("[request r1, job 7]")
        assert all(line.startswith("  ") for line in lines[1:])
    assert all(line.isascii() and line.isprintable() for line in lines)


@pytest.mark.parametrize(
    "said",
    [
        f"GET /c/7?x=1&token={SECRET}&y=2",
        f"Authorization: Bearer {SECRET}",
        f"postgresql+psycopg://firstdrift:{SECRET}@database/firstdrift",
        f"FIRSTDRIFT_TOKEN={SECRET}",
        f"FIRSTDRIFT_DATABASE_PASSWORD: '{SECRET}'",
        f"/share/{SECRET}?to=/c/7",
        f"cookie: firstdrift_0a1b2c3d={SECRET}; firstdrift_0a1b2c3d_share_7={SECRET}",
        f'{{"password": "{SECRET}"}}',
    ],
)
@pytest.mark.usefixtures("restored")
def test_what_stands_where_secrets_do_is_not_written(said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert SECRET not in without_secrets(said)
    for written in ("text", "json"):
        set_up(written)
        logging.getLogger("firstdrift").warning("%s", said)
        shown = capsys.readouterr().err
        assert SECRET not in shown
        assert HIDDEN in shown


def lines_of(said: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.splitlines()]


def test_a_job_is_found_from_the_request_that_asked_for_it(
    tmp_path: Path, unpacked: Callable[[str], Path]
) -> None:
    dumps = unpacked("msprobe/d4_renamed")
    options = ("--log-format", "json", "--workers", "1", str(dumps))
    with running(tmp_path, "serve", *options, FIRSTDRIFT_TOKEN=TOKEN) as served:
        base = served.url.rstrip("/")
        wanted = {"golden": str(dumps / "golden"), "target": str(dumps / "target")}
        mine = HEADER | {"x-request-id": "from.the-proxy_1"}
        status, made, head = ask(f"{base}/api/v1/comparisons", wanted, **mine)
        assert (status, head["x-request-id"]) == (201, "from.the-proxy_1")
        until = time.monotonic() + 100
        while ask(f"{base}/api/v1/jobs/{made['job']['id']}", **HEADER)[1]["state"] != "done":
            assert time.monotonic() < until
            time.sleep(0.2)
        ask(f"{base}/c/99?token={TOKEN}&path=/dumps/alice", **HEADER)
        ask(f"{base}/share/{SECRET}")
        _, refused, head = ask(f"{base}/c/99", **HEADER, **{"x-request-id": "two words"})
        assert refused["request"] == head["x-request-id"] != "two words"
        assert re.fullmatch("[0-9a-f]{16}", refused["request"])
        served.process.terminate()
        _, said = served.process.communicate(timeout=60)
    lines = lines_of(said)
    (queued,) = [one for one in lines if one["says"] == "job %d is queued"]
    assert queued["request"] == "from.the-proxy_1"
    assert (queued["job"], queued["comparison"]) == (made["job"]["id"], made["id"])
    (posted,) = [one for one in lines if one.get("method") == "POST"]
    assert (posted["request"], posted["status"]) == ("from.the-proxy_1", 201)
    of_job = [one["message"] for one in lines if one.get("job") == queued["job"]]
    assert [one.split(":")[0] for one in of_job] == ["job 1 is queued", "job 1 begins", "job 1 is done"]
    assert {"time", "level", "logger", "message"} <= set.intersection(*map(set, lines))
    assert not any(one in said for one in (TOKEN, SECRET, "alice"))
    record("secrets", f"{len(lines)} lines of server and worker as JSON, the token or a link in none")
    assert {"/c/{comparison}", "/share/{secret}"} <= {one.get("route") for one in lines}


def test_a_failure_is_logged_under_the_id_that_its_page_shows(tmp_path: Path) -> None:
    program = """
from firstdrift_server.home import page
def broken(*_, **__):
    raise RuntimeError("broken on purpose")
page.home_view = broken
from firstdrift.cli import run
run()
"""
    with running(tmp_path, "server", "--no-token", program=program) as served:
        status, refused, head = ask(f"{served.url}?token={SECRET}")
        assert status == 500
        served.process.terminate()
        said = served.process.communicate(timeout=60)[1]
    assert f"GET / failed [request {refused['request']}]" in said
    assert head["x-request-id"] == refused["request"]
    assert "broken on purpose" in said
    assert SECRET not in said


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    import os
    import sys

    command = [sys.executable, "-m", "firstdrift.cli", "server", "--port", "0", "--no-token", str(tmp_path)]
    environment = os.environ | {"FIRSTDRIFT_LOG_FORMAT": "xml"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "log_format" in done.stderr


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("GET /share/SECRETSECRET failed", "GET /share/*** failed"),
        ("postgresql://u:ab&cd,e;f@g@h/x is away", "postgresql://u:***@h/x is away"),
        ("listening at http://h:8765/c/1", "listening at http://h:8765/c/1"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
    ],
)
@pytest.mark.usefixtures("restored")
def test_what_looks_like_a_secret_is_in_no_part_of_a_line(
    capsys: pytest.CaptureFixture[str], said: str, written: str
) -> None:
    set_up(JSON)
    logging.getLogger("of.another.package").warning(said)
    line = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (line["message"], line["says"]) == (written, written)
