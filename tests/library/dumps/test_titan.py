"""Logs of activations as torchtitan writes them: by a function that prints what its own prints."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import ids_of

from firstdrift.comparison.compare import compare
from firstdrift.dumps.detect import open_dump, recognise
from firstdrift.errors import DumpUnreadableError
from firstdrift.model.node import Direction, NodeKind
from firstdrift.model.slice import Coordinates, Slice
from firstdrift.parallel.slices import read_slice


def block(key: str, value: torch.Tensor, phase: str = "forward") -> str:
    lines = [
        f"[{key}]",
        f"  Shape: {value.shape}, Dtype: {value.dtype}",
        f"  L1 norm:  {value.float().norm(p=1).item():.6e}",
        f"  L2 norm:  {value.float().norm(p=2).item():.6e}",
        f"  Min:      {value.float().min().item():.6e}",
        f"  Max:      {value.float().max().item():.6e}",
        f"  Mean:     {value.float().mean().item():.6e}",
        "  Location: common/attention.py:534",
    ]
    return "\n".join([*lines, *([f"  Phase: {phase}"] if phase != "forward" else []), "", ""])


def write(folder: Path, *blocks: str, rank: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    head = f"Total captured activations: {len(blocks)}\nExcluded ops dispatched: view\n{'=' * 80}\n\n"
    (folder / f"rank_{rank}_activations.log").write_text(head + "".join(blocks))
    return folder


def step(folder: Path, factor: float = 1.0, rank: int = 0) -> Path:
    made = torch.Generator().manual_seed(1)
    hidden, blocks = torch.randn(32, 64, generator=made), []
    for layer in range(3):
        for module in ("attention.wq", "feed_forward.w2"):
            hidden = hidden @ (torch.randn(64, 64, generator=made) / 8)
            hidden = hidden * (factor if (layer, module) == (1, "feed_forward.w2") else 1.0)
            blocks.append(block(f"layers.{layer}.{module}/op_0_mm", hidden))
    blocks.append(block("layers.2.feed_forward.w2/op_1_mm", hidden * 2, "backward"))
    return write(folder, *blocks, rank=rank)


def read(path: Path, at: int = 0) -> Slice:
    dump = open_dump(path)
    assert dump.format == "torchtitan"
    return read_slice(dump, dump.slices[at])


def test_a_fault_is_found_at_the_operator_where_it_was_planted(tmp_path: Path) -> None:
    golden, target = step(tmp_path / "golden"), step(tmp_path / "target", factor=1.5)
    found = compare(golden, target).findings.first_bad_node
    assert found is not None
    assert found.module == "layers.1.feed_forward.w2"
    assert compare(golden, golden).counts.error == 0


def test_operators_lie_in_their_modules(tmp_path: Path) -> None:
    nodes = {node.name: node for node in read(step(tmp_path)).nodes}
    mm = nodes["layers.1.attention.wq.op_0_mm"]
    assert (mm.kind, mm.type_name, mm.parent) == (NodeKind.API, "Aten.mm", "layers.1.attention.wq")
    (record,) = mm.tensors
    assert (record.dtype, record.shape) == ("float32", (32, 64))
    assert record.statistics is not None
    assert None not in (record.statistics.norm, record.statistics.mean, record.statistics.maximum)
    assert nodes["layers.2.feed_forward.w2.op_1_mm.backward"].direction is Direction.BACKWARD


def test_ranks_are_slices(tmp_path: Path) -> None:
    for rank in range(2):
        step(tmp_path, rank=rank)
    assert [one.coordinates for one in open_dump(tmp_path).slices] == [
        Coordinates(rank=0),
        Coordinates(rank=1),
    ]
    assert [one.coordinates for one in open_dump(tmp_path / "rank_1_activations.log").slices] == [
        Coordinates()
    ]


@pytest.mark.parametrize("lines", range(8))
def test_a_log_that_is_cut_short_spoils_its_last_operator_only(tmp_path: Path, lines: int) -> None:
    last = "\n".join(block("a/op_1_mm", torch.ones(2)).splitlines()[:lines])
    nodes = [
        node for node in read(write(tmp_path, block("a/op_0_mm", torch.ones(2)), last)).nodes if node.tensors
    ]
    problems = [ids_of(record.problem) for node in nodes for record in node.tensors]
    assert problems == [(), *([("dumps.titan.cut_short",)] if 0 < lines < 7 else [()] if lines >= 7 else [])]


def test_a_log_without_activations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DumpUnreadableError):
        read(write(tmp_path))


def test_other_logs_are_no_dump(tmp_path: Path) -> None:
    (tmp_path / "rank_x_activations.log").write_text("[a/op_0_mm]")
    assert recognise(tmp_path) is None


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(max_size=60), max_size=8))
def test_any_lines_are_read(lines: list[str]) -> None:
    with TemporaryDirectory() as folder:
        text = block("a.b/op_0_mm", torch.ones(2)) + "\n".join(lines)
        (Path(folder) / "rank_0_activations.log").write_text(text, encoding="utf-8", errors="replace")
        nodes = read(Path(folder)).nodes
    assert nodes[0].name == "a.b.op_0_mm"
