"""Refuse a choice of step, rank or token that the dumps cannot fulfil, before anything is read.

--token 99  ─▶  Token 99 is in neither dump; there are tokens 0 to 5
--rank 2    ─▶  Rank 2 is not in the target dump; it has ranks 0 and 1
"""

from collections.abc import Iterable
from itertools import pairwise

from msgspec.structs import replace

from firstdrift.errors import SettingsError
from firstdrift.matching.plan import MatchingRules
from firstdrift.matching.thresholds import MOST_RUNS
from firstdrift.model.slice import Coordinates, Dump
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named


def require_chosen_slices(golden: Dump, target: Dump, rules: MatchingRules) -> None:
    """Make sure that both dumps have a slice of the chosen step, rank and token.

    A dump that does not tell steps (ranks, tokens) apart has the chosen one if the other dump has it; if
    neither tells them apart, both have number 0. Where one dump has more ranks than the other, a model was
    spread over them, and the rank is one of theirs.

    Raises:
        SettingsError: a dump has none; it says which there are.
    """
    ranks = [_known(dump, "rank") for dump in (golden, target)]
    is_spread = max(1, len(ranks[0])) != max(1, len(ranks[1]))
    if is_spread:
        wider = max(ranks, key=len)
        ranks = [numbers if numbers is wider else frozenset() for numbers in ranks]
    for name, wanted in (("step", rules.step), ("rank", rules.rank), ("token", rules.token)):
        known = ranks if name == "rank" else [_known(dump, name) for dump in (golden, target)]
        shift = rules.token_offset if name == "token" else 0
        why = None if wanted is None else _absence(name, wanted, shift, *known)
        if why is not None:
            raise SettingsError(why)
    if (rules.step, rules.rank, rules.token) != (None, None, None):
        without_rank = replace(rules, rank=None)
        of_sides = [without_rank if is_spread and not numbers else rules for numbers in ranks]
        _require_slice("golden", golden, of_sides[0], 0)
        _require_slice("target", target, of_sides[1], rules.token_offset)


def _require_slice(side: str, dump: Dump, rules: MatchingRules, shift: int) -> None:
    """Make sure that a dump has a slice of the step, rank and token together."""
    if not any(is_chosen(listing.coordinates, rules, shift) for listing in dump.slices):
        asked = Coordinates(rules.step, rules.rank, _shifted(rules.token, shift)).name()
        raise SettingsError(Message.of("matching.choice.no_slice", side=side_named(side), slice=asked))


def is_chosen(at: Coordinates, rules: MatchingRules, token_offset: int) -> bool:
    """Tell whether a slice is of the chosen step, rank and token; coordinates it lacks do not matter."""
    wanted = ((at.step, rules.step), (at.rank, rules.rank), (at.token, _shifted(rules.token, token_offset)))
    return all(value is None or asked is None or value == asked for value, asked in wanted)


def spelled(numbers: Iterable[int]) -> str:
    """Write numbers as runs, each as its ends with an en dash between; of very many runs the first few."""
    ordered = sorted(numbers)
    if not ordered:
        return ""
    starts = [ordered[0], *(after for before, after in pairwise(ordered) if after != before + 1)]
    ends = [*(before for before, after in pairwise(ordered) if after != before + 1), ordered[-1]]
    runs = [str(a) if a == b else f"{a}\N{EN DASH}{b}" for a, b in zip(starts, ends, strict=True)]
    return ", ".join(runs[:MOST_RUNS]) + (", \N{HORIZONTAL ELLIPSIS}" if len(runs) > MOST_RUNS else "")


def _absence(
    name: str, wanted: int, shift: int, golden: frozenset[int], target: frozenset[int]
) -> Message | None:
    """Say which dump lacks the step, rank or token asked for, and what it has; None if both have it."""
    asked = numbered(name, wanted)
    if not golden and not target:
        untold = Message.of("matching.choice.untold", asked=asked, coordinates=coordinates_named(name))
        return untold if wanted != 0 else None
    held = {"golden": _held(name, golden), "target": _held(name, target)}
    lacks = bool(golden) and wanted not in golden, bool(target) and wanted + shift not in target
    match lacks:
        case (True, True) if golden == target:
            return Message.of("matching.choice.in_neither", asked=asked, held=held["golden"])
        case (True, True):
            return Message.of("matching.choice.in_neither_of_two", asked=asked, **held)
        case (True, False):
            return Message.of("matching.choice.not_in_golden", asked=asked, held=held["golden"])
        case (False, True) if shift:
            moved = numbered(name, wanted + shift)
            said = {"asked": asked, "moved": moved, "held": held["target"]}
            return Message.of("matching.choice.shifted", **said, offset=shift)
        case (False, True):
            return Message.of("matching.choice.not_in_target", asked=asked, held=held["target"])
    return None


def numbered(name: str, number: int | None) -> Message:
    """Name a step, rank, token or micro step by its number: "token 4"."""
    return Message.of(f"slice.{name}", number=number)


def coordinates_named(name: str) -> Message:
    """Name all steps, ranks, tokens or micro steps: "tokens"."""
    return Message.of(f"matching.coordinates.{name}")


def _held(name: str, numbers: frozenset[int]) -> Message:
    if len(numbers) == 1:
        return numbered(name, next(iter(numbers)))
    return Message.of(
        "matching.choice.several", coordinates=coordinates_named(name), numbers=spelled(numbers)
    )


def _known(dump: Dump, name: str) -> frozenset[int]:
    values = (getattr(listing.coordinates, name) for listing in dump.slices)
    return frozenset(value for value in values if value is not None)


def _shifted(token: int | None, offset: int) -> int | None:
    return None if token is None else token + offset
