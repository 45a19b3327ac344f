"""What the tests of SGLang's comparator expect in 21 scenarios, and what is said here: that, or what differs.

The comparator passes a pair of tensors up to a relative difference, fails it beyond, and skips what it cannot
load. Dumps are laid out as its dumper lays them out: a file for each tensor, step and rank, with `dims` and
the place of the rank.
"""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import torch
from msgspec import Struct

from firstdrift.comparison.compare import compare
from firstdrift.comparison.report import Report

Write = Callable[[Path, torch.Tensor], None]


class Said(Struct, frozen=True):
    """How many tensors passed, differ and cannot be compared, and how many names one side alone has."""

    passed: int = 0
    failed: int = 0
    incomparable: int = 0
    left: int = 0


def save(
    folder: Path,
    value: torch.Tensor,
    *,
    name: str = "x",
    rank: int = 0,
    step: int = 0,
    dims: str = "",
    **more: object,
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    place = {key: more.pop(key) for key in list(more) if key.endswith(("_rank", "_size"))}
    index = len(list(folder.iterdir())) + 1
    said = {"step": step, "rank": rank, "dump_index": index, "name": name, **more}
    meta = {**said, "sglang_parallel_info": place} | ({"dims": dims} if dims else {})
    file = folder / ("___".join(f"{key}={one}" for key, one in said.items()) + ".pt")
    torch.save({"value": value.contiguous(), "meta": meta}, file)


def whole(dims: str = "", **more: object) -> Write:
    return lambda folder, value: save(folder, value, dims=dims, **more)


def cut(dims: str, ranks: int, axis: int = 1, name: str = "x") -> Write:
    """Save a tensor that so many tensor-parallel ranks hold a part of each."""

    def write(folder: Path, value: torch.Tensor) -> None:
        for rank, part in enumerate(value.chunk(ranks, axis)):
            save(folder, part, name=name, rank=rank, dims=dims, tp_rank=rank, tp_size=ranks)

    return write


def addends(folder: Path, value: torch.Tensor) -> None:
    for rank, share in enumerate((0.25, 0.75)):
        save(folder, value * share, rank=rank, dims="t h[tp:partial]", tp_rank=rank, tp_size=2)


def copies(folder: Path, value: torch.Tensor) -> None:
    for rank in range(2):
        save(folder, value, rank=rank, dims="t h", tp_rank=rank, tp_size=2)


def zigzag(dims: str, tensor: int = 1) -> Write:
    """Save a sequence of which each of two ranks holds a chunk of the beginning and one of the end."""

    def write(folder: Path, value: torch.Tensor) -> None:
        pieces = value.chunk(4, 0)
        for rank, (context, shard) in enumerate(product(range(2), range(tensor))):
            own = torch.cat([pieces[context], pieces[3 - context]]).chunk(tensor, 1)[shard]
            place = {"cp_rank": context, "cp_size": 2, "tp_rank": shard, "tp_size": tensor}
            save(folder, own, rank=rank, dims=dims, **place)

    return write


def several(*writes: Write) -> Write:
    def write(folder: Path, value: torch.Tensor) -> None:
        for each in writes:
            each(folder, value)

    return write


def times(factor: float, write: Write) -> Write:
    return lambda folder, value: write(folder, value * factor)


def seen(change: Callable[[torch.Tensor], torch.Tensor], write: Write) -> Write:
    return lambda folder, value: write(folder, change(value))


def wrong_shard(folder: Path, value: torch.Tensor) -> None:
    changed = value.clone()
    changed[:, -4:] *= 1.1
    cut("t h[tp]", 2)(folder, changed)


STEPS = several(*(whole(step=step) for step in range(3)))
LAST_STEP_OFF = several(whole(), whole(step=1), times(1.1, whole(step=2)))

SCENARIOS = [
    # name, golden, target, what SGLang says, what is said here where that is something else
    ("basic", several(whole(), whole(name="y")), several(whole(), whole(name="y")), Said(passed=2), None),
    ("a-fault", whole(), times(1.1, whole()), Said(failed=1), None),
    ("one-side-alone-has-a-name", whole(), several(whole(), whole(name="y")), Said(passed=1, left=1), None),
    ("steps", STEPS, STEPS, Said(passed=3), None),
    ("a-fault-in-the-last-step", STEPS, LAST_STEP_OFF, Said(passed=2, failed=1), None),
    ("two-ranks-each", cut("t h[tp]", 2), cut("t h[tp]", 2), Said(passed=1), Said(passed=2)),
    ("four-ranks-and-two", cut("t h[tp]", 4), cut("t h[tp]", 2), Said(passed=1), None),
    ("one-rank-and-two", whole(), cut("t h[tp]", 2), Said(passed=1), None),
    ("two-ranks-and-one", cut("t h[tp]", 2), whole(), Said(passed=1), None),
    ("dims-of-earlier-releases", whole("t h"), cut("t h(tp)", 2), Said(passed=1), None),
    ("a-fault-on-one-rank", whole(), wrong_shard, Said(failed=1), None),
    ("cut-along-the-first", whole("t h"), cut("t[tp] h", 2, 0), Said(passed=1), None),
    (
        "two-tensors-on-two-ranks",
        several(whole(), whole(name="y")),
        several(cut("t h[tp]", 2), cut("t h[tp]", 2, name="y")),
        Said(passed=2),
        None,
    ),
    # SGLang refuses ranks of which one side does not say what they hold; shapes and values tell that here.
    ("ranks-without-dims", cut("", 2), cut("t h[tp]", 4), Said(left=1), Said(passed=1)),
    ("addends", whole("t h"), addends, Said(passed=1), None),
    ("copies", whole("t h"), copies, Said(passed=1), None),
    ("zigzag", whole("s h"), zigzag("s[cp:zigzag] h"), Said(passed=1), None),
    ("zigzag-and-shards", whole("s h"), zigzag("s[cp:zigzag] h[tp]", 2), Said(passed=1), None),
    ("axes-exchanged", whole("t h"), seen(torch.t, whole("h t")), Said(passed=1), None),
    ("a-dimension-of-one", whole("t h"), seen(lambda x: x[:, None], whole("t 1 h")), Said(passed=1), None),
    ("other-shapes", whole(), seen(lambda x: x[:, :5], whole()), Said(failed=1), Said(incomparable=1)),
]  # fmt: skip


def said_of(report: Report) -> Said:
    left = sum(len(one.plan.unmatched_golden) + len(one.plan.unmatched_target) for one in report.slices)
    counts = report.counts
    failed = counts.pairs - counts.passed - counts.incomparable
    return Said(counts.passed, failed, counts.incomparable, left)


@pytest.mark.parametrize(
    ("golden", "target", "theirs", "ours"),
    [pytest.param(*scenario[1:], id=scenario[0]) for scenario in SCENARIOS],
)
def test_what_is_said_agrees_with_the_comparator_of_sglang(
    tmp_path: Path, golden: Write, target: Write, theirs: Said, ours: Said | None
) -> None:
    value = torch.randn(8, 8, generator=torch.Generator().manual_seed(1))
    golden(tmp_path / "golden", value)
    target(tmp_path / "target", value)
    assert said_of(compare(tmp_path / "golden", tmp_path / "target")) == (theirs if ours is None else ours)
