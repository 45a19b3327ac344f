"""`.npz` files give the arrays that numpy wrote, stored or compressed, and refuse what is damaged."""

import os
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from messages import ids_of, refuses
from safetensors.numpy import save_file

from firstdrift.dumps.storage.tensor_data import load_tensor, read_headers
from firstdrift.errors import TensorUnreadableError
from firstdrift.model.tensor import DataLocation
from firstdrift.wording.message import Message

pytestmark = pytest.mark.usefixtures("each_way_of_reading")

ARRAYS: dict[str, npt.NDArray[Any]] = {
    "layers.0.weight": np.arange(6.0).reshape(2, 3),
    "long": np.arange(70_000, dtype=np.int16),
    "turned": np.asfortranarray(np.arange(12, dtype=">f4").reshape(3, 4)),
    "empty": np.empty((0, 3)),
    "single": np.array(1.5 + 2j),
    "yes": np.array([True, False]),
}
WRITERS = pytest.mark.parametrize("save", [np.savez, np.savez_compressed], ids=["stored", "compressed"])


def load(file: Path, entry: str) -> npt.NDArray[Any]:
    return load_tensor(DataLocation(file, "npz", entry))


@WRITERS
def test_arrays_come_back_as_they_were(tmp_path: Path, save: Any) -> None:  # noqa: ANN401
    save(tmp_path / "x.npz", **ARRAYS)
    headers = {header.entry: header for header in read_headers(tmp_path / "x.npz", "npz")}
    assert headers.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        values = load(tmp_path / "x.npz", name)
        np.testing.assert_array_equal(values, array)
        assert (headers[name].dtype, headers[name].shape) == (values.dtype.name, values.shape)
        assert not values.flags.writeable


@WRITERS
def test_objects_are_refused_and_spoil_nothing_else(tmp_path: Path, save: Any) -> None:  # noqa: ANN401
    save(tmp_path / "x.npz", good=np.ones(2), bad=np.array([{}]))
    problems = {header.entry: header.problem for header in read_headers(tmp_path / "x.npz", "npz")}
    assert problems["good"] is None
    assert ids_of(problems["bad"]) == ("dumps.npy.unknown_dtype",)
    with pytest.raises(TensorUnreadableError):
        load(tmp_path / "x.npz", "bad")


@WRITERS
def test_an_array_that_is_not_there_is_said_to_be_missing(tmp_path: Path, save: Any) -> None:  # noqa: ANN401
    save(tmp_path / "x.npz", a=np.ones(2))
    with refuses(TensorUnreadableError, "dumps.file.no_such_tensor"):
        load(tmp_path / "x.npz", "b")


def test_ways_of_compression_that_numpy_never_uses_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(2))
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_BZIP2) as archive:
        archive.write(tmp_path / "a.npy", "a.npy")
    (header,) = read_headers(tmp_path / "x.npz", "npz")
    assert ids_of(header.problem) == ("dumps.npz.other_compression",)


def test_an_encrypted_array_spoils_itself_alone(tmp_path: Path) -> None:
    file = tmp_path / "x.npz"
    np.savez_compressed(file, a=np.ones(2), b=np.ones(3))
    contents = bytearray(file.read_bytes())
    for at, flags in ((contents.index(b"PK\x03\x04"), 6), (contents.index(b"PK\x01\x02"), 8)):
        contents[at + flags] |= 1
    file.write_bytes(contents)
    problems = {header.entry: header.problem for header in read_headers(file, "npz")}
    assert problems == {"a": Message.of("dumps.npz.encrypted"), "b": None}
    with refuses(TensorUnreadableError, "dumps.npz.encrypted"):
        load(file, "a")
    assert load(file, "b").sum() == 3


def test_a_damaged_array_is_noticed_by_its_checksum(tmp_path: Path) -> None:
    file = tmp_path / "x.npz"
    np.savez_compressed(file, a=np.arange(5000.0), b=np.ones(3))
    contents = bytearray(file.read_bytes())
    contents[contents.index(b"PK\x01\x02") + 16] ^= 1  # of the checksum of the first
    file.write_bytes(contents)
    with refuses(TensorUnreadableError, "dumps.npz.checksum_differs"):
        load(file, "a")
    assert load(file, "b").sum() == 3


def test_the_directory_of_a_compressed_archive_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.npz"
    np.savez_compressed(file, **{str(at): np.full(2, at) for at in range(20)})
    opened: list[object] = []
    whole = zipfile.ZipFile

    def counted(archive: Any) -> zipfile.ZipFile:  # noqa: ANN401
        opened.append(archive)
        return whole(archive)

    monkeypatch.setattr(zipfile, "ZipFile", counted)
    assert len(read_headers(file, "npz")) == 20
    assert [int(load(file, str(at)).sum()) for at in range(20)] == [2 * at for at in range(20)]
    assert len(opened) == 1


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_of_two_arrays_of_one_name_it_is_said_so(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(2))
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        for name in ("a.npy", "a.npy", "b.npy"):
            archive.write(tmp_path / "a.npy", name)
    problems = {header.entry: header.problem for header in read_headers(tmp_path / "x.npz", "npz")}
    assert problems == {"a": Message.of("dumps.npz.name_twice"), "b": None}


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_damage_is_a_value_or_a_named_error(tmp_path: Path, data: st.DataObject) -> None:
    file = tmp_path / "x.npz"
    save: Any = data.draw(st.sampled_from([np.savez, np.savez_compressed]))
    save(file, **{name: ARRAYS[name] for name in ("layers.0.weight", "turned", "yes")})
    content = bytearray(file.read_bytes())
    start = data.draw(st.integers(0, len(content)))
    length = data.draw(st.integers(0, 40))
    content[start : start + length] = data.draw(st.binary(max_size=40))
    file.write_bytes(content)
    with suppress(TensorUnreadableError):
        for header in read_headers(file, "npz"):
            with suppress(TensorUnreadableError):
                load(file, header.entry)


@pytest.mark.parametrize("container", ["npz", "pt", "safetensors"])
def test_a_file_of_many_tensors_that_is_written_anew_is_read_anew(tmp_path: Path, container: str) -> None:
    file = tmp_path / "many"

    def write(first: str, second: str) -> None:
        tensors = {first: np.ones(3, np.float32), second: np.zeros(3, np.float32)}
        if container == "pt":
            torch.save({name: torch.from_numpy(array) for name, array in tensors.items()}, file)
        elif container == "npz":
            with file.open("wb") as opened:
                np.savez(opened, **tensors)
        else:
            save_file(tensors, file)

    for moment, names in enumerate((("a", "b"), ("b", "a"), ("b", "c"))):
        write(*names)
        os.utime(file, ns=(moment, moment))
        found = {name: load_tensor(DataLocation(file, container, name)).sum() for name in names}
        assert found == {names[0]: 3, names[1]: 0}
    with refuses(TensorUnreadableError, "dumps.file.no_such_tensor"):
        load_tensor(DataLocation(file, container, "a"))
