"""Links in uploads end where they were packed, whatever is uploaded beside them."""

import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from messages import refuses
from starlette.responses import Response

from firstdrift.errors import UploadError
from firstdrift_server.app import create_app
from firstdrift_server.settings import settings_from
from firstdrift_server.uploads.archives import Limits, require_links_inside, unpack

SECRET = "hunter2"  # noqa: S105 (what must not be seen)
ROUTE = "/api/v1/uploads"


def packed(files: dict[str, bytes], links: dict[str, str], hard: dict[str, str] | None = None) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for kind, of_kind in ((tarfile.SYMTYPE, links), (tarfile.LNKTYPE, hard or {})):
            for name, to in of_kind.items():
                member = tarfile.TarInfo(name)
                member.type, member.linkname = kind, to
                archive.addfile(member)
    return stream.getvalue()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.yaml").write_text(f"fc1.Dense: {SECRET}.Linear\n")
    app = create_app(settings_from(roots=[tmp_path / "root"], data_dir=tmp_path))
    with TestClient(app, base_url="http://localhost", follow_redirects=False) as client:
        yield client


def upload(client: TestClient, name: str, content: bytes) -> Response:
    listed = [{"path": f"{name}.tar.gz", "size": len(content)}]
    made = client.post(ROUTE, json={"name": "", "files": listed}).json()["id"]
    client.put(f"{ROUTE}/{made}/files/0?offset=0", content=content)
    return client.post(f"{ROUTE}/{made}/complete")


def test_two_uploads_do_not_make_a_link_that_leads_out(
    client: TestClient, tmp_path: Path, unpacked: Callable[[str], Path]
) -> None:
    """The first has a link by way of a folder that is not there; the second brings that folder."""
    through = "../steps/d/d/l/../../outside/secret.yaml"
    first = upload(client, "first", packed({"run/a": b"a"}, {"run/op_mapping_file.json": through}))
    upload(client, "steps", packed({"steps/d/d/a": b"a"}, {"steps/d/d/l": "../.."}))
    assert first.status_code == 422
    assert first.json()["message"]["id"] == "uploads.link_leads_out"
    assert not (tmp_path / "uploads/first").exists()
    assert [path for path in (tmp_path / "uploads").rglob("*") if SECRET in read(path)] == []
    chosen = {side: str(unpacked("msprobe/d4_renamed") / side) for side in ("golden", "target")}
    for mapping in ("first", "first/op_mapping_file.json"):
        asked = client.post("/api/v1/comparisons", json=chosen | {"mapping": f"{tmp_path}/uploads/{mapping}"})
        assert SECRET not in asked.text


def read(path: Path) -> str:
    return path.read_text(errors="replace") if path.is_file() else ""


REFUSED = {
    "by way of its own name, which changes": {"run/a.yaml": "../run/b"},
    "by way of the folder around it": {"run/a.yaml": "../unpacked/run/b"},
    "by way of what is not there": {"run/a.yaml": "c/../b"},
    "by way of a file": {"run/a.yaml": "b/../b"},
    "to what is not there": {"run/a.yaml": "nothing"},
    "up and down again": {"run/a.yaml": "../../x/../b"},
    "round in circles": {"run/a.yaml": "c.yaml", "run/c.yaml": "a.yaml"},
    "absolute": {"run/a.yaml": "/etc/passwd"},
    "through another that leads up": {"run/d/up": "..", "run/a.yaml": "d/up/../run/b"},
}


@pytest.mark.parametrize("name", REFUSED)
def test_links_that_lead_out_on_their_way_are_refused(client: TestClient, tmp_path: Path, name: str) -> None:
    content = packed({"run/b": b"b", "run/d/e": b"e"}, REFUSED[name])
    answer = upload(client, "first", content)
    assert answer.status_code == 422
    assert not (tmp_path / "uploads/first").exists()


def test_hard_links_to_what_lies_elsewhere_are_refused(client: TestClient, tmp_path: Path) -> None:
    for to in ("../steps/a", "/etc/passwd", "../../outside/secret.yaml", "run/nothing"):
        content = packed({"run/b": b"b"}, {}, {"run/a": to})
        assert upload(client, "first", content).status_code == 422
    assert not (tmp_path / "uploads/first").exists()


def test_links_from_one_place_of_an_upload_to_another_are_kept(client: TestClient, tmp_path: Path) -> None:
    links = {"run/a": "d/e", "run/d/up": "..", "run/c": "d/up/d/./e", "run/f": "d", "run/g": "f/e"}
    content = packed({"run/b": b"b", "run/d/e": b"e"}, links, {"run/h": "run/b"})
    assert upload(client, "first", content).status_code == 200
    landed = tmp_path / "uploads/first"
    assert [(landed / name).read_text() for name in ("a", "c", "f/e", "g", "h")] == ["e", "e", "e", "e", "b"]


def test_links_are_looked_at_again_where_they_landed(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(packed({"run/b": b"b"}, {"run/a": "b"}))
    folder = tmp_path / "unpacked"
    folder.mkdir()
    unpack(tmp_path / "a.tar.gz", folder, Limits(size=1 << 20), lambda *_: None)
    require_links_inside(folder)
    (folder / "run/b").unlink()
    with refuses(UploadError, "uploads.link_leads_out"):
        require_links_inside(folder)
