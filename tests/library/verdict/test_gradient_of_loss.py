"""What a loss that was not recorded rounds the gradient of the logits by."""

import numpy as np
import pytest
from library.verdict.made_slices import Call, judge, values_of, with_error

FORWARD, BACKWARD = "Module.lm_head.Linear.forward.0", "Module.lm_head.Linear.backward.0"
OTHER = "Module.layer.Linear.backward.0"


@pytest.mark.parametrize(
    ("size", "name", "is_named"),
    [
        pytest.param(1e-6, BACKWARD, False, id="sure-of-each-class-it-cancels-out"),
        pytest.param(1e-2, BACKWARD, True, id="unsure-it-does-not"),
        pytest.param(1e-6, OTHER, True, id="of-what-gives-no-logits"),
    ],
)
def test_the_gradient_of_logits_is_off_by_what_softmax_is_rounded_by(
    size: float, name: str, *, is_named: bool
) -> None:
    golden = size * values_of("gradient")
    off = (golden, with_error(golden, 0.5, "off"))
    half = values_of("half", dtype="float16"), values_of("half", dtype="float16")
    judged = judge(
        Call(FORWARD, inputs=[half], outputs=[half]),
        Call(OTHER.replace("backward", "forward"), inputs=[half], outputs=[half]),
        Call(
            "Module.before.SiLU.forward.0", inputs=[half], outputs=[(half[0], with_error(half[1], 1e-4, "x"))]
        ),
        Call(name, inputs=[off], outputs=[off]),
    )
    assert judged.origins == ([name] if is_named else [])
    assert np.isfinite(judged.of(name).output_error or 0.0)
