"""The numbers by which rows are told from each other.

Of each: unit | meaning | where it comes from.
"""

from typing import Final

ROOT: Final = 0
"""number of a node | of the tree of tokens, before the first of each sequence | by definition"""

HEAD_DIMENSIONS: Final = 4
"""dimensions | of what each head has of each token: [sequences, heads, length, width] | by definition"""

MOST_TOKENS: Final = 1 << 20
"""tokens | of a slice that are read to tell which row is which | bounds the time it takes"""

MOST_RECORDS: Final = 8
"""tensors | of whole numbers that may say which rows are padding, or where tokens stand | bounds the time it
takes"""

MOST_PADDINGS: Final = 16
"""numbers at the ends of sequences | the commonest of which may be padding | bounds the time it takes"""

MOST_PIECES: Final = 2048
"""pieces of rows | that are moved together; of more, rows are not compared by token | what a view mapping can
say: two numbers each"""

MOST_PASSES: Final = 512
"""passes of a dump | that are read to see which hold the same tokens | bounds the time it takes"""

FEWEST_POSITIONS: Final = 3
"""numbers | at least, that go up by one where they are positions of tokens which no name says they are |
judgement: masks hold 0 and 1"""

IN_STEP: Final = 0.5
"""share of such numbers | at least as many of which go up by one | the majority: others begin a sequence"""
