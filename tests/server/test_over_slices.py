"""A node over tokens, steps and ranks: its picture, where it is elsewhere, and from which rank it came."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from working import wait_until, worker

from firstdrift.catalogue.comparisons.board import Profile
from firstdrift_server.app import create_app
from firstdrift_server.board.sparks import spark_of
from firstdrift_server.parts.layer_labels import layer_labels
from firstdrift_server.parts.svg import Scale, limit_line, path_of
from firstdrift_server.settings import settings_from

HTML = {"accept": "text/html"}
TOKENS, RANKS = 1, 2


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, unpacked: Callable[[str], Path]) -> Iterator[TestClient]:
    tokens = unpacked("msit/llama4_golden_fp32"), unpacked("msit/llama4_perturb_L2_T3")
    ranks = unpacked("msprobe/comm2_stat_mix")
    pairs = (tokens, (ranks / "golden", ranks / "target"))
    roots = [tokens[0].parent, tokens[1].parent, ranks]
    settings = settings_from(roots=roots, data_dir=tmp_path_factory.mktemp("data"))
    with worker(settings.database), TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        for golden, target in pairs:
            asked = {"golden": str(golden), "target": str(target)}
            assert client.post("/api/v1/comparisons", json=asked).status_code == 201

        def is_done(comparison: int) -> bool:
            return bool(client.get(f"/c/{comparison}.json").json()["state"] == "done")

        wait_until(lambda: is_done(TOKENS) and is_done(RANKS))
        yield client


def node(client: TestClient, comparison: int, position: int, row: int, **asked: str) -> dict[str, Any]:
    answer = client.get(f"/c/{comparison}/s/{position}/n/{row}.json", params=asked)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert isinstance(found, dict)
    return found


def first_bad(client: TestClient, comparison: int) -> dict[str, Any]:
    found = client.get(f"/c/{comparison}.json").json()["first_bad_node"]
    assert isinstance(found, dict)
    return found


def row_of(client: TestClient, comparison: int, position: int, name: str) -> int:
    rows = client.get(
        f"/api/v1/comparisons/{comparison}/slices/{position}/rows", params={"unfold": "all", "count": 1000}
    ).json()["rows"]
    return next(int(row["row"]) for row in rows if name in row["target"])


def test_a_node_is_drawn_over_all_tokens_with_the_limit_and_the_slice_that_is_shown(
    client: TestClient,
) -> None:
    bad = first_bad(client, TOKENS)
    over = node(client, TOKENS, 3, row_of(client, TOKENS, 3, bad["target"]))["over"]
    assert over["axis"] == "token"
    assert [point["label"] for point in over["points"]] == list(map(str, range(8)))
    assert [point["is_here"] for point in over["points"]] == [at == 3 for at in range(8)]
    errors = [point["error"] for point in over["points"]]
    assert max(errors[:3]) < over["limit"] < min(errors[3:])
    assert all(point["y"] < over["limit_y"] for point in over["points"][3:]), "above the line"
    assert all(point["y"] > over["limit_y"] for point in over["points"][:3]), "below it"
    assert over["points"][3]["limit"] == bad["confidence"]["limit"], "its own, where the error starts"
    for point in over["points"]:
        there = client.get(f"{point['address']}.json").json()
        assert bad["target"] in there["target"]
        assert there["slice"] == point["slice"]


def test_the_page_has_a_link_for_each_point_and_says_in_words_what_it_shows(client: TestClient) -> None:
    row = row_of(client, TOKENS, 3, first_bad(client, TOKENS)["target"])
    page = client.get(f"/c/{TOKENS}/s/3/n/{row}", headers=HTML).text
    picture = re.search(r'<svg class="picture".*?</svg>', page, re.DOTALL)
    assert picture is not None
    assert picture[0].count("<a href=") == picture[0].count("<title>") == 8
    assert picture[0].count('aria-current="true"') == 1
    assert "style=" not in picture[0]
    assert re.search(rf'rel="prev" href="/c/{TOKENS}/s/2/n/\d+"', page)
    assert re.search(rf'rel="next" href="/c/{TOKENS}/s/4/n/\d+"', page)


def test_the_panel_beside_the_tree_is_not_kept_waiting_for_the_picture(client: TestClient) -> None:
    assert 'class="picture"' not in client.get(f"/c/{TOKENS}/s/3/n/1?panel=true", headers=HTML).text


def test_what_a_communication_got_from_another_rank_leads_to_it_there(client: TestClient) -> None:
    name = "Distributed.all_reduce.0.forward"
    slices = client.get(f"/api/v1/comparisons/{RANKS}/slices").json()["slices"]
    at = {one["rank"]: one["slice"] for one in slices}
    here = node(client, RANKS, at[1], row_of(client, RANKS, at[1], name))
    assert here["from_rank"]["rank"] == 0
    there = client.get(f"{here['from_rank']['address']}.json").json()
    assert there["slice"] == at[0]
    assert name in there["target"]
    assert there["from_rank"] is None
    address = f"{here['address']}?panel=true"
    assert f'href="{here["from_rank"]["address"]}"' in client.get(address, headers=HTML).text


def test_nodes_that_communicate_nothing_come_from_no_rank(client: TestClient) -> None:
    assert node(client, TOKENS, 3, 1)["from_rank"] is None


def test_a_node_of_another_row_number_is_found_by_its_name(client: TestClient) -> None:
    row = row_of(client, RANKS, 1, "Distributed.all_reduce.0.forward")
    over = node(client, RANKS, 1, row, along="rank")["over"]
    assert over["axis"] == "rank"
    assert [point["error"] is not None for point in over["points"]] == [True, True]


def test_numbers_that_no_logarithm_shows_lie_at_the_edges() -> None:
    scale = Scale.of([1e-6, 0.0, float("inf"), None], [1e-3], 10.0, 100.0)
    assert (scale.y(0.0), scale.y(float("inf")), scale.y(float("nan"))) == (100.0, 10.0, 10.0)
    assert 10.0 < scale.y(1e-3) < scale.y(1e-6) < 100.0
    assert path_of([(0, 1), None, (2, 3), (4, 5)]) == "M0 1M2 3L4 5"


def test_the_line_of_limits_has_a_step_where_they_differ() -> None:
    scale = Scale.of([1e-6, 1e-2], [1e-3, 1e-5], 10.0, 100.0)
    line = limit_line([1e-3, 1e-3, 1e-5], [10.0, 20.0, 30.0], scale, (0.0, 40.0))
    assert line is not None
    assert (line.least, line.most) == (1e-5, 1e-3)
    high, low = scale.y(1e-3), scale.y(1e-5)
    assert line.path == f"M0 {high:g}L15 {high:g}L15 {high:g}L25 {high:g}L25 {low:g}L40 {low:g}"
    assert limit_line([None, None], [10.0, 20.0], scale, (0.0, 40.0)) is None


def test_a_pair_of_statistics_is_drawn_from_minimum_to_maximum_on_both_sides(client: TestClient) -> None:
    row = row_of(client, RANKS, 1, "Distributed.all_reduce.0.forward")
    output = next(pair for pair in node(client, RANKS, 1, row)["pairs"] if pair["key"] == "output.0")
    drawn, golden, target = output["whiskers"], output["golden"], output["target"]
    assert drawn["ratio"] == pytest.approx(target["norm"] / golden["norm"])
    assert drawn["target"]["low"] < drawn["golden"]["low"] < drawn["golden"]["mean"] < drawn["golden"]["high"]
    page = client.get(f"/c/{RANKS}/s/1/n/{row}", headers=HTML).text
    assert page.count('class="whisker of-golden"') == page.count('class="whisker of-target"') == 2
    rows = re.findall(r'<tr class="of-(golden|target)">', page)
    assert rows == ["golden", "target"] * 2, "golden and target in rows below each other"


def test_where_values_were_saved_no_statistics_are_drawn(client: TestClient) -> None:
    pairs = node(client, TOKENS, 3, row_of(client, TOKENS, 3, first_bad(client, TOKENS)["target"]))["pairs"]
    assert pairs
    assert all(pair["whiskers"] is None for pair in pairs)


def test_the_errors_of_layers_are_drawn_against_depth_and_lead_to_the_tree(client: TestClient) -> None:
    page = client.get(f"/c/{TOKENS}?slice=3", headers=HTML).text
    picture = re.search(r'id="depth-title".*?</svg>', page, re.DOTALL)
    assert picture is not None
    assert picture[0].count('class="point') == 5, "four layers and the last output"
    assert len(re.findall(rf'href="/c/{TOKENS}/s/3/tree\?row=\d+"', picture[0])) == 5
    assert picture[0].count('aria-current="true"') == 1, "where the first bad node lies"


def test_what_is_copied_as_markdown_has_its_link(client: TestClient) -> None:
    page = client.get(f"/c/{TOKENS}", headers=HTML).text
    copied = re.search(r'<pre id="markdown" hidden>(.*?)</pre>', page, re.DOTALL)
    assert copied is not None
    assert f"](/c/{TOKENS})" in copied[1]
    assert re.search(rf"\]\(/c/{TOKENS}/s/3/tree\?row=\d+\)", copied[1])
    row = row_of(client, TOKENS, 3, first_bad(client, TOKENS)["target"])
    address = f"/c/{TOKENS}/s/3/n/{row}"
    assert f"]({address})" in client.get(address, headers=HTML).text


def test_cells_of_the_board_have_their_error_and_a_line_of_their_layers(client: TestClient) -> None:
    found = client.get(f"/board.json?c={TOKENS}").json()["rows"][0]["cells"]
    assert found[3]["numbers"]["error"] > 0.01
    slices = client.get(f"/api/v1/comparisons/{TOKENS}/slices").json()["slices"]
    assert {cell["numbers"]["metric"] for cell in found} == {"relative_l2"}
    shown = [cell["numbers"]["error"] for cell in found]
    assert shown == [each["logits"]["metrics"]["relative_l2"] for each in slices]
    assert [bool(cell["numbers"]["spark"]) for cell in found] == [True] * 8
    page = client.get(f"/board?c={TOKENS}", headers=HTML).text
    assert page.count('class="picture spark"') == 8


def test_a_slice_that_fails_inside_says_so_where_its_output_does_not(client: TestClient) -> None:
    page = client.get(f"/c/{RANKS}", headers=HTML).text
    tiles = re.findall(r'<a class="cell-link v-([a-z-]+)(.*?)</a>', page, re.DOTALL)
    assert [(state, 'data-says="inside"' in tile) for state, tile in tiles] == [
        ("input-differs", False),
        ("error", True),
    ]
    assert page.count('data-says="inside-means"') == 1
    drawn = client.get(f"/api/v1/comparisons/{RANKS}/chart").json()["chart"]["traces"]
    assert sorted(inside for trace in drawn for inside in trace["inside"]) == [False, True]
    tokens = client.get(f"/c/{TOKENS}", headers=HTML).text
    assert "cell-link v-error" in tokens, "there the output fails"
    assert "inside-means" not in tokens


def test_the_board_says_that_inputs_differ_where_no_node_can_be_named(client: TestClient) -> None:
    rows = {row["id"]: row for row in client.get("/board.json").json()["rows"]}
    assert {number: row["inputs_differ"] for number, row in rows.items()} == {TOKENS: False, RANKS: True}
    page = client.get("/board", headers=HTML).text
    assert re.findall(r'data-says="unnamed" title="[^"]*">(.*?)</a>', page) == ["input differs"]


def test_a_line_of_layers_has_two_ends() -> None:
    assert spark_of(Profile(0.1, (0.1, None), 0.01)) is None
    drawn = spark_of(Profile(0.1, (1e-6, None, 0.1), 1e-3))
    assert drawn is not None
    assert drawn.path.count("M") == 2


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["model.layers.0", "model.layers.1"], ["0", "1"]),
        (["model.encoder.layers.0", "model.decoder.layers.0"], ["encoder.0", "decoder.0"]),
        (["rotary_embs.0", "layers.0", "layers.1"], ["rotary_embs.0", "layers.0", "layers.1"]),
        (["blocks.0", "blocks.0.layers.0"], ["0", "0.layers.0"]),
        (["0", "layers.0"], ["0", "layers.0"]),
        ([], []),
    ],
)
def test_layers_of_several_lists_are_told_apart(names: list[str], labels: list[str]) -> None:
    assert layer_labels(names) == labels
