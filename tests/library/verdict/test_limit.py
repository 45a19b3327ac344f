"""The limit that is drawn is the one that decided."""

import pytest
from library.verdict.made_slices import Call, judge
from msgspec.structs import replace

from firstdrift.model.slice import Coordinates
from firstdrift.model.tensor import ROUNDING
from firstdrift.verdict.judgement import Counts, Finding, SliceJudgement, Verdict
from firstdrift.verdict.limit import limit_of_nodes, limit_of_outputs, limit_of_row
from firstdrift.verdict.movable_thresholds import DEFAULTS, Thresholds

ROUNDOFF = ROUNDING["bfloat16"]
JUDGED = SliceJudgement(Coordinates(token=0), (), (), Counts(), None, ROUNDOFF)


def test_without_a_fault_the_limit_is_the_floor_above_rounding() -> None:
    assert limit_of_nodes([JUDGED]) == DEFAULTS.floor * ROUNDOFF
    moved = replace(JUDGED, limits=Thresholds(floor=4.0))
    assert limit_of_nodes([moved]) == 4 * ROUNDOFF


def test_of_a_last_output_the_limit_is_what_a_whole_network_makes_of_rounding() -> None:
    for where in (Coordinates(step=0), Coordinates(token=3)):
        drawn = limit_of_outputs("relative_l2", [replace(JUDGED, coordinates=where)])
        assert drawn is not None
        assert drawn.value == DEFAULTS.drift(ROUNDOFF)


def test_of_a_token_that_stands_out_the_limit_comes_from_the_tokens_before() -> None:
    judged = [
        replace(JUDGED, coordinates=Coordinates(token=token), logits_error=error)
        for token, error in enumerate((0.06, 0.08, 0.4))
    ]
    found = Finding(
        Coordinates(token=2), "lm_head", "lm_head", None, "output.0", None, Verdict.ERROR, (), {}, 0
    )
    drawn = limit_of_outputs("relative_l2", judged, found)
    assert drawn is not None
    assert drawn.value == pytest.approx(DEFAULTS.token_ratio * 0.08)


@pytest.mark.parametrize(
    ("rules", "metric", "value"),
    [
        ("msit", "cosine_similarity", DEFAULTS.msit_cosine),
        ("msit", "kl_divergence", DEFAULTS.msit_kl_bfloat16),
        ("msit", "relative_l2", None),
        ("msprobe", "relative_norm", DEFAULTS.msprobe_norm_out),
        ("msprobe", "relative_l2", None),
        ("msprobe", "cosine_similarity", None),
        ("bitwise", "relative_l2", None),
        ("firstdrift", "cosine_similarity", None),
        ("firstdrift", "kl_divergence", None),
    ],
)
def test_under_the_rules_of_a_tool_the_limit_is_that_tools(
    rules: str, metric: str, value: float | None
) -> None:
    drawn = limit_of_outputs(metric, [replace(JUDGED, rules=rules)])
    assert (drawn and drawn.value) == value
    if rules != "firstdrift":
        assert limit_of_nodes([replace(JUDGED, rules=rules)]) is None


def test_without_slices_there_is_no_limit() -> None:
    assert limit_of_nodes([]) is None
    assert limit_of_outputs("relative_l2", []) is None


def test_a_node_that_its_inputs_excuse_has_a_limit_of_its_own() -> None:
    before = Call("Functional.silu.0.forward", inputs=[0.0], outputs=[0.0])
    first = Call("Module.one.One.forward.0", inputs=[0.0], outputs=[1e-6])
    names = [f"Functional.relu.{at}.forward" for at in (1, 2)]
    later = [Call(name, inputs=[1e-6 * 2**at], outputs=[2e-6 * 2**at]) for at, name in enumerate(names, 1)]
    judged = judge(before, first, *later)
    assert not judged.origins
    assert judged.of(first.name).excused_up_to is None, "rounding alone allows that much"
    limit = limit_of_nodes([judged.said])
    assert limit is not None
    for call in later:
        said = judged.of(call.name)
        if (said.output_error or 0.0) > limit:
            own = limit_of_row(limit, said.output_error, said.excused_up_to)
            assert own is not None
            assert said.output_error is not None
            assert limit < said.output_error <= own
    assert any((judged.of(call.name).output_error or 0.0) > limit for call in later)


def test_what_excuses_an_error_is_the_limit_only_of_what_exceeds_that_of_its_slice() -> None:
    assert limit_of_row(1e-3, 5e-2, 0.2) == 0.2
    assert limit_of_row(1e-3, 5e-4, 0.2) == 1e-3
    assert limit_of_row(1e-3, 5e-2, None) == 1e-3
    assert limit_of_row(None, 5e-2, 0.2) is None
