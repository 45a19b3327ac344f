"""Files of torch.save: everything torch writes is read, nothing in them is run."""

import io
import os
import pickle
import struct
import subprocess
import sys
import time
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from messages import refuses

from firstdrift.dumps.storage.tensor_data import load_tensor, read_headers
from firstdrift.errors import TensorUnreadableError
from firstdrift.model.tensor import DataLocation
from firstdrift.wording.message import Message

pytestmark = pytest.mark.usefixtures("each_way_of_reading")

INTEGERS = [
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
]
FLOATS = [
    *(torch.float16, torch.float32, torch.float64, torch.bfloat16),
    *(torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz),
]
COMPLEX = [torch.complex64, torch.complex128]


def saved(folder: Path, value: object, **options: Any) -> Path:  # noqa: ANN401
    file = folder / "saved.pt"
    torch.save(value, file, **options)
    return file


def load(file: Path, entry: str = "") -> np.ndarray[Any, Any]:
    return load_tensor(DataLocation(file, "pt", entry))


def raw_bytes(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().resolve_conj().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def assert_same(array: np.ndarray[Any, Any], tensor: torch.Tensor) -> None:
    assert array.dtype.name == str(tensor.dtype).removeprefix("torch.")
    assert array.shape == tuple(tensor.shape)
    assert array.tobytes() == raw_bytes(tensor)
    assert not array.flags.writeable


@pytest.mark.parametrize("dtype", [torch.bool, *INTEGERS, *FLOATS, *COMPLEX], ids=str)
def test_every_dtype_of_torch_comes_back_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    tensor = torch.tensor([[0, 1, 2], [3, 1, 0]]).to(dtype)
    file = saved(tmp_path, tensor)
    assert_same(load(file), tensor)
    (header,) = read_headers(file, "pt")
    assert (header.dtype, header.shape) == (str(dtype).removeprefix("torch."), (2, 3))


BASE = torch.arange(240.0).reshape(2, 3, 4, 10)
LAYOUTS = {
    "contiguous": BASE,
    "view into a larger storage": BASE[1, :, 1:3, ::2],
    "transposed": BASE.transpose(1, 3),
    "channels last": BASE.contiguous(memory_format=torch.channels_last),
    "expanded": torch.ones(3, 1).expand(2, 3, 5),
    "scalar": torch.tensor(3.5),
    "one element of many": BASE[1, 2, 3, 9],
    "empty": torch.empty(0),
    "empty with dimensions": torch.empty(2, 0, 3),
    "parameter": torch.nn.Parameter(BASE.clone()),
    "parameter without gradient": torch.nn.Parameter(BASE.clone(), requires_grad=False),
    "leaf that requires a gradient": torch.ones(3, requires_grad=True),
    "conjugated view": torch.tensor([1 + 2j, 3 - 4j]).conj(),
    "half of a conjugated view": torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
    "overlapping": torch.arange(6.0).as_strided((3, 3), (1, 1)),
    "large": torch.arange(70_000.0),
    "large and transposed": torch.arange(70_000.0).reshape(700, 100).T,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_of_torch_comes_back_bit_for_bit(tmp_path: Path, layout: str) -> None:
    assert_same(load(saved(tmp_path, LAYOUTS[layout])), LAYOUTS[layout])


def test_a_parameter_with_attributes_is_a_tensor(tmp_path: Path) -> None:
    parameter = torch.nn.Parameter(BASE.clone())
    parameter.tensor_model_parallel = True  # type: ignore[attr-defined]
    assert_same(load(saved(tmp_path, parameter)), parameter)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_binary_pickle_protocol_is_read(tmp_path: Path, protocol: int) -> None:
    assert_same(load(saved(tmp_path, {"a": BASE}, pickle_protocol=protocol), "a"), BASE)


def test_files_older_than_torch_1_6_are_read(tmp_path: Path) -> None:
    file = saved(tmp_path, {"a": [BASE, BASE.bfloat16()]}, _use_new_zipfile_serialization=False)
    assert [(header.entry, header.dtype) for header in read_headers(file, "pt")] == [
        ("a.0", "float32"),
        ("a.1", "bfloat16"),
    ]
    assert_same(load(file, "a.1"), BASE.bfloat16())


def test_tensors_saved_on_an_npu_are_read_without_torch_npu(tmp_path: Path) -> None:
    file = rewritten(
        saved(tmp_path, BASE),
        data_pkl=lambda data: data.replace(
            b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch_npu.utils.storage\n_rebuild_npu_tensor\n"
        ).replace(b"tq\x0aRq", b"K\x02tq\x0aRq"),
    )
    assert_same(load(file), BASE)


def test_big_endian_files_are_read(tmp_path: Path) -> None:
    file = rewritten(
        saved(tmp_path, BASE),
        byteorder=lambda _: b"big",
        data_0=lambda data: np.frombuffer(data, "<f4").astype(">f4").tobytes(),
    )
    assert_same(load(file), BASE)


def test_nested_values_get_dotted_names(tmp_path: Path) -> None:
    value = {
        "model": OrderedDict(a=BASE, b=[BASE + 1, (BASE + 2, "text", None)]),
        "epoch": 3,
        7: torch.Size([2]),
        "x.y": BASE.bool(),
    }
    file = saved(tmp_path, value)
    names = [header.entry for header in read_headers(file, "pt")]
    assert names == ["model.a", "model.b.0", "model.b.1.0", "x.y"]
    assert_same(load(file, "model.b.1.0"), BASE + 2)


def test_a_state_dict_with_its_metadata_is_read(tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    file = saved(tmp_path, module.state_dict())
    assert [header.entry for header in read_headers(file, "pt")] == list(module.state_dict())
    for name, tensor in module.state_dict().items():
        assert_same(load(file, name), tensor)


def test_tensors_that_share_a_storage_are_all_read(tmp_path: Path) -> None:
    file = saved(tmp_path, {"whole": BASE, "again": BASE, "part": BASE[1]})
    assert_same(load(file, "again"), BASE)
    assert_same(load(file, "part"), BASE[1])


def test_common_files_are_read_without_importing_torch(tmp_path: Path) -> None:
    file = saved(tmp_path, BASE.bfloat16())
    script = (
        "import sys; from pathlib import Path; from firstdrift.dumps.storage.tensor_data import load_tensor;"
        "from firstdrift.model.tensor import DataLocation;"
        "print(load_tensor(DataLocation(Path(sys.argv[1]), 'pt')).shape, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script, file], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "(2, 3, 4, 10) False"


class TestDigests:
    def test_a_whole_tensor_has_the_checksum_of_its_bytes(self, tmp_path: Path) -> None:
        (header,) = read_headers(saved(tmp_path, BASE), "pt")
        assert header.digest == f"crc32:{zlib.crc32(raw_bytes(BASE)):08x}:960"

    def test_equal_values_have_equal_digests_whatever_the_shape(self, tmp_path: Path) -> None:
        (header,) = read_headers(saved(tmp_path, BASE), "pt")
        (flat,) = read_headers(saved(tmp_path, BASE.reshape(-1)), "pt")
        assert header.digest == flat.digest

    @pytest.mark.parametrize("layout", ["view into a larger storage", "transposed", "expanded", "empty"])
    def test_what_is_not_the_whole_storage_in_order_has_none(self, tmp_path: Path, layout: str) -> None:
        (header,) = read_headers(saved(tmp_path, LAYOUTS[layout]), "pt")
        assert header.digest is None

    def test_a_file_saved_without_checksums_has_none(self, tmp_path: Path) -> None:
        torch.serialization.set_crc32_options(compute_crc32=False)
        try:
            file = saved(tmp_path, BASE)
        finally:
            torch.serialization.set_crc32_options(compute_crc32=True)
        (header,) = read_headers(file, "pt")
        assert header.digest is None
        assert_same(load(file), BASE)


def rewritten(
    file: Path, *, compression: int = zipfile.ZIP_STORED, **changes: Callable[[bytes], bytes]
) -> Path:
    """Write the members of a file anew, some of them changed; `data_pkl` stands for data.pkl."""
    target = file.with_name("rewritten.pt")
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(target, "w", compression) as new:
        for info in old.infolist():
            short = info.filename.partition("/")[2].replace(".", "_").replace("/", "_")
            data = old.read(info)
            new.writestr(info.filename, changes[short](data) if short in changes else data)
    return target


class Canary:
    """Pickles to a call of a function of our choice."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


def hostile_pickles(canary: Path) -> dict[str, bytes]:
    """Pickles that write a file if anything in them is run."""
    command = f"touch {canary}"
    text = b"X" + len(command).to_bytes(4, "little") + command.encode()
    shell = b"cposix\nsystem\n" + text + b"\x85R"
    good = pickle_of(torch.ones(2))
    tensor = good[2:-1]
    code = f"open({str(canary)!r}, 'w').close()"
    return {
        "os.system": pickle.dumps(Canary(os.system, command), protocol=2),
        "by protocol 4": pickle.dumps(Canary(os.system, command), protocol=4),
        "eval": pickle.dumps(Canary(eval, code), protocol=2),
        "exec in a dict": pickle.dumps({"a": [Canary(exec, code)]}, protocol=2),
        "beside a tensor": b"\x80\x02(" + tensor + shell + b"l.",
        "as the state of a tensor": b"\x80\x02" + tensor + shell + b"b.",
        "as a dict key": b"\x80\x02}" + shell + tensor + b"s.",
        "after the tensor": b"\x80\x02" + tensor + shell + b"0.",
        "instance": f"(S'{command}'\niposix\nsystem\n.".encode(),
        "object": f"(cposix\nsystem\nS'{command}'\no.".encode(),
        "getattr of builtins": b"\x80\x02c__builtin__\ngetattr\n(c__builtin__\n__import__\n("
        b"X\x02\x00\x00\x00ostRX\x06\x00\x00\x00systemtR" + text + b"\x85R.",
        "state of a known function": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}S'__code__'\n"
        + shell
        + b"sb.",
        "persistent id": b"\x80\x02" + shell + b"Q.",
        "hooks of a tensor": good.replace(b"ccollections\nOrderedDict\nq\x08)R", shell),
        "torch.load of another file": b"\x80\x02ctorch\nload\n" + text + b"\x85R.",
        "torch.hub": b"\x80\x02ctorch.hub\nload\n" + text + text + b"\x86R.",
        "a storage that is called": b"\x80\x02ctorch\nFloatStorage\n(K\x01tR.",
        "new object": b"\x80\x02cposix\nsystem\n" + text + b"\x85\x81.",
        "extension registry": b"\x80\x02\x82\x01.",
        "dotted name": pickle.dumps(command, protocol=4)[:-1] + b"\x8c\x05torch\x8c\x0c_utils.torch\x93.",
    }


def pickle_of(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    with zipfile.ZipFile(buffer) as archive:
        return archive.read("archive/data.pkl")


REFUSED = ["os.system", "by protocol 4", "eval", "getattr of builtins", "instance", "object", "new object"]


@pytest.mark.parametrize("name", hostile_pickles(Path()))
@pytest.mark.parametrize("packed", [True, False], ids=["zip", "bare pickle"])
def test_nothing_in_a_hostile_file_is_run(tmp_path: Path, name: str, packed: bool) -> None:
    canary = tmp_path / "canary"
    hostile = hostile_pickles(canary)[name]
    if packed:
        file = rewritten(saved(tmp_path, torch.ones(2)), data_pkl=lambda _: hostile)
    else:
        file = tmp_path / "bare.pt"
        file.write_bytes(hostile)
    try:
        load(file)
        was_refused = False
    except TensorUnreadableError:
        was_refused = True
    with suppress(TensorUnreadableError):
        read_headers(file, "pt")
    assert not canary.exists()
    assert was_refused or name not in REFUSED


def test_a_call_of_anything_but_a_tensor_is_named(tmp_path: Path) -> None:
    file = saved(tmp_path, {"a": torch.ones(2), "b": Canary(exec, "1")})
    good, bad = read_headers(file, "pt")
    assert (good.entry, good.problem) == ("a", None)
    assert bad.entry == "b"
    assert bad.problem == Message.of("dumps.pt.unknown_builder", builder="'__builtin__.exec'")
    with refuses(TensorUnreadableError, "dumps.pt.unknown_builder"):
        load(file, "b")


def deep_tuple(depth: int) -> bytes:
    return b")" + b"\x85" * depth


BOMBS = {
    "deep nesting": b"\x80\x02" + deep_tuple(1_000_000) + b".",
    "deep key": b"\x80\x02}" + deep_tuple(1_000_000) + b"Ns.",
    "list in itself": b"\x80\x02]q\x00h\x00a.",
    "list doubled 60 times": b"\x80\x02]" + b"".join(b"q%c](h%ch%ce" % (n, n, n) for n in range(60)) + b".",
    "text that is not there": b"\x80\x02X\xff\xff\xff\xff.",
    "many dimensions": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n"
    b"((X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
    b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x02tQK\x00("
    + b"K\x01" * 1000
    + b"t("
    + b"K\x01" * 1000
    + b"t\x89NtR.",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_pickle_bomb_is_refused_at_once(tmp_path: Path, name: str) -> None:
    file = rewritten(saved(tmp_path, torch.ones(2)), data_pkl=lambda _: BOMBS[name])
    begin = time.process_time()
    with pytest.raises(TensorUnreadableError):
        load(file)
    assert time.process_time() - begin < 5


def test_a_compressed_file_is_refused_with_the_reason(tmp_path: Path) -> None:
    file = rewritten(saved(tmp_path, torch.zeros(1_000_000)), compression=zipfile.ZIP_DEFLATED)
    with refuses(TensorUnreadableError, "dumps.zip.compressed"):
        load(file)


def test_a_tensor_larger_than_its_storage_is_refused_with_both_sizes(tmp_path: Path) -> None:
    file = rewritten(saved(tmp_path, BASE), data_0=lambda data: data[:-1])
    with refuses(TensorUnreadableError, "dumps.pt.storage_too_small", available=959):
        load(file)
    (header,) = read_headers(file, "pt")
    assert header.shape == (2, 3, 4, 10)
    assert header.problem is not None


def test_a_tensor_that_would_be_expanded_to_terabytes_is_refused(tmp_path: Path) -> None:
    file = saved(tmp_path, torch.ones(1).expand(1 << 40))
    with refuses(TensorUnreadableError, "dumps.pt.repeated_too_often"):
        load(file)


def test_a_missing_storage_is_named(tmp_path: Path) -> None:
    file = rewritten(
        saved(tmp_path, BASE),
        data_pkl=lambda data: data.replace(b"X\x01\x00\x00\x000", b"X\x01\x00\x00\x009"),
    )
    with refuses(TensorUnreadableError, "dumps.pt.storage_missing"):
        load(file)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(torch.ones(2, 2).to_sparse(), id="sparse"),
        pytest.param(torch.empty(2, device="meta"), id="meta"),
    ],
)
def test_a_tensor_of_a_kind_that_cannot_be_compared_spoils_only_itself(
    tmp_path: Path, value: torch.Tensor
) -> None:
    file = saved(tmp_path, {"a": value, "b": BASE})
    headers = read_headers(file, "pt")
    assert [header.problem is None for header in headers] == [False, True]
    with refuses(TensorUnreadableError, "dumps.pt.unknown_builder"):
        load(file, "a")
    assert_same(load(file, "b"), BASE)


def test_a_tensor_with_attributes_is_a_tensor(tmp_path: Path) -> None:
    tensor = BASE.clone()
    tensor.note = "seen"  # type: ignore[attr-defined]
    assert_same(load(saved(tmp_path, tensor)), tensor)


def test_an_unknown_layout_is_named(tmp_path: Path) -> None:
    with refuses(TensorUnreadableError, "dumps.file.unknown_layout"):
        load_tensor(DataLocation(saved(tmp_path, BASE), "zip"))


def test_an_unknown_entry_is_named(tmp_path: Path) -> None:
    with refuses(TensorUnreadableError, "dumps.file.no_such_tensor"):
        load(saved(tmp_path, {"a": BASE}), "b")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"", "dumps.file.empty", id="empty"),
        pytest.param(b"no tensor at all", "dumps.pt.not_one", id="text"),
        pytest.param(b"PK\x03\x04", "dumps.zip.cut_short", id="begin of a zip file"),
        pytest.param(b"\x80", "dumps.pt.pickle_damaged", id="begin of a pickle"),
        pytest.param(pickle.dumps([1, 2]), "dumps.pt.other_pickle", id="pickle of something else"),
    ],
)
def test_a_file_that_is_none_says_why(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "x.pt"
    file.write_bytes(content)
    with refuses(TensorUnreadableError, reason):
        load(file)


def test_a_zip_file_of_something_else_says_so(tmp_path: Path) -> None:
    file = tmp_path / "x.pt"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a/readme.txt", "hello")
    with refuses(TensorUnreadableError, "dumps.pt.no_pickle"):
        load(file)


def test_a_missing_file_a_folder_and_a_pipe_are_refused(tmp_path: Path) -> None:
    with refuses(TensorUnreadableError, "dumps.file.missing"):
        load(tmp_path / "x.pt")
    with refuses(TensorUnreadableError, "files.not_regular"):
        load(tmp_path)
    os.mkfifo(tmp_path / "pipe.pt")
    with refuses(TensorUnreadableError, "files.not_regular"):
        load(tmp_path / "pipe.pt")


@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
def test_a_file_cut_at_any_length_is_refused(tmp_path: Path, is_zip: bool) -> None:
    options = {"_use_new_zipfile_serialization": is_zip}
    whole = saved(tmp_path, {"a": BASE, "b": torch.ones(3)}, **options).read_bytes()
    file = tmp_path / "cut.pt"
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(TensorUnreadableError):
            read_headers(file, "pt")


def seed_file(**options: Any) -> bytes:  # noqa: ANN401
    buffer = io.BytesIO()
    torch.save({"a": BASE[0, 0], "b": [torch.ones(3).bfloat16()]}, buffer, **options)
    return buffer.getvalue()


SEEDS = [seed_file(), seed_file(_use_new_zipfile_serialization=False), seed_file(pickle_protocol=4)]


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.sampled_from(SEEDS),
    changes=st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=8),
)
def test_a_damaged_file_gives_values_or_the_one_error(
    tmp_path: Path, seed: bytes, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(seed)
    for at, value in changes:
        data[at % len(data)] = value
    file = tmp_path / "damaged.pt"
    file.write_bytes(data)
    with suppress(TensorUnreadableError):
        for header in read_headers(file, "pt"):
            assert load(file, header.entry).shape == header.shape


def test_a_directory_beyond_four_gigabytes_is_read_by_its_wide_fields(tmp_path: Path) -> None:
    file = saved(tmp_path, torch.ones(2))
    data = bytearray(file.read_bytes())
    end = data.rindex(b"PK\x05\x06")
    struct.pack_into("<HHII", data, end + 8, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)
    file.write_bytes(data)
    assert_same(load(file), torch.ones(2))
