"""The numbers by which two implementations of one model are told and matched.

Of each: unit | meaning | where it comes from.
"""

from typing import Final

SAME_CODE: Final = 0.5
"""share of leaf modules | that both runs have by name and class; from here on they are of one implementation
| the majority"""

SAME_CLASSES: Final = 0.9
"""share of leaf modules | whose classes both runs have; from here on modules were only renamed | judgement"""

LEAST_LEAVES: Final = 4
"""leaf modules | that either run has at least | judgement: fewer make no model"""

MAJORITY: Final = 0.5
"""share of layers | more of which have to say that two parts of a layer are the same, so that it holds for
all | the majority"""

BY_MAJORITY: Final = 0.85
"""score, 0 to 1 | a pair that most other layers have | judgement; nothing compares it"""

TIMES_NEARER: Final = 10
"""factor | by which what two modules are given is nearer than what was made for them | judgement: rounding of
what one side does in between is far below"""

OTHER_FORM: Final = 0.05
"""relative difference | of the statistics of two weights that may be kept in two forms, as 1 + w and w |
judgement: rounding to any format of 16 bits is far below"""

OTHER_ORDER: Final = 50
"""factor | by which elements differ more than their statistics do, where sorting them is worth it |
judgement: noise moves the largest and the smallest element by less in 1 of 100 tensors"""

TWO_PARTS: Final = 2
"""tensors | of what is added up: a state and its residual, a result and its bias; dimensions of a matrix |
by definition"""

TOKEN_DIMENSIONS: Final = 2
"""dimensions | that say which token of which sequence a row is | by definition"""
