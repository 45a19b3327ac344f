"""What routing explains: how far off tokens are, by how many layers chose other experts for them.

layers that chose otherwise    tokens    scale of their noise    out
0                              5,900     0.026                   3      not explained: nothing was routed
1                                150     0.31                    0      near ties: their own noise is larger
2-3                               12     (too few)

A token that left the noise is explained by its routing only where it lies within the noise of tokens that
were routed as much, and no more than half of its layers chose otherwise: ties are few, and a state that is
another one is no tie. Where too few tokens were routed to have a noise of their own, they are explained as
long as they are rare, so that a fault would hardly meet one of them by chance.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct

from firstdrift.rollout.noise import moved, scale_of
from firstdrift.rollout.sequences import Flags, Floats, Integers
from firstdrift.rollout.statistics import Statistics, measure
from firstdrift.rollout.thresholds import MOST_LAYERS_OF_TIES, OTHER_EXPERTS, OUT


class Routed(Struct, frozen=True):
    """Tokens of all sequences of which as many layers chose other experts.

    Attributes:
        first: the fewest layers; likewise the most, `last`.
        statistics: of the tokens.
        scale: of their noise, in log-odds; None of too few.
        share: of all tokens whose experts are known on both sides.
    """

    first: int
    last: int
    statistics: Statistics
    scale: float | None
    share: float


class Tokens(Struct, frozen=True):
    """Tokens that were compared.

    Attributes:
        rollout: their log-probabilities; likewise trainer.
        layers: how many layers chose other experts for each; negative where that is not known.
        of: how many layers there are; 0 where that is not known.
    """

    rollout: Floats
    trainer: Floats
    layers: Integers
    of: int


def routed(tokens: Iterable[Tokens], tells: Sequence[Flags], band: tuple[float, float]) -> tuple[Routed, ...]:
    """Measure tokens by how many of their layers chose other experts: 0, 1, 2 to 3, 4 to 7 and so on."""
    of_all = list(tokens)
    if not of_all:
        return ()
    rollout, trainer, layers = (
        np.concatenate([getattr(one, name) for one in of_all]) for name in ("rollout", "trainer", "layers")
    )
    telling, known = np.concatenate(tells), int((layers >= 0).sum())
    found = []
    numbers = _groups(layers)
    for number in np.unique(numbers[numbers >= 0]).tolist():
        here = numbers == number
        statistics = measure(rollout[here], trainer[here], band)
        scale = scale_of(moved(rollout[here], trainer[here])[telling[here]])
        first = 1 << (number - 1) if number else 0
        found.append(Routed(first, 2 * first - 1 if first else 0, statistics, scale, int(here.sum()) / known))
    return tuple(found)


def explained_by_routing(tokens: Tokens, groups: Sequence[Routed]) -> Flags:
    """Tell which tokens may be as far off as they are because other experts computed them."""
    rare = sum(one.share for one in groups if one.first) <= OTHER_EXPERTS
    unknown = np.inf if rare else 0.0
    bounds = {one.first: OUT * one.scale if one.scale is not None else unknown for one in groups}
    numbers = _groups(tokens.layers)
    firsts = np.where(numbers > 0, 1 << np.maximum(numbers - 1, 0), 0)
    bound = np.array([bounds.get(first, 0.0) if first else 0.0 for first in firsts.tolist()])
    is_tie = (tokens.layers > 0) & (tokens.layers <= MOST_LAYERS_OF_TIES * tokens.of)
    found: Flags = is_tie & (np.abs(moved(tokens.rollout, tokens.trainer)) <= bound)
    return found


def _groups(layers: Integers) -> Integers:
    """Return the number of bits of each count: 0, 1, 2 of 2 and 3, …; -1 where it is not known."""
    _, bits = np.frexp(np.maximum(layers, 0).astype(np.float64))
    return np.where(layers < 0, -1, bits.astype(np.int64))
