"""The field for mapping files reads mapping files, and tells nobody what else lies on the disk."""

import json
import os
import time
from collections.abc import Callable, Iterator
from html import unescape
from http import HTTPStatus
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from messages import refuses, says
from msgspec.structs import replace

from firstdrift.comparison.compare import compare
from firstdrift.comparison.report import Options
from firstdrift.errors import PathOutsideRootsError, SettingsError
from firstdrift.exports.report_json import report_object
from firstdrift.matching.manual.mapping_files import LARGEST_FILE, read_mapping_text
from firstdrift.matching.manual.match_set_file import read_matches
from firstdrift.matching.plan import MatchingRules
from firstdrift.strict_json import to_json
from firstdrift.wording.text import texts_of
from firstdrift_server.app import create_app
from firstdrift_server.settings import settings_from

SECRET = "hunter2"  # noqa: S105 (what must not be seen)
MAPPINGS = Path(__file__).parents[1] / "mappings"
NO_MAPPINGS = {
    ".env": "DB_PASSWORD=hunter2\nTOKEN=hunter2\n",
    "export.yaml": "export TOKEN=hunter2",
    "id_rsa": "-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2hunter2hunter2\n-----END KEY-----\n",
    "id.yaml": "-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2hunter2: hunter2\n-----END KEY-----\n",
    "passwd": "root:x:0:0:hunter2:/root:/bin/sh\nhunter2:x:1:1::/:/bin/sh\n",
    "passwd.yaml": "hunter2: x: 0\n",
    "settings.yaml": "database: postgres\nuser: hunter2\nanswer: hunter2\n",
    "nested.yaml": "database:\n  host: localhost\n  code: hunter2\n",
    "capital.yaml": "Database:\n  host: localhost\n  code: hunter2\n",
    "words.yaml": "MySQL:\n  password: hunter2\n",
    "api.yaml": "GitHub:\n  api_key: hunter2\n",
    "mixed.yaml": "MLP:\n  a: b\nhunter2: hunter2\n",
    "list.yaml": "- hunter2\n- b\n",
    "text.yaml": "hunter2",
    "lists.yaml": "users: [hunter2, b]\n",
    "deep.yaml": "a: {b: {c: {d: {e: hunter2}}}}\n",
    "deep2.yaml": "TopLayer:\n  hunter2:\n    - hunter2\n",
    "alias.yaml": "a: &hunter2 b\nc: *hunter2\n",
    "tag.yaml": "a: !hunter2 b\n",
    "twice.yaml": "hunter2: b\nhunter2: c\n",
    "empty.yaml": "hunter2:\n",
    "dotted.yaml": "spring.datasource.password: hunter2\n",
    "url.yaml": "TopLayer:\n  a: https://hunter2@example.org/\n",
    "tensor.yaml": "Functional.add.0.forward.input.0: hunter2\n",
    "types.json": '{"Name": ["hunter2"]}',
    "flat.json": '{"name": "hunter2", "other": "b"}',
    "deep.json": '{"a": {"b": {"c": "hunter2"}}}',
    "cut.json": '{"a": "hunter2',
    "config.json": '{"auths": {"example": {"auth": "hunter2"}}}',
    "odd.json": '{"firstdrift_match_set": "hunter2"}',
    "tabs.yaml": "a:\t- hunter2\n\tb: hunter2\n",
    "op_mapping_file.json": '{"PASSWORD": ["hunter2"]}',
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root in which somebody keeps secrets, and beside which there are some."""
    top = tmp_path_factory.mktemp("mappings").resolve()
    folder = top / "root"
    folder.mkdir()
    for name, text in NO_MAPPINGS.items():
        (folder / name).write_text(text)
    (top / "outside").mkdir()
    (top / "outside/secret.yaml").write_text("fc1.Dense: hunter2.Linear\n")
    (folder / "folder").mkdir()
    (folder / "folder/op_mapping_file.json").symlink_to(top / "outside/secret.yaml")
    (folder / "link").symlink_to(top / "outside")
    (folder / "link.yaml").symlink_to(top / "outside/secret.yaml")
    (folder / "absolute").mkdir()
    (folder / "absolute/op_mapping_file.json").symlink_to("/etc/passwd")
    (folder / "golden").mkdir()
    return folder


@pytest.fixture(scope="module")
def client(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    app = create_app(settings_from(roots=[root], data_dir=tmp_path_factory.mktemp("data")))
    with TestClient(app, base_url="http://localhost", follow_redirects=False) as client:
        yield client


@pytest.fixture(scope="module")
def dump(unpacked: Callable[[str], Path], root: Path) -> Path:
    """A real dump below the root."""
    packed = unpacked("msprobe/d4_renamed") / "golden"
    for file in packed.rglob("*"):
        if file.is_file():
            place = root / "golden" / file.relative_to(packed)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.read_bytes())
    return root / "golden"


def answers(client: TestClient, dump: Path, mapping: Path | str) -> Iterator[tuple[int, str]]:
    """Ask for a comparison with a mapping in every way there is, and read what is said of it afterwards."""
    chosen = {"golden": str(dump), "target": str(dump), "mapping": str(mapping)}
    made = client.post("/api/v1/comparisons", json=chosen)
    yield made.status_code, made.text
    posted = client.post("/new", data=chosen)
    yield posted.status_code, unescape(posted.text)
    if made.status_code == HTTPStatus.CREATED:
        for address in (f"/api/v1/comparisons/{made.json()['id']}", f"/c/{made.json()['id']}"):
            yield HTTPStatus.OK, unescape(client.get(address).text)
    yield HTTPStatus.NOT_FOUND, unescape(client.get("/new", params=chosen).text)


@pytest.mark.parametrize("name", NO_MAPPINGS)
def test_what_is_no_mapping_is_refused_without_a_word_of_it(
    client: TestClient, dump: Path, root: Path, name: str
) -> None:
    found = list(answers(client, dump, root / name))
    assert [text for _, text in found if SECRET in text] == []
    assert all(status >= 400 for status, _ in found)
    with pytest.raises(SettingsError) as caught:
        read_matches([root / name], within=[root])
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "folder",
        "folder/op_mapping_file.json",
        "link",
        "link/secret.yaml",
        "link.yaml",
        "absolute",
        "../outside",
    ],
)
def test_what_lies_outside_is_as_if_it_were_not_there(
    client: TestClient, dump: Path, root: Path, name: str
) -> None:
    found = list(answers(client, dump, root / name))
    assert [text for _, text in found if SECRET in text or "root:x:" in text] == []
    assert found[0][0] == 404
    said = []
    for file in (root / name, root.parent / "outside/none"):
        with pytest.raises(PathOutsideRootsError) as caught:
            read_matches([file], within=[root])
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_what_is_opened_is_checked_again_after_it_was_opened(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = root / "swapped.yaml"
    file.write_text("fc1.Dense: fc1.Linear\n")
    assert read_mapping_text(file, within=[root])[1]

    def swap(_: object, wanted: Path) -> Path:
        """Stand in for one who swaps the file between the check of its path and its opening."""
        file.unlink()
        file.symlink_to(root.parent / "outside/secret.yaml")
        return wanted

    monkeypatch.setattr("firstdrift.matching.manual.mapping_files.inside", swap)
    with pytest.raises(PathOutsideRootsError):
        read_mapping_text(file, within=[root])


def test_pipes_devices_folders_and_large_files_are_refused_at_once(
    client: TestClient, dump: Path, root: Path
) -> None:
    os.mkfifo(root / "pipe.yaml")
    (root / "zero.yaml").symlink_to("/dev/zero")
    with (root / "large.yaml").open("wb") as large:
        large.truncate(LARGEST_FILE + 1)
    began = time.monotonic()
    for _ in range(45):  # more than there are threads
        found = list(answers(client, dump, root / "pipe.yaml"))
        assert all(status >= 400 for status, _ in found)
        assert says(found[0][1], "files.not_regular")
    for name, said in (("large.yaml", "files.too_large"), ("golden", "matching.mapping.not_read")):
        assert says(next(answers(client, dump, root / name))[1], said)
    assert next(answers(client, dump, root / "zero.yaml"))[0] == 404
    assert time.monotonic() - began < 100


GENUINE = {
    "cells.yaml": "fc1.Dense: fc1.Linear\nnetwork: model\n",
    "calls.yml": "Functional.linear.0.forward.input.0: Functional.linear.7.forward.input.0\n",
    "classes.yaml": "Cell:\n  0.module: module(DDP)\nMLP:\n  linear_fc2: down_proj\n",
    "key_proj.yaml": "SelfAttention:\n  key_proj: k_proj\n  token_key: access_proj\n",
    "op_mapping_file.json": '{"LinearOperation_outtensor0": ["Linear_output_0"]}',
}


def test_mapping_files_of_every_kind_are_read_as_before(tmp_path: Path) -> None:
    real = tmp_path.resolve()
    for name, text in GENUINE.items():
        (real / name).write_text(text)
    for file in (*(real / name for name in GENUINE), real, *MAPPINGS.iterdir()):
        (bounded,), (free,) = (read_matches([file], within=one).mappings for one in ([real, MAPPINGS], None))
        assert bounded == replace(free, may_quote=False)


def test_errors_in_real_mapping_files_still_say_the_line(tmp_path: Path) -> None:
    real = tmp_path.resolve()
    (real / "a.yaml").write_text("MLP:\n  a: b\n  a: c\n")
    with refuses(SettingsError, "matching.mapping.at_line", line=3):
        read_matches([real / "a.yaml"], within=[real])
    with refuses(SettingsError, "matching.mapping.twice", first=2):
        read_matches([real / "a.yaml"])


def test_a_match_set_below_the_roots_is_read(tmp_path: Path) -> None:
    real = tmp_path.resolve()
    edits = [{"kind": "match", "golden": ["a"], "target": ["b"]}]
    (real / "set.json").write_text(json.dumps({"firstdrift_match_set": 1, "edits": edits}))
    assert len(read_matches([real / "set.json"], within=[real]).edits) == 1


LOOKS_LIKE_A_MAPPING = {
    "account.yaml": "OpenAI:\n  org: acme\n  key: hunter2\n",
    "network.yaml": "WiFi:\n  ssid: home\n  psk: hunter2\n",
    "cells.yaml": "app.Database.0: hunter2.Pass\ndb.Cell: hunter2.Cell\n",
    "user.json": '{"User": "Alice", "Pin": "Hunter2"}',
}


@pytest.mark.parametrize("name", LOOKS_LIKE_A_MAPPING)
def test_of_what_only_looks_like_a_mapping_no_word_is_in_the_results(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text(LOOKS_LIKE_A_MAPPING[name])
    for side in ("golden", "target"):
        (tmp_path / side).mkdir()
        for module in ("model.a", "model.b"):
            np.save(tmp_path / side / f"{module}.npy", np.ones(8, "float32"))
    try:
        mappings = read_matches([file], within=[tmp_path]).mappings
    except SettingsError as refused:
        said = str(refused)
    else:
        rules = MatchingRules(mappings=mappings)
        report = compare(tmp_path / "golden", tmp_path / "target", Options(matching=rules))
        said = to_json(report_object(report)) + " ".join(texts_of(report.notes()))
        assert "matching.mapping.unused_line" in said
    assert SECRET not in said.lower()
