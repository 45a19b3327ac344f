"""Thresholds that are moved change what they are said to; those that are left alone change nothing."""

import math
from pathlib import Path

import ml_dtypes
import pytest
from hypothesis import given
from hypothesis import strategies as st
from library.verdict.made_slices import Call, Judged, MadePair, make
from messages import gaps_of, like

from firstdrift.catalogue.codec import from_text, to_text
from firstdrift.errors import SettingsError
from firstdrift.model.slice import Coordinates
from firstdrift.model.tensor import ROUNDING, UNIT_ROUNDOFF, coarsest_roundoff
from firstdrift.verdict.baseline import Noise, noise_of
from firstdrift.verdict.findings import conclude, judge_after
from firstdrift.verdict.judge import RULES
from firstdrift.verdict.judgement import NodeClass, SliceJudgement
from firstdrift.verdict.movable_thresholds import (
    ABOUT,
    DEFAULTS,
    Thresholds,
    thresholds_from,
    thresholds_of_words,
)

DOCUMENTED = Path(__file__).parents[3] / "docs" / "verdict.md"
U32 = ROUNDING["float32"]
LINEAR = "Functional.linear.0.forward"
BEFORE = Call("Functional.silu.0.forward", inputs=[0.0], outputs=[0.0])


def judged(
    made: MadePair, rules: str = "firstdrift", *, noise: Noise | None = None, **moved: float
) -> Judged:
    said = judge_after(
        (),
        made.plan,
        made.rows,
        made.measurements,
        rules,
        limits=Thresholds(**moved),
        noise=noise or Noise(),
    )
    return Judged(made, said)


def faulty(error: float, given: float = 0.0) -> MadePair:
    return make(BEFORE, Call(LINEAR, inputs=[given], outputs=[error]))


def test_every_threshold_is_described_bounded_and_documented() -> None:
    assert set(ABOUT) == set(Thresholds.__struct_fields__)
    text = DOCUMENTED.read_text()
    for name, about in ABOUT.items():
        assert about.rules in RULES
        assert not about.refuses(getattr(DEFAULTS, name))
        assert f"`{name}`" in text, name


@pytest.mark.parametrize("rules", RULES)
def test_defaults_change_nothing(rules: str) -> None:
    made = faulty(0.1)
    plain = judge_after((), made.plan, made.rows, made.measurements, rules)
    assert judged(made, rules).said == plain
    assert plain.limits == DEFAULTS


@pytest.mark.parametrize("dtype", UNIT_ROUNDOFF)
def test_the_unit_roundoff_is_half_the_machine_epsilon(dtype: str) -> None:
    assert UNIT_ROUNDOFF[dtype] == float(ml_dtypes.finfo(dtype).eps) / 2.0
    assert ROUNDING[dtype] == UNIT_ROUNDOFF[dtype] / (2.0 if dtype == "bfloat16" else 1.0)


@given(st.sampled_from([*ROUNDING, "int64", ""]), st.sampled_from([*ROUNDING, "bool"]))
def test_roundoffs_are_those_of_the_dtypes(golden: str, target: str) -> None:
    assert DEFAULTS.roundoff(golden, target) == coarsest_roundoff(golden, target)


def test_the_factor_says_what_a_node_makes_itself() -> None:
    given = Call("Functional.silu.0.forward", inputs=[0.0], outputs=[20 * U32])
    made = make(given, Call(LINEAR, inputs=[20 * U32], outputs=[100 * U32]))
    assert judged(made).origins == [LINEAR]
    assert judged(made, factor=8.0).origins == []


def test_the_floor_says_what_a_node_may_gather() -> None:
    made = faulty(40 * U32)
    assert judged(made).origins == [LINEAR]
    assert judged(made, floor=64.0).origins == []
    assert judged(faulty(20 * U32)).origins == []
    assert judged(faulty(20 * U32), floor=16.0).origins == [LINEAR]


def test_a_coarser_roundoff_of_a_dtype_excuses_what_runs_in_that_format_make() -> None:
    made = faulty(1e-3)
    assert judged(made).origins == [LINEAR]
    assert judged(made, roundoff_float32=2.0**-11).origins == []
    assert judged(made, roundoff_bfloat16=2.0**-4).origins == [LINEAR]
    assert judged(made, roundoff_float32=2.0**-11).said.roundoff == 2.0**-11


def test_parameters_differ_by_more_than_their_floor() -> None:
    made = make(BEFORE, Call(LINEAR, inputs=[0.0], parameters={"weight": 10 * U32}, outputs=[0.2]))
    assert judged(made).of(LINEAR).node_class is NodeClass.WEIGHTS_DIFFER
    assert judged(made, parameter_floor=100.0).of(LINEAR).node_class is NodeClass.SOURCE


def test_msit_goes_by_its_cosine() -> None:
    made = faulty(0.1)  # a cosine of about 0.995
    assert judged(made, "msit").said.counts.error == 1
    assert judged(made, "msit", msit_cosine=0.99).said.counts.error == 0
    ((reason,),) = [
        pair.reasons for pair in judged(made, "msit", msit_cosine=0.9999).said.pairs if pair.reasons
    ]
    assert gaps_of(reason, "tool.cosine")["limit"] == 0.9999


def test_msprobe_goes_by_the_share_within_a_thousandth_and_by_the_cosine() -> None:
    made = faulty(0.5)
    assert judged(made, "msprobe").said.counts.error == 1
    assert judged(made, "msprobe", msprobe_share_out=0.0).said.counts.error == 0
    dropped = judged(made, "msprobe", msprobe_share_out=0.0, msprobe_cosine_drop=0.05).said
    assert (dropped.counts.warning, dropped.counts.error) == (1, 0)


def drifting(token: int, error: float, **moved: float) -> SliceJudgement:
    logits = Call("Module.lm_head.Linear.forward.0", outputs=[error])
    return judged(make(logits, coordinates=Coordinates(token=token)), **moved).said


def test_tokens_are_held_against_those_before_by_the_thresholds_of_their_slice() -> None:
    def bad_token(**moved: float) -> int | None:
        errors = (1e-5, 1e-5, 4e-5, 4e-5)
        found = conclude([drifting(token, error, **moved) for token, error in enumerate(errors)])
        return found.first_bad_token.coordinates.token if found.first_bad_token else None

    assert bad_token() == 2
    assert bad_token(token_ratio=5.0) is None
    assert bad_token(token_lasting=5.0, token_sudden=100.0) is None
    assert bad_token(drift_least=1e-6, drift_roundoffs=1.0) == 0


def healthy(error: float) -> Noise:
    said = judged(faulty(error))
    return noise_of(said.made.rows, said.said.rows)


def test_a_healthy_run_excuses_what_it_shows_itself_up_to_a_factor() -> None:
    made = faulty(1e-3)
    assert judged(made).origins == [LINEAR]
    assert judged(made, noise=healthy(6e-4)).origins == []
    assert judged(made, noise=healthy(6e-4)).said.counts.error == 0
    assert judged(made, noise=healthy(6e-4), excess=1.5).origins == [LINEAR]
    assert judged(made, noise=healthy(1e-5)).origins == [LINEAR]


def test_a_healthy_run_says_nothing_of_nodes_it_does_not_have() -> None:
    assert judged(faulty(1e-3), noise=Noise({"other": 1.0}, {"other": 1.0})).origins == [LINEAR]


def test_a_healthy_run_excuses_its_own_logits() -> None:
    made = make(Call("Module.lm_head.Linear.forward.0", outputs=[0.01]), coordinates=Coordinates(token=0))
    plain = judged(made)
    known = noise_of(made.rows, plain.said.rows)
    assert conclude([plain.said]).first_bad_token is not None
    excused = judge_after([], made.plan, made.rows, made.measurements, noise=known)
    assert conclude([excused]).first_bad_token is None
    assert excused.noise == pytest.approx(0.01, rel=0.01)


@given(st.sampled_from(sorted(ABOUT)), st.floats(0, 1e7))
def test_words_and_text_give_back_what_was_moved(name: str, value: float) -> None:
    if ABOUT[name].refuses(value):
        with pytest.raises(SettingsError, match=name):
            thresholds_of_words([f"{name}={value!r}"])
        return
    moved = thresholds_of_words([f"{name}={value!r}"])
    assert getattr(moved, name) == value
    assert moved.moved() == ({} if value == getattr(DEFAULTS, name) else {name: value})
    assert from_text(Thresholds, to_text(moved)) == moved


def test_what_is_not_moved_is_not_written_down() -> None:
    assert to_text(DEFAULTS) == "{}"
    assert to_text(Thresholds(factor=4.0)) == '{"factor":4.0}'


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"facto": "4"}, "thresholds.unknown"),
        ({"factor": "four"}, "thresholds.refused"),
        ({"factor": "nan"}, "thresholds.refused"),
        ({"factor": math.inf}, "thresholds.refused"),
        ({"msit_cosine": "2"}, "thresholds.refused"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, str | float], said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        thresholds_from(given)
    assert caught.value.message.id == said


def test_a_word_without_a_value_is_refused() -> None:
    with pytest.raises(SettingsError, match=like("thresholds.no_word")):
        thresholds_of_words(["factor"])
