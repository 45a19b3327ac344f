"""Refuse a choice of step, rank or token that the dumps cannot fulfil, before anything is read.

--token 99  ─▶  Token 99 is in neither dump; there are tokens 0 to 5
--rank 2    ─▶  Rank 2 is not in the target dump; it has ranks 0 and 1
"""

from collections.abc import Iterable

from msgspec.structs import replace

from firstdrift.errors import SettingsError
from firstdrift.groups import grouped, known
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
    wanted = {"step": rules.step, "rank": rules.rank, "token": rules.token}
    if not known(wanted.values()):
        return
    told = {name: [told_numbers(golden, name), told_numbers(target, name)] for name in wanted}
    widths = [max(1, len(numbers)) for numbers in told["rank"]]
    of_sides = [rules, rules]
    if widths[0] != widths[1]:
        narrower = widths.index(min(widths))
        told["rank"][narrower] = frozenset()
        of_sides[narrower] = replace(rules, rank=None)
    for name, number in wanted.items():
        shift = rules.token_offset if name == "token" else 0
        why = None if number is None else _absence(name, number, shift, *told[name])
        if why is not None:
            raise SettingsError(why)
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
    # What follows another number of its run is as far behind it as it has more numbers before it.
    groups = grouped(enumerate(sorted(set(numbers))), lambda place: place[1] - place[0]).values()
    ends = ([str(run[0][1]), str(run[-1][1])] for run in groups)
    runs = ["\N{EN DASH}".join(dict.fromkeys(run)) for run in ends]
    return ", ".join(runs[:MOST_RUNS]) + (", \N{HORIZONTAL ELLIPSIS}" if len(runs) > MOST_RUNS else "")


def _absence(
    name: str, wanted: int, shift: int, golden: frozenset[int], target: frozenset[int]
) -> Message | None:
    """Say which dump lacks the step, rank or token asked for, and what it has; None if both have it."""
    asked = numbered(name, wanted)
    if not golden and not target:
        untold = Message.of("matching.choice.untold", asked=asked, coordinates=coordinates_named(name))
        return untold if wanted != 0 else None
    told = {"golden": (golden, wanted), "target": (target, wanted + shift)}
    held = {side: _held(name, numbers) for side, (numbers, _) in told.items()}
    match [side for side, (numbers, number) in told.items() if numbers and number not in numbers]:
        case []:
            return None
        case ["target"] if shift:
            said = {"asked": asked, "moved": numbered(name, wanted + shift), "held": held["target"]}
            return Message.of("matching.choice.shifted", **said, offset=shift)
        case [side]:
            return Message.of(f"matching.choice.not_in_{side}", asked=asked, held=held[side])
        case _ if golden == target:
            return Message.of("matching.choice.in_neither", asked=asked, held=held["golden"])
    return Message.of("matching.choice.in_neither_of_two", asked=asked, **held)


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


def told_numbers(dump: Dump, name: str) -> frozenset[int]:
    """Return the steps, ranks or tokens that a dump tells apart."""
    return frozenset(known(getattr(listing.coordinates, name) for listing in dump.slices))


def _shifted(token: int | None, offset: int) -> int | None:
    return None if token is None else token + offset
