"""What is opened is what was checked: swapped files and folders, pipes and devices, files that grow."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from messages import like, refuses, says

from firstdrift import files
from firstdrift.dumps.detect import open_dump
from firstdrift.dumps.storage.tensor_data import load_tensor, read_headers
from firstdrift.errors import DumpError, PathOutsideRootsError, TensorUnreadableError
from firstdrift.files import (
    LEADS_OUT,
    NotRegularError,
    OutsideError,
    TooLargeError,
    confine_process,
    list_folder,
    open_part_by_part,
    open_regular,
    read_regular,
    real_path,
)
from firstdrift.model.tensor import DataLocation, TensorRecord
from firstdrift.parallel.slices import read_slice
from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of

Unpacked = Callable[[str], Path]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """The one root that this process is confined to, beside which a secret lies."""
    folder = (tmp_path / "root").resolve()
    folder.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("s3cr3t")
    (tmp_path / "root-old").mkdir()
    (tmp_path / "root-old/secret").write_text("s3cr3t")
    confine_process([folder])
    yield folder
    confine_process(None)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    return (tmp_path / "outside").resolve()


def tensors(dump: Path) -> list[TensorRecord]:
    opened = open_dump(dump)
    return [
        tensor
        for listing in opened.slices
        for node in read_slice(opened, listing).nodes
        for tensor in node.tensors
        if tensor.location is not None and tensor.problem is None
    ]


def refusals(found: list[TensorRecord]) -> list[Message]:
    said = []
    for tensor in found:
        assert tensor.location is not None
        with pytest.raises(TensorUnreadableError) as caught:
            load_tensor(tensor.location)
        said.append(caught.value.message)
    return said


def swapped_for_link(path: Path, outside: Path) -> None:
    """Move something out of its place and leave a link to it."""
    goal = outside / path.name
    path.rename(goal)
    path.symlink_to(goal)


@pytest.fixture
def dump(unpacked: Unpacked, root: Path) -> Path:
    return Path(shutil.copytree(unpacked("msit/llama4_golden_fp32"), root / "dumps/golden"))


def test_tensors_swapped_for_links_after_they_were_listed_are_refused(dump: Path, outside: Path) -> None:
    found = tensors(dump)[:150]
    assert len(found) == 150
    for place in {tensor.location.file for tensor in found if tensor.location is not None}:
        folder = outside / place.parent.relative_to(dump)
        folder.mkdir(parents=True, exist_ok=True)
        swapped_for_link(place, folder)
    assert refusals(found) == [LEADS_OUT] * 150


def test_a_folder_above_them_that_is_swapped_is_refused_too(dump: Path, outside: Path) -> None:
    found = tensors(dump)[:20]
    assert found[0].location is not None
    swapped_for_link(found[0].location.file.parents[1], outside)
    assert LEADS_OUT in refusals(found[:1])


def test_a_dump_that_is_swapped_for_a_link_is_refused(dump: Path, outside: Path) -> None:
    opened, found = open_dump(dump), tensors(dump)[:20]
    swapped_for_link(dump, outside)
    assert refusals(found) == [LEADS_OUT] * 20
    with pytest.raises(PathOutsideRootsError):
        open_dump(dump)
    with refuses(DumpError, "files.leads_out"):
        read_slice(opened, opened.slices[0])


def test_a_root_that_is_swapped_for_a_link_does_not_become_what_the_link_leads_to(
    root: Path, outside: Path
) -> None:
    np.save(root / "a.npy", np.arange(3.0))
    place = DataLocation(root / "a.npy", "npy")
    assert load_tensor(place).tolist() == [0, 1, 2]
    np.save(outside / "a.npy", np.arange(5.0))
    root.rename(root.with_name("was-root"))
    root.symlink_to(outside)
    with pytest.raises(TensorUnreadableError, match=text_of(LEADS_OUT)):
        load_tensor(place)


def test_links_from_one_place_in_a_dump_to_another_still_work(root: Path) -> None:
    (root / "dump/blobs").mkdir(parents=True)
    np.save(root / "dump/blobs/1.npy", np.arange(3.0))
    (root / "dump/a.npy").symlink_to("blobs/1.npy")
    assert load_tensor(DataLocation(root / "dump/a.npy", "npy")).tolist() == [0, 1, 2]
    assert {tensor.problem for tensor in tensors(root / "dump")} == {None}


@pytest.mark.parametrize(
    "name",
    ["link", "folder/secret", "../outside/secret", "../root-old/secret", "/etc/passwd", "link-to-link"],
)
def test_nothing_outside_is_opened_whatever_it_is_called(root: Path, outside: Path, name: str) -> None:
    (root / "link").symlink_to(outside / "secret")
    (root / "link-to-link").symlink_to("link")
    (root / "folder").symlink_to(outside)
    with pytest.raises(OutsideError):
        open_regular(root / name)
    confine_process(None)
    with pytest.raises(OutsideError):
        open_regular(root / name, within=[root])


def test_folders_outside_are_not_listed(root: Path, outside: Path) -> None:
    (root / "folder").symlink_to(outside)
    (root / "inner").mkdir()
    (root / "inner/a").touch()
    assert [(entry.name, entry.path) for entry in list_folder(root / "inner")] == [
        ("a", str(root / "inner/a"))
    ]
    with pytest.raises(OutsideError):
        list_folder(root / "folder")
    with pytest.raises(OutsideError):
        list_folder(outside)


def test_entries_of_a_folder_say_what_the_system_says(root: Path, outside: Path) -> None:
    (root / "file").write_text("abc")
    (root / "folder").mkdir()
    (root / "to-file").symlink_to("file")
    (root / "to-folder").symlink_to(outside)
    (root / "to-nothing").symlink_to("nothing")
    os.mkfifo(root / "pipe")
    with os.scandir(root) as scanned:
        expected = {
            entry.name: (entry.path, entry.is_dir(), entry.is_file(), entry.is_symlink()) for entry in scanned
        }
    found = list_folder(root)
    assert {
        entry.name: (entry.path, entry.is_dir(), entry.is_file(), entry.is_symlink()) for entry in found
    } == expected
    assert {entry.stat().st_size for entry in found if entry.name in ("file", "to-file")} == {3}
    assert not any(entry.is_dir(follow_symlinks=False) for entry in found if entry.name == "to-folder")


def test_pipes_devices_folders_and_sockets_are_refused_at_once(root: Path) -> None:
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    confine_process(None)
    for path in (root / "pipe", root / "folder", Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(NotRegularError):
            open_regular(path)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(root / "socket"))
        with pytest.raises(OSError):
            open_regular(root / "socket")


def test_what_is_too_large_is_refused_before_a_byte_of_it_is_read(root: Path) -> None:
    with (root / "sparse").open("wb") as file:
        file.truncate(3 << 30)
    with pytest.raises(TooLargeError, match=like("files.too_large")):
        read_regular(root / "sparse", most=1 << 20)


@pytest.mark.parametrize("size", [-1, 10, 100_000])
def test_a_file_that_grows_while_it_is_read_gives_no_more_than_it_may(root: Path, size: int) -> None:
    (root / "grows").write_bytes(b"a" * 50_000)
    with open_regular(root / "grows", most=50_000) as opened, (root / "grows").open("ab") as growing:
        growing.write(b"a" * 1000)
        growing.flush()
        with pytest.raises(TooLargeError):
            list(iter(lambda: opened.read(size), b""))
    assert read_regular(root / "grows", most=51_000) == b"a" * 51_000


def test_where_the_system_does_not_say_what_was_opened_no_part_of_the_path_may_be_a_link(
    root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "inner").mkdir()
    (root / "inner/a").write_text("abc")
    (root / "link").symlink_to("inner/a")
    (root / "out").symlink_to(outside / "secret")
    (root / "folder").symlink_to(outside)
    with pytest.raises(OSError):
        open_part_by_part(root / "folder/secret", os.O_RDONLY)
    with pytest.raises(OSError):
        open_part_by_part(root / "link", os.O_RDONLY)
    monkeypatch.setattr(files, "real_path", lambda _: None)
    assert read_regular(root / "link", most=10) == b"abc"
    with pytest.raises(OutsideError):
        read_regular(root / "out", most=10)


def test_the_system_says_where_what_is_open_lies(root: Path) -> None:
    (root / "é ü\udcff").write_text("abc")
    (root / "link").symlink_to("é ü\udcff")
    with open_regular(root / "link") as opened:
        assert real_path(opened.fileno()) == root / "é ü\udcff"


def test_no_descriptor_is_left_open_by_what_is_refused(root: Path, outside: Path) -> None:
    (root / "link").symlink_to(outside / "secret")
    os.mkfifo(root / "pipe")
    before = psutil.Process().num_fds()
    for _ in range(20):
        for name in ("link", "pipe", "none"):
            with pytest.raises(OSError):
                open_regular(root / name, most=1)
        with pytest.raises(OSError):
            list_folder(root / "link")
    assert psutil.Process().num_fds() == before


def test_a_pipe_among_tensor_files_holds_nobody_up(root: Path) -> None:
    os.mkfifo(root / "a.npy")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            (
                "import sys; from pathlib import Path;"
                "from firstdrift.dumps.storage.tensor_data import read_headers;"
                "read_headers(Path(sys.argv[1]), 'npy')"
            ),
            str(root / "a.npy"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert says(done.stderr, "files.not_regular")
    with pytest.raises(TensorUnreadableError):
        read_headers(root / "a.npy", "npy")
