"""Does one thing that writes, again and again, on a disk of its own with ever more pages free.

    unshare --map-root-user --mount python tests/disk_points.py FOLDER POINT STEP ARGUMENTS...

Each time there is a named error and nothing half written, or all of it; then it is done once more with room.
The same on a disk that may only be read. Prints how many sizes were tried, and how many were too small.
"""

import gc
import gzip
import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import text

import firstdrift
from firstdrift.catalogue.backup import back_up, restore
from firstdrift.catalogue.comparisons.records import create_comparison, list_comparisons
from firstdrift.catalogue.engine import database_url, open_engine, reading, writing
from firstdrift.catalogue.migrate import upgrade
from firstdrift.cli.reports import write_files
from firstdrift.comparison.report import Options
from firstdrift.comparison.slice_results import SliceResults
from firstdrift.errors import FirstdriftError
from firstdrift.metrics.elementwise import machine_code
from firstdrift.remote.fetch import _held as held
from firstdrift.remote.fetch import fetched
from firstdrift_server.ended import EndedSessions
from firstdrift_server.export.wanted import Columns, Format, Wanted
from firstdrift_server.export.written import pieces_of
from firstdrift_server.uploads import records, store

PAGE = 4096
MIB = 1 << 20
FILES = ("csv_file", "xlsx_file", "html_file", "advisor_file", "data_mapping_file", "suggested_file")


class Disk:
    """A small disk, of which so many pages are left free."""

    def __init__(self, folder: Path, size: str) -> None:
        self.folder = folder
        mount("-t", "tmpfs", "-o", f"size={size}", "none", str(folder))
        self._filler = folder / ".filler"

    def leave(self, pages: int) -> None:
        """Fill it but for so many pages."""
        free = os.statvfs(self.folder)
        if free.f_bfree > pages:
            with self._filler.open("wb") as filler:
                os.posix_fallocate(filler.fileno(), 0, (free.f_bfree - pages) * free.f_bsize)

    def make_room(self) -> None:
        self._filler.unlink(missing_ok=True)

    def only_for_reading(self, *, yes: bool) -> None:
        mount("-o", f"remount,bind,{'ro' if yes else 'rw'}", str(self.folder))

    def clear(self) -> None:
        for one in self.folder.iterdir():
            shutil.rmtree(one) if one.is_dir() else one.unlink()


def mount(*options: str) -> None:
    subprocess.run(["mount", *options], check=True)


class Point:
    """Something that writes: made ready, done, and looked at afterwards."""

    size = "24m"

    def __init__(self, folder: Path, arguments: list[str]) -> None:
        self.folder, self.arguments = folder, [Path(one) for one in arguments]

    def prepare(self) -> None:
        """Make ready, with room."""

    def do(self) -> None:
        """Write."""

    def check(self, *, done: bool) -> None:
        """See that all is there, or nothing."""


class Tables(Point):
    """A new database."""

    def do(self) -> None:
        engine = open_engine(database_url(self.folder / "data"))
        try:
            upgrade(engine)
        finally:
            engine.dispose()

    def check(self, *, done: bool) -> None:
        if done:
            with closing(sqlite3.connect(self.folder / "data" / "firstdrift.db")) as database:
                assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
                assert database.execute("SELECT count(*) FROM comparisons").fetchone() == (0,)


class Person(Tables):
    """What a person asks for, in a database that is there."""

    def prepare(self) -> None:
        super().do()
        self.before = 0

    def do(self) -> None:
        engine = open_engine(database_url(self.folder / "data"))
        try:
            with writing(engine, durable=True) as session:
                for number in range(10):
                    long = Path("/golden", str(number) + "x" * 5000)
                    create_comparison(session, long, Path("/target"), Options())
        finally:
            engine.dispose()

    def check(self, *, done: bool) -> None:
        self.before += 10 if done else 0
        assert self._count() == self.before

    def _count(self) -> int:
        engine = open_engine(database_url(self.folder / "data"))
        with reading(engine) as session:
            assert session.scalar(text("PRAGMA integrity_check")) == "ok"
            count = len(list_comparisons(session, limit=1000))
            assert session.scalar(text("SELECT count(*) FROM jobs")) == count
        engine.dispose()
        return count


class Upload(Point):
    """A folder that is uploaded in chunks."""

    content = bytes(range(256)) * 200

    def prepare(self) -> None:
        store.LEAST_FREE, store.LEAST_FREE_ENTRIES = -(1 << 40), 0
        self.known: str | None = None

    def do(self) -> None:
        uploads = store.Uploads(self.folder / "uploads", 1 << 30)
        if self.known is None:
            self.known = uploads.begin("run", self.files()).id
        upload = uploads.get(self.known)
        for number, file in enumerate(upload.files):
            while (there := uploads.arrived(upload, number)) < file.size:
                uploads.write(upload.id, number, there, self.sent()[there : there + 10_000])
        self.landed = uploads.finish(upload.id)

    def files(self) -> list[records.UploadFile]:
        return [records.UploadFile(f"run/{name}", len(self.content)) for name in ("a", "b")]

    def sent(self) -> bytes:
        return self.content

    def check(self, *, done: bool) -> None:
        uploads = store.Uploads(self.folder / "uploads", 1 << 30)
        waiting = list((self.folder / "uploads" / store.INCOMING).glob("*"))
        if self.known is None:
            assert waiting == [], "what could not be begun left something behind"
            return
        upload = uploads.get(self.known)
        for number in range(len(upload.files) if upload.landed is None else 0):
            file = waiting[0] / "files" / upload.files[number].path
            there = file.read_bytes() if file.exists() else b""
            assert self.sent().startswith(there)
        if done:
            assert [one.read_bytes() for one in sorted(self.landed.iterdir())] == [self.content] * 2
        else:
            assert uploads.listed() == (), "half of it lies where whole ones lie"


class Archive(Upload):
    """An archive that is uploaded and unpacked."""

    def sent(self) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as packed:
            for name in ("a", "b"):
                member = tarfile.TarInfo(f"run/{name}")
                member.size = len(self.content)
                packed.addfile(member, io.BytesIO(self.content))
        return gzip.compress(buffer.getvalue(), mtime=0)

    def files(self) -> list[records.UploadFile]:
        return [records.UploadFile("run.tar.gz", len(self.sent()))]


class Session(Point):
    """Somebody logs out; the server that does it knows it in any case, others when it could be written."""

    def prepare(self) -> None:
        self.file = self.folder / "ended-sessions"
        self.old = [session(number) for number in range(96)]
        self.file.write_text("".join(f"{one}\n" for one in self.old)[: PAGE - 20], "ascii")
        self.count = 0

    def do(self) -> None:
        self.count += 1
        server = EndedSessions(self.file)
        server.add(session(1000 + self.count))
        assert session(1000 + self.count) in server
        if session(1000 + self.count) not in EndedSessions(self.file):
            raise FirstdriftError(firstdrift.wording.message.verbatim("it is said in the log"))

    def check(self, *, done: bool) -> None:
        others = EndedSessions(self.file)
        assert (session(1000 + self.count) in others) == done
        assert all(one in others for one in self.old[:80])


def session(number: int) -> str:
    return f"9999999999.{number:032x}"


class Backup(Person):
    """A backup, beside the database."""

    def prepare(self) -> None:
        Tables.do(self)

    def do(self) -> None:
        back_up(database_url(self.folder / "data"), self.folder / "backup.db", force=True)

    def check(self, *, done: bool) -> None:
        assert self._count() == 0
        names = {one.name for one in self.folder.iterdir()} - {"data", ".filler"}
        assert names == ({"backup.db"} if done or "backup.db" in names else set())
        if "backup.db" in names:
            with closing(sqlite3.connect(self.folder / "backup.db")) as database:
                assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


class Restore(Backup):
    """A backup that is put back."""

    def prepare(self) -> None:
        super().prepare()
        super().do()

    def do(self) -> None:
        restore(self.folder / "backup.db", database_url(self.folder / "data"))


class Reports(Point):
    """The files of the command line, over old ones."""

    def prepare(self) -> None:
        if not hasattr(self, "report"):
            self.report = firstdrift.compare(*self.arguments[:2])
        tempfile.tempdir = str(self.folder)
        self.chosen: dict[str, Any] = {name: self.folder / name for name in FILES}
        for name in FILES:
            (self.folder / name).write_text("old")

    def do(self) -> None:
        everything = dict.fromkeys(("layer_mapping_file", "view_mapping_file")) | {"columns": "firstdrift"}
        write_files(self.report, everything | self.chosen)

    def check(self, *, done: bool) -> None:
        names = {one.name for one in self.folder.iterdir()} - {".filler"}
        assert names == set(FILES)
        contents = {name: (self.folder / name).read_bytes() for name in FILES}
        if done:
            self.whole = {name: len(content) for name, content in contents.items()}
            assert b"old" not in contents.values()
        for name, content in contents.items():
            assert content == b"old" or name != "html_file" or content.rstrip().endswith(b"</html>"), name
            assert content == b"old" or name != "xlsx_file" or content[-22:-18] == b"PK\5\6", name


class Workbook(Point):
    """The temporary files of a table that a server writes."""

    def prepare(self) -> None:
        tempfile.tempdir = str(self.folder)

    def do(self) -> None:
        wanted = Wanted(1, Format.XLSX, Columns.FIRSTDRIFT)
        self.size = len(b"".join(pieces_of(f"sqlite:///{self.arguments[2]}", wanted)))

    def check(self, *, done: bool) -> None:
        assert {one.name for one in self.folder.iterdir()} <= {".filler"}
        assert self.size > 10_000 if done else True


class Results(Point):
    """The results of many slices, which are held in a temporary file."""

    def prepare(self) -> None:
        tempfile.tempdir = str(self.folder)

    def do(self) -> None:
        results = SliceResults()
        for number in range(5):
            results.add_packed(number, bytes(50_000))

    def check(self, *, done: bool) -> None:
        del done
        assert {one.name for one in self.folder.iterdir()} <= {".filler"}


class Compiled(Point):
    """The cache of compiled code: without it, it is compiled each time."""

    code = os.urandom(100_000)

    def do(self) -> None:
        try:
            machine_code._write(self.folder / "cache" / "kernel-1.o", self.code)
        except OSError as error:  # whoever asks for it does so without it
            raise FirstdriftError(firstdrift.wording.message.verbatim("without a cache")) from error

    def check(self, *, done: bool) -> None:
        names = {one.name for one in self.folder.glob("cache/*")}
        assert names == ({"kernel-1.o"} if done or "kernel-1.o" in names else set())


class Remote(Point):
    """The cache of dumps that lie on other hosts."""

    def prepare(self) -> None:
        import fsspec

        os.environ["FIRSTDRIFT_CACHE"] = str(self.folder / "cache")
        memory = fsspec.filesystem("memory")
        for number in range(3):
            memory.pipe(f"/run/step{number}", bytes([number]) * 30_000)

    def do(self) -> None:
        self.root = fetched("memory://run")
        while held:  # this process is to let go of it
            os.close(held.popitem()[1])
        found = [one.read_bytes() for one in sorted(self.root.iterdir())]
        assert found == [bytes([number]) * 30_000 for number in range(3)]

    def check(self, *, done: bool) -> None:
        for one in self.folder.glob("cache/*/files/**/step*"):
            assert one.stat().st_size == 30_000, "half a file lies where whole ones lie"
        assert done == hasattr(self, "root") or not done


POINTS: dict[str, Callable[[Path, list[str]], Point]] = {
    one.__name__.lower(): one
    for one in (Tables, Person, Upload, Archive, Session, Backup, Restore, Reports, Workbook, Results)
} | {"compiled": Compiled, "remote": Remote}


def tried(point: Point) -> bool:
    """Do it; tell whether there was room."""
    try:
        point.do()
    except FirstdriftError:
        return False
    return True


def go_on(point: Point) -> None:
    """Do it now that there is room again."""
    assert tried(point), "it does not go on though there is room again"
    point.check(done=True)


def main(folder: Path, name: str, step: int, arguments: list[str]) -> dict[str, int]:
    point = POINTS[name](folder, arguments)
    disk = Disk(folder, point.size)
    pages = refused = sizes = 0
    done = False
    while not done:
        assert pages < 20_000, "it never ends"
        disk.clear()
        point.prepare()
        disk.leave(pages)
        done = tried(point)
        sizes, refused = sizes + 1, refused + (not done)
        disk.make_room()
        point.check(done=done)
        if not done:
            go_on(point)
        pages += 1 if pages < 3 else step
    disk.clear()
    point.prepare()
    gc.collect()  # what failed may still hold a file open
    disk.only_for_reading(yes=True)
    forbidden = not tried(point)
    disk.only_for_reading(yes=False)
    point.check(done=not forbidden)
    if forbidden:
        go_on(point)
    return {"sizes": sizes, "refused": refused, "forbidden": forbidden}


if __name__ == "__main__":
    _, where, what, how_far, *given = sys.argv
    sys.stdout.write(json.dumps(main(Path(where), what, int(how_far), given)))
