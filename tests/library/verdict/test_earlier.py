"""What earlier slices bear on a later one is the same however it is added up."""

import pickle
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from firstdrift.model.slice import Coordinates
from firstdrift.verdict.comparable import by_input, in_order, time_of
from firstdrift.verdict.earlier import Context, Earlier
from firstdrift.verdict.evidence import Before, Fault
from firstdrift.verdict.judgement import (
    Counts,
    Finding,
    InputDifference,
    SliceJudgement,
    SystematicDifference,
    Verdict,
)
from firstdrift.verdict.movable_thresholds import DEFAULTS
from firstdrift.verdict.systematic import OF_WEIGHTS, PRODUCTS
from firstdrift.verdict.training import Trained, Training
from firstdrift.wording.message import Message

SAID = Message.of("input.token_before", golden=1, target=2)


def finding(at: Coordinates) -> Finding:
    return Finding(at, "g", "t", None, None, None, Verdict.ERROR, (), {}, 0)


@some.composite
def judgements(draw: some.DrawFn) -> list[SliceJudgement]:
    """Slices of some steps, tokens and ranks in the order in which they run."""
    places = draw(
        some.lists(
            some.builds(
                Coordinates,
                step=some.sampled_from([None, 0, 1, 2]),
                rank=some.sampled_from([None, 0, 1]),
                token=some.sampled_from([None, 0, 1, 2]),
                micro_step=some.sampled_from([None, 0, 1]),
            ),
            min_size=1,
            max_size=12,
            unique=True,
        )
    )
    return [draw(judged(at)) for at in sorted(places, key=Coordinates.sort_key)]


@some.composite
def judged(draw: some.DrawFn, at: Coordinates) -> SliceJudgement:
    rarely = some.integers(0, 4).map(lambda number: number == 0)
    rules = draw(some.lists(some.sampled_from([PRODUCTS.name, *sorted(OF_WEIGHTS), "other"]), max_size=1))
    noise = draw(some.floats(0, 1))
    return SliceJudgement(
        coordinates=at,
        rows=(),
        pairs=(),
        counts=Counts(),
        worst=None,
        roundoff=draw(some.sampled_from([2.0**-24, 2.0**-8])),
        origins=(finding(at),) if draw(rarely) else (),
        golden_token=draw(some.sampled_from([None, 5, 5, 5])),
        target_token=5 if draw(rarely) else None,
        input_difference=InputDifference(at, SAID) if draw(rarely) else None,
        choice=draw(some.sampled_from([None, None, "", "model.layers.1"])),
        training=Training({"w": Trained((1.0, noise), 0.0)}, noise) if draw(some.booleans()) else None,
        level=draw(some.sampled_from([None, 1e-3, 0.1])),
        systematic=tuple(SystematicDifference(at, rule, SAID, is_fault=True) for rule in rules),
    )


def first_fault(bad: Sequence[SliceJudgement]) -> Fault | None:
    first = min(bad, key=lambda one: (time_of(one.coordinates), one.level), default=None)
    return None if first is None or first.level is None else Fault(first.origins[0].target, first.level)


def context_by_looking_at_all(earlier: Sequence[SliceJudgement], at: Coordinates) -> Context:
    systematic = [(found.rule, one.roundoff) for one in earlier for found in one.systematic]
    before = [one for one in earlier if time_of(one.coordinates) < time_of(at)]
    on_rank = [one for one in before if one.coordinates.sort_key()[-1] == at.sort_key()[-1]]
    trained = [one for one in on_rank if one.training is not None]
    last = max(trained, key=lambda one: time_of(one.coordinates), default=None)
    chose = next(
        (one for one in on_rank if (one.choice if one.training is None else one.choice is not None)), None
    )
    until_now = [one for one in earlier if time_of(one.coordinates) <= time_of(at)]
    return Context(
        Before(
            None if last is None or any(one.origins for one in before) else last.training,
            any(rule in OF_WEIGHTS for rule, _ in systematic),
            any(rule in OF_WEIGHTS and DEFAULTS.hides_faults(level) for rule, level in systematic),
            max((roundoff for rule, roundoff in systematic if rule == PRODUCTS.name), default=0.0),
            first_fault([one for one in on_rank if one.origins and one.level is not None]),
        ),
        None if chose is None else (chose.choice, chose.training is not None),
        all(one.input_difference is None and one.golden_token == one.target_token for one in until_now),
        any(one.origins for one in earlier),
    )


@given(judgements())
def test_what_bears_on_the_next_is_added_up_as_if_all_were_looked_at(ran: list[SliceJudgement]) -> None:
    earlier = Earlier()
    for at, one in enumerate(ran):
        assert earlier.context(one.coordinates) == context_by_looking_at_all(ran[:at], one.coordinates)
        assert earlier.has_training is any(before.training is not None for before in ran[:at])
        earlier.add(one)


@given(judgements())
def test_another_input_is_told_as_if_all_were_looked_at(ran: list[SliceJudgement]) -> None:
    *before, last = ran
    until_now = [one for one in before if time_of(one.coordinates) <= time_of(last.coordinates)]
    _, comparable = by_input(in_order([*until_now, last]))
    is_other = not any(one is last for one in comparable)
    are_alike = context_by_looking_at_all(before, last.coordinates).are_alike
    assert Earlier(before).is_other_input(last) is (is_other and not are_alike)


@given(judgements())
def test_what_is_sent_to_where_a_slice_is_judged_bears_on_it_as_all_of_it_does(
    ran: list[SliceJudgement],
) -> None:
    *before, last = ran
    earlier = Earlier(before)
    few = earlier.bearing_on(last.coordinates)
    assert few.context(last.coordinates) == earlier.context(last.coordinates)
    assert few.is_other_input(last) is earlier.is_other_input(last)
    assert few.has_training is earlier.has_training


def test_what_is_sent_does_not_grow_while_all_slices_are_given_the_same() -> None:
    few, many = Earlier(), Earlier()
    for count, earlier in ((3, few), (3000, many)):
        for step in range(count):
            training = Training({"w": Trained((1.0, 0.0), 0.0)}, 0.0)
            at = Coordinates(step=step)
            earlier.add(SliceJudgement(at, (), (), Counts(), None, 0.0, choice="layer", training=training))
    sizes = [len(pickle.dumps(one.bearing_on(Coordinates(step=4000)))) for one in (few, many)]
    assert sizes[1] < sizes[0] + 100


def test_parameters_of_steps_long_past_are_not_held() -> None:
    earlier = Earlier()
    for step in range(20):
        training = Training({"w": Trained((1.0, 0.0), 0.0)}, 0.0)
        at = Coordinates(step=step)
        empty = SliceJudgement(at, (), (), Counts(), None, 0.0, training=training)
        earlier.add(replace(empty, coordinates=at))
    held = [one.training.parameters for one in earlier._judged if one.training is not None]
    assert held == [{}] * 20
    assert sum(map(len, earlier._trained.values())) == 3
