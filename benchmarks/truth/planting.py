"""What a fault is planted into: the model, which of its modules run, and how the run is set."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from architectures import Built
from dice import Dice
from setting import Setting
from torch import Tensor, nn

SOURCE: Final = ("source",)
WEIGHTS: Final = ("weights differ",)
SHAPED: Final = ("source", "structure differs", "unmatched")


class NotHereError(Exception):
    """A fault has no place in this model or this way of running it."""


@dataclass
class Truth:
    """Where a fault lies and what may be said of it."""

    module: str | None
    cls: tuple[str, ...]
    backward: bool = False
    ops: str | None = None
    step: int | None = None
    also: tuple[str, ...] = ()
    given: bool = False
    """Whether the fault lies in what the model was given."""
    systematic: str = ""
    """The rule of `verdict/systematic.py` that says it, if the whole run has it."""
    optimizer: bool = False
    ranks: tuple[int, ...] = ()
    """The ranks that have it."""

    def written(self) -> dict[str, Any]:
        """Return what is written into truth.json."""
        said: dict[str, Any] = {"module": self.module, "cls": list(self.cls)}
        more = {
            "backward": self.backward,
            "ops": self.ops,
            "step": self.step,
            "also": list(self.also),
            "input": self.given,
            "systematic": self.systematic,
            "optimizer": self.optimizer,
            "ranks at fault": list(self.ranks),
        }
        return said | {name: value for name, value in more.items() if value not in (False, None, [])}


@dataclass
class Site:
    """A model of which it is known which modules run."""

    built: Built
    mode: str
    dice: Dice
    setting: Setting
    ran: list[str]
    """Modules in the order in which they end."""
    shapes: dict[str, tuple[int, ...]]
    same_shape: set[str]
    """Modules that give what they are given in another value but in the same shape."""
    task: str = "tensor"
    level: str = "mix"
    rank: int = 0
    whole: nn.Module | None = None
    """The model before it was spread over ranks."""

    @property
    def model(self) -> nn.Module:
        """The model."""
        return self.built.model

    def choose(self, fits: Callable[[str, nn.Module], bool]) -> tuple[str, nn.Module]:
        """Return one of the modules that ran and fit."""
        modules = dict(self.model.named_modules())
        found = [name for name in dict.fromkeys(self.ran) if name and fits(name, modules[name])]
        if not found:
            raise NotHereError
        name = self.dice.one_of(found)
        return name, modules[name]

    def linear(self, *, square: bool = False, bias: bool = False) -> tuple[str, nn.Module]:
        """Return one of the products with a weight that ran."""
        return self.choose(
            lambda name, one: (
                is_product(one)
                and (not square or one.weight.shape[0] == one.weight.shape[1])
                and (not bias or getattr(one, "bias", None) is not None)
                and not self.is_tied(name)
            )
        )

    def is_tied(self, name: str) -> bool:
        """Tell whether another module has the weight of this one, too, or runs it again."""
        weight = self.model.get_submodule(name).weight
        owners = [
            where
            for where, module in self.model.named_modules()
            if any(own is weight for own in module.parameters(recurse=False))
        ]
        return len(owners) > 1 or self.ran.count(name) > 1

    def attention(self) -> tuple[str, nn.Module]:
        """Return one of the modules that are attention and have a place among layers."""
        return self.choose(
            lambda _, one: (
                "Attention" in type(one).__name__ and isinstance(getattr(one, "layer_idx", None), int)
            )
        )


def is_product(module: nn.Module) -> bool:
    """Tell whether a module multiplies by a matrix: Linear, or Conv1D of transformers, or a convolution."""
    return isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d) or type(module).__name__ == "Conv1D"


def observed(built: Built, mode: str, dice: Dice, setting: Setting, ask: Callable[[], object]) -> Site:
    """Run a model once to see which modules run."""
    ran: list[str] = []
    shapes: dict[str, tuple[int, ...]] = {}
    same: set[str] = set()
    handles = []
    for name, module in built.model.named_modules():

        def seen(_: nn.Module, given: Any, result: Any, name: str = name) -> None:  # noqa: ANN401
            first = first_float(result)
            if first is None:
                return
            ran.append(name)
            shapes[name] = tuple(first.shape)
            if given and isinstance(given[0], Tensor) and given[0].shape == first.shape:
                same.add(name)

        handles.append(module.register_forward_hook(seen))
    with torch.no_grad():
        ask()
    for handle in handles:
        handle.remove()
    return Site(built, mode, dice, setting, ran, shapes, same)


def first_float(value: Any) -> Tensor | None:  # noqa: ANN401
    """Return the first tensor of floating point numbers in what a module gave."""
    return next(floats(value), None)


def floats(value: Any) -> Iterator[Tensor]:  # noqa: ANN401
    """Yield the tensors of floating point numbers in what a module gave."""
    if isinstance(value, Tensor):
        yield from [value] if value.is_floating_point() else []
    elif isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from floats(one)
