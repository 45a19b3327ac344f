"""Files of forward passes, as SGLang's dumper wrote them and as it would write others."""

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from messages import ids_of, refuses

from firstdrift.comparison.compare import compare
from firstdrift.dumps.detect import open_dump, recognise
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import DumpUnreadableError
from firstdrift.model.slice import Coordinates, Slice
from firstdrift.parallel.slices import read_slice

Unpacked = Callable[[str], Path]
Saved = dict[str, torch.Tensor | list[torch.Tensor]]

PROCESS = "TP0_PP0_Rank0_pid4711"


def save(folder: Path, number: int, tensors: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"Pass{number:05d}.pt"
    torch.save(tensors, file)
    return file


def read(path: Path, at: int = 0) -> Slice:
    dump = open_dump(path)
    assert dump.format == "passes"
    return read_slice(dump, dump.slices[at])


def labels(slice_: Slice) -> dict[str, list[str]]:
    return {node.name: [record.label for record in node.tensors] for node in slice_.nodes if node.tensors}


def problems(slice_: Slice) -> list[str]:
    return [id_ for problem in slice_.problems for id_ in ids_of(problem.reason)]


def test_passes_are_steps_and_a_fault_is_found_where_it_was_planted(unpacked: Unpacked) -> None:
    folder = unpacked("engines/sglang_passes")
    dump = open_dump(folder / "golden")
    assert [listing.coordinates for listing in dump.slices] == [Coordinates(step) for step in range(3)]
    assert [message.id for message in dump.evidence] == ["dumps.passes.file"]
    report = compare(folder / "golden", folder / "target")
    found = report.findings.first_bad_node
    assert found is not None
    assert (found.coordinates.step, found.module) == (0, "model.layers.1.mlp.down_proj")
    assert compare(folder / "golden", folder / "golden").counts.error == 0


def test_what_ran_after_the_model_is_read_with_its_own_pass(unpacked: Unpacked) -> None:
    folder = unpacked("engines/sglang_passes") / "golden"
    first, last = read(folder, 0), read(folder, 2)
    model = ["input.input_ids", "input.seq_lens", "input.positions", "output.0"]
    assert labels(first)["model"] == model
    assert labels(first)["logits_processor"] == ["output.0"]
    assert labels(first)["model.layers.1.input_layernorm"] == ["output.0", "output.1"]
    assert [node.name for node in first.nodes][-2:] == ["model", "logits_processor"]
    (rows,) = {record.shape and record.shape[0] for record in first.nodes[-2].tensors if record.key == "0"}
    assert rows == 5
    assert "logits_processor" not in labels(last)
    assert labels(last)["model"] == model[:-1]
    assert problems(first) == []
    assert problems(last) == ["dumps.passes.never_written"]


def test_what_ran_after_a_pass_that_is_missing_is_said_to_be_left_out(
    unpacked: Unpacked, tmp_path: Path
) -> None:
    source = unpacked("engines/sglang_passes") / "golden" / PROCESS / "Pass00001.pt"
    (tmp_path / "Pass00001.pt").write_bytes(source.read_bytes())
    assert problems(read(tmp_path)) == ["dumps.passes.never_written", "dumps.passes.no_such_pass"]


def test_files_that_end_with_the_head_are_read_as_they_are(tmp_path: Path) -> None:
    for number in range(2):
        save(tmp_path / PROCESS, number, {"model.norm": torch.ones(2), "lm_head": torch.ones(3)})
    for at in range(2):
        slice_ = read(tmp_path, at)
        assert labels(slice_) == {"model.norm": ["output.0"], "lm_head": ["output.0"]}
        assert problems(slice_) == []


def test_what_one_stage_hands_on_is_an_output_of_its_model(tmp_path: Path) -> None:
    save(tmp_path, 0, {"model.norm": torch.ones(2), "model.pp_proxy_tensors.residual": torch.ones(2)})
    assert labels(read(tmp_path))["model"] == ["output.residual"]


def test_each_process_is_a_rank_and_one_with_the_rank_of_another_is_left_out(tmp_path: Path) -> None:
    for rank, pid in ((0, 1), (1, 2), (1, 3)):
        save(tmp_path / f"TP{rank}_PP0_Rank{rank}_pid{pid}", 7, {"model.norm": torch.ones(2)})
    dump = open_dump(tmp_path)
    assert [listing.coordinates for listing in dump.slices] == [Coordinates(7, 0), Coordinates(7, 1)]
    assert [(problem.file, problem.reason.id) for problem in dump.problems] == [
        ("TP1_PP0_Rank1_pid3", "dumps.passes.same_rank")
    ]
    alone = open_dump(tmp_path / "TP1_PP0_Rank1_pid3")
    assert [listing.coordinates for listing in alone.slices] == [Coordinates(7)]


def test_two_ranks_are_held_against_one(tmp_path: Path) -> None:
    made = torch.Generator().manual_seed(1)
    whole = torch.randn(4, 16, generator=made)
    save(tmp_path / "golden" / PROCESS, 0, {"model.a": whole, "model.b": whole * 2})
    for rank, part in enumerate(whole.chunk(2, -1)):
        folder = tmp_path / "target" / f"TP{rank}_PP0_Rank{rank}_pid{rank}"
        save(folder, 0, {"model.a": part.contiguous(), "model.b": part * (3 if rank else 2)})
    report = compare(tmp_path / "golden", tmp_path / "target")
    assert report.findings.first_bad_node is not None
    assert report.findings.first_bad_node.target == "model.b"
    assert (report.counts.passed, report.counts.error) == (1, 1)


@pytest.mark.parametrize("length", [0, 10, 400])
def test_a_pass_that_is_cut_short_is_refused_by_name_and_spoils_no_other(tmp_path: Path, length: int) -> None:
    for number in range(3):
        file = save(tmp_path, number, {"model": torch.ones(2), "model.norm": torch.ones(2)})
    middle = tmp_path / "Pass00001.pt"
    middle.write_bytes(file.read_bytes()[:length])
    with pytest.raises(DumpUnreadableError) as caught:
        read(tmp_path, 1)
    assert caught.value.path == middle
    assert labels(read(tmp_path, 2))
    assert "Pass00001.pt" in [problem.file for problem in read(tmp_path, 0).problems]


@pytest.mark.parametrize("value", [torch.ones(2), [torch.ones(2)], {}, {"a": 3}, 5])
def test_a_file_without_tensors_by_name_is_refused(tmp_path: Path, value: object) -> None:
    save(tmp_path, 0, value)
    with pytest.raises(DumpUnreadableError):
        read(tmp_path)


def test_code_in_a_file_is_not_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    save(tmp_path, 0, {"model.a": Trap(), "model.b": torch.ones(2)})
    records = [record for node in read(tmp_path).nodes for record in node.tensors]
    assert [record.problem is None for record in records] == [False, True]
    assert not (tmp_path / "sprung").exists()


def test_a_link_out_of_the_dump_is_not_followed(tmp_path: Path) -> None:
    outside = save(tmp_path / "outside", 0, {"model.a": torch.ones(2)})
    inside = tmp_path / "dump"
    save(inside, 1, {"model.a": torch.ones(2)})
    (inside / "Pass00000.pt").symlink_to(outside)
    with refuses(DumpUnreadableError, "dumps.link.leads_out"):
        read(inside, 0)


def test_names_of_passes_alone_make_a_dump(tmp_path: Path) -> None:
    for name in ("pass0.pt", "Pass.pt", "Pass00000.pth", "xPass00000.pt", "Pass00000.pt.tmp"):
        (tmp_path / name).write_bytes(b"")
    found = recognise(tmp_path)
    assert found is None or found[0] != "passes"


names = st.lists(
    st.sampled_from(["model", "layers", "0", "1", "mlp", "lm_head", "é", "x y", ".."]), min_size=1, max_size=4
).map(".".join)
shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)


@settings(max_examples=50, deadline=None)
@example({"model": [(1,), (2,)], "model.0": (3,)})
@given(st.dictionaries(names, st.lists(shapes, min_size=2, max_size=3) | shapes, min_size=1, max_size=6))
def test_what_was_saved_is_read_again(said: dict[str, list[tuple[int, ...]] | tuple[int, ...]]) -> None:
    saved: Saved = {
        name: [torch.full(one, at) for at, one in enumerate(shape)]
        if isinstance(shape, list)
        else torch.full(shape, 7)
        for name, shape in said.items()
    }
    flat: dict[str, torch.Tensor] = {}
    for name, value in saved.items():
        for at, one in enumerate(value if isinstance(value, list) else [value]):
            entry = f"{name}.{at}" if isinstance(value, list) else name
            flat[f"{entry} (2)" if entry in flat else entry] = one
    with TemporaryDirectory() as folder:
        save(Path(folder), 0, saved)
        records = [record for node in read(Path(folder)).nodes for record in node.tensors]
        assert len(records) == sum(len(one) if isinstance(one, list) else 1 for one in saved.values())
        for record in records:
            assert record.location is not None
            wanted = flat[record.location.entry]
            assert record.shape == tuple(wanted.shape)
            assert load_tensor(record.location).tolist() == wanted.tolist()
