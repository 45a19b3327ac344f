"""Functions of torch tensors are given tensors, functions of arrays arrays, and errors stay whole."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from firstdrift.comparison.as_torch import Caller, tensor_of

Function = Callable[..., Any]

ONES = np.ones((2, 3), np.float32)


def call(function: Function) -> object:
    return Caller(function)((ONES, ONES), (ONES, ONES))


def test_a_function_of_arrays_is_given_arrays() -> None:
    assert call(lambda golden, _: isinstance(golden, np.ndarray)) is True


@pytest.mark.parametrize(
    "function",
    [
        lambda golden, target: float((golden.double() - target).abs().max()),
        lambda golden, target: torch.nn.functional.mse_loss(golden, target).item(),
        lambda golden, target: (golden - target).sum(dim=-1).max().item(),
        lambda golden, target: golden.size(0) - target.size(0),
    ],
)
def test_a_function_of_tensors_is_given_tensors(function: Function) -> None:
    assert call(function) == 0


def test_a_function_that_says_so_is_given_tensors_alone() -> None:
    given = []

    def function(golden: torch.Tensor, target: torch.Tensor) -> float:
        given.append(type(golden))
        return float(target.sum())

    assert call(function) == 6
    assert given == [torch.Tensor]


def test_what_takes_tensors_once_is_given_arrays_no_more() -> None:
    given: list[type] = []

    def function(golden: Any, _: object) -> float:  # noqa: ANN401 (either)
        given.append(type(golden))
        return float(golden.float().sum())

    caller = Caller(function)
    for _ in range(3):
        assert caller((ONES, ONES), (ONES, ONES)) == 6
    assert given == [np.ndarray, torch.Tensor, torch.Tensor, torch.Tensor]


def test_what_fails_on_both_is_told_as_it_failed_on_arrays() -> None:
    def function(golden: Any, _: object) -> float:  # noqa: ANN401 (either)
        raise ValueError(type(golden).__name__)

    with pytest.raises(ValueError, match="ndarray"):
        call(function)


def test_a_function_cannot_change_what_others_are_given() -> None:
    call(lambda golden, _: golden.float().zero_().sum().item())
    assert ONES.sum() == 6


@pytest.mark.parametrize(
    "dtype",
    [
        *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
        *("int64", "int8", "uint8", "bool", "complex64"),
    ],
)
def test_tensors_have_the_dtype_and_the_bits_of_the_dump(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    array = np.array([[0, 1], [1, 0]]).astype(kind)
    tensor = tensor_of(array)
    assert tensor.dtype == getattr(torch, dtype)
    assert tensor.shape == (2, 2)
    assert bytes(tensor.view(torch.uint8).numpy().tobytes()) == array.tobytes()


def test_what_torch_has_no_dtype_for_comes_as_the_same_numbers() -> None:
    assert tensor_of(np.array([1, -2], ml_dtypes.int4)).tolist() == [1, -2]
    assert tensor_of(np.array(1.5, ml_dtypes.bfloat16)).item() == 1.5
