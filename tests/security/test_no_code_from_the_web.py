"""Algorithms run code and a postprocess file names other files: neither can be asked for over HTTP."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from firstdrift.comparison.report import Options
from firstdrift.comparison.user_hooks import Additions
from firstdrift_server.app import create_app
from firstdrift_server.comparison_request import ComparisonRequest
from firstdrift_server.settings import settings_from


@pytest.mark.parametrize("field", ["algorithm", "algorithms", "postprocess", "postprocess_file", "additions"])
def test_the_api_refuses_a_comparison_with_either(
    unpacked: Callable[[str], Path], tmp_path: Path, field: str
) -> None:
    dump = unpacked("msit/llama4_logits_golden")
    settings = settings_from(roots=[dump, tmp_path], data_dir=tmp_path / "data")
    asked = {"golden": str(dump), "target": str(dump), field: f"{tmp_path}/my.py:f"}
    with TestClient(create_app(settings), base_url="http://localhost", follow_redirects=False) as client:
        refused = client.post("/api/v1/comparisons", json=asked)
        assert (refused.status_code, field in refused.text) == (422, True)
        assert client.get("/api/v1/comparisons").json()["comparisons"] == []


def test_what_is_stored_of_a_comparison_has_no_room_for_either() -> None:
    own = set(Additions.__struct_fields__)
    assert own == {"algorithms", "postprocess"}
    assert not own & (set(Options.__struct_fields__) | set(ComparisonRequest.model_fields))
