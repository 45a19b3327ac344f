"""What pages say of ranks that were merged."""

from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from messages import says
from working import wait_until, worker

from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of
from firstdrift_server.app import create_app
from firstdrift_server.settings import settings_from

HTML = {"accept": "text/html"}
CASES = [
    ("whole_data", "fault_in_shard_data", {}),
    ("whole", "stages", {}),
    ("whole_data", "fault_in_shard_data", {"rank": 0}),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, unpacked: Callable[[str], Path]) -> Iterator[TestClient]:
    dumps = unpacked("msprobe/ranks")
    settings = settings_from(roots=[dumps], data_dir=tmp_path_factory.mktemp("data"))
    with (
        worker(settings.database),
        TestClient(create_app(settings), base_url="http://localhost", follow_redirects=False) as client,
    ):
        for golden, target, chosen in CASES:
            asked = {"golden": str(dumps / golden), "target": str(dumps / target), **chosen}
            assert client.post("/api/v1/comparisons", json=asked).status_code == 201
        wait_until(lambda: not client.get("/api/v1/jobs?only_open=true").json()["jobs"])
        yield client


def page(client: TestClient, address: str) -> str:
    answer = client.get(address, headers=HTML)
    assert answer.status_code == 200, answer.text
    return unescape(answer.text)


def test_the_comparison_says_which_ranks_were_merged_and_on_which_it_began(client: TestClient) -> None:
    said = page(client, "/c/1")
    assert "0+1" in said
    assert text_of(Message.of("rank.began", rank=0)) in said


def test_the_tree_and_the_nodes_of_merged_ranks_are_pages_like_others(client: TestClient) -> None:
    for comparison in (1, 2):
        assert "0+1" in page(client, f"/c/{comparison}/s/0/tree?unfold=all")
    bad = client.get("/api/v1/comparisons/1").json()["first_bad_node"]
    assert (bad["rank"], bad["ranks"], bad["module"]) == (0, [0, 1], "model.layers.1.mlp.up")
    rows = range(12)
    nodes = [page(client, f"/c/1/s/0/n/{row}") for row in rows]
    assert any(says(node, "matching.transform.ranks_joined") for node in nodes)


def test_a_node_of_another_stage_says_its_rank_where_its_name_was_taken(client: TestClient) -> None:
    assert "(rank 1)" in page(client, "/c/2/s/0/tree?unfold=all")


def test_what_one_rank_holds_is_said_on_its_node_and_the_values_of_a_part_are_not_drawn(
    client: TestClient,
) -> None:
    bad = client.get("/api/v1/comparisons/3").json()["first_bad_node"]
    assert (bad["rank"], bad["module"]) == (0, "model.layers.1.mlp.up")
    nodes = [page(client, f"/c/3/s/0/n/{row}") for row in range(30)]
    parts = [row for row, node in enumerate(nodes) if says(node, "matching.transform.part_of_rank")]
    assert parts
    assert any(says(node, "metrics.addend") for node in nodes)
    shown = page(client, f"/c/3/s/0/n/{parts[0]}?tensor=output.0")
    assert says(shown, "closeup.part_of_rank")
