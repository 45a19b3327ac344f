"""A batch norm that goes by statistics it was given, whatever those of the batch are."""

from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest
import torch
from library.verdict.made_slices import Array, Call, Judged, judge
from torch.nn import functional

FORWARD, BACKWARD = "Functional.batch_norm.0.forward", "Functional.batch_norm.0.backward"
NOTHING = (None, None)
ALIKE, FAR, NARROW, WIDE = (0.5, 1.0), (-40.0, 1.0), (0.5, 1e-3), (0.5, 1e4)
"""The means that are given, less those of the batch, and variances; those of the batch are about one."""


class Run(NamedTuple):
    """What went in and came out, in order, of the forward and of the backward operator."""

    given: list[Array]
    made: Array
    gradient: Array
    gradients: list[Array]


def run(mean: float, variance: float, dtype: torch.dtype) -> Run:
    torch.manual_seed(5)
    x, gradient = torch.randn(4, 8, 6, 6, dtype=torch.float64) + 0.5, torch.randn(4, 8, 6, 6)
    own = [x, mean + 0.1 * torch.randn(8), variance * (1.0 + torch.rand(8)), 1.0 + 0.2 * torch.randn(8)]
    given = [one.to(dtype) for one in (*own, torch.randn(8))]
    leaves = [one.clone().requires_grad_(at in {0, 3, 4}) for at, one in enumerate(given)]
    made = functional.batch_norm(*leaves)
    made.backward(gradient.to(dtype))
    gradients = [one.grad for one in leaves if one.grad is not None]
    return Run([*map(array, given)], array(made), array(gradient.to(dtype)), [*map(array, gradients)])


def array(tensor: torch.Tensor) -> Array:
    values = tensor.detach().float().numpy()
    return values.astype(ml_dtypes.bfloat16) if tensor.dtype == torch.bfloat16 else values


def judged(
    mean: float, variance: float, dtype: torch.dtype, *, scale: float = 1.0, training: bool = False
) -> Judged:
    """Judge a run in float32 against one in another dtype, of which what was made is scaled."""
    golden, target = run(mean, variance, torch.float32), run(mean, variance, dtype)
    given = [*zip(golden.given, target.given, strict=True)]
    made, *weights = [
        (one, (other * np.float64(scale)).astype(other.dtype))
        for one, other in zip(golden.gradients, target.gradients, strict=True)
    ]
    output = (golden.made, (target.made * np.float64(scale)).astype(target.made.dtype))
    before = Call("Functional.silu.0.forward", inputs=[given[0]], outputs=[given[0]])
    after = Call("Functional.silu.0.backward", inputs=[0.0], outputs=[(golden.gradient, target.gradient)])
    switch = (training, training)
    forward = Call(FORWARD, inputs=[*given, switch, (0.1, 0.1), (1e-5, 1e-5)], outputs=[output])
    backward = Call(
        BACKWARD, inputs=[(golden.gradient, target.gradient)], outputs=[made, NOTHING, NOTHING, *weights]
    )
    return judge(before, forward, after, backward)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("statistics", [ALIKE, FAR, NARROW, WIDE])
def test_what_it_rounds_is_explained_and_a_scale_is_not(
    statistics: tuple[float, float], dtype: torch.dtype
) -> None:
    assert judged(*statistics, dtype).origins == []
    assert judged(*statistics, dtype, scale=1.1).origins == [FORWARD, BACKWARD]
