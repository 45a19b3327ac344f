"""The table of faults, and how one is entered into it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from planting import Site, Truth
from torch import nn

Plant = Callable[[Site], Truth]
ANY: Final = ("fwd", "train", "steps", "gen")
TRAINING: Final = ("train", "steps")


@dataclass(frozen=True)
class Fault:
    """A kind of fault, and in which ways of running a model it can show."""

    kind: str
    plant: Plant
    modes: tuple[str, ...]
    full_precision: bool
    """Whether it can show only if both runs are in fp32."""


FAULTS: Final[dict[str, Fault]] = {}


def fault(*modes: str, full_precision: bool = False) -> Callable[[Plant], Plant]:
    """Enter a function into the table of faults, by its name."""

    def enter(plant: Plant) -> Plant:
        kind = plant.__name__
        FAULTS[kind] = Fault(kind, plant, modes or ANY, full_precision)
        return plant

    return enter


def weight_of(module: nn.Module) -> nn.Parameter:
    """Return the weight of a module."""
    return module.weight
