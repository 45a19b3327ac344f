"""Apply a rotary position embedding: what a dump has only before it is held against what another has after.

Heads are rotated by x cos + r(x) sin (Su et al., "RoFormer", 2021), where r turns pairs of elements. Models
pair element i with element i + d/2 (Llama, GPT-NeoX), or with its neighbour (GPT-J, GLM): the values tell.
"""

from typing import Final

import numpy as np

from firstdrift.metrics.arrangement import CLEARLY_BETTER
from firstdrift.metrics.comparability import ReasonedError
from firstdrift.metrics.dtypes import Array
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import shape

_FARTHEST: Final = 0.3
"""Relative difference above which it is not known how the model rotates."""

_SAME_LENGTH: Final = 0.1
"""Relative difference up to which heads are as long as before."""


class DoesNotRotateError(ReasonedError):
    """A tensor cannot be rotated, or not to what it is compared with."""


def rotated_as(states: Array, cosine: Array, sine: Array, whole: Array) -> tuple[Array, Message]:
    """Rotate a tensor in the way that comes nearest to another; return it, and the way in words.

    States are [.., tokens, heads x d] or [.., tokens, heads, d], angles [.., tokens, d], each twice.

    Raises:
        DoesNotRotateError: the shapes do not fit; or it is rotated, but in no known way. What is not even
            that (its heads are longer or shorter) is no other way to rotate, but a fault to be measured.
    """
    tokens = _tokens(states, cosine)
    if not tokens or sine.shape != cosine.shape or whole.size != states.size:
        shapes = tuple(shape(array.shape) for array in (states, cosine, sine, whole))
        raise DoesNotRotateError(Message.of("metrics.rotation_shapes", shapes=shapes))
    size = int(cosine.shape[-1])
    heads = states.size // _rows(states, tokens) // size
    wide: Array = states.astype(np.float64).reshape(-1, tokens, heads, size)
    angles = [array.astype(np.float64).reshape(tokens, 1, size) for array in (cosine, sine)]
    wanted = whole.astype(np.float64).reshape(wide.shape)
    ways = (
        (_in_halves(wide, *angles), Message.of("metrics.rotated_in_halves")),
        (_in_neighbours(wide, *angles), Message.of("metrics.rotated_in_neighbours")),
    )
    differences = [_distance(way, wanted) for way, _ in ways]
    chosen = int(differences[1] < CLEARLY_BETTER * differences[0])
    if differences[chosen] > _FARTHEST and _is_turned(ways[0][0], wanted):
        raise DoesNotRotateError(Message.of("metrics.rotation_unknown", error=min(differences)))
    return ways[chosen][0].reshape(states.shape), ways[chosen][1]


def _tokens(states: Array, cosine: Array) -> int:
    """Return for how many tokens there are angles; 0 if they do not fit the states."""
    size = cosine.shape[-1] if cosine.ndim else 0
    if not size or size % 2 or not states.size or not cosine.size or states.size % cosine.size:
        return 0
    return cosine.size // size


def _rows(states: Array, tokens: int) -> int:
    """Return how many rows of heads there are: all tokens of all sequences."""
    rows = 1
    for length in states.shape[:-1]:
        rows *= int(length)
        if rows % tokens == 0:
            return rows
    return tokens


def _in_halves(states: Array, cosine: Array, sine: Array) -> Array:
    first, second = np.split(states, 2, axis=-1)
    turned: Array = states * cosine + np.concatenate([-second, first], axis=-1) * sine
    return turned


def _in_neighbours(states: Array, cosine: Array, sine: Array) -> Array:
    half = cosine.shape[-1] // 2
    cosine, sine = (np.repeat(array[..., :half], 2, axis=-1) for array in (cosine, sine))
    neighbours = np.stack([-states[..., 1::2], states[..., ::2]], axis=-1).reshape(states.shape)
    turned: Array = states * cosine + neighbours * sine
    return turned


def _is_turned(states: Array, wanted: Array) -> bool:
    """Tell whether heads have been turned, and not changed otherwise: they are as long as before."""
    lengths = [np.linalg.norm(array, axis=-1) for array in (states, wanted)]
    return _distance(*lengths) <= _SAME_LENGTH


def _distance(states: Array, wanted: Array) -> float:
    norm = float(np.linalg.norm(wanted))
    distance = float(np.linalg.norm(states - wanted))
    return distance / norm if norm else distance
