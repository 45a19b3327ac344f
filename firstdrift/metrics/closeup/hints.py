"""What may have happened to a tensor: asked in an order in which the first answer is the plainest.

equal                       nothing
NaN, infinities, a constant said first, whatever else is found
rounding, element by element, and nothing else
a factor, a shift           ┐
values at other places      │  where the error is larger than rounding makes it;
one row, head, channel      │  the part of a tensor in which all of it lies is asked by itself
other signs, clipped values ┘
the size of a rounding      if none of them
"""

import numpy as np

from firstdrift.metrics.closeup.confined import confined, say_where
from firstdrift.metrics.closeup.hint import Hint, HintKind
from firstdrift.metrics.closeup.linear import scaled, sign_flipped
from firstdrift.metrics.closeup.moved import moved
from firstdrift.metrics.closeup.rounded import exactly_rounded, like_rounding
from firstdrift.metrics.closeup.sample import Sample
from firstdrift.metrics.dtypes import Array, Floats
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named

BEYOND_ROUNDING = 4.0
"""Unit roundoffs of relative L2 error above which a cause is looked for."""

_FEWEST_CLIPPED = 4
_SHARE_CLIPPED = 5e-4
_BEYOND = 0.01
"""Golden is beyond the bound of target by more than this share of it, where target was clipped."""


def hints(
    golden: Array,
    target: Array,
    sample: Sample,
    roundoff: float,
    *,
    fine: tuple[int, ...] | None = None,
    heads: int | None = None,
) -> tuple[Hint, ...]:
    """Say what may have happened to a tensor, the plainest first; nothing where the values do not tell.

    Args:
        golden: the trusted tensor.
        target: the tensor under suspicion, of the same shape.
        sample: what is looked at of the two.
        roundoff: unit roundoff of the coarser of the two formats.
        fine: the same elements in more dimensions, if a side has them so.
        heads: how many heads lie in the last dimension, if that is known.
    """
    if not sample.distance.any():
        return (Hint(HintKind.EQUAL, _says_equal(sample)),)
    first = tuple(hint for hint in (*_non_finite(sample), _constant(sample)) if hint is not None)
    error = relative_error(sample)
    if not error or any(hint.kind is HintKind.CONSTANT for hint in first):
        return first
    rounding = exactly_rounded(sample)
    if rounding is not None:
        return (*first, rounding)
    if error > BEYOND_ROUNDING * roundoff:
        line = scaled(sample)
        whole = line or moved(golden, target, fine)
        causes = [whole] if whole else _in_a_part(sample, roundoff, heads)
        if not causes:
            causes = [hint for hint in (sign_flipped(sample), clipped(sample)) if hint is not None]
        if causes:
            return (*first, *causes)
    by_size = like_rounding(sample, error, roundoff)
    return first if by_size is None else (*first, by_size)


def relative_error(sample: Sample) -> float | None:
    """Return the relative L2 error over finite pairs; None where there are none, or golden is zero."""
    finite = sample.finite
    norm = _norm(sample.golden[finite])
    return _norm(sample.difference[finite]) / norm if norm else None


def _norm(values: Floats) -> float:
    return float(np.linalg.norm(values))


def _says_equal(sample: Sample) -> Message:
    return Message.of("hint.equal") if sample.is_whole else Message.of("hint.equal_sample")


def _in_a_part(sample: Sample, roundoff: float, heads: int | None) -> list[Hint]:
    """Say in which part all of the difference lies, and what happened there."""
    found = confined(sample, roundoff)
    if found is None:
        return []
    inside = sample.part(found.axis, found.start, found.stop)
    there = scaled(inside) or sign_flipped(inside) or clipped(inside) or _constant(inside)
    said = [say_where(sample, found, heads)]
    if there is not None:
        said.append(Hint(there.kind, Message.of("hint.there", hint=there.says), there.before, there.after))
    return said


def _non_finite(sample: Sample) -> list[Hint]:
    """Say where NaN or an infinity meets something else."""
    lost = np.isinf(sample.distance) & ~(np.isfinite(sample.golden) & np.isfinite(sample.target))
    if not lost.any():
        return []
    found = []
    for name, side, other in (("target", sample.target, "golden"), ("golden", sample.golden, "target")):
        for what, where in (
            (Message.of("hint.nan"), np.isnan(side)),
            (Message.of("hint.infinities"), np.isinf(side)),
        ):
            here = where & lost
            if here.any():
                row, column = np.unravel_index(int(here.argmax()), here.shape)
                lead = np.unravel_index(sample.rows[row], sample.shape[:-1]) if len(sample.shape) > 1 else ()
                said = Message.of(
                    "hint.non_finite",
                    side=side_named(name),
                    other=side_named(other),
                    what=what,
                    count=int(here.sum()),
                    place=(*map(int, lead), int(sample.columns[column])),
                )
                found.append(Hint(HintKind.NON_FINITE, said))
    return found


def _constant(sample: Sample) -> Hint | None:
    """Say that one side is the same number everywhere, and the other is not."""
    said = {}
    for name, side in (("target", sample.target), ("golden", sample.golden)):
        finite = side[np.isfinite(side)]
        if finite.size > 1 and finite.min() == finite.max():
            said[name] = (
                Message.of("hint.constant", side=side_named(name), value=float(finite[0]))
                if finite[0]
                else Message.of("hint.zero", side=side_named(name))
            )
    if len(said) != 1:
        return None
    return Hint(HintKind.CONSTANT, next(iter(said.values())))


def clipped(sample: Sample) -> Hint | None:
    """Say that target ends at a bound beyond which golden goes on."""
    finite = sample.finite
    x, y = sample.golden[finite], sample.target[finite]
    if not y.size:
        return None
    # What is clipped from below is clipped from above with the other sign.
    for sign in (1, -1):
        bound = float((sign * y).max())
        there = x[sign * y == bound]
        if not max(_FEWEST_CLIPPED, _SHARE_CLIPPED * y.size) <= there.size < y.size:
            continue
        if float(np.mean(sign * there > bound + _BEYOND * abs(bound))) > 1 / 2:
            count, reach = there.size, sign * float((sign * there).max())
            says = Message.of("hint.clipped", count=count, bound=sign * bound, reach=reach)
            return Hint(HintKind.SATURATED, says)
    return None
