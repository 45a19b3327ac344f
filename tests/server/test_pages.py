import json
import os
import re
import shutil
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from fastapi.testclient import TestClient
from half_taken import taken
from messages import says, stated
from working import wait_until

from firstdrift import compare
from firstdrift.errors import CatalogueError
from firstdrift.exports.report_json import report_object
from firstdrift.strict_json import plain
from firstdrift.wording.message import verbatim
from firstdrift.wording.text import word
from firstdrift_frontend.assets import build
from firstdrift_server.tree import view as tree
from firstdrift_server.tree.state import COLUMNS

HTML = {"accept": "text/html"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
PAGES = [
    "/",
    "/?q=llama",
    "/?q=nothing-has-this-name",
    "/new",
    "/c/1",
    "/c/2",
    "/c/3?slice=0&metric=kl_divergence",
    "/c/1/s/0/tree",
    "/c/2/s/0/tree?verdict=unmatched",
    "/c/2/s/0/tree?unfold=all",
    "/c/1/s/0/tree?unfold=all&" + "&".join(f"column={name}" for name in COLUMNS),
    "/c/1/s/0/n/0",
    "/c/2/s/0/unmatched",
]


def page(client: TestClient, address: str, status: int = 200) -> str:
    answer = client.get(address, headers=HTML)
    assert answer.status_code == status, answer.text
    return answer.text


def strict(text: str) -> Any:  # noqa: ANN401 (whatever JSON has)
    """Parse JSON as strict parsers do: NaN and Infinity are no numbers."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("address", PAGES)
def test_every_page_answers_html_and_json(client: TestClient, address: str) -> None:
    assert page(client, address).startswith("<!doctype html>")
    path, _, query = address.partition("?")
    by_suffix = client.get(f"{path}.json?{query}", headers=HTML)
    by_header = client.get(address, headers={"accept": "application/json"})
    assert by_suffix.headers["content-type"] == "application/json"
    assert strict(by_suffix.text) == strict(by_header.text)


@pytest.mark.parametrize("address", PAGES)
def test_every_link_on_a_page_leads_somewhere(client: TestClient, address: str) -> None:
    text = page(client, address)
    links = {unescape(link).partition("#")[0] for link in re.findall(r'(?:href|src)="([^"#][^"]*)"', text)}
    for link in sorted(links)[:30]:
        leads_on = link.startswith("/dumps?path=")  # to the page of the dump, which is made then
        assert client.get(link, headers=HTML, follow_redirects=leads_on).status_code == 200, link


@pytest.mark.parametrize("address", PAGES)
def test_no_page_has_a_script_or_a_handler_in_it(client: TestClient, address: str) -> None:
    text = page(client, address)
    assert re.findall(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)", text) == []
    assert re.findall(r"<[^>]*\son[a-z]+\s*=", text) == []
    assert "javascript:" not in text


def test_the_finding_is_a_sentence_whose_names_are_links(client: TestClient) -> None:
    text = page(client, "/c/3")
    sentence = re.search(r'<p class="sentence">(.*?)</p>', text, re.DOTALL)
    assert sentence is not None
    links = {
        re.sub("<.*?>", "", name): unescape(link)
        for link, name in re.findall(r'<a href="([^"]+)">(.*?)</a>', sentence[1])
    }
    token = next(name for name in links if says(name, "finding.token"))
    assert links[token].startswith("/c/3?slice=3")
    (module,) = links.keys() - {token}
    assert "layers.2.mlp" in module
    tree = page(client, links[module])
    assert 'aria-selected="true"' in tree


def test_a_comparison_answers_the_shape_that_the_command_prints(
    client: TestClient, dumps: Mapping[str, tuple[Path, Path]]
) -> None:
    found = strict(client.get("/api/v1/comparisons/3").text)
    assert found["summary"]["id"] == "summary.with_cause"
    said = found["summary"]["arguments"]["said"]
    assert said["id"] == "summary.bad_token_and_node"
    token = said["arguments"]["token"]
    assert token["id"] == "finding.first_token"
    assert token["arguments"]["bad_token"]["arguments"] == {"number": 3}
    assert (found["state"], found["first_bad_token"]["token"]) == ("done", 3)
    assert set(found["counts"]) == {
        *("pairs", "pass", "warning", "error", "incomparable"),
        *(f"unmatched_{side}_{what}" for side in ("golden", "target") for what in ("nodes", "tensors")),
    }
    for name in (
        "golden",
        "target",
        "first_bad_node",
        "input_differs",
        "rank_finding",
        "suspects",
        "overflow",
    ):
        assert name in found
    assert found["seconds"]["total"] > 0
    printed = plain(report_object(compare(*dumps["tokens"])))
    assert set(printed) <= set(found)
    for name in (
        "summary",
        "golden",
        "target",
        "counts",
        "first_bad_token",
        "first_bad_node",
        "notes",
        "unreadable",
    ):
        assert found[name] == printed[name]
    assert [slice_["token"] for slice_ in found["slices"]] == list(range(8))


def test_a_damaged_file_is_named_on_the_page_and_all_else_is_compared(client: TestClient) -> None:
    found = client.get("/api/v1/comparisons/4").json()
    assert found["unreadable"] == found["counts"]["incomparable"] == 1
    assert found["counts"]["pass"] == found["counts"]["pairs"] - 1 > 0
    (pair,) = found["incomparable"]
    assert ".pth" in pair["reason"]["text"]
    assert "damaged" in stated(page(client, "/c/4"))
    position = next(slice_["slice"] for slice_ in found["slices"] if slice_["counts"]["incomparable"])
    tree = page(client, f"/c/4/s/{position}/tree?verdict=incomparable")
    assert pair["reason"]["text"].partition(":")[0] in unescape(tree)


def test_the_tree_opens_at_the_first_bad_node_and_works_without_a_script(client: TestClient) -> None:
    text = page(client, "/c/1/s/0/tree")
    selected = re.search(r'data-row="(\d+)"[^>]*aria-selected="true"', text)
    first = client.get("/api/v1/comparisons/1").json()["first_bad_node"]
    node = client.get(f"/api/v1/comparisons/1/slices/0/rows/{selected[1] if selected else None}").json()
    assert node["target"] == [first["target"]]
    toggle = re.search(r'class="twist" href="([^"]+toggle=0[^"]*)"', text)
    assert toggle is not None
    closed = page(client, unescape(toggle[1]).partition("#")[0])
    assert closed.count('role="row" ') < text.count('role="row" ')


def test_steps_through_the_tree_visit_bad_rows_in_execution_order(client: TestClient) -> None:
    rows = "/api/v1/comparisons/1/slices/0/rows"
    orders, query = [], ""
    for _ in range(5):
        answer = client.get(f"{rows}?{query}&next=bad&count=1").json()
        query = answer["query"]
        node = client.get(f"{rows}/{answer['selected']}").json()
        assert node["verdict"] in ("warning", "error")
        orders.append(node["order"])
    assert orders == sorted(set(orders))


def test_filters_leave_only_what_matches_and_what_it_lies_in(client: TestClient) -> None:
    found = client.get("/api/v1/comparisons/2/slices/0/rows?verdict=unmatched&count=1000").json()
    shown = {row["row"]: row for row in found["rows"]}
    assert shown
    for row in shown.values():
        below = [other for other in shown.values() if row["row"] < other["row"] <= row["last"]]
        assert row["is_context"] == (row["verdict"] != "unmatched")
        assert not row["is_context"] or any(other["verdict"] == "unmatched" for other in below)


def test_searching_finds_parts_of_names_whatever_their_case(client: TestClient) -> None:
    found = client.get("/api/v1/comparisons/1/slices/0/rows?q=DOWN_PROJ&count=1000").json()
    matching = [row for row in found["rows"] if not row["is_context"]]
    assert matching
    assert all(
        "down_proj" in " ".join((row["label"], row["path"] or "", *row["target"])).lower() for row in matching
    )
    assert client.get("/api/v1/comparisons/1/slices/0/rows?q=%25").json()["total"] == 0


def test_a_search_by_pattern_finds_names_and_refuses_what_is_none_or_takes_for_ever(
    client: TestClient,
) -> None:
    address = "/api/v1/comparisons/1/slices/0/rows?regex=1&sort=execution&count=1000&q="
    found = client.get(address + r"LAYERS\.[01]\.mlp\.(up|down)_proj\.").json()
    assert {re.search(r"layers\.(\d)\.mlp\.(\w+)", row["name"])[0] for row in found["rows"]} == {
        f"layers.{layer}.mlp.{part}" for layer in (0, 1) for part in ("up_proj", "down_proj")
    }
    for pattern, said in (
        ("(mlp", "catalogue.pattern.invalid"),
        (r"(.|..)*(?!.)(?=.)", "catalogue.pattern.slow"),
    ):
        refused = client.get(address + quote(pattern))
        assert (refused.status_code, refused.json()["message"]["id"]) == (422, said)


def test_a_matched_node_is_found_by_the_module_path_of_either_side(client: TestClient) -> None:
    address = "/api/v1/comparisons/2/slices/0/rows?regex=1&sort=execution&kind=module&count=1000&q="
    for part in ("mlp", "feed_forward"):
        found = client.get(address + quote(rf"^model\.layers\.1\.{part}$")).json()["rows"]
        assert {(row["golden"][0], row["target"][0]) for row in found} == {
            (f"Module.model.layers.1.mlp.{call}", f"Module.model.layers.1.feed_forward.{call}")
            for call in ("LlamaMLP.forward.0", "LlamaMLP.backward.0")
        }


def test_a_node_tells_its_tensors_its_match_and_where_it_was_called(client: TestClient) -> None:
    first = client.get("/api/v1/comparisons/1/slices/0/rows?count=1").json()["selected"]
    node = client.get(f"/api/v1/comparisons/1/slices/0/rows/{first}").json()
    assert node["class"] == "weights differ"
    assert node["stacks"]["target"]["frames"]
    assert {pair["target"]["label"] for pair in node["pairs"]} >= {"input.0", "output.0"}
    text = page(client, f"/c/1/s/0/n/{first}?panel=true")
    assert text.lstrip().startswith("<article")
    assert node["stacks"]["target"]["frames"][0].split(",")[0] in unescape(text)


def test_a_node_has_columns_for_what_its_dumps_recorded(client: TestClient) -> None:
    for comparison, position, has_values in ((1, 0, False), (3, 3, True)):
        rows = f"/api/v1/comparisons/{comparison}/slices/{position}/rows"
        node = f"/c/{comparison}/s/{position}/n/{client.get(f'{rows}?count=1').json()['selected']}"
        text = page(client, node)
        for heading in ("values", "non-finite"):
            assert (heading in stated(text)) == has_values
        equal = re.findall(f"<dt[^>]*>{word('metric', 'equal')}</dt>\\s*<dd>(.*?)</dd>", text)
        assert set(stated("".join(equal))) == {"yes", "no"}
        for table in re.findall(r"<table class=\"data dense\">.*?</table>", text, re.DOTALL):
            head, *lines = (
                re.findall(r"<t[hd][ >]", line) for line in re.findall("<tr>.*?</tr>", table, re.DOTALL)
            )
            assert {len(line) for line in lines} == {len(head)}


def test_numbers_are_short_to_read_and_whole_to_copy(client: TestClient) -> None:
    first = client.get("/api/v1/comparisons/1/slices/0/rows?count=1").json()["selected"]
    node = client.get(f"/api/v1/comparisons/1/slices/0/rows/{first}").json()
    mean = next(pair["target"]["mean"] for pair in node["pairs"] if pair["target"]["label"] == "output.0")
    written = re.findall(
        r'<data class="num" value="([^"]+)" title="([^"]+)">([^<]+)</data>', page(client, node["address"])
    )
    (short,) = {short for value, title, short in written if value == title == repr(mean)}
    assert len(short.replace("-", "").replace("0.", "").replace(".", "").lstrip("0").partition("e")[0]) <= 4


def test_a_number_is_bold_only_where_it_is_printed_differently(client: TestClient) -> None:
    bold = 0
    for row in range(40):
        text = client.get(f"/c/3/s/3/n/{row}").text
        for sides in re.findall(r'<tbody class="sides">(.*?)</tbody>', text, re.DOTALL):
            golden, target = (
                re.findall(r'<td class="end-aligned( differs)?">(.*?)</td>', side, re.DOTALL)
                for side in sides.split('<tr class="of-target">')
            )
            for (_, one), (differs, other) in zip(golden, target, strict=True):
                printed = [re.sub("<[^>]*>", "", cell).strip() for cell in (one, other)]
                assert bool(differs) == (printed[0] != printed[1]), printed
                bold += bool(differs)
    assert bold


def test_what_is_copied_as_markdown_has_plain_spaces(client: TestClient) -> None:
    for comparison in (1, 3):
        copied = re.search(
            r'<pre id="markdown" hidden>(.*?)</pre>', page(client, f"/c/{comparison}"), re.DOTALL
        )
        assert copied is not None
        assert " %" in copied[1]
        assert "xa0" not in copied[1]


def test_no_two_metrics_of_a_tensor_are_called_the_same(client: TestClient) -> None:
    first = client.get("/api/v1/comparisons/3/slices/3/rows?count=1").json()["selected"]
    text = page(client, f"/c/3/s/3/n/{first}")
    lists = [re.findall(r"<dt[^>]*>([^<]+)</dt>", found) for found in text.split('<dl class="facts">')[1:]]
    metrics = next(names for names in lists if word("metric", "relative_l2") in names)
    assert {word("metric", "worst_row_relative_l2"), word("metric", "equal")} <= set(metrics)
    assert len(metrics) == len(set(metrics))


def test_of_inputs_that_were_not_compared_it_is_not_said_that_they_agree(client: TestClient) -> None:
    seen = set()
    for row in range(2, 10):
        node = client.get(f"/api/v1/comparisons/3/slices/0/rows/{row}").json()
        if node["pairs"] and not node["reasons"]:
            has_inputs = any(pair["target"]["role"] == "input" for pair in node["pairs"])
            said = "all-agree" if has_inputs else "outputs-agree"
            assert said in stated(page(client, f"/c/3/s/0/n/{row}"))
            seen.add(has_inputs)
    assert seen == {True, False}


def test_unmatched_nodes_are_listed_on_both_sides(client: TestClient) -> None:
    counts = client.get("/api/v1/comparisons/2").json()["counts"]
    listed = client.get("/api/v1/comparisons/2/slices/0/unmatched").json()
    assert len(listed["nodes"]["golden"]) == counts["unmatched_golden_nodes"]
    assert len(listed["nodes"]["target"]) == counts["unmatched_target_nodes"]
    assert re.search("<h1>[^<]* 0</h1>", client.get("/c/2/s/0/unmatched").text)


def test_other_rules_are_applied_without_measuring_again(client: TestClient) -> None:
    answer = client.post("/c/2/again", content="rules=msprobe", headers=FORM)
    assert (answer.status_code, answer.headers["location"]) == (303, "/c/2?was=firstdrift")
    wait_until(lambda: not client.get("/api/v1/comparisons/2").json()["job"]["is_open"])
    assert client.get("/api/v1/comparisons/2").json()["rules"] == "msprobe"
    judged = client.get("/c/2?was=firstdrift&slice=0", headers=HTML).text
    assert 'data-says="judged-again"' in judged
    undone = client.post("/c/2/again", content="rules=firstdrift&undo=yes", headers=FORM)
    assert undone.headers["location"] == "/c/2"
    assert 'data-says="judged-again"' not in client.get("/c/2?was=firstdrift", headers=HTML).text
    assert 'data-says="judged-again"' not in client.get("/c/2?was=none", headers=HTML).text
    refused = client.post("/c/2/again", content="rules=none", headers=FORM | HTML)
    assert says(refused.text, "error.no_rule_set", "server.no_rule_set")
    client.post("/api/v1/comparisons/2/again", json={"rules": "firstdrift"})
    wait_until(lambda: not client.get("/api/v1/comparisons/2").json()["job"]["is_open"])


def test_a_deleted_comparison_can_be_taken_back(client: TestClient) -> None:
    answer = client.post("/c/3/delete", headers=FORM)
    assert answer.headers["location"] == "/?deleted=3"
    assert "deleted-3" in stated(page(client, "/?deleted=3"))
    assert [found["id"] for found in client.get("/.json").json()["comparisons"]] == [4, 2, 1]
    assert client.post("/c/3/restore", headers=FORM).status_code == 303
    assert [found["id"] for found in client.get("/.json").json()["comparisons"]] == [4, 3, 2, 1]


def test_the_form_shows_what_lies_in_folders_and_the_command_that_does_the_same(
    client: TestClient, dumps: Mapping[str, tuple[Path, Path]]
) -> None:
    golden, target = dumps["tokens"]
    text = page(client, f"/new?golden={golden}&target={target}&rules=msit&token=3")
    assert text.count('<span class="tag dump">') >= 2
    assert f"firstdrift compare {golden} {target} --rules msit --token 3" in text
    assert says(page(client, "/new?golden=%00"), "paths.unusable")
    assert says(page(client, "/new?golden=/etc&golden_at=/etc"), "paths.outside")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"golden": ""}, "server.no_golden_chosen"),
        ({"golden": "/etc", "target": "/etc"}, "paths.outside"),
        ({"rules": "none"}, "server.no_rule_set"),
        ({"token": "x"}, "server.no_integer"),
        ({"level": "none"}, "server.no_such_level"),
    ],
)
def test_a_form_that_cannot_be_used_comes_back_with_what_is_wrong(
    client: TestClient, fields: dict[str, str], said: str
) -> None:
    answer = client.post("/new", data=fields, headers=HTML)
    assert answer.status_code == 422
    assert says(answer.text, said)


@pytest.mark.parametrize("inside", ["a\0b/dump", "around/dump/x", f"{'long' * 100}/dump"])
def test_a_path_that_leads_nowhere_is_said_to_be_none(
    client: TestClient, dumps: Mapping[str, tuple[Path, Path]], inside: str
) -> None:
    root = dumps["damaged"][1]
    around = root / "around"
    around.symlink_to("around")
    answer = client.get("/new", params={"golden": f"{root}/{inside}"}, headers=HTML)
    around.unlink()
    assert answer.status_code == 200
    assert says(answer.text, "paths.outside", "paths.unusable")


def test_a_path_without_a_dump_is_refused(client: TestClient, dumps: Mapping[str, tuple[Path, Path]]) -> None:
    golden = str(dumps["perturbed"][0])
    answer = client.post("/api/v1/comparisons", json={"golden": golden, "target": f"{golden}/nothing-here"})
    assert (answer.status_code, answer.json()["ok"]) == (422, False)
    assert "nothing" in answer.json()["error"]


def test_the_form_works_without_a_script(client: TestClient, dumps: Mapping[str, tuple[Path, Path]]) -> None:
    golden, target = dumps["perturbed"]
    fields = {
        "golden": str(golden),
        "target": str(target),
        "structure_box": "1",
        "fuzzy_box": "1",
        "fuzzy": "yes",
    }
    answer = client.post("/new", data=fields)
    assert answer.status_code == 303
    made = answer.headers["location"]
    assert re.fullmatch(r"/c/\d+", made)
    assert "--no-structure" in page(client, made)
    client.post(f"{made}/delete", headers=FORM)


@pytest.mark.parametrize(
    ("method", "address", "status"),
    [
        ("GET", "/no-such-page", 404),
        ("GET", "/c/999", 404),
        ("GET", "/c/x", 422),
        ("GET", "/c/1/s/99/tree", 404),
        ("GET", "/c/1/s/0/n/999999", 404),
        ("GET", "/c/1/s/0/tree?row=999999", 404),
        ("GET", "/c/1/s/0/tree?verdict=fine", 422),
        ("GET", "/c/1/s/0/tree?next=nothing", 422),
        ("GET", "/static/x/app.css", 404),
        ("DELETE", "/", 405),
        ("POST", "/c/1/cancel", 415),
        ("GET", "/api/v1/comparisons/999", 404),
        ("GET", "/api/v1/jobs/999", 404),
        ("GET", "/api/v1/browse?path=/etc", 404),
        ("GET", "/api/v1/comparisons?limit=0", 422),
        ("POST", "/api/v1/comparisons", 422),
        ("POST", "/api/v1/comparisons/999/cancel", 404),
    ],
)
def test_errors_have_one_shape_and_say_what_to_do(
    client: TestClient, method: str, address: str, status: int
) -> None:
    answer = client.request(method, address, headers={"accept": "application/json"})
    said = answer.json()
    assert (answer.status_code, said["status"], said["ok"]) == (status, status, False)
    assert set(said) == {"ok", "error", "status", "hint", "message", "advice", "request"}
    assert said["error"] == said["message"]["text"] != ""
    shown = client.request(method, address, headers=HTML)
    if not address.startswith("/api/"):
        assert unescape(shown.text).count(said["error"][1:]) >= 1
    if status == 405:
        assert "GET" in answer.headers["allow"]


def test_probes_and_version(client: TestClient) -> None:
    assert client.get("/health").json() == {"ok": True}
    parts = ("ok", "database", "schema", "worker", "working", "writable", "room")
    assert client.get("/ready").json() == dict.fromkeys(parts, True)
    assert client.get("/version").json()["version"]
    schema = client.get("/openapi.json").json()
    assert "/api/v1/comparisons/{comparison}" in schema["paths"]
    body = schema["paths"]["/api/v1/match-sets/{match_set}/import"]["post"]["requestBody"]
    assert set(body["content"]["application/json"]["schema"]["properties"]) == {"version", "text", "name"}


def test_static_files_are_compressed_and_cached_for_ever(client: TestClient) -> None:
    text = page(client, "/c/3")
    files = set(re.findall(r'(?:href|src|data-plotly)="(/static/[^"]+)"', text))
    assert any(file.endswith("plotly.min.js") for file in files)
    for file in files:
        answer = client.get(file, headers={"accept-encoding": "gzip"})
        assert answer.headers["content-encoding"] == "gzip"
        assert "immutable" in answer.headers["cache-control"]
        assert client.get(file, headers={"accept-encoding": "identity"}).content == answer.content


def made(client: TestClient, golden: Path, target: Path, **options: Any) -> int:  # noqa: ANN401
    """Have two dumps compared; give the id of the finished comparison."""
    asked = {"golden": str(golden), "target": str(target), **options}
    comparison = int(client.post("/api/v1/comparisons", json=asked).json()["id"])
    wait_until(lambda: not client.get(f"/api/v1/comparisons/{comparison}").json()["job"]["is_open"])
    return comparison


def test_a_token_that_no_dump_has_is_refused_before_anything_is_compared(
    client: TestClient, dumps: Mapping[str, tuple[Path, Path]]
) -> None:
    golden, target = map(str, dumps["tokens"])
    asked = {"golden": golden, "target": target, "token": 99}
    answer = client.post("/api/v1/comparisons", json=asked)
    assert (answer.status_code, answer.json()["ok"]) == (422, False)
    message = answer.json()["message"]
    assert message["id"] == "matching.choice.in_neither"
    assert message["arguments"]["asked"]["arguments"] == {"number": 99}
    assert message["text"].endswith("0\u20137")
    said = answer.json()["error"][1:]
    form = client.post("/new", data={name: str(value) for name, value in asked.items()}, headers=HTML)
    assert form.status_code == 422
    assert said in form.text
    assert said in page(client, f"/new?golden={golden}&target={target}&token=99"), "while it is filled in"


def test_the_search_looks_at_findings_and_not_at_how_they_are_stored(client: TestClient) -> None:
    def found(text: str) -> list[int]:
        return [one["id"] for one in client.get("/.json", params={"q": text}).json()["comparisons"]]

    begin = client.get("/api/v1/comparisons/3").json()["summary"]["text"][:23]
    assert found(begin.swapcase()) == [3]
    assert found("first_bad_node") == []
    assert found('"') == []


def test_a_note_is_shown_and_found(client: TestClient) -> None:
    written = 'after the <fix> of "rope"'
    assert client.post("/c/1/note", data={"note": written}).headers["location"] == "/c/1"
    assert written in unescape(page(client, "/c/1"))
    assert written in unescape(page(client, "/"))
    assert [one["id"] for one in client.get("/.json?q=OF%20%22rope").json()["comparisons"]] == [1]
    client.post("/c/1/note", data={"note": ""})
    assert "<fix>" not in unescape(page(client, "/c/1"))


def test_the_same_dump_on_both_sides_is_pointed_out(
    client: TestClient, dumps: Mapping[str, tuple[Path, Path]]
) -> None:
    golden, target = dumps["damaged"]
    assert says(page(client, f"/new?golden={golden}&target={golden}/."), "matching.note.same_dump")
    assert not says(page(client, f"/new?golden={golden}&target={target}"), "matching.note.same_dump")
    comparison = made(client, golden, golden)
    assert says(page(client, f"/c/{comparison}"), "matching.note.same_dump")
    client.delete(f"/api/v1/comparisons/{comparison}")


def test_what_cannot_be_compared_counts_nothing_and_leads_back_to_the_form(
    client: TestClient, dumps: Mapping[str, tuple[Path, Path]]
) -> None:
    golden, target = dumps["tokens"][0], dumps["perturbed"][0]
    comparison = made(client, golden, target, structure=False, fuzzy=True, rules="msit")
    text = page(client, f"/c/{comparison}")
    assert says(text, "summary.no_slices")
    assert says(text, "matching.note.ambiguous")
    assert not says(text, "matching.note.untold_by_target", "matching.note.untold_by_golden")
    for said in ("Tensor pairs", "<dt>Nodes</dt>", "0 pass"):
        assert said not in text
    edit = re.search(r'class="button primary" href="(/new[^"]+)"', text)
    assert edit is not None
    form = page(client, unescape(edit[1]))
    assert f"firstdrift compare {golden} {target} --rules msit --fuzzy --no-structure" in form
    client.delete(f"/api/v1/comparisons/{comparison}")


def test_a_slice_in_which_nothing_is_matched_says_that_nothing_was_compared(
    client: TestClient, dumps: Mapping[str, tuple[Path, Path]]
) -> None:
    folder = dumps["damaged"][1] / "unlike"
    for side in ("golden", "target"):
        (folder / side).mkdir(parents=True)
        np.save(folder / side / f"only_in_{side}.npy", np.ones(64))
    comparison = made(client, folder / "golden", folder / "target", structure=False)
    shutil.rmtree(folder)
    (found,) = client.get(f"/api/v1/comparisons/{comparison}").json()["slices"]
    assert (found["verdict"], found["counts"]["pairs"]) == ("incomparable", 0)
    text = page(client, f"/c/{comparison}")
    assert "nothing-compared" in stated(text)
    assert "no-error" not in stated(text)
    client.delete(f"/api/v1/comparisons/{comparison}")


def test_where_a_tensor_could_not_be_read_the_whole_is_not_said_to_pass(client: TestClient) -> None:
    damaged = client.get("/api/v1/comparisons/4").json()
    (listed,) = (one for one in client.get("/api/v1/comparisons").json()["comparisons"] if one["id"] == 4)
    assert damaged["counts"]["error"] == damaged["counts"]["warning"] == 0
    assert damaged["counts"]["pass"]
    assert listed["tone"] == "incomparable"


def test_where_no_tensor_can_be_read_nothing_is_said_to_pass(
    client: TestClient, dumps: Mapping[str, tuple[Path, Path]]
) -> None:
    folder = dumps["damaged"][1] / "cut"
    for side in ("golden", "target"):
        (folder / side).mkdir(parents=True)
        np.save(folder / side / "weight.npy", np.ones(64))
        cut = (folder / side / "weight.npy").read_bytes()[:200]
        (folder / side / "weight.npy").write_bytes(cut)
    comparison = made(client, folder / "golden", folder / "target")
    found = client.get(f"/api/v1/comparisons/{comparison}").json()
    (listed, *_) = client.get("/api/v1/comparisons").json()["comparisons"]
    shutil.rmtree(folder)
    client.delete(f"/api/v1/comparisons/{comparison}")
    assert found["counts"]["pairs"] == found["counts"]["incomparable"] == 1
    assert found["summary"]["id"] == "summary.none_comparable"
    assert (listed["id"], listed["tone"]) == (comparison, "incomparable")


def test_a_dump_that_changed_since_it_was_compared_says_so(
    client: TestClient, dumps: Mapping[str, tuple[Path, Path]]
) -> None:
    file = next(dumps["damaged"][1].rglob("*.pth"))
    before = file.stat()
    assert "target-changed" not in stated(page(client, "/c/4?check=true"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    changed = page(client, "/c/4?check=true")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert "target-changed" in stated(changed)
    assert "golden-changed" not in stated(changed)
    assert '<form method="post" action="/c/4/again">' in changed


def test_a_container_without_tensors_shows_what_lies_in_it(client: TestClient) -> None:
    rows = client.get("/api/v1/comparisons/3/slices/3/rows?unfold=all&count=1000").json()["rows"]
    text = page(client, "/c/3/s/3/tree?unfold=all")
    containers = [row for row in rows if not row["own"] and row["below"]["error"]]
    assert containers
    for row in containers:
        assert row["measured_from"] == []
        row_of = rf'<div role="row"[^>]* id="r{row["row"]}".*?(?=<div role="row"|$)'
        shown = re.search(row_of, text, re.DOTALL)
        assert shown is not None
        assert re.search(rf'v-error">{row["below"]["error"] + row["below"]["warning"]} ', shown[0])
        assert word("node_class", "propagated") not in shown[0]
        assert 'v-pass"' not in shown[0]
        panel = page(client, f"/c/3/s/3/n/{row['row']}?panel=true")
        assert re.search(rf'v-error">.*{row["below"]["error"] + row["below"]["warning"]} ', panel)
        assert '<span class="class' not in panel
    passing = client.get("/api/v1/comparisons/3/slices/3/rows?verdict=pass&count=1000").json()["rows"]
    assert all(row["own"] for row in passing if not row["is_context"])


def test_lower_bounds_are_marked_as_such(client: TestClient) -> None:
    assert "\u2265 <data" in page(client, "/c/1/s/0/tree")
    assert "\u2265 <data" not in page(client, "/c/3/s/3/tree")
    first = client.get("/api/v1/comparisons/1/slices/0/rows?count=1").json()["selected"]
    assert word("metric", "error_bound") in page(client, f"/c/1/s/0/n/{first}")


def test_a_browser_is_told_what_a_tree_needs_before_the_tree_is_looked_up(client: TestClient) -> None:
    app: Any = client.app
    begun, *further = taken(app, "/c/1/s/0/tree", 2, leaves=True)
    head = dict(begun["headers"])
    assert begun["status"] == 200
    assert [message["body"] for message in further] == [b""]
    needed = re.findall(r"<([^>]+)>", head[b"link"].decode())
    names = [address.removeprefix(f"/static/{build()}/") for address in needed]
    assert {"app.css", "app.js", "lib/http.js", "tree/page.js", "tree/view.js"} <= set(names)
    assert len(names) == len(set(names))
    assert all(address in page(client, "/c/1/s/0/tree") for address in needed)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_whoever_does_not_wait_for_a_tree_leaves_no_view_of_the_database_behind(
    client: TestClient, count: int
) -> None:
    app: Any = client.app
    pool = app.state.context.engine.pool
    before = pool.checkedout()
    assert len(taken(app, "/c/1/s/0/tree", count, leaves=True)) == count
    assert pool.checkedout() == before


def test_a_tree_that_cannot_be_read_any_more_is_said_to_be_on_the_page_that_has_begun(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise CatalogueError(verbatim("the disk is gone"), hint=verbatim("Look for it"))

    monkeypatch.setattr(tree, "tree_view", away)
    told = page(client, "/c/1/s/0/tree")
    assert "the disk is gone" in told
    assert "Look for it" in told
    assert told.count("<html") == 1
    assert client.get("/c/1/s/0/tree", headers={"accept": "application/json"}).status_code == 503
