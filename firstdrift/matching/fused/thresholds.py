"""The numbers by which fused modules and joined tensors are recognised.

Of each: unit | meaning | where it comes from; a "judgement" was made by hand, and tests/truth shows what
changing it changes.
"""

from typing import Final

FITS: Final = 0.95
"""score, 0 to 1 | parts whose shapes join to that of the whole, and whose names say so too | judgement"""

BY_NAME: Final = 0.8
"""score, 0 to 1 | parts and a whole of known names where no shapes were recorded | judgement"""

BY_WIDTH: Final = 0.75
"""score, 0 to 1 | linear parts as wide together as a linear whole of any name | judgement; it is suggested
and never matched"""

SAME_VALUES: Final = 1e-2
"""relative difference | of statistics, up to which a whole of unknown name is that of the parts |
judgement"""

STACK_FITS: Final = 0.95
"""score, 0 to 1 | weights whose names say that they were stacked, and whose shapes do too | as FITS"""

NAMED_EXPERTS: Final = 4
"""experts | that are named | chosen: they fit in a line"""

MOST_DIGITS: Final = 9
"""digits | of the number of an expert | more are no number of a module"""
