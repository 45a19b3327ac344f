"""The form for a new comparison: what is recent, what the options mean, the command that does the same."""

import io
import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from gettext import NullTranslations
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest
from fastapi.testclient import TestClient
from messages import like, says, stated

from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of
from firstdrift_frontend.rendering import moment
from firstdrift_server.app import create_app
from firstdrift_server.settings import settings_from

HTML = {"accept": "text/html"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with dumps made at other times than their names say."""
    root = tmp_path / "root"
    for time, name in ((3000, "run2"), (1000, "run10"), (2000, "run1")):
        (root / name).mkdir(parents=True)
        os.utime(root / name, (time, time))
    return root


@pytest.fixture
def form(root: Path, tmp_path: Path) -> Iterator[TestClient]:
    app = create_app(settings_from(roots=[root], data_dir=tmp_path / "data"))
    with TestClient(app, base_url="http://localhost", follow_redirects=False) as client:
        yield client


def listed(client: TestClient, query: str) -> list[str]:
    sides = client.get(f"/new.json?{query}").json()["sides"]
    return [entry["name"] for entry in sides[0]["folder"]["entries"]]


def test_folders_are_listed_with_the_newest_first_or_by_name(form: TestClient) -> None:
    assert listed(form, "") == ["run2", "run1", "run10"]
    assert listed(form, "order=name") == ["run1", "run2", "run10"]
    page = unescape(form.get("/new?note=kept", headers=HTML).text)
    assert "/new?note=kept&order=name" in page


def test_a_dump_that_is_listed_can_be_looked_at_alone(
    client: TestClient, dumps: Mapping[str, tuple[Path, Path]]
) -> None:
    golden, target = dumps["renamed"]
    page = unescape(client.get("/new", params={"golden_at": str(golden.parent)}, headers=HTML).text)
    for dump in (golden, target):
        address = f"/dumps?{urlencode({'path': str(dump)})}"
        assert f'href="{address}"' in page
        assert client.get(address).headers["location"].startswith("/dumps/")


def test_what_was_compared_or_uploaded_last_can_be_chosen_at_once(
    client: TestClient, dumps: Mapping[str, tuple[Path, Path]]
) -> None:
    recent = client.get("/new.json").json()["sides"][0]["recent"]
    assert [one["path"] for one in recent] == [
        *map(str, dumps["damaged"]),
        *map(str, dumps["tokens"]),
        *map(str, dumps["renamed"]),
    ]
    assert len({one["name"] for one in recent}) == len(recent), "each can be told from the others"
    assert recent[0]["choose"] in unescape(client.get("/new", headers=HTML).text)


def test_uploads_are_a_root_of_their_own(form: TestClient, root: Path) -> None:
    assert form.get("/new.json").json()["roots"] == [str(root)]
    array = io.BytesIO()
    np.save(array, np.zeros(3))
    for name, content in (("a.npy", array.getvalue()), ("mapping.yaml", b"fc1.Dense: fc1.Linear")):
        listed = [{"path": name, "size": len(content)}]
        upload = form.post("/api/v1/uploads", json={"files": listed}).json()["id"]
        form.put(f"/api/v1/uploads/{upload}/files/0", content=content)
        assert form.post(f"/api/v1/uploads/{upload}/complete").status_code == 200
    view = form.get("/new.json").json()
    assert view["roots"] == [str(root), view["uploads"]]
    assert view["sides"][0]["at"] == str(root), "the operator's root is what is opened"
    assert [one["path"] for one in view["sides"][0]["recent"]] == [f"{view['uploads']}/a.npy"], "dumps only"
    top = form.get("/new?golden_at=", headers=HTML).text
    assert "uploads" in stated(top)


def test_sizes_of_a_spread_model_are_part_of_command_address_and_comparison(
    client: TestClient, dumps: Mapping[str, tuple[Path, Path]]
) -> None:
    golden, target = map(str, dumps["perturbed"])
    chosen = {"golden": golden, "target": target, "tp": "1:2", "pp": "2"}
    assert f"firstdrift compare {golden} {target} --tp 1:2 --pp 2" in client.get("/new", params=chosen).text
    assert says(client.get("/new", params=chosen | {"tp": "two"}).text, "matching.error.no_size")
    assert client.post("/api/v1/comparisons", json=chosen | {"vpp": "1:2:3"}).status_code == 422
    made = client.post("/api/v1/comparisons", json=chosen).json()
    page = unescape(client.get(made_address := f"/c/{made['id']}", headers=HTML).text)
    assert "--tp 1:2 --pp 2" in page
    assert "tp=1%3A2" in page
    client.post(f"{made_address}/delete", headers={"content-type": "application/x-www-form-urlencoded"})


def test_thresholds_that_are_moved_are_part_of_command_address_and_comparison(
    client: TestClient, dumps: Mapping[str, tuple[Path, Path]]
) -> None:
    golden, target = map(str, dumps["perturbed"])
    chosen = {"golden": golden, "target": target, "thresholds": "factor=4.5  floor=16"}
    said = "--threshold factor=4.5 --threshold floor=16"
    assert f"firstdrift compare {golden} {target} {said}" in client.get("/new", params=chosen).text
    assert says(client.get("/new", params=chosen | {"thresholds": "x=1"}).text, "thresholds.unknown")
    assert client.post("/api/v1/comparisons", json=chosen | {"thresholds": "factor"}).status_code == 422
    made = client.post("/api/v1/comparisons", json=chosen).json()["id"]
    page = unescape(client.get(f"/c/{made}", headers=HTML).text)
    assert said in page
    assert "thresholds=factor%3D4.5+floor%3D16" in page
    client.delete(f"/api/v1/comparisons/{made}")


def test_a_healthy_run_is_chosen_as_the_baseline(
    client: TestClient, dumps: Mapping[str, tuple[Path, Path]]
) -> None:
    (golden, target), other = dumps["tokens"], dumps["renamed"][0]
    known = client.get("/api/v1/comparisons").json()["comparisons"]
    healthy = next(one["id"] for one in known if one["golden"]["path"] == str(golden))
    chosen = {"golden": str(golden), "target": str(target)}
    assert [one["id"] for one in client.get("/new.json", params=chosen).json()["baselines"]] == [healthy]
    assert client.get("/new.json").json()["baselines"] == []
    chosen["baseline"] = str(healthy)
    page = client.get("/new", params=chosen, headers=HTML).text
    assert f'<option value="{healthy}" selected>' in page
    assert f"firstdrift compare {golden} {target} --baseline {target}" in page
    made = client.post("/api/v1/comparisons", json=chosen | {"baseline": healthy}).json()
    assert made["baseline"] == healthy
    assert f"baseline={healthy}" in unescape(client.get(f"/c/{made['id']}", headers=HTML).text)
    for wrong, why in (
        (chosen | {"golden": str(other)}, "catalogue.baseline.other_golden"),
        (chosen | {"baseline": "99"}, "catalogue.baseline.gone"),
    ):
        assert says(client.get("/new", params=wrong, headers=HTML).text, why)
        refused = client.post("/new", data=wrong, headers=HTML)
        assert (refused.status_code, says(refused.text, why)) == (422, True)
    client.delete(f"/api/v1/comparisons/{made['id']}")


def test_mapping_files_below_the_roots_are_read(
    form: TestClient, root: Path, unpacked: Callable[[str], Path], tmp_path: Path
) -> None:
    file = root / "cells.yaml"
    file.write_text("fc1.Dense: fc1.Linear\n")
    (tmp_path / "outside.yaml").write_text("fc1.Dense: fc1.Linear\n")
    chosen = {"golden": str(root), "target": str(root), "mapping": f"{file}\n"}
    assert f"--mapping {file}" in form.get("/new", params=chosen).text
    for mapping, said in (
        (f"{tmp_path}/outside.yaml", "paths.outside"),
        (f"{root}/none.yaml", "matching.mapping.not_read"),
        ("\n".join([str(file)] * 20), "server.many_mapping_files"),
    ):
        assert says(form.get("/new", params=chosen | {"mapping": mapping}).text, said)
    dumps = unpacked("msprobe/llama_stat_mix_perturb")
    with TestClient(create_app(settings_from(roots=[dumps, root], data_dir=tmp_path / "other"))) as client:
        client.base_url = "http://localhost"
        pair = {side: str(dumps / side) for side in ("golden", "target")}
        made = client.post("/api/v1/comparisons", json=pair | {"mapping": str(file)})
        assert made.status_code == 201, made.text
        assert client.post("/api/v1/comparisons", json=pair | {"mapping": "/etc/hosts"}).status_code == 404


def test_what_is_wrong_with_a_dump_is_said_once_at_its_field(form: TestClient, root: Path) -> None:
    fields = {"golden": f"{root}/gone", "target": "/etc/hosts"}
    for answer in (
        form.get("/new", params=fields, headers=HTML),
        form.post("/new", data=fields, headers=HTML),
    ):
        page = " ".join(unescape(re.sub(r"<(/?span|wbr)[^>]*>", "", answer.text)).split())
        for side, said in (
            ("golden", f"{root}/gone: {text_of(Message.of('dumps.nothing_here'))}"),
            ("target", f"/etc/hosts: {text_of(Message.of('paths.outside'))}"),
        ):
            assert page.count(said) == 1
            at_its_field = page.split(f'id="part-said-{side}"')[1].split("</div>")[0]
            assert said in at_its_field
            assert re.search(
                f'id="{side}" [^>]*aria-describedby="part-said-{side}" aria-invalid="true"', page
            )
        assert says(page, "server.check_path")
        assert says(page, "paths.hint")
        assert 'class="banner' not in page


def test_a_form_without_dumps_comes_back_with_that_at_its_fields(form: TestClient) -> None:
    answer = form.post("/new", data={"golden": "", "target": "", "token": "x"}, headers=HTML)
    page = unescape(answer.text)
    assert answer.status_code == 422
    for said in ("server.no_golden_chosen", "server.no_target_chosen", "server.no_integer"):
        assert len(re.findall(like(said), page, re.IGNORECASE)) == 1
    assert re.findall('id="([^"]*)"[^>]* autofocus', page) == ["golden"]
    assert not says(form.get("/new", headers=HTML).text, "server.no_golden_chosen")


def test_every_option_says_what_it_means(form: TestClient) -> None:
    page = form.get("/new", headers=HTML).text
    for name in (
        "rules",
        "level",
        "thresholds",
        "step",
        "rank",
        "token",
        "token_offset",
        "tp",
        "pp",
        "vpp",
        "mapping",
        "baseline",
        "note",
    ):
        assert f'aria-describedby="{name}-help"' in page
        assert f'id="{name}-help"' in page


def test_without_uploads_the_form_offers_none(root: Path, tmp_path: Path) -> None:
    app = create_app(settings_from(roots=[root], data_dir=tmp_path / "data", upload_quota=0))
    with TestClient(app, base_url="http://localhost") as client:
        assert "data-upload" not in client.get("/new", headers=HTML).text


def test_a_file_without_a_real_time_is_not_said_to_be_decades_old() -> None:
    known = NullTranslations()
    assert moment(known, datetime.fromtimestamp(0, UTC)) == "\N{EN DASH}"
    assert "days ago" in moment(known, datetime(1999, 12, 31, tzinfo=UTC))
