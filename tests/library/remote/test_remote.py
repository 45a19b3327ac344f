"""A dump on another host is compared as if it lay here; what came once comes no more."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import firstdrift
from firstdrift.cli import main
from firstdrift.errors import (
    DumpNotFoundError,
    DumpNotRecognisedError,
    DumpUnreadableError,
    LimitError,
    SettingsError,
)
from firstdrift.remote import fetch
from firstdrift.remote.addresses import shown
from firstdrift.remote.cache import most_bytes
from firstdrift.remote.fetch import fetched

EXAMPLE = Path(__file__).parents[3] / "examples/msprobe-llama-statistics"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("FIRSTDRIFT_CACHE", str(tmp_path / "cache"))
    yield tmp_path / "cache"
    let_go()


@pytest.fixture
def remote() -> Iterator[MemoryFileSystem]:
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield system
    system.store.clear()


@pytest.fixture
def came(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of what is fetched, as it grows."""
    names: list[str] = []
    get_file = MemoryFileSystem.get_file

    def counting(self: MemoryFileSystem, rpath: str, lpath: str, **options: object) -> None:
        names.append(rpath)
        get_file(self, rpath, lpath, **options)

    monkeypatch.setattr(MemoryFileSystem, "get_file", counting)
    return names


def let_go() -> None:
    """Let go of what is in use, as the end of a process does."""
    for held in fetch._held.values():
        os.close(held)
    fetch._held.clear()


def files_in(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def parts_in(cache: Path) -> list[Path]:
    return list(cache.glob("*/parts/*"))


def test_two_addresses_are_compared_as_their_folders_would_be(remote: MemoryFileSystem) -> None:
    remote.put(str(EXAMPLE) + "/", "/", recursive=True)
    there = firstdrift.compare("memory://golden", "memory://target")
    here = firstdrift.compare(EXAMPLE / "golden", EXAMPLE / "target")
    assert (there.counts, there.findings) == (here.counts, here.findings)
    assert (there.golden.path, there.target.path) == ("memory://golden", "memory://target")


def test_edits_are_laid_on_what_was_fetched(remote: MemoryFileSystem) -> None:
    remote.put(str(EXAMPLE) + "/", "/", recursive=True)
    report = firstdrift.compare("memory://golden", "memory://target")
    edited = report.unmatch(report.slices[0].plan.matches[0].golden[0])
    assert edited.counts.unmatched_golden_nodes > 0


def test_what_changed_is_fetched_again_and_what_is_gone_goes(
    remote: MemoryFileSystem, came: list[str]
) -> None:
    for name in "abc":
        remote.pipe(f"/golden/step0/{name}.npy", b"one")
    folder = fetched("memory://golden")
    assert sorted(came) == [f"/golden/step0/{name}.npy" for name in "abc"]
    assert folder.name == "golden"
    came.clear()
    assert fetched("memory://golden") == folder
    assert came == []
    remote.pipe("/golden/step0/b.npy", b"two")
    remote.rm("/golden/step0/c.npy")
    fetched("memory://golden")
    assert came == ["/golden/step0/b.npy"]
    assert files_in(folder) == {"step0/a.npy", "step0/b.npy"}
    assert (folder / "step0/b.npy").read_bytes() == b"two"


def test_a_file_that_becomes_a_folder_is_followed(remote: MemoryFileSystem) -> None:
    remote.pipe("/golden/a", b"one")
    folder = fetched("memory://golden")
    remote.rm("/golden/a")
    remote.pipe("/golden/a/b", b"two")
    fetched("memory://golden")
    assert files_in(folder) == {"a/b"}
    remote.rm("/golden/a", recursive=True)
    remote.pipe("/golden/a", b"one")
    fetched("memory://golden")
    assert files_in(folder) == {"a"}


def test_a_file_is_a_dump_too(remote: MemoryFileSystem) -> None:
    remote.pipe("/runs/golden.npz", b"one")
    assert fetched("memory://runs/golden.npz").read_bytes() == b"one"
    assert fetched("memory://runs/golden.npz").name == "golden.npz"


def test_the_root_of_a_file_system_is_a_dump_too(remote: MemoryFileSystem) -> None:
    remote.pipe("/step0/a.npy", b"one")
    assert files_in(fetched("memory:///")) == {"step0/a.npy"}


def test_it_is_told_how_many_files_came(remote: MemoryFileSystem) -> None:
    for number in range(3):
        remote.pipe(f"/golden/{number}", b"one")
    told: list[tuple[int, int]] = []
    fetched("memory://golden", lambda done, total: told.append((done, total)))
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_a_transfer_that_breaks_off_leaves_no_half_file_and_goes_on_where_it_was(
    remote: MemoryFileSystem, cache: Path, monkeypatch: pytest.MonkeyPatch, came: list[str]
) -> None:
    remote.pipe("/golden/a.npy", b"whole")
    remote.pipe("/golden/b.npy", b"broken")
    get_file = MemoryFileSystem.get_file

    def breaking(self: MemoryFileSystem, rpath: str, lpath: str, **options: object) -> None:
        if rpath.endswith("b.npy"):
            Path(lpath).write_bytes(b"bro")
            raise ConnectionResetError("reset by peer")
        get_file(self, rpath, lpath, **options)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "get_file", breaking)
        with pytest.raises(DumpUnreadableError, match=r"memory://golden/b\.npy .*reset by peer"):
            fetched("memory://golden")
    assert parts_in(cache) == []
    assert not list(cache.rglob("b.npy"))
    let_go()
    folder = fetched("memory://golden")
    assert came.count("/golden/b.npy") == 1
    assert files_in(folder) == {"a.npy", "b.npy"}


def test_fewer_bytes_than_were_promised_are_no_file(
    remote: MemoryFileSystem, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(_: MemoryFileSystem, rpath: str, lpath: str, **options: object) -> None:  # noqa: ARG001
        Path(lpath).write_bytes(b"on")

    remote.pipe("/golden/a.npy", b"one")
    monkeypatch.setattr(MemoryFileSystem, "get_file", short)
    with pytest.raises(DumpUnreadableError, match="2 of 3 bytes"):
        fetched("memory://golden")
    assert not list(cache.rglob("a.npy"))


def test_a_full_disk_is_told(remote: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    remote.pipe("/golden/a.npy", b"one")
    monkeypatch.setattr(MemoryFileSystem, "get_file", full)
    with pytest.raises(LimitError) as told:
        fetched("memory://golden")
    assert told.value.message.id == "remote.disk_full"


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "a//../evil", "a\0b"])
def test_a_name_that_leads_elsewhere_is_refused(
    remote: MemoryFileSystem, cache: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    entry = {"name": f"/golden/{name}", "size": 3, "type": "file", "created": 1}
    remote.pipe("/golden/a.npy", b"one")
    monkeypatch.setattr(MemoryFileSystem, "ls", lambda *_, **__: [entry])
    with pytest.raises(DumpUnreadableError) as refused:
        fetched("memory://golden")
    assert refused.value.message.id == "remote.refused"
    assert not cache.exists()


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "/elsewhere/a", "size": 3, "type": "file"},
        {"name": "/golden/a", "size": 3, "type": "link"},
        {"name": "/golden/a", "size": 3, "type": "file", "islink": True},
        {"name": "/golden/../a", "size": 0, "type": "directory"},
    ],
)
def test_links_and_what_lies_elsewhere_are_refused(
    monkeypatch: pytest.MonkeyPatch, remote: MemoryFileSystem, entry: dict[str, Any]
) -> None:
    remote.pipe("/golden/a", b"one")
    monkeypatch.setattr(MemoryFileSystem, "ls", lambda *_, **__: [entry])
    with pytest.raises(DumpUnreadableError) as refused:
        fetched("memory://golden")
    assert refused.value.message.id == "remote.refused"


def test_an_address_leads_out_of_the_cache_as_little(remote: MemoryFileSystem, cache: Path) -> None:
    remote.pipe("/x/../../../golden/a", b"one")
    folder = fetched("memory://x/../../../golden")
    assert folder.resolve().is_relative_to(cache.resolve())
    assert files_in(folder) == {"a"}


def test_the_least_recently_used_dump_makes_room(
    remote: MemoryFileSystem, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRSTDRIFT_CACHE_SIZE", "2500")
    for name in ("one", "two", "three"):
        remote.pipe(f"/{name}/a.npy", bytes(1000))
    one, two = fetched("memory://one"), fetched("memory://two")
    let_go()
    os.utime(one.parents[1] / "in_use", (1, 1))
    three = fetched("memory://three")
    assert not one.exists()
    assert two.exists()
    assert three.exists()
    assert len(list(cache.glob("*/in_use"))) == 2


def test_what_is_in_use_is_not_removed(remote: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTDRIFT_CACHE_SIZE", "1500")
    remote.pipe("/one/a.npy", bytes(1000))
    remote.pipe("/two/a.npy", bytes(1000))
    one = fetched("memory://one")
    with pytest.raises(LimitError) as told:
        fetched("memory://two")
    assert told.value.message.id == "remote.no_room"
    assert files_in(one) == {"a.npy"}


@pytest.mark.parametrize(("said", "size"), [("10", 10), ("10KiB", 10240), ("2 GB", 2 << 30), ("1t", 1 << 40)])
def test_the_size_is_said_in_words(monkeypatch: pytest.MonkeyPatch, said: str, size: int) -> None:
    monkeypatch.setenv("FIRSTDRIFT_CACHE_SIZE", said)
    assert most_bytes() == size


def test_a_size_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTDRIFT_CACHE_SIZE", "much")
    with pytest.raises(SettingsError):
        most_bytes()


@pytest.mark.usefixtures("remote")
def test_nothing_at_the_address_is_told_with_it() -> None:
    with pytest.raises(DumpNotFoundError, match="memory://golden"):
        firstdrift.compare("memory://golden", "memory://target")


def test_what_is_no_dump_is_told_with_its_address(remote: MemoryFileSystem) -> None:
    remote.pipe("/golden/a.txt", b"one")
    with pytest.raises(DumpNotRecognisedError, match=r"^memory://golden: "):
        firstdrift.compare("memory://golden", "memory://golden")


def test_a_damaged_slice_is_told_with_its_address(remote: MemoryFileSystem) -> None:
    remote.put(str(EXAMPLE) + "/golden/", "/golden/", recursive=True)
    remote.put(str(EXAMPLE / "golden" / "step0") + "/", "/golden/step1/", recursive=True)
    # The last step might still be written.
    remote.pipe("/golden/step0/rank0/dump.json", b'{"task": "statistics", "data": {')
    report = firstdrift.compare("memory://golden", "memory://golden")
    assert [problem.file for problem in report.golden.problems] == ["memory://golden/step0/rank0/dump.json"]


def test_a_missing_driver_is_named() -> None:
    with pytest.raises(DumpUnreadableError, match="pip install smb") as told:
        fetched("smb://host/share/golden")
    assert told.value.message.id == "remote.no_driver"


def test_an_unknown_scheme_is_told() -> None:
    with pytest.raises(DumpUnreadableError, match="nosuch"):
        fetched("nosuch://host/golden")


def test_a_file_address_is_read_where_it_lies(cache: Path) -> None:
    assert fetched(f"file://{EXAMPLE}/golden") == EXAMPLE / "golden"
    assert not cache.exists()


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("sftp://me:secret@host/golden/", "sftp://me@host/golden"),
        ("https://host/golden?signature=secret", "https://host/golden"),
        ("s3://bucket/a:b@c", "s3://bucket/a:b@c"),
    ],
)
def test_no_password_is_shown(address: str, text: str) -> None:
    assert shown(address) == text


def test_no_password_is_shown_of_what_a_driver_says(
    remote: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise ConnectionError("403, url='https://me:secret@host/golden/a.npy?signature=secret'")

    remote.pipe("/golden/a.npy", b"one")
    monkeypatch.setattr(MemoryFileSystem, "get_file", refused)
    with pytest.raises(DumpUnreadableError, match=r"url='https://me@host/golden/a\.npy'") as told:
        fetched("memory://golden")
    assert "secret" not in str(told.value)


def test_the_command_inspects_and_compares_addresses(
    remote: MemoryFileSystem, capsys: pytest.CaptureFixture[str]
) -> None:
    remote.put(str(EXAMPLE) + "/", "/", recursive=True)
    with pytest.raises(SystemExit) as ended:
        main(["inspect", "memory://golden", "--json"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["path"] == "memory://golden"
    with pytest.raises(SystemExit) as ended:
        main(["compare", "memory://golden", "memory://target", "--json"])
    assert ended.value.code == 1
    assert json.loads(capsys.readouterr().out)["target"]["path"] == "memory://target"


def test_two_processes_fetch_the_same_dump_at_once(tmp_path: Path, cache: Path) -> None:
    packed = tmp_path / "packed.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for number in range(200):
            archive.writestr(f"golden/{number}.npy", bytes(1000))
    script = "import sys; from firstdrift.remote.fetch import fetched; print(fetched(sys.argv[1]))"
    command = [sys.executable, "-c", script, f"zip://golden::file://{packed}"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    folders = {one.communicate(timeout=60)[0].strip() for one in both}
    assert [one.returncode for one in both] == [0, 0]
    assert len(folders) == 1
    assert len(files_in(Path(folders.pop()))) == 200
    assert parts_in(cache) == []
    (versions,) = cache.glob("*/versions")
    assert len(versions.read_bytes().splitlines()) == 200  # the second one found them there


def test_the_cache_is_for_its_owner_alone(remote: MemoryFileSystem, cache: Path) -> None:
    remote.pipe("/golden/a", b"one")
    fetched("memory://golden")
    assert cache.stat().st_mode & 0o077 == 0


def test_a_rollout_and_a_trainer_may_lie_at_addresses(
    remote: MemoryFileSystem, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = Path(__file__).parents[2] / "dumps" / "rollout"
    for name in ("rollout", "trainer"):
        remote.pipe(f"/runs/{name}.jsonl", (samples / f"{name}.jsonl").read_bytes())
    with pytest.raises(SystemExit) as ended:
        main(["rollout", "memory://runs/rollout.jsonl", "memory://runs/trainer.jsonl", "--json"])
    assert ended.value.code == 0
    said = json.loads(capsys.readouterr().out)
    assert said["rollout"]["path"] == "memory://runs/rollout.jsonl"
    with pytest.raises(SystemExit) as ended:
        main(["rollout", "memory://runs/missing", "memory://runs/trainer.jsonl"])
    assert ended.value.code == 2
    assert "there is nothing at memory://runs/missing" in capsys.readouterr().err
