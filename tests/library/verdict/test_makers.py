"""Where no module tells, an input that nothing explains is named at the operator that made it in golden."""

import numpy as np
import pytest
from library.verdict.made_slices import Array, Call, Judged, make, values_of, with_digests, with_error


def judge(*calls: Call) -> Judged:
    return with_digests(make(*calls), calls).judge()


MADE = values_of("made")
OFF = with_error(MADE, 0.3, "fault")
AGREES = "Functional.silu.0.forward"
MAKER, TAKER = "Functional.relu.0.forward", "Functional.linear.0.forward"


def taken(made: tuple[Array, Array], *others: Call) -> Judged:
    """Judge an operator whose output agrees, and one that is given the same values, which are off there."""
    return judge(
        Call(AGREES, inputs=[0.0], outputs=[0.0]),
        Call(MAKER, inputs=[0.0], outputs=[made]),
        *others,
        Call(TAKER, inputs=[(MADE, OFF)], outputs=[0.3]),
    )


def test_the_one_that_gave_the_value_is_named() -> None:
    judged = taken((MADE, MADE))
    assert judged.origins == [MAKER]
    assert judged.of(MAKER).rule == "class.entered"


def test_of_several_that_gave_the_value_none_is_named() -> None:
    other = Call("Functional.gelu.0.forward", inputs=[0.0], outputs=[(MADE, MADE)])
    assert taken((MADE, MADE), other).origins == [TAKER]


def test_where_none_gave_the_value_it_is_the_operator_itself() -> None:
    other = values_of("another")
    assert taken((other, other)).origins == [TAKER]


@pytest.mark.parametrize("rounding", [0.0, 1e-7])
def test_in_the_backward_pass_it_is_the_backward_of_what_took_the_value(rounding: float) -> None:
    """Rounding of large gradients before, which may cancel out, explains it; equal ones were not rounded."""
    large = np.float32(1000.0) * values_of("gradient")
    judged = judge(
        Call(MAKER, inputs=[0.0], outputs=[(MADE, MADE)]),
        Call(TAKER, inputs=[(MADE, MADE)], outputs=[0.0]),
        Call(f"{TAKER[:-7]}backward", inputs=[0.0], outputs=[(large, with_error(large, rounding, "noise"))]),
        Call(f"{MAKER[:-7]}backward", inputs=[4e-5], outputs=[4e-5]),
    )
    assert judged.origins == ([] if rounding else [f"{TAKER[:-7]}backward"])


@pytest.mark.parametrize(("others", "named"), [(OFF, MAKER), (MADE, TAKER)])
def test_what_others_were_given_intact_its_maker_made_right(others: Array, named: str) -> None:
    judged = judge(
        Call(AGREES, inputs=[0.0], outputs=[0.0]),
        Call(MAKER, inputs=[0.0], outputs=[(MADE, MADE)]),
        Call(TAKER, inputs=[(MADE, OFF)], outputs=[0.3]),
        Call("Torch.mul.0.forward", inputs=[(MADE, others)], outputs=[0.3 if others is OFF else 0.0]),
    )
    assert judged.origins[0] == named


def test_a_gradient_of_several_takers_is_said_to_be_the_sum_of_what_they_give_back() -> None:
    takers = ["Functional.linear.0", "Functional.linear.1"]
    judged = judge(
        Call(MAKER, inputs=[0.0], outputs=[(MADE, MADE)]),
        *(Call(f"{name}.forward", inputs=[(MADE, MADE)], outputs=[0.0]) for name in takers),
        *(Call(f"{name}.backward", inputs=[0.0]) for name in reversed(takers)),
        Call(f"{MAKER[:-7]}backward", inputs=[0.3], outputs=[0.3]),
    )
    assert judged.origins == [f"{MAKER[:-7]}backward"]
    (reason,) = judged.first.reasons
    assert (reason.id, sorted(reason.arguments["nodes"])) == ("reason.entered_sum", takers)
    assert judged.first.tensor == "input.0"


def test_what_is_given_an_input_of_another_shape_after_a_fault_is_no_second_origin() -> None:
    shapes = values_of("a", (4, 8)), values_of("a", (4, 9))
    after = Call("Torch.histc.0.forward", inputs=[shapes], outputs=[0.5])
    judged = judge(Call(AGREES, inputs=[0.0], outputs=[0.4]), after)
    assert judged.origins == [AGREES]
    assert [one.id for one in judged.of(after.name).reasons] == ["reason.other_input_shape"]
    assert judge(Call(AGREES, inputs=[0.0], outputs=[0.0]), after).origins == [after.name]
