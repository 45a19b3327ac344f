"""A folder of very many entries is listed with a bounded number of looks, and whatever is in it is found."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from messages import stated

from firstdrift_server.app import create_app
from firstdrift_server.questions import folders
from firstdrift_server.questions.folders import MOST_ENTRIES, MOST_LOOKS, MOST_SEEN, Order, list_folder
from firstdrift_server.settings import settings_from

HTML = {"accept": "text/html"}
MORE = "more-entries"


@pytest.fixture(scope="module")
def huge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a few more entries than are ever put in order: runs, and files beside them."""
    huge = tmp_path_factory.mktemp("root") / "huge"
    for number in range(MOST_SEEN // 2 + 100):
        (huge / f"run{number:06}").mkdir(parents=True)
        (huge / f"notes{number:06}.npy").touch()
    return huge


@pytest.fixture(scope="module")
def client(huge: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    app = create_app(settings_from(roots=[huge.parent], data_dir=tmp_path_factory.mktemp("data")))
    with TestClient(app, base_url="http://localhost", follow_redirects=False) as client:
        yield client


@pytest.mark.parametrize("order", list(Order))
def test_only_so_many_entries_are_seen_and_looked_into(huge: Path, order: Order) -> None:
    folders._format_of.cache_clear()
    listed = list_folder([huge.parent], str(huge), order)
    assert len(listed.entries) == MOST_ENTRIES
    assert listed.hidden == MOST_SEEN + 1 - MOST_ENTRIES
    assert not listed.is_whole
    assert folders._format_of.cache_info().misses <= MOST_LOOKS + 1  # and the folder itself


def test_a_folder_of_fewer_entries_is_whole_and_says_how_many_are_not_listed(tmp_path: Path) -> None:
    for number in range(MOST_ENTRIES + 7):
        (tmp_path / f"run{number}").mkdir()
    listed = list_folder([tmp_path], str(tmp_path))
    assert (len(listed.entries), listed.hidden, listed.is_whole) == (MOST_ENTRIES, 7, True)
    assert [entry.name for entry in listed.entries[9:11]] == ["run9", "run10"]


def test_the_beginning_of_a_name_finds_what_is_not_listed(client: TestClient, huge: Path) -> None:
    last = f"run{MOST_SEEN // 2 + 99:06}"
    for begins in (last, last[:-1], last.upper()):
        found = client.get("/api/v1/browse", params={"path": str(huge), "begins": begins}).json()
        assert last in [entry["name"] for entry in found["entries"]]
        assert found["is_whole"]


def test_the_form_says_that_there_is_more_and_narrows_down_what_is_typed(
    client: TestClient, huge: Path
) -> None:
    assert MORE in stated(client.get("/new", params={"golden_at": str(huge)}, headers=HTML).text)
    last = f"run{MOST_SEEN // 2 + 99:06}"
    for typed in (last, f"{huge}/{last[:-1]}"):
        asked = {"golden_at": str(huge), "golden": typed}
        sides = client.get("/new.json", params=asked).json()["sides"]
        assert last in [entry["name"] for entry in sides[0]["folder"]["entries"]]
        assert sides[0]["folder"]["is_whole"]
    nothing = client.get("/new", params={"golden_at": str(huge), "golden": f"{huge}/nothing"}, headers=HTML)
    assert "none-begins-so" in stated(nothing.text)
