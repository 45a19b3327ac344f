"""What reasons say of inputs without an error, of one number beside another, and of evidence without one."""

import numpy as np
import pytest
from library.verdict.made_slices import Call, judge, make
from library.verdict.test_gain import by_statistics
from messages import outlines
from msgspec.structs import replace

from firstdrift.exports.capture import capture_config
from firstdrift.verdict.classes import ALL_CLASS_RULES, ENTERED
from firstdrift.verdict.confidence import Basis, confidence_in
from firstdrift.verdict.judgement import Finding, NodeClass
from firstdrift.verdict.pair_error import size
from firstdrift.verdict.shown_classes import shown_class
from firstdrift.verdict.slice_findings import WITHOUT_NUMBER
from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of

LINEAR = "Functional.linear.0.forward"
MLP = "Module.mlp.MLP.forward.0"
BEFORE = Call("Functional.silu.0.forward", inputs=[0.0], outputs=[0.0])


def first_by_statistics(*calls: Call) -> Finding:
    return by_statistics(make(BEFORE, *calls)).judge().first


def test_inputs_of_equal_statistics_are_not_explained_by_rounding() -> None:
    found = first_by_statistics(Call(MLP, inputs=[0.0], parameters={"weight": 1.0}, outputs=[0.9]))
    assert found.node_class is NodeClass.WEIGHTS_DIFFER
    said = found.reasons[0]
    assert said.id == "reason.weights_equal_inputs"
    assert said.arguments["equal"] == Message.of("reason.inputs_equal_statistics")
    assert "rounding" not in text_of(said)


def test_an_output_off_at_equal_statistics_says_so_and_inputs_match() -> None:
    found = first_by_statistics(Call(LINEAR, inputs=[0.0], outputs=[0.9]))
    assert found.reasons[0].id == "reason.equal_given"
    judged = by_statistics(make(BEFORE, Call(LINEAR, inputs=[0.0], outputs=[0.9]))).judge()
    assert judged.first.reasons[0].arguments["equal"] == Message.of("reason.inputs_equal_statistics")


def test_nodes_inside_that_are_equal_are_said_to_be() -> None:
    inside = judge(
        BEFORE, Call(LINEAR, MLP, inputs=[0.0], outputs=[0.0]), Call(MLP, outputs=[0.25])
    ).first.reasons
    assert [one.id for one in inside][:1] == ["reason.inside_equal"]


@pytest.mark.parametrize(
    ("error", "whole", "said"),
    [
        (0.2, 0.2, "number 0.2"),
        (0.2, 0.20001, "number 0.2"),
        (0.2, 0.196, "number 0.2"),
        (0.01, 0.3, "other_rows 0.01"),
        (0.2, float("inf"), "number 0.2"),
    ],
)
def test_an_error_is_one_number_and_says_which_rows_it_leaves_out(
    error: float, whole: float, said: str
) -> None:
    assert outlines([size(error, whole)]) == [said]


def test_an_argument_and_a_gradient_have_classes_of_their_own() -> None:
    found = judge(BEFORE, Call(LINEAR, inputs=[0.0, (1.0, 2.0)], outputs=[0.5])).first
    assert (found.node_class, found.rule) == (NodeClass.STRUCTURE_DIFFERS, "class.argument")
    assert found.class_shown == "argument differs"
    assert shown_class("structure differs", "class.one_sided_gradient") == "gradient missing"
    assert shown_class("structure differs", "class.shape") == "structure differs"


def test_what_a_finding_without_a_number_rests_on_goes_by_its_rule() -> None:
    argument = judge(BEFORE, Call(LINEAR, inputs=[0.0, (1.0, 2.0)], outputs=[0.5])).first.confidence
    assert argument is not None
    assert argument.basis is Basis.STRUCTURE


def test_every_rule_of_another_structure_says_what_its_finding_rests_on() -> None:
    others = {rule.name for rule in ALL_CLASS_RULES if rule.node_class is NodeClass.STRUCTURE_DIFFERS}
    assert WITHOUT_NUMBER.keys() | {"class.argument"} == others | {ENTERED.name}
    assert WITHOUT_NUMBER["class.one_sided_gradient"] is Basis.GRADIENTS
    said = confidence_in(Basis.GRADIENTS, None).said
    assert said.arguments["basis"] == Message.of("confidence.basis_gradients")


def test_a_bias_is_called_one_and_a_weight_is_named_by_its_place() -> None:
    for inputs, said in (([0.0, 0.0, 0.5], "bias (input.2)"), ([0.0, 0.5, 0.0], "input.1")):
        (reason, *_) = judge(Call("Functional.linear.0.forward", inputs=inputs, outputs=[0.5])).first.reasons
        assert reason.arguments["parameter"].arguments["name"] == said


def test_ids_that_differ_are_the_input_error_of_the_node_that_is_given_them() -> None:
    ids = np.arange(16), np.arange(16)[::-1].copy()
    judged = judge(
        Call("Functional.embedding.0.forward", inputs=[ids, 0.0], outputs=[0.5]),
        Call("Functional.linear.0.forward", inputs=[0.5, 0.0], outputs=[0.5]),
    )
    given = judged.of("Functional.embedding.0.forward")
    assert given.input_error == pytest.approx(np.linalg.norm(ids[1] - ids[0]) / np.linalg.norm(ids[0]))


def test_what_an_optimizer_did_is_not_captured_from_the_values_of_a_node() -> None:
    finding = judge(Call("Functional.linear.0.forward", inputs=[0.0], outputs=[0.5])).first
    finding = replace(finding, metrics={})
    assert capture_config(finding, "msprobe") is not None
    by_optimizer = replace(finding, reasons=(Message.of("reason.optimizer"),))
    assert capture_config(by_optimizer, "msprobe") is None


def test_a_backward_node_whose_forward_pass_is_off_says_so_and_a_forward_node_never_does() -> None:
    judged = judge(
        Call("Functional.linear.0.forward", inputs=[0.0, 0.5], outputs=[0.5]),
        Call("Functional.linear.0.backward", inputs=[0.0], outputs=[0.5]),
        Call("Functional.silu.0.forward", inputs=[0.5], outputs=[0.5]),
    )
    reasons = {
        name: [one.id for one in judged.of(f"Functional.{name}").reasons]
        for name in ("linear.0.backward", "silu.0.forward")
    }
    assert reasons == {
        "linear.0.backward": ["reason.forward_differs"],
        "silu.0.forward": ["reason.inputs_differ"],
    }
