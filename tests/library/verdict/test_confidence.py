"""How sure a finding is follows from its margin, what it rests on, and how many slices show it."""

import pytest
from library.verdict.made_slices import Call, judge

from firstdrift.model.slice import Coordinates
from firstdrift.verdict.confidence import Basis, Certainty, Excess, confidence_in, seen_in
from firstdrift.verdict.findings import conclude
from firstdrift.verdict.judgement import Finding
from firstdrift.wording.message import Message
from firstdrift.wording.text import LANGUAGES, text_of

U32 = 2.0**-24
BEFORE = Call("Functional.silu.0.forward", inputs=[0.0], outputs=[0.0])
LINEAR = "Functional.linear.0.forward"


def found(*calls: Call, steps: int = 1) -> Finding:
    judged = [judge(BEFORE, *calls, coordinates=Coordinates(step=step)).said for step in range(steps)]
    first = conclude(judged).first_bad_node
    assert first is not None
    return first


@pytest.mark.parametrize(
    ("basis", "margin", "certainty"),
    [
        (Basis.VALUES, 1.2, Certainty.SUSPECTED),
        (Basis.VALUES, 2.0, Certainty.LIKELY),
        (Basis.VALUES, 5.0, Certainty.CERTAIN),
        (Basis.STATISTICS, 1.8, Certainty.SUSPECTED),
        (Basis.STATISTICS, 5.0, Certainty.LIKELY),
        (Basis.STATISTICS, 20.0, Certainty.CERTAIN),
        (Basis.VALUES, 2e6, Certainty.CERTAIN),
        (Basis.UNMODELLED, 1.8, Certainty.SUSPECTED),
        (Basis.UNMODELLED, 20.0, Certainty.CERTAIN),
        (Basis.STRUCTURE, None, Certainty.CERTAIN),
        (Basis.PEERS, 50.0, Certainty.SUSPECTED),
    ],
)
def test_the_margin_and_the_basis_say_how_sure_it_is(
    basis: Basis, margin: float | None, certainty: Certainty
) -> None:
    known = confidence_in(basis, None if margin is None else Excess(margin, 1.0))
    assert known.certainty is certainty
    assert not [language for language in LANGUAGES if "confidence." in text_of(known.said, language)]


def test_another_slice_makes_it_one_step_surer() -> None:
    known = confidence_in(Basis.VALUES, Excess(1.2, 1.0))
    assert seen_in(known, 1).certainty is Certainty.SUSPECTED
    assert seen_in(known, 3).certainty is Certainty.LIKELY
    assert seen_in(confidence_in(Basis.STRUCTURE, None), 9).certainty is Certainty.CERTAIN


@pytest.mark.parametrize(
    ("operator", "given", "basis", "certainty"),
    [
        ("scaled_dot_product_attention", 1e-6, Basis.UNMODELLED, Certainty.LIKELY),
        ("scaled_dot_product_attention", 0.0, Basis.VALUES, Certainty.CERTAIN),
        ("silu", 1e-6, Basis.VALUES, Certainty.CERTAIN),
    ],
)
def test_an_operator_without_a_model_that_was_given_errors_is_less_sure(
    operator: str, given: float, basis: Basis, certainty: Certainty
) -> None:
    confidence = found(Call(f"Functional.{operator}.9.forward", inputs=[given], outputs=[2e-5])).confidence
    assert confidence is not None
    assert (confidence.basis, confidence.certainty) == (basis, certainty)


@pytest.mark.parametrize(("error", "certainty"), [(0.1, Certainty.CERTAIN), (50 * U32, Certainty.LIKELY)])
def test_a_finding_carries_it(error: float, certainty: Certainty) -> None:
    confidence = found(Call(LINEAR, inputs=[0.0], outputs=[error])).confidence
    assert confidence is not None
    assert confidence.certainty is certainty
    assert confidence.basis is Basis.VALUES
    assert confidence.margin == pytest.approx(error / (32 * U32), rel=0.2)


def test_steps_that_show_the_same_node_are_counted() -> None:
    confidence = found(Call(LINEAR, inputs=[0.0], outputs=[50 * U32]), steps=3).confidence
    assert confidence is not None
    assert (confidence.slices, confidence.certainty) == (3, Certainty.CERTAIN)
    assert "This node is bad in 3 steps." in text_of(confidence.said)


@pytest.mark.parametrize("basis", Basis)
@pytest.mark.parametrize("excess", [None, Excess(5.0, 1.0), Excess(5e6, 1.0)])
@pytest.mark.parametrize("along", [None, "step", "rank", "token"])
def test_there_are_words_for_whatever_it_rests_on(
    basis: Basis, excess: Excess | None, along: str | None
) -> None:
    known = seen_in(confidence_in(basis, excess), 4, along)
    assert not [language for language in LANGUAGES if "confidence." in text_of(known.said, language)]


@pytest.mark.parametrize(
    ("basis", "doubt"),
    [(Basis.VALUES, ""), (Basis.STATISTICS, "lower bounds"), (Basis.UNMODELLED, "no error model")],
)
def test_what_a_number_leaves_open_is_said_after_it(basis: Basis, doubt: str) -> None:
    number, _, rest = text_of(confidence_in(basis, Excess(5.0, 1.0)).said).partition(". ")
    assert "5 times its limit" in number
    assert doubt in rest if doubt else not rest


def test_a_limit_says_what_it_is_the_limit_of() -> None:
    off = Call(LINEAR, inputs=[0.0], outputs=[0.1])
    other_weight = Call("Module.layers.0.mlp.Linear.forward.0", None, [0.0], [0.1], {"weight": 0.5})
    assert [quantity(off), quantity(other_weight)] == ["confidence.of_output", "confidence.of_weight"]


def quantity(call: Call) -> str:
    confidence = found(call).confidence
    assert confidence is not None
    what = confidence.said.arguments["what"]
    assert isinstance(what, Message)
    return what.id


def test_an_argument_that_differs_needs_no_number() -> None:
    confidence = found(Call(LINEAR, inputs=[0.0, (1.0, 2.0)], outputs=[0.5])).confidence
    assert confidence is not None
    assert (confidence.basis, confidence.margin) == (Basis.STRUCTURE, None)


def test_what_peers_alone_flag_is_a_suspect() -> None:
    layers = [
        Call(f"Module.layers.{n}.mlp.MLP.forward.0", inputs=[U32], outputs=[(24 if n == 3 else 4) * U32])
        for n in range(6)
    ]
    findings = conclude([judge(*layers).said])
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.confidence is not None
    assert findings.first_bad_node.confidence.certainty is Certainty.SUSPECTED
    assert "suspect" in findings.summary.arguments["node"].id


def test_other_rule_sets_do_not_say_how_sure_they_are() -> None:
    judged = judge(BEFORE, Call(LINEAR, inputs=[0.0], outputs=[0.5])).made.judge("msprobe").said
    first = conclude([judged]).first_bad_node
    assert first is None or first.confidence is None
