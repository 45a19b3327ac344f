"""What the form for a new comparison offers: pairs that lie together, and what paths are understood."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from messages import stated

from firstdrift.dumps.detect import open_dump
from firstdrift_server.app import create_app
from firstdrift_server.questions.folders import Entry, path_meant
from firstdrift_server.questions.pairs import pairs_of
from firstdrift_server.settings import settings_from

HTML = {"accept": "text/html"}
Place = Callable[[str, int], Path]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


@pytest.fixture
def place(root: Path, unpacked: Callable[[str], Path]) -> Place:
    """Put a real dump somewhere under the root, made at a time."""

    def put(name: str, time: int) -> Path:
        where = root / name
        shutil.copytree(unpacked("msprobe/llama_stat_mix_perturb") / "golden", where)
        os.utime(where, (time, time))
        return where

    return put


@pytest.fixture
def form(root: Path, tmp_path: Path) -> Iterator[TestClient]:
    app = create_app(settings_from(roots=[root], data_dir=tmp_path / "data"))
    with TestClient(app, base_url="http://localhost", follow_redirects=False) as client:
        yield client


def view(client: TestClient, **fields: str) -> Any:  # noqa: ANN401
    return client.get("/new.json", params=fields).json()


def pairs(client: TestClient) -> list[str]:
    names = ("folder", "golden_name", "target_name")
    return ["{} {} {}".format(*(pair[name] for name in names)) for pair in view(client)["pairs"]]


def test_dumps_that_lie_together_are_offered_as_pairs_the_latest_first(
    form: TestClient, place: Place
) -> None:
    for name, time in (
        ("monday/golden", 1000),
        ("monday/target", 1100),
        ("tuesday/llama_gpu_bf16", 3000),
        ("tuesday/llama_npu_bf16", 3100),
        ("alone/run", 9000),
        ("plain/first", 2000),
        ("plain/second", 2100),
        ("many/a", 5000),
        ("many/b", 5000),
        ("many/c", 5000),
    ):
        place(name, time)
    assert pairs(form) == [
        "tuesday llama_gpu_bf16 llama_npu_bf16",
        "plain first second",
        "monday golden target",
    ]


def test_one_address_chooses_both_dumps_of_a_pair(form: TestClient, place: Place) -> None:
    golden, target = place("golden", 1000), place("target", 2000)
    page = unescape(form.get("/new", headers=HTML).text)
    (pair,) = view(form)["pairs"]
    assert f'href="{pair["choose"]}"' in page
    chosen = form.get(pair["choose"].replace("/new?", "/new.json?")).json()
    assert [side["path"] for side in chosen["sides"]] == [str(golden), str(target)]
    assert [one["is_chosen"] for one in chosen["pairs"]] == [True]
    assert f"firstdrift compare {golden} {target}" in chosen["command"]
    turned = form.get(chosen["swapped"].replace("/new?", "/new.json?")).json()
    assert [side["path"] for side in turned["sides"]] == [str(target), str(golden)]


def test_pairs_are_found_in_a_root_that_looks_like_a_run_itself(
    form: TestClient, place: Place, root: Path, unpacked: Callable[[str], Path]
) -> None:
    place("fault/golden", 1000)
    place("fault/target", 1000)
    shutil.copytree(unpacked("msit/llama4_golden_fp32"), root / "run")
    assert open_dump(root).format == "msit-torch"
    assert pairs(form) == ["fault golden target"]


def test_a_dump_in_a_folder_that_is_called_golden_is_one_of_a_pair(form: TestClient, place: Place) -> None:
    place("fault/golden/dump_path", 1000)
    place("fault/target/dump_path", 1000)
    (pair,) = view(form)["pairs"]
    assert pair["golden"].endswith("fault/golden/dump_path")
    assert pair["target"].endswith("fault/target/dump_path")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("golden", "target"), [("golden", "target")]),
        (("run_before", "run_after"), [("run_before", "run_after")]),
        (("bench", "npu"), [("bench", "npu")]),
        (("cpu", "gpu", "npu"), [("cpu", "gpu"), ("cpu", "npu"), ("gpu", "npu")]),
        (("baseline", "run1", "run2"), [("baseline", "run2"), ("baseline", "run1")]),
        (("llama4_golden_fp32", "llama4_perturb"), [("llama4_golden_fp32", "llama4_perturb")]),
        (("golden", "target1", "golden2", "target2"), [("golden2", "target2"), ("golden", "target1")]),
        (("x", "y"), [("x", "y")]),
        (("x", "y", "z"), []),
        (("tp1-golden", "tp2-golden"), [("tp1-golden", "tp2-golden")]),
    ],
)
def test_names_say_which_dump_is_the_golden_one(
    names: tuple[str, ...], expected: list[tuple[str, str]]
) -> None:
    dumps = [
        Entry(name, f"/data/{name}", is_folder=True, format="msprobe", changed_at=float(time))
        for time, name in enumerate(names)
    ]
    found = [(pair.golden.name, pair.target.name) for pair in pairs_of(dumps)]
    assert found == expected


def test_dumps_of_two_formats_are_a_pair_only_by_their_names() -> None:
    one = Entry("x", "/data/x", is_folder=True, format="msprobe")
    other = Entry("y", "/data/y", is_folder=True, format="msit-torch")
    assert pairs_of([one, other]) == []
    named = [replace(one, name="golden"), replace(other, name="target")]
    assert [(pair.golden.name, pair.target.name) for pair in pairs_of(named)] == [("golden", "target")]


def test_links_that_lead_out_of_the_roots_are_no_pairs(
    form: TestClient, root: Path, tmp_path: Path, unpacked: Callable[[str], Path]
) -> None:
    shutil.copytree(unpacked("msprobe/llama_stat_mix_perturb"), tmp_path / "secret")
    (root / "link").symlink_to(tmp_path / "secret")
    assert pairs(form) == []


def test_paths_as_pages_write_them_are_understood(form: TestClient, root: Path, place: Place) -> None:
    golden = place("deep/down/golden", 1000)
    for written, at in (
        ("deep/down/golden", ""),
        ("runs/deep/down/golden", ""),
        ("golden", str(golden.parent)),
        ("./deep/down/golden", ""),
        (f" {golden} ", ""),
    ):
        side = view(form, golden=written, golden_at=at or str(root))["sides"][0]
        assert (side["path"], side["problem"]) == (str(golden), None), written
    lost = view(form, golden="deep/gone")["sides"][0]
    assert (lost["where"], lost["entry"]) == (f"{root}/deep/gone", None), "it is said where it was looked for"
    outside = view(form, golden="../data/firstdrift.db")["sides"][0]
    assert outside["entry"] is None
    assert outside["problem"]["id"] == "paths.outside"


def test_a_comparison_is_made_of_paths_as_pages_write_them(
    form: TestClient, root: Path, place: Place
) -> None:
    place("deep/golden", 1000)
    place("deep/target", 1000)
    made = form.post("/new", data={"golden": "deep/golden", "target": "target", "target_at": f"{root}/deep"})
    assert made.status_code == 303
    shown = form.get(f"{made.headers['location']}.json").json()
    assert [shown[side]["path"] for side in ("golden", "target")] == [
        f"{root}/deep/{s}" for s in ("golden", "target")
    ]
    place("other/deep/golden", 1000)
    page = view(form, target="deep/golden")
    assert page["sides"][1]["path"] == f"{root}/deep/golden", "nearest to the root"


def test_the_end_of_a_path_that_was_compared_is_understood(form: TestClient, place: Place) -> None:
    golden, target = place("a/b/c/golden", 1000), place("a/b/c/target", 1000)
    form.post("/api/v1/comparisons", json={"golden": str(golden), "target": str(target)})
    assert view(form, golden="c/golden")["sides"][0]["path"] == str(golden)


def test_of_a_folder_with_several_dumps_each_is_one_click(form: TestClient, root: Path, place: Place) -> None:
    dumps = [place(f"several/step{number}run/inner", 1000) for number in (1, 2)]
    side = view(form, golden=f"{root}/several")["sides"][0]
    assert [one["path"] for one in side["inside"]] == list(map(str, dumps))
    assert [one["name"] for one in side["inside"]] == ["step1run/inner", "step2run/inner"]
    page = form.get("/new", params={"golden": f"{root}/several"}, headers=HTML).text
    assert "dumps-inside" in stated(page)
    chosen = form.get(side["inside"][1]["choose"].replace("/new?", "/new.json?")).json()
    assert chosen["sides"][0]["path"] == str(dumps[1])


def test_the_other_side_opens_where_the_first_was_chosen(form: TestClient, root: Path, place: Place) -> None:
    golden = place("deep/golden", 1000)
    place("deep/other", 1000)
    shown = view(form, golden_at=f"{root}/deep", target_at=str(root))["sides"][0]
    choose = shown["addresses"][str(golden)]["choose"]
    sides = form.get(choose.replace("/new?", "/new.json?")).json()["sides"]
    assert [side["at"] for side in sides] == [f"{root}/deep"] * 2


def test_what_of_the_options_was_changed_is_said(form: TestClient) -> None:
    assert view(form)["changed"] == {}
    usual = {"token_offset": "0", "rules": "firstdrift", "structure": "yes", "structure_box": "1"}
    assert view(form, **usual)["changed"] == {}
    fields = {"rules": "msit", "token": "3", "structure_box": "1", "fuzzy_box": "1", "fuzzy": "yes"}
    said = {"rules": "msit", "token": "3", "structure": "no", "fuzzy": "yes"}
    assert view(form, **fields)["changed"] == said


def test_without_a_root_a_path_stays_as_it_was_written() -> None:
    assert path_meant((), "runs/golden") == "runs/golden"
