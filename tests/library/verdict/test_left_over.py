"""Each node without a partner says why, in words that follow from the trees alone."""

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from firstdrift import Report
from firstdrift.model.node import Direction, NodeKind
from firstdrift.verdict.tree import TreeRow
from firstdrift.verdict.unmatched_reason import why_left_over

MODULE, OPERATOR = NodeKind.MODULE, NodeKind.API


def row(
    label: str, type_name: str, *, sides: str = "both", parent: int | None = None, kind: NodeKind = OPERATOR
) -> TreeRow:
    """Make a row whose place `tree` sets; `sides` says which dump has it, "both" that it is matched."""
    return TreeRow(
        index=0,
        parent=parent,
        last=0,
        depth=0,
        order=0,
        label=label,
        kind=kind,
        type_name=type_name,
        direction=Direction.FORWARD,
        golden=() if sides == "target" else (f"golden.{label}",),
        target=() if sides == "golden" else (f"target.{label}",),
        match=0 if sides == "both" else None,
        path=None,
        micro_step=None,
    )


def tree(*rows: TreeRow) -> list[TreeRow]:
    """Number rows that are given in pre-order."""
    lasts = list(range(len(rows)))
    for index in range(len(rows) - 1, -1, -1):
        parent = rows[index].parent
        if parent is not None:
            lasts[parent] = max(lasts[parent], lasts[index])
    return [replace(one, index=at, order=at, last=lasts[at]) for at, one in enumerate(rows)]


BLOCK = row("mlp", "MLP", kind=MODULE)
REDUCE = row("all_reduce.0", "Distributed.all_reduce", sides="target", parent=0)


@pytest.mark.parametrize(
    ("rows", "reasons"),
    [
        ([BLOCK, row("add.0", "Tensor.add", parent=0)], []),
        (
            [BLOCK, row("view_as.0", "Tensor.view_as", sides="target", parent=0)],
            [["unmatched.not_called"]],
        ),
        (
            [BLOCK, row("view_as.0", "Tensor.view_as", sides="target", parent=0), REDUCE],
            [
                ["unmatched.not_called", "unmatched.only_side_with_ranks"],
                ["unmatched.communication"],
            ],
        ),
        (
            [BLOCK, row("mul.0", "Tensor.mul", sides="golden", parent=0), REDUCE],
            [
                ["unmatched.not_called"],
                ["unmatched.communication"],
            ],
        ),
        (  # ranks of both runs talk: one call more is what any operator called once more is
            [BLOCK, replace(REDUCE, golden=("g",), match=0), replace(REDUCE, label="all_reduce.1")],
            [["unmatched.called_more_often"]],
        ),
        (
            [
                BLOCK,
                row("add.0", "Tensor.add", parent=0),
                row("__add__.0", "Tensor.__add__", sides="golden", parent=0),
                row("add.1", "Torch.add", sides="golden", parent=0),
            ],
            [
                ["unmatched.called_more_often"],
                ["unmatched.called_more_often"],
            ],
        ),
        (
            [
                BLOCK,
                row("add.0", "Tensor.add", sides="golden", parent=0),
                row("add.7", "Tensor.add", sides="target", parent=0),
            ],
            [
                ["unmatched.no_operator_like_it"],
                ["unmatched.no_operator_like_it"],
            ],
        ),
        (
            [row("relu.0", "Torch.relu", sides="golden")],
            [["unmatched.not_called"]],
        ),
        (
            [row("layers", "ModuleList", sides="golden", kind=MODULE), replace(BLOCK, parent=0)],
            [["unmatched.holds_matched"]],
        ),
        (  # what it holds hangs elsewhere in the tree
            [
                row("list", "ModuleList", sides="golden", kind=MODULE),
                replace(BLOCK, golden=("golden.list.0",)),
            ],
            [["unmatched.holds_matched"]],
        ),
        (
            [
                row("gate", "Linear", sides="target", kind=MODULE),
                row("linear.0", "Functional.linear", sides="target", parent=0),
            ],
            [
                ["unmatched.nothing_left"],
                ["unmatched.inside"],
            ],
        ),
        (
            [
                BLOCK,
                row("gate", "Linear", sides="target", kind=MODULE, parent=0),
                row("router", "Router", sides="golden", kind=MODULE, parent=0),
            ],
            [
                ["unmatched.no_module_like_it"],
                ["unmatched.no_module_like_it"],
            ],
        ),
        (
            [BLOCK, row("2_ReshapeAndCacheOperation", "ReshapeAndCacheOperation", sides="target", parent=0)],
            [["unmatched.cache"]],
        ),
    ],
)
def test_what_is_left_over_says_why(rows: Sequence[TreeRow], reasons: list[list[str]]) -> None:
    laid_out = tree(*rows)
    left = [each.index for each in laid_out if each.match is None]
    said = why_left_over(laid_out)
    assert list(said) == left
    assert [[reason.id for reason in why] for why in said.values()] == reasons


@pytest.mark.parametrize(
    ("golden", "target"),
    [
        ("msit/llama4_golden_fp32", "msit/atb4_bf16"),
        ("msit/atb4_bf16", "msit/llama4_golden_fp32"),
        ("msprobe/llama_stat_mix_attn/golden", "msprobe/llama_stat_mix_attn/target"),
        ("msprobe/qwen2_layermap_stat_mix/golden", "msprobe/qwen2_layermap_stat_mix/target"),
    ],
)
def test_every_node_that_is_left_over_of_real_dumps_says_why(
    compared: Callable[..., Report], golden: str, target: str
) -> None:
    report = compared(golden, target)
    frame = report.frame()
    left = frame[
        (frame["verdict"] == "unmatched") & frame["golden_tensor"].isna() & frame["target_tensor"].isna()
    ]
    assert len(left) == report.counts.unmatched_golden_nodes + report.counts.unmatched_target_nodes > 0
    assert left["reasons"].str.len().min() > 10
    for result in report.slices:
        for each, judged in zip(result.rows, result.judgement.rows, strict=True):
            assert each.match is not None or judged.reasons
