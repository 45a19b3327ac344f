"""The front page: comparisons, dumps and bin, searched and sorted; what is deleted can be taken back."""

import re
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from messages import stated
from working import wait_until

from firstdrift.catalogue.engine import database_url as embedded_database
from firstdrift_server.app import create_app
from firstdrift_server.home import view as home
from firstdrift_server.home.view import address_after
from firstdrift_server.settings import settings_from
from firstdrift_server.sizes import Sizes

HTML = {"accept": "text/html"}
FORM = {"content-type": "application/x-www-form-urlencoded"}


def shown(client: TestClient, query: str = "") -> Any:  # noqa: ANN401 (JSON)
    answer = client.get(f"/.json?{query}")
    assert answer.status_code == 200, answer.text
    assert client.get(f"/?{query}", headers=HTML).status_code == 200
    return answer.json()


def ids(client: TestClient, query: str = "") -> list[int]:
    return [comparison["id"] for comparison in shown(client, query)["comparisons"]]


def test_comparisons_are_sorted_as_asked_for(client: TestClient) -> None:
    assert ids(client) == ids(client, "sort=newest") == ids(client, "sort=nonsense") == [4, 3, 2, 1]
    assert ids(client, "sort=oldest") == [1, 2, 3, 4]
    paths = [comparison["golden"]["path"] for comparison in shown(client, "sort=name")["comparisons"]]
    assert paths == sorted(paths)
    ranks = [home._RANKS[comparison["tone"]] for comparison in shown(client, "sort=worst")["comparisons"]]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) > 1


def test_comparisons_are_filtered_by_how_they_came_out(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    tones = {comparison["id"]: comparison["tone"] for comparison in shown(client)["comparisons"]}
    for verdict in {*tones.values()}:
        found = [number for number, tone in tones.items() if tone == verdict]
        assert ids(client, f"verdict={verdict}") == found
        assert ids(client, f"verdict={verdict}&sort=oldest") == found[::-1]
        assert sorted(ids(client, f"verdict={verdict}&sort=worst")) == sorted(found)
    assert ids(client, "verdict=nonsense") == [4, 3, 2, 1]
    missing = next(name for name in home._RANKS if name not in tones.values())
    page = client.get(f"/?verdict={missing}", headers=HTML).text
    assert "nothing-found" in stated(page)
    monkeypatch.setattr(home, "PAGE", 1)
    often = max(tones.values(), key=[*tones.values()].count)
    assert f"verdict={often}" in shown(client, f"verdict={often}")["next"]
    assert address_after(f"/?verdict={often}&q=x", deleted=1) == f"/?q=x&verdict={often}&deleted=1"


@pytest.mark.parametrize("sort", ["newest", "oldest", "worst", "name"])
def test_page_after_page_shows_every_comparison_once(
    client: TestClient, sort: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home, "PAGE", 3)
    first = shown(client, f"sort={sort}")
    second = client.get(first["next"].replace("/?", "/.json?")).json()
    assert (first["previous"], second["next"]) == (None, None)
    both = [comparison["id"] for page in (first, second) for comparison in page["comparisons"]]
    assert (len(both), sorted(both)) == (4, [1, 2, 3, 4])
    assert (
        client.get(second["previous"].replace("/?", "/.json?")).json()["comparisons"] == first["comparisons"]
    )


def test_a_deleted_comparison_lies_in_the_bin_until_it_is_taken_back(client: TestClient) -> None:
    assert shown(client, "show=bin")["comparisons"] == []
    client.post("/c/2/delete", headers=FORM)
    assert (ids(client), ids(client, "show=bin"), ids(client, "show=bin&q=nothing-like-it")) == (
        [4, 3, 1],
        [2],
        [],
    )
    page = client.get("/?show=bin", headers=HTML).text
    assert 'action="/c/2/restore"' in page
    client.post("/c/2/restore", headers=FORM)
    assert ids(client) == [4, 3, 2, 1]


def test_who_deletes_stays_in_the_view_that_was_searched_and_undoes_it_there(client: TestClient) -> None:
    view = "/?q=llama&sort=oldest"
    page = unescape(client.get(view, headers=HTML).text)
    assert f'<input type="hidden" name="view" value="{view}">' in page
    assert 'href="/.json?q=llama&sort=oldest"' in page
    after = client.post("/c/3/delete", data={"view": view}).headers["location"]
    assert after == f"{view}&deleted=3"
    assert 3 not in ids(client, after.removeprefix("/?"))
    page = unescape(client.get(after, headers=HTML).text)
    assert re.search(
        rf'action="/c/3/restore">\s*<input type="hidden" name="view" value="{re.escape(view)}">', page
    )
    assert client.post("/c/3/restore", data={"view": view}).headers["location"] == view
    assert 3 in ids(client, view.removeprefix("/?"))


@pytest.mark.parametrize(
    "view", ["https://evil.example/", "//evil.example/?q=", "/c/1?token=x&deleted=1", "?"]
)
def test_whatever_view_a_form_names_it_leads_to_the_front_page(client: TestClient, view: str) -> None:
    assert client.post("/c/3/delete", data={"view": view}).headers["location"] == "/?deleted=3"
    assert client.post("/c/3/restore", data={"view": view}).headers["location"] == "/"


def test_a_page_of_which_nothing_is_left_gives_the_one_before(client: TestClient) -> None:
    assert ids(client, "skip=50") == ids(client)
    assert ids(client, "skip=1000000000") == ids(client)
    beyond = shown(client, "skip=50&show=dumps")
    assert (len(beyond["dumps"]), beyond["previous"]) == (8, None)


def test_the_dumps_that_were_compared_are_listed_with_format_and_what_they_are_in(
    client: TestClient, dumps: Mapping[str, tuple[Path, Path]]
) -> None:
    listed = {dump["path"]: dump for dump in shown(client, "show=dumps")["dumps"]}
    assert set(listed) == {str(dump) for pair in dumps.values() for dump in pair}
    golden = listed[str(dumps["tokens"][0])]
    assert (golden["format"], golden["slices"], golden["comparisons"]) == ("msit-torch", 8, 1)
    wait_until(lambda: not shown(client, "show=dumps")["is_live"])
    sizes = {dump["path"]: dump["size"] for dump in shown(client, "show=dumps&sort=size")["dumps"]}
    files = [path.stat() for path in dumps["tokens"][0].rglob("*") if path.is_file()]
    assert sizes[golden["path"]] > sum(file.st_blocks * 512 for file in files)  # as du counts
    assert sizes[golden["path"]] < sum(file.st_size for file in files) + 16384 * len(files)
    assert list(sizes.values()) == sorted(sizes.values(), reverse=True)
    page = unescape(client.get("/?show=dumps", headers=HTML).text)
    for address in (golden["golden"], golden["target"], golden["uses"]):
        assert f'href="{address}"' in page
        assert client.get(address, headers=HTML).status_code == 200
    assert ids(client, golden["uses"].removeprefix("/?")) == [3]


def test_a_size_that_is_not_known_yet_is_said_to_be_added_up(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sizes, "get", lambda *_: None)
    found = shown(client, "show=dumps")
    assert (found["is_live"], {dump["size"] for dump in found["dumps"]}) == (True, {None})
    page = client.get("/?show=dumps", headers=HTML).text
    assert stated(page).count("adding-up") == len(found["dumps"])
    assert 'class="none"' not in page


def test_dumps_are_searched_and_sorted(client: TestClient) -> None:
    def paths(query: str) -> list[str]:
        return [dump["path"] for dump in shown(client, f"show=dumps&{query}")["dumps"]]

    assert paths("sort=name") == sorted(paths(""))
    formats = [dump["format"] for dump in shown(client, "show=dumps&sort=format")["dumps"]]
    assert formats == sorted(formats)
    found = shown(client, "show=dumps&q=MSPROBE&sort=name")["dumps"]
    assert {dump["format"] for dump in found} == {"msprobe"}
    path = found[0]["path"].split("/")
    assert found[0]["path"] in paths(f"q=msprobe+{path[-1]}+{path[-2]}")
    assert paths(f"q={path[-1]}+nothing-like-it") == []
    assert "nothing-found" in stated(client.get("/?show=dumps&q=nothing-like-it", headers=HTML).text)


def test_an_uploaded_dump_is_listed_deleted_and_taken_back(
    client: TestClient, dumps: Mapping[str, tuple[Path, Path]]
) -> None:
    files = {path.name: path.read_bytes() for path in (dumps["perturbed"][0] / "step0/rank0").glob("*.json")}
    listed = [{"path": f"my dump/{name}", "size": len(content)} for name, content in files.items()]
    upload = client.post("/api/v1/uploads", json={"files": listed}).json()["id"]
    for number, content in enumerate(files.values()):
        client.put(f"/api/v1/uploads/{upload}/files/{number}", content=content)
    path = client.post(f"/api/v1/uploads/{upload}/complete").json()["dump"]["path"]

    wait_until(lambda: not shown(client, "show=dumps")["is_live"])
    (found,) = shown(client, "show=dumps")["uploads"]
    assert (found["name"], found["format"], found["path"]) == ("my dump", "msprobe", path)
    assert 0 <= found["size"] - sum(map(len, files.values())) < 16384 * len(files)
    assert shown(client, "show=dumps&q=another")["uploads"] == []

    view = "/?show=dumps&q=my&sort=size"
    searched = client.post("/uploaded/remove", data={"name": "my dump", "view": view})
    assert searched.headers["location"] == f"{view}&removed=my+dump"
    restored = client.post("/uploaded/restore", data={"name": "my dump", "view": view})
    assert restored.headers["location"] == view
    removed = client.post("/uploaded/remove", data={"name": "my dump"})
    assert removed.headers["location"] == "/?show=dumps&removed=my+dump"
    assert stated(client.get(removed.headers["location"], headers=HTML).text) == ["removed"]
    assert (shown(client, "show=dumps")["uploads"], Path(path).exists()) == ([], False)
    assert client.post("/uploaded/restore", data={"name": "my dump"}).status_code == 303
    assert Path(path).is_dir()
    assert client.post("/uploaded/restore", data={"name": "my dump"}).status_code == 404
    for name in ("..", "", ".bin", ".incoming", "a/b", "none"):
        assert client.post("/uploaded/remove", data={"name": name}).status_code in (404, 422), name
    for address, status in (("none", 404), ("my%20dump", 200), ("my%20dump", 404)):
        assert client.delete(f"/api/v1/uploads/dumps/{address}").status_code == status
    assert client.post("/api/v1/uploads/dumps/my%20dump/restore").json() == {"ok": True, "name": "my dump"}
    assert client.delete("/api/v1/uploads/dumps/my%20dump").status_code == 200


def test_nothing_is_looked_at_outside_the_roots(
    client: TestClient, dumps: Mapping[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    data_dir = client.app.state.context.settings.data_dir  # type: ignore[attr-defined] # an application
    other = create_app(
        settings_from(roots=[tmp_path], data_dir=tmp_path, database_url=embedded_database(data_dir))
    )
    with TestClient(other, base_url="http://localhost") as elsewhere:
        view = shown(elsewhere, "show=dumps&sort=size")
    assert len(view["dumps"]) == 2 * len(dumps)
    assert {(dump["size"], dump["is_there"]) for dump in view["dumps"]} == {(None, False)}


@pytest.mark.parametrize("address", ["/?show=dumps", "/?show=bin", "/?sort=worst&q=layers"])
def test_every_part_is_a_page_without_a_script_in_it_whose_links_lead_somewhere(
    client: TestClient, address: str
) -> None:
    page = client.get(address, headers=HTML).text
    assert re.findall(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)", page) == []
    links = {unescape(link).partition("#")[0] for link in re.findall(r'href="([^"#][^"]*)"', page)}
    assert len(links) > 5
    for link in sorted(links):
        assert client.get(link, headers=HTML).status_code == 200, link


def test_what_the_address_cannot_mean_is_refused(client: TestClient) -> None:
    assert client.get("/?show=nothing", headers=HTML).status_code == 422
    assert client.get("/?skip=-1", headers=HTML).status_code == 422


@pytest.mark.parametrize(
    ("view", "address"),
    [
        ("/?q=a&show=bin&skip=50#x", "/?show=bin&q=a&skip=50"),
        ("//[?skip=x&show=nothing&sort=name", "/?sort=name"),
        ("https://elsewhere.example/", "/"),
    ],
)
def test_a_form_leads_back_to_the_view_it_was_on(view: str, address: str) -> None:
    assert address_after(view) == address
