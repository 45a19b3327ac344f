"""The Share page and notes, with forms alone, where no token is set."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from messages import says, stated

from firstdrift.catalogue.sharing import notes

COMPARISON = 1
NOTHING = {"submitted": "yes"}


@pytest.fixture
def browser(client: TestClient) -> Iterator[TestClient]:
    client.cookies.clear()
    client.headers["accept"] = "text/html"
    yield client
    del client.headers["accept"]
    client.cookies.clear()


def make(browser: TestClient, **fields: str) -> str:
    """Make a link on the page; return its address."""
    answer = browser.post(f"/c/{COMPARISON}/share", data=fields)
    assert answer.status_code == 303
    page = browser.get(answer.headers["location"])
    assert page.headers["cache-control"] == "no-store"
    (address,) = re.findall(r'id="made-address"[^>]*value="([^"]+)"', page.text)
    return str(address)


def test_a_link_is_made_shown_once_listed_and_revoked(browser: TestClient) -> None:
    page = browser.get(f"/c/{COMPARISON}/share").text
    assert stated(page) == ["no-token", "no-link"]
    address = make(browser, lasts="1h", label="kernel <team>")
    again = browser.get(f"/c/{COMPARISON}/share").text
    assert address not in again
    assert "kernel &lt;team&gt;" in again
    assert browser.get(address).headers["location"] == f"/c/{COMPARISON}"
    (number,) = re.findall(rf"/c/{COMPARISON}/share/(\d+)/revoke", again)
    revoked = browser.post(f"/c/{COMPARISON}/share/{number}/revoke", data=NOTHING)
    assert (revoked.status_code, revoked.headers["location"]) == (303, f"/c/{COMPARISON}/share")
    gone = browser.get(address)
    assert gone.status_code == 404
    assert says(gone.text, "server.dead_link")
    assert "kernel &lt;team" not in browser.get(f"/c/{COMPARISON}/share").text


def test_a_link_leads_to_the_view_it_was_made_from(browser: TestClient) -> None:
    view = f"/c/{COMPARISON}/s/0/tree?verdict=error&row=3"
    address = make(browser, lasts="never", view=view)
    assert browser.get(address).headers["location"] == view


def test_what_cannot_be_chosen_makes_no_link(browser: TestClient) -> None:
    assert browser.post(f"/c/{COMPARISON}/share", data={"lasts": "100y"}).status_code == 422
    assert browser.post("/c/999/share", data={"lasts": "1d"}).status_code == 404
    for hours in (0, 0.5, 2161, "never"):
        asked = {"hours": hours}
        assert browser.post(f"/api/v1/comparisons/{COMPARISON}/links", json=asked).status_code == 422


def test_a_note_is_written_seen_where_it_belongs_deleted_and_taken_back(browser: TestClient) -> None:
    node = f"/c/{COMPARISON}/s/0/n/2"
    written = browser.post(f"{node}/notes", data={"author": "李 Wu", "text": "a\r\n<b>bold</b>"})
    assert (written.status_code, written.headers["location"]) == (303, f"{node}#note-1")
    page = browser.get(node).text
    assert "a\n&lt;b&gt;bold&lt;/b&gt;" in page
    assert 'value="李 Wu"' in page, "the browser keeps the name"
    assert "李 Wu" in browser.get(f"{node}?panel=true").text
    assert "李 Wu" in browser.get(f"/c/{COMPARISON}/s/0/tree?row=2").text
    assert "bold" not in browser.get(f"/c/{COMPARISON}/s/0/n/3?panel=true").text
    (listed,) = browser.get(f"/api/v1/comparisons/{COMPARISON}/notes").json()["notes"]
    assert (listed["author"], listed["address"]) == ("李 Wu", node)
    overview = browser.get(f"/c/{COMPARISON}").text
    assert f'href="{node}#notes"' in overview
    gone = browser.post(f"/c/{COMPARISON}/notes/{listed['id']}/delete", data={"back": node})
    assert gone.headers["location"] == node
    assert browser.get(f"/api/v1/comparisons/{COMPARISON}/notes").json()["notes"] == []
    assert "note-deleted" in stated(browser.get(node).text)
    browser.post(f"/c/{COMPARISON}/notes/{listed['id']}/restore", data={"back": "//evil.example"})
    assert "&lt;b&gt;bold" in browser.get(node).text
    assert browser.post(f"/c/2/notes/{listed['id']}/delete", data=NOTHING).status_code == 404


@pytest.mark.parametrize(
    "fields", [{"author": "", "text": "x"}, {"author": "x", "text": " "}, {"author": "x" * 81, "text": "x"}]
)
def test_a_note_without_name_or_text_is_refused(browser: TestClient, fields: dict[str, str]) -> None:
    assert browser.post(f"/c/{COMPARISON}/s/0/n/2/notes", data=fields).status_code == 422


def test_a_note_stays_with_its_node_when_it_is_judged_again_and_on_results_of_match_sets(
    browser: TestClient,
) -> None:
    place = "/api/v1/comparisons/2/slices/0/rows/5/notes"
    assert browser.post(place, json={"author": "Wu", "text": "here"}).status_code == 201
    (before,) = browser.get("/api/v1/comparisons/2/notes").json()["notes"]
    made = browser.post("/api/v1/comparisons/2/match-sets", json={"name": "mine"}).json()
    assert made["results"]["comparison"] == 2
    browser.post("/api/v1/comparisons/2/again", json={"rules": "msprobe"})
    (after,) = browser.get("/api/v1/comparisons/2/notes").json()["notes"]
    assert after["node"] == before["node"]


def test_deleted_notes_leave_room_for_others_and_come_back_where_there_is_room(
    browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "MOST_NOTES", 2)
    listed = "/api/v1/comparisons/3/notes"

    def write(text: str) -> Any:  # noqa: ANN401
        return browser.post("/api/v1/comparisons/3/slices/0/rows/4/notes", json={"author": "a", "text": text})

    first, second = (write(text).json()["id"] for text in ("first", "second"))
    assert (write("third").status_code, len(browser.get(listed).json()["notes"])) == (422, 2)
    browser.delete(f"{listed}/{first}")
    third = write("third")
    assert third.status_code == 201
    refused = browser.post(f"{listed}/{first}/restore", headers={"accept": "application/json"})
    assert refused.status_code == 422
    assert refused.json()["message"]["id"] == "catalogue.note.many"
    browser.delete(f"{listed}/{second}")
    assert browser.post(f"{listed}/{first}/restore").status_code == 200
    assert [note["text"] for note in browser.get(listed).json()["notes"]] == ["first", "third"]
    for note in (first, third.json()["id"]):
        browser.delete(f"{listed}/{note}")
