"""Where an error begins, and where it only passes through."""

import itertools
import math
from itertools import pairwise
from operator import mul

import numpy as np
import pytest
from library.verdict.made_slices import SHAPE, Call, Values, judge, make, values_of, with_error
from messages import gaps_of, outline, outlines
from msgspec.structs import replace

from firstdrift.matching.tensors import shapes_differ
from firstdrift.model.slice import Coordinates
from firstdrift.verdict.judge import RULES
from firstdrift.verdict.judgement import NodeClass, Verdict
from firstdrift.verdict.tokens import how_far_off

U32, U16 = 2.0**-24, 2.0**-9
"""Unit roundoff of float32 and of bfloat16."""

MLP = "Module.mlp.MLP.forward.0"
LINEAR = "Functional.linear.0.forward"
BEFORE = Call("Functional.silu.0.forward", inputs=[0.0], outputs=[0.0])
"""Something that ran before and agrees, so that what follows is not the model's input."""


def layers(count: int, output: float, odd: dict[int, float], **more: object) -> list[Call]:
    """Return the same module of several layers, with output errors of their own for some of them."""
    return [
        Call(
            f"Module.layers.{layer}.mlp.MLP.forward.0",
            inputs=[U32],
            outputs=[odd.get(layer, output)],
            **more,  # type: ignore[arg-type]
        )
        for layer in range(count)
    ]


# --- what makes an error ----------------------------------------------------------------------------


def test_an_operator_whose_inputs_agree_and_whose_output_does_not_is_the_source() -> None:
    judged = judge(BEFORE, Call(LINEAR, inputs=[1e-6], outputs=[0.3]))
    assert judged.origins == [LINEAR]
    assert judged.first.node_class == NodeClass.SOURCE
    assert outlines(judged.first.reasons) == ["inputs_agree number 1e-06 number 0.3"]
    assert judged.first.tensor == "output.0"
    assert judged.first.metrics["relative_l2"] == pytest.approx(0.3, rel=1e-3)


def test_equal_inputs_are_said_to_be_equal() -> None:
    judged = judge(BEFORE, Call(LINEAR, inputs=[0.0], outputs=[0.3]))
    assert outlines(judged.first.reasons) == ["equal_inputs number 0.3"]


def test_a_node_that_passes_an_error_on_is_not_its_source() -> None:
    following = Call("Functional.linear.1.forward", inputs=[0.3], outputs=[0.6])
    judged = judge(BEFORE, Call(LINEAR, inputs=[0.0], outputs=[0.3]), following)
    assert judged.origins == [LINEAR]
    said = judged.of(following.name)
    assert said.node_class == NodeClass.PROPAGATED
    assert said.verdict == Verdict.ERROR
    assert said.amplification == pytest.approx(2.0, rel=2e-2)


def test_a_node_that_makes_a_bad_input_much_worse_amplifies() -> None:
    following = Call("Functional.linear.1.forward", inputs=[0.1], outputs=[2.0])
    judged = judge(BEFORE, Call(LINEAR, inputs=[0.0], outputs=[0.1]), following)
    assert judged.origins == [LINEAR]
    assert judged.of(following.name).node_class == NodeClass.AMPLIFIED


def test_a_node_of_which_no_output_was_recorded_passes_on_the_error_that_it_is_given() -> None:
    backward = "Module.model.Model.backward.0"
    at_fault = Call(LINEAR, inputs=[0.0], outputs=[0.3])
    for given, said in ((0.3, NodeClass.PROPAGATED), (1e-7, NodeClass.CLEAN)):
        made = make(BEFORE, at_fault, Call(backward, inputs=[given]))
        assert [made.judge(rules).of(backward).node_class for rules in RULES] == [said] * len(RULES)
        is_bad = made.judge().of(backward).verdict is Verdict.ERROR
        assert is_bad is (said is NodeClass.PROPAGATED)


@pytest.mark.parametrize(
    ("token", "error", "said"),
    [
        (0, 40 * U32, NodeClass.PROPAGATED),  # other tokens may show it to be bad
        (0, 20 * U32, NodeClass.CLEAN),
        (None, 40 * U32, NodeClass.CLEAN),
        (None, 2e-3, NodeClass.PROPAGATED),  # it may have drifted
    ],
)
def test_what_the_model_gives_is_not_clean_where_it_may_be_bad(
    token: int | None, error: float, said: NodeClass
) -> None:
    errors = [error * 2.0**-n for n in range(14, -1, -1)]
    names = [*(f"Functional.linear.{n}.forward" for n in range(13)), "Module.lm_head.Linear.forward.0"]
    calls = [
        Call(name, inputs=[before], outputs=[after])
        for name, (before, after) in zip(names, itertools.pairwise(errors), strict=True)
    ]
    made = make(BEFORE, *calls, coordinates=Coordinates(step=0, token=token))
    for rules in RULES:
        judged = made.judge(rules)
        assert judged.of(calls[-1].name).node_class is said
        assert all(judged.of(name).node_class is NodeClass.CLEAN for name in names[:-1])


def test_a_node_that_takes_an_error_away_heals() -> None:
    following = Call("Functional.relu.0.forward", inputs=[0.1], outputs=[1e-7])
    judged = judge(BEFORE, Call(LINEAR, inputs=[0.0], outputs=[0.1]), following)
    assert judged.of(following.name).node_class == NodeClass.HEALED


def test_one_wrong_row_among_many_is_seen() -> None:
    golden = values_of("rows", (512, 32))
    target = golden.copy()
    target[100] *= 1.05
    judged = judge(BEFORE, Call(LINEAR, inputs=[0.0], outputs=[(golden, target)]))
    assert judged.first.metrics["relative_l2"] == pytest.approx(0.05 / np.sqrt(512), rel=0.2)
    assert judged.of(LINEAR).output_error == pytest.approx(0.05, rel=0.2)


@pytest.mark.parametrize(("dtype", "roundoff"), [("float32", U32), ("bfloat16", U16)])
def test_rounding_of_the_dtype_is_no_error(dtype: str, roundoff: float) -> None:
    calls = [
        Call(f"Functional.linear.{n}.forward", inputs=[roundoff], outputs=[3 * roundoff]) for n in range(4)
    ]
    judged = judge(*calls, dtype=dtype)
    assert judged.origins == []
    assert all(row.node_class == NodeClass.CLEAN for row in judged.said.rows)


@pytest.mark.parametrize(
    ("name", "is_found"), [(LINEAR, True), ("Module.attention.Attention.forward.0", False)]
)
def test_one_operator_of_a_coarse_dtype_gathers_less_than_a_module(name: str, is_found: bool) -> None:
    judged = judge(BEFORE, Call(name, inputs=[0.0], outputs=[12 * U16]), dtype="bfloat16")
    assert bool(judged.origins) is is_found


@pytest.mark.parametrize(("roundoffs", "is_found"), [(20, False), (60, True)])
def test_an_error_has_to_stand_above_what_a_node_gathers_inside(roundoffs: float, is_found: bool) -> None:
    judged = judge(BEFORE, Call(LINEAR, inputs=[0.0], outputs=[roundoffs * U32]))
    assert bool(judged.origins) is is_found


def chain(*factors: float) -> list[Call]:
    """Return operators that each multiply the error they are given."""
    errors = list(itertools.accumulate((16 * U32, *factors), mul))
    return [
        Call(f"Functional.linear.{n}.forward", inputs=[before], outputs=[after])
        for n, (before, after) in enumerate(itertools.pairwise(errors))
    ]


def test_an_error_has_to_be_several_times_what_came_in() -> None:
    assert judge(*chain(2, 2, 2.5, 2, 2, 2, 2)).origins == [], "drift has no single source"
    assert judge(*chain(2, 2, 4.5, 2, 2, 2, 2)).origins == ["Functional.linear.2.forward"]


# --- modules and what they contain ------------------------------------------------------------------


def test_the_operator_is_named_before_the_modules_that_contain_it() -> None:
    judged = judge(
        BEFORE,
        Call(LINEAR, MLP, inputs=[0.0], outputs=[0.3]),
        Call(MLP, "Module.block.Block.forward.0", inputs=[0.0], outputs=[0.3]),
        Call("Module.block.Block.forward.0", inputs=[0.0], outputs=[0.2]),
    )
    assert judged.origins == [LINEAR]
    assert judged.first.module == "mlp"
    for name in (MLP, "Module.block.Block.forward.0"):
        assert judged.of(name).node_class == NodeClass.PROPAGATED
        assert tuple(outlines(judged.of(name).reasons)) == ("begins_inside",)
        assert judged.of(name).below.origins == 1


def test_a_module_may_show_the_rounding_of_what_it_contains() -> None:
    steps = [1e-6, 4e-6, 1.5e-5, 5e-5, 1.6e-4]
    inside = [
        Call(f"Functional.linear.{n}.forward", MLP, inputs=[before], outputs=[after])
        for n, (before, after) in enumerate(itertools.pairwise(steps))
    ]
    healthy = judge(*inside, Call(MLP, inputs=[1e-6], outputs=[2e-4]), dtype="float32")
    assert healthy.of(MLP).node_class != NodeClass.SOURCE
    alone = judge(BEFORE, Call(MLP, inputs=[1e-6], outputs=[2e-4]))
    assert alone.origins == [MLP], "with nothing recorded inside, the same numbers are a fault"


def test_a_module_whose_own_code_spoils_its_output_is_the_source() -> None:
    judged = judge(
        BEFORE,
        Call(LINEAR, MLP, inputs=[1e-7], outputs=[2e-7]),
        Call(MLP, inputs=[1e-7], outputs=[0.4]),
    )
    assert judged.origins == [MLP]


def test_an_input_that_nothing_explains_is_blamed_on_the_module_around() -> None:
    judged = judge(
        BEFORE,
        Call("Functional.linear.1.forward", MLP, inputs=[1e-7], outputs=[2e-7]),
        Call(LINEAR, MLP, inputs=[0.3], outputs=[0.3]),
        Call(MLP, inputs=[1e-7], outputs=[0.3]),
    )
    assert judged.origins == [MLP]
    assert tuple(outlines(judged.first.reasons)) == (("entered_inside Functional.linear.0 number 0.3"),)
    assert judged.first.tensor == "output.0", "a tensor of the module that is named"


def test_an_input_that_an_earlier_output_explains_blames_nobody_else() -> None:
    judged = judge(
        BEFORE,
        Call("Functional.linear.1.forward", inputs=[0.0], outputs=[0.3]),
        Call(LINEAR, MLP, inputs=[0.3], outputs=[0.3]),
        Call(MLP, inputs=[1e-7], outputs=[0.3]),
    )
    assert judged.origins == ["Functional.linear.1.forward"]


def test_with_outputs_alone_the_first_that_differs_is_named() -> None:
    calls = [
        Call(f"Functional.linear.{n}.forward", outputs=[error])
        for n, error in enumerate((1e-7, 2e-7, 0.2, 0.5))
    ]
    judged = judge(*calls)
    assert judged.origins == ["Functional.linear.2.forward"]
    assert outlines(judged.first.reasons) == [
        "first_to_differ number 0.2",
    ]


# --- parameters, arguments, shapes --------------------------------------------------------------------


def test_a_parameter_that_differs_is_told_apart_from_a_fault_of_the_operator() -> None:
    judged = judge(BEFORE, Call(MLP, inputs=[1e-6], parameters={"weight": 1.0}, outputs=[0.9]))
    assert judged.first.node_class == NodeClass.WEIGHTS_DIFFER
    assert judged.first.tensor == "parameter.weight"
    assert outlines(judged.first.reasons) == [
        "weights parameter_differs_by weight number 1 number 1e-06 number 0.9",
    ]


def test_the_error_that_is_said_is_that_of_the_worst_row() -> None:
    table, output = values_of("table"), values_of("output")
    other_table, other_output = table.copy(), output.copy()
    other_table[3], other_output[3] = table[3] * 1.5, output[3] * 1.25
    call = Call(
        MLP, inputs=[0.0], parameters={"weight": (table, other_table)}, outputs=[(output, other_output)]
    )
    judged = judge(BEFORE, call)
    weight, given, gave = "number 0.5", "inputs_equal", "number 0.25"
    assert outlines(judged.first.reasons) == [
        f"weights_equal_inputs parameter_differs_by weight {weight} {given} {gave}"
    ]
    assert judged.first.metrics["relative_l2"] == pytest.approx(0.5 / 4)  # one of 16 rows
    assert gaps_of(how_far_off(judged.said), "size.number")["error"] == pytest.approx(0.25)
    inside = judge(
        BEFORE,
        Call(LINEAR, MLP, inputs=[0.0], outputs=[(output, with_error(output, 1e-6, "near"))]),
        Call(MLP, outputs=[(output, other_output)]),
    )
    assert outlines(inside.first.reasons) == [
        "inside_agrees number 1e-06 number 0.25",
    ]


def test_the_weight_of_a_linear_operator_is_a_parameter() -> None:
    judged = judge(BEFORE, Call(LINEAR, inputs=[0.0, 0.5], outputs=[0.5]))
    assert judged.first.node_class == NodeClass.WEIGHTS_DIFFER
    assert judged.first.tensor == "input.1"


def test_a_parameter_that_differs_without_harm_is_a_warning() -> None:
    padding = values_of("table", (50, 8))
    other = padding.copy()
    other[-1] = 7.0
    judged = judge(BEFORE, Call(MLP, inputs=[0.0], parameters={"weight": (padding, other)}, outputs=[0.0]))
    assert judged.origins == []
    assert judged.of(MLP).node_class == NodeClass.WEIGHTS_DIFFER
    assert judged.of(MLP).verdict == Verdict.WARNING


def test_after_what_changes_no_number_rounding_is_rounding() -> None:
    table = values_of("table", (50, 8))
    other = table.copy()
    other[0] = 7.0
    errors = [U32, *(U32 * 2.5**n for n in range(1, 5)), *(40 * U32 * 1.4**n for n in range(8))]
    gathered = [
        Call(f"Functional.linear.{n}.forward", inputs=[before], outputs=[after])
        for n, (before, after) in enumerate(itertools.pairwise(errors))
    ]
    of_other_shapes = (table, values_of("table", (3, 3)))
    for weights, output, warnings in (
        ((table, table), 0.0, 0),
        ((table, other), 0.0, 1),
        ((table, table), of_other_shapes, 0),
    ):
        embedding = Call(MLP, inputs=[0.0], parameters={"weight": weights}, outputs=[output])
        counts = judge(embedding, *gathered).said.counts
        assert (counts.warning, counts.error) == (warnings, 0)


def test_parameters_in_a_coarser_dtype_do_not_differ() -> None:
    golden = values_of("weight")
    cast = golden.astype(values_of("", dtype="bfloat16").dtype)
    judged = judge(
        BEFORE,
        Call(MLP, inputs=[0.0], parameters={"weight": (golden, cast)}, outputs=[U16]),
        dtype="bfloat16",
    )
    assert judged.origins == []
    assert judged.of(MLP).node_class == NodeClass.CLEAN


@pytest.mark.parametrize(("step", "expected"), [(0, NodeClass.WEIGHTS_DIFFER), (1, NodeClass.CLEAN)])
def test_after_the_first_step_parameters_carry_the_rounding_of_training(
    step: int, expected: NodeClass
) -> None:
    call = Call(MLP, inputs=[0.0], parameters={"weight": 5e-4}, outputs=[6e-4])
    judged = judge(BEFORE, call, coordinates=Coordinates(step=step))
    assert judged.of(MLP).node_class == expected


def test_another_argument_is_another_call() -> None:
    judged = judge(BEFORE, Call("Torch.mul.0.forward", inputs=[0.0, (0.001, 0.01)], outputs=[9.0]))
    assert judged.first.node_class == NodeClass.STRUCTURE_DIFFERS
    assert outlines(judged.first.reasons) == ["argument_times input.1 0.001 0.01 10"]


def test_an_argument_of_a_known_operator_is_called_by_its_name() -> None:
    name = "Functional.batch_norm.0.forward"
    judged = judge(Call(name, inputs=[0.0, *[0.0] * 6, (1e-5, 1e-3)], outputs=[0.3]))
    assert outlines(judged.first.reasons) == ["argument_times eps (input.7) 1e-05 0.001 1e+02"]


@pytest.mark.parametrize(
    ("arguments", "factor"),
    [((0.25, 0.325), 1.3), ((1e-5, 1e-6), 0.1), ((0.99999, 0.9999), None), ((0.0, 1.0), None)],
)
def test_another_argument_is_told_with_its_factor_where_three_digits_tell_it(
    arguments: tuple[float, float], factor: float | None
) -> None:
    judged = judge(BEFORE, Call("Torch.mul.0.forward", inputs=[0.0, arguments], outputs=[0.3]))
    (reason,) = judged.first.reasons
    assert reason.arguments.get("factor") == (None if factor is None else pytest.approx(factor))


def test_an_argument_that_a_dump_calls_a_number_and_is_none_has_no_factor() -> None:
    made = make(BEFORE, Call("Torch.mul.0.forward", inputs=[0.0, (2.0, math.inf)], outputs=[0.3]))
    pairs = tuple(
        replace(one, golden=replace(one.golden, scalar="two")) if one.golden.scalar == "2.0" else one
        for one in made.plan.pairs
    )
    judged = replace(made, plan=replace(made.plan, pairs=pairs)).judge()
    (reason,) = judged.first.reasons
    assert (reason.id, reason.arguments["golden"]) == ("reason.argument", "two")


def test_text_that_says_what_is_computed_is_another_argument_and_a_device_is_none() -> None:
    for arguments, known in (
        (("mean", "sum"), NodeClass.STRUCTURE_DIFFERS),
        (("cuda:0", "npu:3"), NodeClass.SOURCE),
    ):
        judged = judge(BEFORE, Call("Functional.mse_loss.0.forward", inputs=[0.0, arguments], outputs=[0.3]))
        assert judged.first.node_class == known, arguments
    quiet = judge(
        BEFORE, Call("Functional.mse_loss.0.forward", inputs=[0.0, ("sdpa", "eager")], outputs=[0.0])
    )
    assert quiet.origins == []


@pytest.mark.parametrize("arguments", [(float("inf"), 4.0), (1.0, float("-inf"))])
def test_a_limit_that_only_one_run_has_is_another_argument(arguments: tuple[float, float]) -> None:
    judged = judge(BEFORE, Call("Torch.clamp.0.forward", inputs=[0.0, arguments], outputs=[0.3]))
    assert judged.first.node_class == NodeClass.STRUCTURE_DIFFERS


@pytest.mark.parametrize(
    "arguments",
    [("cuda:0", "npu:0"), (-65504.0, -3.3895313892515355e38), (1.0, 1.0 + 1e-9), (1, 1.0)],
    ids=["device", "lowest number", "rounding", "type"],
)
def test_arguments_that_differ_between_healthy_runs_are_no_reason(arguments: tuple[object, object]) -> None:
    judged = judge(BEFORE, Call("Torch.mul.0.forward", inputs=[0.0, arguments], outputs=[0.3]))
    assert judged.first.node_class == NodeClass.SOURCE
    quiet = judge(BEFORE, Call("Torch.mul.0.forward", inputs=[0.0, arguments], outputs=[0.0]))
    assert quiet.origins == []
    assert quiet.said.counts.warning == 0


def test_memory_that_is_written_over_is_no_error_before_a_fault_or_after_it() -> None:
    memory = np.arange(16) * 10**17, np.zeros(16, np.int64)
    for error in (0.0, 0.5):
        judged = judge(
            Call(LINEAR, inputs=[0.0], outputs=[error]),
            Call("Tensor.__setitem__.0.forward", inputs=[memory, 0.0], outputs=[0.0]),
        )
        said = judged.of("Tensor.__setitem__.0.forward")
        assert (said.verdict, said.node_class) == (Verdict.PASS, NodeClass.CLEAN)
        assert judged.said.counts.error == bool(error)


def test_an_output_of_another_shape_is_said_to_be_so_and_not_compared() -> None:
    shapes = values_of("a", (4, 8)), values_of("a", (4, 9))
    judged = judge(BEFORE, Call(LINEAR, inputs=[0.0], outputs=[shapes]))
    said = judged.of(LINEAR)
    assert said.node_class == NodeClass.STRUCTURE_DIFFERS
    assert said.verdict == Verdict.INCOMPARABLE
    assert said.reasons == (shapes_differ((4, 8), (4, 9)),)
    assert judged.said.counts.incomparable == 1


def test_a_mask_of_booleans_against_one_of_numbers_says_nothing() -> None:
    booleans = np.tril(np.ones((16, 16), bool))
    numbers = np.where(booleans, 0.0, -3.4028235e38).astype(np.float32)
    for masks in ((booleans, numbers), (numbers, booleans)):
        judged = judge(
            Call(MLP, inputs=[0.0, masks], outputs=[1e-7]), Call(LINEAR, inputs=[0.0], outputs=[1e-7])
        )
        assert judged.origins == []
        assert judged.said.input_difference is None
        assert judged.said.counts.incomparable == 1


# --- numbers that are not finite ----------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_first_non_finite_value_is_named_as_such(value: float) -> None:
    golden = values_of("x")
    bad = golden.copy()
    bad[3, 5] = value
    judged = judge(
        BEFORE,
        Call(LINEAR, inputs=[0.0], outputs=[(golden, bad)]),
        Call("Functional.relu.0.forward", inputs=[(golden, bad)], outputs=[(golden, bad)]),
    )
    assert judged.origins == [LINEAR]
    assert judged.first.node_class == NodeClass.NON_FINITE
    what = "nan" if np.isnan(value) else "infinity"
    assert outlines(judged.first.reasons) == [f"non_finite {what} target output"]
    assert [(found.node, found.level) for found in judged.said.overflow] == [
        (LINEAR, "critical"),
        ("Functional.relu.0.forward", "high"),
    ]
    assert judged.of("Functional.relu.0.forward").verdict == Verdict.ERROR


def test_what_swallows_a_non_finite_value_is_of_medium_level() -> None:
    golden = values_of("x")
    bad = golden.copy()
    bad[0, 0] = np.nan
    judged = judge(
        BEFORE,
        Call(LINEAR, inputs=[0.0], outputs=[(golden, bad)]),
        Call("Torch.nan_to_num.0.forward", inputs=[(golden, bad)], outputs=[0.0]),
    )
    assert judged.said.overflow[1].level == "medium"


def test_non_finite_values_on_both_sides_are_no_finding() -> None:
    golden = values_of("x")
    golden[0] = -np.inf
    judged = judge(BEFORE, Call(LINEAR, inputs=[0.0], outputs=[(golden, golden.copy())]))
    assert judged.origins == []
    assert judged.said.overflow == ()


@pytest.mark.parametrize("masks", [(-3.4028235e38, -65504.0), (-np.inf, -3.3895314e38), (-65504.0, -np.inf)])
def test_masks_that_mean_the_same_are_the_same(masks: tuple[float, float]) -> None:
    shape = (16, 16)
    kept = np.tril(np.ones(shape, bool))
    golden, target = (np.where(kept, values_of("m", shape), np.float32(value)) for value in masks)
    judged = judge(
        BEFORE, Call("Torch.add.0.forward", inputs=[0.0, (golden, target)], outputs=[(golden, target)])
    )
    assert judged.origins == []
    assert judged.of("Torch.add.0.forward").output_error == 0.0


# --- ties ---------------------------------------------------------------------------------------------


def chosen(*places: int) -> np.ndarray:
    return np.array([[*places]], np.int64)


def test_another_choice_among_nearly_equal_values_is_no_fault() -> None:
    router = Call("Module.gate.Router.forward.0", inputs=[2e-7], outputs=[3e-7, (chosen(1, 2), chosen(2, 1))])
    judged = judge(BEFORE, router)
    assert judged.origins == []
    said = judged.of(router.name)
    assert said.node_class == NodeClass.CLEAN
    assert said.verdict == Verdict.WARNING
    assert outlines(said.reasons) == [
        "tie",
    ]


@pytest.mark.parametrize(
    ("inputs", "verdict", "node_class", "reason"),
    [
        ([2e-7], Verdict.WARNING, NodeClass.CLEAN, "tie"),
        ([0.3], Verdict.ERROR, NodeClass.PROPAGATED, "inputs_differ number 0.3"),
        (
            [2e-7, (chosen(1, 2), chosen(2, 1))],
            Verdict.ERROR,
            NodeClass.PROPAGATED,
            "inputs_differ other_numbers",
        ),
        ([], Verdict.ERROR, NodeClass.PROPAGATED, "above_rounding"),
    ],
)
def test_after_a_fault_another_choice_is_a_tie_where_inputs_agree(
    inputs: list[Values], verdict: Verdict, node_class: NodeClass, reason: str
) -> None:
    router = Call("Module.gate.Router.forward.0", inputs=inputs, outputs=[(chosen(1, 2), chosen(2, 1))])
    judged = judge(BEFORE, Call(LINEAR, inputs=[0.0], outputs=[0.3]), router)
    assert judged.origins == [LINEAR]
    said = judged.of(router.name)
    assert (said.verdict, said.node_class) == (verdict, node_class)
    assert outline(said.reasons[0]).startswith(reason)


def test_what_was_gathered_by_another_choice_does_not_count() -> None:
    router = Call(
        "Module.gate.Router.forward.0", inputs=[2e-7], outputs=[3e-7, 0.8, (chosen(1, 2), chosen(2, 1))]
    )
    judged = judge(BEFORE, router)
    assert judged.origins == []
    assert judged.of(router.name).output_error == pytest.approx(3e-7, rel=0.2)


def test_another_choice_from_equal_values_is_a_fault() -> None:
    top = Call("Torch.topk.0.forward", inputs=[0.0], outputs=[(chosen(1, 2), chosen(1, 3))])
    judged = judge(BEFORE, top)
    assert judged.origins == [top.name]
    assert outlines(judged.first.reasons) == ["other_numbers"]


def test_what_was_picked_by_other_indices_is_explained_by_them() -> None:
    pick = Call("Tensor.index_select.0.forward", inputs=[0.0, (chosen(1, 2), chosen(2, 1))], outputs=[1.2])
    assert judge(BEFORE, pick).origins == []


# --- operators that magnify honestly -------------------------------------------------------------------


def magnifying(
    name: str, inputs: list[tuple[np.ndarray, np.ndarray]], outputs: tuple[np.ndarray, np.ndarray]
) -> Call:
    return Call(name, inputs=inputs, outputs=[outputs])


def test_addition_may_cancel() -> None:
    first, small = values_of("a"), values_of("b") * np.float32(1e-4)
    second = small - first
    inputs = [(first, with_error(first, 1e-6, "1")), (second, with_error(second, 1e-6, "2"))]
    sums = tuple(inputs[0][side].astype(np.float64) + inputs[1][side] for side in (0, 1))
    outputs = (sums[0].astype(np.float32), sums[1].astype(np.float32))
    for name in ("Torch.add.0.forward", "Tensor.__sub__.0.forward", "Tensor.__iadd__.0.forward"):
        assert judge(BEFORE, magnifying(name, inputs, outputs)).origins == []
    other = magnifying("Torch.cumprod.0.forward", inputs, outputs)
    assert judge(BEFORE, other).origins == [other.name], "of which nothing is known"


def test_a_softmax_turns_absolute_into_relative_error() -> None:
    scores = values_of("s") + np.float32(1000)
    noisy = with_error(scores, 3e-6, "n")

    def softmax(values: np.ndarray) -> np.ndarray:
        wide = np.exp(values.astype(np.float64) - values.max(-1, keepdims=True))
        return (wide / wide.sum(-1, keepdims=True)).astype(np.float32)

    outputs = (softmax(scores), softmax(noisy))
    honest = magnifying("Functional.softmax.0.forward", [(scores, noisy)], outputs)
    assert judge(BEFORE, honest).of(honest.name).output_error > 32 * U32
    assert judge(BEFORE, honest).origins == []
    other = magnifying("Torch.cumprod.0.forward", [(scores, noisy)], outputs)
    assert judge(BEFORE, other).origins == [other.name]


def test_a_layer_norm_takes_the_mean_away_and_leaves_the_error() -> None:
    values = values_of("v") + np.float32(1000)
    noisy = with_error(values, 1e-6, "n")

    def norm(values: np.ndarray) -> np.ndarray:
        wide = values.astype(np.float64)
        return ((wide - wide.mean(-1, keepdims=True)) / wide.std(-1, keepdims=True)).astype(np.float32)

    outputs = (norm(values), norm(noisy))
    for name in ("Functional.layer_norm.0.forward", "Module.norm.LayerNorm.forward.0"):
        assert judge(BEFORE, magnifying(name, [(values, noisy)], outputs)).origins == []
    other = magnifying("Functional.rms_norm.0.forward", [(values, noisy)], outputs)
    assert judge(BEFORE, other).origins == [other.name]


@pytest.mark.parametrize("label", ["norm1", "ln_f", "input_layernorm"])
def test_a_norm_whose_class_is_not_known_may_take_the_mean_away(label: str) -> None:
    values = values_of("v") + np.float32(1000)
    noisy = with_error(values, 1e-6, "n")
    outputs = tuple((one - one.mean(-1, keepdims=True)).astype(np.float32) for one in (values, noisy))
    norm, other = (
        Call(f"layers.0.{name}", inputs=[(values, noisy)], outputs=[outputs], is_classed=False)
        for name in (label, "proj")
    )
    assert judge(BEFORE, norm).origins == []
    assert judge(BEFORE, other).origins == [other.name]


@pytest.mark.parametrize("name", ["Experts", "SingleTransformerBlock", "CostVolume", "Expand"])
def test_a_class_whose_name_holds_that_of_a_function_does_not_magnify(name: str) -> None:
    inputs = [(values_of("v"), with_error(values_of("v"), 1e-6, "n"))]
    outputs = (values_of("w"), with_error(values_of("w"), 6e-6, "m"))
    faulty = magnifying(f"Module.block.{name}.forward.0", inputs, outputs)
    assert judge(BEFORE, faulty).origins == [faulty.name]
    for honest in ("Functional.softmax", "Torch.exp", "Torch.logsumexp"):
        assert judge(BEFORE, magnifying(f"{honest}.0.forward", inputs, outputs)).origins == []


@pytest.mark.parametrize("name", ["NPU.npu_rotary_mul.0.forward", "Module.rotary.RotaryEmbedding.forward.0"])
def test_a_rotation_passes_absolute_errors_on(name: str) -> None:
    """It magnifies relative ones only of angles that are larger than what it gives."""
    outputs = (values_of("w"), with_error(values_of("w"), 6e-6, "m"))
    for size, begins in ((1.0, [name]), (10.0, [])):
        angles = np.float32(size) * values_of("v")
        call = magnifying(name, [(angles, with_error(angles, 1e-6, "n"))], outputs)
        assert judge(BEFORE, call).origins == begins


# --- coarse products -------------------------------------------------------------------------------------


def products(errors: list[float]) -> list[Call]:
    return [
        Call(f"Functional.linear.{n}.forward", inputs=[0.0, 0.0], outputs=[error])
        for n, error in enumerate(errors)
    ]


def test_products_in_a_coarser_format_are_healthy() -> None:
    tf32, bfloat16 = [3e-4, 2.8e-4, 3.1e-4, 2.9e-4], [2.3e-3, 2.2e-3, 2.5e-3]
    for errors in (tf32, bfloat16):
        judged = judge(*products(errors))
        assert judged.origins == []
        assert judged.said.roundoff > 2.0**-12


def test_convolutions_have_a_format_of_their_own() -> None:
    convolution = Call("Functional.conv2d.0.forward", inputs=[0.0], outputs=[0.0])
    products = [
        Call(f"Functional.linear.{n}.forward", inputs=[0.0], outputs=[error])
        for n, error in enumerate((3e-4, 2.8e-4, 3.1e-4, 2.9e-4))
    ]
    assert judge(convolution, *products).origins == []


def test_one_coarse_product_among_exact_ones_is_a_fault() -> None:
    judged = judge(*products([1e-7, 1e-7, 3e-4, 1e-7]))
    assert judged.origins == ["Functional.linear.2.forward"]


def test_a_fault_above_the_coarse_format_is_still_seen() -> None:
    judged = judge(*products([3e-4, 2.8e-4, 3.1e-4, 0.2, 2.9e-4]))
    assert judged.origins == ["Functional.linear.3.forward"]


def test_one_coarse_product_before_far_worse_ones_is_a_fault_and_no_format() -> None:
    errors = [3e-4, 0.1, 0.12, 0.15]
    after = [
        Call(f"Functional.linear.{n}.forward", inputs=[before, 0.0], outputs=[error])
        for n, (before, error) in enumerate(pairwise(errors), start=1)
    ]
    judged = judge(*products(errors[:1]), *after)
    assert judged.origins == ["Functional.linear.0.forward"]
    assert judged.said.roundoff < 2.0**-12


def test_what_was_once_rounded_stays_so() -> None:
    rounded = values_of("h", dtype="bfloat16")
    noisy = with_error(rounded, 4 * U16, "n")
    wide = rounded.astype(np.float32), noisy.astype(np.float32)
    judged = judge(
        Call("Functional.linear.0.forward", inputs=[0.0], outputs=[(rounded, noisy)]),
        Call("Tensor.float.0.forward", inputs=[wide], outputs=[with_pair_error(6 * U16)]),
    )
    assert judged.origins == []
    assert judged.said.roundoff == U16


def with_pair_error(error: float) -> tuple[np.ndarray, np.ndarray]:
    golden = values_of("wide", SHAPE)
    return golden, with_error(golden, error, "wide noise")


# --- peers -------------------------------------------------------------------------------------------------


def test_a_small_error_that_stands_out_among_peers_is_found() -> None:
    calls = layers(6, 4 * U32, {3: 24 * U32})
    assert judge(*calls).origins == ["Module.layers.3.mlp.MLP.forward.0"]


@pytest.mark.parametrize(
    ("count", "usual", "odd"),
    [(6, 4, 7), (2, 4, 24), (6, 10, 24), (6, 24, 24)],
    ids=["too small", "too few peers", "stands out too little", "all alike"],
)
def test_what_does_not_stand_out_among_peers_is_rounding(count: int, usual: float, odd: float) -> None:
    assert judge(*layers(count, usual * U32, {1: odd * U32})).origins == []


def test_weak_signs_are_kept_for_other_tokens_to_confirm() -> None:
    judged = judge(*layers(6, 9 * U32, {3: 20 * U32}))
    assert judged.origins == []
    assert [weak.target for weak in judged.said.weak_origins] == ["Module.layers.3.mlp.MLP.forward.0"]


# --- the backward pass -----------------------------------------------------------------------------------


def test_a_gradient_that_cancels_out_is_rounding() -> None:
    weight = Call("Module.q.Linear.parameters_grad.0", gradients={"weight": 1e-6})
    nothing = values_of("bias", (64,)) * np.float32(1e-7)
    bias = Call(
        "Module.k.Linear.parameters_grad.0", gradients={"bias": (nothing, with_error(nothing, 0.8, "b"))}
    )
    forward = Call(LINEAR, inputs=[0.0], outputs=[1e-6])
    judged = judge(forward, weight, bias)
    assert judged.origins == []
    real = values_of("bias", (64,))
    wrong = Call("Module.k.Linear.parameters_grad.0", gradients={"bias": (real, with_error(real, 0.8, "b"))})
    assert judge(forward, weight, wrong).origins == [wrong.name]


@pytest.mark.parametrize("before", [0.0, 1e-6])
@pytest.mark.parametrize(("size", "is_found"), [(1e-4, False), (1.0, True)])
def test_a_gradient_that_one_run_alone_has_is_a_fault_unless_it_is_next_to_nothing(
    before: float, size: float, is_found: bool
) -> None:
    forward = Call(LINEAR, inputs=[0.0], outputs=[before])
    weight = Call("Module.q.Linear.parameters_grad.0", gradients={"weight": before})
    none = np.zeros(64, np.float32)
    frozen = Call(
        "Module.k.Linear.parameters_grad.0",
        gradients={"bias": (none, values_of("b", (64,)) * np.float32(size))},
    )
    judged = judge(forward, weight, frozen)
    assert judged.origins == ([frozen.name] if is_found else [])
    assert not math.isnan(judged.of(frozen.name).amplification or 0.0)


def test_a_fault_that_begins_in_the_backward_pass_is_found_there() -> None:
    judged = judge(
        Call(LINEAR, inputs=[0.0], outputs=[1e-7]),
        Call("Functional.relu.0.backward", inputs=[1e-7], outputs=[0.4]),
        Call("Functional.linear.0.backward", inputs=[0.4], outputs=[0.4]),
    )
    assert judged.origins == ["Functional.relu.0.backward"]


def test_the_backward_pass_is_excused_by_what_its_forward_pass_kept() -> None:
    judged = judge(
        Call(LINEAR, inputs=[0.0], outputs=[0.2]),
        Call("Functional.linear.0.backward", inputs=[1e-7], outputs=[0.3]),
    )
    assert judged.origins == [LINEAR]


# --- the tree ----------------------------------------------------------------------------------------------


def test_a_module_counts_what_lies_below_it() -> None:
    judged = judge(
        BEFORE,
        Call(LINEAR, MLP, inputs=[0.0], outputs=[0.3]),
        Call("Functional.relu.0.forward", MLP, inputs=[0.3], outputs=[0.3]),
        Call(MLP, "Module.block.Block.forward.0", inputs=[0.0], outputs=[0.3]),
        Call("Module.block.Block.forward.0", inputs=[0.0], outputs=[0.0]),
    )
    below = judged.of("Module.block.Block.forward.0").below
    assert judged.of("Module.block.Block.forward.0").verdict == Verdict.PASS
    assert (below.error, below.warning, below.origins, below.worst) == (3, 0, 1, Verdict.ERROR)
    assert judged.of(MLP).below.error == 2


def test_counts_add_up() -> None:
    judged = judge(
        BEFORE,
        Call(LINEAR, inputs=[0.0], outputs=[0.3, (chosen(1), chosen(2))]),
        Call(MLP, inputs=[0.3], outputs=[0.3]),
    )
    counts = judged.said.counts
    assert counts.pairs == counts.passed + counts.warning + counts.error + counts.incomparable == 7
