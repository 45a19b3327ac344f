"""Is one tensor the other times a number, as norm, largest and smallest element tell?"""

import math

from firstdrift.metrics.closeup.hint import line_says
from firstdrift.metrics.measurement import SideSummary
from firstdrift.wording.message import Message

_LEAVES = 0.03
"""The three ratios may be so far apart, in what the factor differs from one: far less than from values,
since three numbers are all there is."""


def factor_of(golden: SideSummary, target: SideSummary) -> Message | None:
    """Say by which factor the target follows from golden; None where the three ratios are not one."""
    norms = _ratio(golden.known_norm, target.known_norm)
    if norms is None:
        return None
    same = (_ratio(golden.maximum, target.maximum), _ratio(golden.minimum, target.minimum))
    turned = (_ratio(golden.minimum, target.maximum), _ratio(golden.maximum, target.minimum))
    for factor, ends in ((norms, same), (-norms, turned)):
        off = [math.inf if ratio is None else abs(ratio - factor) for ratio in ends]
        if max(off) < _LEAVES * abs(factor - 1.0):
            return Message.of("hint.line", line=line_says(factor))
    return None


def _ratio(golden: float | None, target: float | None) -> float | None:
    if not golden or target is None or not (math.isfinite(golden) and math.isfinite(target)):
        return None
    return target / golden
