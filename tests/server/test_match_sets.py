"""What is promised of match sets over HTTP: previews that come true, undo, conflicts, files in and out."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient
from messages import says
from working import wait_until

from firstdrift.matching.manual.mapping_files import LARGEST_FILE
from firstdrift_server.guards.body import LARGEST_IMPORT

MLP, FEED_FORWARD = (
    f"Module.model.layers.{{}}.{name}.LlamaMLP.forward.0" for name in ("mlp", "feed_forward")
)
MAPPINGS = Path(__file__).parents[1] / "mappings"
Compare = Callable[..., int]


def edit(at: int, kind: str = "match") -> dict[str, Any]:
    return {"kind": kind, "golden": [MLP.format(at)], "target": [FEED_FORWARD.format(at)]}


def settle(client: TestClient) -> None:
    wait_until(lambda: not client.get("/api/v1/jobs?only_open=true").json()["jobs"])


@pytest.fixture
def fresh(client: TestClient, dumps: Mapping[str, tuple[Path, Path]]) -> Compare:
    """Return a function that compares the renamed dumps once more, by name alone; gives the id."""

    def compare(pair: str = "renamed", **options: object) -> int:
        golden, target = dumps[pair]
        choice = {"golden": str(golden), "target": str(target), "structure": False} | options
        made = client.post("/api/v1/comparisons", json=choice)
        assert made.status_code == 201, made.text
        settle(client)
        return int(made.json()["id"])

    return compare


@pytest.fixture
def comparison(fresh: Compare) -> int:
    return fresh()


def begin(client: TestClient, comparison: int, name: str = "mine") -> str:
    made = client.post(f"/api/v1/comparisons/{comparison}/match-sets", json={"name": name})
    assert made.status_code == 201, made.text
    assert made.headers["location"] == f"/api/v1/match-sets/{made.json()['id']}"
    return str(made.headers["location"])


def change(client: TestClient, address: str, version: int, *edits: dict[str, Any]) -> dict[str, Any]:
    answer = client.post(f"{address}/edits", json={"version": version, "edits": edits})
    assert answer.status_code == 201, answer.text
    settle(client)
    found: dict[str, Any] = client.get(address).json()
    return found


def plan_of(client: TestClient, comparison: int) -> list[object]:
    """Give which nodes correspond, row by row, and why."""
    answer = client.get(
        f"/api/v1/comparisons/{comparison}/slices/0/rows", params={"open": "0-9999", "count": 1000}
    )
    rows = answer.json()["rows"]
    assert len(rows) > 10
    return [{name: row.get(name) for name in ("golden", "target", "verdict", "class")} for row in rows]


def unseen(finding: dict[str, Any]) -> dict[str, Any]:
    """Leave out what values show, and what is said where they were not looked at."""
    reasons = [one for one in finding["reasons"] if one["id"] != "reason.order_of_weights"]
    return finding | {"shown": [], "cause": [], "reasons": reasons}


def test_an_edit_changes_counts_as_previewed_and_undo_and_redo_go_back_and_forth(
    client: TestClient, comparison: int
) -> None:
    address = begin(client, comparison)
    number = int(address.rpartition("/")[2])
    asked = {"edits": [edit(1), edit(3)], "match_set": number}
    preview = client.post(f"/api/v1/comparisons/{comparison}/preview", json=asked).json()
    found = change(client, address, 0, edit(1), edit(3))
    counts = found["results"]["counts"]
    assert preview["after"]["counts"] == counts
    assert preview["before"]["counts"]["unmatched_golden_nodes"] == 46
    assert counts["unmatched_golden_nodes"] == 0
    assert counts["unmatched_target_nodes"] == 4
    assert preview["added_total"] == len(preview["added"]) == 46
    # A preview does not look at values from near.
    assert unseen(preview["after"]["first_bad_node"]) == unseen(found["results"]["first_bad_node"])
    assert (found["version"], found["undo_to"], found["redo_to"]) == (1, 0, None)
    results = client.get(f"/api/v1/comparisons/{found['results']['comparison']}").json()
    assert results["counts"] == counts
    assert results["match_set"] == {"id": number, "name": "mine", "version": 1, "comparison": comparison}
    page = client.get(f"/c/{found['results']['comparison']}")
    assert page.status_code == 200
    assert "--mapping MATCH_SET.json" in page.text
    base = client.get(f"/api/v1/comparisons/{comparison}").json()
    assert base["match_set"] is None
    undone = client.post(f"{address}/undo", json={"version": 1}).json()
    assert undone["results"]["comparison"] == comparison
    assert (undone["version"], undone["redo_to"], undone["edits"]) == (0, 1, [])
    assert client.get(f"/api/v1/comparisons/{comparison}").json() == base
    redone = client.post(f"{address}/redo", json={"version": 0}).json()
    assert redone == found
    listed = client.get(f"/api/v1/comparisons/{comparison}/match-sets").json()["match_sets"]
    assert listed == [found]


def test_a_preview_writes_nothing_and_needs_no_match_set(client: TestClient, comparison: int) -> None:
    asked = {"edits": [edit(1)]}
    first = client.post(f"/api/v1/comparisons/{comparison}/preview", json=asked)
    assert first.status_code == 200
    assert first.json()["new_pairs"] == 51
    assert client.post(f"/api/v1/comparisons/{comparison}/preview", json=asked).json() == first.json()
    assert client.get(f"/api/v1/comparisons/{comparison}/match-sets").json() == {"match_sets": []}


def test_of_two_viewers_the_slower_is_told_what_changed_and_both_see_the_new_version(
    client: TestClient, comparison: int
) -> None:
    address = begin(client, comparison)
    change(client, address, 0, edit(1))
    for path, body in (
        ("edits", {"version": 0, "edits": [edit(3)]}),
        ("undo", {"version": 0}),
        ("redo", {"version": 0}),
        ("import", {"version": 0, "text": "a.B: c.D"}),
    ):
        refused = client.post(f"{address}/{path}", json=body)
        assert refused.status_code == 409
        said = refused.json()
        assert (said["ok"], said["status"]) == (False, 409)
        assert says(said["error"], "matching.edit.match.both")
    assert MLP.format(1) in said["error"]
    found = change(client, address, 1, edit(3))
    assert [one["golden"] for one in found["edits"]] == [[MLP.format(1)], [MLP.format(3)]]


def test_an_exported_match_set_gives_the_same_plan_in_a_fresh_comparison(
    client: TestClient, fresh: Compare
) -> None:
    first, second = fresh(), fresh()
    address = begin(client, first)
    made = change(client, address, 0, edit(1), edit(3))
    file = client.get(f"{address}/export")
    assert file.headers["content-type"] == "application/json"
    assert "attachment" in file.headers["content-disposition"]
    again = begin(client, second)
    imported = client.post(f"{again}/import", json={"version": 0, "name": "set.json", "text": file.text})
    assert imported.status_code == 201, imported.text
    settle(client)
    other = client.get(again).json()
    assert other["edits"] == made["edits"]
    assert other["results"]["counts"] == made["results"]["counts"]
    plans = [plan_of(client, found["results"]["comparison"]) for found in (made, other)]
    assert plans[0] == plans[1]


@pytest.mark.parametrize("written", ["layer_mapping", "data_mapping"])
def test_an_exported_mapping_file_gives_the_same_matches_when_it_is_read_in(
    client: TestClient, fresh: Compare, written: str
) -> None:
    first, second = fresh(), fresh()
    address = begin(client, first)
    made = change(client, address, 0, edit(1), edit(3))
    file = client.get(f"{address}/export", params={"format": written})
    assert file.headers["content-type"].startswith("application/yaml")
    entries = yaml.safe_load(file.text)
    inner = entries["TopLayer"] if written == "layer_mapping" else entries
    assert any("feed_forward" in target and "mlp" in golden for target, golden in inner.items())
    again = begin(client, second)
    body = {"version": 0, "name": f"{written}.yaml", "text": file.text}
    assert client.post(f"{again}/import", json=body).status_code == 201
    settle(client)
    other = client.get(again).json()
    assert other["mappings"] == [f"{written}.yaml"]
    assert other["results"]["counts"] == made["results"]["counts"]
    assert plan_of(client, other["results"]["comparison"]) == plan_of(client, made["results"]["comparison"])
    empty = client.get(f"{again}/export", params={"format": written, "version": 0})
    assert "feed_forward" not in empty.text


def test_suggestions_are_ranked_with_score_and_reasons(client: TestClient, comparison: int) -> None:
    address = f"/api/v1/comparisons/{comparison}/suggestions"
    found = client.get(address, params={"target": FEED_FORWARD.format(3)}).json()["suggestions"]
    assert found[0]["golden"] == [MLP.format(3)]
    assert found[0]["target"] == [FEED_FORWARD.format(3)]
    assert 1 >= found[0]["score"] > found[1]["score"] > 0
    assert "matching.reason.parents_correspond" in [reason["id"] for reason in found[0]["reasons"]]
    number = int(begin(client, comparison).rpartition("/")[2])
    change(client, f"/api/v1/match-sets/{number}", 0, edit(3))
    later = client.get(address, params={"target": FEED_FORWARD.format(1), "match_set": number}).json()
    assert later["suggestions"][0]["golden"] == [MLP.format(1)]
    assert all(one["golden"] != [MLP.format(3)] for one in later["suggestions"])


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"version": 0, "edits": []}, "edits"),
        ({"version": 0}, "edits"),
        ({"edits": [edit(1)]}, "version"),
        ({"version": 0, "edits": [edit(1) | {"kind": "delete"}]}, "kind"),
        ({"version": 0, "edits": [edit(1) | {"more": 1}]}, "more"),
        ({"version": 0, "edits": [edit(1) | {"golden": []}]}, "matching.edit.one_side"),
        ({"version": 0, "edits": [edit(1) | {"golden": ["nothing"]}]}, "matching.edit.no_node"),
        ({"version": 0, "edits": [edit(1, "unmatch")]}, "matching.edit.not_matched"),
        ({"version": 0, "edits": [edit(1), edit(7)]}, "matching.edit.no_node|matching.edit.no_slice"),
    ],
)
def test_an_edit_that_makes_no_sense_is_refused_and_leaves_nothing(
    client: TestClient, comparison: int, body: dict[str, Any], why: str
) -> None:
    address = begin(client, comparison)
    refused = client.post(f"{address}/edits", json=body)
    assert refused.status_code == 422
    assert re.search(why, json.dumps(refused.json()["message"]))
    assert client.get(address).json()["versions"] == []


def test_a_file_that_makes_no_sense_is_refused_with_its_line(client: TestClient, comparison: int) -> None:
    address = begin(client, comparison)
    for text, why in (
        ("TopLayer:\n  a: [1]\n", '"line": 2'),
        ('{"firstdrift_match_set": 9}', "matching.match_set.other_format"),
        ("", "matching.mapping.empty"),
        ("a: &x b\nc: *x\n", "matching.mapping.alias"),
    ):
        body = {"version": 0, "name": "bad.yaml", "text": text}
        refused = client.post(f"{address}/import", json=body)
        assert refused.status_code == 422, text
        assert why in json.dumps(refused.json()["message"])
    assert client.get(address).json()["versions"] == []


def test_a_mapping_of_msprobe_is_read_in(client: TestClient, fresh: Compare) -> None:
    comparison = fresh(structure=True)
    address = begin(client, comparison)
    text = (MAPPINGS / "data_mapping_llama.yaml").read_text()
    body = {"version": 0, "name": "data_mapping_llama.yaml", "text": text}
    assert client.post(f"{address}/import", json=body).status_code == 201
    settle(client)
    found = client.get(address).json()
    assert found["versions"][0]["says"]["arguments"] == {"file": "data_mapping_llama.yaml"}
    assert found["results"]["state"] == "done"


def test_a_mapping_file_of_several_mebibytes_is_read_and_one_that_is_too_large_refused(
    client: TestClient, fresh: Compare
) -> None:
    comparison = fresh(structure=True)
    address = begin(client, comparison)
    text = (MAPPINGS / "data_mapping_llama.yaml").read_text() + "# what was left out\n" * 200_000
    body = {"version": 0, "name": "large.yaml", "text": text}
    assert client.post(f"{address}/import", json=body).status_code == 201
    form = f"/c/{comparison}/s/0/match/import"
    sent = client.post(form, data={"name": "large.yaml", "text": text}, follow_redirects=False)
    assert (sent.status_code, len(sent.request.content) > 3 << 20) == (303, True)
    too_large = ((LARGEST_FILE + 1, "server.large_mapping_file"), (LARGEST_IMPORT + 1, "server.large_body"))
    for length, said in too_large:
        refused = client.post(f"{address}/import", json={"version": 1, "text": "#" * length})
        assert refused.status_code in (413, 422)
        assert said in json.dumps(refused.json()["message"])
    settle(client)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b'{"version": 0}', "`text`"),
        (b'{"version": -1, "text": "a: b"}', "$.version"),
        (b'{"version": 0, "text": ["a"]}', "$.text"),
        (b'{"version": 0, "text": "a: b", "name": "%s"}' % (b"x" * 201), "$.name"),
        (b'{"version": 0, "text": "\\ud800 and more"}', "surrogate"),
        (b'{"version": 0, %s "text": "a: b"}' % b"".join(b'"%d": {},' % n for n in range(50_000)), "unknown"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_body_that_holds_no_file_is_refused_in_a_few_words(
    client: TestClient, comparison: int, body: bytes, why: str
) -> None:
    address = begin(client, comparison)
    headers = {"content-type": "application/json"}
    refused = client.post(f"{address}/import", content=body, headers=headers)
    assert refused.status_code == 422
    assert why in refused.json()["error"]
    assert len(refused.content) < 500
    assert client.get(address).json()["versions"] == []


def test_what_is_not_there_is_not_found(client: TestClient, comparison: int) -> None:
    address = begin(client, comparison)
    number = address.rpartition("/")[2]
    for method, path, body in (
        ("GET", "/api/v1/match-sets/999", None),
        ("GET", f"{address}/export?version=7", None),
        ("GET", "/api/v1/comparisons/999/match-sets", None),
        ("GET", f"/api/v1/comparisons/{comparison}/suggestions?target=a&slice=9", None),
        ("GET", f"/api/v1/comparisons/1/suggestions?target=a&match_set={number}", None),
        ("POST", "/api/v1/comparisons/999/match-sets", {"name": "x"}),
        ("POST", "/api/v1/match-sets/999/undo", {"version": 0}),
        ("POST", "/api/v1/match-sets/999/rename", {"name": "x"}),
        ("POST", "/api/v1/match-sets/999/restore", None),
        ("DELETE", "/api/v1/match-sets/999", None),
        ("POST", "/api/v1/match-sets/999/edits", {"version": 0, "edits": [edit(1)]}),
    ):
        answer = client.request(method, path, json=body)
        assert answer.status_code == 404, (method, path, answer.text)
        assert answer.json()["ok"] is False
    assert client.post(f"{address}/undo", json={"version": 0}).status_code == 422


def test_a_match_set_is_renamed_deleted_and_taken_back(client: TestClient, comparison: int) -> None:
    address, of_comparison = begin(client, comparison), f"/api/v1/comparisons/{comparison}/match-sets"
    before = change(client, address, 0, edit(1))
    renamed = client.post(f"{address}/rename", json={"name": "one MLP"})
    assert (renamed.status_code, renamed.json()) == (200, before | {"name": "one MLP"})
    results = f"/api/v1/comparisons/{before['results']['comparison']}"
    deleted = client.delete(address)
    assert (deleted.status_code, deleted.json()) == (200, {"ok": True, "id": before["id"]})
    assert client.get(address).status_code == client.get(results).status_code == 404
    assert client.get(of_comparison).json() == {"match_sets": []}
    (left,) = client.get(f"{of_comparison}?deleted=true").json()["match_sets"]
    assert (left["id"], left["name"], left["results"]) == (before["id"], "one MLP", None)
    assert client.post(of_comparison, json={"name": "one MLP"}).status_code == 422
    assert client.post(f"{address}/restore").status_code == 200
    settle(client)
    after = client.get(address).json()
    assert after["results"]["counts"] == before["results"]["counts"]
    same = ("name", "version", "edits", "undo_to", "redo_to")
    assert {name: after[name] for name in same} == {
        name: (before | {"name": "one MLP"})[name] for name in same
    }
    assert client.post(f"{address}/restore").status_code == 404


def test_results_of_match_sets_are_not_listed_among_comparisons(client: TestClient, comparison: int) -> None:
    address = begin(client, comparison)
    found = change(client, address, 0, edit(1))
    listed = client.get("/api/v1/comparisons?limit=500").json()["comparisons"]
    ids = {one["id"] for one in listed}
    assert comparison in ids
    assert found["results"]["comparison"] not in ids
