"""How dark an error is drawn, and how long its bar is: both by the limit that decided, not by the largest.

    error / limit     1e-4 ... 1    1 ... 1e3      or up to an error of 1, where that is more
    shade             0 ... 0.25    0.5 ... 1      what passes stays in the left half, what fails in the right
    bar               0 ... 0.5     0.5 ... 0.875

`static/lib/limit_shades.js` shades the map of layers, and that of a pair of tensors, likewise.
"""

import math

from firstdrift.verdict.judgement import Verdict

CALM, DARK = 0.25, 0.5
"""The darkest shade of what passes, and the lightest of what fails."""

_BELOW, _ABOVE = 4, 3
"""Powers of ten told apart below the limit, and at least above it: as many as lead to an error of 1."""

_BAR, _HALF = 8, 0.5
"""Powers of ten of a whole bar, and where on it the limit is."""


def shade_of(error: float, limit: float | None, verdict: Verdict) -> float:
    """Place an error between 0, the lightest, and 1; `limit` is None where rules have none."""
    if limit is None:
        low, share = verdict is Verdict.PASS, size_of(error)
        return CALM * share if low else DARK + (1 - DARK) * share
    decades = _decades(error, limit)
    if (decades > 0 and verdict is not Verdict.PASS) or verdict is Verdict.ERROR:
        return DARK + (1 - DARK) * min(1.0, max(0.0, decades / max(_ABOVE, -_decades(limit, 1.0))))
    return CALM * min(1.0, max(0.0, 1 + decades / _BELOW))


def size_of(error: float, limit: float | None = None, *, passes: bool = False) -> float:
    """Return how long the bar of an error is: half of it at the limit; without one, whole at 1.

    What passes does not reach beyond the half: other reasons than the limit excuse it.
    """
    if not error > 0 and not math.isnan(error):
        return 0.0
    if limit is None:
        return min(1.0, max(0.0, 1 + _decades(error, 1.0) / _BAR))
    return min(_HALF if passes else 1.0, max(0.0, _HALF + _decades(error, limit) / _BAR))


def _decades(error: float, limit: float) -> float:
    """Return by how many powers of ten an error is above the limit; NaN and infinities by any number."""
    if not math.isfinite(error):
        return math.inf
    return math.log10(error / limit) if error > 0 and limit > 0 else (math.inf if error > 0 else -math.inf)
