"""Archives that strangers made: what is harmless is unpacked, all else is refused, and nothing gets out."""

import io
import os
import shutil
import stat
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from messages import refuses

from firstdrift.catalogue.sizes import size_on_disk
from firstdrift.errors import FirstdriftError, NoRoomError, UploadError
from firstdrift_server.uploads import archives
from firstdrift_server.uploads.archives import Limits, unpack
from firstdrift_server.uploads.names import parts_of

WHOLE = Limits(size=1 << 30)


def nothing(*_: object) -> None:
    """Watch without a word."""


def entry(name: str, content: bytes = b"content", **attributes: object) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for attribute, value in attributes.items():
        setattr(member, attribute, value)
    return member, content


def link(name: str, to: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, b"", type=kind, linkname=to)


def tar(file: Path, *entries: tuple[tarfile.TarInfo, bytes], mode: str = "w") -> Path:
    with tarfile.open(file, mode) as archive:  # type: ignore[call-overload] # one of the modes
        for member, content in entries:
            archive.addfile(member, io.BytesIO(content))
    return file


def zipped(file: Path, **contents: bytes) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return file


@pytest.fixture
def into(tmp_path: Path) -> Path:
    """An empty folder, beside which there must never be anything new."""
    folder = tmp_path / "outer" / "into"
    folder.mkdir(parents=True)
    return folder


def refused(archive: Path, into: Path, limits: Limits = WHOLE) -> FirstdriftError:
    with pytest.raises(UploadError) as caught:
        unpack(archive, into, limits, nothing)
    assert list(into.parent.iterdir()) == [into]
    return caught.value


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_tar_files_are_unpacked_however_they_are_compressed(tmp_path: Path, into: Path, mode: str) -> None:
    wanted = {"run/step0/dump.json": b"{}", "run/step0/é ü.pt": os.urandom(3 << 20), "run/empty": b""}
    folder = entry("run/nothing", b"", type=tarfile.DIRTYPE)
    archive = tar(
        tmp_path / "a", folder, *(entry(name, content) for name, content in wanted.items()), mode=mode
    )
    told: list[tuple[int, int, float]] = []
    unpack(archive, into, WHOLE, lambda *at: told.append(at))
    assert {
        path.relative_to(into).as_posix(): path.read_bytes() for path in into.rglob("*") if path.is_file()
    } == wanted
    assert (into / "run/nothing").is_dir()
    assert told[-1][:2] == (4, sum(map(len, wanted.values())))
    assert all(0 <= share <= 1 for _, _, share in told)


def test_zip_files_are_unpacked(tmp_path: Path, into: Path) -> None:
    archive = zipped(
        tmp_path / "a.zip", **{"run/a.npy": b"a" * 5000, "run/b/": b"", "__MACOSX/run/._a": b"x"}
    )
    unpack(archive, into, WHOLE, nothing)
    assert sorted(path.relative_to(into).as_posix() for path in into.rglob("*")) == [
        "run",
        "run/a.npy",
        "run/b",
    ]


def test_no_file_can_be_run_or_changed_by_others(tmp_path: Path, into: Path) -> None:
    unpack(tar(tmp_path / "a", entry("a", mode=0o6777)), into, WHOLE, nothing)
    assert not (into / "a").stat().st_mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IXUSR | stat.S_IWOTH)


def test_links_inside_are_kept(tmp_path: Path, into: Path) -> None:
    hard = link("blobs/again", "blobs/1", tarfile.LNKTYPE)
    unpack(tar(tmp_path / "a", link("snap/w.pt", "../blobs/1"), entry("blobs/1"), hard), into, WHOLE, nothing)
    assert (into / "snap/w.pt").read_bytes() == (into / "blobs/again").read_bytes() == b"content"


LEADING_OUT = {
    "up": [entry("../evil")],
    "up from within": [entry("run/../../evil")],
    "absolute": [entry("/etc/evil")],
    "link out": [link("a", "../../outer")],
    "absolute link": [link("a", "/etc/passwd")],
    "link and then a file through it": [link("a", "../.."), entry("a/evil")],
    "link over a link": [entry("d/e/f/g"), link("d/e/f/a", "../../.."), link("b", "d/e/f/a/../../../x")],
    "two links": [link("a", "b/.."), link("b", "c/.."), link("c", "..")],
    "hard link out": [link("a", "../../../etc/passwd", tarfile.LNKTYPE)],
    "absolute hard link": [link("a", "/etc/passwd", tarfile.LNKTYPE)],
    "hard link to what is not there": [link("a", "b", tarfile.LNKTYPE)],
    "hard link to a link": [link("b", "c"), entry("c"), link("a", "b", tarfile.LNKTYPE), entry("a")],
    "device": [entry("null", b"", type=tarfile.CHRTYPE, devmajor=1, devminor=3)],
    "disk": [entry("sda", b"", type=tarfile.BLKTYPE)],
    "pipe": [entry("pipe", b"", type=tarfile.FIFOTYPE)],
    "twice": [entry("a"), entry("a")],
    "a file and a folder": [entry("a"), entry("a/b")],
    "no name": [entry(".")],
    "long name": [entry("x" * 300)],
    "deep": [entry("/".join("d" * 100))],
}


@pytest.mark.parametrize("name", LEADING_OUT)
def test_what_leads_out_or_is_no_file_is_refused(tmp_path: Path, into: Path, name: str) -> None:
    assert refused(tar(tmp_path / "a", *LEADING_OUT[name]), into).message.id.startswith("uploads.")


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil"])
def test_names_in_zip_files_that_lead_out_are_refused(tmp_path: Path, into: Path, name: str) -> None:
    assert refused(zipped(tmp_path / "a.zip", **{name: b"x"}), into).message.id == "uploads.name_leads_out"


@pytest.mark.parametrize(("kind", "said"), [(stat.S_IFLNK, "link_leads_out"), (stat.S_IFCHR, "special_file")])
def test_links_and_devices_in_zip_files_are_refused(tmp_path: Path, into: Path, kind: int, said: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        member = zipfile.ZipInfo("a")
        member.external_attr = (kind | 0o777) << 16
        archive.writestr(member, "../../outer")
    assert refused(tmp_path / "a.zip", into).message.id == f"uploads.{said}"


def test_names_that_are_no_utf8_are_kept_byte_by_byte(tmp_path: Path, into: Path) -> None:
    with tarfile.open(tmp_path / "a", "w", format=tarfile.GNU_FORMAT, encoding="latin-1") as archive:
        member, content = entry("caf\u00e9.pt")
        archive.addfile(member, io.BytesIO(content))
    unpack(tmp_path / "a", into, WHOLE, nothing)
    assert [os.fsencode(path.name) for path in into.iterdir()] == [b"caf\xe9.pt"]


def test_a_surrogate_in_a_name_gets_into_no_name_of_a_file(tmp_path: Path, into: Path) -> None:
    name = "é".encode() * 3
    archive = zipped(tmp_path / "a.zip", **{name.decode(): b"x"})
    archive.write_bytes(archive.read_bytes().replace(name, b"\xed\xbf\xbf\xed\xbf\xbf"))
    assert refused(archive, into).message.id in ("uploads.archive_damaged", "uploads.damaged")
    with refuses(UploadError, "uploads.no_file_name"):
        parts_of("\ud800.pt")


def bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize("kind", ["zip", "w:gz"])
@pytest.mark.parametrize("within", ["", "a/b/c/d/{}/"])
def test_what_is_nearly_empty_counts_for_the_blocks_it_takes(
    tmp_path: Path, into: Path, kind: str, within: str
) -> None:
    names = [f"{within.format(number)}{number}" for number in range(500)]
    archive = tmp_path / "many"
    if kind == "zip":
        zipped(archive, **dict.fromkeys(names, b"x"))
    else:
        tar(archive, *(entry(name, b"x") for name in names), mode=kind)
    with refuses(NoRoomError, "uploads.archive_needs_room"):
        unpack(archive, into, Limits(size=1_000_000), nothing)
    assert size_on_disk(into) <= 1_050_000
    if kind == "zip":
        assert not list(into.rglob("*")) or within, "a zip file tells before anything is unpacked"


def test_folders_count_though_an_archive_does_not_name_them(tmp_path: Path, into: Path) -> None:
    deep = "/".join("d" * 40)
    archive = tar(tmp_path / "deep", *(entry(f"{number}/{deep}/x", b"") for number in range(10)), mode="w:gz")
    assert refused(archive, into, Limits(1 << 30, files=300)).message.id == "uploads.many_files"
    assert len(list(into.rglob("*"))) <= 300


@pytest.mark.parametrize("kind", ["w:gz", "w:xz", "w:bz2", "zip"])
def test_a_bomb_is_stopped_by_what_comes_out_of_it(
    tmp_path: Path, into: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "FREE_BYTES", 1 << 20)
    zeros = bytes(8 << 20)
    archive = tmp_path / "a"
    if kind == "zip":
        zipped(archive, a=zeros)
    else:
        tar(archive, entry("a", zeros), mode=kind)
    assert refused(archive, into).message.id == "uploads.archive_grows"
    assert bytes_in(into) <= max(2 << 20, 251 * archive.stat().st_size)


def test_a_zip_file_that_lies_about_sizes_is_stopped_all_the_same(tmp_path: Path, into: Path) -> None:
    archive = zipped(tmp_path / "a", a=os.urandom(1 << 20))
    size = (1 << 20).to_bytes(4, "little")
    archive.write_bytes(archive.read_bytes().replace(size, b"\1\0\0\0"))
    refused(archive, into)
    assert bytes_in(into) <= 1


def test_there_are_limits_on_size_and_count(tmp_path: Path, into: Path) -> None:
    archive = tar(tmp_path / "a", *(entry(f"{number}", bytes(1000)) for number in range(30)), mode="w:gz")
    with refuses(NoRoomError, "uploads.archive_needs_room"):
        unpack(archive, into, Limits(size=100_000), nothing)
    again = into.parent / "into"
    shutil.rmtree(again)
    again.mkdir()
    assert refused(archive, again, Limits(1 << 20, files=10)).message.id == "uploads.many_files"
    many = zipped(tmp_path / "z", **{f"z{number}": b"" for number in range(30)})
    assert refused(many, into, Limits(1 << 20, files=10)).message.id == "uploads.many_files"
    assert not list(into.glob("z*")), "a zip file tells how many before anything is unpacked"


def test_a_header_without_an_end_is_not_read_into_memory(tmp_path: Path, into: Path) -> None:
    member, _ = entry("././@LongLink", b"", type=tarfile.GNUTYPE_LONGNAME)
    member.size = 1 << 40
    with (tmp_path / "a").open("wb") as file:
        file.write(member.tobuf(tarfile.GNU_FORMAT))
        file.truncate(64 << 20)
    assert refused(tmp_path / "a", into).message.id == "uploads.endless_header"


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2", "zip"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_an_archive_that_is_cut_short_is_refused(tmp_path: Path, into: Path, mode: str, share: float) -> None:
    contents = {f"run/{number}": os.urandom(20_000) for number in range(9)}
    archive = tmp_path / "a"
    if mode == "zip":
        zipped(archive, **contents)
    else:
        tar(archive, *(entry(*item) for item in contents.items()), mode=mode)
    archive.write_bytes(archive.read_bytes()[: int(share * archive.stat().st_size)])
    assert refused(archive, into).message.id.startswith("uploads.")


def test_a_tar_file_cut_between_two_files_is_refused(tmp_path: Path, into: Path) -> None:
    archive = tar(tmp_path / "a", entry("a", bytes(512)), entry("b", bytes(512)))
    archive.write_bytes(archive.read_bytes()[:1024])
    assert refused(archive, into).message.id == "uploads.cut_short"


@pytest.mark.parametrize(
    "content", [b"", b"PK\3\4", b"just text\n" * 1000, b"\x1f\x8b\x08", b"\xfd7zXZ\0", bytes(700)]
)
def test_what_is_no_archive_is_refused(tmp_path: Path, into: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    assert refused(tmp_path / "a", into).message.id.startswith("uploads.")


def test_an_encrypted_zip_file_is_refused(tmp_path: Path, into: Path) -> None:
    archive = zipped(tmp_path / "a", a=b"x")
    content = bytearray(archive.read_bytes())
    content[6] |= 1
    content[content.index(b"PK\1\2") + 8] |= 1
    archive.write_bytes(content)
    assert refused(archive, into).message.id == "uploads.encrypted"


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_whatever_is_changed_in_an_archive_it_is_unpacked_or_refused_and_nothing_gets_out(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("changed")
    entries = [entry("run/a", b"abc" * 300), link("run/b", "a"), link("run/c", "run/a", tarfile.LNKTYPE)]
    archive = folder / "a"
    if data.draw(st.booleans()):
        tar(archive, *entries)
    else:
        zipped(archive, **{"run/a": b"abc" * 300, "run/b": b"x"})
    content = bytearray(archive.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    archive.write_bytes(content)
    into = folder / "into"
    into.mkdir()
    with suppress(UploadError):
        unpack(archive, into, WHOLE, nothing)
    assert sorted(folder.iterdir()) == [archive, into]
    assert all(path.resolve().is_relative_to(into) for path in into.rglob("*"))
