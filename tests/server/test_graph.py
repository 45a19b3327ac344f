"""The graph of a slice: which boxes a page begins with, and what it asks for when one is opened."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from messages import says
from working import wait_until, worker

from firstdrift_server.app import create_app
from firstdrift_server.graph.layers import LEVELS, level_of
from firstdrift_server.parts.flow import NAMED, REACH
from firstdrift_server.settings import settings_from

GRAPH = "/c/1/s/0/graph"
RENAMED = "/c/2/s/0/graph"


def data(client: TestClient, address: str) -> dict[str, Any]:
    answer = client.get(address, headers={"accept": "application/json"})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def rows(client: TestClient, comparison: int) -> list[dict[str, Any]]:
    address = f"/api/v1/comparisons/{comparison}/slices/0/rows?unfold=all&count=1000"
    found: list[dict[str, Any]] = client.get(address).json()["rows"]
    return found


def boxes(found: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {box["row"]: box for layer in found["layers"] for box in layer["boxes"]}


def all_open(client: TestClient, comparison: int) -> str:
    known = rows(client, comparison)
    return ".".join(str(row["row"]) for row in known if row["last"] > row["row"])


def test_it_opens_at_the_first_bad_node_with_what_lies_beside_it(client: TestClient) -> None:
    found = data(client, GRAPH)
    tree = client.get("/api/v1/comparisons/1/slices/0/rows").json()
    assert found["row"] == tree["selected"]
    known = {row["row"]: row for row in rows(client, 1)}
    around = []
    above = known[found["row"]]["parent"]
    while above is not None:
        around.insert(0, above)
        above = known[above]["parent"]
    assert [layer["row"] for layer in found["layers"]] == [None, *around]
    inner = {row["row"] for row in known.values() if row["parent"] in {None, *around}}
    assert boxes(found).keys() == inner
    assert boxes(found)[around[-1]]["class_shown"] == "begins inside"
    assert boxes(found)[found["row"]]["class_shown"] == boxes(found)[found["row"]]["node_class"]


@pytest.mark.parametrize("comparison", [1, 2])
def test_every_row_is_a_box_once_and_edges_lead_to_boxes_of_the_same_module(
    client: TestClient, comparison: int
) -> None:
    address = f"/c/{comparison}/s/0/graph?open={all_open(client, comparison)}"
    found = data(client, address)
    assert not found["is_cut"]
    shown = [box["row"] for layer in found["layers"] for box in layer["boxes"]]
    assert sorted(shown) == [row["row"] for row in rows(client, comparison)]
    sides = {row["row"]: row for row in rows(client, comparison)}
    for layer in found["layers"]:
        inner = {box["row"] for box in layer["boxes"]}
        for side, edges in layer["edges"].items():
            for edge in edges:
                assert {edge["source"], edge["goal"]} <= inner | {None}
                for row in {edge["source"], edge["goal"]} - {None}:
                    assert sides[row][side], "an edge of a side is between nodes of that side"


@pytest.mark.parametrize("comparison", [1, 2])
def test_a_node_names_the_nearest_of_what_edges_connect_it_with(client: TestClient, comparison: int) -> None:
    found = data(client, f"/c/{comparison}/s/0/graph?open={all_open(client, comparison)}")
    seen = boxes(found)
    edges = [edge for layer in found["layers"] for edge in layer["edges"]["target"]]
    assert edges
    of_target = [one for one in rows(client, comparison) if one["target"]]
    for one in of_target[::7]:
        row, near = one["row"], range(one["row"] - REACH, one["last"] + REACH + 1)
        flow = data(client, f"/c/{comparison}/s/0/n/{row}.json")["flow"]
        follows = one["kind"] == "api" and one["direction"] != "backward"
        told = [edge for edge in edges if follows or not edge["by_order"]]
        sources = {edge["source"] for edge in told if edge["goal"] == row} - {None}
        goals = {edge["goal"] for edge in edges if edge["source"] == row and not edge["by_order"]} - {None}
        for named, more, connected in (
            (flow["sources"], flow["more_sources"], sources),
            (flow["goals"], flow["more_goals"], goals),
        ):
            nearest = sorted(connected & {*near}, key=lambda other: (abs(other - row), other))
            assert more == len(nearest[NAMED:])
            nearest = nearest[:NAMED]
            assert [node["label"] for node in named] == [seen[other]["label"] for other in nearest]
            assert [int(node["address"].rpartition("/")[2]) for node in named] == nearest


def test_edges_have_the_shapes_of_what_is_handed_on(client: TestClient) -> None:
    found = data(client, GRAPH)
    layer = next(
        layer
        for layer in found["layers"]
        if {"input_layernorm", "self_attn", "mlp"} <= {box["label"] for box in layer["boxes"]}
    )
    label = {box["row"]: box["label"] for box in layer["boxes"]} | {None: "the layer"}
    for side in ("golden", "target"):
        known = {(label[edge["source"]], label[edge["goal"]]): edge for edge in layer["edges"][side]}
        assert {
            ("the layer", "input_layernorm"),
            ("input_layernorm", "self_attn"),
            ("post_attention_layernorm", "mlp"),
        } <= known.keys()
        edge = known["input_layernorm", "self_attn"]
        assert (edge["shapes"], edge["by_order"]) == (["[2, 16, 64]"], False)


def test_values_that_were_compared_tell_what_was_handed_on_where_no_statistics_were_recorded(
    tmp_path: Path,
) -> None:
    random = np.random.default_rng(0)
    given, between, made = (random.normal(size=(2, 8)).astype("float32") for _ in range(3))
    for side in ("golden", "target"):
        (tmp_path / side).mkdir()
        saved = {"a.input.0": given, "a.output.0": between, "b.input.0": between, "b.output.0": made}
        for name, values in saved.items():
            np.save(tmp_path / side / f"model.{name}.npy", values)
    settings = settings_from(roots=[tmp_path], data_dir=tmp_path / "data")
    app = create_app(settings)
    with worker(settings.database), TestClient(app, base_url="http://localhost") as client:
        asked = {side: str(tmp_path / side) for side in ("golden", "target")}
        assert client.post("/api/v1/comparisons", json=asked).status_code == 201
        wait_until(lambda: not client.get("/api/v1/jobs?only_open=true").json()["jobs"])
        found = data(client, "/c/1/s/0/graph")
    label = {row: box["label"] for row, box in boxes(found).items()} | {None: "the module"}
    for side in ("golden", "target"):
        edges = [edge for layer in found["layers"] for edge in layer["edges"][side]]
        assert [(label[one["source"]], label[one["goal"]], one["by_order"]) for one in edges] == [
            ("a", "b", False)
        ]


def test_what_one_side_lacks_is_said(client: TestClient) -> None:
    found = data(client, f"{RENAMED}?open={all_open(client, 2)}")
    alone = {row["row"]: row for row in rows(client, 2) if row["verdict"] == "unmatched"}
    assert alone
    for row, box in boxes(found).items():
        assert (len(box["sides"]) == 1) == (row in alone)
        if row in alone:
            assert box["sides"] == ["golden" if alone[row]["golden"] else "target"]
            assert box["said"] == "unmatched"


def test_a_page_that_is_open_asks_for_what_a_module_holds(client: TestClient) -> None:
    closed = next(box for box in boxes(data(client, GRAPH)).values() if box["holds"] > 2)
    found = client.get(f"{GRAPH}/layers?of={closed['row']}").json()
    (layer,) = found["layers"]
    assert (layer["row"], layer["total"], len(layer["boxes"])) == (
        closed["row"],
        closed["holds"],
        closed["holds"],
    )


def test_steps_lead_where_they_lead_in_the_tree(client: TestClient) -> None:
    row = data(client, GRAPH)["row"]
    for step in ("next=bad", "previous=bad", "next=origin", "next=unmatched"):
        found = client.get(f"{GRAPH}/layers?{step}&row={row}").json()
        tree = client.get(f"/api/v1/comparisons/1/slices/0/rows?{step}&row={row}").json()
        if found["row"] is None:
            assert tree["selected"] == row
            continue
        assert found["row"] == tree["selected"]
        known = {one["row"]: one for one in rows(client, 1)}
        path = [above for above, _ in found["path"]]
        assert path[0] is None
        assert path[-1] == known[found["row"]]["parent"]


def test_the_same_node_is_found_in_another_slice(client: TestClient) -> None:
    known = data(client, "/c/3/s/3/graph")
    label = boxes(known)[known["row"]]["name"]
    other = data(client, f"/c/3/s/2/graph?as=3.{known['row']}")
    assert boxes(other)[other["row"]]["name"] == label
    links = {link["slice"]: link["address"] for link in known["slices"]["all"]}
    assert links[2] == f"/c/3/s/2/graph?as=3.{known['row']}"


def test_a_clean_slice_shows_what_fits_on_a_screen(client: TestClient) -> None:
    found = data(client, "/c/3/s/0/graph")
    assert not found["has_bad"]
    assert 4 < len(boxes(found)) <= 60


def test_more_than_is_drawn_at_once_is_left_closed(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firstdrift_server.graph.view.MOST_BOXES", 50)
    found = data(client, f"{GRAPH}?open=0-600")
    assert found["is_cut"]
    assert len(boxes(found)) <= 50


def test_a_module_of_many_comes_in_pieces(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = data(client, GRAPH)
    layer = max(whole["layers"], key=lambda layer: len(layer["boxes"]))
    monkeypatch.setattr("firstdrift_server.graph.layers.PIECE", 4)
    monkeypatch.setattr("firstdrift_server.graph.view.PIECE", 4)
    row, count = layer["row"], len(layer["boxes"])
    module = "" if row is None else row
    pieces = [
        client.get(f"{GRAPH}/layers?of={module}:{piece}").json()["layers"][0]
        for piece in range(-(-count // 4))
    ]
    together = [box["row"] for piece in pieces for box in piece["boxes"]]
    assert together == [box["row"] for box in layer["boxes"]]
    assert {piece["pieces"] for piece in pieces} == {len(pieces)}
    found = data(client, GRAPH)
    assert found["row"] in boxes(found), "the piece with the first bad node is there"
    last = len(pieces) - 1
    both = data(client, f"{GRAPH}?pieces={module}:{last}")
    assert {box["row"] for box in pieces[-1]["boxes"]} <= boxes(both).keys()


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("?row=999999", 404, "server.no_row"),
        ("?row=x", 422, "server.not_a_number"),
        ("?open=3-", 422, "server.no_list_of_rows"),
        ("?pieces=3", 422, "server.no_list_of_rows"),
        ("/layers?of=999999", 404, "server.no_row"),
        ("/layers?next=nothing", 422, "server.nowhere_to_go"),
    ],
)
def test_what_makes_no_sense_is_said(client: TestClient, query: str, status: int, message: str) -> None:
    answer = client.get(f"{GRAPH}{query}", headers={"accept": "application/json"})
    assert answer.status_code == status
    assert says(answer.text, message)


def test_a_slice_that_is_not_there_has_no_graph(client: TestClient) -> None:
    answer = client.get("/c/1/s/99/graph", headers={"accept": "application/json"})
    assert answer.status_code == 404
    assert says(answer.text, "catalogue.no_slice_pair")


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (None, None),
        (0.0, -1),
        (0.5, 0),
        (1.0, 0),
        (1.01, 1),
        (9.9, 1),
        (10.5, 2),
        (500.0, 3),
        (1001.0, LEVELS),
        (1e9, LEVELS),
        (float("inf"), LEVELS),
        (float("nan"), LEVELS),
    ],
)
def test_a_colour_says_how_far_an_error_is_above_its_limit(error: float | None, level: int | None) -> None:
    assert level_of(error, 1.0) == level


def test_a_node_that_fails_by_a_limit_of_its_own_never_looks_as_if_it_passed() -> None:
    assert [level_of(error, 1.0, fails=True) for error in (None, 0.0, 0.5, 5.0, 50.0)] == [None, 1, 1, 1, 2]


def test_views_of_a_slice_lead_to_each_other(client: TestClient) -> None:
    row = data(client, GRAPH)["row"]
    html = {"accept": "text/html"}
    assert f'href="/c/1/s/0/tree?row={row}"' in client.get(GRAPH, headers=html).text
    assert f'href="/c/1/s/0/graph?row={row}"' in client.get("/c/1/s/0/tree", headers=html).text
    assert f'href="/c/1/s/0/graph?row={row}"' in client.get(f"/c/1/s/0/n/{row}", headers=html).text
    assert 'href="/c/1/s/0/graph' in client.get("/c/1", headers=html).text
