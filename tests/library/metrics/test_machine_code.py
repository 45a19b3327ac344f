"""The compiled kernel on disk: who may write it, and what becomes of a file that is damaged."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from firstdrift.metrics.elementwise import machine_code

COMPILE = [sys.executable, "-m", "firstdrift.metrics.elementwise.compiled"]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the one folder in which machine code is kept, with the code of this machine in it."""
    subprocess.run(COMPILE, check=True, timeout=120)
    name = machine_code._name(machine_code._level())
    file = next(folder / name for folder in machine_code._folders() if (folder / name).is_file())
    (tmp_path / name).write_bytes(file.read_bytes())
    monkeypatch.setattr(machine_code, "_folders", lambda: iter([tmp_path]))
    return tmp_path / name


def test_what_was_kept_is_loaded(kept: Path) -> None:
    assert kept.is_file()
    assert machine_code.load() is not None


@pytest.mark.parametrize("damage", [b"", b"short", None])
def test_a_damaged_file_is_as_good_as_none(kept: Path, damage: bytes | None) -> None:
    kept.write_bytes(kept.read_bytes()[:-1] if damage is None else damage)
    assert machine_code.load() is None


def test_code_for_another_processor_or_kernel_is_not_loaded(kept: Path) -> None:
    kept.rename(kept.with_name("kernel-0000000000000000.x86-64-v3.o"))
    assert machine_code.load() is None


def test_code_is_made_for_every_level_of_a_processor_that_has_levels(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine_code, "_folders", lambda: iter([tmp_path]))
    machine_code.compile_and_keep()
    assert machine_code._level() in machine_code._levels()
    assert {file.name for file in tmp_path.iterdir()} == set(map(machine_code._name, machine_code._levels()))


DAY = 24 * 3600.0


@pytest.mark.parametrize("is_own", [True, False])
def test_code_of_kernels_that_are_no_more_is_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_own: bool
) -> None:
    monkeypatch.setattr(machine_code, "_folders", lambda: iter([tmp_path]))
    monkeypatch.setattr(machine_code, "_HERE", tmp_path.parent if is_own else tmp_path)
    monkeypatch.setattr(machine_code, "_SOURCES", ())
    ages = {"kernel-0000000000000000.x86-64-v3.o": 40, "kernel-1111111111111111.x86-64-v3.o": 1}
    for name, days in (ages | {"kernel-abc.part": 1, "kernel-def.part": 0, "other.o": 40}).items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - days * DAY,) * 2)
    machine_code.compile_and_keep()
    left = {file.name for file in tmp_path.iterdir()} - set(map(machine_code._name, machine_code._levels()))
    shared = set() if is_own else {"kernel-1111111111111111.x86-64-v3.o"}
    assert left == {"kernel-def.part", "other.o"} | shared


def test_code_in_the_cache_stays_as_long_as_it_is_used(kept: Path) -> None:
    os.utime(kept, (0, 0))
    assert machine_code.load() is not None
    assert kept.stat().st_mtime > time.time() - DAY


def test_nothing_is_compiled_for_a_processor_without_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_code, "_level", lambda: "qemu64")
    monkeypatch.setattr(machine_code, "_levels", lambda: ("x86-64-v4", "x86-64-v3"))
    with pytest.raises(RuntimeError):
        machine_code.compile_and_keep()


def test_where_the_package_may_not_be_written_a_user_has_a_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    read_only = tmp_path / "file"
    read_only.touch()
    monkeypatch.setattr(machine_code, "_folders", lambda: iter([read_only, tmp_path / "cache"]))
    assert machine_code.compile_and_keep() is not None
    assert {file.suffix for file in (tmp_path / "cache").iterdir()} == {".o"}
    assert machine_code.load() is not None


def test_the_cache_of_a_user_lies_in_the_users_cache_directory(tmp_path: Path) -> None:
    folders = "from firstdrift.metrics.elementwise import machine_code as m; print(list(m._folders())[1])"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    said = subprocess.run(
        [sys.executable, "-c", folders], env=environment, check=True, capture_output=True, text=True
    )
    assert said.stdout.strip() == str(tmp_path / "firstdrift")
