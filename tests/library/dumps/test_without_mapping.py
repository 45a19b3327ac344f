"""A process that maps nothing reads the same values, and no more than those; it survives files cut short."""

import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from library.dumps.atb_samples import container
from library.dumps.torchair_samples import ge_file
from safetensors.numpy import save_file

from firstdrift.comparison.compare import compare
from firstdrift.dumps.containers import atb_bin, ge_dump, npy, npz, pt, safetensors_file
from firstdrift.dumps.containers.contents import DamagedError, Ranges, file_contents, view
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import TensorUnreadableError
from firstdrift.files import allow_mapping
from firstdrift.model.tensor import DataLocation

VALUES = np.arange(200_000, dtype=np.float32).reshape(400, 500)
SMALL = 4 << 10


@pytest.fixture
def unmapped() -> Iterator[None]:
    """Be a process that maps nothing."""
    allow_mapping(allowed=False)
    yield
    allow_mapping(allowed=True)


def save_zip(file: Path) -> None:
    torch.save({"a": torch.from_numpy(VALUES), "z": torch.zeros(300_000)}, file)


def save_legacy(file: Path) -> None:
    saved = {"a": torch.from_numpy(VALUES), "z": torch.zeros(300_000)}
    torch.save(saved, file, _use_new_zipfile_serialization=False)


def save_view(file: Path) -> None:
    """Save a part of a storage; all of the storage is in the file."""
    around = torch.zeros(500_000)
    around[100_000:300_000] = torch.from_numpy(VALUES).reshape(-1)
    torch.save({"a": around[100_000:300_000].view(400, 500)}, file)


WAYS: dict[str, tuple[str, str, Callable[[Path], object]]] = {
    "pt": ("pt", "a", save_zip),
    "legacy pt": ("pt", "a", save_legacy),
    "view in a pt": ("pt", "a", save_view),
    "npy": ("npy", "", lambda file: np.save(file, VALUES)),
    "npy of Fortran": ("npy", "", lambda file: np.save(file, np.asfortranarray(VALUES))),
    "npz": ("npz", "a", lambda file: np.savez(file, z=np.zeros(300_000), a=VALUES)),
    "packed npz": ("npz", "a", lambda file: np.savez_compressed(file, z=np.zeros(300_000), a=VALUES)),
    "safetensors": (
        "safetensors",
        "a",
        lambda file: save_file({"a": VALUES, "z": np.zeros(300_000, np.float32)}, file),
    ),
    "bin": ("bin", "", lambda file: file.write_bytes(container(0, "400,500", VALUES.tobytes()))),
    "ge": ("ge", "output.0", lambda file: file.write_bytes(ge_file([np.zeros(300_000)], [VALUES]))),
}
MODULES: dict[str, ModuleType] = {
    "pt": pt,
    "npy": npy,
    "npz": npz,
    "safetensors": safetensors_file,
    "bin": atb_bin,
    "ge": ge_dump,
}


def saved(folder: Path, way: str) -> DataLocation:
    layout, entry, save = WAYS[way]
    file = folder / f"a.{'npz' if layout == 'npz' else 'npy'}"
    save(file)
    return DataLocation(file, layout, entry)


def test_where_it_may_a_process_reads_small_files_and_maps_large_ones(tmp_path: Path) -> None:
    def root_of(array: Any) -> object:  # noqa: ANN401
        while isinstance(array, np.ndarray) and array.base is not None:
            array = array.base
        return array.obj if isinstance(array, memoryview) else array

    for size, kind in ((10, bytes), (100_000, mmap.mmap)):
        torch.save(torch.ones(size), tmp_path / "a.pt")
        assert isinstance(root_of(load_tensor(DataLocation(tmp_path / "a.pt", "pt"))), kind)


@pytest.mark.usefixtures("unmapped")
@pytest.mark.parametrize("way", WAYS)
def test_the_values_are_the_same_and_read_only(tmp_path: Path, way: str) -> None:
    array = load_tensor(saved(tmp_path, way))
    assert np.array_equal(array, VALUES)
    assert not array.flags.writeable
    assert array.flags.aligned


@pytest.mark.usefixtures("unmapped")
@pytest.mark.parametrize("way", [way for way in WAYS if way not in ("npy", "npy of Fortran", "bin")])
def test_little_more_is_read_than_the_tensor_that_is_wanted(tmp_path: Path, way: str) -> None:
    location = saved(tmp_path, way)
    assert location.file.stat().st_size > VALUES.nbytes * 5 // 4 or way == "packed npz"
    before = bytes_read()
    load_tensor(location)
    assert bytes_read() - before < VALUES.nbytes + (512 << 10)


def bytes_read() -> int:
    """Return how many bytes this process has read so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(lines[0].removeprefix("rchar: "))


@pytest.mark.usefixtures("unmapped")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("left", [0, 100, 300_000])
def test_a_file_that_was_cut_short_after_it_was_opened_is_a_damaged_tensor(
    tmp_path: Path, way: str, left: int
) -> None:
    location = saved(tmp_path, way)
    left = min(left, location.file.stat().st_size // 2)
    contents = file_contents(location.file)
    os.truncate(location.file, left)
    with pytest.raises(DamagedError):
        MODULES[location.container].load(location.file, contents, location.entry)


def test_a_process_that_maps_nothing_survives_files_that_are_cut_short(tmp_path: Path) -> None:
    """As a process of its own: one that maps the file is ended by the system."""
    np.save(tmp_path / "a.npy", VALUES)
    script = (
        "import os, sys; from pathlib import Path;"
        "from firstdrift.dumps.containers import npy;"
        "from firstdrift.dumps.containers.contents import file_contents;"
        "from firstdrift.files import allow_mapping; allow_mapping(allowed=False);"
        "file = Path(sys.argv[1]); contents = file_contents(file); os.truncate(file, 1000);"
        "print(npy.load(file, contents, '').sum())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "a.npy")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "dumps.file.cut_short_meanwhile" in done.stderr


@settings(deadline=None)
@given(data=st.data())
def test_ranges_give_what_the_bytes_give(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = os.urandom(1000) * 300
    file = tmp_path_factory.getbasetemp() / "ranges"
    file.write_bytes(whole)
    ranges = Ranges(os.open(file, os.O_RDONLY), len(whole))
    for _ in range(20):
        start = data.draw(st.integers(0, len(whole) + 10))
        size = data.draw(st.integers(0, len(whole)))
        assert ranges[start : start + size] == whole[start : start + size]
        assert ranges.find(whole[7:8], start) == whole.find(whole[7:8], start)
        if start < len(whole):
            assert ranges[start] == whole[start]
        if start + size <= len(whole):
            assert view(ranges, start, size) == view(whole, start, size)
        else:
            with pytest.raises(DamagedError):
                view(ranges, start, size)
    with pytest.raises(IndexError):
        ranges[len(whole)]


@pytest.mark.usefixtures("unmapped")
def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    import psutil

    location = saved(tmp_path, "safetensors")
    load_tensor(location)
    before = psutil.Process().num_fds()
    for _ in range(30):
        load_tensor(location)
        with pytest.raises(TensorUnreadableError):
            load_tensor(DataLocation(location.file, "npy"))
    assert psutil.Process().num_fds() == before


@pytest.mark.usefixtures("unmapped")
def test_a_comparison_without_mapping_says_the_same(unpacked: Callable[[str], Path]) -> None:
    golden, target = unpacked("msit/llama4_golden_fp32"), unpacked("msit/llama4_perturb_L2_T3")
    without = compare(golden, target)
    allow_mapping(allowed=True)
    mapped = compare(golden, target)
    assert without.counts == mapped.counts
    assert [one.measurements for one in without.slices] == [one.measurements for one in mapped.slices]
