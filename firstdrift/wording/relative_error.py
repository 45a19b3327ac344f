"""How a relative error is written: as a percentage with three significant digits.

0.0148  ─▶  "1.48 %"      9.32e-4  ─▶  "0.0932 %"      1.91e-6  ─▶  "1.91e-4 %"
"""

from typing import Final

_PLAIN: Final = 1e-3, 1e6
"""Percentages between these are written without an exponent."""


def percentage(error: float) -> str:
    """Write a relative error, which is finite, as people read it."""
    percent = 100 * error
    if not percent:
        return "0 %"
    mantissa, _, exponent = f"{percent:.2e}".partition("e")
    if _PLAIN[0] <= abs(percent) < _PLAIN[1]:
        return f"{percent:,.{max(0, 2 - int(exponent))}f} %"
    return f"{mantissa}e{int(exponent)} %"
