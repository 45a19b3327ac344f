"""What people of reinforcement learning look at: differences, ratios and estimates of the KL divergence.

With d = log p_trainer(token) - log p_rollout(token) of tokens that the rollout sampled, r = exp(d):

| name      | formula                | estimates                                                    |
| --------- | ---------------------- | ------------------------------------------------------------ |
| k1        | mean of -d             | KL(rollout || trainer), unbiased, may be negative            |
| k2        | mean of d^2 / 2        | the same, biased, never negative                             |
| k3        | mean of (r - 1) - d    | the same, unbiased, never negative                           |

from John Schulman, "Approximating KL Divergence", 2020 (joschu.net/blog/kl-approx.html), with q the rollout.

| rollout           | trainer           | counts as                                            |
| ----------------- | ----------------- | ---------------------------------------------------- |
| finite            | finite            | d                                                    |
| -inf              | -inf              | d = 0: neither side holds it possible                |
| nothing           | anything          | missing, and is not compared; likewise the other way |
| anything else with NaN or infinities  | not finite: counted, and in no mean                  |
"""

import math
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from firstdrift.rollout.sequences import Flags, Floats

_BY_SERIES = 1e-5


class Statistics(Struct, frozen=True, kw_only=True):
    """What was measured of some tokens; means are None where there is no finite difference.

    Attributes:
        tokens: how many were compared.
        not_finite: of them, those without a finite difference.
        mean: of d.
        mean_abs: of |d|.
        max_abs: largest |d|, infinite if one is not finite.
        deviation: standard deviation of d.
        k1: estimate of the KL divergence.
        k2: likewise.
        k3: likewise.
        mean_probability: mean |p_trainer - p_rollout|.
        max_probability: largest.
        correlation: Pearson's, of the probabilities; None where one side is constant.
        outside: tokens of which the ratio is outside the band.
        lowest_ratio: smallest r.
        highest_ratio: largest r.
    """

    tokens: int
    not_finite: int
    mean: float | None = None
    mean_abs: float | None = None
    max_abs: float | None = None
    deviation: float | None = None
    k1: float | None = None
    k2: float | None = None
    k3: float | None = None
    mean_probability: float | None = None
    max_probability: float | None = None
    correlation: float | None = None
    outside: int = 0
    lowest_ratio: float | None = None
    highest_ratio: float | None = None

    @property
    def outside_share(self) -> float:
        """Share of tokens outside the band."""
        return self.outside / self.tokens if self.tokens else 0.0


def differences(rollout: Floats, trainer: Floats) -> Floats:
    """Return d, by the table above: NaN where it is not finite."""
    with np.errstate(invalid="ignore"):
        found = np.where((rollout == -np.inf) & (trainer == -np.inf), 0.0, trainer - rollout)
    return np.where(np.isfinite(found), found, np.nan)


def measure(rollout: Floats, trainer: Floats, band: tuple[float, float]) -> Statistics:
    """Measure log-probabilities of the same tokens, none of which is missing."""
    every = differences(rollout, trainer)
    is_finite = np.isfinite(every)
    lost = int(len(every) - is_finite.sum())
    if lost == len(every):
        return Statistics(tokens=lost, not_finite=lost, outside=lost, max_abs=math.inf if lost else None)
    d, p, q = every[is_finite], np.exp(trainer[is_finite]), np.exp(rollout[is_finite])
    apart = np.abs(p - q)
    with np.errstate(over="ignore"):
        ratio = np.exp(d)
        k3 = third_estimate(d)
        return Statistics(
            tokens=len(every),
            not_finite=lost,
            mean=float(d.mean()),
            mean_abs=float(np.abs(d).mean()),
            max_abs=math.inf if lost else float(np.abs(d).max()),
            deviation=float(d.std()),
            k1=float(-d.mean()) + 0.0,
            k2=float((d * d).mean() / 2),
            k3=float(k3.mean()),
            mean_probability=float(apart.mean()),
            max_probability=float(apart.max()),
            correlation=_correlation(p, q),
            outside=lost + int(outside(d, band).sum()),
            lowest_ratio=float(ratio.min()),
            highest_ratio=float(ratio.max()),
        )


def third_estimate(d: Floats) -> Floats:
    """Return (exp(d) - 1) - d, without cancelling where d is small."""
    with np.errstate(over="ignore"):
        found: Floats = np.where(np.abs(d) < _BY_SERIES, d * d * (0.5 + d / 6), np.expm1(d) - d)
    return found


def outside(d: Floats, band: tuple[float, float]) -> Flags:
    """Tell where the ratio is outside the band; its edges are inside."""
    with np.errstate(over="ignore"):
        ratio = np.exp(d)
    found: Flags = (ratio < band[0]) | (ratio > band[1])
    return found


def _correlation(p: Floats, q: Floats) -> float | None:
    ours, theirs = p - p.mean(), q - q.mean()
    scale = math.sqrt(float((ours * ours).sum()) * float((theirs * theirs).sum()))
    return float((ours * theirs).sum()) / scale if scale > 0 else None


def as_object(found: Statistics) -> dict[str, Any]:
    """Return the numbers by name, with the share of tokens outside the band."""
    return asdict(found) | {"outside_share": found.outside_share}
