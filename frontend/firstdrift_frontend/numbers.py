"""How numbers are written: three significant digits to read, all of them to hover over and to copy.

short(1.2345e-05)    ─▶  "1.23e-5"
short(0.97572)       ─▶  "0.976"
short(0.9999863)     ─▶  "0.999986"    (what is short of one counts, as in a cosine)
short(1 - 3e-14)     ─▶  "1 - 3e-14"
short(151936.0)      ─▶  "151,936"
exact(1.2345e-05)    ─▶  "1.2345e-05"
error(0.0148)        ─▶  "1.48 %"      (relative errors, in sentences and tables alike)
"""

import math

from firstdrift.wording.relative_error import percentage

DASH = "\N{EN DASH}"
NO_BREAK = "\N{NO-BREAK SPACE}"
PLAIN = 1e-3, 1e6
"""Magnitudes between these are written without an exponent."""

PLAIN_SHORT = 1e-7
"""What is short of one by less is written as that."""

ROUNDED = 1e-14
"""What is short of one by less is one: so far apart are sums of products in float64 that should be equal."""


def short(value: float | None) -> str:
    """Write a number with three significant digits; whole numbers whole; a dash for what is not known."""
    if value is None:
        return DASH
    if isinstance(value, bool) or not math.isfinite(value):
        return exact(value)
    if isinstance(value, int) or (value == int(value) and abs(value) < PLAIN[1]):
        return f"{int(value):,}"
    if PLAIN[0] <= abs(value) < PLAIN[1]:
        return _significant(value)
    return _as_power(value, 2)


def _as_power(value: float, digits: int = 0) -> str:
    mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def factor(value: float | None) -> str:
    """Write how many times one number is another: nothing special happens close to one."""
    if value is not None and PLAIN[0] <= abs(value) < PLAIN[1]:
        return f"{value:,.{_decimals(value)}f}"
    return short(value)


def exact(value: float | None) -> str:
    """Write a number so that reading it gives the same number."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return repr(value)


def error(value: float | None) -> str:
    """Write a relative error as a percentage with three significant digits: "1.48 %", "1.91e-4 %"."""
    if value is None or not math.isfinite(value):
        return short(value)
    return percentage(value).replace(" ", NO_BREAK)


def error_power(power: int) -> str:
    """Write a power of ten as a relative error, as axes have it: -2 is "1 %", -6 is "1e-4 %"."""
    percent = power + 2
    written = f"{10.0**percent:g}" if PLAIN[0] <= 10.0**percent < PLAIN[1] else f"1e{percent}"
    return f"{written}{NO_BREAK}%"


def share(value: float | None) -> str:
    """Write a share of one as a percentage that is 100 only for all and 0 only for none."""
    if value is None or not math.isfinite(value):
        return short(value)
    percent = 100 * value
    if 0 < percent < 0.01 or 99.99 < percent < 100:  # noqa: PLR2004 - beyond two decimals
        return "< 0.01 %" if percent < 1 else "> 99.99 %"
    return f"{percent:.4g} %"


def shape(dimensions: tuple[int, ...] | None) -> str:
    """Write a shape: [1, 5, 896]; a scalar's is []."""
    return "unknown" if dimensions is None else f"[{', '.join(map(str, dimensions))}]"


def duration(seconds: float) -> str:
    """Write a time span: 0.42 s, 12 s, 3 min 5 s, 2 h 10 min."""
    if seconds < 10:  # noqa: PLR2004 - below that, tenths matter
        return f"{seconds:.2g} s"
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _significant(value: float) -> str:
    """Write three significant digits, or where these would say one, as many as tell it from one."""
    decimals = _decimals(value)
    short_of_one = 1 - abs(value)
    if 0 < short_of_one < ROUNDED:
        return "-1" if value < 0 else "1"
    if 0 < short_of_one < PLAIN_SHORT:
        rest = _as_power(short_of_one)
        return f"-1 + {rest}" if value < 0 else f"1 - {rest}"
    if 0 < short_of_one < 5e-3:  # noqa: PLR2004 - where three digits begin to round to one
        decimals = min(15, 1 - math.floor(math.log10(short_of_one)))
    return f"{value:,.{decimals}f}"


def _decimals(value: float) -> int:
    """Count the decimals of three significant digits."""
    return max(0, 2 - int(f"{value:.2e}".partition("e")[2]))
