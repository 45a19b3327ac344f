"""How far apart two distributions over the vocabulary are, position by position.

With p = softmax(golden) and q = softmax(target), all in float64 after subtracting the maxima:

| metric      | formula                                                                             |
| ----------- | ----------------------------------------------------------------------------------- |
| kl          | sum p (log p - log q), nats; a logit of -inf has probability 0                      |
| margin      | largest minus second largest logit                                                  |
| local error | largest |d - mean d| over the tokens in either top 10 but the two top tokens        |
| tie flip    | the top tokens differ, and both margins are at most twice the local error           |

The two top tokens are left out of the local error because a flip would vouch for itself: with two
tokens exchanged, the error of these two is never less than half the sum of their margins.

| row of logits                          | counts as                                          |
| -------------------------------------- | -------------------------------------------------- |
| NaN or +inf on a side, or all -inf     | no distribution: KL infinite, probabilities NaN    |
| both sides the same, NaN for NaN       | KL 0                                               |
| equal logits                           | the one with the lower index is on top             |
| vocabulary of 1                        | margins infinite                                   |
"""

import math

import numpy as np
import numpy.typing as npt

from firstdrift.metrics.conversion import as_float64
from firstdrift.metrics.dtypes import Array, Floats, NumberKind, number_kind, require_one_shape
from firstdrift.metrics.measurement import LogitsErrors, LogitsPosition

Places = npt.NDArray[np.intp]

_TOP = 5
_NEIGHBOURS = 10
_GROUP = 128


def measure_logits(golden: Array, target: Array) -> LogitsErrors | None:
    """Summarise the positions of two logits tensors (..., vocabulary); None if there is no position.

    Raises:
        ValueError: the shapes differ.
    """
    positions = logits_positions(golden, target)
    if not positions:
        return None
    divergences = [position.kl_divergence for position in positions]
    agreeing = sum(position.golden_top == position.target_top for position in positions)
    return LogitsErrors(
        kl_divergence=math.fsum(divergences) / len(positions),
        worst_kl_divergence=max(divergences),
        top1_agreement=agreeing / len(positions),
        last=positions[-1],
        positions=len(positions),
    )


def logits_positions(golden: Array, target: Array) -> tuple[LogitsPosition, ...]:
    """Measure every position of two logits tensors (..., vocabulary), in row-major order.

    Raises:
        ValueError: the shapes differ.
    """
    require_one_shape(golden, target)
    if not golden.size:
        return ()
    vocabulary = golden.shape[-1] if golden.shape else 1
    work = np.empty((4, vocabulary))
    found = []
    with np.errstate(all="ignore"):
        rows = zip(golden.reshape(-1, vocabulary), target.reshape(-1, vocabulary), strict=True)
        for golden_row, target_row in rows:
            as_float64(golden_row, work[0])
            as_float64(target_row, work[1])
            found.append(_position(work))
    return tuple(found)


def _position(work: Floats) -> LogitsPosition:
    """Measure the logits in the first two rows; the other two are scratch space."""
    golden, target = work[:2]
    golden_best, target_best = _best(golden), _best(target)
    golden_top, target_top = int(golden_best[0]), int(target_best[0])
    golden_margin, target_margin = _margin(golden, golden_best), _margin(target, target_best)
    local_error = _local_error(golden, target, golden_best, target_best)
    divergence, top_probability, target_probability = _divergence(work, golden_top)
    within_reach = max(golden_margin, target_margin) <= 2.0 * local_error
    return LogitsPosition(
        kl_divergence=divergence,
        golden_top=golden_top,
        target_top=target_top,
        golden_margin=golden_margin,
        target_margin=target_margin,
        golden_top_probability=top_probability,
        target_probability_of_golden_top=target_probability,
        overlap_5=_overlap(golden_best[:_TOP], target_best[:_TOP]),
        local_error=local_error,
        tie_flip=golden_top != target_top and within_reach and math.isfinite(divergence),
    )


def _best(logits: Floats) -> Places:
    """Return the places of the largest logits, best first, the lower index first among equals.

    The largest ten of all lie in the ten groups with the largest maxima: only these are sorted.
    """
    if np.isnan(np.maximum.reduce(logits)):
        logits = np.where(np.isnan(logits), -np.inf, logits)
    starts = np.arange(0, logits.size, _GROUP)
    groups = np.sort(_descending(np.maximum.reduceat(logits, starts)))
    places = (starts[groups, np.newaxis] + np.arange(_GROUP)).reshape(-1)
    places = places[places < logits.size]
    return places[_descending(logits[places])]


def _descending(values: Floats) -> Places:
    return np.argsort(-values, kind="stable")[:_NEIGHBOURS]


def _margin(logits: Floats, best: Places) -> float:
    if len(best) == 1:
        return math.inf
    margin = float(logits[best[0]] - logits[best[1]])
    return 0.0 if math.isnan(margin) else margin


def _local_error(golden: Floats, target: Floats, golden_best: Places, target_best: Places) -> float:
    others = {*golden_best.tolist(), *target_best.tolist()} - {int(golden_best[0]), int(target_best[0])}
    near = np.array(sorted(others), np.intp)
    differences = target[near] - golden[near]
    differences = differences[np.isfinite(differences)]
    if not differences.size:
        return 0.0
    return float(np.abs(differences - differences.mean()).max())


def _divergence(work: Floats, top: int) -> tuple[float, float, float]:
    """Return the divergence and the probability of the golden top token on either side."""
    golden, target, golden_weights, target_weights = work
    golden_highest, target_highest = np.maximum.reduce(golden), np.maximum.reduce(target)
    if not (np.isfinite(golden_highest) and np.isfinite(target_highest)):
        same = np.array_equal(golden, target, equal_nan=True)
        return 0.0 if same else math.inf, math.nan, math.nan
    np.exp(np.subtract(golden, golden_highest, out=golden_weights), out=golden_weights)
    np.exp(np.subtract(target, target_highest, out=target_weights), out=target_weights)
    golden_total, target_total = np.add.reduce(golden_weights), np.add.reduce(target_weights)
    probabilities = float(golden_weights[top] / golden_total), float(target_weights[top] / target_total)
    differences = np.subtract(golden, target, out=target_weights)
    differences -= golden_highest - target_highest
    expected = golden_weights @ differences
    if np.isnan(expected):  # a probability of 0 on both sides
        expected = np.add.reduce(golden_weights * differences, where=golden_weights > 0.0)
    divergence = float(expected / golden_total + np.log(target_total / golden_total))
    return max(divergence, 0.0), *probabilities


def _overlap(golden: Places, target: Places) -> float:
    return len(set(golden.tolist()) & set(target.tolist())) / len(golden)


def flat_divergence(golden: Array, target: Array) -> float | None:
    """Return the KL divergence of two tensors as msit takes it: each is one distribution, whatever its shape.

    It is at least 0; None if a side is not finite, empty or not floating, or sizes differ.
    """
    kinds = {number_kind(golden.dtype), number_kind(target.dtype)}
    if kinds != {NumberKind.FLOATING} or golden.size != target.size or not golden.size:
        return None
    sides = [array.reshape(-1).astype(np.float64) for array in (golden, target)]
    if not all(np.isfinite(side).all() for side in sides):
        return None
    left, right = map(_log_softmax, sides)
    return max(math.fsum(np.exp(left) * (left - right)), 0.0)


def _log_softmax(values: Floats) -> Floats:
    shifted = values - values.max()
    logs: Floats = shifted - math.log(float(np.exp(shifted).sum()))
    return logs
