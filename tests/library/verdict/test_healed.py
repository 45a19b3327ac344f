"""What heals an error gives what agrees: that is worth a warning, and no error of its own."""

import pytest
from library.verdict.made_slices import Call, judge

from firstdrift.verdict.judgement import NodeClass, Verdict

FAULT = Call("Functional.linear.0.forward", inputs=[0.0, 0.0], outputs=[0.5])


@pytest.mark.parametrize(
    ("given", "gave", "node_class", "verdict"),
    [
        pytest.param(0.5, 1e-7, NodeClass.HEALED, Verdict.WARNING, id="healed"),
        pytest.param(0.5, 0.5, NodeClass.PROPAGATED, Verdict.ERROR, id="passed-on"),
        pytest.param(0.0, 1e-7, NodeClass.CLEAN, Verdict.PASS, id="never-ill"),
    ],
)
def test_a_node_that_healed_is_a_warning(
    given: float, gave: float, node_class: NodeClass, verdict: Verdict
) -> None:
    last = Call("Functional.silu.0.forward", inputs=[given], outputs=[gave])
    said = judge(FAULT, last).of(last.name)
    assert (said.node_class, said.verdict) == (node_class, verdict)
