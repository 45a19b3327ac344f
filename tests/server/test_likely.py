"""The few matches that would resolve most of what has no partner: offered, accepted, and led back from."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from messages import stated
from working import ask_to_compare, wait_for_comparison, worker

from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import slice_pairs_of
from firstdrift.catalogue.engine import database_url, open_engine, reading
from firstdrift.catalogue.matches.likely_matches import likely_matches
from firstdrift.catalogue.matches.match_preview import load_bench
from firstdrift.catalogue.migrate import upgrade
from firstdrift.catalogue.tables import JobState
from firstdrift.comparison.report import Options
from firstdrift.matching.plan import MatchingRules
from firstdrift_server.app import create_app
from firstdrift_server.settings import settings_from

HTML = {"accept": "text/html"}
WITHOUT = Options(matching=MatchingRules(structure=False))
IMPLEMENTATIONS, RENAMED, PERTURBED = 1, 2, 3


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, unpacked: Callable[[str], Path]) -> Iterator[TestClient]:
    """A server with two models of other names, renamed modules, and two runs that match."""
    data = tmp_path_factory.mktemp("data")
    folders = [
        unpacked(name)
        for name in (
            "msprobe/qwen2_layermap_stat_mix",
            "msprobe/d4_renamed",
            "msprobe/llama_stat_mix_perturb",
        )
    ]
    folders[1] = shutil.copytree(folders[1], tmp_path_factory.mktemp("renamed") / "dumps")
    engine = open_engine(database_url(data))
    upgrade(engine)
    app = create_app(settings_from(roots=folders, data_dir=data))
    with worker(database_url(data)):
        for folder in folders:
            made = ask_to_compare(engine, folder / "golden", folder / "target", WITHOUT)
            assert wait_for_comparison(engine, made).state is JobState.DONE
        with TestClient(app, base_url="http://localhost", follow_redirects=False) as client:
            yield client
    engine.dispose()


def likely(client: TestClient, comparison: int) -> Any:  # noqa: ANN401 (an answer in JSON)
    return client.get(f"/c/{comparison}/s/0/likely.json").json()


def counts(client: TestClient, comparison: int) -> dict[str, int]:
    found: dict[str, int] = client.get(f"/api/v1/comparisons/{comparison}").json()["counts"]
    return found


def wait(client: TestClient, comparison: int) -> None:
    until = time.monotonic() + 120
    while client.get(f"/c/{comparison}.json").json()["state"] != "done":
        assert time.monotonic() < until
        time.sleep(0.2)


def test_the_match_that_resolves_most_is_found_and_what_it_adds_is_what_it_gives(client: TestClient) -> None:
    assert counts(client, IMPLEMENTATIONS)["pairs"] == 0
    first = likely(client, IMPLEMENTATIONS)["matches"][0]
    assert [one["type_name"] for one in first["golden"]] == ["Qwen2Model"]
    assert [one["type_name"] for one in first["target"]] == ["GPTModel"]
    assert first["more_pairs"] > 500
    assert first["finding"] is not None
    fields = {"edit": first["edit"], "version": "0", "set": "", "name": "Likely"}
    made = client.post(f"/c/{IMPLEMENTATIONS}/s/0/likely", data=fields)
    assert made.status_code == 303
    results = int(made.headers["location"].rpartition("/")[2])
    wait(client, results)
    assert counts(client, results)["pairs"] == first["more_pairs"]
    said = client.get(f"/c/{results}.json").json()["summary"]["text"]
    known, _, _ = first["finding"]["text"].partition(" Cause: ")
    assert said.startswith(known.removesuffix(".")), "and its cause, which takes a look"

    page = unescape(client.get(f"/c/{results}", headers=HTML).text)
    assert "match-set" in stated(page)
    assert "Likely" in page
    assert f'href="/c/{IMPLEMENTATIONS}"' in page
    home = unescape(client.get("/", headers=HTML).text)
    assert "match-set" in stated(home)
    assert f'href="/c/{results}"' in home
    assert f'href="/c/{results}"' in client.get(f"/c/{IMPLEMENTATIONS}", headers=HTML).text


def test_all_are_accepted_as_one_step_of_the_set_that_is_shown(client: TestClient) -> None:
    found = likely(client, RENAMED)
    assert len(found["matches"]) > 1
    assert all(one["more_pairs"] > 10 for one in found["matches"])
    names = [node["name"] for one in found["matches"] for side in ("golden", "target") for node in one[side]]
    assert len(set(names)) == len(names), "each node is in one match at most"
    fields = {"edit": [one["edit"] for one in found["matches"]], "version": "0", "name": "All"}
    made = client.post(f"/c/{RENAMED}/s/0/likely", data=fields)
    results = int(made.headers["location"].rpartition("/")[2])
    wait(client, results)
    more = sum(one["more_pairs"] for one in found["matches"])
    assert counts(client, results)["pairs"] == counts(client, RENAMED)["pairs"] + more
    (known,) = client.get(f"/api/v1/comparisons/{RENAMED}/match-sets").json()["match_sets"]
    assert (known["name"], known["version"], len(known["edits"])) == ("All", 1, len(found["matches"]))
    after = likely(client, results)
    assert (after["set"], after["version"], after["accept"]) == (known["id"], 1, f"/c/{RENAMED}/s/0/likely")
    again = client.post(f"/c/{RENAMED}/s/0/likely", data=fields | {"set": str(known["id"]), "version": "0"})
    assert again.status_code == 409, "somebody else was faster"


def test_where_nearly_all_have_partners_none_are_offered(client: TestClient) -> None:
    page = client.get(f"/c/{PERTURBED}", headers=HTML).text
    assert "/likely" not in page
    assert "/likely" in client.get(f"/c/{IMPLEMENTATIONS}", headers=HTML).text
    assert "none-likely" in stated(client.get(f"/c/{PERTURBED}/s/0/likely", headers=HTML).text)


def test_what_is_no_match_is_refused(client: TestClient) -> None:
    address = f"/c/{RENAMED}/s/0/likely"
    nowhere = json.dumps({"golden": ["gone"], "target": ["gone"]})
    for fields in ({}, {"edit": "{"}, {"edit": "{}"}, {"edit": nowhere}, {"edit": [nowhere] * 21}):
        assert client.post(address, data={"version": "0", **fields}).status_code == 422
    assert client.get("/c/99/s/0/likely").status_code == 404
    assert client.get(f"/c/{RENAMED}/s/9/likely").status_code == 404


def test_what_was_found_is_kept_as_long_as_the_files_stay_as_they_were(client: TestClient) -> None:
    context = client.app.state.context  # type: ignore[attr-defined]
    found = likely(client, RENAMED)
    known = len(context.likely._kept)
    assert likely(client, RENAMED) == found
    assert len(context.likely._kept) == known
    (root,) = (one for one in context.settings.roots if one.name == "dumps")
    os.utime(next(one for one in sorted(root.rglob("*")) if one.is_file() and "target" in str(one)), (1, 1))
    assert likely(client, RENAMED)["matches"] == found["matches"]
    assert len(context.likely._kept) == known + 1


def test_it_takes_no_longer_than_it_may(client: TestClient) -> None:
    context = client.app.state.context  # type: ignore[attr-defined]
    with reading(context.engine) as session:
        options = get_comparison(session, IMPLEMENTATIONS).options
        (pair,) = slice_pairs_of(session, IMPLEMENTATIONS)
        bench = load_bench(session, pair, options)
    assert likely_matches(bench, (), seconds=-1.0) == ()
