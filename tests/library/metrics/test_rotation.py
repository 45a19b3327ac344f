"""What is promised of rotating by position: the usual formula, and nothing where it does not fit."""

from collections.abc import Callable

import numpy as np
import pytest

from firstdrift.metrics.rotation import DoesNotRotateError, rotated_as

HEADS, SIZE = 3, 8


def angles(tokens: int) -> tuple[np.ndarray, np.ndarray]:
    one = np.outer(np.arange(tokens), 10.0 ** -np.arange(SIZE // 2))
    both = np.concatenate([one, one], axis=-1)[None]
    return np.cos(both), np.sin(both)


def states(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).normal(size=shape)


def turned(values: np.ndarray, tokens: int, pairs: list[tuple[int, int]]) -> np.ndarray:
    """Rotate pairs of elements as complex numbers."""
    result = values.reshape(-1, tokens, HEADS, SIZE).copy()
    for number, (first, second) in enumerate(pairs):
        numbers = result[..., first] + 1j * result[..., second]
        numbers = numbers * np.exp(1j * np.arange(tokens) * 10.0**-number)[None, :, None]
        result[..., first], result[..., second] = numbers.real, numbers.imag
    return result


IN_HALVES = [(at, at + SIZE // 2) for at in range(SIZE // 2)]
NEIGHBOURS = [(2 * at, 2 * at + 1) for at in range(SIZE // 2)]


@pytest.mark.parametrize(
    ("pairs", "said"),
    [(IN_HALVES, "metrics.rotated_in_halves"), (NEIGHBOURS, "metrics.rotated_in_neighbours")],
)
@pytest.mark.parametrize("shape", [(1, 5, 24), (5, 3, 8), (5, 24), (2, 5, 24)])
def test_heads_are_rotated_as_the_model_does(
    shape: tuple[int, ...], pairs: list[tuple[int, int]], said: str
) -> None:
    given = states(*shape)
    wanted = turned(given, 5, pairs).reshape(-1, HEADS * SIZE)
    rotated, how = rotated_as(given, *angles(5), wanted)
    assert rotated.shape == given.shape
    np.testing.assert_allclose(rotated.reshape(wanted.shape), wanted, rtol=1e-12, atol=1e-12)
    assert how.id == said


def test_one_token_is_rotated_too() -> None:
    cosine, sine = (array[:, 3:4] for array in angles(4))
    given = states(1, 1, 24)
    wide = np.concatenate([np.zeros((1, 3, 24)), given], axis=1)
    wanted = turned(wide, 4, IN_HALVES)[:, 3:]
    rotated, _ = rotated_as(given, cosine, sine, wanted.reshape(1, 24))
    np.testing.assert_allclose(rotated.ravel(), wanted.ravel(), rtol=1e-12, atol=1e-12)


def test_what_is_rotated_in_another_way_is_refused() -> None:
    given = states(1, 5, 24)
    with pytest.raises(DoesNotRotateError) as caught:
        rotated_as(given, *angles(5), -turned(given, 5, IN_HALVES).reshape(5, 24))
    assert caught.value.message.id == "metrics.rotation_unknown"


@pytest.mark.parametrize("fault", [lambda right: 3 * right, lambda right: right + np.nan, np.zeros_like])
def test_a_fault_is_not_taken_for_another_way_to_rotate(fault: Callable[[np.ndarray], np.ndarray]) -> None:
    given = states(1, 5, 24)
    right = turned(given, 5, IN_HALVES)
    rotated, _ = rotated_as(given, *angles(5), fault(right).reshape(5, 24))
    np.testing.assert_allclose(rotated.ravel(), right.ravel(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("given", "wanted"), [((1, 5, 20), (5, 20)), ((1, 5, 24), (5, 16)), ((0, 24), (0, 24))]
)
def test_shapes_that_do_not_fit_are_refused(given: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    with pytest.raises(DoesNotRotateError) as caught:
        rotated_as(states(*given), *angles(5), states(*wanted))
    assert caught.value.message.id == "metrics.rotation_shapes"
