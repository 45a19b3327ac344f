"""The numbers by which the order of experts is recognised.

Of each: unit | meaning | where it comes from; a "judgement" was made by hand, and tests/truth shows what
changing it changes.
"""

from typing import Final

SAMPLE: Final = 256
"""elements | of each expert, and of each row of a router, that are looked at | bounds the time it takes"""

LARGEST: Final = 0.1
"""relative difference | up to which weights of two experts may be the same | judgement: one that is scaled by
a twentieth is itself"""

CLEARLY_NEARER: Final = 0.25
"""factor | of the difference to the next likely expert, up to which one is the same | judgement"""

ROUTER_NEARER: Final = 0.5
"""factor | of the difference as the rows lie, up to which a router's rows lie in an order | judgement: half
of the rows may be wrong"""

MOST_FIRST: Final = 16
"""experts | that are looked for first, and the others only if one is found | bounds the time it takes"""

DIMENSIONS_OF_MASK: Final = 3
"""dimensions | of a mask of experts, chosen places and tokens, at least | what it holds"""
