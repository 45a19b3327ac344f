"""How far two runs are apart, in their values and in their statistics."""

from typing import Any

import torch
from planting import floats
from torch import Tensor


def effect_of(clean: list[Any], planted: list[Any]) -> tuple[float, float]:
    """Return how far results are apart, and how far their statistics are, both relative."""
    apart, told = 0.0, 0.0
    if len(clean) != len(planted):
        return float("inf"), float("inf")
    for first, second in zip(floats(clean), floats(planted), strict=False):
        if first.shape != second.shape:
            return float("inf"), float("inf")
        known = torch.isfinite(first)  # a mask is infinite where nothing is seen
        one, other = first[known].double(), second[known].double()
        if not torch.isfinite(other).all():
            return float("inf"), float("inf")
        apart = max(apart, float((other - one).norm() / one.norm().clamp_min(1e-30)))
        told = max(told, *_told(one, other))
    return apart, told


def _told(first: Tensor, second: Tensor) -> list[float]:
    if not first.numel():
        return [0.0]
    size = float(first.abs().max().clamp_min(1e-30))
    norms = float((second.norm() - first.norm()).abs() / first.norm().clamp_min(1e-30))
    return [
        norms,
        *(float((ask(second) - ask(first)).abs()) / size for ask in (torch.max, torch.min, torch.mean)),
    ]
