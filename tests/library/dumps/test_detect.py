"""A path is handed to the right reader, or the error says what lies there instead."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from messages import ids_of, refuses

from firstdrift.dumps.detect import dumps_below, open_dump, recognise
from firstdrift.errors import DumpNotFoundError, DumpNotRecognisedError, DumpUnreadableError
from firstdrift.parallel.slices import read_slice, read_stacks
from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of

Unpacked = Callable[[str], Path]


@pytest.mark.parametrize(
    ("archive", "below", "dump_format"),
    [
        ("msit/llama4_golden_fp32", "", "msit-torch"),
        ("msit/llama12_logits_golden", "", "msit-torch"),
        ("msit/nested", "", "msit-torch"),
        ("msit/atb4_bf16", "", "msit-atb"),
        ("msit/msprobe_atb_bf16_alias", "", "msprobe-atb"),
        ("msit/torchair", "msit_fx_dump", "torchair-fx"),
        ("msit/torchair", "msit_ge_dump", "torchair-ge"),
        ("msprobe/llama_stat_L0_perturb", "golden", "msprobe"),
        ("msprobe/llama_tensor_L0_2steps", "golden", "msprobe"),
        ("msprobe/debug_tensor", "golden", "msprobe-debug"),
        ("transformers/hf_debug_tree", "golden", "hf-debug-tree"),
    ],
)
def test_each_format_is_recognised_with_evidence(
    unpacked: Unpacked, archive: str, below: str, dump_format: str
) -> None:
    path = unpacked(archive) / below
    found = recognise(path)
    assert found is not None
    assert found[0] == dump_format
    assert all(found[1])
    dump = open_dump(path)
    assert (dump.format, dump.evidence) == found
    read = read_slice(dump, dump.slices[0])
    assert read.nodes
    assert dict(read_stacks(dump, dump.slices[0])).keys() <= {node.name for node in read.nodes}


def test_a_folder_of_tensor_files_is_plain(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(2))
    assert open_dump(tmp_path).format == "plain"
    assert open_dump(tmp_path / "a.npy").format == "plain"


def touch(root: Path, *names: str) -> Path:
    for name in names:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".npy":
            np.save(file, np.ones(2))
        else:
            file.write_text("{}")
    return root


def test_what_lies_beside_the_file_of_another_format_is_not_taken_for_plain_files(tmp_path: Path) -> None:
    touch(tmp_path, "step0/rank0/debug.json", "step0/rank0/dump_tensor_data/a.npy")
    dump = open_dump(tmp_path)
    assert dump.format == "msprobe-debug"
    with refuses(DumpUnreadableError, "dumps.msprobe.no_data"):
        read_slice(dump, dump.slices[0])


def test_a_single_file_of_a_dump_is_read_on_its_own(unpacked: Unpacked) -> None:
    file = next(unpacked("msit/atb4_bf16").rglob("after/outtensor0.bin"))
    dump = open_dump(file)
    assert dump.format == "plain"
    ((record,),) = [node.tensors for node in read_slice(dump, dump.slices[0]).nodes]
    assert record.dtype == "bfloat16"
    assert record.problem is None


@pytest.mark.parametrize("format_", ["trees", "files"])
def test_formats_without_folders_of_their_own_are_told_apart_from_plain_files(
    unpacked: Unpacked, tmp_path: Path, format_: str
) -> None:
    if format_ == "trees":
        tree = unpacked("transformers/hf_debug_tree") / "golden"
        shutil.copytree(tree, tmp_path / "a")
        shutil.copytree(tree, tmp_path / "b")
    else:
        for run in "a", "b":
            touch(tmp_path, f"{run}/step=0___rank=0___dump_index=1___name=x.pt")
    with refuses(DumpNotRecognisedError, "dumps.several", dumps=("a", "b")):
        open_dump(tmp_path)


@pytest.mark.parametrize(
    "part", ["tensors/0_42/0/0_Op/after", "atb_dump_data/data", "worldsize1_global_rank0/g"]
)
def test_a_part_of_such_a_dump_is_not_plain_either(tmp_path: Path, part: str) -> None:
    touch(tmp_path, f"{part}/a.npy")
    with pytest.raises(DumpNotRecognisedError) as refused:
        open_dump(tmp_path / part)
    assert refused.value.message.id.endswith(".part")


def test_a_folder_of_several_dumps_lists_them(unpacked: Unpacked, tmp_path: Path) -> None:
    shutil.copytree(unpacked("msit/nested"), tmp_path / "first")
    shutil.copytree(unpacked("msit/llama4_logits_golden"), tmp_path / "second")
    assert recognise(tmp_path) is None
    with pytest.raises(DumpNotRecognisedError) as refused:
        open_dump(tmp_path)
    assert refused.value.message == Message.of("dumps.several", dumps=("first", "second"))
    assert ids_of(refused.value.advice) == ("dumps.choose_one",)
    assert dumps_below(tmp_path) == [tmp_path / "first", tmp_path / "second"]


def test_a_dump_beside_other_things_is_named_and_not_said_to_be_damaged(
    unpacked: Unpacked, tmp_path: Path
) -> None:
    shutil.copytree(unpacked("msprobe/llama_stat_L0_perturb") / "golden", tmp_path / "golden")
    touch(tmp_path, "photos/beach.jpg")
    with pytest.raises(DumpNotRecognisedError) as refused:
        open_dump(tmp_path)
    assert refused.value.message == Message.of("dumps.one_inside", dump="golden")
    assert dumps_below(tmp_path) == [tmp_path / "golden"]


def test_a_folder_of_anything_else_says_what_was_looked_for(tmp_path: Path) -> None:
    touch(tmp_path, "readme.txt")
    with pytest.raises(DumpNotRecognisedError) as refused:
        open_dump(tmp_path)
    for mark in "dump.json", "model_tree.json", ".safetensors":
        assert mark in str(refused.value)
    assert refused.value.path == tmp_path
    assert refused.value.advice


@pytest.mark.parametrize("name", ["missing", "a.npy/below", "x" * 5000, "a\0b"])
def test_where_there_is_nothing_that_is_said(tmp_path: Path, name: str) -> None:
    touch(tmp_path, "a.npy")
    with pytest.raises(DumpNotFoundError):
        open_dump(tmp_path / name)


def test_what_may_not_be_read_is_said_to_be_so() -> None:
    script = (
        "import os, sys; from pathlib import Path; from firstdrift.dumps.detect import open_dump\n"
        "from firstdrift.errors import DumpUnreadableError\n"
        "from firstdrift.wording.text import text_of, texts; texts('en')\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "for name in sys.argv[1:]:\n"
        "    try: open_dump(Path(name))\n"
        "    except DumpUnreadableError as refused: print(text_of(refused.message))\n"
    )
    with TemporaryDirectory() as folder:
        closed = touch(Path(folder) / "closed", "a.npy")
        Path(folder).chmod(0o711)
        closed.chmod(0)
        done = subprocess.run(
            [sys.executable, "-c", script, closed, closed / "a.npy"],
            capture_output=True,
            text=True,
            check=True,
        )
        closed.chmod(0o700)
    assert done.stdout.splitlines() == [text_of(Message.of("dumps.not_permitted"))] * 2


@pytest.mark.parametrize("mode", [0, 0o744])
def test_a_folder_that_nobody_may_look_into_hides_no_other(mode: int) -> None:
    script = (
        "import os, sys; from pathlib import Path; from firstdrift.dumps.detect import recognise\n"
        "recognise(Path(sys.argv[1]))\n"  # readers are imported while they may be
        "from firstdrift.wording.text import texts; texts('en')\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "for name in sys.argv[1:]: print((recognise(Path(name)) or ['none'])[0])\n"
    )
    with TemporaryDirectory() as folder:
        top = Path(folder)
        closed = touch(top, "whole/a.npy", "closed/inner/dump.json") / "closed"
        for open_to_all in (top, top / "whole", closed / "inner"):
            open_to_all.chmod(0o755)
        closed.chmod(mode)
        asked = (top, top / "whole", closed, closed / "inner")
        done = subprocess.run(
            [sys.executable, "-c", script, *asked], capture_output=True, text=True, check=True
        )
        closed.chmod(0o700)
    assert done.stdout.splitlines() == ["plain", "plain", "none", "none"]


@pytest.mark.parametrize(
    "file", ["torch_tensors/readme.txt", "tensors/0_42/readme.txt", "atb_dump_data/info/model/0_42/M.json"]
)
def test_a_dump_whose_marks_are_damaged_is_said_to_be_so(tmp_path: Path, file: str) -> None:
    touch(tmp_path, file, "a.npy")
    with refuses(DumpUnreadableError, "dumps.damaged"):
        open_dump(tmp_path)


def test_folders_of_a_browser_are_asked_at_little_cost(tmp_path: Path) -> None:
    for number in range(60):
        for deep in range(60):
            (tmp_path / f"{number}/{deep}/x").mkdir(parents=True)
    begin = time.process_time()
    assert recognise(tmp_path) is None
    assert time.process_time() - begin < 1


def test_recognising_a_dump_imports_nothing_heavy() -> None:
    script = (
        "import sys; from pathlib import Path; from firstdrift.dumps.detect import recognise\n"
        "recognise(Path('/usr'))\n"
        "print({'torch', 'numba', 'pandas', 'safetensors'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_dumps_of_many_ranks_in_folders_of_folders_are_all_listed(tmp_path: Path) -> None:
    names = [f"{pair}/{side}" for pair in ("a", "b", "c") for side in ("golden", "target")]
    for name in names:
        for rank in range(9):
            folder = tmp_path / name / "step0" / f"rank{rank}"
            folder.mkdir(parents=True)
            (folder / "dump.json").write_text('{"task": "statistics", "level": "L1", "data": {}}')
    with refuses(DumpNotRecognisedError, "dumps.several", dumps=tuple(names)):
        open_dump(tmp_path)
    assert dumps_below(tmp_path) == [tmp_path / name for name in names]
