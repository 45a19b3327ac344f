"""A pair of tensors from near: as JSON, as a page without a script, as a sentence where there is nothing."""

import os
import re
import runpy
import time
from collections.abc import Callable, Iterator, Mapping
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from closeup_dumps import write_dumps
from fastapi.testclient import TestClient
from messages import stated
from working import wait_until, worker

from firstdrift.processes import children
from firstdrift_server.app import create_app
from firstdrift_server.node import closeup as closeup_views
from firstdrift_server.questions import closeup as closeups
from firstdrift_server.settings import settings_from

HTML = {"accept": "text/html"}
SLICE = "/api/v1/comparisons/1/slices/0"


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_dumps(tmp_path_factory.mktemp("dumps").resolve())


@pytest.fixture(scope="module")
def near(
    tmp_path_factory: pytest.TempPathFactory, changed: tuple[Path, Path], unpacked: Callable[[str], Path]
) -> Iterator[TestClient]:
    """A server with two comparisons: of tensors, and of statistics and call stacks."""
    statistics = unpacked("msprobe/llama_stat_mix_perturb")
    pairs = [changed, (statistics / "golden", statistics / "target")]
    roots = [dump for pair in pairs for dump in pair]
    settings = settings_from(roots=roots, data_dir=tmp_path_factory.mktemp("data"))
    app = create_app(settings)
    with (
        worker(settings.database),
        TestClient(app, base_url="http://localhost", follow_redirects=False) as client,
    ):
        for golden, target in pairs:
            made = client.post("/api/v1/comparisons", json={"golden": str(golden), "target": str(target)})
            assert made.status_code == 201, made.text
        wait_until(lambda: not client.get("/api/v1/jobs?only_open=true").json()["jobs"])
        yield client


def row_of(client: TestClient, path: str) -> int:
    found = client.get(f"{SLICE}/rows?unfold=all&count=1000").json()["rows"]
    return int(next(row["row"] for row in found if row["path"] == path))


def look(client: TestClient, path: str, query: str = "") -> dict[str, Any]:
    answer = client.get(f"{SLICE}/rows/{row_of(client, path)}/tensors/0?{query}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def said(found: Mapping[str, Any]) -> list[str]:
    return [hint["says"]["id"] for hint in found["hints"]]


def test_everything_is_in_one_answer(near: TestClient, changed: tuple[Path, Path]) -> None:
    found = look(near, "model.layers.0.mlp.act")
    golden, target = (np.load(dump / "model.layers.0.mlp.act.npy").astype("float64") for dump in changed)
    distance = np.abs(target - golden)
    assert (found["tensor"], found["shape"], found["reason"]) == ("output.0", [2, 6, 64], None)
    assert said(found) == ["hint.line"]
    assert found["relative_l2"] == pytest.approx(np.linalg.norm(target - golden) / np.linalg.norm(golden))
    assert len(found["worst"]) == 20
    worst = found["worst"][0]
    assert worst["distance"] == distance.max() == distance[tuple(worst["index"])]
    assert (found["axes"], found["at"]) == ([1, 2], worst["index"])
    assert np.array(found["map"]["cells"]) == pytest.approx(distance[worst["index"][0]], rel=1e-3)
    rows, columns = found["values"]["rows"], found["values"]["columns"]
    part = golden[worst["index"][0], slice(*rows), slice(*columns)]
    assert np.array_equal(found["values"]["golden"], part)
    assert sum(found["values_histogram"]["counts"][0]) == golden.size
    assert [profile["axis"] for profile in found["profiles"]] == [0, 1, 2]


def test_other_dimensions_and_another_place_are_chosen_by_the_address(
    near: TestClient, changed: tuple[Path, Path]
) -> None:
    found = look(near, "model.layers.0.mlp.act", "down=2&across=0&at=1,4,60&parts=map,values")
    assert (found["axes"], found["at"]) == ([2, 0], [1, 4, 60])
    assert found["map"]["size"] == [64, 2]
    assert found["values"]["rows"] == [55, 64]
    golden = np.load(changed[0] / "model.layers.0.mlp.act.npy")
    assert np.array_equal(found["values"]["golden"], golden[:, 4, 55:64].T)
    assert not found.keys() & {"worst", "profiles", "snippet"}
    beyond = look(near, "model.layers.0.mlp.act", "down=7&across=1&at=9&at=9&at=999&parts=values")
    assert (beyond["axes"], beyond["at"]) == ([2, 1], [1, 5, 63])


def test_heads_are_taken_from_the_address(near: TestClient) -> None:
    found = look(near, "model.layers.0.attn", "heads=4")
    assert (found["shape"], found["shapes"]) == ([6, 64], [[1, 6, 64], [6, 64]])
    assert said(found) == ["hint.with_detail", "hint.there"]
    assert found["hints"][0]["says"]["arguments"]["detail"]["id"] == "hint.head"
    by_head = found["profiles"][-1]
    assert (by_head["heads"], by_head["maximum"][0]) == (4, 0)
    assert by_head["maximum"][1] > 1
    (first, _) = look(near, "model.layers.0.attn")["hints"]
    assert first["says"]["arguments"]["detail"]["id"] == "hint.block"
    assert look(near, "model.embed", "heads=7")["heads"] is None


def test_tokens_that_moved_and_nan_are_named(near: TestClient) -> None:
    moved = look(near, "model.norm")
    assert said(moved) == ["hint.shifted_later"]
    found = look(near, "model.layers.0.mlp")
    assert said(found) == ["hint.non_finite", "hint.line"]
    assert found["worst"][0]["index"] == found["at"] == [1, 3, 5]
    assert (found["worst"][0]["target"], found["worst"][0]["distance"]) == ("NaN", "Infinity")
    assert found["map"]["cells"][3][5] == "Infinity"


def test_of_a_large_tensor_a_part_is_looked_at_and_that_is_said(near: TestClient) -> None:
    found = look(near, "model.layers.0.wide")
    assert found["every"] == 3
    assert found["seen"] < found["size"] == 1_200_000
    assert said(found) == ["hint.line"]
    assert len(found["map"]["cells"]) <= 256
    page = near.get(f"/c/1/s/0/n/{row_of(near, 'model.layers.0.wide')}?tensor=output.0", headers=HTML).text
    assert "every-3" in stated(page)


def test_the_page_has_it_all_without_a_script(near: TestClient) -> None:
    address = f"/c/1/s/0/n/{row_of(near, 'model.layers.0.mlp')}"
    plain = near.get(address, headers=HTML).text
    assert f'href="{address}?tensor=output.0#closeup"' in plain
    assert 'id="closeup-values"' not in plain
    page = unescape(near.get(f"{address}?tensor=output.0&at=0,0,2", headers=HTML).text)
    assert "= 1.9 " in page
    assert re.search(r'class="muted around">[^<]*\[0, 0, 2\]<', page)
    assert 'href="' + address + "?tensor=output.0&down=1&across=2&at=1%2C3%2C5#closeup" in page
    assert "output.0 values:" in page  # the Markdown that is copied
    data = near.get(f"{address}.json?tensor=output.0").json()
    assert [hint["kind"] for hint in data["closeup"]["hints"]] == ["non-finite", "scaled"]
    piece = near.get(f"{address}?closeup=true&tensor=output.0", headers=HTML).text
    assert piece.lstrip().startswith("<section")
    assert "<html" not in piece


def test_the_script_that_is_copied_runs(
    near: TestClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = look(near, "model.layers.0.attn")["snippet"]
    (tmp_path / "script.py").write_text(script)
    runpy.run_path(str(tmp_path / "script.py"))
    printed = capsys.readouterr().out
    assert "golden float32 (1, 6, 64)\ntarget float32 (6, 64)\n" in printed
    assert "not finite 0" in printed


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("tensor=output.9", 404),
        ("tensor=output.0&at=x", 422),
        ("tensor=output.0&at=-1", 422),
        ("tensor=output.0&heads=many", 422),
        ("tensor=output.0&down=1e3", 422),
        ("tensor=output.0&at=&heads=&down=&across=", 200),
    ],
)
def test_what_makes_no_sense_is_refused(near: TestClient, query: str, status: int) -> None:
    address = f"/c/1/s/0/n/{row_of(near, 'model.layers.1.mlp')}"
    assert near.get(f"{address}?{query}", headers=HTML).status_code == status


def test_a_tensor_or_a_part_that_is_not_there_is_not_found(near: TestClient) -> None:
    row = row_of(near, "model.layers.1.mlp")
    assert near.get(f"{SLICE}/rows/{row}/tensors/1").status_code == 404
    assert near.get(f"{SLICE}/rows/{row}/tensors/0?parts=all").status_code == 422
    assert near.get(f"{SLICE}/rows/99999/tensors/0").status_code == 404


def test_files_that_changed_or_went_since_are_said_to_have(
    near: TestClient, changed: tuple[Path, Path]
) -> None:
    name = "model.layers.1.mlp"
    assert said(look(near, name)) == ["hint.equal"]
    file = changed[1] / f"{name}.npy"
    content = file.read_bytes()
    later = time.time() + 60
    try:
        np.save(file, np.zeros((4, 8), "float32"))
        os.utime(file, (later, later))
        found = look(near, name)
        assert said(found) == ["hint.zero"]
        assert found["notes"][0]["id"] == "server.written_later"
        np.save(file, np.zeros((4, 9), "float32"))
        reason = look(near, name)["reason"]
        assert reason["id"] == "closeup.changed"
        assert (reason["arguments"]["now"], reason["arguments"]["then"]) == (36, 32)
        file.write_bytes(content[:100])
        assert look(near, name)["reason"]["arguments"]["file"] == "model.layers.1.mlp.npy"
        page = near.get(f"/c/1/s/0/n/{row_of(near, name)}?tensor=output.0", headers=HTML)
        assert "nothing-to-see" in stated(page.text)
        file.unlink()
        assert look(near, name)["reason"]["id"] == "closeup.unreadable"
        file.symlink_to("/etc/hostname")
        assert look(near, name)["reason"]["id"] == "closeup.unreadable"
    finally:
        file.unlink(missing_ok=True)
        file.write_bytes(content)


def test_what_was_seen_is_kept_while_the_files_stay_as_they_are(
    near: TestClient, changed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []
    original = closeups._look_closely

    def count(*arguments: Any) -> Any:  # noqa: ANN401 (whatever it is given)
        looked.append(arguments)
        return original(*arguments)

    monkeypatch.setattr(closeups, "_look_closely", count)
    context = near.app.state.context  # type: ignore[attr-defined]
    with context.reading() as session:
        *_, known = closeup_views._find(session, (1, 0, row_of(near, "model.embed")), None)
    for _ in range(2):
        closeups.look_at(known, closeups.Asked(heads=2), {"summary"})
    assert len(looked) == 1
    os.utime(changed[0] / "model.embed.npy", (1, 1))
    closeups.look_at(known, closeups.Asked(heads=2), {"summary"})
    assert len(looked) == 2


def test_no_more_than_two_are_looked_at_at_a_time(near: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "_WAIT_SECONDS", 0.01)
    free = near.app.state.context.looking._free  # type: ignore[attr-defined]
    with free, free:
        assert look(near, "model.embed")["reason"]["id"] == "processes.busy"
    assert look(near, "model.embed")["reason"] is None


def test_what_has_no_values_gets_a_sentence_instead_of_a_picture(near: TestClient) -> None:
    rows = "/api/v1/comparisons/2/slices/0/rows"
    found = near.get(f"{rows}?class=weights+differ").json()["rows"]
    row = next(row["row"] for row in found if row["class"] == "weights differ")
    found = near.get(f"{rows}/{row}/tensors/0").json()
    assert found["reason"]["id"] == "closeup.without_values"
    assert "broken.npy" in look(near, "model.embed.broken")["reason"]["text"]


def test_a_call_stack_shows_the_users_code_first(near: TestClient) -> None:
    rows = "/api/v1/comparisons/2/slices/0/rows"
    found = near.get(f"{rows}?unfold=all&start=20&count=10").json()["rows"]
    stacks = [near.get(f"{rows}/{row['row']}").json()["stacks"]["target"] for row in found]
    stack = next(stack for stack in stacks if stack["own"] and stack["library"])
    assert sorted(stack["own"] + stack["library"]) == sorted(stack["frames"])
    assert not any("torch/nn" in frame for frame in stack["own"])
    assert all("/" in frame for frame in stack["library"])
