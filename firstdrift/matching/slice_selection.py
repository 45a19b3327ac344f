"""Refuse a choice of step, rank or token that the dumps cannot fulfil, before anything is read.

--token 99  ─▶  Token 99 is in neither dump; there are tokens 0 to 5
--rank 2    ─▶  Rank 2 is not in the target dump; it has ranks 0 and 1
"""

from collections.abc import Iterable
from itertools import pairwise

from msgspec.structs import replace

from firstdrift.errors import SettingsError
from firstdrift.matching.plan import MatchingRules
from firstdrift.model.slice import Coordinates, Dump
from firstdrift.plurals import plural

_MOST_RUNS = 6


def require_chosen_slices(golden: Dump, target: Dump, rules: MatchingRules) -> None:
    """Make sure that both dumps have a slice of the chosen step, rank and token.

    A dump that does not tell steps (ranks, tokens) apart has the chosen one if the other dump has it; if
    neither tells them apart, both have number 0. Where one dump has more ranks than the other, a model was
    spread over them, and the rank is one of theirs.

    Raises:
        SettingsError: a dump has none; it says which there are.
    """
    chosen = {"step": rules.step, "rank": rules.rank, "token": rules.token}
    ranks = [_known(dump, "rank") for dump in (golden, target)]
    is_spread = max(1, len(ranks[0])) != max(1, len(ranks[1]))
    wider = max(ranks, key=len)
    for name, wanted in chosen.items():
        if wanted is not None:
            shift = rules.token_offset if name == "token" else 0
            known = [_known(dump, name) for dump in (golden, target)]
            if name == "rank" and is_spread:
                known = [held if held is wider else frozenset() for held in ranks]
            _require(name, wanted, shift, *known)
    if set(chosen.values()) == {None}:
        return
    for side, dump, shift, held in zip(
        ("golden", "target"), (golden, target), (0, rules.token_offset), ranks, strict=True
    ):
        of_side = replace(rules, rank=None) if is_spread and held is not wider else rules
        if not any(is_chosen(listing.coordinates, of_side, shift) for listing in dump.slices):
            asked = Coordinates(rules.step, of_side.rank, _shifted(rules.token, shift))
            raise SettingsError(f"no slice of the {side} dump is {asked.describe()}")


def is_chosen(at: Coordinates, rules: MatchingRules, token_offset: int) -> bool:
    """Tell whether a slice is of the chosen step, rank and token; coordinates it lacks do not matter."""
    wanted = ((at.step, rules.step), (at.rank, rules.rank), (at.token, _shifted(rules.token, token_offset)))
    return all(value is None or asked is None or value == asked for value, asked in wanted)


def spelled(numbers: Iterable[int]) -> str:
    """Write numbers as runs, each as its ends with an en dash between; of very many runs the first few."""
    ordered = sorted(numbers)
    starts = [ordered[0], *(after for before, after in pairwise(ordered) if after != before + 1)]
    ends = [*(before for before, after in pairwise(ordered) if after != before + 1), ordered[-1]]
    runs = [str(a) if a == b else f"{a}\N{EN DASH}{b}" for a, b in zip(starts, ends, strict=True)]
    return ", ".join(runs[:_MOST_RUNS]) + (", \N{HORIZONTAL ELLIPSIS}" if len(runs) > _MOST_RUNS else "")


def _require(name: str, wanted: int, shift: int, golden: frozenset[int], target: frozenset[int]) -> None:
    named = name.capitalize()
    if not golden and not target and wanted == 0:
        return
    if not golden and not target:
        raise SettingsError(f"{named} {wanted} is in neither dump; neither tells {name}s apart")
    in_golden = not golden or wanted in golden
    in_target = not target or wanted + shift in target
    if in_golden and in_target:
        return
    if in_golden:
        moved = f" ({name} {wanted} and an offset of {shift})" if shift else ""
        raise SettingsError(
            f"{named} {wanted + shift}{moved} is not in the target dump; it has {_listed(name, target)}"
        )
    if in_target:
        raise SettingsError(f"{named} {wanted} is not in the golden dump; it has {_listed(name, golden)}")
    known = [numbers for numbers in (golden, target) if numbers]
    if len(set(known)) == 1:
        there = plural(len(known[0]), "is", "are")
        raise SettingsError(f"{named} {wanted} is in neither dump; there {there} {_listed(name, known[0])}")
    raise SettingsError(
        f"{named} {wanted} is in neither dump; golden has {_listed(name, golden)}, "
        f"target {_listed(name, target)}"
    )


def _listed(name: str, numbers: frozenset[int]) -> str:
    return f"{plural(len(numbers), name)} {spelled(numbers)}"


def _known(dump: Dump, name: str) -> frozenset[int]:
    values = (getattr(listing.coordinates, name) for listing in dump.slices)
    return frozenset(value for value in values if value is not None)


def _shifted(token: int | None, offset: int) -> int | None:
    return None if token is None else token + offset
