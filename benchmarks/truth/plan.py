"""Draw the pairs of a sample: architectures, kinds, ways of running, and what msprobe writes of them."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from catalogue import Architecture, architectures
from dice import Dice, fold_of
from faults import FAULTS
from faults_of_ranks import COPIED, OTHER_DATA, RANK_FAULTS
from variations import RANK_VARIATIONS, VARIATIONS, WEIGHTS, fits

_DUMPS: Final = (
    *[("statistics", "mix")] * 5,
    *[("statistics", "L0")] * 2,
    *[("statistics", "L1")] * 2,
    *[("tensor", "mix")] * 3,
    *[("tensor", "L0")] * 2,
    *[("tensor", "L1")] * 2,
)
_MSIT_DUMPS: Final = (
    *[("tensor", "msit")] * 3,
    *[("tensor", "msit_weights")] * 2,
    *[("statistics", "msit")] * 2,
)
_DUMPS_OF_RANKS: Final = [one for one in _DUMPS if one[1] != "L1"]
_OF_ALL_WEIGHTS: Final = frozenset({"weights_bf16", "weights_int8", "weights_scaled", "weights_other"})
_SHORT: Final = {"statistics": "stat", "tensor": "tens"}


@dataclass(frozen=True)
class Shares:
    """How many pairs of a hundred are what."""

    healthy: int = 45
    lower: int = 30
    """Of faults that show in 16 bits, how many have a target in bf16 or fp16."""
    rounded: int = 0
    """Of the others of these, how many have a target whose weights were all rounded to bfloat16 or int8."""
    msit: int = 0
    ranks: int = 0


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
    ranks: str = ""
    """tp or dp, and on how many ranks golden and target are; nothing if both are on one."""

    def written(self) -> dict[str, Any]:
        """Return what is written into truth.json."""
        return asdict(self)


def jobs(seed: int, named: Sequence[str], kinds: Sequence[str], shares: Shares, start: int) -> Iterator[Job]:
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
                is_healthy = dice.below(100) < shares.healthy
                kind = next(healthy if is_healthy else faulty)
                if not kinds or kind in kinds:
                    break
            else:
                continue
            if shares.ranks and dice.below(100) < shares.ranks:
                job = _job_of_ranks(dice, known[name], number, shares, is_healthy=is_healthy)
            else:
                job = _job(dice, known[name], kind, number, shares)
            if job is not None:
                yield job


def _endless(dice: Dice, kinds: list[str]) -> Iterator[str]:
    while True:
        yield from dice.shuffled(kinds)


def _job(dice: Dice, architecture: Architecture, kind: str, number: int, shares: Shares) -> Job | None:
    task, level = dice.one_of(_DUMPS)
    modes = _modes(architecture, kind)
    dtype = "fp32"
    if _shows_in_16_bits(kind) and dice.below(100) < shares.lower:
        dtype = dice.one_of(("bf16", "fp16"))
    elif shares.rounded and _shows_in_16_bits(kind) and dice.below(100) < shares.rounded:
        dtype = dice.one_of(("wbf16", "wint8"))
    if not modes:
        return None
    mode = dice.one_of(modes)
    if shares.msit and dice.below(100) < shares.msit:
        if "gen" not in modes:
            return None
        mode = "gen"
        task, level = msit_dump(kind, dice.one_of(_MSIT_DUMPS))
    if mode == "steps" and task == "tensor":
        level = "L0"
    lower = [dtype] if dtype != "fp32" else []
    name = ".".join([kind, architecture.name, mode, _SHORT[task], level, *lower, str(number)])
    return Job(name, kind, architecture.name, mode, task, level, dtype, kind in VARIATIONS, 1000 + number)


def msit_dump(kind: str, drawn: tuple[str, str]) -> tuple[str, str]:
    """Return what msit writes of a pair: of another checkpoint its weights too."""
    task, level = drawn
    return (task, "msit_weights") if kind in _OF_ALL_WEIGHTS else (task, level)


def _shows_in_16_bits(kind: str) -> bool:
    return kind in FAULTS and not FAULTS[kind].full_precision


def _job_of_ranks(
    dice: Dice, architecture: Architecture, number: int, shares: Shares, *, is_healthy: bool
) -> Job | None:
    ways = ("tp 1:2", "tp 1:2", "tp 2:2", "dp 2:2") if architecture.generates else ("dp 2:2",)
    ranks = dice.one_of(ways)
    task, level = dice.one_of(_DUMPS_OF_RANKS)
    faults = list(RANK_FAULTS) if ranks.startswith("tp") else [*COPIED, *[OTHER_DATA] * 4]
    kind = dice.one_of(list(RANK_VARIATIONS) if is_healthy else faults)
    modes = [mode for mode in ("fwd", "train", "train", "steps") if mode in _modes_on_ranks(kind)]
    mode = dice.one_of(modes)
    if mode == "steps" and task == "tensor":
        level = "L0"
    dtype = "fp32"
    if not is_healthy and dice.below(100) < shares.lower:
        dtype = dice.one_of(("bf16", "fp16"))
    spread = ranks.replace(" ", "").replace(":", "")
    lower = [dtype] if dtype != "fp32" else []
    name = ".".join([kind, architecture.name, mode, _SHORT[task], level, *lower, spread, str(number)])
    return Job(name, kind, architecture.name, mode, task, level, dtype, is_healthy, 1000 + number, ranks)


def _modes_on_ranks(kind: str) -> tuple[str, ...]:
    known = {**FAULTS, **RANK_FAULTS}
    return known[kind].modes if kind in known else ("fwd", "train", "steps")


def _modes(architecture: Architecture, kind: str) -> list[str]:
    """Return in which ways of running an architecture a kind can be tried."""
    known = ["fwd", "train", "train", "steps"] + (["gen"] if architecture.generates else [])
    if kind in VARIATIONS:
        modes = VARIATIONS[kind].modes
        return [mode for mode in known if mode in modes] if fits(VARIATIONS[kind], architecture) else []
    return [mode for mode in known if mode in FAULTS[kind].modes]


def of_folds(folds: Sequence[int]) -> list[str]:
    """Return the architectures of some folds, or of all."""
    return [name for name in architectures() if not folds or fold_of(name) in folds]
