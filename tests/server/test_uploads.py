"""Uploads over HTTP: in chunks, resumed, cancelled, too large, killed; what arrives can be compared."""

import io
import os
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from messages import refuses, stated
from working import wait_until

from firstdrift.errors import NotInCatalogueError
from firstdrift_server.app import create_app
from firstdrift_server.guards.body import LARGEST_CHUNK
from firstdrift_server.settings import settings_from
from firstdrift_server.uploads import archives, records, store, unpacking

ROUTE = "/api/v1/uploads"
CHUNK = 100_000
QUOTA = 20 << 20


def served(data_dir: Path, **chosen: Any) -> TestClient:  # noqa: ANN401 (settings)
    (data_dir / "root").mkdir(exist_ok=True)
    app = create_app(settings_from(roots=[data_dir / "root"], data_dir=data_dir, **chosen))
    return TestClient(app, base_url="http://localhost", follow_redirects=False)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with served(tmp_path, upload_quota=QUOTA) as client:
        yield client


@pytest.fixture
def archive(unpacked: Callable[[str], Path]) -> bytes:
    """A tar.gz with a golden and a target dump in one folder."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as packed:
        packed.add(unpacked("msprobe/llama_stat_mix_perturb"), "run1")
    return file.getvalue()


def begin(client: TestClient, files: dict[str, bytes], name: str = "") -> str:
    listed = [{"path": path, "size": len(content)} for path, content in files.items()]
    made = client.post(ROUTE, json={"name": name, "files": listed})
    assert made.status_code == 201, made.text
    assert made.headers["location"] == f"{ROUTE}/{made.json()['id']}"
    return str(made.json()["id"])


def send(client: TestClient, upload: str, contents: Sequence[bytes]) -> None:
    for number, content in enumerate(contents):
        for offset in range(0, len(content), CHUNK):
            piece = content[offset : offset + CHUNK]
            put = client.put(f"{ROUTE}/{upload}/files/{number}?offset={offset}", content=piece)
            assert put.json() == {"ok": True, "arrived": offset + len(piece)}


def uploaded(client: TestClient, files: dict[str, bytes], name: str = "") -> Any:  # noqa: ANN401 (JSON)
    upload = begin(client, files, name)
    send(client, upload, list(files.values()))
    done = client.post(f"{ROUTE}/{upload}/complete")
    assert done.status_code == 200, done.text
    return done.json()


def left(folder: Path) -> list[str]:
    """What there is of uploads, but for records of those that are done."""
    found = [
        path for path in (folder / "uploads").rglob("*") if path.is_file() and path.name != "upload.json"
    ]
    return sorted(path.relative_to(folder / "uploads").as_posix() for path in found)


def test_an_archive_is_unpacked_and_its_dumps_can_be_compared(
    client: TestClient, archive: bytes, tmp_path: Path
) -> None:
    done = uploaded(client, {"my run.tar.gz": archive})
    assert (done["state"], done["dump"]["path"]) == ("done", str(tmp_path / "uploads/my run"))
    folder = client.get("/api/v1/browse", params={"path": done["dump"]["path"]}).json()
    assert {entry["name"]: entry["format"] for entry in folder["entries"]} == {
        "golden": "msprobe",
        "target": "msprobe",
    }
    pair = {side: f"{done['dump']['path']}/{side}" for side in ("golden", "target")}
    assert client.post("/api/v1/comparisons", json=pair).status_code == 201
    assert client.get("/new", params=pair).text.count("data-chosen=") == 2
    roots = client.get("/api/v1/browse", params={"path": "/"}).status_code
    assert roots == 404, "uploads open nothing else"


def test_a_folder_is_put_together_from_its_files(
    client: TestClient, unpacked: Callable[[str], Path], tmp_path: Path
) -> None:
    dump = unpacked("msit/llama4_logits_golden")
    files = {
        f"{dump.name}/{path.relative_to(dump).as_posix()}": path.read_bytes()
        for path in sorted(dump.rglob("*"))
        if path.is_file()
    }
    files[f"{dump.name}/empty.txt"] = b""
    done = uploaded(client, files, dump.name)
    assert (done["dump"]["format"], done["dump"]["path"]) == (
        "msit-torch",
        str(tmp_path / "uploads" / dump.name),
    )
    for path, content in files.items():
        assert (tmp_path / "uploads" / path).read_bytes() == content


def test_of_what_holds_no_dump_or_several_that_is_said(client: TestClient, archive: bytes) -> None:
    photos = {"trip/beach.jpg": b"\xff\xd8", "trip/readme.txt": b"hello"}
    text = uploaded(client, {"notes.txt": b"hello"})["dump"]
    for dump in text, uploaded(client, photos, "trip")["dump"]:
        assert (dump["format"], dump["holds"]) == (None, [])
    several = uploaded(client, {"runs.tar.gz": archive})["dump"]
    assert (several["format"], several["holds"]) == (None, ["golden", "target"])
    listed = client.get("/?show=dumps").text
    assert stated(listed).count("no-dump") == 2


def test_a_dump_beside_other_things_is_found(client: TestClient, unpacked: Callable[[str], Path]) -> None:
    dump = unpacked("msprobe/llama_stat_mix_perturb") / "golden"
    files = {
        f"run/golden/{path.relative_to(dump).as_posix()}": path.read_bytes()
        for path in dump.rglob("*")
        if path.is_file()
    }
    found = uploaded(client, {"run/photos/a.jpg": b"no tensor", **files}, "run")["dump"]
    assert (found["format"], Path(found["path"]).name, found["holds"]) == ("msprobe", "golden", [])


def test_the_dump_is_found_in_folders_that_hold_nothing_else(
    client: TestClient, unpacked: Callable[[str], Path]
) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:xz") as packed:
        packed.add(unpacked("msprobe/llama_stat_mix_perturb") / "golden", "a/b/golden")
    dump = uploaded(client, {"x.txz": file.getvalue()})["dump"]
    assert (dump["format"], Path(dump["path"]).name) == ("msprobe", "golden")


def test_an_upload_goes_on_where_the_connection_broke(
    client: TestClient, archive: bytes, tmp_path: Path
) -> None:
    upload = begin(client, {"run1.tar.gz": archive})
    address = f"{ROUTE}/{upload}/files/0"
    client.put(address, content=archive[:1000])
    too_far = client.put(f"{address}?offset=5000", content=archive[5000:])
    assert (too_far.status_code, too_far.json()["advice"]["arguments"]) == (409, {"offset": 1000})
    assert client.put(address, content=archive[:1000]).status_code == 409, "the same chunk once more"
    with served(tmp_path) as another:  # the server was killed and started again
        known = another.get(f"{ROUTE}/{upload}").json()
        assert (known["state"], known["arrived"], known["size"]) == ("receiving", 1000, len(archive))
        assert known["files"] == [{"path": "run1.tar.gz", "size": len(archive), "arrived": 1000}]
        early = another.post(f"{ROUTE}/{upload}/complete")
        assert (early.status_code, early.json()["message"]["id"]) == (422, "uploads.incomplete")
        another.put(f"{address}?offset=1000", content=archive[1000:])
        assert another.post(f"{ROUTE}/{upload}/complete").json()["state"] == "done"
    again = client.post(f"{ROUTE}/{upload}/complete").json()
    assert again["dump"]["path"] == str(tmp_path / "uploads/run1"), "asked for twice, it is there once"


def test_the_same_name_again_gets_a_number(client: TestClient, archive: bytes) -> None:
    names = [Path(uploaded(client, {"run1.tar.gz": archive})["dump"]["path"]).name for _ in range(3)]
    assert names == ["run1", "run1-2", "run1-3"]


def test_of_a_cancelled_upload_nothing_is_left(client: TestClient, archive: bytes, tmp_path: Path) -> None:
    upload = begin(client, {"run1.tar.gz": archive})
    client.put(f"{ROUTE}/{upload}/files/0", content=archive[:1000])
    assert client.delete(f"{ROUTE}/{upload}").json() == {"ok": True, "id": upload}
    assert (left(tmp_path), list((tmp_path / "uploads/.incoming").iterdir())) == ([], [])
    for answer in (
        client.get(f"{ROUTE}/{upload}"),
        client.put(f"{ROUTE}/{upload}/files/0?offset=1000", content=b"x"),
        client.post(f"{ROUTE}/{upload}/complete"),
        client.delete(f"{ROUTE}/{upload}"),
    ):
        assert answer.status_code == 404


def test_unpacking_can_be_watched_and_cancelled(
    client: TestClient, tmp_path: Path, archive: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = begin(client, {"run1.tar.gz": archive})
    send(client, upload, [archive])
    half, go_on = threading.Event(), threading.Event()
    watch = unpacking.Unpacking.watch

    def pausing(self: unpacking.Unpacking, files: int, size: int, share: float) -> None:
        if files == 3:
            half.set()
            go_on.wait(30)
        watch(self, files, size, share)

    monkeypatch.setattr(unpacking.Unpacking, "watch", pausing)
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(client.post(f"{ROUTE}/{upload}/complete")))
    thread.start()
    assert half.wait(30)
    shown = client.get(f"{ROUTE}/{upload}").json()
    assert (shown["state"], shown["unpacked"]["files"], shown["files"]) == ("unpacking", 2, [])
    assert client.post(f"{ROUTE}/{upload}/complete").status_code == 409
    client.delete(f"{ROUTE}/{upload}")
    go_on.set()
    thread.join(30)
    assert (answers[0].status_code, answers[0].json()["message"]["id"]) == (422, "uploads.cancelled")
    assert (left(tmp_path), client.get(f"{ROUTE}/{upload}").status_code) == ([], 404)


@pytest.mark.parametrize("content", [b"no archive at all", b"\x1f\x8b" + bytes(100)])
def test_of_an_archive_that_cannot_be_unpacked_nothing_is_left(
    client: TestClient, tmp_path: Path, content: bytes
) -> None:
    upload = begin(client, {"run1.tar.gz": content})
    send(client, upload, [content])
    refused = client.post(f"{ROUTE}/{upload}/complete")
    assert (
        refused.status_code,
        refused.json()["message"]["id"] in ("uploads.no_archive", "uploads.cannot_unpack"),
    ) == (422, True)
    assert (left(tmp_path), client.get(f"{ROUTE}/{upload}").status_code) == ([], 404)


def test_what_only_looks_like_an_archive_stays_a_file(client: TestClient, tmp_path: Path) -> None:
    uploaded(client, {"weights.pt": b"PK\3\4 is how a tensor file begins, too"})
    assert left(tmp_path) == ["weights.pt/weights.pt"]


def test_what_is_called_like_a_page_of_data_keeps_its_name(client: TestClient, tmp_path: Path) -> None:
    uploaded(client, {"dump": b"another one"})
    uploaded(client, {"dump.json": b"{}"})
    assert left(tmp_path) == ["dump.json/dump.json", "dump/dump"]
    removed = client.delete(f"{ROUTE}/dumps/dump.json")
    assert (removed.status_code, left(tmp_path)) == (200, [".bin/dump.json/dump.json", "dump/dump"])
    assert client.post(f"{ROUTE}/dumps/dump.json/restore").json()["name"] == "dump.json"


NAMES = ["../a", "/a", "a/../../b", "", ".", "a/", "a\0b", "x" * 300, "d/" * 100 + "a", "tab\there"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_names_that_lead_out_or_are_none_are_refused(client: TestClient, tmp_path: Path, name: str) -> None:
    refused = client.post(ROUTE, json={"name": "run", "files": [{"path": name, "size": 1}]})
    assert (refused.status_code, refused.json()["ok"]) == (422, False)
    assert left(tmp_path) == []


@pytest.mark.parametrize("name", ["..", "../x", "/", "...", ".incoming", "a/../b"])
def test_the_folder_of_an_upload_is_never_another_one(client: TestClient, tmp_path: Path, name: str) -> None:
    answer = client.post(ROUTE, json={"name": name, "files": [{"path": "a", "size": 1}]})
    if answer.status_code == 201:
        upload = answer.json()["id"]
        client.put(f"{ROUTE}/{upload}/files/0", content=b"x")
        client.post(f"{ROUTE}/{upload}/complete")
    assert all(not path.startswith(".") for path in left(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} <= {
        *("root", "uploads", "firstdrift.db", "firstdrift.db-wal", "firstdrift.db-shm")
    }


def test_lone_surrogates_in_names_are_refused(client: TestClient) -> None:
    body = '{"name": "run", "files": [{"path": "\\ud800", "size": 1}]}'
    assert client.post(ROUTE, content=body, headers={"content-type": "application/json"}).status_code == 422


@pytest.mark.parametrize("paths", [["a", "a"], ["a", "./a"], ["a", "a/b"], ["a/b/c", "a/b"]])
def test_two_files_at_one_place_are_refused(client: TestClient, paths: list[str]) -> None:
    files = [{"path": path, "size": 1} for path in paths]
    assert client.post(ROUTE, json={"name": "run", "files": files}).status_code == 422


def test_a_file_is_never_longer_than_announced_and_a_chunk_never_larger_than_16_mib(
    client: TestClient,
) -> None:
    upload = begin(client, {"a": b"12345"})
    assert client.put(f"{ROUTE}/{upload}/files/0", content=b"123456").status_code == 422
    assert client.put(f"{ROUTE}/{upload}/files/1", content=b"1").status_code == 404
    assert client.put(f"{ROUTE}/{upload}/files/0?offset=-1", content=b"1").status_code == 422
    assert client.put(f"{ROUTE}/{upload}/files/0", content=bytes(LARGEST_CHUNK + 1)).status_code == 413
    assert client.get(f"{ROUTE}/{upload}").json()["arrived"] == 0


def test_elsewhere_bodies_are_as_small_as_ever(client: TestClient) -> None:
    for address in ("/api/v1/uploadsx", "/api/v1/comparisons", "/new"):
        assert client.post(address, content=bytes(2 << 20)).status_code == 413


def test_more_than_there_is_room_for_is_refused_before_it_is_sent(client: TestClient) -> None:
    first = begin(client, {"a": bytes(12 << 20)})
    over = client.post(ROUTE, json={"files": [{"path": "b", "size": 9 << 20}]})
    assert (over.status_code, over.json()["message"]["id"]) == (507, "uploads.no_room")
    client.delete(f"{ROUTE}/{first}")
    assert client.post(ROUTE, json={"files": [{"path": "b", "size": 9 << 20}]}).status_code == 201


@pytest.mark.parametrize("size", [0, 1])
def test_files_count_for_what_they_take_of_the_disk_not_for_what_is_in_them(
    client: TestClient, size: int
) -> None:
    many = [{"path": f"run/{number}/x", "size": size} for number in range(8000)]
    over = client.post(ROUTE, json={"files": many})
    assert (over.status_code, over.json()["message"]["id"]) == (507, "uploads.no_room")
    assert client.post(ROUTE, json={"files": many[:800]}).status_code == 201


def test_uploads_are_refused_where_the_disk_can_take_no_more_files(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LEAST_FREE_ENTRIES", 1 << 60)
    refused = client.post(ROUTE, json={"files": [{"path": "b", "size": 1}]})
    assert (refused.status_code, refused.json()["message"]["id"]) == (507, "uploads.no_more_files")


def test_an_archive_for_which_there_is_no_room_can_be_unpacked_later(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "FREE_BYTES", 1 << 30)
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as packed:
        member = tarfile.TarInfo("run/zeros")
        member.size = 15 << 20
        packed.addfile(member, io.BytesIO(bytes(member.size)))
    other = begin(client, {"other": bytes(10 << 20)})
    upload = begin(client, {"run.tgz": file.getvalue()})
    send(client, upload, [file.getvalue()])
    full = client.post(f"{ROUTE}/{upload}/complete")
    assert (full.status_code, full.json()["advice"]["id"]) == (507, "uploads.remove_uploads")
    assert left(tmp_path) == [f".incoming/{upload}/files/run.tgz"]
    client.delete(f"{ROUTE}/{other}")
    assert client.post(f"{ROUTE}/{upload}/complete").json()["state"] == "done"
    assert left(tmp_path) == ["run/zeros"]


def test_uploads_are_refused_where_the_disk_is_nearly_full(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LEAST_FREE", 1 << 60)
    assert client.post(ROUTE, json={"files": [{"path": "b", "size": 1}]}).status_code == 507


def test_uploads_can_be_switched_off(tmp_path: Path) -> None:
    with served(tmp_path, upload_quota=0) as client:
        refused = client.post(ROUTE, json={"files": [{"path": "b", "size": 1}]})
        assert (refused.status_code, refused.json()["message"]["id"]) == (422, "uploads.switched_off")


def test_what_nobody_goes_on_with_is_removed_after_days(client: TestClient, tmp_path: Path) -> None:
    old, new = begin(client, {"a": b"12345"}), begin(client, {"b": b"12345"})
    then = time.time() - (store.KEPT_DAYS + 1) * 86400
    os.utime(tmp_path / f"uploads/.incoming/{old}/upload.json", (then, then))
    begin(client, {"c": b"12345"})
    assert [client.get(f"{ROUTE}/{upload}").status_code for upload in (old, new)] == [404, 200]
    os.utime(tmp_path / f"uploads/.incoming/{new}/upload.json", (then, then))
    uploaded(client, {"kept": b"12345"})
    (tmp_path / "uploads/.bin/removed").mkdir(parents=True)
    os.utime(tmp_path / "uploads/.bin/removed", (then, then))
    with served(tmp_path):  # a server that is started cleans up, too
        wait_until(lambda: not list((tmp_path / "uploads/.bin").iterdir()))
    assert client.get(f"{ROUTE}/{new}").status_code == 404
    assert left(tmp_path) == ["kept/kept"]


def _age(tmp_path: Path, upload: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(tmp_path / f"uploads/.incoming/{upload}/upload.json", (then, then))


def test_an_upload_that_is_paused_for_less_than_an_hour_makes_way_for_no_other(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MOST_COMING", 2)
    paused, _ = begin(client, {"a": b"12345"}), begin(client, {"b": b"12345"})
    _age(tmp_path, paused, store.IDLE_SECONDS - 100)
    for size in (5, 2 * QUOTA):
        refused = client.post(ROUTE, json={"files": [{"path": "c", "size": size}]})
        assert refused.status_code == 429, refused.text
        assert refused.json()["message"]["id"] == "uploads.many"
    assert client.get(f"{ROUTE}/{paused}").status_code == 200
    _age(tmp_path, paused, store.IDLE_SECONDS + 100)
    begin(client, {"c": b"12345"})
    for answer in (
        client.get(f"{ROUTE}/{paused}"),
        client.put(f"{ROUTE}/{paused}/files/0?offset=0", content=b"12345"),
        client.post(f"{ROUTE}/{paused}/complete"),
    ):
        assert (answer.status_code, answer.json()["message"]["id"]) == (404, "uploads.displaced")
    assert "Begin it anew" in answer.json()["hint"]


def test_what_is_being_unpacked_is_not_removed_however_old_it_is(
    client: TestClient, archive: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = begin(client, {"run.tgz": archive})
    send(client, upload, [archive])
    _age(tmp_path, upload, (store.KEPT_DAYS + 1) * 86400)
    unpack, others = archives.unpack, list[str]()

    def unpack_beside_another(*given: Any) -> None:  # noqa: ANN401 (as it is called)
        others.append(begin(client, {"other": b"12345"}))
        unpack(*given)

    monkeypatch.setattr(archives, "unpack", unpack_beside_another)
    done = client.post(f"{ROUTE}/{upload}/complete")
    assert (done.status_code, len(others)) == (200, 1), done.text
    assert done.json()["state"] == "done"


@pytest.mark.parametrize("name", ["..", "0123456789abcdeg", "%2e%2e%2froot", "x"])
def test_an_upload_is_found_by_its_number_only(client: TestClient, name: str) -> None:
    assert client.get(f"{ROUTE}/{name}").status_code == 404


class Interrupted(store.Uploads):
    """Does something else each time after it has looked how much has arrived, as another request may."""

    meanwhile: Callable[[], object] | None = None

    def arrived(self, upload: records.Upload, number: int) -> int:
        there = super().arrived(upload, number)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return there


@pytest.fixture
def interrupted(tmp_path: Path) -> tuple[Interrupted, str]:
    """Uploads, and one of them, of a file of six bytes."""
    uploads = Interrupted(tmp_path / "uploads", QUOTA)
    return uploads, uploads.begin("run", [records.UploadFile("run/a.pt", 6)]).id


def test_a_chunk_that_was_sent_twice_and_comes_late_takes_nothing_away(
    interrupted: tuple[Interrupted, str],
) -> None:
    uploads, upload = interrupted
    uploads.meanwhile = lambda: (uploads.write(upload, 0, 0, b"abc"), uploads.write(upload, 0, 3, b"def"))
    uploads.write(upload, 0, 0, b"abc")
    assert (uploads.finish(upload) / "a.pt").read_bytes() == b"abcdef"


def test_a_chunk_of_an_upload_that_is_cancelled_meanwhile_leaves_nothing_behind(
    interrupted: tuple[Interrupted, str],
) -> None:
    uploads, upload = interrupted
    uploads.meanwhile = lambda: uploads.cancel(upload)
    with refuses(NotInCatalogueError, "uploads.no_upload"):
        uploads.write(upload, 0, 0, b"abc")
    assert list((uploads.folder / store.INCOMING).iterdir()) == []
