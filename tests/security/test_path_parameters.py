"""Whatever names a file in a request, in whatever spelling: nothing from outside the roots is answered.

Which parameters name files is found by asking: every parameter of every route is given a word of its own, and
those whose word reaches what looks for files are attacked.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import quote

import httpx2
import pytest
from asked_routes import Route, parameter_names, routes_of
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from security.test_paths import INSIDE, OUTSIDE, make_links, pieces
from soak import record, rounds
from sqlalchemy import select
from starlette.datastructures import ImmutableMultiDict

from firstdrift import paths
from firstdrift.catalogue.engine import reading
from firstdrift.catalogue.tables import DumpEntry
from firstdrift.processes.children import Children
from firstdrift_server.app import create_app
from firstdrift_server.forms import Form, form_fields
from firstdrift_server.settings import settings_from

SECRET = "hunter2"  # noqa: S105 (what must not be seen)
PASSWORDS = "root:x:0:0"
WORD = "wordthatnobodyknows"
FORM = "application/x-www-form-urlencoded"
Unpacked = Callable[[str], Path]


class Place(NamedTuple):
    """Where a request names a file: in the path, the query, a form or a JSON body of a route."""

    route: Route
    where: str
    name: str

    def __str__(self) -> str:
        return f"{self.route.method} {self.route.path} {self.where} {self.name}"


@pytest.fixture(scope="module")
def top(tmp_path_factory: pytest.TempPathFactory, unpacked: Unpacked) -> Path:
    """A root with a dump and links that lead out; beside it dumps, mappings and names that are secret."""
    top = tmp_path_factory.mktemp("served").resolve()
    golden = unpacked("msprobe/llama_structure_mix_attn") / "golden"
    shutil.copytree(golden, top / "dumps/run1")
    (top / "dumps/run1/step0").mkdir(exist_ok=True)
    (top / "dumps/mapping.yaml").write_text("fc1.Dense: fc1.Linear\n")
    rollout = Path(__file__).parents[1] / "dumps/rollout/rollout.jsonl"
    shutil.copy(rollout, top / "dumps/rollout.jsonl")
    for name in ("outside", "dumps-secret"):
        secret = top / name
        for file in (file for file in golden.rglob("*.json")):
            place = secret / "run" / file.relative_to(golden)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(file.read_text().replace("model.layers", SECRET))
        (secret / "key").write_text(f"fc1.Dense: {SECRET}.Linear\n")
        (secret / "op_mapping_file.json").write_text(f'{{"{SECRET}": ["{SECRET}"]}}')
        (secret / f"{SECRET}.jsonl").write_text(rollout.read_text().replace("prompt-", SECRET))
    make_links(top / "dumps")
    return top


@pytest.fixture(scope="module")
def app(top: Path, tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    return create_app(settings_from(roots=[top / "dumps"], data_dir=tmp_path_factory.mktemp("data")))


@pytest.fixture(scope="module")
def client(app: FastAPI, top: Path) -> Iterator[TestClient]:
    before = Path.cwd()
    os.chdir(top / "dumps")
    with TestClient(app, base_url="http://localhost", follow_redirects=False) as client:
        yield client
    os.chdir(before)


class Watch:
    """Notes what of a request reaches what looks for files, and which parameters are read at all."""

    def __init__(self) -> None:
        self.reached: list[str] = []
        self.read: set[str] = set()
        self.all_are_read = self.is_on = False
        sys.addaudithook(self._heard)

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.is_on and event.startswith(("open", "os.", "shutil.")):
            self.reached += [str(one) for one in arguments if isinstance(one, str | bytes | os.PathLike)]

    def note(self, patch: pytest.MonkeyPatch, app: FastAPI) -> None:
        """Listen to whatever asks for a parameter, and have questions of files answered in this process."""
        inside, kind = paths._inside, ImmutableMultiDict

        def noted(roots: Sequence[Path], wanted: str | Path) -> Path:
            self.reached.append(str(wanted))
            return inside(roots, wanted)

        async def form(parameters: Form) -> dict[str, str]:
            return _Noted(self, dict(parameters.multi_items()))

        patch.setattr(paths, "_inside", noted)
        patch.setattr(Children, "ask", lambda _self, _roots, asked, *given, **named: asked(*given, **named))
        patch.setitem(app.dependency_overrides, form_fields, form)
        for name in ("__getitem__", "getlist", "__contains__", "get"):
            patch.setattr(kind, name, self._noting(getattr(kind, name)), raising=False)
        patch.setattr(kind, "keys", self._noting_all(kind.keys))

    def _noting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def noted(held: Any, key: Any, *more: Any) -> Any:  # noqa: ANN401 (as the method has it)
            self.read.add(str(key))
            return method(held, key, *more)

        return noted

    def _noting_all(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def noted(held: Any) -> Any:  # noqa: ANN401
            self.all_are_read = self.all_are_read or "x" in held._dict
            return method(held)

        return noted


class _Noted(dict[str, str]):
    """The fields of a form, which say what is asked of them."""

    def __init__(self, watch: Watch, fields: Mapping[str, str]) -> None:
        super().__init__(fields)
        self._watch = watch

    def get(self, name: str, otherwise: Any = None) -> Any:  # noqa: ANN401 (as of a dict)
        self._watch.read.add(name)
        return super().get(name, otherwise)

    def __getitem__(self, name: str) -> str:
        self._watch.read.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self._watch.read.add(str(name))
        return super().__contains__(name)


def request_of(client: TestClient, route: Route, values: Mapping[tuple[str, str], Any]) -> httpx2.Request:
    """Make a request with these values at their places; gaps of the path that have none are 1."""

    def gap(found: re.Match[str]) -> str:
        value = values.get(("path", found[1]), "1")
        return quote(value.encode("utf-8", "surrogatepass"), safe="") or "-"

    path = re.sub(r"\{(\w+)(?::\w+)?\}", gap, route.path)
    queries, form, body = (
        {name: value for (where, name), value in values.items() if where == kind}
        for kind in ("query", "form", "json")
    )
    address = f"{path}?{_encoded(queries)}" if queries else path
    if form:
        content, kind = _encoded(form).encode(), FORM
    else:
        content, kind = (json.dumps(body).encode(), "application/json") if body else (b"", "")
    return client.build_request(
        route.method, address, content=content, headers={"content-type": kind} if kind else {}
    )


def _encoded(values: Mapping[str, Any]) -> str:
    return "&".join(f"{name}={_quoted(str(value))}" for name, value in values.items())


def _quoted(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


def places_of(route: Route, names: Iterable[str]) -> Iterator[Place]:
    """Give every place of a route at which something may be said; of query and form those of the names."""
    yield from (Place(route, "path", name) for name in re.findall(r"\{(\w+)", route.path))
    has_body = route.method in ("POST", "PUT", "DELETE", "PATCH")
    if has_body and route.path.startswith("/api/"):
        yield from (Place(route, "json", name) for name in route.fields)
    yield from (Place(route, "form" if has_body else "query", name) for name in names)


def file_parameters(client: TestClient, usual: Mapping[str, str]) -> list[Place]:
    """Find the places at which a request names a file; the others of its route say what is usual."""
    app = cast("FastAPI", client.app)
    watch, known, found = Watch(), parameter_names(app), list[Place]()
    with pytest.MonkeyPatch.context() as patch:
        watch.note(patch, app)
        for route in routes_of(app):
            watch.read, watch.all_are_read = set(), False
            kind = "query" if route.method in ("GET", "HEAD") else "form"
            said = {(kind, name): value for name, value in (*usual.items(), ("x", ""))}
            client.send(request_of(client, route, said))
            names = sorted({*watch.read, *(known if watch.all_are_read else ())})
            found += [
                place for place in places_of(route, names) if reaches_files(client, watch, place, usual)
            ]
    return found


def reaches_files(client: TestClient, watch: Watch, place: Place, usual: Mapping[str, str]) -> bool:
    """Tell whether what is said at a place comes to what looks for files."""
    watch.reached, watch.is_on = [], True
    try:
        ask(client, place, WORD, usual)
    finally:
        watch.is_on = False
    return any(WORD in reached for reached in watch.reached)


def ask(client: TestClient, place: Place, spelling: str, usual: Mapping[str, str]) -> httpx2.Response:
    """Say something at a place, and what is usual at the others of its kind."""
    values = {(place.where, name): value for name, value in usual.items()} if place.where != "path" else {}
    if place.where == "json":
        values = {key: value for key, value in values.items() if key[1] in place.route.fields}
    return client.send(request_of(client, place.route, values | {(place.where, place.name): spelling}))


@pytest.fixture(scope="module")
def usual(top: Path) -> dict[str, str]:
    """What is said at the other places, so that a request gets as far as to the one that is looked at."""
    run = str(top / "dumps/run1")
    return {"golden": run, "target": run, "path": run, "rollout": str(top / "dumps/rollout.jsonl")}


@pytest.fixture(scope="module")
def found(client: TestClient, usual: Mapping[str, str]) -> list[Place]:
    return file_parameters(client, usual)


def test_the_walk_finds_where_files_are_named(found: list[Place]) -> None:
    said = {(place.route.path, place.name) for place in found}
    assert {
        ("/api/v1/browse", "path"),
        ("/api/v1/dumps", "path"),
        ("/api/v1/comparisons", "golden"),
        ("/api/v1/comparisons", "target"),
        ("/api/v1/comparisons", "mapping"),
        ("/new", "golden"),
        ("/new", "target"),
        ("/new", "mapping"),
        ("/rollout", "rollout"),
        ("/rollout", "trainer"),
        ("/dumps", "path"),
        ("/dumps/follow", "path"),
    } <= said


def said_by(answer: httpx2.Response, *spellings: str) -> tuple[int, str]:
    """Give what an answer says but for what was asked, and which request it was."""
    said = answer.text.replace(answer.headers.get("x-request-id", "…"), "…")
    for spelling in sorted({*spellings, *map(_quoted, spellings)}, key=len, reverse=True):
        said = said.replace(spelling, "…")
    return answer.status_code, said


def require_nothing_told(answer: httpx2.Response, spelling: str) -> None:
    assert SECRET not in answer.text, spelling
    assert PASSWORDS not in answer.text, spelling
    assert answer.status_code != HTTPStatus.INTERNAL_SERVER_ERROR, spelling


def spellings(top: Path) -> list[str]:
    """Give each spelling as it is, and below the root."""
    below = [f"{top}/dumps/{spelling}" for spelling in (*OUTSIDE, *INSIDE) if not spelling.startswith("/")]
    return [*OUTSIDE, *INSIDE, *below, f"{top}/outside/run", f"{top}/outside", f"{top}/dumps-secret/key"]


def test_no_spelling_at_any_of_them_leads_out(
    client: TestClient, top: Path, found: list[Place], usual: Mapping[str, str]
) -> None:
    asked = spellings(top)
    tried = 0
    for at, place in enumerate(found):
        for number, spelling in enumerate(asked):
            if rounds(few=(number + at) % 8, many=0) == 0:
                require_nothing_told(ask(client, place, spelling, usual), spelling)
                tried += 1
    with reading(client.app.state.context.engine) as session:  # type: ignore[attr-defined] # of the application
        taken = [Path(path).resolve() for path in session.scalars(select(DumpEntry.path))]
    assert all(path.is_relative_to(top / "dumps") for path in taken)
    record(
        "paths",
        f"{tried:,} requests, {len(asked)} spellings at {len(found)} parameters that name a file: 0 led out",
    )


def test_no_answer_tells_what_exists_outside(
    client: TestClient, top: Path, found: list[Place], usual: Mapping[str, str]
) -> None:
    pairs = [
        (f"{top}/outside/key", f"{top}/outside/yek"),
        (f"{top}/outside", f"{top}/edistuo"),
        (f"{top}/dumps/../outside/key", f"{top}/dumps/../outside/yek"),
        (f"{top}/dumps/link-to-directory/key", f"{top}/dumps/link-to-directory/yek"),
        ("/etc/passwd", "/etc/dwssap"),
        ("link-to-top/etc/passwd", "link-to-top/etc/dwssap"),
        (f"{top}/outside/run", f"{top}/outside/nur"),
    ]
    for place in found:
        for there, missing in pairs:
            names = [there, missing, Path(there).name, Path(missing).name]
            answers = [said_by(ask(client, place, one, usual), *names) for one in (there, missing)]
            assert answers[0] == answers[1], (str(place), there)
    record(
        "paths", f"{len(found) * len(pairs):,} pairs of answers do not tell what is there from what is not"
    )


def test_whatever_is_generated_leads_nowhere_else(
    client: TestClient, top: Path, found: list[Place], usual: Mapping[str, str]
) -> None:
    tried = count()

    @settings(max_examples=rounds(60, 10_000), deadline=None)
    @given(
        place=st.sampled_from(found),
        parts=st.lists(pieces | st.sampled_from(["run", "key", SECRET[:3]]), max_size=8),
        start=st.sampled_from(["", "/", f"{top}/dumps/", f"{top}/", "file:", "\\\\"]),
    )
    def leads_nowhere(place: Place, parts: list[str], start: str) -> None:
        spelling = start + "/".join(parts)
        require_nothing_told(ask(client, place, spelling, usual), spelling)
        next(tried)

    leads_nowhere()
    record("paths", f"{next(tried):,} generated paths at parameters: 0 led out")
