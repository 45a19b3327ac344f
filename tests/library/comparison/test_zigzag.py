"""Ranks that each have a piece of the sequence from its front and one from its back, which no dump says.

A dump of one rank is dealt out over two: what has a dimension of tokens is cut, all else copied.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from firstdrift import Report, compare
from firstdrift.matching.plan import TensorPair

TOKENS = 8
Dealt = Callable[..., Report]


def pieces_of(rank: int) -> tuple[int, int]:
    return rank, 3 - rank


def in_turn(rank: int) -> tuple[int, int]:
    return 2 * rank, 2 * rank + 1


def deal(folder: Path, out: Path, pieces: Callable[[int], tuple[int, int]]) -> Path:
    """Write the two ranks of a dump of one."""
    (whole,) = folder.rglob("rank0")
    for rank in range(2):
        own = out / "step0" / f"rank{rank}"
        shutil.copytree(whole, own)
        dump = json.loads((own / "dump.json").read_text())
        for record in records(dump["data"]):
            if TOKENS not in record["shape"][:-1] and record["shape"] != [1, TOKENS]:
                continue
            file = own / "dump_tensor_data" / record["data_name"]
            value = torch.load(file)
            axis = list(value.shape).index(TOKENS)
            parts = value.chunk(4, axis)
            value = torch.cat([parts[at] for at in pieces(rank)], axis).contiguous()
            torch.save(value, file)
            record |= {"shape": list(value.shape), **statistics(value)}
        (own / "dump.json").write_text(json.dumps(dump))
    return out


def records(held: object) -> Iterator[dict[str, Any]]:
    """Yield all that a dump says of tensors whose values it has, but for parameters."""
    if isinstance(held, list):
        for one in held:
            yield from records(one)
    elif isinstance(held, dict) and "data_name" in held:
        yield held
    elif isinstance(held, dict):
        for key, one in held.items():
            if key != "parameters":
                yield from records(one)


def statistics(value: torch.Tensor) -> dict[str, float]:
    wide = value.double()
    numbers = {"Max": wide.max(), "Min": wide.min(), "Mean": wide.mean(), "Norm": wide.norm()}
    return {key: number.item() for key, number in numbers.items()}


def is_dealt(pair: TensorPair) -> bool:
    return any(how.id == "matching.transform.zigzag" for how in pair.transform)


@pytest.fixture
def dealt(unpacked: Callable[[str], Path], tmp_path: Path) -> Dealt:
    """Return a function that compares a dump with the same dealt out."""

    def run(
        *,
        pieces: Callable[[int], tuple[int, int]] = pieces_of,
        wrong: str = "",
        reverse: bool = False,
        hidden: bool = False,
    ) -> Report:
        golden = tmp_path / "golden"
        shutil.copytree(unpacked("msprobe/llama_tensor_L0_bf16") / "golden", golden)
        if hidden:
            without_whole_numbers(golden)
        target = deal(golden, tmp_path / "target", pieces)
        if wrong:
            (file,) = (target / "step0" / "rank1").rglob(f"*{wrong}.output.0.pt")
            torch.save(torch.load(file) * 1.5, file)
        return compare(*((target, golden) if reverse else (golden, target)))

    return run


def without_whole_numbers(golden: Path) -> None:
    """Leave out the whole numbers that a dump holds."""
    for file in golden.rglob("dump.json"):
        dump = json.loads(file.read_text())
        for record in records(dump["data"]):
            if "int" in record["dtype"]:
                (file.parent / "dump_tensor_data" / record.pop("data_name")).unlink()
        file.write_text(json.dumps(dump))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("hidden", [False, True], ids=["by token ids", "by rows"])
def test_what_was_dealt_out_in_zigzag_is_put_in_order(dealt: Dealt, reverse: bool, hidden: bool) -> None:
    report = dealt(reverse=reverse, hidden=hidden)
    assert report.findings.first_bad_node is None
    assert report.counts.error == report.counts.warning == 0
    rows = [pair for pair in report.slices[0].plan.pairs if is_dealt(pair)]
    assert len(rows) > 50


def test_ranks_that_lie_one_after_the_other_are_left_as_they_are(dealt: Dealt) -> None:
    report = dealt(pieces=in_turn)
    assert report.findings.first_bad_node is None
    assert not any(is_dealt(pair) for pair in report.slices[0].plan.pairs)


def test_a_fault_on_one_rank_is_named_in_the_order_of_tokens(dealt: Dealt) -> None:
    bad = dealt(wrong="layers.1.mlp.up_proj.Linear.forward.0").findings.first_bad_node
    assert bad is not None
    assert bad.module == "model.layers.1.mlp.up_proj"
    assert bad.on_rank == 1
