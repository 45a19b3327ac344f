import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from messages import stated
from working import wait_until, worker

from firstdrift_server.app import create_app
from firstdrift_server.settings import settings_from


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, dumps: dict[str, tuple[Path, Path]]) -> Path:
    root = tmp_path_factory.mktemp("root").resolve()
    shutil.copytree(dumps["tokens"][0], root / "tokens")
    shutil.copytree(dumps["perturbed"][0], root / "statistics")
    return root


@pytest.fixture(scope="module")
def alone(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A server on which nothing was compared: dump 1 has values, dump 2 statistics, both were read."""
    settings = settings_from(roots=[root], data_dir=tmp_path_factory.mktemp("data"))
    with (
        worker(settings.database),
        TestClient(create_app(settings), base_url="http://localhost", follow_redirects=False) as client,
    ):
        for name in ("tokens", "statistics"):
            read(client, root / name)
        yield client


def read(client: TestClient, path: Path, **fields: str) -> str:
    """Have a dump read; give the address of its page."""
    asked = client.post("/dumps", data={"path": str(path)} | fields)
    assert asked.status_code == 303
    wait_until(lambda: not client.get("/api/v1/jobs?only_open=true").json()["jobs"])
    there = client.get(asked.headers["location"])
    assert there.status_code == 303, there.text
    return str(there.headers["location"])


def json_of(client: TestClient, address: str) -> Any:  # noqa: ANN401
    path, _, query = address.partition("?")
    answer = client.get(f"{path}.json?{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def row_named(client: TestClient, tree: str, name: str) -> int:
    found = json_of(client, f"{tree}?q={name}")["rows"]
    return next(int(row["row"]) for row in found if row["target"][0].endswith(name))


def test_a_path_that_was_not_read_is_offered_and_reading_it_leads_to_its_page(
    alone: TestClient, root: Path
) -> None:
    fresh = shutil.copytree(root / "statistics", root / "fresh")
    page = alone.get("/dumps", params={"path": str(fresh)})
    assert page.status_code == 200
    assert stated(page.text) == ["not-read"]
    assert 'name="computes"' in page.text
    address = read(alone, fresh)
    shown = alone.get(address).text
    assert str(fresh.name) in shown
    assert "msprobe" in shown


def test_scripts_have_a_dump_read_and_learn_its_id(alone: TestClient, root: Path) -> None:
    path = str(shutil.copytree(root / "statistics", root / "scripted"))
    assert alone.get("/api/v1/dumps", params={"path": path}).json()["dump"] is None
    asked = alone.post("/api/v1/dumps", json={"path": path})
    assert asked.status_code == 202
    wait_until(lambda: not alone.get("/api/v1/jobs?only_open=true").json()["jobs"])
    job = alone.get(f"/api/v1/jobs/{asked.json()['job']['id']}").json()
    assert (job["state"], job["comparison"], job["path"]) == ("done", None, path)
    found = alone.get("/api/v1/dumps", params={"path": path}).json()["dump"]
    assert alone.get(f"/api/v1/dumps/{found}").json()["path"] == path
    assert alone.get("/api/v1/dumps/999999").status_code == 404
    assert alone.post("/api/v1/dumps", json={"path": "/etc"}).status_code == 404


def test_paths_outside_the_roots_are_refused(alone: TestClient, tmp_path: Path) -> None:
    for path in ("/etc", "/", str(tmp_path), "../..", "\0"):
        assert alone.get("/dumps", params={"path": path}).status_code == 404
        assert alone.post("/dumps", data={"path": path}).status_code == 404


def test_a_dump_says_what_it_is_and_what_lies_in_it(alone: TestClient) -> None:
    found = json_of(alone, "/dumps/1")
    assert found["format"] == "msit-torch"
    assert found["evidence"]
    assert [each["token"] for each in found["slices"]] == list(range(len(found["slices"])))
    assert found["nodes"] == sum(each["nodes"] for each in found["slices"]) > 0
    assert found["problems"] == []
    page = alone.get("/dumps/1").text
    assert "/new?target=" in page
    for each in found["slices"]:
        assert each["address"] in page
    assert 'scope="col">Problems</th>' not in page, "a column for nothing"


def test_what_is_wrong_with_slices_and_tensors_is_counted_too(
    alone: TestClient, root: Path, dumps: dict[str, tuple[Path, Path]]
) -> None:
    damaged = shutil.copytree(dumps["damaged"][1], root / "damaged")
    found = json_of(alone, read(alone, damaged))
    assert found["problem_count"] == len(found["problems"]) == 1
    (problem,) = found["problems"]
    assert (damaged / problem["file"]).stat().st_size == 100
    assert problem["slice_name"] == found["slices"][problem["slice"]]["name"]
    whole = shutil.copytree(dumps["perturbed"][0], root / "odd")
    stacks = next(whole.rglob("stack.json"))
    stacks.write_text("{")
    construct = next(whole.rglob("construct.json"))
    construct.write_text("[]")
    odd = json_of(alone, read(alone, whole))
    in_slices = sum(len(each["problems"]) for each in odd["slices"])
    assert odd["problem_count"] == len(odd["problems"]) == in_slices > 0
    page = alone.get(odd["address"]).text
    assert odd["problems"][0]["slice_name"]["text"] in page


def test_a_dump_that_changed_or_is_gone_says_so(alone: TestClient, root: Path) -> None:
    copy = shutil.copytree(root / "statistics", root / "changing")
    address = read(alone, copy)
    assert json_of(alone, f"{address}?check=true")["state"] == "as it was"
    (copy / "another.json").write_text("{}")
    assert stated(alone.get(f"{address}?check=true").text) == ["changed"]
    shutil.rmtree(copy)
    assert stated(alone.get(f"{address}?check=true").text) == ["gone"]
    tree = alone.get(f"{address}/s/0/tree")
    assert tree.status_code == 200


def test_the_tree_filters_searches_and_gives_its_rows(alone: TestClient) -> None:
    tree = "/dumps/2/s/0/tree"
    everything = json_of(alone, f"{tree}?unfold=all")
    assert everything["total"] == everything["rows_in_tree"] > 100
    operators = json_of(alone, f"{tree}?kind=api")
    assert 0 < operators["matching"] < everything["total"]
    assert {row["kind"] for row in operators["rows"] if not row["is_context"]} == {"api"}
    backward = json_of(alone, f"{tree}?direction=backward")
    assert {row["direction"] for row in backward["rows"] if not row["is_context"]} == {"backward"}
    by_pattern = json_of(alone, f"{tree}?q=linear\\.[0-9]%2B\\.forward$&regex=1")
    assert by_pattern["matching"] > 0
    assert all(
        re.search(r"linear\.\d+\.forward$", row["target"][0], re.IGNORECASE)
        for row in by_pattern["rows"]
        if not row["is_context"]
    )
    finite = json_of(alone, f"{tree}?class=clean")
    assert 0 < finite["matching"] <= everything["total"]
    pieces = alone.get(f"{tree}/rows?unfold=all&rows=16-31").json()["pieces"]
    assert len(re.findall(r'role="row"', pieces[0])) == 16
    assert alone.get(f"{tree}?verdict=error").status_code == 200  # no filter here, so it means nothing
    assert alone.get(f"{tree}?kind=nonsense").status_code == 422
    assert alone.get("/dumps/2/s/99/tree").status_code == 404


def test_statistics_are_recorded_ones_or_computed_for_the_node(alone: TestClient) -> None:
    recorded = json_of(
        alone, f"/dumps/2/s/0/n/{row_named(alone, '/dumps/2/s/0/tree', 'embed_tokens.Embedding.forward.0')}"
    )
    output = next(each for each in recorded["tensors"] if each["role"] == "output")
    assert output["known_from"] == "data" or output["known_from"] == "statistics"
    assert isinstance(output["norm"], float)
    computed = json_of(alone, f"/dumps/1/s/0/n/{row_named(alone, '/dumps/1/s/0/tree', 'lm_head')}")
    output = next(each for each in computed["tensors"] if each["role"] == "output")
    assert output["known_from"] == "data"
    assert output["nan"] == 0
    assert output["minimum"] < output["mean"] < output["maximum"]
    assert computed["trend"]["axis"] == "token"
    values = [point["value"] for point in computed["trend"]["points"]]
    assert values[0] == pytest.approx(output["norm"])
    assert len(values) == len(json_of(alone, "/dumps/1")["slices"])
    page = alone.get(f"{computed['address']}?statistic=maximum&tensor={output['tensor']}").text
    assert "trend.js" in page
    assert page.partition('id="trend-table"')[2].count('<th scope="row">') == len(values)
    assert alone.get(f"{computed['address']}?statistic=median").status_code == 422
    assert alone.get(f"{computed['address']}?tensor=output.7").status_code == 422


def test_overflow_is_found_in_values_once_they_have_been_computed(alone: TestClient, root: Path) -> None:
    import torch

    copy = shutil.copytree(root / "tokens", root / "overflowing")
    file = next(path for path in sorted(copy.rglob("*.pth")) if "/1/" in str(path) and "output" in path.name)
    tensor = torch.load(file, weights_only=True)
    tensor.view(-1)[0] = float("inf")
    torch.save(tensor, file)
    address = read(alone, copy)
    before = json_of(alone, f"{address}/overflow")
    assert (before["count"], before["values"]["known"]) == (0, 0)
    assert before["values"]["unknown"] > 0
    assert read(alone, copy, computes="yes") == address
    after = json_of(alone, f"{address}/overflow")
    assert after["values"]["unknown"] == 0
    (found,) = after["overflow"]
    assert (found["level"], found["slice"]) == ("critical", 1)
    tree = json_of(alone, after["overflow"][0]["address"].partition("?")[0])
    selected = next(row for row in tree["rows"] if row["is_selected"])
    assert (selected["overflow"], selected["target"][0]) == ("critical", after["overflow"][0]["node"])
    only = json_of(alone, f"{address}/s/1/tree?overflow=critical")
    assert only["matching"] == 1
