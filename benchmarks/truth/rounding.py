"""Weights that are others throughout: what each is rounded to."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


def change_weights(model: nn.Module, other: Callable[[Tensor], Tensor]) -> None:
    """Put another weight in the place of each; vectors stay, of which many are ones."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.copy_(other(parameter))


def to_bfloat16(weight: Tensor) -> Tensor:
    """Round to bfloat16."""
    return weight.bfloat16().float()


def to_int8(weight: Tensor) -> Tensor:
    """Round to 8 bits, row by row."""
    unit = weight.flatten(1).abs().amax(1).clamp_min(1e-12) / 127
    unit = unit.view(-1, *[1] * (weight.dim() - 1))
    return (weight / unit).round() * unit
