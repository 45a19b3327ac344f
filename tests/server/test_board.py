import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from messages import stated
from msgspec.structs import replace
from working import wait_until, worker

from firstdrift.catalogue.comparisons.board import Outcome
from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.model.slice import Coordinates
from firstdrift.verdict.judgement import Verdict
from firstdrift_server.app import create_app
from firstdrift_server.board import view as board
from firstdrift_server.settings import settings_from


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, unpacked: Callable[[str], Path]) -> Iterator[TestClient]:
    """A server on which three runs were compared with one golden dump: good, bad from token 3, good again."""
    root = tmp_path_factory.mktemp("root").resolve()
    golden = shutil.copytree(unpacked("msit/llama4_golden_fp32"), root / "golden")
    runs = {"monday": golden, "tuesday": unpacked("msit/llama4_perturb_L2_T3"), "wednesday": golden}
    settings = settings_from(roots=[root], data_dir=tmp_path_factory.mktemp("data"))
    with (
        worker(settings.database),
        TestClient(create_app(settings), base_url="http://localhost", follow_redirects=False) as client,
    ):
        for name, dump in runs.items():
            target = shutil.copytree(dump, root / "runs" / name)
            made = client.post("/api/v1/comparisons", json={"golden": str(golden), "target": str(target)})
            assert made.status_code == 201, made.text
        wait_until(lambda: not client.get("/api/v1/jobs?only_open=true").json()["jobs"])
        yield client


def seen(client: TestClient, query: str = "") -> Any:  # noqa: ANN401
    answer = client.get(f"/board.json?{query}")
    assert answer.status_code == 200, answer.text
    page = client.get(f"/board?{query}")
    assert page.status_code == 200
    assert page.text.count("data-comparison=") == len(answer.json()["rows"])
    return answer.json()


def test_a_row_for_each_comparison_and_a_column_for_each_token(client: TestClient) -> None:
    found = seen(client)
    assert [row["id"] for row in found["rows"]] == [3, 2, 1]
    assert (found["axis"], found["columns"]) == ("token", list(range(len(found["columns"]))))
    bad = found["rows"][1]
    slices = client.get("/api/v1/comparisons/2/slices").json()["slices"]
    assert [cell["verdict"] for cell in bad["cells"]] == [each["verdict"] for each in slices]
    first = bad["cells"][bad["first_bad_token"]]
    assert first["node"] == bad["first_bad_node"]
    assert not any(cell["is_bad"] for cell in bad["cells"][: bad["first_bad_token"]])
    tree = client.get(first["address"]).text
    assert first["node"].rpartition(".")[2] in tree
    assert all(
        cell["verdict"] == "pass" for row in (found["rows"][0], found["rows"][2]) for cell in row["cells"]
    )


def test_another_coordinate_gathers_slices_and_shows_the_worst(client: TestClient) -> None:
    found = seen(client, "axis=rank")
    assert found["columns"] == [None]
    cell = found["rows"][1]["cells"][0]
    assert cell["verdict"] == "error"
    assert 0 < cell["bad_slices"] < cell["slices"]
    assert cell["node"] == found["rows"][1]["first_bad_node"]
    assert client.get("/board?axis=nothing").status_code == 422
    assert client.get("/board?sort=nothing").status_code == 422


def test_headings_say_what_the_slices_of_a_column_have_in_common(client: TestClient) -> None:
    assert stated(client.get("/board?axis=rank").text) == ["all-slices"]


@pytest.mark.parametrize("axis", ["token", "step"])
def test_where_no_node_can_be_named_the_board_says_so_and_leads_to_why(
    tmp_path: Path, unpacked: Callable[[str], Path], axis: str
) -> None:
    names = ("llama12_logits_golden", "llama12_logits_bad"), ("llama4_golden_fp32", "llama4_golden_fp32")
    pairs = [[str(unpacked(f"msit/{name}")) for name in pair] for pair in names]
    statistics = unpacked("msprobe/llama_stat_mix_perturb")
    pairs.append([str(statistics / side) for side in ("golden", "target")])
    settings = settings_from(roots=[Path("/")], data_dir=tmp_path)
    with worker(settings.database), TestClient(create_app(settings), base_url="http://localhost") as client:
        for golden, target in pairs:
            client.post("/api/v1/comparisons", json={"golden": golden, "target": target})
        wait_until(lambda: not client.get("/api/v1/jobs?only_open=true").json()["jobs"])
        rows = seen(client, f"axis={axis}")["rows"]
        assert [(row["first_bad_node"] is None, row["is_unnamed"]) for row in rows] == [
            (False, False),
            (True, False),
            (True, True),
        ]
        page = client.get(f"/board?axis={axis}").text
    assert re.findall(r'<a href="([^"]*)" data-says="unnamed"', page) == ["/c/1"]
    assert stated(page).count(f"no-{axis}") == 1


def test_a_cell_of_several_slices_shows_where_it_all_began() -> None:
    bad = [
        Outcome(1, 0, Coordinates(0, 0), Verdict.ERROR, "all_reduce.0", 4),
        Outcome(1, 1, Coordinates(0, 1), Verdict.ERROR, "layers.0.mlp.down_proj", 2, is_first=True),
        Outcome(1, 2, Coordinates(0, 2), Verdict.PASS),
    ]
    assert board._cells(1, bad, "token")[None].node == "layers.0.mlp.down_proj"
    assert [cell.node for cell in board._cells(1, bad, "rank").values()] == [each.node for each in bad]


def test_an_operator_that_is_bad_is_named_as_the_overview_names_it() -> None:
    inside = Outcome(
        1, 0, Coordinates(0), Verdict.ERROR, "layers.2.self_attn", 4, operator="Tensor.__mul__.43.forward"
    )
    cell = board._cells(1, [inside], "step")[0]
    assert (cell.operator, cell.short) == ("Tensor.__mul__.43.forward", "layers.2.self_attn")
    other = replace(inside, operator="Tensor.__add__.1.forward")
    assert board._change(board._cells(1, [other], "step")[0], cell) == "elsewhere"


def test_without_tokens_there_is_no_column_for_the_first_bad_one(client: TestClient) -> None:
    assert seen(client)["has_tokens"]
    healthy = "/board?c=1&c=3"
    assert not client.get(healthy.replace("board?", "board.json?")).json()["has_tokens"]
    columns = [client.get(address).text.count('<th scope="col"') for address in (f"{healthy}&c=2", healthy)]
    assert columns[0] == columns[1] + 1
    assert 'id="what-cells-show"' in client.get(healthy).text


def test_what_is_alike_is_hidden_when_only_differences_are_asked_for(client: TestClient) -> None:
    everything, found = seen(client), seen(client, "differences=1")
    first = everything["rows"][1]["first_bad_token"]
    assert found["columns"] == list(range(first, len(everything["columns"])))
    assert (found["alike_columns"], found["alike_rows"]) == (first, 1)
    assert [(row["id"], row["alike"]) for row in found["rows"]] == [(3, 1), (2, 0)]


def test_only_runs_of_one_target_are_alike(client: TestClient, tmp_path: Path) -> None:
    with client.app.state.context.reading() as session:  # type: ignore[attr-defined]
        first, second, third = (get_comparison(session, number) for number in (1, 2, 3))
    assert board._is_same_target(first, third)  # of one folder
    assert board._is_same_target(first, replace(second, target_path=tmp_path / first.target_path.name))
    assert not board._is_same_target(first, replace(third, target_path=tmp_path / "elsewhere" / "other"))
    assert not board._is_same_target(first, replace(third, golden_path=tmp_path))


def test_what_is_new_or_fixed_since_the_run_before_is_marked(client: TestClient) -> None:
    found = seen(client, "new=1")
    rows = {row["id"]: row for row in found["rows"]}
    assert [rows[number]["before"] for number in (1, 2, 3)] == [None, 1, 2]
    bad = [cell["is_bad"] for cell in rows[2]["cells"]]
    assert [cell["change"] for cell in rows[2]["cells"]] == ["new" if each else "as before" for each in bad]
    assert [cell["change"] for cell in rows[3]["cells"]] == ["fixed" if each else "as before" for each in bad]
    assert found["changes"] == {"new": sum(bad), "fixed": sum(bad), "elsewhere": 0}


def test_comparisons_are_chosen_searched_for_and_sorted(client: TestClient) -> None:
    assert [row["id"] for row in seen(client, "c=1&c=2")["rows"]] == [2, 1]
    assert [row["id"] for row in seen(client, "q=tuesday")["rows"]] == [2]
    assert [row["id"] for row in seen(client, "sort=name")["rows"]] == [1, 2, 3]
    assert [row["id"] for row in seen(client, "sort=errors")["rows"]] == [2, 3, 1]
    assert [row["id"] for row in seen(client, "sort=first")["rows"]] == [2, 3, 1]
    found = seen(client, "c=2&c=99")
    assert ([row["id"] for row in found["rows"]], found["missing"]) == ([2], [99])
    assert stated(client.get("/board?q=no+such+thing").text) == ["nothing-found"]


def test_beyond_what_can_be_shown_the_board_says_so(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board, "MOST_ROWS", 2)
    monkeypatch.setattr(board, "MOST_COLUMNS", 3)
    found = seen(client)
    assert [row["id"] for row in found["rows"]] == [3, 2]
    assert (found["hidden_rows"], found["columns"]) == (1, [0, 1, 2])
    slices = client.get("/api/v1/comparisons/2/slices").json()["slices"]
    assert found["hidden_columns"] == len(slices) - 3 > 0
    assert {"more-rows", "more-columns"} <= set(stated(client.get("/board").text))
