"""Files that were made to take all memory, or for ever, are refused by name, soon and cheaply.

Every one is read by a process of its own, which may have 2 GiB and says how much it took. The times are
twenty times those of a slow machine.
"""

import json
import shutil
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from library.dumps.atb_samples import container
from messages import gaps_of, like, says
from soak import record

from firstdrift.comparison.compare import compare
from firstdrift.dumps.atb.run import read_statistics
from firstdrift.dumps.detect import open_dump
from firstdrift.dumps.msit.module_folder import read_rows
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import TensorUnreadableError
from firstdrift.model.names import enclosing_paths, is_beyond_reason
from firstdrift.model.tensor import DataLocation
from firstdrift.parallel.slices import read_slice
from firstdrift.wording.message import Message

SCRIPT = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
from firstdrift.dumps.storage.tensor_data import load_tensor, read_headers
from firstdrift.dumps.storage.json_file import read_json
from firstdrift.errors import FirstdriftError
from firstdrift.model.tensor import DataLocation
do, file, entry = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
def peak():  # what getrusage says is at first the peak of the process that began this one
    said = Path("/proc/self/status").read_text()
    return int(said.partition("VmHWM:")[2].split()[0])
before = peak()
try:
    if do == "json":
        read_json(file)
    elif do == "load":
        load_tensor(DataLocation(file, file.suffix[1:], entry))
    else:
        print([header.problem for header in read_headers(file, file.suffix[1:])][:1])
except FirstdriftError as error:
    print(error)
print((peak() - before) >> 10)
"""


class Answer(NamedTuple):
    """What was said, and how many MiB and seconds it took."""

    said: str
    memory: int
    seconds: float


def read(do: str, file: Path, entry: str = "") -> Answer:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, do, str(file), entry], capture_output=True, text=True, check=True
    )
    *said, memory = done.stdout.splitlines()
    return Answer("\n".join(said), int(memory), time.monotonic() - began)


def refused(answer: Answer, *ids: str, memory: int) -> None:
    assert says(answer.said, *ids), answer.said
    assert answer.memory < memory
    assert answer.seconds < 100
    record("bombs", f"`{ids[0]}` in {answer.seconds:.1f} s with its process, {answer.memory} MiB")


def test_json_files_that_hold_nothing_for_gigabytes(tmp_path: Path) -> None:
    with (tmp_path / "dump.json").open("wb") as file:
        file.truncate(3 << 30)
    refused(read("json", tmp_path / "dump.json"), "files.too_large", memory=50)


def test_json_files_of_millions_of_empty_lists(tmp_path: Path) -> None:
    (tmp_path / "dump.json").write_bytes(b'{"data":[' + b"[]," * (24 << 20) + b"1]}")
    refused(read("json", tmp_path / "dump.json"), "dumps.json.too_many_values", memory=400)


def packed(file: Path, size: int, claimed: int | None = None) -> Path:
    """Write an npz of zeros, whose directory may claim another size."""
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a.npy", "w") as member,
    ):
        header = {"descr": "|u1", "fortran_order": False, "shape": (claimed or size,)}
        np.lib.format.write_array_header_1_0(member, header)
        for _ in range(size >> 20):
            member.write(bytes(1 << 20))
    if claimed is not None:
        contents = bytearray(file.read_bytes())
        at = contents.index(b"PK\x01\x02")
        contents[at + 24 : at + 28] = struct.pack("<I", claimed + 128)
        file.write_bytes(contents)
    return file


def test_archives_that_unpack_to_gigabytes(tmp_path: Path) -> None:
    file = packed(tmp_path / "a.npz", 400 << 20)
    refused(read("load", file, "a"), "dumps.npz.ratio_too_large", memory=50)
    assert read("list", file).said == "[None]"


def test_archives_that_say_less_than_they_hold(tmp_path: Path) -> None:
    file = packed(tmp_path / "a.npz", 200 << 20, claimed=1 << 20)
    refused(
        read("load", file, "a"),
        "dumps.npz.unreadable",
        "dumps.npz.damaged",
        "dumps.npz.checksum_differs",
        memory=50,
    )


def test_archives_that_say_more_than_they_can_hold(tmp_path: Path) -> None:
    file = packed(tmp_path / "a.npz", 1 << 20, claimed=1 << 31)
    refused(
        read("load", file, "a"),
        "dumps.npz.unreadable",
        "dumps.npz.damaged",
        "dumps.npz.checksum_differs",
        memory=50,
    )


def test_archives_of_values_and_of_zeros_are_still_read(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).standard_normal(100_000)
    np.savez_compressed(tmp_path / "a.npz", noise=noise, zeros=np.zeros((1000, 10_000), np.float32))
    assert np.array_equal(load_tensor(DataLocation(tmp_path / "a.npz", "npz", "noise")), noise)
    assert not load_tensor(DataLocation(tmp_path / "a.npz", "npz", "zeros")).any()


def test_tensors_that_repeat_one_number_billions_of_times(tmp_path: Path) -> None:
    torch.save(torch.ones(1, dtype=torch.uint8).expand(1 << 31), tmp_path / "a.pt")
    refused(read("load", tmp_path / "a.pt"), "dumps.pt.repeated_too_often", memory=50)


def test_masks_that_are_repeated_for_every_head_are_read(tmp_path: Path) -> None:
    torch.save(torch.ones(1, 1, 512, 512, dtype=torch.bool).expand(4, 128, 512, 512), tmp_path / "a.pt")
    assert load_tensor(DataLocation(tmp_path / "a.pt", "pt")).shape == (4, 128, 512, 512)
    torch.save(torch.ones(1).expand(1024, 1024), tmp_path / "a.pt")
    assert load_tensor(DataLocation(tmp_path / "a.pt", "pt")).shape == (1024, 1024)


PICKLES = {
    "dicts": b"](" + b"}" * 20_000_000 + b"e.",
    "classes": b"](" + b"c\n\n" * 10_000_000 + b"e.",
    "one list to many calls": b"]q\x00("
    + b"NN\x86" * 500_000
    + b"e0]("
    + b"ccollections\nOrderedDict\nh\x00\x85R" * 200_000
    + b"e.",
}


@pytest.mark.parametrize("name", PICKLES)
def test_pickles_that_make_millions_of_things(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr("a/data.pkl", b"\x80\x02" + PICKLES[name])
    refused(read("list", tmp_path / "a.pt"), "dumps.pt.too_many_steps", memory=900)


def test_a_pickle_of_many_tensors_is_read(tmp_path: Path) -> None:
    torch.save({f"layers.{at}.weight": torch.zeros(1) for at in range(3000)}, tmp_path / "a.pt")
    assert read("list", tmp_path / "a.pt").said == "[None]"


def test_headers_of_millions_of_tensors(tmp_path: Path) -> None:
    one = b'"%x":{"dtype":"U8","shape":[],"data_offsets":[0,1]}'
    for count in (100_000, 400_000):
        header = b"{" + b",".join(one % at for at in range(count)) + b"}"
        (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0")
        answer = read("list", tmp_path / "a.safetensors")
        assert (answer.said == "[None]") == (count == 100_000)
        assert answer.memory < 300
    refused(answer, "dumps.safetensors.header_too_long", memory=300)


def test_tables_of_millions_of_rows(tmp_path: Path) -> None:
    began = time.monotonic()
    (tmp_path / "statistics.csv").write_text("NodeName,InputOutput\n" + "a\n" * 250_000)
    assert read_rows(tmp_path / "statistics.csv")[1] == Message.of("dumps.msit.too_many_rows", most=200_000)
    (tmp_path / "statistic.csv").write_text("Op Name,Op Id\n" + "a\n" * 1_100_000)
    left_out = Message.of("dumps.table.rows_left_out", most=1_000_000)
    assert left_out in read_statistics(tmp_path / "statistic.csv").notes
    with (tmp_path / "statistics.csv").open("wb") as file:
        file.truncate(3 << 30)
    why = read_rows(tmp_path / "statistics.csv")[1]
    assert why is not None
    assert gaps_of(why, "files.too_large") == {"most": "64 MiB"}
    assert time.monotonic() - began < 100


def test_names_of_a_hundred_thousand_parts_cost_no_dump(
    tmp_path: Path, unpacked: Callable[[str], Path]
) -> None:
    (file,) = (unpacked("msprobe/llama_stat_mix_perturb") / "golden").rglob("dump.json")
    said = json.loads(file.read_text())
    name = next(iter(said["data"]))
    for number in range(3):
        said["data"]["Module." + "a." * 160_000 + f"Linear.forward.{number}"] = said["data"][name]
    for beside in file.parent.glob("*.json"):
        shutil.copy(beside, tmp_path)
    (tmp_path / "dump.json").write_text(json.dumps(said))
    began = time.monotonic()
    dump = open_dump(tmp_path)
    read_again = read_slice(dump, dump.slices[0])
    whole = read_slice(open_dump(file.parent), open_dump(file.parent).slices[0])
    assert len(read_again.nodes) == len(whole.nodes) + 3
    assert Message.of("dumps.names_too_long", count=3, parts=64, characters=2048) in [
        problem.reason for problem in read_again.problems
    ]
    assert compare(tmp_path, file.parent).slices
    assert time.monotonic() - began < 100


def test_the_paths_around_a_path_are_those_of_before() -> None:
    assert list(enclosing_paths("a.b.c")) == ["a.b", "a"]
    deep = ".".join("a" * 64)
    assert (len(list(enclosing_paths(deep))), is_beyond_reason(deep)) == (63, False)
    assert (list(enclosing_paths(f"{deep}.a")), is_beyond_reason(f"{deep}.a")) == ([], True)


def test_no_changed_bit_of_an_array_in_an_archive_passes_unnoticed(tmp_path: Path) -> None:
    values = np.random.default_rng(2).standard_normal(500)
    np.savez(tmp_path / "a.npz", a=values)
    contents = (tmp_path / "a.npz").read_bytes()
    start = contents.index(values.tobytes())
    for at in np.random.default_rng(3).integers(start, start + values.nbytes, 200):
        changed = bytearray(contents)
        changed[at] ^= 1 << (at % 8)
        (tmp_path / "b.npz").write_bytes(changed)
        with pytest.raises(TensorUnreadableError, match=like("dumps.npz.checksum_differs")):
            load_tensor(DataLocation(tmp_path / "b.npz", "npz", "a"))
    assert np.array_equal(load_tensor(DataLocation(tmp_path / "a.npz", "npz", "a")), values)


def test_a_bin_file_of_endless_headers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(container(0, "1", bytes(4)) * 1000)
    refused(read("list", tmp_path / "a.bin"), "dumps.atb_bin.too_many_tensors", memory=50)
