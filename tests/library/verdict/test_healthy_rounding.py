"""Healthy runs in which something differs more than float32 rounds: formats, ties, sums that cancel out."""

import ml_dtypes
import numpy as np
from library.verdict.made_slices import Call, make, values_of, with_error

TIE = (np.array([[0, 1], [2, 3]] * 8), np.array([[0, 1], [2, 1]] * 8))


def rounded(seed: str, error: float = 0.0) -> np.ndarray:
    return with_error(values_of(seed), error, seed).astype(ml_dtypes.bfloat16).astype(np.float32)


def stored(seed: str, error: float) -> tuple[np.ndarray, np.ndarray]:
    """Golden in float32, target computed in bfloat16 and stored as float32."""
    return values_of(seed), rounded(seed, error)


def test_a_bfloat16_run_that_was_stored_as_float32_is_healthy() -> None:
    healthy = make(
        Call("embed", outputs=[stored("a", 0.0)]),
        Call("layers.0", outputs=[stored("b", 0.004)]),
        Call("layers.1", outputs=[stored("c", 0.006)]),
    )
    assert healthy.judge().origins == []
    faulty = make(
        Call("embed", outputs=[stored("a", 0.0)]),
        Call("layers.0", outputs=[stored("b", 0.004)]),
        Call("layers.1", outputs=[stored("c", 0.5)]),
    )
    assert faulty.judge().origins == ["layers.1"]


def experts(chosen: object, inner: float) -> list[Call]:
    around, block = "Module.layers.0.mlp.Moe.forward.0", "Module.layers.0.mlp.experts.Experts.forward.0"
    top = "Module.layers.0.Layer.forward.0"
    return [
        Call("Module.layers.0.norm.Norm.forward.0", parent=top, inputs=[1e-6], outputs=[2e-6]),
        Call("Functional.silu.0.forward", parent=block, inputs=[inner], outputs=[inner]),
        Call(block, parent=around, inputs=[2e-6, chosen], outputs=[0.01]),
        Call(around, parent=top, inputs=[2e-6], outputs=[0.01]),
        Call(top, inputs=[1e-6], outputs=[0.01]),
    ]


def test_experts_that_a_tie_chose_otherwise_are_no_source() -> None:
    assert make(*experts(TIE, 0.7)).judge().origins == []


def test_without_another_choice_what_enters_the_experts_is_a_source() -> None:
    assert make(*experts((TIE[0], TIE[0]), 0.7)).judge().origins == [
        "Module.layers.0.mlp.experts.Experts.forward.0"
    ]


def test_the_gradient_of_a_bias_that_cancels_out_is_explained_by_what_it_sums() -> None:
    given = values_of("g", (64, 32))
    total = 1e-7 * values_of("t", (1, 32))[0]
    backward = make(
        Call("Functional.linear.0.forward", inputs=[0.0], outputs=[1e-7]),
        Call(
            "Functional.conv2d.0.backward",
            inputs=[(given, with_error(given, 1e-7, "n"))],
            outputs=[1e-7, 1e-7, (total, 2 * total)],
        ),
    )
    assert backward.judge().origins == []
