"""What the sliders that matter most move: where the nodes of a slice lie on the scale of each.

A slider stands in the middle at what is usual, and reaches two decades either way of it (`scales.js`); the
picture above it has the same scale, so that the limit is where the slider stands. NumPy is loaded by whoever
asks first.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import isinf, isnan, log10
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.slice_pairs import SlicePair
from firstdrift.verdict.movable_thresholds import DEFAULTS, Thresholds
from firstdrift_server.context import Context

if TYPE_CHECKING:
    from firstdrift.catalogue.comparisons.outline import Outline

MAIN: Final[Mapping[str, str]] = {
    "factor": "amplification",
    "floor": "output",
    "parameter_floor": "parameter",
    "bounded_floor": "output",
    "peer_floor": "output",
    "drift_roundoffs": "output",
}
"""The thresholds that move most in practice, and what of the nodes each is held against."""

_PLACES: Final = 1000
_WIDTH: Final = 20
_HEIGHT: Final = 36.0


class Bar(Struct, frozen=True):
    """So many nodes lie there: where it begins, how high it is, and whether it is above the limit."""

    x: int
    height: float
    is_above: bool
    count: int


class Picture(Struct, frozen=True, kw_only=True):
    """The nodes of a slice on the scale of a threshold.

    Attributes:
        what: of the nodes: "amplification", "output" or "parameter".
        dtype: in whose roundings errors are; None of ratios.
        counts: how many nodes lie at a place, from 0 to 1000; places without any are left out.
        at: the place of the limit; `above` so many of `total` nodes lie beyond it.
    """

    what: str
    dtype: str | None
    counts: list[tuple[int, int]]
    bars: list[Bar]
    at: int
    above: int
    total: int


def pictures_of(
    session: Session, context: Context, pair: SlicePair | None, limits: Thresholds, dtypes: Iterable[str]
) -> dict[str, Picture]:
    """Draw the picture of each threshold that matters most; none without a slice."""
    if pair is None:
        return {}
    outline = context.outline(session, pair)
    rounding = limits.roundoff(*dtypes)
    values = _values(session, pair, outline, rounding)
    dtype = limits.dtype_of(rounding)
    return {name: _picture(name, what, values[what], limits, dtype) for name, what in MAIN.items()}


def _values(
    session: Session, pair: SlicePair, outline: "Outline", rounding: float
) -> dict[str, Sequence[float]]:
    """Give what thresholds are held against of each node that has it; errors in roundings."""
    from firstdrift.catalogue.comparisons.tree import row_fields

    parameters = (error for (error,) in row_fields(session, pair.id, "judgement.parameter_error"))
    known = [error / rounding for error in parameters if error is not None]
    return {
        "amplification": _known(outline.amplification.tolist()),
        "output": [error / rounding for error in _known(outline.output_error.tolist())],
        "parameter": _known(known),
    }


def _known(values: Iterable[float]) -> list[float]:
    return [value for value in values if not isnan(value)]


def place_of(value: float, usual: float) -> int:
    """Return where a value lies on the scale of a slider, as `placeOf` in `scales.js`."""
    if value <= 0.0:
        return 0
    away = 1.0 if isinf(value) else log10(value / usual) / 2
    return round(_PLACES / 2 * (1 + min(1.0, max(-1.0, away))))


def _picture(name: str, what: str, values: Sequence[float], limits: Thresholds, dtype: str) -> Picture:
    usual = getattr(DEFAULTS, name)
    counts = Counter(place_of(value, usual) for value in values)
    at = place_of(getattr(limits, name), usual)
    return Picture(
        what=what,
        dtype=None if what == "amplification" else dtype,
        counts=sorted(counts.items()),
        bars=_bars(counts, at),
        at=at,
        above=sum(count for place, count in counts.items() if place > at),
        total=len(values),
    )


def _bars(counts: Mapping[int, int], at: int) -> list[Bar]:
    """Gather places into bars, whose heights are square roots, so that a single node is seen beside many."""
    found: Counter[int] = Counter()
    for place, count in counts.items():
        found[min(place, _PLACES - 1) // _WIDTH] += count
    most = max(found.values(), default=1)
    return [
        Bar(bar * _WIDTH, round(_HEIGHT * (count / most) ** 0.5, 1), bar * _WIDTH >= at, count)
        for bar, count in sorted(found.items())
    ]
