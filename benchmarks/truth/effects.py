"""How far two runs are apart, in their values and in their statistics."""

from typing import Any

import torch
from planting import first_float
from torch import Tensor


def effect_of(clean: list[Any], planted: list[Any]) -> tuple[float, float]:
    """Return how far results are apart, and how far their statistics are, both relative."""
    apart, told = 0.0, 0.0
    if len(clean) != len(planted):
        return float("inf"), float("inf")
    for one, other in zip(clean, planted, strict=True):
        first, second = first_float(one), first_float(other)
        if first is None or second is None:
            continue
        if first.shape != second.shape or not torch.isfinite(second).all():
            return float("inf"), float("inf")
        first, second = first.double(), second.double()
        apart = max(apart, float((second - first).norm() / first.norm().clamp_min(1e-30)))
        told = max(told, *_told(first, second))
    return apart, told


def _told(first: Tensor, second: Tensor) -> list[float]:
    size = float(first.abs().max().clamp_min(1e-30))
    norms = float((second.norm() - first.norm()).abs() / first.norm().clamp_min(1e-30))
    return [
        norms,
        *(float((ask(second) - ask(first)).abs()) / size for ask in (torch.max, torch.min, torch.mean)),
    ]
