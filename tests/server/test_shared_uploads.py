"""Uploads of several people, by several servers: what one leaves alone others get, and none takes all."""

import io
import os
import shutil
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from messages import refuses
from working import wait_until

from firstdrift.catalogue.sizes import size_on_disk
from firstdrift.errors import BusyError, ConflictError, NoRoomError, NotInCatalogueError, UploadError
from firstdrift_server.uploads import archives, store
from firstdrift_server.uploads.records import RECORD, UploadFile
from firstdrift_server.uploads.store import Uploads

QUOTA = 20 << 20
ANN, BOB, LI, OWNER = 1, 2, 3, None


def begin(uploads: Uploads, size: int = 9, member: int | None = OWNER) -> str:
    return uploads.begin("run", [UploadFile("run/a", size)], member=member).id


def leave(uploads: Uploads, upload: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(uploads.folder / store.INCOMING / upload / RECORD, (then, then))


def packed(uploads: Uploads, member: int | None = OWNER, size: int = 0) -> str:
    """Have an archive arrive, with a file of so many bytes; give its upload."""
    file, held = io.BytesIO(), tarfile.TarInfo("run/a")
    held.size = size
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        archive.addfile(held, io.BytesIO(bytes(size)))
    upload = uploads.begin("run.tgz", [UploadFile("run.tgz", len(file.getvalue()))], member=member)
    uploads.write(upload.id, 0, 0, file.getvalue())
    return upload.id


@pytest.fixture
def uploads(tmp_path: Path) -> Uploads:
    return Uploads(tmp_path / "uploads", QUOTA)


@pytest.fixture
def other(uploads: Uploads) -> Uploads:
    """What another server has of the same folder."""
    return Uploads(uploads.folder, QUOTA)


class Halted(NamedTuple):
    """Those that are being unpacked, and stand still."""

    begin: Callable[[str, int | None], None]
    go_on: Callable[[], None]
    failed: list[Exception]


@pytest.fixture
def halted(uploads: Uploads, monkeypatch: pytest.MonkeyPatch) -> Iterator[Halted]:
    go_on, unpack = threading.Event(), archives.unpack
    failed: list[Exception] = []

    def halting(archive: Path, folder: Path, limits: archives.Limits, watch: archives.Watch) -> None:
        while not go_on.wait(0.02):
            watch(1, 1, 0.5)
        unpack(archive, folder, limits, watch)

    def finish(upload: str, member: int | None) -> None:
        try:
            uploads.finish(upload, member=member)
        except (UploadError, NotInCatalogueError) as error:
            failed.append(error)

    with ExitStack() as stack:
        monkeypatch.setattr(archives, "unpack", halting)

        def unpack_one(upload: str, member: int | None) -> None:
            thread = threading.Thread(target=finish, args=(upload, member))
            thread.start()
            stack.callback(thread.join, 60)
            wait_until(lambda: getattr(uploads.unpacking(upload), "files", 0) > 0)

        yield Halted(unpack_one, go_on.set, failed)
        go_on.set()


def test_what_one_server_unpacks_no_other_removes_or_unpacks(
    uploads: Uploads, other: Uploads, halted: Halted
) -> None:
    upload = packed(uploads)
    halted.begin(upload, OWNER)
    leave(uploads, upload, (store.KEPT_DAYS + 1) * 86400)
    other.clean()
    begin(other)
    with refuses(ConflictError, "uploads.being_unpacked"):
        other.finish(upload)
    halted.go_on()
    wait_until(lambda: other.get(upload).landed is not None)
    assert (uploads.folder / "run/a").is_file()
    assert not halted.failed


def test_what_one_server_unpacks_another_can_cancel(uploads: Uploads, other: Uploads, halted: Halted) -> None:
    upload = packed(uploads)
    halted.begin(upload, OWNER)
    other.cancel(upload)
    wait_until(lambda: bool(halted.failed))
    assert list((uploads.folder / store.INCOMING).iterdir()) == []
    assert uploads.listed() == ()


def test_a_member_leaves_room_to_unpack_to_others_and_all_members_to_the_owner(
    uploads: Uploads, halted: Halted
) -> None:
    for member in (ANN, ANN, BOB):
        halted.begin(packed(uploads, member), member)
    for member in (ANN, BOB):
        with refuses(BusyError, "uploads.many_unpacked"):
            uploads.finish(packed(uploads, member), member=member)
    halted.begin(packed(uploads), OWNER)
    with refuses(BusyError, "uploads.many_unpacked"):
        uploads.finish(packed(uploads))


def test_a_member_alone_unpacks_two_at_a_time(uploads: Uploads, halted: Halted) -> None:
    for _ in range(2):
        halted.begin(packed(uploads, ANN), ANN)
    with refuses(BusyError, "uploads.many_unpacked"):
        uploads.finish(packed(uploads, ANN), member=ANN)
    halted.begin(packed(uploads, BOB), BOB)


def test_a_member_leaves_room_to_others_and_all_members_to_the_owner(uploads: Uploads) -> None:
    begin(uploads, QUOTA * 2 // 5, ANN)
    with refuses(NoRoomError, "uploads.no_room_of_one"):
        begin(uploads, QUOTA // 5, ANN)
    begin(uploads, QUOTA // 4, BOB)
    with refuses(NoRoomError, "uploads.no_room"):
        begin(uploads, QUOTA // 5, BOB)
    begin(uploads, QUOTA // 5)


def test_what_is_unpacked_at_once_takes_no_more_than_there_is_room_for(
    uploads: Uploads, other: Uploads, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (packed(uploads, size=QUOTA * 3 // 5) for _ in range(2))
    unpack = archives.unpack

    def beside_another(*given: object) -> None:
        monkeypatch.setattr(archives, "unpack", unpack)
        other.finish(second)
        unpack(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(archives, "unpack", beside_another)
    with refuses(NoRoomError, "uploads.archive_needs_room"):
        uploads.finish(first)
    assert size_on_disk(uploads.folder) < QUOTA
    shutil.rmtree(other.get(second).landed or "")
    assert uploads.finish(first).is_dir(), "it can be unpacked later"


def test_an_archive_leaves_the_disk_free_that_others_need(
    uploads: Uploads, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload, unpack = packed(uploads, size=1 << 20), archives.unpack

    def while_others_fill_the_disk(*given: object) -> None:
        with monkeypatch.context() as full:
            full.setattr(store, "LEAST_FREE", 1 << 62)
            unpack(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(archives, "unpack", while_others_fill_the_disk)
    with refuses(NoRoomError, "uploads.disk_full"):
        uploads.finish(upload)
    monkeypatch.setattr(archives, "unpack", unpack)
    assert uploads.finish(upload).is_dir()


def test_uploads_left_alone_make_way_for_others_the_one_that_was_left_first_first(uploads: Uploads) -> None:
    of_owner, first, second, new = (begin(uploads, QUOTA // 8, member) for member in (OWNER, ANN, BOB, ANN))
    for upload, hours in ((of_owner, 9), (first, 8), (second, 7)):
        leave(uploads, upload, hours * 3600)
    with refuses(NoRoomError, "uploads.no_room"):
        begin(uploads, 2 * QUOTA)
    assert uploads.get(first), "in vain none makes way"
    begin(uploads, QUOTA * 2 // 5, LI)
    with refuses(NotInCatalogueError, "uploads.displaced"):
        uploads.get(first)
    assert [uploads.get(one).id for one in (of_owner, second, new)] == [of_owner, second, new]
    begin(uploads, QUOTA // 3)
    with refuses(NotInCatalogueError, "uploads.displaced"):
        uploads.get(of_owner)


def test_what_comes_late_for_an_upload_that_has_made_way_is_not_kept(
    uploads: Uploads, other: Uploads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MOST_COMING", 1)
    upload = begin(uploads)
    leave(uploads, upload, store.IDLE_SECONDS + 1)
    arrived = uploads.arrived

    def beside_another(*given: object) -> int:
        begin(other)
        return arrived(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(uploads, "arrived", beside_another)
    with refuses(NotInCatalogueError, "uploads.displaced"):
        uploads.write(upload, 0, 0, b"123456789")
    assert [one.name for one in (uploads.folder / store.INCOMING / upload).iterdir()] == [RECORD]
