"""Rows are compared by their tokens, whatever the layout in which either run holds them.

Each pair is of the same model and the same sequences, dumped from torch: healthy, and with one token spoiled.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from library.matching.token_layouts import SEQUENCES, Run, padded, whole
from mapping_reading import read_mapping

import firstdrift
from firstdrift.comparison.compare import compare
from firstdrift.comparison.report import Options
from firstdrift.exports.view_mapping import view_mapping
from firstdrift.matching.plan import MatchingRules

FAULT = (1, 2)
"""The token that is spoiled: of sequence 1, the third."""


def in_batch(run: Run, *, left: bool, mask: bool = True) -> Run:
    where, shape, told = padded((0, 1, 2), left=left)
    return run.step(where, shape, **({"attention_mask": told} if mask else {"none": torch.zeros(1)}))


def packed(run: Run, *order: int, told: str = "positions") -> Run:
    ends = torch.tensor([0, *(len(SEQUENCES[one]) for one in order)]).cumsum(0)
    with_lengths = {"cu_seqlens": ends} if told == "lengths" else {"none": torch.zeros(1)}
    return run.step(whole(*order), **({} if told == "positions" else with_lengths))


def in_chunks(run: Run) -> Run:
    run.step(whole(0)[:3])
    run.step([*whole(0)[3:], *whole(1), *whole(2)[:2]])
    return run.step(whole(2)[2:])


def generating(run: Run) -> Run:
    """Give all but the last token of each sequence, then those one by one in one pass, in another order."""
    run.step([token for one in range(3) for token in whole(one)[:-1]])
    return run.step([whole(one)[-1] for one in (2, 0, 1)])


def after_cache(run: Run) -> Run:
    """Give the last rows of each sequence alone: what came before them is in a cache from before."""
    folder, run.folder = run.folder, run.folder.parents[1] / f"warm_up_{run.folder.parent.name}"
    run.folder.mkdir()
    run.step(whole(0, 1, 2))
    run.folder = folder
    return run.step([token for one in (1, 0, 2) for token in whole(one)[2:]])


Layout = Callable[[Run], Run]

LAYOUTS: dict[str, tuple[Layout, Layout]] = {
    "packed-in-another-order": (lambda run: packed(run, 0, 1, 2), lambda run: packed(run, 2, 0, 1)),
    "padded-against-packed": (lambda run: in_batch(run, left=True), lambda run: packed(run, 0, 1, 2)),
    "padded-against-another-order": (lambda run: in_batch(run, left=True), lambda run: packed(run, 2, 1, 0)),
    "lengths-tell": (lambda run: in_batch(run, left=False), lambda run: packed(run, 1, 2, 0, told="lengths")),
    "nothing-tells-but-the-other-run": (
        lambda run: in_batch(run, left=True),
        lambda run: packed(run, 1, 2, 0, told="nothing"),
    ),
    "packed-against-padded": (lambda run: packed(run, 1, 0, 2), lambda run: in_batch(run, left=False)),
    "left-against-right": (lambda run: in_batch(run, left=True), lambda run: in_batch(run, left=False)),
    "chunked-prefill": (lambda run: packed(run, 0, 1, 2), in_chunks),
    "chunked-prefill-against-padded": (lambda run: in_batch(run, left=True), in_chunks),
    "chunks-against-chunks": (in_chunks, generating),
    "decode-steps": (lambda run: in_batch(run, left=True), generating),
    "decode-steps-in-golden": (generating, lambda run: packed(run, 2, 1, 0)),
    "prefix-cache": (lambda run: packed(run, 0, 1, 2), after_cache),
    "prefix-cache-against-padded": (lambda run: in_batch(run, left=True), after_cache),
}


def runs(folder: Path, layout: str, fault: tuple[int, int] | None = None) -> tuple[Path, Path]:
    golden, target = LAYOUTS[layout]
    return golden(Run(folder / "golden")).path, target(Run(folder / "target", fault)).path


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_layouts_of_the_same_tokens_agree(tmp_path: Path, layout: str) -> None:
    report = compare(*runs(tmp_path, layout))
    assert report.findings.first_bad_node is None
    assert not report.findings.input_differs
    assert report.findings.not_judged is None
    assert report.counts.error == report.counts.warning == 0
    assert len(report.slices) == 1
    measured = [one.errors for result in report.slices for one in result.measurements if one.errors]
    assert max(one.relative_l2 for one in measured) < 1e-5


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_fault_in_one_token_is_named_by_module_sequence_and_place(tmp_path: Path, layout: str) -> None:
    report = compare(*runs(tmp_path, layout, FAULT))
    found = report.findings.first_bad_node
    assert found is not None
    assert found.module == "model.layers.1.down_proj"
    assert not report.findings.input_differs
    (said,) = [reason for reason in found.reasons if reason.id == "reason.worst_token"]
    sequence, position = said.arguments["sequence"], said.arguments["position"]
    assert position == FAULT[1]
    golden = {"packed-against-padded": (1, 0, 2)}.get(layout, (0, 1, 2))
    assert golden[int(str(sequence))] == FAULT[0]


@pytest.mark.parametrize("layout", ["padded-against-another-order", "chunked-prefill", "prefix-cache"])
def test_views_by_token_go_out_and_come_back(tmp_path: Path, layout: str) -> None:
    sides = runs(tmp_path, layout, FAULT)
    report = compare(*sides)
    (tmp_path / "views.yaml").write_text(view_mapping(one.plan for one in report.slices))
    mapping = read_mapping(tmp_path / "views.yaml")
    again = compare(*sides, Options(matching=MatchingRules(mappings=(mapping,))))
    assert again.counts == report.counts
    assert again.findings.first_bad_node is not None
    assert again.findings.first_bad_node.module == "model.layers.1.down_proj"


def in_passes_of(run: Run, *lengths: int, told: str | None) -> Run:
    """Give a sequence in passes, with or without the places of its tokens."""
    at = 0
    for length in lengths:
        places = torch.arange(at, at + length)
        run.step(whole(2)[at : at + length], **({"none": torch.zeros(1)} if told is None else {told: places}))
        at += length
    return run


@pytest.mark.parametrize("told", ["positions", "at"])
def test_a_chunk_of_two_tokens_is_no_padding_and_a_token(tmp_path: Path, told: str) -> None:
    golden = in_passes_of(Run(tmp_path / "golden"), 3, 1, 1, 1, told=told)
    target = in_passes_of(Run(tmp_path / "target", (2, 0)), 2, 1, 1, 1, 1, told=told)
    report = compare(golden.path, target.path)
    assert not report.findings.input_differs
    assert report.findings.first_bad_node is not None
    assert report.findings.first_bad_node.module == "model.layers.1.down_proj"


def test_generated_tokens_without_positions_are_all_compared(tmp_path: Path) -> None:
    golden = in_passes_of(Run(tmp_path / "golden"), 3, 1, 1, 1, told=None)
    target = in_passes_of(Run(tmp_path / "target", (2, 4)), 2, 1, 1, 1, 1, told=None)
    report = compare(golden.path, target.path)
    assert not report.pairing.unmatched_golden
    assert not report.pairing.unmatched_target
    assert report.findings.first_bad_node is not None
    assert report.findings.first_bad_node.module == "model.layers.1.down_proj"


def test_golden_passes_that_the_target_lacks_are_said_not_to_be_compared(tmp_path: Path) -> None:
    golden = in_passes_of(Run(tmp_path / "golden"), 3, 1, 1, 1, told="positions")
    target = in_passes_of(Run(tmp_path / "target"), 2, 1, 1, told="positions")
    coverage = compare(golden.path, target.path).findings.coverage
    assert coverage is not None
    assert coverage.left_out == 2
    assert (coverage.said.id, coverage.said.arguments["slices"]) == ("coverage.left_out", 2)


def speculating(run: Run, draft: int, *passes: tuple[int, int]) -> Path:
    """Give a sequence in passes, of places from one to another, the last of which is a wrong draft."""
    run.step(whole(2)[:2])
    for first, last in passes:
        drafts = {(2, last): draft} if last < len(SEQUENCES[2]) - 1 else {}
        run.step(whole(2)[first : last + 1], drafts=drafts)
    return run.path


DRAFTS = {
    "the golden run has some": (((2, 3), (3, 5)), ((2, 4), (4, 5))),
    "other drafts": (((2, 3), (3, 4), (4, 5)), ((2, 4), (4, 5))),
    "none was right": (((2, 4), (4, 5)), ((2, 3), (3, 4), (4, 5))),
}


@pytest.mark.parametrize("fault", [None, (2, 3)])
@pytest.mark.parametrize("drafts", DRAFTS)
def test_drafts_that_were_rejected_are_held_against_nothing(
    tmp_path: Path, drafts: str, fault: tuple[int, int] | None
) -> None:
    golden, target = DRAFTS[drafts]
    report = compare(
        speculating(Run(tmp_path / "golden"), 44, *golden),
        speculating(Run(tmp_path / "target", fault), 45, *target),
    )
    assert not report.findings.input_differs
    assert report.findings.not_judged is None
    bad = report.findings.first_bad_node
    assert (bad and bad.module) == ("model.layers.1.down_proj" if fault else None)
    assert report.counts.incomparable == 0
    pairs = [pair for one in report.slices for pair in one.plan.pairs if "embed_tokens" in pair.golden_node]
    assert sum((pair.golden.shape or (0,))[0] for pair in pairs) == len(SEQUENCES[2])


def test_another_prompt_is_another_input(tmp_path: Path) -> None:
    golden = Run(tmp_path / "golden").step(whole(0, 2))
    target = Run(tmp_path / "target").step(whole(1, 2))
    assert firstdrift.compare(golden.path, target.path).findings.input_differs


def test_a_prompt_that_was_cut_short_is_another_input(tmp_path: Path) -> None:
    golden = Run(tmp_path / "golden").step(whole(0))
    target = Run(tmp_path / "target").step(whole(0)[:-1])
    assert firstdrift.compare(golden.path, target.path).findings.input_differs
