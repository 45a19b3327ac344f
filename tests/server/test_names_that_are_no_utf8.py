"""Names in GBK, as many Chinese disks have them, work like any other: listed, chosen, compared, exported."""

import io
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from html import unescape
from pathlib import Path
from urllib.parse import quote_from_bytes

import numpy as np
import openpyxl
import pytest
from fastapi.testclient import TestClient
from working import wait_until, worker

from firstdrift.paths import spelt
from firstdrift_server.app import create_app
from firstdrift_server.settings import settings_from

HTML = {"accept": "text/html"}
TESTS = os.fsdecode("测试".encode("gbk"))
GOLDEN, TARGET = (os.fsdecode(f"{name}转储".encode("gbk")) for name in ("标准", "被测"))
LAYER = os.fsdecode("層誠x5b".encode("gbk"))
"""The second byte of one of these is a backslash."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, unpacked: Callable[[str], Path]) -> Path:
    """A root whose name is GBK, with a real dump of msprobe and a plain one, twice each."""
    root = tmp_path_factory.mktemp("names") / TESTS
    real = unpacked("msprobe/llama_stat_mix_perturb")
    shutil.copytree(real / "golden", root / GOLDEN)
    shutil.copytree(real / "target", root / TARGET)
    for number, side in enumerate((GOLDEN, TARGET)):
        plain = root / "plain" / side / LAYER
        plain.mkdir(parents=True)
        np.save(plain / f"{TESTS}.npy", np.arange(12, dtype=np.float32) + number)
    return root


@pytest.fixture(scope="module")
def client(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A server that keeps its own files, too, below a folder of such a name."""
    settings = settings_from(roots=[root], data_dir=tmp_path_factory.mktemp("data") / TESTS)
    app = create_app(settings)
    with (
        worker(settings.database),
        TestClient(app, base_url="http://localhost", follow_redirects=False) as client,
    ):
        yield client


def addresses(page: str) -> list[str]:
    return [unescape(found) for found in re.findall(r'href="(/[^"]*)"', page)]


def entry(client: TestClient, folder: Path, name: str) -> Mapping[str, str]:
    listed = client.get("/api/v1/browse", params={"path": spelt(folder)}).json()["entries"]
    return next(one for one in listed if one["name"] == spelt(name))


def compared(client: TestClient, golden: str, target: str) -> int:
    made = client.post("/api/v1/comparisons", json={"golden": golden, "target": target})
    assert made.status_code == 201, made.text
    number: int = made.json()["id"]
    wait_until(lambda: not client.get(f"/api/v1/comparisons/{number}").json()["job"]["is_open"])
    return number


@pytest.fixture(scope="module")
def comparison(client: TestClient, root: Path) -> int:
    chosen = [entry(client, root, name)["path"] for name in (GOLDEN, TARGET)]
    return compared(client, *chosen)


@pytest.fixture(scope="module")
def plain(client: TestClient, root: Path) -> int:
    chosen = [entry(client, root / "plain", name)["path"] for name in (GOLDEN, TARGET)]
    return compared(client, *chosen)


def test_folders_are_listed_readably_and_chosen_from_the_form(client: TestClient, root: Path) -> None:
    page = client.get("/new", headers=HTML)
    assert page.status_code == 200
    assert r"\xb1\xea" in page.text  # how "golden" begins in GBK
    known = client.get("/new.json").json()["sides"][0]
    (golden,) = (one for one in known["folder"]["entries"] if one["name"] == spelt(GOLDEN))
    assert golden["format"] == "msprobe"
    chosen = client.get(
        f"{known['addresses'][golden['path']]['choose']}", headers={"accept": "application/json"}
    )
    assert chosen.json()["sides"][0]["entry"]["path"] == spelt(root / GOLDEN)
    assert chosen.json()["sides"][0]["problem"] is None
    opened = client.get(
        known["addresses"][golden["path"]]["open"], headers={"accept": "application/json"}
    ).json()
    assert [one["name"] for one in opened["sides"][0]["folder"]["above"]] == [spelt(root), spelt(GOLDEN)]


def test_the_form_starts_a_comparison_with_what_it_shows(client: TestClient, root: Path) -> None:
    shown = {"golden": spelt(root / GOLDEN), "target": spelt(root / TARGET)}
    page = client.get("/new", params=shown, headers=HTML).text
    assert all(f'value="{path}"' in page for path in shown.values())
    assert f"firstdrift compare $'{spelt(root / GOLDEN)}' $'{spelt(root / TARGET)}'" in unescape(page)
    made = client.post("/new", data=shown)
    assert made.status_code == 303
    answer = client.get(f"/api{made.headers['location'].replace('/c/', '/v1/comparisons/')}").json()
    assert answer["golden"]["path"] == spelt(root / GOLDEN)


@pytest.mark.parametrize("spelling", ["as it is shown", "as bytes in the address", "as JSON has it"])
def test_scripts_may_name_a_path_in_any_way_that_keeps_its_bytes(
    client: TestClient, root: Path, spelling: str
) -> None:
    golden, target = root / GOLDEN, root / TARGET
    if spelling == "as bytes in the address":
        answer = client.get(f"/api/v1/browse?path={quote_from_bytes(os.fsencode(root))}")
        form = (
            f"golden={quote_from_bytes(os.fsencode(golden))}&target={quote_from_bytes(os.fsencode(target))}"
        )
        headers = {"content-type": "application/x-www-form-urlencoded"}
        assert client.post("/new", content=form, headers=headers).status_code == 303
    elif spelling == "as JSON has it":
        made = json.dumps({"golden": str(golden), "target": str(target)})  # "\udcb2"
        headers = {"content-type": "application/json"}
        assert client.post("/api/v1/comparisons", content=made, headers=headers).status_code == 201
        return
    else:
        answer = client.get("/api/v1/browse", params={"path": spelt(root)})
    assert answer.json()["itself"]["path"] == spelt(root)


def test_a_name_that_looks_like_a_spelling_is_itself_where_it_is_there(
    client: TestClient, root: Path
) -> None:
    (root / r"looks\xb2\xe2").mkdir(exist_ok=True)
    answer = client.get("/api/v1/browse", params={"path": f"{spelt(root)}/looks\\xb2\\xe2"})
    assert answer.status_code == 422  # of a path some of which is spelt, all is
    answer = client.get("/api/v1/browse", params={"path": spelt(root / r"looks\xb2\xe2")})
    assert answer.json()["itself"]["name"] == r"looks\xb2\xe2"


@pytest.mark.parametrize("which", ["comparison", "plain"])
def test_every_page_of_a_comparison_shows_it(
    client: TestClient, request: pytest.FixtureRequest, which: str
) -> None:
    number = request.getfixturevalue(which)
    answer = client.get(f"/api/v1/comparisons/{number}").json()
    assert answer["job"]["error"] is None
    assert answer["counts"]["pairs"] > 0
    assert answer["counts"]["error"] > answer["counts"]["incomparable"]
    parts = ("", "/rules", "/share", "/s/0/tree", "/s/0/unmatched", "/s/0/match", "/s/0/n/0")
    waiting = [*(f"/c/{number}{part}" for part in parts), "/", "/?show=dumps", "/board", "/new"]
    seen = set()
    while waiting and len(seen) < 60:
        address = waiting.pop(0).partition("#")[0]
        if address in seen or address.startswith(("/static", "/login", "/openapi")):
            continue
        seen.add(address)
        page = client.get(address, headers=HTML)
        assert page.status_code in (200, 303), (address, page.text[:500])
        page.content.decode()
        assert "\ufffd" not in page.text, address
        waiting += [each for each in addresses(page.text) if "/export" not in each]
        if page.status_code == 303:
            waiting.append(page.headers["location"])


@pytest.mark.parametrize("which", ["comparison", "plain"])
def test_every_export_can_be_read(client: TestClient, request: pytest.FixtureRequest, which: str) -> None:
    number = request.getfixturevalue(which)
    for written in ("csv", "json", "html", "md", "layer_mapping", "data_mapping", "view_mapping", "xlsx"):
        for columns in ("firstdrift", "msit", "msprobe"):
            answer = client.get(f"/api/v1/comparisons/{number}/export?format={written}&columns={columns}")
            assert answer.status_code == 200, (written, answer.text)
            if written == "xlsx":
                assert zipfile.ZipFile(io.BytesIO(answer.content)).testzip() is None
                book = openpyxl.load_workbook(io.BytesIO(answer.content))
                assert any(sheet.max_row > 1 for sheet in book.worksheets)
            else:
                text = answer.content.decode()
                assert "\ufffd" not in text
                if written == "json":
                    assert json.loads(text)["golden"]["path"].startswith("/")


def test_names_of_tensors_come_from_the_names_of_their_files(client: TestClient, plain: int) -> None:
    rows = client.get(f"/api/v1/comparisons/{plain}/slices/0/rows").json()
    assert spelt(TESTS) in json.dumps(rows, ensure_ascii=False).replace(r"\\", "\\")


def test_a_dump_alone_is_read_and_found_again(client: TestClient, root: Path) -> None:
    path = spelt(root / "plain" / GOLDEN)
    assert client.get("/dumps", params={"path": path}).status_code in (200, 303)
    sent = client.post("/dumps", data={"path": path, "computes": "yes"})
    assert sent.status_code == 303
    known = lambda: client.get("/api/v1/dumps", params={"path": path}).json()  # noqa: E731 (asked twice)
    wait_until(lambda: not known()["is_live"] and known()["address"] is not None)
    assert client.get(known()["address"], headers=HTML).status_code == 200
    assert client.get(f"{known()['address']}/s/0/n/0", headers=HTML).status_code == 200
    listed = client.get(
        "/?show=dumps.json&q=x", params={"show": "dumps", "q": path}, headers={"accept": "application/json"}
    )
    assert [dump["path"] for dump in listed.json()["dumps"]] == [path]
    found = client.get("/api/v1/comparisons", params={"q": spelt(root / GOLDEN)}).json()["comparisons"]
    assert {one["golden"]["path"] for one in found} == {spelt(root / GOLDEN)}
