"""Is the difference of two matrices a product of two thin ones, as an adapter (LoRA) adds it to a weight?"""

from typing import Final

import numpy as np

from firstdrift.metrics.closeup.hint import Hint, HintKind
from firstdrift.metrics.closeup.sample import Sample
from firstdrift.metrics.dtypes import Floats
from firstdrift.wording.message import Message

_MATRIX: Final = 2
_MOST: Final = 256
"""Rows and columns that are looked at: a part of a matrix has no higher rank than the whole."""

_FEWEST: Final = 16
_SHARE: Final = 1 / 8
"""A rank is low up to this share of the highest that a matrix of this size can have."""

_MOSTLY: Final = 0.5
"""A difference lies in more than this share of the rows, and of the columns."""

_LEFT: Final = 0.05
"""Relative error of a difference that is left beside what has a low rank: rounding of the sums."""


def low_rank(sample: Sample) -> Hint | None:
    """Say which rank the difference of two matrices has, where that is low."""
    if len(sample.shape) != _MATRIX:
        return None
    difference = sample.difference[_spread(len(sample.rows))][:, _spread(len(sample.columns))]
    highest = min(difference.shape)
    if highest < _FEWEST or not np.isfinite(difference).all() or not _is_spread(difference):
        return None
    squares = np.linalg.svd(difference, compute_uv=False) ** 2
    left = np.sqrt(np.maximum(squares.sum() - np.cumsum(squares), 0.0) / squares.sum())
    rank = int(np.argmax(left <= _LEFT)) + 1
    if rank > _SHARE * highest:
        return None
    says = Message.of("hint.low_rank", rank=rank, most=min(sample.shape))
    return Hint(HintKind.LOW_RANK, says)


def _is_spread(difference: Floats) -> bool:
    """Tell whether a difference lies in most rows and columns: few of either have a low rank, too."""
    sizes = (np.linalg.norm(difference, axis=axis) for axis in (0, 1))
    return all(float(np.mean(size > _LEFT * size.max())) > _MOSTLY for size in sizes if size.size)


def _spread(size: int) -> slice:
    return slice(None, None, -(-size // _MOST))
