"""What is promised of the Match page: all of it by forms, nothing picked is lost, old addresses lead on."""

import html
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi.testclient import TestClient
from messages import says, stated
from working import wait_until

MLP, FEED_FORWARD = (
    f"Module.model.layers.{{}}.{name}.LlamaMLP.forward.0" for name in ("mlp", "feed_forward")
)
PAIR = {"golden": MLP.format(1), "target": FEED_FORWARD.format(1)}
Submit = Callable[..., Any]


def settle(client: TestClient) -> None:
    wait_until(lambda: not client.get("/api/v1/jobs?only_open=true").json()["jobs"])


@pytest.fixture(scope="module")
def page(client: TestClient, dumps: Mapping[str, tuple[Path, Path]]) -> str:
    """The address of the page of the renamed dumps, compared once more by name alone."""
    golden, target = dumps["renamed"]
    choice = {"golden": str(golden), "target": str(target), "structure": False}
    made = client.post("/api/v1/comparisons", json=choice)
    settle(client)
    return f"/c/{made.json()['id']}/s/0/match"


@pytest.fixture
def submit(client: TestClient, page: str) -> Submit:
    """Return a function that sends a form of the page and gives the answer."""

    def send(change: str, **fields: str) -> Any:  # noqa: ANN401 (the client's own kind of answer)
        return client.post(f"{page}/{change}", data=fields)

    return send


def led_to(answer: Any) -> dict[str, list[str]]:  # noqa: ANN401 (the client's own kind of answer)
    """Give the parameters of the address that a form led to."""
    assert answer.status_code == 303, answer.text[-2000:]
    return parse_qs(urlsplit(answer.headers["location"]).query)


def test_the_page_shows_the_unmatched_nodes_of_each_side_in_what_they_lie_in(
    client: TestClient, page: str
) -> None:
    view = client.get(f"{page}.json").json()
    for side, nodes, free in (("golden", 542, 46), ("target", 546, 50)):
        pane = view["panes"][side]
        assert (pane["nodes"], pane["free"]) == (nodes, free)
        wanted = [row for row in pane["rows"] if not row["is_context"]]
        assert len(wanted) == free
        assert {row["status"] for row in wanted} == {"unmatched"}
        assert {row["status"] for row in pane["rows"] if row["is_context"]} == {"matched"}
        assert len(pane["rows"]) == pane["total"]
    everything = client.get(f"{page}.json?show=all&find_golden=FEED_forward").json()["panes"]
    assert everything["golden"]["total"] == 0
    assert everything["target"]["total"] == 546
    text = client.get(page).text
    assert re.search('id="count-golden" data-free="46">.*542', text)
    assert re.search('id="count-target" data-free="50">.*546', text)


def test_golden_rows_bear_the_names_and_types_of_golden_nodes(
    client: TestClient, page: str, submit: Submit
) -> None:
    pair = {"golden": MLP.format(1), "target": "Module.model.layers.2.mlp.down_proj.Linear.forward.0"}
    number = led_to(submit("edit", **pair, descendants_box="1"))["set"][0]
    settle(client)
    shown = client.get(f"{page}.json", params={"set": number, "show": "all", "find_golden": "layers.1.mlp"})
    (row,) = (row for row in shown.json()["panes"]["golden"]["rows"] if row["names"] == [pair["golden"]])
    said = {name: row[name] for name in ("label", "type_name", "partner", "status")}
    assert said == {"label": "mlp", "type_name": "LlamaMLP", "partner": [pair["target"]], "status": "matched"}


def test_nodes_are_matched_undone_and_done_again_with_forms(
    client: TestClient, page: str, submit: Submit
) -> None:
    preview = client.get(page, params=PAIR | {"preview": "1", "suggest": "1"})
    assert 'data-more="51"' in preview.text
    assert "same-first" in stated(preview.text)
    assert says(preview.text, "matching.reason.parents_correspond")
    after = led_to(submit("edit", **PAIR, new_name="mine", descendants_box="1", descendants="yes"))
    assert set(after) == {"set"}
    measuring = client.get(page, params=after).text
    assert "mine" in measuring
    settle(client)
    view = client.get(f"{page}.json", params=after).json()
    assert (view["state"]["version"], view["state"]["pending"]) == (1, 0)
    assert view["panes"]["golden"]["free"] == 23
    assert view["state"]["results"]["state"] == "done"
    assert client.get(view["state"]["results"]["tree"]).status_code == 200
    picks = {"set": after["set"][0], "golden": MLP.format(3)}
    assert led_to(submit("undo", **picks, version="1")) == {"set": after["set"], "golden": [MLP.format(3)]}
    assert client.get(f"{page}.json", params=after).json()["panes"]["golden"]["free"] == 46
    led_to(submit("redo", **picks, version="0"))
    assert client.get(f"{page}.json", params=after).json()["panes"]["golden"]["free"] == 23


def test_what_is_decided_and_not_measured_yet_is_marked(
    client: TestClient, page: str, submit: Submit
) -> None:
    after = led_to(submit("edit", **PAIR))
    view = client.get(f"{page}.json", params=after).json()
    # Measured, the backward pass and gradients have followed.
    assert view["panes"]["golden"]["free"] == (36 if view["state"]["pending"] else 23)
    settle(client)


def test_a_match_without_descendants_leaves_what_is_inside(client: TestClient, submit: Submit) -> None:
    after = led_to(submit("edit", **PAIR, descendants_box="1"))
    settle(client)
    found = client.get(f"/api/v1/match-sets/{after['set'][0]}").json()
    assert [edit["descendants"] for edit in found["edits"]] == [False]


def test_matched_nodes_are_taken_apart(client: TestClient, page: str, submit: Submit) -> None:
    names = {side: MLP.format(2) for side in ("golden", "target")}
    shown = client.get(page, params=names | {"preview": "1"}).text
    assert 'value="unmatch" checked' in shown
    assert "taken-apart" in stated(shown)
    assert re.search(r'data-fewer="[1-9]', shown)
    after = led_to(submit("edit", **names))
    settle(client)
    view = client.get(f"{page}.json", params=after).json()
    assert view["panes"]["golden"]["free"] > 46
    assert view["state"]["history"][0]["says"]["id"] in (
        "matching.edit.with_children",
        "matching.version.several",
    )


def test_of_two_viewers_the_slower_is_told_and_keeps_what_was_picked(
    client: TestClient, page: str, submit: Submit
) -> None:
    number = led_to(submit("edit", **PAIR))["set"][0]
    mine = {"golden": MLP.format(3), "target": FEED_FORWARD.format(3)}
    refused = submit("edit", **mine, set=number, version="0")
    assert refused.status_code == 409
    assert says(refused.text, "matching.edit.match.both")
    assert MLP.format(1) in html.unescape(refused.text)
    for side, name in mine.items():
        assert f'name="{side}" value="{name}" checked' in refused.text
    data = client.post(
        f"{page}/edit", data=mine | {"set": number, "version": "0"}, headers={"accept": "application/json"}
    )
    assert (data.status_code, data.json()["ok"]) == (409, False)
    done = client.post(
        f"{page}/edit", data=mine | {"set": number, "version": "1"}, headers={"accept": "application/json"}
    )
    assert done.json() == {"ok": True, "set": int(number), "version": 2}
    settle(client)


def test_sets_are_begun_renamed_deleted_and_taken_back_with_forms(
    client: TestClient, page: str, submit: Submit
) -> None:
    picks = {"golden": MLP.format(1)}
    begun = led_to(submit("begin", name="first try", **picks))
    assert begun["golden"] == [MLP.format(1)]
    number = begun["set"][0]
    again = submit("begin", name="first try", **picks)
    assert again.status_code == 422
    assert says(again.text, "catalogue.match_set.name_taken")
    led_to(submit("rename", set=number, name="renamed MLPs"))
    assert "renamed MLPs" in client.get(page, params={"set": number}).text
    after = led_to(submit("delete", set=number))
    deleted = client.get(page, params=after).text
    assert stated(deleted) == [f"deleted-{number}"]
    assert "renamed MLPs" in deleted
    assert client.get(page, params={"set": number}).status_code == 404
    assert led_to(submit("restore", set=number))["set"] == [number]
    assert client.get(page, params={"set": number}).status_code == 200
    other = led_to(submit("edit", **PAIR, new_name="renamed MLPs"))["set"][0]
    assert client.get(f"/api/v1/match-sets/{other}").json()["name"] == "renamed MLPs (2)"
    settle(client)


def test_a_set_of_another_comparison_is_refused(client: TestClient, submit: Submit) -> None:
    number = led_to(submit("begin", name="here"))["set"][0]
    elsewhere = "/c/2/s/0/match"
    assert client.get(elsewhere, params={"set": number}).status_code == 404
    for change in ("edit", "undo", "redo", "rename", "delete", "import"):
        fields = PAIR | {"set": number, "name": "x", "text": "TopLayer:\n  a: b\n"}
        assert client.post(f"{elsewhere}/{change}", data=fields).status_code == 404, change
    assert client.get(f"/api/v1/match-sets/{number}").json()["name"] == "here"


def test_files_are_read_in_and_written_out(client: TestClient, page: str, submit: Submit) -> None:
    after = led_to(submit("edit", **PAIR))
    exports = re.findall(r'href="(/api/v1/match-sets/[^"]+)" download', client.get(page, params=after).text)
    assert len(exports) == 4
    text = client.get(exports[0]).text.replace("\n", "\r\n")  # as a form sends it
    settle(client)
    into = led_to(submit("import", name="set.json", text=text))
    settle(client)
    assert client.get(f"{page}.json", params=into).json()["panes"]["golden"]["free"] == 23
    wrong = submit("import", name="set.json", text="{", golden=MLP.format(3))
    assert wrong.status_code == 422
    assert f'name="golden" value="{MLP.format(3)}"' in wrong.text


def test_the_page_of_results_leads_to_that_of_their_comparison(
    client: TestClient, page: str, submit: Submit
) -> None:
    after = led_to(submit("edit", **PAIR))
    results = client.get(f"/api/v1/match-sets/{after['set'][0]}").json()["results"]["comparison"]
    asked = client.get(f"/c/{results}/s/0/match", params={"golden": MLP.format(3)})
    assert urlsplit(asked.headers["location"]).path == page
    assert led_to(asked) == after | {"golden": [MLP.format(3)]}
    settle(client)


def test_unmatched_rows_lead_to_the_page_from_tree_node_and_list(client: TestClient, page: str) -> None:
    base = page.removesuffix("/match")
    tree = client.get(f"{base}/tree?verdict=unmatched").text
    listed = client.get(f"{base}/unmatched").text
    wanted = f"{page}?golden={MLP.format(1)}&"
    assert wanted in html.unescape(tree)
    assert wanted in html.unescape(listed)
    row, reason = next(
        (row["row"], row["reasons"][0]["text"])
        for row in client.get(f"{base}/unmatched.json").json()["nodes"]["golden"]
    )
    node = html.unescape(client.get(f"{base}/n/{row}").text)
    assert wanted in node
    assert reason in html.unescape(listed)
    assert reason[1:] in node
    picked = client.get(wanted).text
    assert f'name="golden" value="{MLP.format(1)}" checked' in picked


def test_rows_come_in_pieces_and_the_next_unmatched_one_is_found(client: TestClient, page: str) -> None:
    asked = {"side": "target", "show": "all"}
    found = client.get(f"{page}/rows", params=asked | {"chunks": "0.3"}).json()
    assert (found["total"], [number for number, _ in found["chunks"]]) == (546, [0, 3])
    assert found["chunks"][1][1].count('role="option"') == 50
    places = [-1]
    for _ in range(5):
        step = client.get(f"{page}/rows", params=asked | {"next": str(places[-1])}).json()
        assert f'data-place="{step["place"]}"' in step["chunks"][-1][1]
        places.append(step["place"])
    assert places == sorted(set(places))
    assert client.get(f"{page}/rows", params=asked | {"next": "545"}).json()["place"] == places[1]
    named = client.get(f"{page}/rows", params=asked | {"place_of": "1", "target": FEED_FORWARD.format(1)})
    assert named.json()["place"] == places[1]
    hidden = client.get(f"{page}/rows", params=asked | {"place_of": "1", "target": "no such node"}).json()
    assert hidden["place"] is None


def test_what_cannot_be_matched_is_explained_before_it_is_tried(client: TestClient, page: str) -> None:
    crossed = {"golden": MLP.format(1), "target": FEED_FORWARD.format(1).replace("forward.0", "backward.0")}
    for picks in (crossed, {"golden": "no such node", "target": FEED_FORWARD.format(1)}):
        found = client.get(f"{page}/effect", params=picks)
        assert found.status_code == 200
        if not found.json()["ok"]:
            assert 'class="problem"' in found.json()["html"]
    assert "absent" in stated(client.get(page, params={"golden": "no such node"}).text)
    absent = client.get(f"{page}/effect", params={"golden": "x", "target": FEED_FORWARD.format(1)}).json()
    assert not absent["ok"]
    many = {"golden": [MLP.format(1), MLP.format(3)], "target": [FEED_FORWARD.format(n) for n in (1, 3)]}
    assert client.get(f"{page}/picked", params=many).json()["is_too_many"] is True


@pytest.mark.parametrize(
    ("query", "status"),
    [("set=x", 422), ("set=999", 404), ("kind=delete", 422), ("from_golden=-1", 422), ("set=0", 200)],
)
def test_addresses_that_make_no_sense_are_refused(
    client: TestClient, page: str, query: str, status: int
) -> None:
    assert client.get(f"{page}?{query}").status_code == status


def test_what_is_not_there_is_not_found(client: TestClient, page: str) -> None:
    for address in ("/c/999/s/0/match", "/c/1/s/9/match", f"{page}/nothing", "/c/999/s/0/match/state"):
        assert client.get(address).status_code in (404, 422), address
    assert client.post(f"{page}/undo", data={"version": "0"}).status_code == 422
    assert client.post(f"{page}/restore", data={"set": "999"}).status_code == 404
