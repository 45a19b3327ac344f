"""The numbers by which runs of different frameworks are aligned.

Of each: unit | meaning | where it comes from. A "judgement" was made by hand; where it says so, some pairs of
dumps of tests/truth were matched with another number.
"""

from typing import Final

SAME_BLOCK: Final = 0.3
"""worth | both in the same part of a layer, or as many norms in two layers | judgement; 0 or
a million change matches of tests/truth"""

OTHER_BLOCK: Final = 0.2
"""factor | in other parts of a layer | judgement; a million changes matches of tests/truth, 0 changed
none of 44 pairs"""

SAME_WIDTH: Final = 0.3
"""worth | outputs of the same width | judgement; 0 or a million change matches of tests/truth"""

SAME_NAME: Final = 0.1
"""worth | the same name | judgement; 0 or a million change matches of tests/truth"""

SAME_VALUES: Final = 1.0
"""worth | output values that agree | as much as an operator itself: values decide between equals"""

SAME_WEIGHTS: Final = 2.0
"""worth | weights that are the same numbers | judgement: more than all else that speaks for one of several
equal operators"""

SAME_WEIGHT: Final = 5e-3
"""relative difference | of the norms of weights that are the same | rounding to bfloat16 changes as much"""

JOINED: Final = 0.6
"""worth | each part of a fused operator beyond the first | judgement: less than an operator; 0 changes
matches of tests/truth, a million changed none of 44 pairs"""

FOLLOWING: Final = 1e-3
"""worth | two pairs that follow each other | far below the other terms: it decides between equals only"""

MOST_VARIANTS: Final = 64
"""ways | to see a layer that are tried | bounds the time it takes"""

LARGEST_TABLE: Final = 1_000_000
"""pairs | of layers or operators, up to which each is weighed | 1000 by 1000"""

LARGEST_TABLE_OF_LAYERS: Final = 100_000
"""pairs | of layers, up to which each is weighed with all its weights | bounds the time it takes"""

SHARED_TYPES: Final = 0.2
"""share of all types | dumps of one framework share more of them | judgement; in the 643 pairs of tests/truth
with the fixtures it is asked 1,333 times, and 59 times they share fewer"""

SHARED_NODES: Final = 0.1
"""share of nodes | ... or more of their nodes are found by name | judgement; of those 59
times 3 times fewer are found"""

KNOWN_WIDTH: Final = 0.9
"""score, 0 to 1 | a pair of operators whose output widths are known | judgement; nothing compares it"""

NO_WIDTH: Final = 0.7
"""score, 0 to 1 | a pair whose widths are not | judgement; nothing compares it"""

SAME_CONTENTS: Final = 0.8
"""score, 0 to 1 | modules that hold the same operators | judgement; nothing compares it"""

LEAST_SHARED: Final = 0.5
"""share of operators | that two modules, or two runs, have in common at least | the majority"""

INFERRED: Final = 0.8
"""score, 0 to 1 | values that are known from neighbours | judgement; nothing compares it"""

LEAST_OPS: Final = 4
"""operators | characteristic ones that two dumps of one model have in common at least | judgement; 0 or
a million change matches of tests/truth"""

DOUBTFUL_LAYER: Final = 0.5
"""score, 0 to 1 | layers of which one side has more, and no values tell which | between DOUBTFUL and
CONFIDENT of structure; nothing compares it"""

NEAR: Final = 4
"""operators | before a rotation or after a node that are searched | judgement; 0 changes matches of
tests/truth, a million changed none of 44 pairs"""

MOST_ADDENDS: Final = 4
"""addends | of a sum that are told apart; the sum before stands for more | judgement; bounds the walk back
through sums"""
