"""`firstdrift support`: what helps is in it, and nothing that is nobody's business."""

import json
import re
import stat
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from soak import record
from sqlalchemy import insert

from firstdrift.catalogue.engine import database_url, open_engine, writing
from firstdrift.catalogue.migrate import HEAD, upgrade
from firstdrift.catalogue.people.members import add_member
from firstdrift.catalogue.secret import new_secret
from firstdrift.catalogue.tables import JobEntry, JobState
from firstdrift.wording.message import Message

SECRETS = {
    "token": "a-token-that-nobody-guesses-2c91f0",
    "password": "pw.of!the~database",
    "link": new_secret(),
    "short": "sesame7",
}
NAMES = ("alice", "secret-model-13b", "lm_head.weight", "0.123456789", "quarterly")
ERROR = f"/data/alice/secret-model-13b/dump.pt: lm_head.weight is 0.123456789 of {SECRETS['link']}"
TRACEBACK = f"""Traceback (most recent call last):
  File "/data/alice/venv/lib/python3.11/site-packages/firstdrift_worker/job.py", line 41, in _work_on
    compare_dumps(work, comparison, measurer)
  File "/data/alice/src/firstdrift/dumps/detect.py", line 99, in open_dump
    raise DumpUnreadableError("quarterly")
firstdrift.errors.DumpUnreadableError: {ERROR}
postgresql+psycopg://me:{SECRETS["password"]}@database/firstdrift
"""
LINES = [
    {
        "time": "2026-01-31T12:00:00+00:00",
        "level": "WARNING",
        "logger": "firstdrift_worker.job",
        "message": f"job 7 failed, and is tried again: {ERROR}",
        "says": "job %d failed, and is tried again: %s",
        "job": 7,
        "request": "5f2c",
        "traceback": TRACEBACK,
    },
    {"logger": "other", "says": f"quarterly {SECRETS['link']}", "message": "quarterly"},
]
TEXT = f"GET /share/{SECRETS['link']} by alice with token={SECRETS['short']} and Bearer {SECRETS['token']}"

Files = Mapping[str, str]
Support = Callable[..., Files]


@pytest.fixture
def planted(tmp_path: Path) -> tuple[Path, Path]:
    """Give a data directory whose failed job tells secrets, and a log that does."""
    data = tmp_path / "alice" / "data"
    engine = open_engine(database_url(data))
    upgrade(engine)
    with writing(engine) as session:
        _, SECRETS["member"] = add_member(session, "alice")
        session.execute(
            insert(JobEntry).values(
                kind="index",
                path="/data/alice/secret-model-13b",
                state=JobState.FAILED,
                attempts=3,
                error=Message.of("error.at", path="/data/alice", reason=Message.of("dumps.nothing_here")),
                traceback=TRACEBACK + f"token of alice: {SECRETS['member']}",
            )
        )
    engine.dispose()
    log = tmp_path / "alice" / "log"
    log.write_text("\n".join([*map(json.dumps, LINES), TEXT, f"member {SECRETS['member']}"]), "utf-8")
    return data, log


@pytest.fixture
def support(
    firstdrift: Callable[..., Any], planted: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> Support:
    """Return a function that makes a bundle where secrets are everywhere; it gives the files in it."""
    data, log = planted
    monkeypatch.setenv("FIRSTDRIFT_TOKEN", SECRETS["token"])
    monkeypatch.setenv("FIRSTDRIFT_DATABASE_PASSWORD", SECRETS["password"])
    monkeypatch.setenv("SOME_API_KEY", SECRETS["short"])

    def make(*options: str, with_data: bool = True) -> Files:
        file = data.parent / f"bundle-{len(list(data.parent.glob('*.zip')))}.zip"
        places = ("--data-dir", str(data)) if with_data else ()
        done = firstdrift("support", file, data.parent, *places, "--log", log, *options)
        assert (done.status, done.err) == (0, ""), done.err
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        with zipfile.ZipFile(file) as archive:
            files = {name: archive.read(name).decode() for name in archive.namelist()}
        assert files["ABOUT.txt"].strip() in done.out
        for name in files:
            assert name in files["ABOUT.txt"], "it says what is in it"
        return files

    return make


def found_in(files: Files, wanted: Mapping[str, str] | tuple[str, ...]) -> list[tuple[str, str]]:
    texts = wanted.values() if isinstance(wanted, Mapping) else wanted
    return [(name, one) for name, said in files.items() for one in texts if one in said]


def test_there_is_no_secret_and_no_name_in_it(support: Support) -> None:
    files = support()
    assert found_in(files, SECRETS) == []
    assert found_in(files, NAMES) == []
    assert not re.search(r"(?<![\w>])/(?:home|tmp|dev|data|work|Users)/", "".join(files.values()))
    record("secrets", f"support bundle: {len(SECRETS)} secrets and {len(NAMES)} names planted, 0 found")


def test_with_names_there_is_still_no_secret(support: Support) -> None:
    files = support("--with-names")
    assert found_in(files, SECRETS) == []
    said = "".join(files.values())
    assert all(name in said for name in ("alice", "secret-model-13b", "quarterly"))
    assert "***" in said


def test_what_helps_is_in_it(support: Support) -> None:
    files = support()
    database = json.loads(files["database.json"])
    assert (database["schema"], database["newest_schema"]) == (HEAD, HEAD)
    assert database["rows"]["jobs"] == 1
    assert database["bytes"]["database"] > 0
    (failed,) = database["failed"]
    assert failed["error"] == ["error.at", "dumps.nothing_here"]
    assert failed["traceback"] == [
        "firstdrift_worker/job.py:41 in _work_on",
        "firstdrift/dumps/detect.py:99 in open_dump",
        "firstdrift.errors.DumpUnreadableError",
    ]
    packages = json.loads(files["versions.json"])["packages"]
    assert {"firstdrift", "torch", "sqlalchemy"} <= packages.keys()
    settings = json.loads(files["settings.json"])
    assert (settings["token"], settings["database"], settings["roots"]) == (True, "sqlite", 1)
    machine = json.loads(files["machine.json"])
    assert machine["usable_cores"] >= 1
    assert machine["disk"]["free"] > 0
    checked = {one["subject"]: one["mark"] for one in json.loads(files["check.json"])}
    assert checked["worker"] == "FAIL"
    first, second, *rest = json.loads(files["log.json"])
    assert (first["says"], first["job"]) == ("job %d failed, and is tried again: %s", 7)
    assert "firstdrift.errors.DumpUnreadableError" in first["traceback"]
    assert "says" not in second, "others may say names"
    assert [set(one) for one in rest] == [{"text"}, {"text"}]


def test_where_the_database_is_away_the_rest_is_there(
    support: Support, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"postgresql+psycopg://me:{SECRETS['password']}@127.0.0.1:1/quarterly"
    monkeypatch.setenv("FIRSTDRIFT_DATABASE_URL", address)
    files = support(with_data=False)
    assert found_in(files, SECRETS) == []
    assert found_in(files, NAMES) == []
    assert json.loads(files["database.json"])["error"]
    assert json.loads(files["settings.json"])["database_password"] is True


def test_a_file_that_is_there_is_not_replaced(firstdrift: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "kept.zip").write_text("mine", "utf-8")
    done = firstdrift("support", tmp_path / "kept.zip", "--data-dir", tmp_path / "nothing")
    assert done.status == 2
    assert (tmp_path / "kept.zip").read_text("utf-8") == "mine"
    assert not (tmp_path / "nothing").exists(), "what is not there is not made"
