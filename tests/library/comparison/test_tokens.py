"""Which tokens are compared: folders of one token named on each side, prompts, and ids that part."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from messages import ids

import firstdrift
from firstdrift.verdict.judgement import Verdict
from firstdrift.wording.message import Message

Unpacked = Callable[[str], Path]


def token_folder(dump: Path, token: int) -> Path:
    """Return the folder of one token of a dump of msit."""
    (folder,) = [*dump.glob(f"*/torch_tensors/*/{token}"), *dump.glob(f"*/tensors/*/{token}")]
    return folder


def tokens(report: firstdrift.Report) -> list[tuple[int | None, int | None]]:
    return [(one.coordinates.token, other.coordinates.token) for one, other in report.pairing.pairs]


def test_the_folders_of_two_tokens_are_compared_whatever_their_numbers(unpacked: Unpacked) -> None:
    golden, target = unpacked("msit/llama12_golden_fp32"), unpacked("msit/llama12_bf16")
    report = firstdrift.compare(token_folder(golden, 2), token_folder(target, 3))
    assert tokens(report) == [(2, 3)]
    assert report.counts.pairs == 321
    assert ids(report.notes()) == ["note.assumed_same"]
    same = firstdrift.compare(token_folder(golden, 2), token_folder(target, 2))
    assert (tokens(same), same.notes(), same.counts.error) == ([(2, 2)], (), 0)


@pytest.mark.parametrize(
    ("token", "archive", "folder", "healthy"),
    [
        (2, "atb12_bf16_nowarm", 1, True),  # no warm-up: folder 1 is token 2
        (2, "atb12_bf16_3tok", 2, True),
        (1, "atb12_bf16_3tok", 2, False),  # two tokens that are not the same, as asked for
    ],
)
def test_the_folder_of_a_torch_token_is_compared_with_one_of_atb(
    unpacked: Unpacked, token: int, archive: str, folder: int, *, healthy: bool
) -> None:
    golden, target = unpacked("msit/llama12_golden_fp32"), unpacked(f"msit/{archive}")
    report = firstdrift.compare(token_folder(golden, token), token_folder(target, folder))
    assert tokens(report) == [(token, 2)]
    assert (report.findings.first_bad_token is None) == healthy


def test_a_folder_of_atb_with_prefill_and_decode_has_two_tokens(unpacked: Unpacked) -> None:
    golden, target = unpacked("msit/llama12_golden_fp32"), unpacked("msit/atb12_bf16_3tok")
    report = firstdrift.compare(golden, token_folder(target, 1))
    assert tokens(report) == [(0, 0), (1, 1)]
    assert report.findings.first_bad_token is None


def test_tokens_with_no_number_in_common_say_what_would_pair_them(unpacked: Unpacked) -> None:
    golden, target = unpacked("msit/llama12_golden_fp32"), unpacked("msit/atb12_bf16_3tok")
    report = firstdrift.compare(token_folder(golden, 4), token_folder(target, 1))
    (note,) = report.notes()
    tokens_held = {"golden": "4", "target": "0\N{EN DASH}1"}
    assert note == Message.of("matching.note.no_common_token", **tokens_held)
    shifted = firstdrift.Options(firstdrift.MatchingRules(token_offset=-3))
    assert tokens(firstdrift.compare(token_folder(golden, 4), token_folder(target, 1), shifted)) == [(4, 1)]


def test_two_prompts_of_one_dump_are_told_apart(unpacked: Unpacked) -> None:
    dump = unpacked("msit/llama4_twoprompts")
    report = firstdrift.compare(dump, dump)
    assert "note.further_prompt" in ids(report.notes())


def test_a_second_prompt_is_not_the_third_token_of_the_first(unpacked: Unpacked) -> None:
    report = firstdrift.compare(unpacked("msit/llama4_golden_fp32"), unpacked("msit/llama4_twoprompts"))
    assert (report.findings.first_bad_token, report.findings.first_bad_node) == (None, None)
    first = report.findings.input_differs[0]
    assert (first.coordinates.token, first.reason) == (
        *(2,),
        Message.of(
            "input.other_length",
            tensor="output.0",
            node="embed_tokens",
            golden=(1, 1, 64),
            target=(1, 6, 64),
        ),
    )
    assert report.counts.error == 0
    pairs = [pair for result in report.slices[3:] for pair in result.judgement.pairs]
    warned = [pair.reasons for pair in pairs if pair.verdict is Verdict.WARNING]
    assert warned == [(Message.of("pair.input_differs"),)] * len(warned) != []


def test_ids_that_part_are_found_in_the_dump(unpacked: Unpacked, tmp_path: Path) -> None:
    golden = unpacked("msit/llama4_golden_fp32")
    shutil.copytree(golden, tmp_path / "target")
    file = token_folder(tmp_path / "target", 4) / "root.lm_head" / "output.pth"
    logits = torch.load(file)
    logits[..., 11] = logits.max() + 1e-4
    torch.save(logits, file)
    ids = token_folder(tmp_path / "target", 5) / "root.model.embed_tokens" / "input_0.pth"
    torch.save(torch.full_like(torch.load(ids), 11), ids)
    findings = firstdrift.compare(golden, tmp_path / "target").findings
    first = findings.input_differs[0]
    assert (first.coordinates.token, first.reason) == (
        *(5,),
        Message.of("input.token_before", golden=163, target=11),
    )
