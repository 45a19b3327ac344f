from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from messages import stated

from firstdrift_server.app import create_app
from firstdrift_server.settings import settings_from

HTML = {"accept": "text/html"}
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture
def lonely(tmp_path: Path, unpacked: Callable[[str], Path]) -> Iterator[TestClient]:
    """A server without a worker, and one comparison that waits for it."""
    dumps = unpacked("msprobe/llama_stat_mix_perturb")
    app = create_app(settings_from(roots=[dumps], data_dir=tmp_path))
    with TestClient(app, base_url="http://localhost", follow_redirects=False) as client:
        fields = {"golden": str(dumps / "golden"), "target": str(dumps / "target")}
        assert client.post("/new", data=fields).headers["location"] == "/c/1"
        yield client


def test_pages_say_that_nobody_does_the_work(lonely: TestClient) -> None:
    for address in ("/", "/c/1"):
        assert "no-worker" in stated(lonely.get(address, headers=HTML).text)
    assert (lonely.get("/ready").status_code, lonely.get("/health").status_code) == (503, 200)


def test_a_page_that_waits_keeps_itself_up_to_date_with_and_without_a_script(lonely: TestClient) -> None:
    text = lonely.get("/c/1", headers=HTML).text
    assert "waiting" in stated(text)
    assert 'data-live="1000"' in text
    assert '<noscript><meta http-equiv="refresh"' in text


def test_what_waits_can_be_cancelled_and_asked_for_again(lonely: TestClient) -> None:
    lonely.post("/c/1/cancel", headers=FORM)
    text = lonely.get("/c/1", headers=HTML).text
    assert "cancelled" in stated(text)
    assert "data-live" not in text
    assert "http-equiv" not in text
    lonely.post("/c/1/again", headers=FORM)
    assert lonely.get("/api/v1/comparisons/1").json()["state"] == "queued"


def test_the_answer_of_what_is_not_finished_has_the_same_shape(lonely: TestClient) -> None:
    found = lonely.get("/api/v1/comparisons/1").json()
    assert (found["state"], found["first_bad_node"], found["slices"]) == ("queued", None, [])
    assert found["golden"]["path"].endswith("golden")
