"""The first sentence says why, where what was recorded tells: faults that were planted in real dumps."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from library.verdict.made_slices import Array, Call, judge, make, values_of, with_error
from messages import gaps_of, ids_of, outlines
from msgspec.structs import replace

from firstdrift import compare
from firstdrift.comparison.report import Report
from firstdrift.exports.report_json import finding_object
from firstdrift.exports.text import report_text
from firstdrift.model.node import Direction, NodeKind
from firstdrift.verdict.cause import _called_inside, with_values
from firstdrift.verdict.judgement import Finding, NodeClass, Verdict
from firstdrift.verdict.tree import TreeRow
from firstdrift.wording.message import Message, joined
from firstdrift.wording.text import text_of

PLANTED = {
    # The weight of a linear module is three times what it should be.
    "msprobe/llama_stat_mix_perturb": ["line_by_statistics weight times 3"],
    "msprobe/llama_stat_L0_perturb": ["line_by_statistics weight times 3"],
    "msprobe/llama_stat_L1_perturb": ["line_by_statistics weight times 3"],
    "msprobe/llama_md5_mix_perturb": ["line_by_statistics weight times 3"],
    "msprobe/llama_tensor_mix_perturb": ["line weight times 3"],
    "msprobe/mixtral_stat_mix_perturb": ["line_by_statistics weight times 3"],
    "msprobe/dp2_stat_mix": ["line_by_statistics weight times 3", "only_rank 1"],
    "msprobe/qwen25vl_layermap_stat_mix": ["line_by_statistics weight times 2"],
    "implementations/llama_wo": ["line_by_statistics weight times 1.3"],
    # It contains what is no number.
    "msprobe/llama_stat_mix_nan": ["contains weight nan"],
    "msprobe/llama_stat_mix_inf": ["contains weight infinities"],
    # A module gives 1.9 times what it should, by operators that golden does not call.
    "msprobe/d4_renamed": ["line_by_statistics output.0 times 1.9", "calls target mul add down_proj"],
    "engines/llama_cpp": ["line output.0 times 1.5"],
    "engines/sglang_passes": ["line output.0 times 1.5"],
    # Another activation, one expert of four, one part of what was fused.
    "implementations/llama_called_gelu": ["other_operator silu gelu"],
    "implementations/llama_turned_relu": [
        "other_operator silu relu",
        "values output.0 clipped 382 0 -0.28",
    ],
    "experts/stacked_off": ["values parameter.gate_up_proj in_index 1 0 4 there line times 1.1"],
    "implementations/latent_query": ["values parameter.weight in_indexes 0 19 0 36 there line times 1.3"],
}
"""What was planted in dumps, as the cause says it."""

HEALTHY = ("msprobe/llama_tensor_L0_bf16", "implementations/llama_healthy", "experts/listed_bfloat16")


@pytest.fixture(scope="module")
def reported(unpacked: Callable[[str], Path]) -> Callable[[str], Report]:
    def report(name: str) -> Report:
        folder = unpacked(name)
        return compare(folder / "golden", folder / "target")

    return report


@pytest.mark.parametrize("name", PLANTED)
def test_the_first_sentence_names_the_cause(reported: Callable[[str], Report], name: str) -> None:
    report = reported(name)
    summary = report.findings.summary
    assert "summary.with_cause" in ids_of(summary)
    found = report.findings.first_bad_node
    assert found is not None
    assert outlines(found.cause) == PLANTED[name]
    assert gaps_of(summary, "summary.with_cause")["cause"] == joined(*found.cause)
    assert (finding_object(found) or {})["cause"] == list(found.cause)
    assert all(text_of(sign) in report_text(report) for sign in found.cause)


@pytest.mark.parametrize("name", PLANTED)
def test_the_node_says_it_too(reported: Callable[[str], Report], name: str) -> None:
    report = reported(name)
    found = report.findings.first_bad_node
    assert found is not None
    here = next(one for one in report.slices if one.judgement.coordinates == found.coordinates)
    said = [sign for sign in found.cause if sign.id != "cause.only_rank"]
    assert set(said) <= set(here.judgement.rows[found.row].reasons)


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_the_cause_of_what_is_healthy(reported: Callable[[str], Report], name: str) -> None:
    report = reported(name)
    assert "summary.with_cause" not in ids_of(report.findings.summary)
    assert not any(origin.cause for one in report.slices for origin in one.judgement.origins)


def finding(tensor: str, node_class: NodeClass, cause: tuple[Message, ...] = ()) -> Finding:
    coordinates = make(Call("Functional.linear.0.forward", outputs=[0.0])).plan.target.coordinates
    return Finding(coordinates, "g", "t", None, tensor, node_class, Verdict.ERROR, (), {}, 0, cause=cause)


@pytest.mark.parametrize(
    ("tensor", "node_class", "said"),
    [
        ("parameter.bias", NodeClass.WEIGHTS_DIFFER, "line bias times 2"),
        ("input.1", NodeClass.WEIGHTS_DIFFER, "line weight times 2"),
        ("output.1", NodeClass.SOURCE, "line output.1 times 2"),
    ],
)
def test_a_factor_is_said_of_the_tensor_by_its_name(tensor: str, node_class: NodeClass, said: str) -> None:
    line = Message.of("hint.line", line=Message.of("hint.times", factor=2.0))
    shown = (Message.of("shown.values", tensor=tensor, hints=(line,)),)
    assert outlines(with_values(finding(tensor, node_class), shown).cause) == [said]


def test_operators_come_first_and_calls_inside_last() -> None:
    calls = Message.of("cause.calls", side="target", operators=("mul",), node="mlp")
    other = Message.of("cause.other_operator", golden="silu", target="gelu")
    shown = (Message.of("shown.values", tensor="output.0", hints=(Message.of("hint.flipped"),)),)
    found = with_values(finding("output.0", NodeClass.SOURCE, (calls, other)), shown)
    assert [sign.id for sign in found.cause] == ["cause.other_operator", "shown.values", "cause.calls"]


def test_the_size_of_a_difference_is_no_cause() -> None:
    hint = Message.of("hint.like_rounding", formats=("float16",))
    shown = (Message.of("shown.values", tensor="output.0", hints=(hint,)),)
    found = with_values(finding("output.0", NodeClass.SOURCE), shown)
    assert (found.shown, found.cause) == (shown, ())
    assert shown[0] in found.reasons


@pytest.mark.parametrize(
    ("tensor", "node_class", "said"),
    [
        ("input.1", NodeClass.WEIGHTS_DIFFER, "in the weight (input.1): target is zero everywhere"),
        ("input.1", NodeClass.SOURCE, "in input.1: target is zero everywhere"),
        ("parameter.w", NodeClass.WEIGHTS_DIFFER, "in parameter.w: target is zero everywhere"),
    ],
)
def test_a_weight_that_an_operator_is_given_is_called_one(
    tensor: str, node_class: NodeClass, said: str
) -> None:
    hint = Message.of("hint.zero", side=Message.of("side.target"))
    shown = (Message.of("shown.values", tensor=tensor, hints=(hint,)),)
    assert text_of(with_values(finding(tensor, node_class), shown).cause[0]) == said


def test_operators_that_both_call_are_no_cause() -> None:
    judged = make(
        Call("Functional.linear.0.forward", "Module.mlp.MLP.forward.0", inputs=[0.0], outputs=[0.5]),
        Call("Module.mlp.MLP.forward.0", inputs=[0.0], outputs=[0.5]),
    ).judge()
    assert judged.origins
    assert not any(origin.cause for origin in judged.said.origins)


@pytest.mark.parametrize(("inside", "causes"), [(0.0, ["after_inside Functional.linear.0 mlp"]), (0.4, [])])
def test_where_all_inside_matches_the_difference_arises_after_it(inside: float, causes: list[str]) -> None:
    judged = make(
        Call("Functional.linear.0.forward", "Module.mlp.MLP.forward.0", inputs=[0.0], outputs=[inside]),
        Call("Module.mlp.MLP.forward.0", inputs=[0.0], outputs=[0.5]),
    ).judge()
    found = [origin for origin in judged.said.origins if origin.module == "mlp" and origin.operator is None]
    assert [outlines(origin.cause) for origin in found if origin.cause] == ([causes] if causes else [])


def test_a_module_that_hands_on_what_is_inside_in_golden_alone_is_said_to_change_it() -> None:
    given = values_of("given")
    changed = with_error(given, 0.5, "changed")
    for golden, cause in ((given, "changed_after"), (values_of("another"), "after_inside")):
        target = changed if golden is given else with_error(golden, 0.5, "changed")
        judged = make(
            Call(
                "Functional.linear.0.forward",
                "Module.mlp.MLP.forward.0",
                inputs=[0.0],
                outputs=[(given, given)],
            ),
            Call("Module.mlp.MLP.forward.0", inputs=[0.0], outputs=[(golden, target)]),
        ).judge()
        (origin,) = judged.said.origins
        assert outlines(origin.cause) == [f"{cause} Functional.linear.0 mlp"]


def test_a_weight_that_a_later_operator_takes_again_is_one_suspect(
    reported: Callable[[str], Report],
) -> None:
    findings = reported("msprobe/dp2_stat_mix").findings
    assert findings.first_bad_node is not None
    assert findings.suspects == ()


def test_cause_and_note_tell_an_order_in_one_direction(reported: Callable[[str], Report]) -> None:
    report = reported("experts/stacked_swapped")
    note = next(note for note in report.slices[0].plan.notes if note.id == "matching.note.experts_swapped")
    order = gaps_of(report.findings.summary, "hint.reordered")["order"]
    assert order == note.arguments["order"] == ("2", "0", "3", "1")


FIRST, SECOND = (values_of(f"weight {at}", (32, 32)) for at in (0, 1))


def layers(*weights: tuple[Array, Array]) -> list[Call]:
    """Return layers with these weights of golden and target, and others with equal ones."""
    others = [(values_of(f"weight {at}", (32, 32)),) * 2 for at in range(2, 12)]
    return [
        Call(
            f"Module.layers.{at}.Linear.forward.0",
            None,
            [0.0],
            [0.4 if at < len(weights) else 0.0],
            {"weight": pair},
        )
        for at, pair in enumerate([*weights, *others])
    ]


@pytest.mark.parametrize("rounded", [False, True], ids=["float32", "bfloat16"])
def test_weights_that_are_exchanged_are_named(*, rounded: bool) -> None:
    dtype = "bfloat16" if rounded else "float32"
    both = [(FIRST, SECOND.astype(values_of("", dtype=dtype).dtype)), (SECOND, FIRST)]
    first, second = judge(*layers(*both)).said.origins
    assert outlines(first.cause) == ["exchanged layers.1"]
    assert outlines(second.cause) == ["exchanged layers.0"]


def test_a_weight_of_another_node_is_named() -> None:
    (first,) = judge(*layers((FIRST, SECOND), (SECOND, SECOND))).said.origins[:1]
    assert outlines(first.cause) == ["of_other layers.1"]


def test_other_weights_are_those_of_no_other_node() -> None:
    other = with_error(FIRST, 0.3, "another")
    (origin,) = judge(*layers((FIRST, other))).said.origins
    assert origin.cause == ()


def test_a_weight_that_lost_a_row_has_changed_places_with_none() -> None:
    weights = [values_of(f"tall {at}", (512, 32), "bfloat16") for at in range(16)]
    lost = weights[0].copy()
    lost[-1] = 0
    (origin,) = judge(*layers((weights[0], lost), *((one, one) for one in weights[1:]))).said.origins[:1]
    assert (origin.module, origin.cause) == ("layers.0", ())


@pytest.mark.parametrize(("others", "causes"), [(12, ["other_class GELU SiLU"]), (2, [])])
def test_the_class_of_a_module_is_a_cause_where_others_have_the_same(others: int, causes: list[str]) -> None:
    made = make(Call("Module.act.GELU.forward.0", None, [0.0], [0.3]), *layers()[:others])
    named = tuple(
        replace(row, target=(row.target[0].replace("GELU", "SiLU"),)) if "GELU" in row.target[0] else row
        for row in made.rows
    )
    (origin,) = replace(made, rows=named).judge().said.origins
    assert outlines(origin.cause) == causes


def test_a_weight_that_one_side_alone_has_twice_is_named() -> None:
    first, *_ = judge(*layers((FIRST, SECOND), (FIRST, FIRST))).said.origins
    assert outlines(first.cause) == ["tied golden target layers.1"]


def test_a_weight_of_one_number_is_tied_to_none() -> None:
    ones = np.ones_like(FIRST)
    first, *_ = judge(*layers((ones, FIRST), (ones, ones))).said.origins
    assert not any(sign.id == "cause.tied" for sign in first.cause)


@pytest.mark.parametrize("is_known", [False, True])
def test_what_might_be_is_said_only_where_the_cause_is_not_known(*, is_known: bool) -> None:
    might = Message("reason.order_of_weights")
    origin = replace(finding("output.0", NodeClass.SOURCE), reasons=(might,))
    shown = Message.of("shown.statistics", tensor="output.0", hint=Message("hint.signs_by_statistics"))
    assert with_values(origin, (shown,) if is_known else ()).reasons == (() if is_known else (might,))


@pytest.mark.parametrize(
    ("node_class", "step", "is_cause"),
    [(NodeClass.WEIGHTS_DIFFER, 0, True), (NodeClass.WEIGHTS_DIFFER, 1, False), (NodeClass.SOURCE, 0, False)],
)
def test_a_low_rank_is_the_cause_of_weights_that_no_step_trained(
    node_class: NodeClass, step: int, *, is_cause: bool
) -> None:
    hint = Message.of("hint.low_rank", rank=2, most=64)
    shown = (Message.of("shown.values", tensor="input.1", hints=(hint,)),)
    origin = finding("input.1", node_class)
    found = with_values(replace(origin, coordinates=replace(origin.coordinates, step=step)), shown)
    assert bool(found.cause) is is_cause


def test_what_entered_inside_arises_between_what_matches_and_the_node_that_it_entered() -> None:
    around = "Module.attn.Attention.forward.0"
    judged = make(
        Call("Module.attn.kv.Linear.forward.0", around, inputs=[0.0], outputs=[0.0]),
        Call("Module.attn.o.Linear.forward.0", around, inputs=[0.2], outputs=[0.2]),
        Call(around, inputs=[0.0], outputs=[0.8]),
    ).judge()
    (first,) = judged.said.origins
    assert (first.module, first.rule) == ("attn", "class.entered")
    assert outlines(first.cause) == ["between kv o"]


def test_what_is_off_inside_does_not_match() -> None:
    judged = make(
        Call("Functional.linear.0.forward", "Module.mlp.MLP.forward.0", inputs=[0.0], outputs=[0.1]),
        Call("Module.mlp.MLP.forward.0", inputs=[0.0], outputs=[0.9]),
    ).judge()
    assert not any(sign.id == "cause.after_inside" for one in judged.said.origins for sign in one.cause)


@pytest.mark.parametrize(
    ("times", "said"), [(-1.0, "left_out output.0 input.0"), (1.0, "added_again output.0 input.0")]
)
def test_an_input_that_one_run_alone_adds_is_named(times: float, said: str) -> None:
    given, made = values_of("given", (64, 64)) + np.float32(0.2), values_of("made", (64, 64))
    call = Call(
        "Module.block.Block.forward.0", inputs=[(given, given)], outputs=[(made, made + times * given)]
    )
    (first,) = judge(call).said.origins
    assert outlines(first.cause) == [said]


@pytest.mark.parametrize("off", [0.0, 0.01])
def test_an_input_around_zero_or_another_difference_is_none(off: float) -> None:
    given, made = values_of("given", (64, 64)), values_of("made", (64, 64))
    given = given - given.mean() if not off else given + np.float32(0.2)
    call = Call("Module.block.Block.forward.0", inputs=[(given, given)], outputs=[(made, made - given + off)])
    (first,) = judge(call).said.origins
    assert not any(sign.id in {"cause.left_out", "cause.added_again"} for sign in first.cause)


def test_a_single_number_has_no_term_that_a_mean_would_tell() -> None:
    given, made = np.full((), 0.2, "float32"), np.full((), 0.5, "float32")
    call = Call("Module.loss.Loss.forward.0", inputs=[(given, given)], outputs=[(made, made - given)])
    assert not any(sign.id == "cause.left_out" for one in judge(call).said.origins for sign in one.cause)


def called(place: int, operator: str, *, golden: bool = True, target: bool = True) -> TreeRow:
    name = f"Torch.{operator}.{place}.forward"
    names = ((name,) if golden else (), (name,) if target else ())
    label, type_name = f"Torch.{operator}.{place}", f"Torch.{operator}"
    match = place if golden and target else None
    kind, forward = NodeKind.API, Direction.FORWARD
    return TreeRow(place, 0, place, 1, place, label, kind, type_name, forward, *names, match, "norm", None)


def test_an_operator_that_both_runs_call_is_not_said_to_be_called_by_one_alone() -> None:
    inside = [
        called(1, "mul"),
        called(2, "mul", golden=False),
        called(3, "tanh", golden=False),
        called(4, "exp", golden=False),
        called(5, "exp", target=False),
    ]
    name = ("Module.norm.Norm.forward.0",)
    norm = TreeRow(
        *(0, None, len(inside), 0, 6, "norm", NodeKind.MODULE, "Norm", Direction.FORWARD),
        *(name, name, 0, "norm", None),
    )
    said = list(_called_inside([norm, *inside], norm))
    assert outlines(said) == ["calls target tanh norm", "calls_more target golden mul norm"]
    assert text_of(said[1]) == "inside norm, target calls mul more often than golden"
