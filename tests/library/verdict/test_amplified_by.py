"""How many times larger a node makes an error: given where something came in that can grow."""

import math

import pytest
from library.verdict.made_slices import Call, judge

from firstdrift.verdict.amplified_by import amplified_by

U32 = 2.0**-24
LINEAR = "Functional.linear.0.forward"
BEFORE = Call("Functional.silu.0.forward", inputs=[0.0], outputs=[0.0])


@pytest.mark.parametrize(
    ("given", "gave", "said"),
    [
        (0.01, 0.03, 3.0),
        (0.01, 0.0, 0.0),
        (0.0, 0.03, None),
        (U32 / 2, 0.03, None),
        (None, 0.03, None),
        (0.01, None, None),
        (math.inf, 0.03, None),
        (0.01, math.inf, math.inf),
    ],
)
def test_a_factor_is_given_where_the_input_error_is_above_rounding(
    given: float | None, gave: float | None, said: float | None
) -> None:
    assert amplified_by(given, gave, U32) == pytest.approx(said)


def test_a_finding_says_the_factor_of_the_two_errors_that_it_shows() -> None:
    equal = judge(BEFORE, Call(LINEAR, inputs=[0.0], outputs=[0.3])).first
    assert (equal.amplification, equal.amplified_by) == (math.inf, None)
    grown = judge(BEFORE, Call(LINEAR, inputs=[1e-6], outputs=[0.3])).first
    assert grown.amplified_by == grown.amplification
