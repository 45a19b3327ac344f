"""Spread a model over two ranks: products by columns and rows, the head by words, gradients summed."""

from collections.abc import Callable
from fnmatch import fnmatch
from typing import Any, Final

import torch
import torch.distributed as ranks
from planting import NotHereError
from torch import Tensor, nn

RANKS: Final = 2


class _Copied(torch.autograd.Function):
    """Gives each rank the same, and sums their gradients."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, module: "ColumnParallelLinear") -> Tensor:  # noqa: ANN401
        ctx.sums = module.sums_gradients
        return given.view_as(given)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        if ctx.sums:
            gradient = gradient.contiguous().clone()
            ranks.all_reduce(gradient)
        return gradient, None


class _Summed(torch.autograd.Function):
    """Sums what the ranks have; each gets the gradient of the sum."""

    @staticmethod
    def forward(ctx: Any, given: Tensor) -> Tensor:  # noqa: ANN401
        del ctx
        total = given.contiguous().clone()
        ranks.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ANN401
        del ctx
        return gradient


class _Joined(torch.autograd.Function):
    """Puts what the ranks have side by side; each gets its part of the gradient."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, in_order: bool) -> Tensor:  # noqa: ANN401
        ctx.place = ranks.get_rank() if in_order else RANKS - 1 - ranks.get_rank()
        parts = [torch.empty_like(given) for _ in range(RANKS)]
        ranks.all_gather(parts, given.contiguous())
        return torch.cat(parts if in_order else parts[::-1], -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        return gradient.chunk(RANKS, -1)[ctx.place].contiguous(), None


class ColumnParallelLinear(nn.Module):
    """A product of which each rank gives some of the columns; all of them if they are joined."""

    def __init__(self, whole: nn.Linear, rank: int, *, joined: bool = False) -> None:
        super().__init__()
        self.weight = part_of(whole.weight, rank, 0)
        self.bias = None if whole.bias is None else part_of(whole.bias, rank, 0)
        self.joined, self.in_order, self.sums_gradients = joined, True, True

    def forward(self, given: Tensor) -> Tensor:
        result = nn.functional.linear(_Copied.apply(given, self), self.weight, self.bias)
        return _Joined.apply(result, self.in_order) if self.joined else result


class RowParallelLinear(nn.Module):
    """A product of which each rank gives a part of the sum."""

    def __init__(self, whole: nn.Linear, rank: int) -> None:
        super().__init__()
        self.weight = part_of(whole.weight, rank, 1)
        self.bias = None if whole.bias is None else nn.Parameter(whole.bias.detach().clone())
        self.reduces, self.adds_early = True, False

    def forward(self, given: Tensor) -> Tensor:
        result = nn.functional.linear(given, self.weight, self.bias if self.adds_early else None)
        if self.reduces:
            result = _Summed.apply(result)
        return result if self.bias is None or self.adds_early else result + self.bias


def part_of(whole: Tensor, rank: int, dimension: int) -> nn.Parameter:
    """Return what a rank has of a tensor."""
    if whole.shape[dimension] % RANKS:
        raise NotHereError
    return nn.Parameter(whole.detach().chunk(RANKS, dimension)[rank].contiguous().clone())


def spread(model: nn.Module, rank: int) -> None:
    """Replace products of a model by what a rank has of them, as the plan of its configuration says."""
    plan = getattr(model.config, "base_model_tp_plan", None) or {}
    ways: dict[str, Callable[[nn.Linear], nn.Module]] = {
        "colwise": lambda whole: ColumnParallelLinear(whole, rank),
        "rowwise": lambda whole: RowParallelLinear(whole, rank),
    }
    found = {
        name: ways[way](module)
        for name, module in model.named_modules()
        for pattern, way in plan.items()
        if type(module) is nn.Linear and way in ways and fnmatch(name, f"*{pattern}")
    }
    if not any(isinstance(one, RowParallelLinear) for one in found.values()):
        raise NotHereError
    head = model.get_output_embeddings()
    if type(head) is nn.Linear and head.weight is not model.get_input_embeddings().weight:
        name = next(name for name, one in model.named_modules() if one is head)
        found[name] = ColumnParallelLinear(head, rank, joined=True)
    for name, module in found.items():
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, module)


def average_gradients(model: nn.Module) -> None:
    """Let each rank have the mean of the gradients of all."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            ranks.all_reduce(parameter.grad)
            parameter.grad /= RANKS
