"""What is said of a tiny model in bfloat16 against float32, healthy and with faults planted."""

from pathlib import Path

import pytest
from library.rollout.rollout_rows import SAMPLES, compare_rows, row

from firstdrift.errors import SettingsError
from firstdrift.rollout.compare import compare_rollout
from firstdrift.rollout.report import RolloutOptions, RolloutReport, options_of
from firstdrift.wording.message import Message

EXAMPLES = Path(__file__).parents[3] / "examples" / "rollout"


def compared(trainer: str) -> RolloutReport:
    return compare_rollout(SAMPLES / "rollout.jsonl", SAMPLES / f"{trainer}.jsonl")


@pytest.mark.parametrize(
    ("trainer", "verdict", "hints"),
    [
        ("trainer", "within rounding", []),
        ("temperature", "drifting", ["rollout.hint.flatter"]),
        ("shifted", "tokens off", ["rollout.hint.shifted"]),
        ("router", "drifting", ["rollout.hint.experts"]),
        ("not_finite", "tokens off", []),
    ],
)
def test_each_fault_is_named_and_health_is_not_called_one(
    trainer: str, verdict: str, hints: list[str]
) -> None:
    found = compared(trainer)
    assert (found.verdict, [hint.id for hint in found.hints]) == (verdict, hints)


def test_a_sequence_that_is_off_throughout_is_named_and_none_of_its_tokens() -> None:
    found = compare_rollout(EXAMPLES / "rollout.jsonl", EXAMPLES / "trainer.jsonl")
    assert found.summary.id == "rollout.summary.sequence"
    assert found.summary.arguments["sequence"] == found.pairs[0].name == "3"
    assert [hint.id for hint in found.pairs[0].hints] == ["rollout.hint.flatter"]
    assert compared("shifted").summary.id == "rollout.summary.off"


@pytest.mark.parametrize(("trainer", "sequence", "token"), [("shifted", "2", 20), ("not_finite", "4", 30)])
def test_the_worst_sequence_comes_first_with_the_token_that_left_the_noise(
    trainer: str, sequence: str, token: int
) -> None:
    worst = compared(trainer).pairs[0]
    assert (worst.name, worst.first_found) == (sequence, token)


def test_what_is_not_finite_is_said_first() -> None:
    found = compared("not_finite")
    assert found.summary.id == "rollout.summary.not_finite"
    said = found.summary.arguments
    assert (said["count"], said["sequence"], said["token"]) == (18, "4", 30)
    measured = said["measured"]
    assert isinstance(measured, Message)
    assert measured.arguments["tokens"] == found.counts.tokens - 18


def test_the_shift_is_named_at_its_sequence() -> None:
    worst = compared("shifted").pairs[0]
    assert [hint.id for hint in worst.hints] == ["rollout.hint.shifted_back"]


def test_the_layer_with_the_faulty_router_is_named() -> None:
    found = compared("router")
    assert found.experts is not None
    assert found.experts.first_layer == 2
    assert found.hints[0].arguments["layer"] == 2


def test_a_token_that_went_to_other_experts_is_no_fault_of_a_healthy_run() -> None:
    found = compared("trainer")
    assert (found.counts.out, found.counts.rerouted) == (1, 1)
    assert found.summary.id == "rollout.summary.rerouted"


def test_a_short_sequence_drifts_by_the_noise_of_all_its_tokens(tmp_path: Path) -> None:
    found = compare_rows(tmp_path, [row([-1.0] * 20)], [row([-2.0] * 20)])
    assert found.verdict == "drifting"
    assert found.summary.arguments["scale"] == found.scale
    assert found.pairs[0].first_found == 0


def test_float32_explains_less() -> None:
    found = compare_rollout(
        SAMPLES / "rollout.jsonl", SAMPLES / "trainer.jsonl", RolloutOptions(dtype="float32")
    )
    assert found.verdict == "drifting"


def test_prompts_are_summed_up_with_all_their_answers() -> None:
    found = compared("shifted").prompts
    assert len(found) == 6
    assert {one.sequences for one in found} == {2}
    assert found[0].name == "prompt-1"


def test_positions_hold_all_tokens() -> None:
    found = compared("trainer")
    assert sum(one.statistics.tokens for one in found.positions) == found.counts.tokens == 576


def test_without_a_token_on_both_sides_nothing_was_compared(tmp_path: Path) -> None:
    assert compare_rows(tmp_path, [row([None])], [row([-1.0])]).verdict == "too little compared"
    assert compare_rows(tmp_path, [row([])], [row([])]).verdict == "too little compared"


@pytest.mark.parametrize(
    ("band", "dtype"),
    [((1.2, 0.8), "bfloat16"), ((float("nan"), 1), "bfloat16"), ((-1, 1), "bfloat16"), ((0, 1), "int8")],
)
def test_options_that_make_no_sense_are_refused(band: tuple[float, float], dtype: str) -> None:
    with pytest.raises(SettingsError):
        options_of(band, dtype)


def test_two_sides_of_which_less_than_half_was_compared_are_not_said_to_agree(tmp_path: Path) -> None:
    rows = [row([-1.0] * 20, id=str(number)) for number in range(5)]
    few = compare_rows(tmp_path, rows, rows[:2])
    assert (few.verdict, few.summary.id) == ("too little compared", "rollout.summary.not_judged")
    assert (few.summary.arguments["compared"], few.summary.arguments["sequences"]) == (2, 5)
    assert compare_rows(tmp_path, rows, rows[:3]).verdict == "within rounding"
