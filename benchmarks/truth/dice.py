"""Throw dice that fall alike in every version of Python, and put architectures into folds."""

import hashlib
from collections.abc import Sequence
from typing import Final, TypeVar

FOLDS: Final = 3
One = TypeVar("One")


def number_of(*parts: object) -> int:
    """Return a large number that depends on the parts alone."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:8], "big")


def fold_of(architecture: str) -> int:
    """Return the fold of an architecture: rules are made on two of them and scored on the third."""
    return number_of("fold", architecture) % FOLDS


class Dice:
    """A row of throws."""

    def __init__(self, *seed: object) -> None:
        """Begin a row that depends on the seed alone."""
        self._seed, self._thrown = seed, 0

    def below(self, limit: int) -> int:
        """Return a number from 0 to below the limit."""
        self._thrown += 1
        return number_of(*self._seed, self._thrown) % limit

    def one_of(self, many: Sequence[One]) -> One:
        """Return one of many."""
        return many[self.below(len(many))]

    def shuffled(self, many: Sequence[One]) -> list[One]:
        """Return all of them in another order."""
        left = list(many)
        return [left.pop(self.below(len(left))) for _ in range(len(left))]
