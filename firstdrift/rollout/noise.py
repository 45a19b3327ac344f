"""The noise of a pair of engines, and the token at which a difference leaves it.

Rounding moves logits. By how much a log-probability moves with them depends on the probability: that of a
token of 99.9 % hardly moves at all. The log-odds log p - log(1 - p) of a token are its logit against those of
all others, and move as logits do, whatever the probability. So noise is measured as the difference e of
log-odds, and has one scale for all tokens:

    scale of tokens     1.4826 times the median |e|, of 16 tokens or more that leave 1e-4 to others
    of a token          the larger one of the scale of the sequence's own earlier tokens, and of the tokens of
                        all sequences at that position (0-3, 4-7, 8-15, …)
    it leaves the noise |e| > max(24 scales, what rounding of the dtype explains) + 4 x 2^-19 / (1 - p)

The last term is the rounding of log-probabilities near 0 themselves. What is not finite has left the noise.
The scale of earlier tokens is that of the first 16, 32, 64, … of them, so that it needs no token behind it.
"""

import math
from collections.abc import Sequence

import numpy as np

from firstdrift.rollout.sequences import Flags, Floats, Integers
from firstdrift.rollout.thresholds import FEWEST, OUT, ROUNDED, ROUNDINGS, TELLING

_OF_MEDIAN = 1.4826
"""A standard deviation of normal noise, from its median."""

_FIRST_BITS = 2
"""Positions of so many bits are the first bin."""


def log_odds(log_probs: Floats) -> Floats:
    """Return log p - log(1 - p), with 1 - p no smaller than a log-probability is exact."""
    with np.errstate(invalid="ignore", over="ignore"):
        found: Floats = log_probs - np.log(_left_to_others(log_probs))
    return found


def moved(rollout: Floats, trainer: Floats) -> Floats:
    """Return e, the difference of log-odds; NaN where it is not finite, 0 where both sides are -inf."""
    with np.errstate(invalid="ignore"):
        found = log_odds(trainer) - log_odds(rollout)
    found = np.where((rollout == -np.inf) & (trainer == -np.inf), 0.0, found)
    return np.where(np.isfinite(found), found, np.nan)


def telling(rollout: Floats, trainer: Floats) -> Flags:
    """Tell which tokens leave enough probability to others to say something of the noise."""
    found: Flags = _least_left(rollout, trainer) >= TELLING
    return found


def scale_of(found: Floats, fewest: int = FEWEST) -> float | None:
    """Return the robust scale of differences of log-odds; None of too few."""
    known = found[np.isfinite(found)]
    return _OF_MEDIAN * float(np.median(np.abs(known))) if len(known) >= fewest else None


def bins_of(positions: Integers) -> Integers:
    """Return the bin of each position: 0-3, 4-7, 8-15 and so on."""
    _, exponents = np.frexp(positions.astype(np.float64))
    return np.maximum(exponents.astype(np.int64) - _FIRST_BITS, 0)


def edges_of(number: int) -> tuple[int, int]:
    """Return the first and the last position of a bin."""
    return (1 << (number + 1) if number else 0, (1 << (number + _FIRST_BITS)) - 1)


def scales_by_bin(bins: Integers, found: Floats, tells: Flags) -> list[float | None]:
    """Return the scale of all tokens in each bin."""
    most = int(bins.max()) + 1 if len(bins) else 0
    order = np.argsort(bins, kind="stable")
    cuts = np.searchsorted(bins[order], np.arange(1, most))
    return [scale_of(part[0][part[1]]) for part in _split(found[order], tells[order], cuts, most)]


def _split(found: Floats, tells: Flags, cuts: Integers, most: int) -> list[tuple[Floats, Flags]]:
    return list(zip(np.split(found, cuts), np.split(tells, cuts), strict=True)) if most else []


def out_of_noise(
    rollout: Floats, trainer: Floats, positions: Integers, scales: Sequence[float | None], explained: float
) -> Flags:
    """Tell which tokens of a sequence have left the noise.

    Args:
        rollout: log-probabilities of its tokens, none missing.
        trainer: likewise.
        positions: where they stand.
        scales: those of all sequences, by bin.
        explained: log-odds that rounding explains.
    """
    found = moved(rollout, trainer)
    earlier = _earlier_scales(found, telling(rollout, trainer))
    of_all = np.array([0.0 if scale is None else scale for scale in scales])[bins_of(positions)]
    bound = np.maximum(OUT * np.maximum(earlier, of_all), explained)
    with np.errstate(invalid="ignore"):
        bound = bound + ROUNDINGS * ROUNDED / _least_left(rollout, trainer)
        out: Flags = ~(np.abs(found) <= bound)
    return out


def _earlier_scales(found: Floats, tells: Flags) -> Floats:
    """Return for each token the scale of the first 16, 32, 64, … telling tokens before it; 0 of fewer."""
    scales = np.zeros(len(found))
    known = np.flatnonzero(tells & np.isfinite(found))
    count = FEWEST
    while count <= len(known):
        scales[known[count - 1] + 1 :] = scale_of(found[known[:count]]) or 0.0
        count *= 2
    return scales


def _left_to_others(log_probs: Floats) -> Floats:
    return np.maximum(-np.expm1(np.minimum(log_probs, 0.0)), ROUNDED)


def _least_left(rollout: Floats, trainer: Floats) -> Floats:
    return np.minimum(_left_to_others(rollout), _left_to_others(trainer))


def shift_of(rollout: Floats, trainer: Floats) -> tuple[int, float] | None:
    """Return by how many tokens (1 or -1) one side is shifted for the least difference, and that difference.

    1: what the trainer has for a token is what the rollout has for the token before.
    """
    if len(rollout) < 2:  # noqa: PLR2004
        return None
    tried = [(1, trainer[1:] - rollout[:-1]), (-1, trainer[:-1] - rollout[1:])]
    means = [(float(np.abs(d).mean()), by) for by, d in tried]
    least, by = min(means)
    return (by, least) if math.isfinite(least) else None
