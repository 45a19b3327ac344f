"""What SGLang's dumper says of dimensions and ranks puts tensors together that were cut in any way."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import ids_of

from firstdrift.comparison.compare import compare
from firstdrift.dumps.detect import open_dump, read_slice
from firstdrift.dumps.sglang.dims import Cut, Dims, Portion, parse_dims, portion_of, read_portion, written
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.model.tensor import DataLocation
from firstdrift.parallel.shards_of_tensors import declared_whole

Unpacked = Callable[[str], Path]


def save(folder: Path, rank: int, value: torch.Tensor, dims: str | None, **info: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    said = {"step": 0, "rank": rank, "dump_index": rank + 1, "name": "x"}
    meta = {**said, **({} if dims is None else {"dims": dims}), "sglang_parallel_info": info}
    file = folder / ("___".join(f"{key}={one}" for key, one in said.items()) + ".pt")
    torch.save({"value": value.contiguous(), "meta": meta}, file)
    return file


def records(folder: Path) -> list:
    dump = open_dump(folder)
    nodes = (node for listing in dump.slices for node in read_slice(dump, listing).nodes)
    return [record for node in nodes for record in node.tensors]


def zigzag(whole: torch.Tensor, rank: int, size: int, axis: int) -> torch.Tensor:
    pieces = whole.chunk(2 * size, axis)
    return torch.cat([pieces[rank], pieces[2 * size - 1 - rank]], axis)


@pytest.mark.parametrize(
    ("text", "dims"),
    [
        ("b s h", Dims(("b", "s", "h"), ())),
        ("t h[tp] # dp:=moe_dp ep:replicated", Dims(("t", "h"), (Cut("tp", 1),))),
        ("b s[cp:zigzag,sp] 1", Dims(("b", "s", "1"), (Cut("cp", 1, is_zigzag=True), Cut("sp", 1)))),
        ("t h[tp:partial]", Dims(("t", "h"), (Cut("tp", 1, is_addend=True),))),
        ("s[cp:zigzag+partial]", Dims(("s",), (Cut("cp", 0, is_zigzag=True, is_addend=True),))),
        ("t (heads * d)[tp]", Dims(("t", "heads*d"), (Cut("tp", 1),))),
        ("b s(cp,zigzag) h(tp)", Dims(("b", "s", "h"), (Cut("cp", 1, is_zigzag=True), Cut("tp", 2)))),
    ],
)
def test_dims_of_all_releases_are_read(text: str, dims: Dims) -> None:
    assert parse_dims(text) == dims


@pytest.mark.parametrize(
    "text", ["", " ", "b b", "b[", "b[]x", "b[tp:sideways]", "b[T P]", "b-s", "b " * 2000]
)
def test_other_dims_are_not_guessed_at(text: str) -> None:
    assert parse_dims(text) is None


def test_more_ranks_than_there_are_take_no_memory(tmp_path: Path) -> None:
    groups = {f"{group}_{what}": number for group in "abc" for what, number in (("rank", 0), ("size", 2**20))}
    save(tmp_path, 0, torch.ones(2, 2, 2), "x[a] y[b] z[c]", **groups)
    assert declared_whole(records(tmp_path)[:1]) is None


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    parse_dims(text)
    portion = Portion(text, text, (("tp", 1, 2),))
    assert read_portion(written(portion)) == portion
    read_portion(text)


def test_a_model_on_four_ranks_is_put_together_and_its_fault_is_found(unpacked: Unpacked) -> None:
    folder = unpacked("engines/sglang_dumper")
    report = compare(folder / "golden", folder / "target")
    assert report.findings.first_bad_node is not None
    assert report.findings.first_bad_node.target == "layers.1.mlp_out"
    assert report.counts.pairs == 9
    assert (report.counts.passed, report.counts.incomparable) == (4, 0)


@settings(max_examples=25, deadline=None)
@given(
    tensor=st.integers(1, 3),
    context=st.integers(1, 3),
    is_zigzag=st.booleans(),
    is_addend=st.booleans(),
    copies=st.integers(1, 2),
)
def test_what_ranks_hold_makes_up_the_whole(
    tensor: int, context: int, is_zigzag: bool, is_addend: bool, copies: int
) -> None:
    whole = torch.randn(2, 36, 6, dtype=torch.float64)
    dims = f"b s[cp:{'zigzag' if is_zigzag else 'natural'}] h[tp:{'partial' if is_addend else 'sharded'}]"
    with TemporaryDirectory() as folder:
        for rank, (c, t, d) in enumerate(product(range(context), range(tensor), range(copies))):
            part = zigzag(whole, c, context, 1) if is_zigzag else whole.chunk(context, 1)[c]
            part = part / tensor if is_addend else part.chunk(tensor, 2)[t]
            info = {"cp_rank": c, "cp_size": context, "tp_rank": t, "tp_size": tensor}
            save(Path(folder), rank, part, dims, **info, dp_rank=d, dp_size=copies)
        found = declared_whole(records(Path(folder)))
        if tensor == context == 1:
            assert found is None
            return
        assert found is not None
        assert found.shape == tuple(whole.shape)
        assert torch.allclose(torch.from_numpy(load_tensor(found.location).copy()), whole)


def test_dimensions_in_another_order_are_laid_alike(tmp_path: Path) -> None:
    whole = torch.randn(4, 8, 16)
    save(tmp_path / "golden", 0, whole, "b h d")
    save(tmp_path / "target", 0, whole.transpose(1, 2), "b d h")
    report = compare(tmp_path / "golden", tmp_path / "target")
    assert (report.counts.passed, report.counts.incomparable) == (1, 0)
    save(tmp_path / "target", 0, whole.transpose(1, 2) * 2, "b d h")
    ((pair,),) = [one.plan.pairs for one in compare(tmp_path / "golden", tmp_path / "target").slices]
    assert [message.id for message in pair.transform] == ["matching.transform.reordered"]


def test_what_cannot_be_put_in_order_is_said_and_not_guessed(tmp_path: Path) -> None:
    whole = torch.randn(8, 6)
    save(tmp_path / "golden", 0, whole, "t h")
    for rank in range(2):
        save(tmp_path / "target", rank, zigzag(whole, rank, 2, 0), "t[cp:zigzag] h", cp_rank=rank, cp_size=2)
    ((pair,),) = [one.plan.pairs for one in compare(tmp_path / "golden", tmp_path / "target").slices]
    assert ids_of(pair.target.problem) == ("dumps.sglang.packed_zigzag",)


def test_dims_that_are_not_understood_spoil_their_own_tensor(tmp_path: Path) -> None:
    save(tmp_path, 0, torch.ones(2), "b[?]")
    (record,) = records(tmp_path)
    assert ids_of(record.problem) == ("dumps.sglang.unknown_dims",)


def test_ranks_that_are_missing_or_disagree_are_left_to_their_values(tmp_path: Path) -> None:
    for rank in (0, 2):
        save(tmp_path / "gap", rank, torch.ones(2, 3), "b h[tp]", tp_rank=rank, tp_size=3)
    assert declared_whole(records(tmp_path / "gap")) is None
    for rank in range(4):
        value = torch.full((2, 30), float(rank))
        save(tmp_path / "apart", rank, value, "b h[tp]", tp_rank=rank // 2, tp_size=2)
    assert declared_whole(records(tmp_path / "apart")) is None


@pytest.mark.parametrize("entry", ["", "[]", "x", '["a", "b", [["tp", 5, 2]]]', "[" * 100_000])
def test_names_in_files_that_are_none_are_refused(entry: str) -> None:
    portion = portion_of(DataLocation(Path("x.pt"), "sglang", entry))
    assert portion is None or portion.ranks == ()
