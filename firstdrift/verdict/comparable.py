"""Which slices can be compared: those that were given the same input, as far as that can be followed.

What ran after an input differed is bound to differ, until a new prompt begins.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TypeAlias

from firstdrift.model.slice import Coordinates
from firstdrift.verdict.judgement import InputDifference, SliceJudgement
from firstdrift.verdict.tokens import differing_inputs, prompts

When: TypeAlias = tuple[int, ...]
"""Order in time, whatever the rank."""


def in_order(judgements: Iterable[SliceJudgement]) -> list[SliceJudgement]:
    """Put judgements in the order of their slices."""
    return sorted(judgements, key=lambda judged: judged.coordinates.sort_key())


def by_input(ordered: Sequence[SliceJudgement]) -> tuple[list[InputDifference], list[SliceJudgement]]:
    """Return where inputs differ, and the slices that can be compared although they do.

    Those of different models cannot.
    """
    by_prompt = _prompts(ordered)
    inputs = [
        difference for split in by_prompt for prompt in split for difference in differing_inputs(prompt)
    ]
    inputs.sort(key=lambda difference: difference.coordinates.sort_key())
    restarts = sorted({time_of(prompt[0].coordinates) for split in by_prompt for prompt in split[1:]})
    alike = [judged for judged in ordered if judged.unlike is None]
    return inputs, _comparable(alike, inputs, restarts)


def prompt_starts(judgements: Sequence[SliceJudgement]) -> tuple[Coordinates, ...]:
    """Return the slices at which a further prompt begins, in order."""
    starts = [prompt[0].coordinates for split in _prompts(judgements) for prompt in split[1:]]
    return tuple(sorted(starts, key=Coordinates.sort_key))


def _prompts(judgements: Iterable[SliceJudgement]) -> list[list[list[SliceJudgement]]]:
    return list(map(prompts, series_of(judgements)))


def series_of(judgements: Iterable[SliceJudgement]) -> list[list[SliceJudgement]]:
    """Group judgements by step and rank, tokens ascending."""

    def key(judged: SliceJudgement) -> tuple[int, int]:
        step = judged.coordinates.step
        return (-1 if step is None else step, judged.coordinates.sort_key()[-1])

    ordered = sorted(judgements, key=lambda judged: (*key(judged), judged.coordinates.sort_key()))
    return [list(group) for _, group in groupby(ordered, key)]


def time_of(coordinates: Coordinates) -> When:
    """Order in time, whatever the rank."""
    return coordinates.sort_key()[:2]


def _comparable(
    ordered: Sequence[SliceJudgement], inputs: Sequence[InputDifference], restarts: Sequence[When]
) -> list[SliceJudgement]:
    """Leave out what ran after an input differed: it is bound to differ, until a new prompt begins.

    A slice whose own input differs stays if an error begins in it before that input is read.
    """
    firsts: dict[int, When] = {}
    for difference in inputs:
        when = time_of(difference.coordinates)
        prompt = bisect_right(restarts, when)
        firsts[prompt] = min(firsts.get(prompt, when), when)
    kept = []
    for judged in ordered:
        when = time_of(judged.coordinates)
        first = _first_of_step_or_prompt(firsts, bisect_right(restarts, when), when)
        if first is None or when < first or (when == first and not _follows(judged, inputs)):
            kept.append(judged)
    return kept


def _first_of_step_or_prompt(firsts: Mapping[int, When], prompt: int, when: When) -> When | None:
    """Return when an input first differed in a prompt, or before in another step: training remembers it."""
    before = [first for number, first in firsts.items() if number < prompt and first[0] != when[0]]
    return min([*before, *(first for number, first in firsts.items() if number == prompt)], default=None)


def _follows(judged: SliceJudgement, inputs: Sequence[InputDifference]) -> bool:
    here = [difference for difference in inputs if _same_slice(difference.coordinates, judged.coordinates)]
    return bool(here) and (not judged.origins or here[0].golden is None)


def _same_slice(one: Coordinates, other: Coordinates) -> bool:
    return (one.step, one.rank, one.token, one.merged) == (other.step, other.rank, other.token, other.merged)
