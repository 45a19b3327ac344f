"""What a step of training does to the parameters of the next: how far apart it may take them, and what did.

    |d w| after a step   <=   |d w| before it  +  2 U min(1, sqrt(9 e(gradient) + 1 / n))  +  rounding

U is how far the step moved the parameter. Adam moves each element by the same amount whatever the size of its
gradient, so an error that turns the sign of a small one moves it the other way: of normally distributed
gradients a share of e(gradient) / pi turns, which is sqrt(e) of the norm of the update. What turns are whole
elements, of n: one may turn, however small its share would be. Where gradients agree to rounding, so do the
parameters after them, or the optimizer is another.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from firstdrift.matching.plan import TensorPair
from firstdrift.metrics.measurement import Measurement, SideSummary
from firstdrift.model.names import with_direction
from firstdrift.model.node import FORWARD
from firstdrift.model.tensor import GRADIENT, PARAMETER
from firstdrift.verdict.fixed_thresholds import TURNED_SIGNS
from firstdrift.verdict.tree import TreeRow

BUFFERS: Final = frozenset({"running_mean", "running_var"})
"""What a forward pass moves, and no optimizer."""


_OF_MODULE: Final = frozenset({PARAMETER, GRADIENT})
"""Roles of tensors that are called as the module calls them."""


class Trained(Struct, frozen=True, gc=False):
    """A parameter as a step found it.

    Attributes:
        golden: largest and smallest element of the golden side.
        difference: norm of the difference.
        noise: relative error of its gradient, 0 to 1; None where that was not recorded.
    """

    golden: tuple[float, float]
    difference: float
    noise: float | None = None


class Training(Struct, frozen=True):
    """What a step shows of training.

    Attributes:
        parameters: by name.
        noise: the relative error that most gradients stay below, 0 to 1.
    """

    parameters: Mapping[str, Trained]
    noise: float

    def moved(self, name: str, measured: Measurement) -> float | None:
        """Return how far the golden step moved the elements of a parameter; None where that is not known."""
        before = self.parameters.get(name)
        if before is None:
            return None
        return _moved(before.golden, measured.golden)

    def allowed(self, name: str, measured: Measurement, typical: float, roundoff: float) -> float | None:
        """Return how far apart a parameter may be after the step, relative; None where that is not known.

        Args:
            name: of the parameter.
            measured: how it differs now.
            typical: how far the step moved the elements of most parameters: of some, such as the embeddings
                of tokens that did not occur, the largest element was not moved.
            roundoff: the error of a gradient that agrees: its sign is known.
        """
        before, moved, golden = self.parameters.get(name), self.moved(name, measured), measured.golden
        if before is None or moved is None or golden is None or not golden.norm or not golden.size:
            return None
        noise = self.noise if before.noise is None else before.noise
        one_element = 1.0 / golden.size if noise > roundoff else 0.0
        turned = min(1.0, math.sqrt(TURNED_SIGNS.value**2 * noise + one_element))
        update = max(moved, typical) * math.sqrt(golden.size)
        return (before.difference + 2.0 * update * turned) / abs(golden.norm)

    def is_quiet(self, name: str, roundoff: float) -> bool:
        """Tell whether the gradient of a parameter, and the parameter, agreed to rounding in the step."""
        before = self.parameters.get(name)
        if before is None:
            return False
        return (self.noise if before.noise is None else before.noise) <= roundoff


def parameter_name(pair: TensorPair, row: TreeRow) -> str:
    """Name a parameter, or the gradient of one, in the same way in each step."""
    if pair.golden.role in _OF_MODULE:
        return f"{row.path}:{pair.golden.key}"
    return f"{with_direction(pair.golden_node, FORWARD)}:{pair.golden.key}"


def ends_of(side: SideSummary | None) -> tuple[float, float] | None:
    """Return the largest and the smallest element of a tensor; None where they are not known."""
    if side is None or side.maximum is None or side.minimum is None:
        return None
    return side.maximum, side.minimum


def _moved(before: Sequence[float], after: SideSummary | None) -> float:
    """Return how far a step moved an element of a parameter, as its largest and smallest show."""
    ends = ends_of(after)
    return 0.0 if ends is None else max(abs(one - other) for one, other in zip(before, ends, strict=True))
