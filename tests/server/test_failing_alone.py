"""A node that one side alone has, and that fails for that, is shown as failing wherever it is seen."""

import re
import tarfile
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from working import wait_until, worker

from firstdrift_server.app import create_app
from firstdrift_server.settings import settings_from

ARCHIVES = Path(__file__).parents[1] / "truth" / "unseen"
NAMES = ("softcap_missing.gemma2.train.stat.mix", "frozen.xglm.train.stat.mix")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A server that has compared a run with one that lacks an operator, and one that froze a weight."""
    folder = tmp_path_factory.mktemp("dumps")
    for name in NAMES:
        with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
            archive.extractall(folder, filter="data")
    settings = settings_from(roots=[folder], data_dir=tmp_path_factory.mktemp("data"))
    with (
        worker(settings.database),
        TestClient(create_app(settings), base_url="http://localhost", follow_redirects=False) as client,
    ):
        for name in NAMES:
            asked = {side: str(folder / name / side) for side in ("golden", "target")}
            assert client.post("/api/v1/comparisons", json=asked).status_code == 201
        wait_until(lambda: not client.get("/api/v1/jobs?only_open=true").json()["jobs"])
        yield client


def page(client: TestClient, address: str) -> str:
    answer = client.get(address, headers={"accept": "text/html"})
    assert answer.status_code == 200, answer.text
    return unescape(answer.text)


def failing(client: TestClient) -> int:
    """Return the row of the first bad node, as the overview links to it."""
    return int(re.findall(r"/c/1/s/0/n/(\d+)", page(client, "/c/1"))[0])


def test_the_tree_lets_it_through_where_errors_are_asked_for(client: TestClient) -> None:
    shown = {one["row"]: one for one in client.get("/c/1/s/0/tree.json?verdict=error").json()["rows"]}
    node = shown[failing(client)]
    assert (node["verdict"], node["class"], node["match"]) == ("error", "structure differs", None)
    shown_page = page(
        client, "/c/1/s/0/tree?verdict=error&column=golden&column=origin&column=class&column=verdict"
    )
    assert "golden only" in shown_page


def test_its_page_says_that_it_fails_and_can_match_it(client: TestClient) -> None:
    node = page(client, f"/c/1/s/0/n/{failing(client)}")
    assert "c-structure-differs" in node
    assert "/c/1/s/0/match?golden=" in node


def test_a_slice_in_which_no_pair_fails_says_so(client: TestClient) -> None:
    assert client.get("/api/v1/comparisons/2").json()["counts"]["error"] == 0
    assert 'data-says="no-pair-fails"' in page(client, "/c/2")
    assert 'data-says="no-pair-fails"' not in page(client, "/c/1")
