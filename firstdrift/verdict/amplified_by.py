"""How many times larger a node makes an error, where that says something.

    input 1 %, output 3 %                          ─▶  3
    input 0 %, output 3 %                          ─▶  None: nothing came in that could grow
    input below one rounding, output 3 %           ─▶  None: the input is equal but for rounding

Verdicts go by more than this: an output error is held against all that explains it (`explanations.py`).
"""

import math


def amplified_by(given: float | None, gave: float | None, roundoff: float) -> float | None:
    """Return output error over input error; None unless the input error is above one rounding.

    Args:
        given: input error; None if it is not known.
        gave: output error likewise.
        roundoff: unit roundoff of the coarsest dtype of the slice.
    """
    if given is None or gave is None or not (math.isfinite(given) and given > roundoff):
        return None
    return gave / given
