"""Choose thresholds on some folds of architectures, and score them on the one that is left out."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import product
from typing import Final

from scoring import share

FACTORS: Final = (0.5, 0.7, 1.0, 1.4, 2.0)
"""By what thresholds are multiplied."""

AXES: Final[Mapping[str, tuple[str, ...]]] = {
    "factor": ("factor",),
    "floors": ("floor", "bounded_floor", "peer_floor", "hidden_floor"),
    "16-bits": ("roundoff_float16", "roundoff_bfloat16"),
    "parameters": ("parameter_floor",),
}
"""Thresholds that are moved together."""

Setting = tuple[float, ...]
"""By what the thresholds of each axis are multiplied."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Whether each setting answers a pair rightly, in the order of the grid."""

    fold: int
    healthy: bool
    right: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Tally:
    """How many healthy pairs there are and have a finding, how many faults there are and are found."""

    healthy: int
    false: int
    faults: int
    found: int

    @property
    def cost(self) -> float:
        """The share of healthy pairs with a finding, and that of faults that are missed."""
        missed = self.faults - self.found
        return self.false / max(1, self.healthy) + missed / max(1, self.faults)


def settings_of(axes: Sequence[str]) -> list[Setting]:
    """Return the grid of some axes."""
    return list(product(FACTORS, repeat=len(axes)))


def moved(setting: Setting, axes: Sequence[str], shipped: Mapping[str, float]) -> dict[str, float]:
    """Return the thresholds of a setting by name; a factor below 1 makes no sense."""
    values = {
        name: times * shipped[name] for axis, times in zip(axes, setting, strict=True) for name in AXES[axis]
    }
    return {name: max(1.0, value) if name == "factor" else value for name, value in values.items()}


def tally(pairs: Sequence[Judged], at: int) -> Tally:
    """Count how a setting answers pairs."""
    right = {is_one: [pair.right[at] for pair in pairs if pair.healthy is is_one] for is_one in (True, False)}
    healthy, faults = right[True], right[False]
    return Tally(len(healthy), len(healthy) - sum(healthy), len(faults), sum(faults))


def added_up(tallies: Sequence[Tally]) -> Tally:
    """Add up counts."""
    return Tally(*(sum(numbers) for numbers in zip(*map(astuple, tallies), strict=True)))


def chosen(pairs: Sequence[Judged], settings: Sequence[Setting]) -> int:
    """Return the setting of the least cost, of equal ones that which moves the least."""
    return min(range(len(settings)), key=lambda at: (tally(pairs, at).cost, _moves(settings[at])))


def _moves(setting: Setting) -> float:
    return sum(abs(math.log(times)) for times in setting)


def fitted_table(pairs: Sequence[Judged], axes: Sequence[str]) -> str:
    """Write what was chosen without each fold, and how it answers that fold, beside what is shipped."""
    settings = settings_of(axes)
    shipped = settings.index((1.0,) * len(axes))
    titles = (
        "fold left out",
        "chosen on the others",
        "false findings",
        "faults found",
        "shipped: false findings",
        "faults found",
    )
    rows = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    counted: list[tuple[Tally, Tally]] = []
    for fold in sorted({pair.fold for pair in pairs}):
        own = [pair for pair in pairs if pair.fold == fold]
        at = chosen([pair for pair in pairs if pair.fold != fold], settings)
        counted.append((tally(own, at), tally(own, shipped)))
        rows.append(_row(str(fold), _said(settings[at], axes), counted[-1]))
    rows.append(_row("**all**", "", map(added_up, zip(*counted, strict=True))))
    return "\n".join(rows)


def _said(setting: Setting, axes: Sequence[str]) -> str:
    if set(setting) == {1.0}:
        return "as shipped"
    return ", ".join(f"{axis} times {times:g}" for axis, times in zip(axes, setting, strict=True))


def _row(title: str, setting: str, tallies: Iterable[Tally]) -> str:
    cells = [
        cell for one in tallies for cell in (share(one.false, one.healthy), share(one.found, one.faults))
    ]
    return f"| {title} | {setting} | {' | '.join(cells)} |"
