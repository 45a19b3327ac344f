"""Every request that changes anything leaves one entry: who, from where, what, of what; never a secret."""

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from route_walk import routes
from soak import record
from sqlalchemy import text
from working import wait_until, worker

from firstdrift.catalogue.engine import reading, writing
from firstdrift.catalogue.people.audit import Act, Entered, Sought, entries
from firstdrift.catalogue.people.members import add_member
from firstdrift_server.app import create_app
from firstdrift_server.brake import Brake
from firstdrift_server.doing import ACTS, CHANGE_NOTHING
from firstdrift_server.settings import settings_from

API = "/api/v1"
MODULE = "Module.model.layers.{}.{}.LlamaMLP.forward.0"
RENAMED = (1, 3)
"""Layers whose modules have other names in the target, so that there is something to match."""
SAFE = {"GET", "HEAD"}


@dataclass
class House:
    """A server with a comparison, and a browser of somebody who may use it."""

    app: FastAPI
    client: TestClient
    golden: str
    target: str
    known: dict[str, Any] = field(default_factory=dict)

    def entered(self) -> tuple[Entered, ...]:
        with reading(self.app.state.context.engine) as session:
            return entries(session, Sought(), 10_000)

    def settled(self) -> None:
        wait_until(lambda: not self.client.get(f"{API}/jobs?only_open=true").json()["jobs"])

    def made(self, address: str, **sent: Any) -> Any:  # noqa: ANN401 (JSON)
        answer = self.client.post(f"{API}{address}", **sent)
        assert answer.status_code < 300, answer.text
        self.settled()
        return answer.json()

    def comparison(self) -> int:
        """Return a comparison by name alone, of its own, so that there is something to match."""
        choice = {"golden": self.golden, "target": self.target, "structure": False}
        return int(self.made("/comparisons", json=choice)["id"])

    def match_set(self, *, edited: int = 0) -> int:
        base = self.known["base"]
        name = f"set {len(self.entered())}"
        number = int(self.made(f"/comparisons/{base}/match-sets", json={"name": name})["id"])
        for version in range(edited):
            self.made(f"/match-sets/{number}/edits", json=edit(version))
        return number

    def link(self) -> int:
        return int(self.made(f"/comparisons/{self.known['base']}/links", json={"hours": 1})["id"])

    def note(self) -> int:
        note = {"author": "Li", "text": "look"}
        return int(self.made(f"/comparisons/{self.known['base']}/slices/0/rows/1/notes", json=note)["id"])

    def upload(self, *, sent: bool = True) -> str:
        """Announce an upload of a file, and send it."""
        name = f"run{len(self.entered())}.json"
        upload = str(self.made("/uploads", json={"files": [{"path": name, "size": 2}]})["id"])
        if sent:
            assert self.client.put(f"{API}/uploads/{upload}/files/0", content=b"{}").status_code == 200
        return upload

    def uploaded(self) -> str:
        return str(self.made(f"/uploads/{self.upload()}/complete")["name"])

    def removed(self) -> str:
        name = self.uploaded()
        assert self.client.delete(f"{API}/uploads/dumps/{name}").status_code == 200
        return name

    def deleted_set(self) -> int:
        number = self.match_set()
        assert self.client.delete(f"{API}/match-sets/{number}").status_code == 200
        return number

    def deleted_note(self) -> int:
        number = self.note()
        address = f"{API}/comparisons/{self.known['base']}/notes/{number}"
        assert self.client.delete(address).status_code == 200
        return number

    def deleted(self) -> int:
        number = self.comparison()
        assert self.client.delete(f"{API}/comparisons/{number}").status_code == 200
        return number


def edit(version: int) -> dict[str, Any]:
    layer = RENAMED[version]
    nodes = {"golden": [MODULE.format(layer, "mlp")], "target": [MODULE.format(layer, "feed_forward")]}
    return {"version": version, "edits": [{"kind": "match"} | nodes]}


def form(address: str, **fields: str) -> dict[str, Any]:
    headers = {"accept": "application/json", "content-type": "application/x-www-form-urlencoded"}
    return {"address": address, "data": fields, "headers": headers}


def data(address: str, sent: object = None) -> dict[str, Any]:
    return {"address": f"{API}{address}"} | ({} if sent is None else {"json": sent})


def _page(change: str, **fields: str) -> Callable[[House], dict[str, Any]]:
    """Have a form of the page that matches sent for a set that is at its first version."""

    def ask(house: House) -> dict[str, Any]:
        number = house.deleted_set() if change == "restore" else house.match_set(edited=1)
        version = "1"
        if change == "redo":
            house.made(f"/match-sets/{number}/undo", json={"version": 1})
            version = "0"
        known = {"set": str(number), "version": version} | fields
        return form(f"/c/{house.known['base']}/s/0/match/{change}", **known)

    return ask


def _redo(house: House) -> dict[str, Any]:
    number = house.match_set(edited=1)
    house.made(f"/match-sets/{number}/undo", json={"version": 1})
    return data(f"/match-sets/{number}/redo", {"version": 0})


def _job(house: House) -> dict[str, Any]:
    jobs = house.client.get(f"{API}/jobs").json()["jobs"]
    return data(f"/jobs/{jobs[0]['id']}/cancel")


def _likely(house: House) -> dict[str, Any]:
    found = house.client.get(f"/c/{house.known['base']}/s/0/likely.json").json()
    return form(
        f"/c/{house.known['base']}/s/0/likely", edit=found["matches"][0]["edit"], version="0", name="L"
    )


NODES = {"golden": MODULE.format(3, "mlp"), "target": MODULE.format(3, "feed_forward")}
ASKED: Mapping[tuple[str, str], Callable[[House], dict[str, Any]]] = {
    ("POST", "/new"): lambda h: form("/new", golden=h.golden, target=h.target),
    ("POST", f"{API}/comparisons"): lambda h: data(
        "/comparisons", {"golden": h.golden, "target": h.target, "structure": False}
    ),
    ("POST", "/c/{comparison}/again"): lambda h: form(f"/c/{h.known['base']}/again", rules="msit"),
    ("POST", f"{API}/comparisons/{{comparison}}/again"): lambda h: data(
        f"/comparisons/{h.known['base']}/again", {"rules": "firstdrift"}
    ),
    ("POST", "/c/{comparison}/rules"): lambda h: form(
        f"/c/{h.known['base']}/rules", rules="firstdrift", factor="9"
    ),
    ("POST", f"{API}/comparisons/{{comparison}}/rules"): lambda h: data(
        f"/comparisons/{h.known['base']}/rules", {"rules": "firstdrift"}
    ),
    ("POST", "/c/{comparison}/new"): lambda h: form(f"/c/{h.known['base']}/new"),
    ("POST", f"{API}/comparisons/{{comparison}}/new"): lambda h: data(f"/comparisons/{h.known['base']}/new"),
    ("POST", "/c/{comparison}/follow"): lambda h: form(f"/c/{h.known['base']}/follow"),
    ("POST", "/c/{comparison}/note"): lambda h: form(f"/c/{h.known['base']}/note", note="seen"),
    ("POST", "/c/{comparison}/cancel"): lambda h: form(f"/c/{h.known['base']}/cancel"),
    ("POST", f"{API}/comparisons/{{comparison}}/cancel"): lambda h: data(
        f"/comparisons/{h.known['base']}/cancel"
    ),
    ("POST", f"{API}/jobs/{{job}}/cancel"): _job,
    ("POST", "/c/{comparison}/delete"): lambda h: form(f"/c/{h.comparison()}/delete"),
    ("DELETE", f"{API}/comparisons/{{comparison}}"): lambda h: data(f"/comparisons/{h.comparison()}"),
    ("POST", "/c/{comparison}/restore"): lambda h: form(f"/c/{h.deleted()}/restore"),
    ("POST", f"{API}/comparisons/{{comparison}}/restore"): lambda h: data(
        f"/comparisons/{h.deleted()}/restore"
    ),
    ("POST", "/dumps"): lambda h: form("/dumps", path=h.golden),
    ("POST", f"{API}/dumps"): lambda h: data("/dumps", {"path": h.golden}),
    ("POST", "/dumps/follow"): lambda h: form("/dumps/follow", path=h.golden, stops="yes"),
    ("POST", f"{API}/dumps/follow"): lambda h: data("/dumps/follow", {"path": h.golden, "stops": True}),
    ("POST", f"{API}/uploads"): lambda _: data("/uploads", {"files": [{"path": "a.json", "size": 2}]}),
    ("PUT", f"{API}/uploads/{{upload}}/files/{{number}}"): lambda h: {
        **data(f"/uploads/{h.upload(sent=False)}/files/0"),
        "content": b"{}",
    },
    ("POST", f"{API}/uploads/{{upload}}/complete"): lambda h: data(f"/uploads/{h.upload()}/complete"),
    ("DELETE", f"{API}/uploads/{{upload}}"): lambda h: data(f"/uploads/{h.upload()}"),
    ("POST", "/uploaded/remove"): lambda h: form("/uploaded/remove", name=h.uploaded()),
    ("DELETE", f"{API}/uploads/dumps/{{name}}"): lambda h: data(f"/uploads/dumps/{h.uploaded()}"),
    ("POST", "/uploaded/restore"): lambda h: form("/uploaded/restore", name=h.removed()),
    ("POST", f"{API}/uploads/dumps/{{name}}/restore"): lambda h: data(
        f"/uploads/dumps/{h.removed()}/restore"
    ),
    ("POST", "/c/{comparison}/s/{position}/match/edit"): _page("edit", **NODES),
    ("POST", "/c/{comparison}/s/{position}/match/undo"): _page("undo"),
    ("POST", "/c/{comparison}/s/{position}/match/redo"): _page("redo"),
    ("POST", "/c/{comparison}/s/{position}/match/begin"): _page("begin", name="begun"),
    ("POST", "/c/{comparison}/s/{position}/match/rename"): _page("rename", name="renamed"),
    ("POST", "/c/{comparison}/s/{position}/match/delete"): _page("delete"),
    ("POST", "/c/{comparison}/s/{position}/match/restore"): _page("restore"),
    ("POST", "/c/{comparison}/s/{position}/match/import"): _page(
        "import", name="m.yaml", text="LlamaMLP:\n  gate_proj: up_proj\n"
    ),
    ("POST", "/c/{comparison}/s/{position}/likely"): _likely,
    ("POST", f"{API}/comparisons/{{comparison}}/match-sets"): lambda h: data(
        f"/comparisons/{h.known['base']}/match-sets", {"name": "through the API"}
    ),
    ("POST", f"{API}/match-sets/{{match_set}}/edits"): lambda h: data(
        f"/match-sets/{h.match_set()}/edits", edit(0)
    ),
    ("POST", f"{API}/match-sets/{{match_set}}/undo"): lambda h: data(
        f"/match-sets/{h.match_set(edited=1)}/undo", {"version": 1}
    ),
    ("POST", f"{API}/match-sets/{{match_set}}/redo"): _redo,
    ("POST", f"{API}/match-sets/{{match_set}}/rename"): lambda h: data(
        f"/match-sets/{h.match_set()}/rename", {"name": "another name"}
    ),
    ("DELETE", f"{API}/match-sets/{{match_set}}"): lambda h: data(f"/match-sets/{h.match_set()}"),
    ("POST", f"{API}/match-sets/{{match_set}}/restore"): lambda h: data(
        f"/match-sets/{h.deleted_set()}/restore"
    ),
    ("POST", f"{API}/match-sets/{{match_set}}/import"): lambda h: data(
        f"/match-sets/{h.match_set()}/import",
        {"version": 0, "name": "m.yaml", "text": "LlamaMLP:\n  gate_proj: up_proj\n"},
    ),
    ("POST", "/c/{comparison}/share"): lambda h: form(f"/c/{h.known['base']}/share", lasts="1h"),
    ("POST", f"{API}/comparisons/{{comparison}}/links"): lambda h: data(
        f"/comparisons/{h.known['base']}/links", {"hours": 1}
    ),
    ("POST", "/c/{comparison}/share/{link}/revoke"): lambda h: form(
        f"/c/{h.known['base']}/share/{h.link()}/revoke"
    ),
    ("DELETE", f"{API}/comparisons/{{comparison}}/links/{{link}}"): lambda h: data(
        f"/comparisons/{h.known['base']}/links/{h.link()}"
    ),
    ("POST", "/c/{comparison}/s/{position}/n/{row}/notes"): lambda h: form(
        f"/c/{h.known['base']}/s/0/n/1/notes", author="Li", text="look"
    ),
    ("POST", f"{API}/comparisons/{{comparison}}/slices/{{position}}/rows/{{row}}/notes"): lambda h: data(
        f"/comparisons/{h.known['base']}/slices/0/rows/1/notes", {"author": "Li", "text": "look"}
    ),
    ("POST", "/c/{comparison}/notes/{note}/delete"): lambda h: form(
        f"/c/{h.known['base']}/notes/{h.note()}/delete"
    ),
    ("DELETE", f"{API}/comparisons/{{comparison}}/notes/{{note}}"): lambda h: data(
        f"/comparisons/{h.known['base']}/notes/{h.note()}"
    ),
    ("POST", "/c/{comparison}/notes/{note}/restore"): lambda h: form(
        f"/c/{h.known['base']}/notes/{h.deleted_note()}/restore"
    ),
    ("POST", f"{API}/comparisons/{{comparison}}/notes/{{note}}/restore"): lambda h: data(
        f"/comparisons/{h.known['base']}/notes/{h.deleted_note()}/restore"
    ),
    ("POST", "/logout"): lambda _: form("/logout"),
}
"""A request of each route that does something, and all that it needs to be done beforehand."""

ASKED_IN_VAIN: Mapping[tuple[str, str], Callable[[House], dict[str, Any]]] = {
    ("POST", "/language"): lambda _: form("/language", language="zh"),
    ("POST", f"{API}/comparisons/{{comparison}}/preview"): lambda h: data(
        f"/comparisons/{h.known['base']}/preview", {"edits": edit(0)["edits"]}
    ),
    ("POST", "/login"): lambda h: form("/login", token=h.known["token"]),
}


@pytest.fixture(scope="module")
def house(
    tmp_path_factory: pytest.TempPathFactory, unpacked: Callable[[str], Path], token: str
) -> Iterator[House]:
    """A server behind a token, with a comparison and a member, who asks."""
    pair = unpacked("msprobe/d4_renamed")
    settings = settings_from(roots=[pair], data_dir=tmp_path_factory.mktemp("audited"), token=token)
    app = create_app(settings)
    app.state.context.sessions._brake = Brake()
    with writing(app.state.context.engine) as session:
        _, secret = add_member(session, "Ann Li")
    base = "http://localhost:8765"
    with worker(settings.database), TestClient(app, base_url=base, follow_redirects=False) as client:
        house = House(app, client, str(pair / "golden"), str(pair / "target"), {"token": secret})
        assert client.get("/", params={"token": secret}).status_code == 303
        house.known["base"] = house.comparison()
        yield house


def content(house: House) -> dict[str, list[Any]]:
    """Give all that is kept, but for the log and for when somebody was seen: of the database and of files."""
    settings = house.app.state.context.settings
    folder = settings.data_dir
    found: dict[str, list[Any]] = {"files": sorted(map(str, settings.uploads.rglob("*")))}
    found["ended"] = [(folder / "ended-sessions").read_text()] if (folder / "ended-sessions").exists() else []
    with closing(sqlite3.connect(folder / "firstdrift.db")) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in set(tables) - {"audit", "workers", "members", "jobs"}:
            found[table] = sorted(map(repr, database.execute(f"SELECT * FROM {table}")))  # noqa: S608
    return found


def times(entered: tuple[Entered, ...]) -> int:
    return sum(entry.times for entry in entered)


def test_there_is_a_request_for_every_route_that_may_change_something(house: House) -> None:
    unsafe = {(method, path) for method, path in routes(house.app) if method not in SAFE}
    named = {
        (method, path.rpartition("/match/")[0] + "/match/{change}") if "/match/" in path else (method, path)
        for method, path in ACTS
        if method not in SAFE
    }
    assert named | CHANGE_NOTHING == unsafe
    assert {route for route in ACTS if route[0] not in SAFE} == ASKED.keys()
    assert ASKED_IN_VAIN.keys() == CHANGE_NOTHING


def test_every_request_that_changes_anything_leaves_one_entry(house: House) -> None:
    walked = 0
    for route, ask in ASKED.items():
        if route == ("POST", "/logout"):
            continue  # the last one
        asked = ask(house)
        house.settled()
        before = house.entered()
        answer = house.client.request(route[0], asked.pop("address"), **asked)
        assert answer.status_code < 400, (route, answer.status_code, answer.text[-500:])
        after = house.entered()
        assert times(after) == times(before) + 1, (route, after[:3])
        newest = max(after, key=lambda entry: (entry.until, entry.id))
        assert (newest.act, newest.actor, newest.name, newest.address) == (
            ACTS[route],
            "member",
            "Ann Li",
            "testclient",
        ), route
        is_of_comparison = (
            "{comparison}" in route[1] or ACTS[route] is Act.COMPARED or "match_set" in route[1]
        )
        assert (newest.comparison_id is not None) == (is_of_comparison or "{job}" in route[1]), (
            route,
            newest,
        )
        assert newest.subject or newest.comparison_id, (route, newest)
        walked += 1
        house.settled()
    asked = ASKED["POST", "/logout"](house)
    assert house.client.post(asked.pop("address"), **asked).status_code == 303
    assert house.entered()[0].act == Act.LOGGED_OUT
    assert house.client.get("/", params={"token": house.known["token"]}).status_code == 303
    assert house.entered()[0].act == Act.LOGGED_IN
    record("audit", f"{walked + 1} routes that change something, each asked once: {walked + 1} entries")


def test_whatever_changes_nothing_leaves_none(house: House, locked_paths: list[tuple[str, str]]) -> None:
    before, kept = house.entered(), content(house)
    asked = 0
    for route, ask in ASKED_IN_VAIN.items():
        sent = ask(house)
        answer = house.client.request(route[0], sent.pop("address"), **sent)
        assert answer.status_code < 400, (route, answer.text[-500:])
        asked += 1
    logged_in = house.entered()
    assert [entry.act for entry in logged_in[: len(logged_in) - len(before)]] == [Act.LOGGED_IN]
    for method, path in locked_paths:
        answer = house.client.request(method, path, headers={"accept": "application/json"})
        entries_of_exports = ("export" in path) + ("/share/" in path)
        assert answer.status_code >= 400 or method in SAFE or entries_of_exports, (method, path)
        asked += 1
    assert content(house) == kept
    changed = {entry.act for entry in house.entered()[: len(house.entered()) - len(logged_in)]}
    assert changed <= {Act.EXPORTED}
    record("audit", f"{asked} requests that change nothing: no entry")


@pytest.fixture
def locked_paths(house: House) -> list[tuple[str, str]]:
    """Every route, about things that are not there."""
    return [
        (method, re.sub(r"\{\w+(:path)?\}", "999999", path))
        for method, path in routes(house.app)
        if path not in ("/language", "/login", "/logout", "/")
    ]


def test_it_says_through_which_link_from_where_and_never_a_secret(house: House, token: str) -> None:
    base = house.known["base"]
    wanted = {"hours": 1, "may_write": True, "label": "for <Li>"}
    made = house.made(f"/comparisons/{base}/links", json=wanted)
    secret = str(made["address"]).rpartition("/")[2]
    visitor = TestClient(
        house.app, base_url="http://localhost:8765", follow_redirects=False, client=("192.0.2.7", 50000)
    )
    for _ in range(3):
        assert visitor.get(f"/share/{secret}").status_code == 303
    note = {"author": "Li", "text": "hello"}
    assert visitor.post(f"{API}/comparisons/{base}/slices/0/rows/1/notes", json=note).status_code == 201
    assert visitor.get(f"{API}/comparisons/{base}/export?format=json").status_code == 200
    assert visitor.get("/?token=guess-guess-guess").status_code in (401, 404)
    assert visitor.get("/version", headers={"authorization": "Bearer not-right-at-all"}).status_code == 404
    newest = {entry.act: entry for entry in reversed(house.entered())}
    written, exported, refused = newest["note written"], newest["exported"], newest["refused"]
    assert (written.actor, written.name, written.number) == ("link", "for <Li>", made["id"])
    assert {one.address for one in (written, exported, refused)} == {"192.0.2.7"}
    assert (exported.subject, exported.comparison_id, refused.times) == ("json", base, 2)
    opened = newest["opened"]
    assert (opened.actor, opened.name, opened.times, opened.subject) == (
        "link",
        "for <Li>",
        3,
        str(made["id"]),
    )
    for path in ("/audit", "/audit.json", "/api/v1/audit", f"/audit?who=link:{made['id']}"):
        page = house.client.get(path)
        assert page.status_code == 200
        assert not [one for one in (secret, token, house.known["token"], "guess-guess") if one in page.text]
        assert visitor.get(path).status_code == 404, path
    assert "&lt;Li&gt;" in house.client.get("/audit").text
    owner = TestClient(house.app, base_url="http://localhost:8765")
    assert owner.get("/audit", headers={"authorization": f"Bearer {token}"}).status_code == 200


def test_it_is_filtered_and_paged_by_its_address(house: House) -> None:
    base = house.known["base"]
    found = house.client.get(f"/audit.json?who=member:Ann%20Li&act=shared&comparison={base}").json()
    assert found["entries"]
    assert {(one["name"], one["act"], one["comparison"]) for one in found["entries"]} == {
        ("Ann Li", "shared", base)
    }
    assert found["older"] is None
    page = house.client.get("/audit.json").json()
    seen = [one["id"] for one in page["entries"]]
    while page["older"]:
        page = house.client.get(page["older"].replace("/audit?", "/audit.json?")).json()
        seen += [one["id"] for one in page["entries"]]
    assert seen == [entry.id for entry in house.entered()]
    listed: list[int] = []
    before = ""
    while before is not None:
        answer = house.client.get(f"{API}/audit?limit=7{before and f'&before={before}'}").json()
        listed += [one["id"] for one in answer["entries"]]
        before = answer["next_before"]
    assert listed == seen
    assert house.client.get("/audit?comparison=x").status_code == 422
    assert house.client.get("/audit?who=nobody").status_code == 200


def test_where_no_token_is_asked_for_it_was_anybody(client: TestClient) -> None:
    files = [{"path": "a.json", "size": 2}]
    assert client.post(f"{API}/uploads", json={"files": files}).status_code == 201
    (newest, *_) = client.get(f"{API}/audit").json()["entries"]
    assert (newest["who"], newest["act"], newest["subject"]) == ("open", "upload begun", "a.json")


def test_what_was_refused_leaves_no_entry(house: House) -> None:
    base = house.known["base"]
    before = house.entered()
    for address, sent in (
        (f"/c/{base}/share", {"lasts": "1000y"}),
        (f"/c/{base}/note", {"note": "n" * 5000}),
        ("/new", {"golden": "/etc", "target": "/etc"}),
        ("/c/999999/delete", {"view": "/"}),
    ):
        assert house.client.post(address, data=sent).status_code >= 400
    assert house.entered() == before


def test_where_it_cannot_be_written_a_change_is_undone_and_a_file_is_told_of(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    base = house.known["base"]
    engine = house.app.state.context.engine
    with writing(engine) as session:
        session.execute(text("ALTER TABLE audit RENAME TO away"))
    try:
        answer = house.client.post(f"/c/{base}/note", data={"note": "nobody wrote this"})
        assert answer.status_code == 503
        files = [{"path": "b.json", "size": 2}]
        assert house.client.post(f"{API}/uploads", json={"files": files}).status_code == 201
    finally:
        with writing(engine) as session:
            session.execute(text("ALTER TABLE away RENAME TO audit"))
    assert "the audit log cannot be written" in caplog.text
    assert "b.json" in caplog.text
    assert house.client.get(f"/c/{base}.json").json()["note"] != "nobody wrote this"
