"""Draw the pairs of a sample: architectures, kinds, ways of running, and what msprobe writes of them."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from catalogue import Architecture, architectures
from dice import Dice, fold_of
from faults import FAULTS
from variations import VARIATIONS, WEIGHTS, fits

_DUMPS: Final = (
    *[("statistics", "mix")] * 5,
    *[("statistics", "L0")] * 2,
    *[("statistics", "L1")] * 2,
    *[("tensor", "mix")] * 3,
    *[("tensor", "L0")] * 2,
    *[("tensor", "L1")] * 2,
)
_LOWER_OF_100: Final = 30
_SHORT: Final = {"statistics": "stat", "tensor": "tens"}


@dataclass(frozen=True)
class Job:
    """A pair to be made."""

    name: str
    kind: str
    arch: str
    mode: str
    task: str
    level: str
    dtype: str
    healthy: bool
    seed: int

    def written(self) -> dict[str, Any]:
        """Return what is written into truth.json."""
        return asdict(self)


def jobs(
    seed: int, named: Sequence[str], kinds: Sequence[str], healthy_of_100: int, start: int
) -> Iterator[Job]:
    """Yield pairs for ever: each architecture in turn, in a new order each time; kinds in turn, too."""
    known = architectures()
    dice = Dice("sample", seed)
    healthy = _endless(dice, [kind for kind in VARIATIONS for _ in range(WEIGHTS.get(kind, 1))])
    faulty = _endless(dice, list(FAULTS))
    number = start
    while True:
        for name in dice.shuffled(list(named)):
            number += 1
            for _ in range(40):
                is_healthy = dice.below(100) < healthy_of_100
                kind = next(healthy if is_healthy else faulty)
                if not kinds or kind in kinds:
                    break
            else:
                continue
            job = _job(dice, known[name], kind, number)
            if job is not None:
                yield job


def _endless(dice: Dice, kinds: list[str]) -> Iterator[str]:
    while True:
        yield from dice.shuffled(kinds)


def _job(dice: Dice, architecture: Architecture, kind: str, number: int) -> Job | None:
    task, level = dice.one_of(_DUMPS)
    modes = _modes(architecture, kind)
    dtype = "fp32"
    if kind in FAULTS and not FAULTS[kind].full_precision and dice.below(100) < _LOWER_OF_100:
        dtype = dice.one_of(("bf16", "fp16"))
    if not modes:
        return None
    mode = dice.one_of(modes)
    if mode == "steps" and task == "tensor":
        level = "L0"
    lower = [dtype] if dtype != "fp32" else []
    name = ".".join([kind, architecture.name, mode, _SHORT[task], level, *lower, str(number)])
    return Job(name, kind, architecture.name, mode, task, level, dtype, kind in VARIATIONS, 1000 + number)


def _modes(architecture: Architecture, kind: str) -> list[str]:
    """Return in which ways of running an architecture a kind can be tried."""
    known = ["fwd", "train", "train", "steps"] + (["gen"] if architecture.generates else [])
    if kind in VARIATIONS:
        return known if fits(VARIATIONS[kind], architecture) else []
    return [mode for mode in known if mode in FAULTS[kind].modes]


def of_folds(folds: Sequence[int]) -> list[str]:
    """Return the architectures of some folds, or of all."""
    return [name for name in architectures() if not folds or fold_of(name) in folds]
