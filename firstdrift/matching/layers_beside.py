"""Which pairs confirm how another one lies: those of the same tensor in the layers beside.

layers   0     1     2     3
of 0     .     x     x           of the first and the last layer the two nearest,
of 2           x     .     x     of any other the one before and the one after
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from firstdrift.groups import grouped
from firstdrift.matching.plan import TensorPair
from firstdrift.matching.thresholds import MOST_WITNESSES

_NUMBER: Final = re.compile(r"\d+")


def with_layers_beside(
    pairs: Sequence[TensorPair], chosen: Iterable[int]
) -> Iterator[tuple[int, list[TensorPair]]]:
    """Yield the positions of some pairs, each with those that confirm it.

    Args:
        pairs: all pairs, in the order in which they ran.
        chosen: the positions of those that are looked at, and may confirm.
    """
    for layers in grouped(chosen, lambda at: _place(pairs[at])).values():
        for place, at in enumerate(layers):
            first = max(0, min(place - 1, len(layers) - 1 - MOST_WITNESSES))
            near = layers[first : first + 1 + MOST_WITNESSES]
            yield at, [pairs[other] for other in near if other != at]


def _place(pair: TensorPair) -> tuple[str, ...]:
    """Return where a pair lies, the same for all layers."""
    nodes = (_NUMBER.sub("", node) for node in (pair.golden_node, pair.target_node))
    return *nodes, pair.golden.label, pair.target.label
