"""Other experts that a tie chose excuse what they are given, and not their weights."""

import numpy as np
import pytest
from library.verdict.made_slices import Call, MadePair, make, values_of
from messages import outlines

SCORES = np.array([[3, 2.000001, 2, 0]], np.float32), np.array([[3, 2, 2.000001, 0]], np.float32)
ROW = values_of("row", (1, 32))


def block(weight: float, given: float) -> MadePair:
    top, around = "Module.layers.0.Layer.forward.0", "Module.layers.0.mlp.Moe.forward.0"
    experts = [
        Call(
            f"Module.layers.0.mlp.experts.{number}.Linear.forward.0",
            parent=around,
            inputs=[(ROW, ROW * (1 + given))],
            outputs=[(ROW, ROW * (1 + given) * (1 + weight))],
            parameters={"weight": weight},
        )
        for number in (0, 1)
    ]
    return make(
        Call("Module.layers.0.norm.Norm.forward.0", parent=top, inputs=[1e-7], outputs=[2e-7]),
        Call("Module.layers.0.mlp.gate.Linear.forward.0", parent=around, inputs=[1e-6], outputs=[SCORES]),
        *experts,
        Call(around, parent=top, inputs=[1e-6], outputs=[(ROW, ROW * (1 + given))]),
        Call(top, inputs=[1e-7], outputs=[(ROW, ROW * (1 + given))]),
    )


def test_what_a_tie_gives_to_other_experts_is_no_error() -> None:
    assert block(weight=0.0, given=0.5).judge().origins == []


def test_a_weight_that_differs_is_no_tie() -> None:
    assert block(weight=0.5, given=0.0).judge().origins == [
        "Module.layers.0.mlp.experts.0.Linear.forward.0",
        "Module.layers.0.mlp.experts.1.Linear.forward.0",
    ]


@pytest.mark.parametrize(("error", "is_found"), [(0.5, True), (1e-5, False)])
def test_what_other_experts_were_given_says_nothing_of_the_module_around_them(
    error: float, is_found: bool
) -> None:
    around, inner = "Module.layers.0.mlp.Moe.forward.0", "Module.layers.0.mlp.mix.MoeMix.forward.0"
    scores = [np.repeat(side, 4, axis=0) for side in SCORES]
    scores[1][1:] = scores[0][1:]  # one token of four goes elsewhere
    rows = values_of("rows", (2, 32))
    experts = [
        Call(
            f"Module.layers.0.mlp.mix.experts.{number}.Linear.forward.0",
            parent=inner,
            inputs=[(rows, rows * 1.5)],
            outputs=[(rows, rows * 1.5)],
        )
        for number in range(4)
    ]
    mixed = values_of("mixed", (4, 32))
    judged = make(
        Call("Functional.linear.0.forward", inputs=[1e-6], outputs=[1.5e-6]),
        Call("Functional.linear.1.forward", inputs=[1.5e-6], outputs=[4e-6]),
        Call("Functional.linear.2.forward", inputs=[4e-6], outputs=[1e-5]),
        Call(
            "Module.layers.0.mlp.gate.Linear.forward.0",
            parent=around,
            inputs=[1e-5],
            outputs=[(scores[0], scores[1])],
        ),
        *experts,
        Call(inner, parent=around, outputs=[(mixed, mixed * (1 + error))]),
        Call(around),
    ).judge()
    assert judged.origins == ([inner] if is_found else [])
    if is_found:
        assert outlines(judged.first.reasons) == ["first_to_differ number 0.5"]
