"""The numbers by which ranks and their parts of a model are recognised.

Of each: unit | meaning | where it comes from; a "judgement" was made by hand.
"""

from typing import Final

SAME_LAYOUT: Final = 0.95
"""share | of nodes, and of tensors as large, from which on two slices are laid out alike | judgement;
21 of the 643 pairs of tests/truth with the fixtures ask it, and both answers occur"""

TELLING: Final = 0.02
"""relative difference | from which on ranks hold other values each | judgement"""

NEARER: Final = 0.2
"""share | of the difference from another rank up to which a tensor belongs to a rank | judgement"""

LEAST_SHARDS: Final = 0.1
"""share of tensors | that are shards of the other dump's, from which on that was spread otherwise |
judgement"""

LEAST_COPIES: Final = 0.3
"""share of tensors | that are as large all the same, as what passes from layer to layer is |
judgement"""

STAGE: Final = 1.5
"""factor | its share of the nodes that a stage may have | the first and the last stage have more than
layers"""

LOOKED_AT: Final = 256
"""tensors | that are looked at in the order in which they ran | a fault comes after the first of them"""

LOADED: Final = 32
"""tensors | as above, of those without statistics, which have to be loaded | bounds the time it takes"""

TOLD: Final = 8
"""tensors | that decide | judgement: the first ones, as a fault changes what ran after it"""

SAMPLE: Final = 4096
"""elements | of a tensor that are compared | bounds the time it takes"""

LEAST_PARTS: Final = 2
"""tensors | that are parts, from which on a dump is held to be that of one rank | judgement: one
alone may be a fault"""

LEAST_SPREAD: Final = 0.3
"""share of the kinds of linear nodes | that are parts at least | a model with fewer heads for keys has 2 of
7, which is 0.286"""

MOST_RANKS: Final = 1024
"""ranks | over which a model is spread at most | judgement; dumps of tests/truth stay far below"""

LAYERS_LOOKED_AT: Final = 2
"""layers | by which a model is recognised as spread | bounds the time it takes"""

MOST_CANDIDATES: Final = 8
"""numbers of ranks | that are tried | bounds the time it takes"""

MOST_DIGITS: Final = 18
"""digits | of an argument that is a number | as many as 64 bits hold"""

MOST_TRIED: Final = 8
"""ranks | that a dump without rank is compared with, each of which is read | a machine has 8 devices"""

MOST_DEALT: Final = 2**22
"""values | of the first rows of a sequence that are read to see in what order ranks hold it | bounds the time
it takes"""

EQUAL_ROWS: Final = 1e-2
"""relative L2 difference | up to which rows that were looked up are equal | judgement: rounding to any format
of 16 bits is below"""
