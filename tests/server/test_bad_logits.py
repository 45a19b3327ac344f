"""Logits that only other tokens show to be bad, on the pages."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from messages import says, stated
from working import wait_until, worker

from firstdrift_server.app import create_app
from firstdrift_server.settings import settings_from


def test_a_token_whose_logits_alone_are_bad_says_so_wherever_it_is_shown(
    unpacked: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    golden, target = unpacked("msit/llama12_logits_golden"), unpacked("msit/llama12_logits_bad")
    settings = settings_from(roots=[golden, target], data_dir=tmp_path_factory.mktemp("data"))
    app = create_app(settings)
    with worker(settings.database), TestClient(app, base_url="http://localhost") as client:
        client.post("/api/v1/comparisons", json={"golden": str(golden), "target": str(target)})
        wait_until(lambda: not client.get("/api/v1/comparisons/1").json()["job"]["is_open"])
        answer = client.get("/api/v1/comparisons/1").json()
        text = client.get("/c/1", headers={"accept": "text/html"}).text
        rows = client.get("/api/v1/comparisons/1/slices/2/rows").json()["rows"]
        brought, clean = (
            client.get("/api/v1/comparisons/1/slices/2/rows", params={"class": word}).json()["total"]
            for word in ("propagated", "clean")
        )
        tree = client.get("/c/1/s/2/tree", headers={"accept": "text/html"}).text
    assert answer["first_bad_token"]["token"] == 2
    assert [found["verdict"] for found in answer["slices"]] == ["pass", "pass", *["error"] * 4]
    assert answer["counts"]["error"] == 4
    assert "no-origin" in stated(text)
    assert "no-error" not in stated(text)
    assert says(tree, "token.stands_out")
    said = [(row["class"], row["verdict"]) for row in rows if row["own"]]
    assert said == [("propagated", "error")]
    assert (brought > 0, clean) == (True, 0)
