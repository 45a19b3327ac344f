"""What may have happened to a tensor: asked in an order in which the first answer is the plainest.

equal                       nothing
NaN, infinities, a constant said first, whatever else is found
rounding, element by element, and nothing else
a factor, a shift           ┐
elements that became zero   │
values at other places      │  where the error is larger than rounding makes it;
one row, head, channel      │  the part of a tensor in which all of it lies is asked by itself
other signs, clipped values │
a difference of low rank    ┘
the size of a rounding      if none of them
"""

from collections.abc import Iterator

import numpy as np

from firstdrift.groups import known
from firstdrift.metrics.closeup.confined import confined, say_where
from firstdrift.metrics.closeup.dropped import dropped
from firstdrift.metrics.closeup.hint import Hint, HintKind
from firstdrift.metrics.closeup.linear import scaled, sign_flipped, whole_multiple
from firstdrift.metrics.closeup.low_rank import low_rank
from firstdrift.metrics.closeup.moved import moved
from firstdrift.metrics.closeup.rounded import exactly_rounded, like_rounding, numbers_of
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

    The arguments are those of `look_closely`; the sample is what is looked at of the two.
    """
    if not sample.distance.any():
        return (_equal(sample),)
    constant, error = _constant(sample), relative_error(sample)
    first = (*_non_finite(sample), *_known(constant))
    if not error or constant is not None:
        return first
    causes = _known(exactly_rounded(sample))
    if error > BEYOND_ROUNDING * roundoff:
        causes = causes or _known(_throughout(golden, sample, roundoff) or moved(golden, target, fine))
        causes = causes or _in_a_part(sample, roundoff, heads)
        causes = causes or _elsewhere(sample)
    return (
        *first,
        *(causes or _of_rounding(sample, error, roundoff, is_one_dtype=golden.dtype == target.dtype)),
    )


def _throughout(golden: Array, sample: Sample, roundoff: float) -> Hint | None:
    is_whole = golden.dtype.kind in "biu"  # of two ids, one is often a multiple of the other
    return scaled(sample) or (None if is_whole else whole_multiple(sample)) or dropped(sample, roundoff)


def _of_rounding(sample: Sample, error: float, roundoff: float, *, is_one_dtype: bool) -> list[Hint]:
    size = like_rounding(sample, error, roundoff)
    told = numbers_of(sample) if size is not None and is_one_dtype else None
    return _known(told or size)


def _elsewhere(sample: Sample) -> list[Hint]:
    return _known(sign_flipped(sample), clipped(sample)) or _known(low_rank(sample))


def _equal(sample: Sample) -> Hint:
    return Hint(HintKind.EQUAL, Message.of("hint.equal" if sample.is_whole else "hint.equal_sample"))


def _known(*found: Hint | None) -> list[Hint]:
    return known(found)


def relative_error(sample: Sample) -> float | None:
    """Return the relative L2 error over finite pairs; None where there are none, or golden is zero."""
    finite = sample.finite
    norm = _norm(sample.golden[finite])
    return _norm(sample.difference[finite]) / norm if norm else None


def _norm(values: Floats) -> float:
    return float(np.linalg.norm(values))


def _in_a_part(sample: Sample, roundoff: float, heads: int | None) -> list[Hint]:
    """Say in which part all of the difference lies, and what happened there."""
    found = confined(sample, roundoff)
    if found is None:
        return []
    inside = sample.part(found.axis, found.start, found.stop)
    there = scaled(inside) or sign_flipped(inside) or clipped(inside) or _constant(inside)
    where = say_where(sample, found, heads)
    if there is None:
        return [where]
    return [where, Hint(there.kind, Message.of("hint.there", hint=there.says), there.before, there.after)]


def _non_finite(sample: Sample) -> Iterator[Hint]:
    """Say where NaN or an infinity meets something else."""
    lost = np.isinf(sample.distance) & ~(np.isfinite(sample.golden) & np.isfinite(sample.target))
    for name, values, other in (("target", sample.target, "golden"), ("golden", sample.golden, "target")):
        sides = {"side": side_named(name), "other": side_named(other)}
        for what, kind in (("hint.nan", np.isnan), ("hint.infinities", np.isinf)):
            here = kind(values) & lost
            if here.any():
                place, count = _first_place(sample, here), int(here.sum())
                says = Message.of("hint.non_finite", **sides, what=Message(what), count=count, place=place)
                yield Hint(HintKind.NON_FINITE, says)


def _first_place(sample: Sample, here: Array) -> tuple[int, ...]:
    """Return the index, in the tensor, of the first element of a sample that is meant."""
    row, column = np.unravel_index(int(here.argmax()), here.shape)
    lead = np.unravel_index(sample.rows[row], sample.shape[:-1]) if len(sample.shape) > 1 else ()
    return (*map(int, lead), int(sample.columns[column]))


def _constant(sample: Sample) -> Hint | None:
    """Say that one side is the same number everywhere, and the other is not."""
    values = {"target": _only_value(sample.target), "golden": _only_value(sample.golden)}
    constant = [(name, value) for name, value in values.items() if value is not None]
    if len(constant) != 1:
        return None
    name, value = constant[0]
    if value:
        says = Message.of("hint.constant", side=side_named(name), value=value)
    else:
        says = Message.of("hint.zero", side=side_named(name))
    return Hint(HintKind.CONSTANT, says)


def _only_value(values: Floats) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite[0]) if finite.size > 1 and finite.min() == finite.max() else None


def clipped(sample: Sample) -> Hint | None:
    """Say that target ends at a bound beyond which golden goes on."""
    x, y = sample.finite_pairs
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
