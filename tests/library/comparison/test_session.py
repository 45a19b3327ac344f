"""What a session asks of its storage, and what it makes of the answers."""

import numpy as np
import pytest
from library.verdict.made_slices import Call, MadePair, make
from library.verdict.test_findings import logits
from messages import ids_of, outlines

from firstdrift.comparison.clock import Clock
from firstdrift.comparison.report import SliceResult
from firstdrift.comparison.session import ComparisonSession, Planned, in_time
from firstdrift.matching.plan import Messages, SlicePlan, TensorPair
from firstdrift.metrics.measurement import Measurement
from firstdrift.model.slice import Coordinates
from firstdrift.verdict.baseline import QUIET, Noise
from firstdrift.verdict.judgement import Finding, SliceJudgement
from firstdrift.wording.message import Message

DAMAGED = 1


class Tokens:
    """Logits of some tokens with given errors; the second cannot be read."""

    def __init__(self, *errors: float) -> None:
        head = "Module.lm_head.Linear.forward.0"
        self.made: list[MadePair] = [
            make(Call(head, outputs=[logits(error)]), coordinates=Coordinates(token=number))
            for number, error in enumerate(errors)
        ]
        self.said: dict[int, SliceJudgement] = {}
        self.results: dict[int, SliceResult] = {}
        self.settled: dict[int, Finding] = {}

    def kept(self, position: int) -> SliceJudgement | None:
        return self.said.get(position)

    def planned(self, position: int, clock: Clock) -> Planned | None:
        with clock.measure("match"):
            made = self.made[position]
            return None if position == DAMAGED else Planned(made.plan, made.rows)

    def measured(self, position: int, plan: SlicePlan) -> tuple[Measurement, ...]:
        assert plan is self.made[position].plan
        return tuple(self.made[position].measurements)

    def noise(self, golden: Coordinates) -> Noise:
        assert golden.token is not None
        return QUIET

    def shown(self, position: int, pair: TensorPair, _: Measurement) -> Messages:
        assert position in range(len(self.made))
        return (Message.of("shown.values", tensor=pair.target.label, hints=()),)

    def keep(self, position: int, result: SliceResult, clock: Clock) -> None:
        assert clock.seconds.keys() == {"match", "measure"}
        self.results[position] = result

    def settle(self, position: int, bad: Finding) -> None:
        self.settled[position] = bad


def test_a_damaged_slice_spoils_no_other() -> None:
    storage = Tokens(1e-7, 1e-7, 1e-7)
    session = ComparisonSession(storage)
    session.run(range(3))
    assert session.damaged == [DAMAGED]
    assert list(session.judged) == list(storage.results) == [0, 2]
    assert session.counts().passed == 2
    assert session.counts([2]).passed == 1
    assert session.clock.seconds.keys() == {"match", "measure"}


def test_what_only_all_slices_show_is_settled_in_the_storage() -> None:
    storage = Tokens(1e-7, 1e-7, 1e-7, 0.1)
    session = ComparisonSession(storage)
    session.run(range(4))
    assert session.counts().error == 0
    findings = session.conclude()
    assert findings.first_bad_token is not None
    assert list(storage.settled) == [3]
    assert session.counts().error == 1
    assert session.conclude() == findings
    assert not session.judged[3].pairs


def test_the_first_node_at_which_an_error_begins_is_looked_at_from_near_and_no_other() -> None:
    storage = Tokens()
    linear = Call("Functional.linear.0.forward", inputs=[0.0], outputs=[0.5])
    storage.made = [make(linear, coordinates=Coordinates(token=number)) for number in (0, 1, 2)]
    session = ComparisonSession(storage)
    session.run((0, 2))
    first = session.conclude().first_bad_node
    assert first is not None
    assert [one.arguments["tensor"] for one in first.shown] == ["output.0"]
    assert [len(origin.shown) for origin in session.judged[2].origins] == [0]
    assert session.judged[0].origins[0].shown == first.shown


class Looked(Tokens):
    """One slice, of which tensors by these names show what is given here; it notes which were asked for."""

    def __init__(self, made: MadePair, **shows: Message) -> None:
        super().__init__()
        self.made = [made]
        self.shows, self.asked = shows, list[str]()

    def noise(self, golden: Coordinates) -> Noise:
        del golden
        return QUIET

    def shown(self, position: int, pair: TensorPair, _: Measurement) -> Messages:
        assert position == 0
        self.asked.append(pair.target.label)
        hint = self.shows.get(pair.target.label.replace(".", "_"))
        return (Message.of("shown.values", tensor=pair.target.label, hints=(hint,)),) if hint else ()


SHIFTED = Message.of("hint.shifted_later", far=1, axis=3)
SMALL = Message.of("hint.like_rounding", formats=("float16",))


@pytest.mark.parametrize(
    ("shows", "asked", "said"),
    [
        ({"input_1": SHIFTED}, ["input.1"], ["values tensor_of input.1 Tensor.__add__.0 shifted_later 1 3"]),
        (
            {"input_1": SMALL, "output_0": SHIFTED},
            ["input.1", "output.0"],
            ["values output.0 shifted_later 1 3"],
        ),
        ({"input_1": SMALL}, ["input.1", "output.0"], []),
        ({}, ["input.1", "output.0"], []),
    ],
)
def test_an_input_that_nothing_recorded_made_is_looked_at_before_the_node_is(
    shows: dict[str, Message], asked: list[str], said: list[str]
) -> None:
    inside = "Module.attn.Attention.forward.0"
    made = make(
        Call("Functional.linear.0.forward", inside, inputs=[0.0], outputs=[0.0]),
        Call("Tensor.__add__.0.forward", inside, inputs=[0.0, 0.4], outputs=[0.4]),
        Call(inside, inputs=[0.0], outputs=[0.4]),
    )
    storage = Looked(made, **shows)
    session = ComparisonSession(storage)
    session.run((0,))
    first = session.conclude().first_bad_node
    assert first is not None
    assert first.module == "attn"
    assert storage.asked == asked
    assert outlines(first.cause) == [*said, "between Functional.linear.0 Tensor.__add__.0"]


@pytest.mark.parametrize("hint", [SHIFTED, SMALL])
def test_an_input_of_the_model_that_differs_says_how_where_that_is_more_than_its_size(hint: Message) -> None:
    ids = np.arange(32).reshape(2, 16)
    made = make(Call("Functional.embedding.0.forward", inputs=[(ids, ids[::-1])], outputs=[0.5]))
    session = ComparisonSession(Looked(made, input_0=hint))
    session.run((0,))
    (differs,) = session.conclude().input_differs
    assert (hint.id in ids_of(differs.reason)) is (hint is SHIFTED)


def test_of_many_inputs_that_differ_the_first_is_looked_at() -> None:
    ids = np.arange(32).reshape(2, 16)
    call = Call("Functional.embedding.0.forward", inputs=[(ids, ids[::-1])], outputs=[0.5])
    storage = Tokens()
    storage.made = [make(call, coordinates=Coordinates(token=number)) for number in (0, 1, 2)]
    session = ComparisonSession(storage)
    session.run((0, 2))
    said = [
        judged.input_difference.reason.id for judged in session.judged.values() if judged.input_difference
    ]
    assert said == ["input.shown", "input.differs_by"]


def test_what_was_said_before_and_still_holds_is_not_judged_anew() -> None:
    first = Tokens(1e-7, 1e-7, 1e-7)
    before = ComparisonSession(first)
    before.run(range(3))
    again = Tokens(1e-7, 1e-7, 1e-7)
    again.said = {0: before.judged[0]}
    session = ComparisonSession(again, known={2: before.judged[2]})
    session.look_at(0)
    assert not again.results
    assert session.conclude() == before.conclude()


def test_time_is_over_after_the_first_at_the_earliest() -> None:
    assert list(in_time(range(4), 2, seconds=0)) == [2]
    assert list(in_time(range(4), 2, seconds=60)) == [2, 0, 1, 3]
    assert list(in_time([], 2, seconds=60)) == []
