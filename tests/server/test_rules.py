"""Rules are tried on a page and over the API before they apply, and are taken back."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from messages import says, stated
from working import wait_until

from firstdrift.verdict.rule_book import ENTRIES
from firstdrift.verdict.shown_classes import shown_class

API = "/api/v1/comparisons"


def wait(client: TestClient) -> None:
    wait_until(lambda: not client.get("/api/v1/jobs?only_open=true").json()["jobs"])


@pytest.fixture(autouse=True)
def defaults(client: TestClient) -> None:
    """Begin each test with what nobody has moved."""
    for comparison in (1, 2, 3):
        if client.get(f"{API}/{comparison}/rules").json()["moved"]:
            client.post(f"{API}/{comparison}/rules", json={"rules": "firstdrift"})
    wait(client)


def test_the_rules_in_force_and_what_may_be_moved_are_told(client: TestClient) -> None:
    told = client.get(f"{API}/1/rules").json()
    assert (told["rules"], told["moved"], told["baseline"]) == ("firstdrift", {}, None)
    assert told["thresholds"]["factor"] == 3
    limits = {one["name"]: one for one in told["limits"]}
    assert limits.keys() == told["thresholds"].keys()
    assert (limits["msit_cosine"]["default"], limits["msit_cosine"]["most"]) == (0.999, 1)


def test_the_page_leads_to_the_others_of_its_comparison(client: TestClient) -> None:
    page = client.get("/c/3/rules", headers={"accept": "text/html"}).text
    pages = page.partition('<nav class="tab-list"')[2].partition("</nav>")[0]
    links = re.findall('href="([^"]*)"', pages)
    of_slice = [f"/c/3/s/3/{page}" for page in ("tree", "graph", "unmatched", "match")]
    assert links == ["/c/3", *of_slice, "/c/3/rules", "/c/3/share?view=/c/3/rules"]
    assert re.search('data-tab="rules" aria-current="page"', pages)


def test_the_page_lists_every_rule_where_nodes_lead_to_it(client: TestClient) -> None:
    page = client.get("/c/1/rules", headers={"accept": "text/html"}).text
    rules = re.findall('<tr id="((?:explanation|class|systematic)[^"]*)"', page)
    assert rules == list(ENTRIES)
    rows = client.get(f"{API}/1/slices/0/rows?count=1000").json()
    bad = rows["selected"]
    node = client.get(f"{API}/1/slices/0/rows/{bad}").json()
    assert node["rule"] == "class.weights"
    panel = client.get(f"/c/1/s/0/n/{bad}", headers={"accept": "text/html"}).text
    assert 'href="/c/1/rules#class.weights"' in panel


def test_a_preview_counts_before_and_after_and_changes_nothing(client: TestClient) -> None:
    seen = client.get(f"{API}/3/rules/preview?all=1&roundoff_float32=0.5").json()
    known = client.get(f"{API}/3").json()
    assert seen["moved"] == {"roundoff_float32": 0.5}
    assert seen["before"]["pairs"] == known["counts"]
    assert seen["before"]["first_bad_node"] == known["first_bad_node"]
    assert known["first_bad_node"] is not None
    assert seen["after"]["first_bad_node"] is None
    assert seen["after"]["flagged"] < seen["before"]["flagged"]
    assert sum(seen["after"]["classes"].values()) == sum(seen["before"]["classes"].values())
    assert seen["slices"] == seen["of_slices"] == len(known["slices"])
    assert client.get(f"{API}/3/rules").json()["moved"] == {}


def test_nodes_without_a_partner_are_no_verdict(client: TestClient) -> None:
    for asked in ("", "?factor=4"):
        seen = client.get(f"{API}/2/rules/preview{asked}").json()
        for tally in (seen["before"], seen["after"]):
            assert tally["classes"]["unmatched"]
            judged = sum(count for name, count in tally["classes"].items() if name != "unmatched")
            assert sum(tally["verdicts"].values()) == judged


def test_nodes_are_counted_by_the_class_that_people_are_shown(client: TestClient) -> None:
    counted = client.get(f"{API}/3/rules/preview?slice=3").json()["of_slice"]["before"]["classes"]
    rows = client.get(f"{API}/3/slices/3/rows?closed=&count=1000").json()["rows"]
    shown = Counter(shown_class(row["class"], row["rule"]) for row in rows if row["own"])
    assert shown["begins inside"]
    assert counted == shown


def test_other_rule_sets_are_tried_too(client: TestClient) -> None:
    seen = client.get(f"{API}/1/rules/preview?all=1&rules=msprobe").json()
    assert (seen["after"]["pairs"]["warning"], seen["after"]["pairs"]["error"]) == (17, 3)
    assert seen["after"]["rules"]["tool.norm"] > 0
    laxer = client.get(f"{API}/1/rules/preview?all=1&rules=msprobe&msprobe_norm_out=1e6").json()
    assert "tool.norm" not in laxer["after"]["rules"]


def test_classes_are_said_to_be_of_our_rules_beside_verdicts_of_others(client: TestClient) -> None:
    row = client.get(f"{API}/3/slices/3/rows").json()["selected"]
    pages = ("/c/3", "/c/3/s/3/tree", f"/c/3/s/3/n/{row}")
    for rules, is_other in (("msit", True), ("firstdrift", False)):
        client.post(f"{API}/3/rules", json={"rules": rules})
        wait(client)
        for page in pages:
            text = client.get(page, headers={"accept": "text/html"}).text
            assert ('data-says="class-by-firstdrift"' in text) is is_other, page


def test_the_bits_of_what_was_compared_are_tried_too(client: TestClient) -> None:
    seen = client.get(f"{API}/1/rules/preview?all=1&rules=bitwise").json()
    assert seen["after"]["rules"]["bitwise.statistics"] > 0
    assert seen["after"]["pairs"]["incomparable"] > 0  # equal statistics prove nothing
    page = client.get("/c/1/rules?rules=bitwise").text
    assert 'value="bitwise"' in page
    assert 'data-rules="bitwise"' not in page  # nothing that could be moved


def test_what_is_applied_is_what_was_seen_and_is_taken_back(client: TestClient) -> None:
    first = client.get(f"{API}/3").json()
    seen = client.get(f"{API}/3/rules/preview?all=1&floor=1&factor=1.5").json()
    applied = client.post(
        f"{API}/3/rules", json={"rules": "firstdrift", "thresholds": {"floor": 1, "factor": 1.5}}
    )
    assert applied.json()["moved"] == {"factor": 1.5, "floor": 1}
    wait(client)
    now = client.get(f"{API}/3").json()
    assert (now["counts"], now["thresholds"]) == (seen["after"]["pairs"], {"factor": 1.5, "floor": 1})
    assert now["first_bad_node"] == seen["after"]["first_bad_node"]
    page = client.get("/c/3").text
    assert "moved-2" in stated(page)
    # A preview without a rule set goes on from what is in force.
    assert client.get(f"{API}/3/rules/preview?all=1&floor=2").json()["moved"] == {"factor": 1.5, "floor": 2}

    fields = dict(re.findall(r'<input type="hidden" name="(rules)" value="(\w+)"', page))
    reset = client.post("/c/3/rules", data=fields)
    assert (reset.status_code, reset.headers["location"]) == (303, "/c/3")
    wait(client)
    after = client.get(f"{API}/3").json()
    assert (after["counts"], after["thresholds"]) == (first["counts"], {})
    assert "moved-" not in "".join(stated(client.get("/c/3").text))


def test_the_page_previews_and_applies_without_a_script(client: TestClient) -> None:
    page = client.get("/c/3/rules").text
    assert 'name="factor" value="3"' in page
    assert "in-force-0" in stated(page)
    tried = client.get("/c/3/rules?all=1&rules=firstdrift&factor=100&floor=1e6&hidden_floor=&baseline=").text
    assert 'name="factor" value="100"' in tried
    assert "tried-2" in stated(tried)
    seen = client.get(f"{API}/3/rules/preview?all=1&factor=100&floor=1e6").json()
    assert f'data-flagged="{seen["after"]["flagged"]}"' in tried
    sent = client.post("/c/3/rules", data={"rules": "firstdrift", "factor": "100", "floor": "1e6"})
    assert sent.headers["location"] == "/c/3"
    wait(client)
    assert client.get(f"{API}/3/rules").json()["moved"] == {"factor": 100, "floor": 1e6}


def test_what_is_in_force_already_is_not_judged_again(client: TestClient) -> None:
    before = client.get(f"{API}/3").json()["job"]["id"]
    client.post("/c/3/rules", data={"rules": "firstdrift", "factor": "3"})
    assert client.get(f"{API}/3").json()["job"]["id"] == before


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("factor=no", "thresholds.refused"),
        ("factr=4", "thresholds.unknown"),
        ("rules=none", "server.no_rule_set"),
        ("baseline=x", "server.not_a_number"),
        ("rules=firstdrift&baseline=3", "catalogue.baseline.itself"),
        ("rules=firstdrift&baseline=99", "catalogue.baseline.gone"),
        ("rules=firstdrift&baseline=2", "catalogue.baseline.other_slices"),
    ],
)
def test_what_makes_no_sense_is_said_beside_what_is_in_force(
    client: TestClient, query: str, said: str
) -> None:
    page = client.get(f"/c/3/rules?{query}")
    assert page.status_code == 422
    assert says(page.text, said)
    assert 'id="part-effect"' in page.text
    fields = dict(part.split("=") for part in query.split("&"))
    assert client.post("/c/3/rules", data=fields).status_code == 422
    assert client.get(f"{API}/3/rules").json()["moved"] == {}


def test_slices_and_comparisons_that_are_not_there_are_not_found(client: TestClient) -> None:
    assert client.get("/c/99/rules").status_code == 404
    assert client.get("/c/3/rules?slice=99").status_code == 404
    assert client.get(f"{API}/99/rules/preview").status_code == 404
    assert client.post("/c/99/rules", data={"rules": "msit"}).status_code == 404


def test_a_healthy_run_of_the_same_golden_dump_is_offered_and_judged_by(
    client: TestClient, dumps: Mapping[str, tuple[Path, Path]]
) -> None:
    golden, target = dumps["tokens"]
    made = client.post(API, json={"golden": str(golden), "target": str(target)}).json()["id"]
    wait(client)
    page = client.get(f"/c/{made}/rules").text
    assert '<option value="3"' in page
    seen = client.get(f"{API}/{made}/rules/preview?all=1&baseline=3").json()
    assert seen["before"]["first_bad_node"] is not None
    assert seen["after"]["first_bad_node"] is None
    assert client.post(f"{API}/{made}/rules", json={"rules": "firstdrift", "baseline": 3}).status_code == 200
    wait(client)
    assert client.get(f"{API}/{made}").json()["first_bad_node"] is None
    page = client.get(f"/c/{made}").text
    assert 'data-says="moved-0" data-baseline="3"' in page
    assert "--baseline HEALTHY" in page
    client.delete(f"{API}/{made}")


def test_the_rules_of_a_match_set_are_those_of_its_comparison(client: TestClient) -> None:
    made = client.post(f"{API}/3/match-sets", json={"name": "rules"}).json()["id"]
    edits = [{"kind": "unmatch", "golden": ["root.lm_head"]}]
    changed = client.post(f"/api/v1/match-sets/{made}/edits", json={"version": 0, "edits": edits}).json()
    wait(client)
    page = client.get(f"/c/{changed['results']['comparison']}/rules")
    assert (page.status_code, page.headers["location"]) == (303, "/c/3/rules")
    client.delete(f"/api/v1/match-sets/{made}")
