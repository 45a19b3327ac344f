"""Tokens, secrets of links, cookies and passwords are used, and found nowhere but with whoever has them."""

import http.client
import json
import os
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from zipfile import ZipFile

import psutil
import pytest
from databases import new_postgresql_database
from running import FIRSTDRIFT
from soak import record
from sqlalchemy import MetaData, create_engine, select

FORM = {"content-type": "application/x-www-form-urlencoded"}
JSON = {"content-type": "application/json"}


@dataclass
class House:
    """A server with its worker, what it said, what it answered, and all secrets that are used with it."""

    port: int
    process: "subprocess.Popen[bytes]"
    said: Path
    environment: Mapping[str, str]
    secrets: dict[str, str] = field(default_factory=dict)
    answers: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def ask(
        self, method: str, path: str, body: str = "", *, meant_for: str = "", **headers: str
    ) -> tuple[int, Mapping[str, str], str]:
        """Ask for something; the answer is looked through later, unless it is meant to tell a secret."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        kinds = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body.encode() or None, kinds)
        answer = connection.getresponse()
        text, head = answer.read().decode("utf-8", "replace"), dict(answer.getheaders())
        connection.close()
        cookie = head.get("set-cookie", "")
        if not meant_for:
            self.answers.append(f"{method} {path.partition('?')[0][:9]} {head} {text}")
        elif cookie:
            self.secrets[meant_for] = re.split(r"[=;]", cookie)[1]
        self.look_at_processes()
        return answer.status, {name.lower(): value for name, value in head.items()}, text

    def look_at_processes(self) -> None:
        """Keep what everybody on the machine can read of all processes that run now, but for this one."""
        for place in Path("/proc").glob("[0-9]*/cmdline"):
            if int(place.parent.name) != os.getpid():
                try:
                    self.seen.add(place.read_bytes().decode("utf-8", "replace"))
                except OSError:  # it has ended
                    continue

    def command(self, *arguments: str) -> str:
        """Run `firstdrift`; give what it printed, of which nothing is looked through."""
        started = subprocess.Popen(
            [*FIRSTDRIFT, *arguments], env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        while started.poll() is None:
            self.look_at_processes()
            time.sleep(0.02)
        out, err = (text.decode() for text in started.communicate())
        assert started.returncode == 0, err
        return out.strip()


@contextmanager
def serving(folder: Path, secrets_: dict[str, str], *options: str, **variables: str) -> Iterator[House]:
    """Run `firstdrift serve` with JSON logs while the block runs, everything it says in a file."""
    data = folder / "data"
    environment = os.environ | variables | {"FIRSTDRIFT_DATA_DIR": str(data), "PYTHONUNBUFFERED": "1"}
    said = folder / "said"
    command = [*FIRSTDRIFT, "serve", str(folder / "dumps"), "--port", "0", "--log-format", "json", *options]
    with said.open("wb") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=file)
    try:
        until = time.monotonic() + 60
        while (found := re.search(r"open http://127\.0\.0\.1:(\d+)", said.read_text())) is None:
            assert process.poll() is None, said.read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
        yield House(int(found[1]), process, said, environment, dict(secrets_))
    finally:
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        psutil.wait_procs(children, 30)


@pytest.fixture
def dumps(tmp_path: Path, unpacked: Callable[[str], Path]) -> Path:
    (tmp_path / "dumps").symlink_to(unpacked("msprobe/d4_renamed"))
    return tmp_path / "dumps"


def use_all(house: House, dumps: Path) -> None:
    """Show every secret in every way, right and wrong, and ask for what fails."""
    owner = house.secrets["token"]
    bearer = {"authorization": f"Bearer {owner}"}
    house.secrets["member"] = house.command("member", "add", "ann")
    house.secrets["viewer"] = house.command("member", "add", "ben", "--viewer")
    asked = json.dumps({"golden": str(dumps.resolve() / "golden"), "target": str(dumps.resolve() / "target")})
    assert house.ask("POST", "/api/v1/comparisons", asked, **bearer, **JSON)[0] == 201
    until = time.monotonic() + 60
    while json.loads(house.ask("GET", "/api/v1/jobs?only_open=true", **bearer)[2])["jobs"]:
        assert time.monotonic() < until
        time.sleep(0.1)
    made = house.ask(
        "POST", "/api/v1/comparisons/1/links", '{"hours": 1}', meant_for="made", **bearer, **JSON
    )
    house.secrets["link"] = json.loads(made[2])["address"].rpartition("/")[2]
    for who in ("token", "member", "viewer"):
        secret = house.secrets[who]
        assert house.ask("GET", f"/?token={quote(secret)}", meant_for=f"session of {who}")[0] == 303
        form = urlencode({"token": secret, "wanted": "/new"})
        assert house.ask("POST", "/login", form, meant_for=f"second session of {who}", **FORM)[0] == 303
        cookie = {"cookie": cookie_of(house, who)}
        for path in PAGES:
            house.ask("GET", path, **cookie)
        for path in PAGES[:4]:
            house.ask("GET", path, authorization=f"Bearer {secret}")
            house.ask("GET", f"{path}{'&' if '?' in path else '?'}token={quote(secret)}wrong")
        house.ask("POST", "/new", urlencode({"golden": secret * 2, "rules": "x"}), **FORM)
        house.ask("GET", "/version", authorization=f"Basic {secret}")
        house.ask("POST", "/logout", "x=y", **cookie, **FORM)
    link = house.secrets["link"]
    visited = house.ask("GET", f"/share/{link}", meant_for="cookie of the link")[1]["set-cookie"]
    for path in PAGES:
        house.ask("GET", path, cookie=visited.partition(";")[0])
    house.ask("GET", f"/share/{link}x")
    house.ask("GET", f"/share/{link}?to=/c/1/s/0/tree%0d", meant_for="cookie of the link")
    house.ask("DELETE", f"/share/{link}")
    assert house.ask("DELETE", "/api/v1/comparisons/1/links/1", **bearer)[0] == 200
    assert house.ask("GET", f"/share/{link}")[0] == 404
    house.command("member", "remove", "ann")
    bundle = house.said.with_name("bundle.zip")
    house.command("support", str(bundle), "--with-names", "--log", str(house.said))
    with ZipFile(bundle) as packed:
        told = [packed.read(name).decode("utf-8", "replace") for name in packed.namelist()]
    assert sum(map(len, told)) > 2000
    house.answers += told
    house.ask("GET", "/", authorization=f"Bearer {house.secrets['member']}")


def cookie_of(house: House, who: str) -> str:
    """Give the cookie of a session, whose name is that of no other server."""
    name = next(iter(re.findall(r"firstdrift_[0-9a-f]{8}(?==)", " ".join(house.answers))), "")
    return f"{name}={house.secrets[f'session of {who}']}"


PAGES = (
    *("/", "/new", "/audit", "/api/v1/audit?limit=1000", "/c/1", "/c/1/share", "/c/1/s/0/tree", "/metrics"),
    *("/api/v1/comparisons", "/api/v1/comparisons/1/links", "/api/v1/jobs", "/version", "/openapi.json"),
    *("/no/such/page", "/c/999", "/api/v1/comparisons/x", "/api/v1/comparisons/1/export?format=html"),
)


def found_in(house: House, texts: Mapping[Any, str]) -> list[tuple[Any, str]]:
    """List where which secret is, as it is, as an address writes it, and without its beginning."""
    spelt = {name: {one, quote(one), quote(one, safe=""), one[8:]} for name, one in house.secrets.items()}
    return [
        (where, name)
        for where, text in texts.items()
        for name, ways in spelt.items()
        if any(way in text for way in ways)
    ]


def hold_all(house: House, kept: Mapping[str, str]) -> None:
    assert len(house.secrets) >= 10, house.secrets.keys()
    assert all(len(secret) >= 20 for secret in house.secrets.values())
    said = house.said.read_text(errors="replace")
    assert said.count('"route"') > 50, "it logs what it is asked for"
    places = {f"process {number}": line for number, line in enumerate(sorted(house.seen))}
    assert sum("worker" in line for line in places.values()) > 0
    places |= {f"answer {number}": text for number, text in enumerate(house.answers)}
    places |= kept | {"log": said}
    assert found_in(house, places) == []
    lines, requests = len(said.splitlines()), len(house.answers)
    record(
        "secrets",
        f"{len(house.secrets)} secrets used in {requests} requests: none in {len(house.seen)} command lines,"
        f" {lines} lines of log, {len(kept)} tables and files, or an answer",
    )


def files_of(folder: Path) -> dict[str, str]:
    return {str(one): one.read_bytes().decode("latin-1") for one in folder.rglob("*") if one.is_file()}


def test_with_a_token_in_a_file_and_sqlite(tmp_path: Path, dumps: Path) -> None:
    token = secrets.token_urlsafe(32)
    file = tmp_path / "token"
    file.write_text(token)
    file.chmod(0o600)
    with serving(tmp_path, {"token": token}, "--token-file", str(file)) as house:
        use_all(house, dumps)
    kept = files_of(tmp_path / "data")
    assert "ann" in "".join(kept.values())
    hold_all(house, kept)


def test_with_a_token_in_the_environment_and_a_password_of_postgresql(
    tmp_path: Path, dumps: Path, postgresql: str
) -> None:
    token, password = secrets.token_urlsafe(32), secrets.token_urlsafe(24)
    url = new_postgresql_database(postgresql).replace("tester@", f"tester:{password}@")
    known = {"token": token, "password": password}
    variables = {"FIRSTDRIFT_TOKEN": token, "FIRSTDRIFT_DATABASE_URL": url}
    with serving(tmp_path, known, **variables) as house:
        use_all(house, dumps)
        # What cannot be reached is said without the password.
        away = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:1", url)
        for command in (["check"], ["member", "list"], ["worker"]):
            environment = house.environment | {"FIRSTDRIFT_DATABASE_URL": away}
            ended = subprocess.run(
                [*FIRSTDRIFT, *command], env=environment, capture_output=True, check=False, timeout=60
            )
            assert ended.returncode in (1, 2), command
            house.answers.append((ended.stdout + ended.stderr).decode("utf-8", "replace"))
    engine = create_engine(url)
    tables = MetaData()
    tables.reflect(engine)
    with engine.connect() as connection:
        kept = {name: repr(connection.execute(select(table)).all()) for name, table in tables.tables.items()}
    engine.dispose()
    assert "ann" in kept["members"]
    hold_all(house, kept | files_of(tmp_path / "data"))


def test_a_token_that_was_made_up_is_said_once(tmp_path: Path, dumps: Path) -> None:
    del dumps
    with serving(tmp_path, {}) as house:
        said = house.said.read_text()
        (token,) = re.findall(r"\?token=([\w-]{43})", said)
        house.secrets["token"] = token
        for path in PAGES:
            house.ask("GET", path, authorization=f"Bearer {token}")
            house.ask("GET", path, authorization=f"Bearer {token}x")
        assert found_in(house, dict(enumerate([*house.answers, *house.seen]))) == []
    assert house.said.read_text().count(token) == 1
