"""Does a line explain the difference: target = scale * golden + offset?

Of a factor alone, a shift alone and both, the simplest is taken that leaves hardly more than both would.
"""

from math import copysign, inf, sqrt

import numpy as np

from firstdrift.metrics.closeup.hint import A_SIGN, Hint, HintKind, line_says
from firstdrift.metrics.closeup.sample import Sample
from firstdrift.metrics.dtypes import Floats
from firstdrift.wording.message import Message

EXPLAINS = 0.3
"""A cause is named only if it leaves at most so much of the error: a tenth of its square."""

_AS_GOOD = 1.5

_OFF = 2.0**-12
"""A single number, made of rounded ones, is a whole multiple of another if it is off by so much of it."""

_BY_CHANCE = 0.01
"""No multiple is so large that one number in more than a hundred would be off by no more."""


def scaled(sample: Sample) -> Hint | None:
    """Say by which line target follows from golden, if that explains the difference."""
    x, y = sample.finite_pairs
    norm = _norm(x)
    if not norm or x.size <= 2:  # noqa: PLR2004 (any two points lie on a line)
        return None
    before = _norm(y - x) / norm
    scale = float(x @ y) / norm**2
    offset = float((y - x).mean())
    line = _line_through(x, y)
    models = (
        (scale, 0.0, _norm(y - scale * x) / norm),
        (1.0, offset, _norm(y - x - offset) / norm),
        line,
    )
    limit = max(_AS_GOOD * line[2], np.finfo(float).eps)
    factor, shift, after = next((model for model in models if model[2] <= limit), line)
    if not after <= EXPLAINS * before:
        return None
    kind = HintKind.SIGN if factor < 0 else HintKind.SCALED
    return Hint(kind, Message.of("hint.line", line=line_says(factor, shift)), before, after)


def whole_multiple(sample: Sample) -> Hint | None:
    """Say by which whole number a single one was multiplied, or divided, as a sum in place of a mean is."""
    x, y = sample.finite_pairs
    if x.size != 1 or not (x[0] and y[0]):
        return None
    ratio = float(y[0] / x[0])
    larger = max(abs(ratio), 1.0 / abs(ratio))
    times, off = round(larger), _OFF * larger
    if times <= 1 or abs(larger - times) > off or off > _BY_CHANCE / 2:
        return None
    factor = copysign(times if abs(ratio) > 1.0 else 1.0 / times, ratio)
    says = Message.of("hint.line", line=line_says(factor))
    return Hint(HintKind.SCALED, says, abs(ratio - 1.0), abs(ratio - factor))


def _line_through(x: Floats, y: Floats) -> tuple[float, float, float]:
    """Return scale and offset of the line that fits best (least squares), and the relative error it leaves.

    The scale is 1 where golden is constant, so that a shift is an offset.
    """
    mean_x, mean_y = float(x.mean()), float(y.mean())
    centred = x - mean_x
    spread = float(centred @ centred)
    scale = float(centred @ (y - mean_y)) / spread if spread else 1.0
    offset = mean_y - scale * mean_x
    return scale, offset, float(np.linalg.norm(y - (scale * x + offset))) / float(np.linalg.norm(x))


def sign_flipped(sample: Sample) -> Hint | None:
    """Say how many elements have the sign of the other side, if that explains the difference."""
    x, y = sample.finite_pairs
    norm, before = _norm(x), _norm(y - x)
    flipped = np.abs(y + x) < A_SIGN * np.abs(x)
    left = _norm(np.where(flipped, y + x, y - x))
    if not norm or not flipped.any() or not left <= EXPLAINS * before:
        return None
    share = 100 * float(flipped.mean())
    says = Message.of("hint.other_sign", share=share)
    return Hint(HintKind.SIGN, says, before / norm, left / norm)


def _norm(values: Floats) -> float:
    with np.errstate(all="ignore"):
        found = float(np.linalg.norm(values))
    return found if found < inf else sqrt(np.finfo(float).max)
