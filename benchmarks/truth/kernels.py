"""Change what operators of torch compute, below what msprobe sees: all, or the one that has a parameter.

The functions are replaced before msprobe wraps them; so an operator of the dump itself gives the wrong
result, and nothing that the fault computes is in the dump.
"""

import functools
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn

RAW: Final = torch._C._VariableFunctions  # noqa: SLF001 (what msprobe does not wrap)
Change = Callable[[Tensor], Tensor]

_WITH_WEIGHTS: Final = (
    "linear",
    "conv1d",
    "conv2d",
    "conv_transpose2d",
    "layer_norm",
    "rms_norm",
    "group_norm",
    "embedding",
)
_CHUNK: Final = 2


class Clock:
    """Which step runs, counted from 0."""

    step = 0


def change_operator(parameter: nn.Parameter, change: Change, given: Change | None = None) -> None:
    """Let operators that are given a parameter change their result, and first what they work on."""

    def around(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if not any(one is parameter for one in (*args, *kwargs.values())):
            return original(*args, **kwargs)
        if given is not None:
            args = _first_float_changed(args, parameter, given)
        return change(original(*args, **kwargs))

    for name in _WITH_WEIGHTS:
        _replace(torch.nn.functional, name, around)
    _replace(torch, "addmm", around)


def _first_float_changed(args: tuple[Any, ...], parameter: nn.Parameter, given: Change) -> tuple[Any, ...]:
    place = next(
        at
        for at, one in enumerate(args)
        if isinstance(one, Tensor) and not isinstance(one, nn.Parameter) and one is not parameter
    )
    return (*args[:place], given(args[place]), *args[place + 1 :])


def change_softmax(inside: nn.Module) -> list[bool]:
    """Let softmax round its result to bfloat16 while a module runs; the list tells if it did."""
    running, used = [], []
    inside.register_forward_pre_hook(lambda *_: running.append(True))
    inside.register_forward_hook(lambda *_: running.clear())

    def around(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        result = original(*args, **kwargs)
        if not running:
            return result
        used.append(True)
        return Rounded.apply(result)

    _replace(torch.nn.functional, "softmax", around)
    _replace(torch, "softmax", around)
    return used


def multiply_coarsely(how: str) -> None:
    """Let products use TF32 of what they multiply, of which the mantissa has 10 bits after the first.

    Args:
        how: "nearest" rounds what products of matrices multiply to nearest, "cut" leaves out the bits
            below, "convolutions" rounds to nearest what convolutions multiply, too.
    """

    def coarse(given: Any) -> Any:  # noqa: ANN401
        if not isinstance(given, Tensor) or given.dtype != torch.float32:
            return given
        if how == "cut":
            detached = torch._C.TensorBase.detach(given)  # noqa: SLF001
            bits = RAW.bitwise_and(torch._C.TensorBase.view(detached, torch.int32), ~0x1FFF)  # noqa: SLF001
            return RAW.add(given, RAW.sub(torch._C.TensorBase.view(bits, torch.float32), detached))  # noqa: SLF001
        large = RAW.mul(given, 2.0**13 + 1.0)  # after Dekker: the upper half of the mantissa is left
        return RAW.sub(large, RAW.sub(large, given))

    def around(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return original(*map(coarse, args[:2]), *args[2:], **kwargs)

    def added(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return original(args[0], *map(coarse, args[1:]), **kwargs)

    _replace(torch, "addmm", added)
    for place, name in (
        (torch.nn.functional, "linear"),
        (torch, "matmul"),
        (torch, "bmm"),
        (torch.Tensor, "matmul"),
        (torch.Tensor, "__matmul__"),
        *((torch.nn.functional, f"conv{dimensions}d") for dimensions in (1, 2, 3) if how == "convolutions"),
    ):
        _replace(place, name, around)


def sum_in_blocks() -> None:
    """Let products add up in another order: two halves of what is summed, one after the other."""

    def linear(_: Callable[..., Any], given: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        half = weight.shape[-1] // _CHUNK
        if half == 0 or not given.is_floating_point():
            return torch._C._nn.linear(given, weight, bias)  # noqa: SLF001
        parts = [
            torch._C._nn.linear(part_given, part_weight)  # noqa: SLF001
            for part_given, part_weight in zip(
                _halves(given, half, -1), _halves(weight, half, -1), strict=True
            )
        ]
        total = RAW.add(parts[1], parts[0])
        return total if bias is None else RAW.add(total, bias)

    def matmul(original: Callable[..., Any], one: Tensor, other: Tensor, **kwargs: Any) -> Tensor:  # noqa: ANN401
        half = one.shape[-1] // _CHUNK
        if half == 0 or other.dim() < _CHUNK or kwargs or not isinstance(other, Tensor):
            return original(one, other, **kwargs)
        first, second = (
            RAW.matmul(left, right)
            for left, right in zip(_halves(one, half, -1), _halves(other, half, -2), strict=True)
        )
        return RAW.add(second, first)

    _replace(torch.nn.functional, "linear", linear)
    for place, name in (
        (torch, "matmul"),
        (torch, "bmm"),
        (torch.Tensor, "matmul"),
        (torch.Tensor, "__matmul__"),
    ):
        _replace(place, name, matmul)


def _halves(tensor: Tensor, half: int, dimension: int) -> tuple[Tensor, Tensor]:
    rest = tensor.shape[dimension] - half
    return RAW.narrow(tensor, dimension, 0, half), RAW.narrow(tensor, dimension, half, rest)


def _replace(place: Any, name: str, around: Callable[..., Any]) -> None:  # noqa: ANN401
    original = getattr(place, name)
    is_python = hasattr(original, "__wrapped__") or hasattr(original, "__code__")

    def replaced(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return around(original, *args, **kwargs)

    setattr(place, name, functools.wraps(original)(replaced) if is_python else replaced)


class Rounded(torch.autograd.Function):
    """Rounds to bfloat16 and back, whatever type it is given."""

    @staticmethod
    def forward(ctx: Any, given: Tensor) -> Tensor:  # noqa: ANN401
        """Round."""
        del ctx
        return torch._C.TensorBase.to(torch._C.TensorBase.to(given, torch.bfloat16), given.dtype)  # noqa: SLF001

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ANN401
        """Leave the gradient."""
        del ctx
        return gradient


class WrongGradient(torch.autograd.Function):
    """Gives on what it is given, and a gradient that is too large."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, factor: float) -> Tensor:  # noqa: ANN401
        """Give it on."""
        ctx.factor = factor
        return RAW.clone(given)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        """Make the gradient too large."""
        return RAW.mul(gradient, ctx.factor), None
