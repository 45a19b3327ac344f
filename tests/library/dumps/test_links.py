"""A dump is read from within itself: a link in it may not fetch what lies elsewhere."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from messages import ids_of, problem_of, refuses

from firstdrift.comparison.compare import compare
from firstdrift.dumps.detect import open_dump, recognise
from firstdrift.dumps.storage import folders
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import DumpError, DumpNotRecognisedError, DumpUnreadableError
from firstdrift.model.slice import Dump, Slice
from firstdrift.model.tensor import TensorRecord
from firstdrift.parallel.slices import read_slice, read_stacks
from firstdrift.wording.message import Message

Unpacked = Callable[[str], Path]
OUT = Message.of("dumps.link.leads_out")
LEADS_OUT = "dumps.link.leads_out"
MSPROBE_FILE = "dump_tensor_data/Module.model.layers.1.mlp.down_proj.Linear.forward.0.output.0.pt"
MODULE = "root.model.layers.0.mlp.down_proj"


def leads_out(file: str) -> Message:
    return problem_of(file, OUT.id)


def move_out(file: Path) -> Path:
    """Move a file or folder of a dump to a place outside it, and leave a link; return the place."""
    folder = next(parent for parent in file.parents if parent.name == "dumps").parent / "outside"
    folder.mkdir(exist_ok=True)
    outside = folder / file.name
    file.rename(outside)
    file.symlink_to(outside)
    return outside


@pytest.fixture
def msprobe(unpacked: Unpacked, tmp_path: Path) -> Path:
    """Copy a dump of msprobe; return it."""
    copied = tmp_path / "dumps/msprobe"
    shutil.copytree(unpacked("msprobe/llama_tensor_L0_2steps") / "golden", copied)
    return copied


@pytest.fixture
def msit(unpacked: Unpacked, tmp_path: Path) -> Path:
    """Copy a torch dump of msit; return the folder of its only process."""
    copied = tmp_path / "dumps/msit"
    shutil.copytree(unpacked("msit/llama4_golden_fp32"), copied)
    (tree,) = copied.rglob("model_tree.json")
    (weights,) = unpacked("msit/llama4_weights").rglob("weights")
    shutil.copytree(weights, tree.parent / "weights")
    return tree.parent


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """Write a folder of tensor files."""
    folder = tmp_path / "dumps/plain"
    for name in "token0/a", "token0/b", "token1/a":
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(folder / f"{name}.npy", np.ones(3))
    return folder


def read_all(dump: Dump) -> list[Slice]:
    return [read_slice(dump, listing) for listing in dump.slices]


def troubled(dump: Dump) -> list[tuple[str, TensorRecord]]:
    return [
        (node.name, record)
        for read in read_all(dump)
        for node in read.nodes
        for record in node.tensors
        if record.problem
    ]


def problems(dump: Dump) -> list[tuple[str, str]]:
    found = [*dump.problems, *(problem for read in read_all(dump) for problem in read.problems)]
    return [(problem.file, problem.reason) for problem in found]


class TestAFileReachedByALink:
    def test_that_leads_out_spoils_only_its_own_tensor_of_msprobe(self, msprobe: Path) -> None:
        healthy = compare(msprobe, msprobe).counts.pairs
        move_out(msprobe / "step0/rank0" / MSPROBE_FILE)
        dump = open_dump(msprobe)
        ((name, record),) = troubled(dump)
        assert name == "Module.model.layers.1.mlp.down_proj.Linear.forward.0"
        assert (record.problem, record.location) == (leads_out(MSPROBE_FILE), None)
        counts = compare(msprobe, msprobe).counts
        assert (counts.pairs, counts.incomparable) == (healthy, 1)

    def test_that_leads_out_spoils_only_its_own_tensor_of_msit(self, msit: Path) -> None:
        healthy = compare(msit, msit).counts.pairs
        move_out(msit / "0" / MODULE / "output.pth")
        move_out(msit / f"weights/{MODULE}.weight.pth")
        found = {(name, record.label): record for name, record in troubled(open_dump(msit))}
        assert {place: record.problem for place, record in found.items()} == {
            (MODULE, "output.0"): leads_out("output.pth"),
            (MODULE, "parameter.weight"): leads_out(f"{MODULE}.weight.pth"),
        }
        assert not any(record.location for record in found.values())
        tokens = len(open_dump(msit).slices)
        counts = compare(msit, msit).counts
        assert (counts.pairs, counts.incomparable) == (healthy, 1 + tokens)

    def test_that_leads_out_spoils_only_its_own_tensor_of_a_plain_folder(self, plain: Path) -> None:
        move_out(plain / "token0/a.npy")
        ((name, record),) = troubled(open_dump(plain))
        assert (name, record.problem, record.location) == ("a", leads_out("a.npy"), None)
        counts = compare(plain, plain).counts
        assert (counts.pairs, counts.incomparable) == (3, 1)

    def test_of_the_same_dump_is_read(self, msprobe: Path, msit: Path, plain: Path) -> None:
        for file, other in (
            (msprobe / "step0/rank0" / MSPROBE_FILE, msprobe / "step1/rank0" / MSPROBE_FILE),
            (msit / "0" / MODULE / "output.pth", msit / "1" / MODULE / "output.pth"),
            (plain / "token0/a.npy", plain / "token1/a.npy"),
        ):
            file.unlink()
            file.symlink_to(os.path.relpath(other, file.parent))
        for path in msprobe, msit, plain:
            dump = open_dump(path)
            assert troubled(dump) == problems(dump) == []
            assert compare(path, path).counts.incomparable == 0

    def test_is_bound_to_the_part_of_the_dump_that_was_opened(self, msprobe: Path) -> None:
        file = msprobe / "step0/rank0" / MSPROBE_FILE
        file.unlink()
        file.symlink_to(msprobe / "step1/rank0" / MSPROBE_FILE)
        assert [record.problem for _, record in troubled(open_dump(msprobe / "step0/rank0"))] == [
            leads_out(MSPROBE_FILE)
        ]

    def test_of_a_token_of_msit_is_bound_to_its_process(self, msit: Path) -> None:
        file = msit / "0" / MODULE / "output.pth"
        file.unlink()
        file.symlink_to(msit / "1" / MODULE / "output.pth")
        assert troubled(open_dump(msit / "0")) == []

    @pytest.mark.parametrize("goal", ["missing", "itself", "pipe", "folder", "device"])
    def test_that_holds_no_tensor_spoils_only_its_own(
        self, msprobe: Path, msit: Path, plain: Path, goal: str
    ) -> None:
        for path, file in (
            (msprobe, msprobe / "step0/rank0" / MSPROBE_FILE),
            (msit, msit / "0" / MODULE / "output.pth"),
            (plain, plain / "token0/a.npy"),
        ):
            file.unlink()
            if goal == "pipe":
                os.mkfifo(path / "pipe")
            targets = {"itself": file, "folder": path, "device": Path("/dev/zero")}
            file.symlink_to(targets.get(goal, path / goal))
            report = compare(path, path)
            expected = 0 if goal == "folder" and path == plain else 1
            assert (report.counts.incomparable, report.counts.error) == (expected, 0)
            assert report.counts.pairs > 2 - (1 - expected)


@pytest.mark.parametrize("name", ["dump.json", "construct.json", "stack.json"])
class TestAnIndexOfMsprobe:
    def test_that_is_a_link_out_is_not_read(self, msprobe: Path, name: str) -> None:
        move_out(msprobe / "step0/rank0" / name)
        dump = open_dump(msprobe)
        listing = dump.slices[0]
        if name == "dump.json":
            with refuses(DumpUnreadableError, LEADS_OUT) as caught:
                read_slice(dump, listing)
            assert caught.value.path is not None
            assert caught.value.path.name == name
            assert compare(msprobe, msprobe).unreadable == 1
        elif name == "stack.json":
            with refuses(DumpUnreadableError, LEADS_OUT):
                read_stacks(dump, listing)
        else:
            (problem,) = read_slice(dump, listing).problems
            assert problem.file == f"step0/rank0/{name}"
            assert OUT.id in ids_of(problem.reason)

    def test_that_is_a_pipe_is_not_waited_for(self, msprobe: Path, name: str) -> None:
        file = msprobe / "step0/rank0" / name
        file.unlink()
        os.mkfifo(file)
        assert recognise(msprobe)
        report = compare(msprobe, msprobe)
        assert report.unreadable == (name == "dump.json")


def test_the_only_dump_json_that_is_a_link_out_is_a_clear_error(msprobe: Path) -> None:
    move_out(msprobe / "step0/rank0/dump.json")
    with refuses(DumpError, LEADS_OUT):
        compare(msprobe / "step0/rank0", msprobe / "step1/rank0")


@pytest.mark.parametrize("name", ["model_tree.json", "statistics.csv"])
def test_an_index_of_msit_that_is_a_link_out_is_not_read(msit: Path, name: str) -> None:
    file = msit / name if name.startswith("model") else msit / "0" / MODULE / name
    if not file.exists():
        file.write_text("NodeName,NodeType,InputOutput,Index,DataType,Shape,Max,Min,Mean,L2Norm\n")
    move_out(file)
    dump = open_dump(msit)
    found = {(file, reason) for file, reason in problems(dump) if OUT.id in ids_of(reason)}
    assert {Path(file).name for file, _ in found} == {name}
    assert compare(msit, msit).counts.incomparable == 0


class TestAFolder:
    @pytest.mark.parametrize("place", ["step0", "step0/rank0"])
    def test_of_msprobe_that_is_a_link_out_is_left_out_and_said(self, msprobe: Path, place: str) -> None:
        move_out(msprobe / place)
        dump = open_dump(msprobe)
        assert [listing.coordinates.step for listing in dump.slices] == [1]
        assert (place, OUT) in problems(dump)

    def test_of_values_that_is_a_link_out_spoils_its_tensors(self, msprobe: Path) -> None:
        move_out(msprobe / "step0/rank0/dump_tensor_data")
        dump = open_dump(msprobe)
        assert {record.problem for _, record in troubled(dump)} == {leads_out("dump_tensor_data")}
        assert not any(record.location for _, record in troubled(dump))
        report = compare(msprobe, msprobe)
        assert report.counts.incomparable == len(troubled(dump)) < report.counts.pairs

    @pytest.mark.parametrize("place", ["0", f"0/{MODULE}", "weights"])
    def test_of_msit_that_is_a_link_out_is_left_out_and_said(self, msit: Path, place: str) -> None:
        move_out(msit / place)
        dump = open_dump(msit)
        found = [file for file, reason in problems(dump) if reason == OUT]
        assert found == [f"{msit.name}/{place}"]
        assert compare(msit, msit).counts.pairs > 100

    def test_of_a_process_that_is_a_link_out_is_left_out_and_said(self, msit: Path) -> None:
        other = msit.with_name("cpu_99999")
        shutil.copytree(msit, other)
        move_out(other)
        dump = open_dump(msit.parent)
        assert {listing.directory.parent.name for listing in dump.slices} == {msit.name}
        assert (other.name, OUT) in problems(dump)

    def test_that_is_a_link_within_the_dump_is_followed(self, msprobe: Path) -> None:
        (msprobe / "step2").symlink_to("step1")
        dump = open_dump(msprobe)
        assert [listing.coordinates.step for listing in dump.slices] == [0, 1, 2]
        assert troubled(dump) == problems(dump) == []

    def test_of_which_all_lies_elsewhere_is_no_dump_and_says_why(self, msprobe: Path) -> None:
        for place in "step0", "step1":
            move_out(msprobe / place)
        assert recognise(msprobe) is None
        with pytest.raises(DumpNotRecognisedError) as refused:
            open_dump(msprobe)
        assert ids_of(refused.value.message) == ("clauses", "dumps.none", "dumps.link.not_followed")
        (_, links) = refused.value.message.arguments["clauses"]  # type: ignore[misc]
        assert links.arguments["links"] == ("step0", "step1")  # type: ignore[union-attr]
        assert ids_of(refused.value.advice) == ("dumps.choose_folder_or_copy",)

    @pytest.mark.parametrize("kind", ["msprobe", "msit", "plain"])
    def test_that_is_a_link_may_be_opened(
        self, request: pytest.FixtureRequest, tmp_path: Path, kind: str
    ) -> None:
        path: Path = request.getfixturevalue(kind)
        link = tmp_path / "link"
        link.symlink_to(path)
        dump = open_dump(link)
        assert len(dump.slices) == len(open_dump(path).slices)
        assert troubled(dump) == problems(dump) == []

    def test_of_plain_files_is_not_searched_through_links_out(self, plain: Path) -> None:
        move_out(plain / "token0")
        move_out(plain / "token1")
        assert recognise(plain) is None


def test_a_single_file_that_is_a_link_may_be_opened(plain: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.npy"
    link.symlink_to(plain / "token0/a.npy")
    (read,) = read_all(open_dump(link))
    (record,) = read.nodes[0].tensors
    assert record.location is not None
    assert load_tensor(record.location).shape == (3,)


@pytest.mark.parametrize("name", ["dump.json", "debug.json", "dump_tensor_data", "model_tree.json", "other"])
def test_a_link_that_leads_to_itself_keeps_nothing_else_from_being_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to(name)
    recognise(tmp_path)
    (tmp_path / "M_debug_tree_SUMMARY.json").write_text('{"module_path": "M", "children": []}')
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / name).symlink_to(name)
    if name == "other":
        assert [node.name for node in read_all(open_dump(tmp_path))[0].nodes] == ["M"]
    recognise(tmp_path)


def test_bounds_are_kept_however_the_root_is_spelled(plain: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(plain)
    (plain / "inner").symlink_to("token0")
    (plain / "outer").symlink_to("../..")
    for root in plain, tmp_path / "link", plain / "token0/..":
        bounds = Bounds.around(root)
        assert bounds.refusal(root / "inner") is None
        assert bounds.refusal(root / "outer") == OUT
        assert bounds.require(root / "token0/a.npy") == root / "token0/a.npy"
        with refuses(DumpUnreadableError, LEADS_OUT):
            bounds.require(root / "outer/link/token0/../../secret")


def test_a_link_out_of_the_dump_is_not_looked_into_even_to_tell_what_it_is(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret.bin").write_bytes(b"$Version=1.0")
    (plain / "token0/c.bin").symlink_to(tmp_path / "secret.bin")
    opened: list[str] = []
    monkeypatch.setattr(folders, "open_regular", lambda file: opened.append(file.name) or file.open("rb"))
    dump = open_dump(plain)
    read = read_slice(dump, dump.slices[0])
    assert [record.problem for node in read.nodes for record in node.tensors] == [
        None,
        None,
        leads_out("c.bin"),
    ]
    assert "c.bin" not in opened
