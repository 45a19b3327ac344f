"""Whoever comes through a link, or is a member, takes only so much: the owner is answered meanwhile."""

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from running import Running, running
from soak import record, rounds

from firstdrift.catalogue.engine import database_url, open_engine, writing
from firstdrift.catalogue.people.members import add_member
from firstdrift.catalogue.sharing import notes
from firstdrift_server.guards.turns import is_trial
from firstdrift_server.uploads.store import MOST_COMING, MOST_OF_MEMBERS

TOKEN = "a-token-that-nobody-guesses-2c91f0"  # noqa: S105
MOST_JOBS = 20
PATIENCE = 60.0
FLOOD = rounds(12, 64)
"""So many ask at once, each as fast as they are answered."""

SECONDS = float(rounds(1, 10))
PAGES = ("/", "/c/1", "/c/1/s/0/tree", "/api/v1/comparisons/1")
FEW_JOBS = f"""
from firstdrift.catalogue.jobs import waiting
waiting.MOST_OPEN, waiting.MOST_OF_MEMBERS = {MOST_JOBS + 5}, {MOST_JOBS}
from firstdrift.cli import run
run()
"""
Headers = dict[str, str]


class Asked(NamedTuple):
    """What is asked for again and again: method, address, and what is sent."""

    method: str
    address: str
    body: object = None


class Answer(NamedTuple):
    """An answer: its status, when to try again, and its text."""

    status: int
    retry: str | None
    text: str


class Asker(NamedTuple):
    """Somebody who asks the server, over a new connection each time."""

    port: int
    headers: Headers

    def ask(self, method: str, address: str, body: object = None) -> Answer:
        known = {"accept": "application/json", "content-type": "application/json", **self.headers}
        sent = None if body is None else json.dumps(body)
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as connection:
            connection.request(method, address, sent, known)
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace")
            return Answer(answer.status, answer.headers.get("retry-after"), text)


class Place(NamedTuple):
    """A server with a comparison, and who may ask it for what."""

    server: Running
    owner: Headers
    member: Headers
    visitor: Callable[[], Headers]
    dumps: Path
    data: Path

    def asker(self, headers: Headers) -> Asker:
        return Asker(self.server.port, headers)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, unpacked: Callable[[str], Path]) -> Iterator[Place]:
    folder, dumps = tmp_path_factory.mktemp("place"), unpacked("msprobe/d4_renamed")
    owner = {"authorization": f"Bearer {TOKEN}"}
    options = (str(dumps), "--workers", "1")
    with running(folder, "serve", *options, program=FEW_JOBS, FIRSTDRIFT_TOKEN=TOKEN) as server:
        engine = open_engine(database_url(folder / "data"))
        with writing(engine) as session:
            _, token = add_member(session, "Wu")
        engine.dispose()
        asker = Asker(server.port, owner)
        wanted = {"golden": str(dumps / "golden"), "target": str(dumps / "target"), "structure": False}
        assert asker.ask("POST", "/api/v1/comparisons", wanted).status == 201
        until = time.monotonic() + 100
        while json.loads(asker.ask("GET", "/api/v1/comparisons/1").text)["state"] != "done":
            assert time.monotonic() < until
            time.sleep(0.2)

        def visitor() -> Headers:
            link = {"hours": 1, "may_write": True}
            made = asker.ask("POST", "/api/v1/comparisons/1/links", link)
            path = json.loads(made.text)["address"].partition("/share/")[2]
            with closing(
                http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
            ) as connection:
                connection.request("GET", f"/share/{path}")
                cookie = connection.getresponse().headers["set-cookie"].partition(";")[0]
            return {"cookie": cookie}

        yield Place(server, owner, {"authorization": f"Bearer {token}"}, visitor, dumps, folder / "data")


@contextmanager
def flood(place: Place, headers: Headers, asked: Callable[[int], Asked]) -> Iterator[Counter[int]]:
    """Have many ask at once, again and again, while the block runs; count what they were answered."""
    over, answers = threading.Event(), Counter[int]()

    def go_on(number: int) -> None:
        asker, turn = place.asker(headers), number
        while not over.is_set():
            answer = asker.ask(*asked(turn))
            answers[answer.status] += 1
            assert answer.status not in (429, 503) or int(answer.retry or 0) > 0, "and when to try again"
            turn += FLOOD

    threads = [threading.Thread(target=go_on, args=(number,)) for number in range(FLOOD)]
    with ExitStack() as stack:
        for thread in threads:
            thread.start()
            stack.callback(thread.join, PATIENCE)
        stack.callback(over.set)
        time.sleep(0.3)
        yield answers


def owner_waits(place: Place) -> str:
    """Open pages as the owner for a while: all are answered. Give how long they took."""
    asker, took = place.asker(place.owner), []
    until = time.monotonic() + SECONDS
    while time.monotonic() < until or len(took) < len(PAGES):
        began = time.monotonic()
        assert asker.ask("GET", PAGES[len(took) % len(PAGES)]).status == 200
        took.append(time.monotonic() - began)
    took.sort()
    middle, last = took[len(took) // 2], took[int(len(took) * 0.99)]
    return f"owner's pages p50 {1000 * middle:.0f} ms, p99 {1000 * last:.0f} ms of {len(took)}"


def _trial(turn: int) -> Asked:
    return Asked("GET", f"/api/v1/comparisons/1/rules/preview?factor={3 + turn / 99}")


VISITS = {
    "pages": lambda _: Asked("GET", "/c/1/s/0/tree"),
    "trials of rules": lambda turn: Asked(
        "GET", f"/api/v1/comparisons/1/rules/preview?factor={3 + turn / 99}"
    ),
    "files": lambda turn: Asked("GET", f"/c/1/export?format={('xlsx', 'csv', 'html')[turn % 3]}"),
    "links that open nothing": lambda turn: Asked("GET", f"/share/{turn:032x}"),
    "notes": lambda _: Asked(
        "POST", "/api/v1/comparisons/1/slices/0/rows/1/notes", {"author": "Li", "text": "again"}
    ),
}
OF_MEMBERS = {
    "pages": lambda _: Asked("GET", "/c/1/s/0/tree"),
    "likely matches": lambda _: Asked("GET", "/c/1/s/0/likely"),
    "rule trials": _trial,
    "uploads": lambda _: Asked(
        "POST", "/api/v1/uploads", {"name": "run", "files": [{"path": "dump.json", "size": 9}]}
    ),
    "dumps": lambda _: Asked("GET", "/api/v1/browse"),
}


def test_where_nobody_floods_it_the_owner_waits_as_long_as_this(place: Place) -> None:
    record("visitors", f"nobody else: {owner_waits(place)}")


@pytest.mark.parametrize("kind", VISITS)
def test_visitors_keep_nobody_from_the_server(place: Place, kind: str) -> None:
    with flood(place, place.visitor(), VISITS[kind]) as answers:
        said = owner_waits(place)
    assert {*answers} <= {200, 201, 404, 429, 503}, answers
    assert sum(answers.values()) >= 1
    record("visitors", f"{FLOOD} visitors at {kind} ({_told(answers)}): {said}")


def test_who_guesses_tokens_keeps_nobody_from_the_server(place: Place) -> None:
    with flood(place, {}, lambda turn: Asked("GET", f"/version?token=made-up-{turn:040x}")) as answers:
        said = owner_waits(place)
    assert {*answers} <= {401, 429, 503}, answers
    record("visitors", f"{FLOOD} who guess tokens ({_told(answers)}): {said}")


@pytest.mark.parametrize("kind", OF_MEMBERS)
def test_members_keep_nobody_from_the_server(place: Place, kind: str) -> None:
    with flood(place, place.member, OF_MEMBERS[kind]) as answers:
        said = owner_waits(place)
    assert {*answers} <= {200, 201, 429, 503}, answers
    record("visitors", f"{FLOOD} requests at once of a member for {kind} ({_told(answers)}): {said}")


def _told(answers: Counter[int]) -> str:
    return ", ".join(f"{count} of {status}" for status, count in sorted(answers.items()))


def test_a_link_takes_so_many_notes_an_hour_and_the_next_one_as_many(place: Place) -> None:
    first, second = place.asker(place.visitor()), place.asker(place.visitor())
    note = ("POST", "/api/v1/comparisons/1/slices/0/rows/1/notes")
    for number in range(notes.MOST_AN_HOUR):
        written = first.ask(*note, {"author": "Li", "text": f"note {number}"})
        assert written.status == 201, written.text
        if number % 2:  # what was deleted was written all the same
            first.ask("DELETE", f"/api/v1/comparisons/1/notes/{json.loads(written.text)['id']}")
    refused = first.ask(*note, {"author": "Li", "text": "one more"})
    assert refused.status == 429
    assert 0 < int(refused.retry or 0) <= 3600
    assert "100 an hour" in refused.text
    assert second.ask(*note, {"author": "Wu", "text": "of another link"}).status == 201
    assert place.asker(place.owner).ask(*note, {"author": "me", "text": "of the owner"}).status == 201


def test_a_link_takes_so_much_text_an_hour(place: Place) -> None:
    visitor, long = place.asker(place.visitor()), "x" * notes.LONGEST_TEXT
    note = ("POST", "/api/v1/comparisons/1/slices/0/rows/2/notes")
    answers = [visitor.ask(*note, {"author": "Li", "text": long}).status for _ in range(30)]
    assert answers == [201] * (notes.MOST_CHARACTERS_AN_HOUR // notes.LONGEST_TEXT) + [429] * 5
    assert visitor.ask(*note, {"author": "Li", "text": "short"}).status == 429


def test_so_many_uploads_are_under_way_at_a_time_and_members_leave_some_to_the_owner(place: Place) -> None:
    member, owner = place.asker(place.member), place.asker(place.owner)
    wanted = {"name": "run", "files": [{"path": "dump.json", "size": 9}]}
    made = [member.ask("POST", "/api/v1/uploads", wanted) for _ in range(MOST_OF_MEMBERS + 5)]
    assert made[-1].status == 429
    assert int(made[-1].retry or 0) > 0
    assert f"{MOST_OF_MEMBERS} uploads are under way" in made[-1].text
    begun = [one.name for one in (place.data / "uploads" / ".incoming").iterdir()]
    assert len(begun) == MOST_OF_MEMBERS
    assert member.ask("DELETE", f"/api/v1/uploads/{begun[0]}").status == 200
    assert member.ask("POST", "/api/v1/uploads", wanted).status == 201
    of_owner = [owner.ask("POST", "/api/v1/uploads", wanted).status for _ in range(MOST_COMING)]
    left = MOST_COMING - MOST_OF_MEMBERS
    assert of_owner == [201] * left + [429] * (MOST_COMING - left)


def test_so_many_jobs_wait_at_a_time_and_members_leave_some_to_the_owner(place: Place) -> None:
    member, owner = place.asker(place.member), place.asker(place.owner)
    wanted = {"golden": str(place.dumps / "golden"), "target": str(place.dumps / "target")}
    until = time.monotonic() + PATIENCE
    while (answer := member.ask("POST", "/api/v1/comparisons", wanted)).status == 201:
        assert time.monotonic() < until
    assert answer.status == 503
    assert int(answer.retry or 0) > 0
    assert f"{MOST_JOBS} jobs are waiting" in answer.text
    assert "Try again when some of them are done" in answer.text
    before = _jobs(owner)
    assert owner.ask("POST", "/api/v1/comparisons", wanted).status == 201
    assert _jobs(owner) > before, "what was refused has left nothing"
    said = json.loads(owner.ask("GET", "/api/v1/jobs?only_open=true").text)["jobs"]
    assert 0 < len(said) <= MOST_JOBS + 5
    for job in said:
        owner.ask("POST", f"/api/v1/jobs/{job['id']}/cancel")
    record("visitors", f"jobs of a member beyond {MOST_JOBS}: 503; the owner's next one is taken")


def _jobs(owner: Asker) -> int:
    return int(json.loads(owner.ask("GET", "/api/v1/jobs").text)["jobs"][0]["id"])


@pytest.mark.parametrize(
    ("address", "is_tried"),
    [
        ("/c/1/rules", False),
        ("/c/1/rules?factor=4", True),
        ("/c/1/s/0/likely", True),
        ("/c/1/s/0/match", False),
        ("/c/1/s/0/match?set=1", False),
        ("/c/1/s/0/match?set=1&golden=a", True),
        ("/c/1/s/0/match/picked?target=a", True),
        ("/api/v1/comparisons/1/preview", True),
        ("/api/v1/comparisons/1/suggestions?golden=a", True),
        ("/api/v1/comparisons/1/rules/preview?factor=4", True),
        ("/api/v1/comparisons/1/rules", False),
        ("/c/1/s/0/tree?target=1", False),
    ],
)
def test_what_is_a_trial_is_told_by_its_address(address: str, *, is_tried: bool) -> None:
    path, _, query = address.partition("?")
    assert is_trial(path, query.encode()) is is_tried
