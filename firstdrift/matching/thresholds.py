"""The numbers by which nodes, tensors and slices are matched; each room has its own table beside.

Of each: unit | meaning | where it comes from; a "judgement" was made by hand, and tests/truth shows what
changing it changes.
"""

from typing import Final

ARGUMENTS_AGREE: Final = 0.1
"""relative difference | up to which an argument agrees with that in the other place | judgement"""

TIMES_FARTHER: Final = 4
"""factor | by which both arguments differ more from their own place if they were exchanged | judgement"""

DEEPEST_WRAPPER: Final = 4
"""levels | down to which one module may wrap another | judgement"""

MOST_PARAMETERS: Final = 64
"""parameters | of a module that are looked at | bounds the time it takes"""

AROUND: Final = 0.8
"""score, 0 to 1 | modules around modules that correspond to each other | judgement"""

MOST_RUNS: Final = 6
"""runs of numbers | that are spelled out in a remark | chosen: they fit in a line"""

MOST_WITNESSES: Final = 2
"""layers | beside one, in which what lies as there is right | judgement: one of them may be faulty"""
