"""What a whole run has is said once, and a fault beside it is named all the same."""

import math
from collections.abc import Callable, Mapping, Sequence

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from library.verdict.made_slices import Array, Call, Judged, judge, make, values_of, with_error
from messages import gaps_of, ids_of, outline
from msgspec.structs import replace

from firstdrift.metrics.measurement import Measurement, MeasurementKind, SideSummary
from firstdrift.model.slice import Coordinates
from firstdrift.operators.properties import is_dropout
from firstdrift.verdict.coverage import Coverage
from firstdrift.verdict.findings import conclude, judge_after
from firstdrift.verdict.judgement import NodeClass, SliceJudgement, Verdict
from firstdrift.verdict.systematic import _FORMATS, Weight, _Format, in_weights
from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of

Change = Callable[[Array], Array]
LAYERS = 5
DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def to_bfloat16(weight: Array) -> Array:
    return weight.astype(ml_dtypes.bfloat16).astype(np.float32)


def to_bits(bits: int) -> Change:
    most = 2 ** (bits - 1) - 1

    def rounded(weight: Array) -> Array:
        unit = np.abs(weight).max(axis=-1, keepdims=True) / most
        return (np.round(weight / unit) * unit).astype(np.float32)

    return rounded


def another(weight: Array) -> Array:
    return with_error(weight, 0.1, "another checkpoint")


def network(
    change: Change, *, but: Mapping[int, Change] | None = None, faults: Mapping[int, float] | None = None
) -> list[Call]:
    """Return layers that multiply by weights; of some the weight changes otherwise, or the output is off."""
    calls, given = [], values_of("words")
    golden = target = given
    for layer in range(LAYERS):
        weight = values_of(f"weight {layer}", (32, 32))
        other = (but or {}).get(layer, change)(weight)
        before, (golden, target) = (golden, target), (_times(golden, weight), _times(target, other))
        if fault := (faults or {}).get(layer):
            target = with_error(target, fault, "fault")
        name = f"Module.layers.{layer}.Linear.forward.0"
        calls.append(Call(name, None, [before], [(golden, target)], {"weight": (weight, other)}))
    return calls


def _times(given: Array, weight: Array) -> Array:
    return (given @ weight.T / np.sqrt(32.0)).astype(np.float32)


def rules(said: SliceJudgement) -> list[str]:
    return [one.rule.removeprefix("systematic.") for one in said.systematic]


@pytest.mark.parametrize(
    ("change", "rule", "said"),
    [
        pytest.param(to_bfloat16, "rounded", "rounded_target bfloat16 5 5 number 0.0022", id="bfloat16"),
        pytest.param(to_bits(8), "quantised", "quantised_to 8 5 5 number 0.0079", id="8-bits"),
        pytest.param(to_bits(4), "quantised", "quantised_to 4 5 5 number 0.13", id="4-bits"),
        pytest.param(
            lambda weight: np.float32(1.25) * weight, "scaled", "scaled 1.3 5 5 number 0.25", id="scaled"
        ),
        pytest.param(another, "replaced", "replaced 5 5 number 0.1", id="replaced"),
    ],
)
def test_what_all_weights_have_is_said_once(change: Change, rule: str, said: str) -> None:
    judged = judge(*network(change))
    assert (rules(judged.said), judged.origins) == ([rule], [])
    found = conclude([judged.said, judged.said])
    assert [one.is_fault for one in found.systematic] == [True]
    assert (found.first_bad_node, found.first_bad_token, found.suspects) == (None, None, ())
    assert outline(found.summary).startswith(f"systematic {said} ")


def test_a_node_with_such_a_weight_says_so_and_fails() -> None:
    judged = judge(*network(to_bfloat16))
    for row in judged.said.rows:
        assert (row.verdict, row.node_class) == (Verdict.ERROR, NodeClass.WEIGHTS_DIFFER)
        assert (row.rule, ids_of(row.reasons[0])[0]) == ("class.as_all_weights", "reason.as_all_weights")
    assert judged.said.counts.error == LAYERS


def test_what_weights_explain_is_no_other_fault() -> None:
    judged = judge(*network(to_bfloat16))
    assert judged.said.level is None
    assert conclude([judged.said]).summary.arguments["rest"] == Message.of("summary.nothing_beside")


def test_what_hides_all_other_faults_is_said_to() -> None:
    judged = judge(*network(another), Call("Functional.gelu.0.forward", None, [0.05], [0.04]))
    gelu = judged.of("Functional.gelu.0.forward")
    assert (gelu.verdict, gelu.node_class) == (Verdict.ERROR, NodeClass.PROPAGATED)
    assert ids_of(gelu.reasons[0])[0] == "reason.inputs_differ"
    assert conclude([judged.said]).summary.arguments["rest"] == Message.of("summary.bound_to_differ")


def test_it_is_said_in_chinese() -> None:
    said = conclude([judge(*network(to_bfloat16)).said]).summary
    assert text_of(said, "zh").startswith("目标的权重是标杆的权重舍入到 bfloat16 的结果")


def test_golden_may_be_the_one_that_was_rounded() -> None:
    calls = [
        Call(call.name, None, call.inputs, call.outputs, {"weight": _swapped(call.parameters["weight"])})
        for call in network(to_bfloat16)
    ]
    assert judge(*calls).said.systematic[0].reason.id == "systematic.rounded_golden"


def _swapped(values: object) -> tuple[object, object]:
    assert isinstance(values, tuple)
    return values[1], values[0]


def test_a_fault_beside_it_is_named() -> None:
    judged = judge(*network(to_bfloat16, faults={3: 0.3}))
    assert rules(judged.said) == ["rounded"]
    assert judged.origins == ["Module.layers.3.Linear.forward.0"]
    assert judged.first.node_class is NodeClass.SOURCE
    summary = conclude([judged.said]).summary
    assert "systematic.rounded_target" in ids_of(summary)
    assert "layers.3" in str(gaps_of(summary, "finding.node")["bad_node"])


def test_it_is_said_however_little_was_compared_beside_it() -> None:
    said = replace(judge(*network(to_bfloat16)).said, coverage=Coverage(nodes=100, compared_nodes=5))
    found = conclude([said])
    assert (found.not_judged is not None, found.has_fault) == (True, True)
    assert {"systematic.rounded_target", "summary.not_judged"} <= set(ids_of(found.summary))


def test_a_weight_that_differs_otherwise_is_named() -> None:
    judged = judge(*network(to_bfloat16, but={2: lambda weight: np.float32(1.5) * weight}))
    assert rules(judged.said) == ["rounded"]
    assert judged.origins == ["Module.layers.2.Linear.forward.0"]
    assert judged.first.node_class is NodeClass.WEIGHTS_DIFFER


@pytest.mark.parametrize(("off", "is_named"), [(2.0**-9, False), (0.02, True)])
def test_what_is_computed_from_rounded_weights_is_off_by_a_rounding(off: float, *, is_named: bool) -> None:
    weight, words = values_of("computed", (48, 32)), values_of("words")
    other, name = with_error(weight, off, "computed"), "Functional.linear.0.forward"
    gave = _times(words, weight), _times(words, other)
    judged = judge(Call(name, None, [(words, words), (weight, other)], [gave]), *network(to_bfloat16))
    assert rules(judged.said) == ["rounded"]
    assert judged.origins == [name] * is_named


def test_a_weight_that_is_much_further_off_is_named_where_its_largest_element_is_kept() -> None:
    def spoilt(weight: Array) -> Array:
        other = to_bits(8)(weight)
        row = 0 if np.abs(weight).max() > np.abs(weight[0]).max() else 1
        other[row] = -other[row]
        return other

    judged = judge(*network(to_bits(8), but={2: spoilt}))
    assert rules(judged.said) == ["quantised"]
    assert judged.first.target == "Module.layers.2.Linear.forward.0"
    assert judged.first.node_class is NodeClass.WEIGHTS_DIFFER


def test_a_few_weights_are_no_difference_of_the_whole_run() -> None:
    same: Change = lambda weight: weight  # noqa: E731
    judged = judge(*network(to_bfloat16, but={0: same, 1: same}))
    assert rules(judged.said) == []
    assert judged.first.target == "Module.layers.2.Linear.forward.0"


def test_weights_of_a_coarser_dtype_are_what_their_dtype_says() -> None:
    calls = [
        Call(
            f"Module.layers.{layer}.Linear.forward.0",
            None,
            [0.0],
            [0.0],
            {"weight": (weight, weight.astype(ml_dtypes.bfloat16))},
        )
        for layer in range(LAYERS)
        for weight in [values_of(f"weight {layer}", (32, 32))]
    ]
    assert rules(judge(*calls).said) == []


def later_step(change: Change, before: Sequence[SliceJudgement]) -> SliceJudgement:
    made = make(*network(change), coordinates=Coordinates(step=1))
    return judge_after(before, made.plan, made.rows, made.measurements)


def test_after_a_step_weights_are_others_by_training_unless_they_were_before() -> None:
    assert rules(later_step(another, [])) == []
    assert rules(later_step(to_bits(8), [])) == []
    assert rules(later_step(to_bits(8), [judge(*network(to_bits(8))).said])) == ["quantised"]
    assert rules(later_step(to_bfloat16, [])) == ["rounded"]


def trained(weight: Array) -> Array:
    """Return a weight of which the large elements were left alone."""
    return np.where(np.abs(weight) < 1.0, np.float32(1.2) * weight, weight)


def test_weights_that_keep_their_ends_and_norm_are_not_called_scaled_by_one() -> None:
    def swapped(weight: Array) -> Array:
        other = weight.copy()
        other[:, [1, 2]] = weight[:, [2, 1]]
        return other

    assert rules(later_step(swapped, [])) == []


def test_trained_weights_of_a_coarser_dtype_are_numbers_of_it_by_nature() -> None:
    calls = [
        Call(
            f"Module.layers.{layer}.Linear.forward.0",
            None,
            [0.0],
            [0.0],
            {"weight": (weight, trained(weight).astype(ml_dtypes.bfloat16))},
        )
        for layer in range(LAYERS)
        for weight in [values_of(f"weight {layer}", (32, 32)).astype(np.float32)]
    ]
    made = make(*calls, coordinates=Coordinates(step=1))
    assert rules(judge_after([], made.plan, made.rows, made.measurements)) == []


def test_products_of_tf32_are_healthy_and_said() -> None:
    off = [(0.0, 3e-4), *[(3e-4, 3e-4)] * 4]
    calls = [
        Call(f"Module.layers.{at}.Linear.forward.0", None, [given], [gave], {"weight": 0.0})
        for at, (given, gave) in enumerate(off)
    ]
    judged = judge(*calls)
    assert (rules(judged.said), judged.origins) == (["products"], [])
    found = conclude([judged.said])
    assert not found.has_fault
    assert outline(found.summary) == "systematic products TF32, HF32 agree"


def to_tf32(values: Array) -> Array:
    """Keep ten bits after the first, rounded to nearest."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0xFFF) + ((bits >> 13) & 1)) & np.uint32(0xFFFFE000)).view(np.float32)


def product(change: Change, at: int = 0, spoil: Change = np.asarray) -> Call:
    """Return a linear layer of which the target rounds both factors, and spoils the result."""
    words, weight = values_of("words"), 0.125 * values_of(f"weight {at}", (32, 32))
    made = words @ weight.T, spoil(change(words) @ change(weight).T)
    name = f"Functional.linear.{at}.forward"
    return Call(name, inputs=[(words, words), (weight, weight)], outputs=[made])


def of_exact_convolutions(*calls: Call) -> Judged:
    before = [Call(f"Functional.conv2d.{at}.forward", inputs=[0.0], outputs=[0.0]) for at in range(LAYERS)]
    return judge(*before, *calls)


def test_the_only_product_of_its_kind_tells_the_format() -> None:
    judged = of_exact_convolutions(product(to_tf32))
    assert (rules(judged.said), judged.origins) == (["products"], [])


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda made: (made * np.float32(1.001)).astype(np.float32), id="a factor"),
        pytest.param(lambda made: made.astype(np.float16).astype(np.float32), id="stored in 16 bits"),
        pytest.param(lambda made: with_error(made, 0.01, "fault"), id="too large"),
    ],
)
def test_the_only_product_of_its_kind_is_named_if_rounding_does_not_make_its_error(spoil: Change) -> None:
    judged = of_exact_convolutions(product(to_tf32, spoil=spoil))
    assert (rules(judged.said), judged.origins) == ([], ["Functional.linear.0.forward"])


def test_a_coarse_product_that_cancels_out_is_off_by_more_than_its_format() -> None:
    ones = 1.0 + 0.01 * values_of("little", (32, 32))
    left = values_of("words")
    left -= left.mean(axis=1, keepdims=True)
    made, coarse = left @ ones.T, to_tf32(left) @ to_tf32(ones).T
    call = Call("Functional.linear.0.forward", inputs=[(left, left), (ones, ones)], outputs=[(made, coarse)])
    judged = of_exact_convolutions(call)
    assert judged.made.measurements[-1].errors.relative_l2 > 2 * 2.0**-11
    assert outline(conclude([judged.said]).summary) == "systematic products TF32, HF32 agree"


def test_a_product_with_zeros_tells_no_format() -> None:
    zeros = np.zeros((16, 32), np.float32)
    off = values_of("state"), with_error(values_of("state"), 3e-4, "off")
    silent = Call("Torch.matmul.0.forward", inputs=[off, (zeros, zeros)], outputs=[(zeros, zeros)])
    judged = judge(*(product(to_tf32, at) for at in range(3)), silent)
    assert (rules(judged.said), judged.origins) == (["products"], [])


def test_a_norm_that_is_called_after_convolutions_is_no_product() -> None:
    norm = Call("Module.norm.ConvNextLayerNorm.forward.0", None, [0.0], [0.0])
    judged = judge(norm, *(product(to_tf32, at) for at in range(3)))
    assert (rules(judged.said), judged.origins) == (["products"], [])


def test_the_format_of_products_is_that_of_later_steps_too() -> None:
    first = judge(*(product(to_tf32, at) for at in range(3))).said
    calls = [Call(f"Torch.matmul.{at}.forward", inputs=[2e-6, 2e-6], outputs=[3e-4]) for at in range(2)]
    made = make(*calls, coordinates=Coordinates(step=1))
    alone, after = (
        judge_after(earlier, made.plan, made.rows, made.measurements) for earlier in ((), (first,))
    )
    assert alone.origins
    assert not after.origins


def dropped(values: Array, seed: int) -> Array:
    kept = np.random.default_rng(seed).random(values.shape) > 0.1
    return (values * kept / 0.9).astype(np.float32)


def with_dropouts(golden: Sequence[int | None], target: Sequence[int | None], *behind: Call) -> Judged:
    """Judge a chain of dropouts, each with a seed or off, and what runs behind them."""
    calls, (one, other) = [], (values_of("words"), values_of("words"))
    for at, (first, second) in enumerate(zip(golden, target, strict=True)):
        before = (one, other)
        one = one if first is None else dropped(one, first)
        other = other if second is None else dropped(other, second)
        name = f"Module.layers.{at}.dropout.Dropout.forward.0"
        calls.append(Call(name, None, [before], [(one, other)]))
    return judge(*calls, Call("Module.head.Linear.forward.0", None, [(one, other)], [(one, other)]), *behind)


@pytest.mark.parametrize(
    ("golden", "target", "said"),
    [
        pytest.param([None] * 3, [1, 2, 3], "dropout_target 3 3", id="target"),
        pytest.param([1, 2, 3], [None] * 3, "dropout_golden 3 3", id="golden"),
        pytest.param([1, 2, 3], [4, 5, 6], "dropout_both 3 3", id="both"),
    ],
)
def test_dropout_is_said_once(golden: list[int | None], target: list[int | None], said: str) -> None:
    judged = with_dropouts(golden, target)
    assert (rules(judged.said), judged.origins) == (["dropout"], [])
    found = conclude([judged.said])
    assert found.has_fault
    assert outline(found.summary) == f"systematic {said} bound_to_differ"


def test_an_operator_behind_other_dropouts_that_is_given_equal_values_gives_equal_values() -> None:
    fault = Call("Functional.gelu.0.forward", None, [0.0], [0.3])
    drawn = Call("Functional.scaled_dot_product_attention.0.forward", None, [0.0], [0.3])
    assert with_dropouts([1, 2, 3], [4, 5, 6], fault).origins == [fault.name]
    assert with_dropouts([1, 2, 3], [4, 5, 6], drawn).origins == []


def test_the_same_seed_is_no_difference_and_one_dropout_is_a_place() -> None:
    assert rules(with_dropouts([1, 2, 3], [1, 2, 3]).said) == []
    one = with_dropouts([None] * 3, [None, 2, None])
    assert (rules(one.said), one.first.target) == ([], "Module.layers.1.dropout.Dropout.forward.0")


def test_what_is_given_two_tensors_is_no_dropout() -> None:
    one, other = values_of("words"), values_of("residual")
    calls = [
        Call(
            f"Functional.dropout_add.{at}.forward",
            None,
            [(one, one), (other, other)],
            [(one + other, dropped(one, at) + other)],
        )
        for at in range(3)
    ]
    judged = judge(*calls)
    assert (rules(judged.said), len(judged.origins)) == ([], 3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Dropout", True), ("Functional.dropout", True), ("StableDropout", True), ("dropout_layer_norm", False)],
)
def test_a_dropout_does_nothing_else(name: str, *, expected: bool) -> None:
    assert is_dropout(name) is expected


NUMBERS = st.floats(2.0**-20, 2.0**15, width=32) | st.floats(-(2.0**15), -(2.0**-20), width=32)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(NUMBERS, st.sampled_from(_FORMATS))
def test_numbers_are_rounded_as_the_formats_do(number: float, to: _Format) -> None:
    assert to.nearest(number) == float(np.float32(number).astype(DTYPES[to.name]))


def weight_of(seed: int, change: Change) -> Weight:
    """Return a weight of which statistics alone are known."""
    golden = np.random.default_rng(seed).standard_normal((16, 16)).astype(np.float32)
    sides = [_summary(golden), _summary(change(golden))]
    known = zip(*((one.maximum or 0.0, one.minimum or 0.0, one.norm or 0.0) for one in sides), strict=True)
    error = max(abs(one - other) for one, other in known) / (sides[0].norm or 1.0)
    measured = Measurement(MeasurementKind.STATISTICS, golden=sides[0], target=sides[1])
    return Weight(seed, measured, error, 2.0**-24, is_matrix=True)


def _summary(values: Array) -> SideSummary:
    norm = float(np.linalg.norm(values.astype(np.float64)))
    return SideSummary(values.size, float(values.max()), float(values.min()), float(values.mean()), norm)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(
    st.lists(st.integers(0, 2**32 - 1), min_size=8, max_size=12, unique=True),
    st.sampled_from(
        [
            ("rounded", to_bfloat16),
            ("rounded", lambda weight: weight.astype(np.float16).astype(np.float32)),
            ("scaled", lambda weight: np.float32(0.75) * weight),
            ("replaced", another),
        ]
    ),
)
def test_statistics_tell_the_same(seeds: list[int], kind: tuple[str, Change]) -> None:
    rule, change = kind
    weights = [weight_of(seed, change) for seed in seeds]
    found = in_weights(weights, 2.0)
    assert found is not None
    assert found.rule.id == rule
    assert found.level <= 1.0
    assert found.pairs <= set(seeds)
    assert (
        in_weights([*weights, *(weight_of(seed, lambda one: one) for seed in range(len(seeds)))], 2.0) is None
    )


def test_weights_that_changed_places_are_no_other_checkpoint() -> None:
    weights = [weight_of(seed, another) for seed in range(8)]
    assert in_weights(weights, 2.0) is not None
    places = [*range(1, 8), 0]
    moved = [
        one._replace(measured=replace(one.measured, target=weights[at].measured.golden))
        for one, at in zip(weights, places, strict=True)
    ]
    assert in_weights(moved, 2.0) is None


def test_a_weight_without_numbers_tells_nothing() -> None:
    nothing = Measurement(MeasurementKind.DIGEST, equal=False)
    found = in_weights([Weight(at, nothing, 0.1, 2.0**-24, is_matrix=True) for at in range(8)], 2.0)
    assert found is not None
    assert (found.rule.id, math.isfinite(found.level)) == ("replaced", True)
