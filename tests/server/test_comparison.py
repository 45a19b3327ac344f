"""The page of a comparison: its charts and their data, and what it shows before it is finished."""

import html
import json
import math
import re
import threading
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from messages import like, stated
from working import wait_until, worker

from firstdrift.catalogue.comparisons.charts import LayerErrors, NodeErrors
from firstdrift.verdict.judgement import NodeClass
from firstdrift.verdict.shown_classes import SHOWN_ALONE
from firstdrift_frontend import STATIC
from firstdrift_server.app import create_app
from firstdrift_server.comparison.scatter import RANDOM, WORST, choose
from firstdrift_server.settings import settings_from
from firstdrift_worker.main import run

HTML = {"accept": "text/html"}
TOKENS, STATISTICS = 3, 1


def page(client: TestClient, address: str) -> str:
    answer = client.get(address, headers=HTML)
    assert answer.status_code == 200, answer.text
    return answer.text


def strict(text: str) -> Any:  # noqa: ANN401
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


def layers(client: TestClient, comparison: int, by: str | None = None) -> dict[str, Any]:
    parameters = {} if by is None else {"by": by}
    answer = client.get(f"/api/v1/comparisons/{comparison}/layers", params=parameters)
    assert answer.status_code == 200, answer.text
    found = strict(answer.text)
    assert isinstance(found, dict)
    return found


def test_the_map_shows_every_layer_of_every_slice_and_where_the_error_begins(client: TestClient) -> None:
    found = layers(client, TOKENS)
    assert (found["by"], found["axes"]) == ("token", ["token"])
    assert [row["token"] for row in found["rows"]] == list(range(8))
    assert [name.rpartition(".")[2] for name in found["layers"]] == ["0", "1", "2", "3"]
    for name in ("errors", "verdicts", "classes", "slices", "nodes"):
        assert [len(row) for row in found[name]] == [4] * 8
    assert found["first"] == {"row": 3, "layer": 2}
    assert found["errors"][3][2] > max(found["errors"][2])
    assert found["verdict_names"][found["verdicts"][3][2]] == "error"
    assert found["slices"][3] == [3] * 4
    assert 'aria-selected="true"' in page(client, f"/c/3/s/3/tree?row={found['nodes'][3][2]}")


def test_each_cell_of_the_map_has_its_limit_and_what_its_error_comes_from(client: TestClient) -> None:
    found = layers(client, TOKENS)
    assert {kind for row in found["kinds"] for kind in row} == {"data"}
    assert {kind for row in layers(client, STATISTICS)["kinds"] for kind in row} == {"statistics"}
    names = found["verdict_names"]
    for errors, limits, verdicts in zip(found["errors"], found["limits"], found["verdicts"], strict=True):
        for error, limit, verdict in zip(errors, limits, verdicts, strict=True):
            assert limit >= 0.999 * found["limit"]
            assert names[verdict] == "pass" or error > limit
    assert found["shown_names"][found["shown"][3][2]] == "begins inside"
    assert found["class_names"][found["classes"][3][2]] == "propagated", "of the verdict"


def test_a_layer_is_found_by_its_rows_and_in_another_pass_by_its_name() -> None:
    errors = LayerErrors(
        positions=[0, 0, 1],
        paths=["model.layers.1", "model.layers.10", "model.layers.1"],
        rows=[3, 9, 3],
        lasts=[8, 12, 8],
        verdicts=["pass"] * 3,
        classes=["clean"] * 3,
        errors=[0.0] * 3,
        rules=[None] * 3,
        excused=[None] * 3,
        kinds=[None] * 3,
    )
    assert errors.layer_of(0, 5, None) == 0
    assert errors.layer_of(0, 40, "model.layers.10.mlp") == 1
    assert errors.layer_of(1, 40, "model.layers.1") == 2
    assert errors.layer_of(1, 40, "model.norm") is None


def test_lower_bounds_are_marked_in_pictures_tables_and_beside_the_finding(client: TestClient) -> None:
    shown = page(client, f"/c/{STATISTICS}")
    depth, table = r'id="depth-title".*?</svg>', r'id="part-nodes-table".*?</table>'
    for part in (depth, r'data-says="evidence".*?</dl>', table):
        found = re.search(part, shown, re.DOTALL)
        assert found is not None, part
        assert "≥ " in found[0], part
    exact = re.search(depth, page(client, f"/c/{TOKENS}?slice=3"), re.DOTALL)
    assert exact is not None
    assert "≥ " not in exact[0]


def test_under_the_rules_of_others_classes_are_said_to_be_of_firstdrift(client: TestClient) -> None:
    words = page(client, f"/c/{STATISTICS}")
    assert "(firstdrift)" in words
    drawn = client.get(f"/api/v1/comparisons/{TOKENS}/slices/3/scatter").json()
    assert drawn["rules"] == "firstdrift"
    assert "begins inside" in drawn["shown_names"]
    assert len(drawn["shown_classes"]) == len(drawn["kinds"]) == drawn["shown"]


def selected(shown: str) -> str:
    """Return the name of the node that is selected in a tree."""
    (row,) = re.findall(r'aria-selected="true".*?<a class="label"[^>]* title="([^"]*)"', shown, re.DOTALL)
    return unescape(row)


def test_another_slice_shows_the_same_node_by_its_name(client: TestClient) -> None:
    row = layers(client, TOKENS)["nodes"][3][2]
    shown = page(client, f"/c/3/s/3/tree?row={row}")
    for way in ("prev", "next"):
        (address,) = re.findall(rf'href="([^"]*)" rel="{way}"', shown)
        assert f"as=3.{row}" in address
        assert selected(page(client, unescape(address))) == selected(shown)
    assert client.get("/c/3/s/2/tree?as=99.1").status_code == 404
    assert client.get("/c/3/s/2/tree?as=x").status_code == 422


def test_counts_of_a_slice_are_of_pairs_and_those_of_the_tree_of_nodes(client: TestClient) -> None:
    (counted,) = re.findall(r'href="[^"]*verdict=error" data-pairs="(\d+)"', page(client, "/c/3?slice=3"))
    assert int(counted) == client.get("/api/v1/comparisons/3/slices").json()["slices"][3]["counts"]["error"]
    assert 'data-filter="verdict"' in page(client, "/c/3/s/3/tree")


def test_the_errors_of_the_map_are_those_of_the_tree(client: TestClient) -> None:
    found = layers(client, TOKENS)
    for layer, row in enumerate(found["nodes"][3]):
        node = client.get(f"/api/v1/comparisons/3/slices/3/rows/{row}").json()
        assert found["errors"][3][layer] == pytest.approx(node["output_error"], rel=1e-4)
        assert found["class_names"][found["classes"][3][layer]] == node["class"]


def test_a_map_of_what_slices_do_not_differ_by_shows_every_slice(client: TestClient) -> None:
    assert layers(client, TOKENS, by="rank")["by"] == "token"
    assert client.get("/api/v1/comparisons/3/layers?by=colour").status_code == 422


def test_rows_that_stand_for_several_slices_show_the_worst(
    client: TestClient, unpacked: Callable[[str], Path], tmp_path: Path
) -> None:
    del client
    dumps = unpacked("msprobe/dp2_stat_mix")
    app = create_app(settings_from(roots=[dumps], data_dir=tmp_path))
    with (
        worker(f"sqlite:///{tmp_path}/firstdrift.db"),
        TestClient(app, base_url="http://localhost", follow_redirects=False) as both,
    ):
        asked = {"golden": str(dumps / "golden"), "target": str(dumps / "target")}
        assert both.post("/api/v1/comparisons", json=asked).status_code == 201
        wait_until(lambda: not both.get("/api/v1/comparisons/1").json()["job"]["is_open"])
        each, by_rank = layers(both, 1), layers(both, 1, by="rank")
        assert each["axes"] == ["slice", "step", "rank"]
        assert [row["rank"] for row in by_rank["rows"]] == [0, 1]
        for rank, row in enumerate(by_rank["errors"]):
            of_rank = [each["errors"][at] for at, one in enumerate(each["rows"]) if one["rank"] == rank]
            worst = [max(errors) for errors in zip(*of_rank, strict=True)]
            first = by_rank["first"]
            for layer, error in enumerate(row):
                is_first = first == {"row": rank, "layer": layer}
                assert error == worst[layer] or (is_first and error in [one[layer] for one in of_rank])
        text = page(both, "/c/1?by=rank&metric=relative_norm")
        assert re.search(r'<a href="[^"]*by=rank[^"]*"[^>]*aria-current="true"', text)
        assert re.search(r'<a href="/c/1\?[^"]*metric=relative_norm[^"]*by=step#layers"', text)


def test_the_scatter_names_every_node_with_both_errors(client: TestClient) -> None:
    found = strict(client.get("/api/v1/comparisons/3/slices/3/scatter").text)
    lengths = {len(found[name]) for name in ("rows", "names", "inputs", "outputs", "classes")}
    assert lengths == {found["shown"]} == {found["total"]}
    assert found["matched"] >= found["total"] > 50
    assert found["total"] <= min(found["with_input"], found["with_output"])
    first = client.get("/api/v1/comparisons/3").json()["first_bad_node"]
    at = found["names"].index(first["target"])
    assert found["class_names"][found["classes"][at]] == "source"
    assert found["outputs"][at] > found["factor"] * found["inputs"][at]
    low, high = found["range"]
    assert 0 < low <= found["outputs"][at] <= high
    assert first["target"] in page(client, f"/c/3/s/3/n/{found['rows'][at]}")
    assert client.get("/api/v1/comparisons/3/slices/99/scatter").status_code == 404


def test_no_room_is_kept_for_a_scatter_without_points(client: TestClient) -> None:
    seen = set()
    for comparison, slices in ((STATISTICS, 1), (TOKENS, 8)):
        for position in range(slices):
            data = strict(client.get(f"/api/v1/comparisons/{comparison}/slices/{position}/scatter").text)
            is_empty = 'class="chart scatter is-empty"' in page(client, f"/c/{comparison}?slice={position}")
            assert is_empty == (data["range"] is None)
            seen.add(is_empty)
    assert seen == {True, False}


def test_of_many_nodes_the_worst_are_drawn_and_always_the_same_of_the_others() -> None:
    many = 20_000
    errors = NodeErrors(
        rows=list(range(many)),
        inputs=[1e-3] * many,
        outputs=[1e-3 * (1 + at / many) for at in range(many)],
        classes=["propagated"] * many,
        rules=[None] * many,
        kinds=[frozenset()] * many,
        matched=many,
        with_input=many,
        with_output=many,
    )
    errors.outputs[7], errors.outputs[8] = math.nan, math.inf
    errors.inputs[9], errors.outputs[9] = 0.0, 9e-4
    drawn = choose(errors, roundoff=1e-7, seed=3)
    assert drawn == choose(errors, roundoff=1e-7, seed=3) == sorted(drawn)
    assert len(drawn) == 2 * WORST + RANDOM
    assert {7, 8, 9, *range(many - WORST + 2, many)} <= set(drawn)
    few = NodeErrors(
        [5, 6], [0.0, 1.0], [1.0, 2.0], ["source", "propagated"], [None] * 2, [frozenset()] * 2, 2, 2, 2
    )
    assert choose(few, roundoff=1e-7, seed=3) == [0, 1]


def test_the_chart_is_drawn_on_the_scale_of_the_address(client: TestClient) -> None:
    address = "/api/v1/comparisons/3/chart?metric=relative_l2"
    logarithmic, linear = (
        client.get(f"{address}&scale={name}").json()["chart"] for name in ("log", "linear")
    )
    assert (logarithmic["logarithmic"], linear["logarithmic"]) == (True, False)
    assert linear["range"][0] < 0 < logarithmic["range"][0]
    assert not any(linear["traces"][0]["at_edge"])
    assert client.get(f"{address}&scale=square").status_code == 422
    text = page(client, "/c/3?metric=relative_l2&scale=linear&slice=2")
    (current,) = re.findall(r'<a href="([^"]*)"\s+data-scale="linear"\s+aria-current="true"', text)
    assert unescape(current) == "/c/3?slice=2&metric=relative_l2&scale=linear#slices"
    assert 'data-chart="/api/v1/comparisons/3/chart?metric=relative_l2&amp;scale=linear"' in text


def test_without_a_script_the_map_is_a_table_whose_cells_lead_to_the_tree(client: TestClient) -> None:
    text = page(client, "/c/3")
    table = re.search(r'<table class="data dense cells">(.*?)</table>', text, re.DOTALL)
    assert table is not None
    (first,) = re.findall(r'<a href="([^"]+)"\s+class="verdict v-error is-first"', table[1])
    assert unescape(first) == f"/c/3/s/3/tree?row={layers(client, TOKENS)['nodes'][3][2]}"
    assert 'aria-selected="true"' in page(client, unescape(first))
    assert len(re.findall(r"<td>", table[1])) <= 320


def test_what_comes_of_statistics_is_called_a_lower_bound(client: TestClient) -> None:
    assert "layers-by-statistics" in stated(page(client, f"/c/{STATISTICS}"))
    assert "layers-by-statistics" not in stated(page(client, f"/c/{TOKENS}"))


@pytest.fixture
def partial(tmp_path: Path, unpacked: Callable[[str], Path]) -> Iterator[TestClient]:
    """A comparison of six tokens whose worker stopped after some of them."""
    golden, target = unpacked("msit/llama12_golden_fp32"), unpacked("msit/llama12_perturb_L7_T2")
    settings = settings_from(roots=[golden, target], data_dir=tmp_path)
    app = create_app(settings)
    with TestClient(app, base_url="http://localhost", follow_redirects=False) as client:
        asked = {"golden": str(golden), "target": str(target)}
        assert client.post("/api/v1/comparisons", json=asked).status_code == 201

        def is_begun() -> bool:
            found = client.get("/api/v1/comparisons/1").json()
            return bool(found["slices"]) and found["job"]["total"] > 0

        stopping = threading.Event()
        work = {"processes": 1, "until": stopping, "lease": 1.0}
        thread = threading.Thread(target=run, args=(settings.database,), kwargs=work)
        thread.start()
        wait_until(is_begun)
        stopping.set()
        thread.join(60)
        yield client


def test_what_is_done_is_shown_as_such_before_the_comparison_is_finished(partial: TestClient) -> None:
    done = len(partial.get("/api/v1/comparisons/1/slices").json()["slices"])
    assert 0 < done < 6
    found = partial.get("/api/v1/comparisons/1").json()
    assert (found["state"], found["summary"]["id"]) == ("queued", "summary.nothing_yet")
    text = page(partial, "/c/1")
    assert f"{done}-of-6-slices" in stated(text)
    assert 'class="so-far' in text
    assert len(re.findall(r'class="cell-link v-', text)) == done
    assert len(re.findall(r'class="cell-link is-pending"', text)) == 6 - done
    assert layers(partial, 1)["expected"] == 6
    assert len(layers(partial, 1)["rows"]) == done
    partial.post("/c/1/cancel", headers={"content-type": "application/x-www-form-urlencoded"})
    text = page(partial, "/c/1")
    assert "cancelled" in stated(text)
    assert 'class="so-far' in text
    assert "is-pending" not in text


@pytest.mark.parametrize(
    ("golden", "target", "reason"),
    [
        ("llama12_golden_fp32", "atb12_bf16_bad", "reason.sum"),
        ("llama12_logits_golden", "llama12_logits_bad", "token.stands_out"),
        ("llama4_golden_fp32", "llama4_twoprompts", "input.other_length"),
    ],
)
def test_what_the_finding_says_is_not_said_again_below_it(
    tmp_path: Path, unpacked: Callable[[str], Path], golden: str, target: str, reason: str
) -> None:
    paths = {"golden": str(unpacked(f"msit/{golden}")), "target": str(unpacked(f"msit/{target}"))}
    settings = settings_from(roots=[Path("/")], data_dir=tmp_path)
    with worker(settings.database), TestClient(create_app(settings), base_url="http://localhost") as client:
        assert client.post("/api/v1/comparisons", json=paths).status_code == 201
        wait_until(lambda: not client.get("/api/v1/jobs?only_open=true").json()["jobs"])
        finding = page(client, "/c/1").split('id="part-finding"')[1].split("</section>")[0]
        report = (
            page(client, "/c/1/export?format=html").split('class="card finding')[1].split("</section>")[0]
        )
        summary = page(client, "/c/1/export?format=md").split("| ---")[0]
    texts = [html.unescape(re.sub(r"<[^>]*>|\\", "", text)) for text in (finding, report, summary)]
    times = [len(re.findall(like(reason).replace(r"\ ", r"\s+"), text)) for text in texts]
    assert times == [1, 1, 1]


def test_agreement_says_of_how_many_positions_and_the_next_token_of_which(client: TestClient) -> None:
    text = " ".join(page(client, f"/c/{TOKENS}").split())
    (positions,) = re.findall(r'title="[0-9.]+">[0-9.]+ %</data> of (\d+) positions?</dd>', text)
    (node,) = re.findall(
        r'<dl class="facts inline"> <div> <dt>[^<]*</dt> <dd><a class="name" href="([^"]*)"', text
    )
    shape = client.get(node.replace("tree?row=", "n/") + ".json").json()["pairs"][-1]["golden"]["shape"]
    assert int(positions) == math.prod(shape[:-1])


def test_the_finding_shows_error_in_and_out_against_the_limit_and_what_to_dump_next(
    client: TestClient,
) -> None:
    of_statistics, of_tokens = (page(client, f"/c/{comparison}") for comparison in (STATISTICS, TOKENS))
    for text in (of_statistics, of_tokens):
        picture = re.search(r'<figure class="evidence".*?</figure>', text, re.DOTALL)
        assert picture is not None
        assert picture[0].count('class="beyond"') >= 1
        assert picture[0].count('class="limit"') == picture[0].count("The line is")
    assert 'data-says="evidence-limit-weight"' in of_statistics
    assert 'data-says="evidence-limit-output"' in of_tokens
    config = re.search(r'<pre id="capture-config"[^>]*>(.*?)</pre>', of_statistics, re.DOTALL)
    assert config is not None
    assert json.loads(unescape(config[1]))["task"] == "tensor"
    assert "capture-config" not in of_tokens  # whose values were saved


def test_an_argument_of_an_operator_has_its_name_on_the_page(client: TestClient) -> None:
    selected = client.get(f"/c/{STATISTICS}/s/0/tree/rows?count=1").json()["selected"]
    pairs = client.get(f"/c/{STATISTICS}/s/0/n/{selected}.json").json()["pairs"]
    assert {pair["target"]["label"]: pair["argument"] for pair in pairs} == {
        "input.0": "input",
        "input.1": "weight",
        "output.0": "",
    }


def test_the_page_of_the_first_bad_node_says_its_own_limit(client: TestClient) -> None:
    pages = [
        page(client, f"/c/{TOKENS}/s/{position}/n/{row}") for position, row in first_bad_and_next(client)
    ]
    assert ["its limit of" in text for text in pages] == [True, False]


def first_bad_and_next(client: TestClient) -> list[tuple[int, int]]:
    address = re.search(r"/c/\d+/s/(\d+)/tree\?row=(\d+)", page(client, f"/c/{TOKENS}"))
    assert address is not None
    position, row = map(int, address.groups())
    return [(position, row), (position, row + 1)]


def test_points_of_a_picture_are_named_in_plain_text(client: TestClient) -> None:
    for comparison in (STATISTICS, TOKENS):
        labels = re.findall(r'class="point[^"]*"[^>]*aria-label="([^"]*)"', page(client, f"/c/{comparison}"))
        assert labels
        assert not [label for label in labels if "data" in label or "&lt;" in label]


def test_every_class_that_is_shown_has_a_word_and_a_look_in_charts(client: TestClient) -> None:
    words = re.search(r'id="chart-words">(.*?)</script>', page(client, f"/c/{STATISTICS}"), re.DOTALL)
    assert words is not None
    shown = {*map(str, NodeClass), *SHOWN_ALONE}
    assert shown <= json.loads(words[1]).keys()
    looks = (
        (STATIC / "comparison" / "scatter.js").read_text("utf-8").split("const LOOKS = {")[1].split("};")[0]
    )
    assert shown - {"unmatched"} == set(re.findall(r'^  "?([a-z -]+?)"?:', looks, re.MULTILINE))
