"""Each entry of the two tables by which nodes are judged, by itself; and that all who speak of them agree."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from library.verdict.made_slices import Call, Judged, judge, make, values_of
from msgspec.structs import replace

from firstdrift.matching.plan import NodeMatch, Origin, SlicePlan, TensorPair
from firstdrift.metrics.measurement import Measurement, MeasurementKind, SideSummary, StatisticDifferences
from firstdrift.metrics.statistics import measure_statistics
from firstdrift.model.node import Direction, NodeKind
from firstdrift.model.slice import Coordinates, SliceListing
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.verdict import fixed_thresholds
from firstdrift.verdict.baseline import Noise
from firstdrift.verdict.case import Case, Progress, case_of
from firstdrift.verdict.classes import ALL_CLASS_RULES, CLASS_RULES, rule_of
from firstdrift.verdict.conditioning import error_of_sum
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.explanations import (
    BOUNDS,
    FACTORS,
    FLOORS,
    excused_by,
    explain,
    factor_of,
    floor_of,
)
from firstdrift.verdict.fixed_thresholds import FixedThreshold
from firstdrift.verdict.judgement import ORIGINS, Verdict
from firstdrift.verdict.movable_thresholds import ABOUT, DEFAULTS
from firstdrift.verdict.one_sided_gradients import OneSidedGradient
from firstdrift.verdict.pair_error import pair_error
from firstdrift.verdict.reasons import reached
from firstdrift.verdict.row_errors import RowErrors
from firstdrift.verdict.rule_book import ENTRIES, TABLES
from firstdrift.verdict.tree import TreeRow
from firstdrift.wording.message import Message
from firstdrift.wording.text import LANGUAGES, texts

NUMBERS = {name: one for name, one in vars(fixed_thresholds).items() if isinstance(one, FixedThreshold)}
DOCUMENT = Path(__file__).parents[3] / "docs" / "verdict.md"
U = DEFAULTS.roundoff_float32
INPUT, OUTPUT, WEIGHT = 0, 1, 2
SIDE = SideSummary(512, 1.0, -1.0, 0.0, 10.0)
MASKED = SideSummary(4096, 12.0, -3.4e38, -1e38, 1e40)


def record(role: Role, key: str) -> TensorRecord:
    return TensorRecord(role, key, "float32", (16, 32))


def pair(role: Role, key: str, node: str, size: int = 1) -> TensorPair:
    golden = record(role, key)
    return TensorPair(0, node, node, golden, replace(golden, shape=(16 * size, 32)))


def measured(side: SideSummary = SIDE, bound: float = 0.0, largest: float = 0.0) -> Measurement:
    differences = StatisticDifferences(
        largest, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, bound, nonfinite_differs=False
    )
    return Measurement(MeasurementKind.STATISTICS, golden=side, target=side, differences=differences)


def case(
    type_name: str = "linear",
    *,
    output_side: SideSummary = SIDE,
    input_side: SideSummary = SIDE,
    largest: float = 0.0,
    step: int = 0,
    direction: Direction = Direction.FORWARD,
    others: int = 2,
    noise: float = 0.0,
    output_key: str = "0",
    name: str = "x",
    jumped: bool = False,
    explained: float | None = None,
    match: int | None = 0,
    so_far: dict[str, Any] | None = None,
    outstanding: bool = False,
    chosen_otherwise: bool = False,
    weight: bool = False,
    size: int = 1,
    **error: Any,  # noqa: ANN401 (fields of RowErrors)
) -> Case:
    """Make a row with one input, one output and one weight, of which `error` says what is known."""
    row = TreeRow(
        0, None, 0, 0, 0, name, NodeKind.API, type_name, direction, (name,), (name,), match, "layers.0", None
    )
    rows = [row, *(row for _ in range(others - 1))]
    output = None if error.get("output") is None else OUTPUT
    errors = RowErrors(
        output_pair=output,
        input_pair=INPUT if error.get("input") else None,
        parameter_pair=WEIGHT if error.get("parameter") else None,
        pairs=[INPUT, OUTPUT, *([WEIGHT] if weight else [])],
        parameters=[WEIGHT] if error.get("parameter") else [],
        roundoff=U,
        **error,
    )
    listing = SliceListing(coordinates=Coordinates(step=step), directory=Path("dump"))
    plan = SlicePlan(
        golden=listing,
        target=listing,
        matches=(NodeMatch((name,), (name,), Origin.EXACT, 1.0),),
        pairs=(
            pair(Role.INPUT, "0", name),
            pair(Role.OUTPUT, output_key, name, size),
            pair(Role.PARAMETER, "weight", name),
        ),
        unmatched_golden=(),
        unmatched_target=(),
        unmatched_golden_tensors=(),
        unmatched_target_tensors=(),
    )
    measurements = [
        measured(input_side, error.get("input") or 0.0, largest),
        measured(output_side, error.get("output") or 0.0),
        measured(bound=error.get("parameter") or 0.0),
    ]
    evidence = Evidence(
        plan,
        rows,
        measurements,
        [errors, *(RowErrors(output=0.0, output_pair=OUTPUT) for _ in range(others - 1))],
        [pair_error(one, known) for one, known in zip(plan.pairs, measurements, strict=True)],
        noise=Noise(outputs={name: noise} if noise else {}),
    )
    evidence.__dict__["chosen_otherwise"] = frozenset({0} if chosen_otherwise else ())
    evidence.__dict__["has_choices"] = True
    progress = Progress(U, [0.0], [False], [0], outstanding=frozenset({0} if outstanding else ()))
    for field, value in (so_far or {}).items():
        setattr(progress, field, value)
    made = case_of(evidence, progress, row)
    explain(made)
    made.explained = made.explained if explained is None else explained
    made.jumped = jumped
    return made


SEEN = {"seen": 0.5, "seen_whole": 0.5}
BACKWARD = Direction.BACKWARD

EXPLAINED: dict[str, tuple[Case, float]] = {
    "rounding": (case(input=0.0, output=U), U),
    "inside": (case(input=0.0, output=0.2, so_far={"inside": [0.2]}), 0.2),
    "gradient": (case(roles={Role.GRADIENT}, output=0.3, so_far=SEEN), 0.5),
    "other_numbers": (case(input=0.0, output=0.5, integer_input_pair=INPUT), math.inf),
    "other_tokens": (case(input=0.0, output=0.5, chosen_otherwise=True, so_far=SEEN), math.inf),
    "mixed_tokens": (case("scaled_dot_product_attention", input=0.0, output=0.3, whole_input=0.4), 0.4),
    "after_choice": (case(input=0.0, output=0.3, tells_little=True, so_far=SEEN), 0.5),
    "training": (case(input=0.0, output=1e-3, parameter=5e-4, step=1), 5e-4),
    "input": (case(input=0.1, output=0.1), 0.1),
    "operator": (case("softmax", input=0.1, output=0.5, largest=0.4), 0.4),
    "before": (case(output=0.5, so_far=SEEN), 0.5),
    "backward": (case(direction=BACKWARD, input=0.0, output=0.4, so_far=SEEN), 0.5),
}
"""A row for each bound, and the error that it explains there."""


def is_sum_case(kind: MeasurementKind = MeasurementKind.STATISTICS) -> Case:
    """Return a row that is known to be the sum of two outputs, off by 0.1 and 0.2 of 10, and 10 itself."""
    made = case("mul", output=0.3, so_far={"seen": 0.2, "seen_whole": 0.2})
    rows = [made.row, *(made.row,) * 2]
    errors = [RowErrors(output=value, output_pair=OUTPUT) for value in (0.3, 0.1, 0.2)]
    evidence = made.evidence
    object.__setattr__(evidence, "rows", [_at(row, index) for index, row in enumerate(rows)])
    object.__setattr__(evidence, "errors", errors)
    whole = Measurement(kind, golden=SIDE, target=SIDE)
    object.__setattr__(evidence, "measurements", [whole, whole, whole])
    evidence.__dict__["rows_by_name"] = {"a": evidence.rows[1], "b": evidence.rows[2]}
    match = NodeMatch(("x",), ("x",), Origin.EXACT, 1.0, operands=("a", "b"))

    object.__setattr__(evidence, "plan", replace(evidence.plan, matches=(match,)))
    found = case_of(evidence, made.progress, evidence.rows[0])
    explain(found)
    return found


def _at(row: TreeRow, index: int) -> TreeRow:

    return replace(row, index=index, last=index)


def forward_case() -> Case:
    """Return a backward row whose forward pass is off by 0.4."""
    made = case(direction=BACKWARD, name="Functional.linear.0.backward", input=0.0, output=0.4)
    made.evidence.errors[1].output = 0.4  # type: ignore[index]
    made.evidence.__dict__["_forward_rows"] = {"Functional.linear.0.forward": 1}
    explain(made)
    return made


EXPLAINED |= {"operands": (is_sum_case(), 0.3)}
EXPLAINED_TOO = [
    pytest.param(
        "training", case(input=0.0, output=3e-4, step=1, so_far={"trained": 5e-4}), 5e-4, id="trained-before"
    ),
    pytest.param("backward", forward_case(), 0.4, id="kept-by-the-forward-pass"),
]
"""Another row of bounds that look at two things."""


def test_gradients_of_what_was_given_other_numbers_are_bound_to_differ() -> None:
    made = forward_case()
    made.evidence.errors[1].integer_input_pair = INPUT  # type: ignore[index]
    explain(made)
    assert (made.explained, made.explanation) == (math.inf, "other_numbers")


@pytest.mark.parametrize(
    ("operator", "begins_here"),
    [
        pytest.param("linear", True, id="its-model-says-all-that-reaches-it"),
        pytest.param("scaled_dot_product_attention", False, id="without-a-model-anything-may-reach-it"),
    ],
)
def test_what_ran_elsewhere_excuses_no_backward_operator_with_a_model(
    operator: str, *, begins_here: bool
) -> None:
    name = f"Functional.{operator}.0"
    judged = judge(
        Call(f"{name}.forward", inputs=[0.0, 0.0], outputs=[0.0]),
        Call("Functional.silu.0.forward", inputs=[0.0], outputs=[0.0]),
        Call("Functional.silu.0.backward", inputs=[6e-6], outputs=[6e-6]),
        Call(f"{name}.backward", inputs=[0.0], outputs=[5e-6]),
    )
    assert judged.origins == ([f"{name}.backward"] if begins_here else [])


TIMES: dict[str, tuple[Case, float]] = {
    "bounded_sum": (is_sum_case(MeasurementKind.DATA), 3.0),
    "amplification": (case(input=0.0, output=1.0, output_side=SideSummary(None, 1.0, 1.0, 1.0, 1.0)), 3.0),
}
"""A row for each factor, and how large it is there."""


def measured_by_data(made: Case) -> Case:
    """Let the tensors of a row have been compared element by element."""
    known = [replace(one, kind=MeasurementKind.DATA) for one in made.evidence.measurements]
    object.__setattr__(made.evidence, "measurements", known)
    return made


BY_CHANCE = 1.0 + 2.0 / math.sqrt(SIDE.size or math.inf)

LIMITS: dict[str, tuple[Case, float]] = {
    "peers": (measured_by_data(case(input=0.0, output=1.0, outstanding=True)), 8 * U),
    "copied": (case("embedding", input=0.0, output=1.0), 8 * U),
    "bounded": (case("mul", input=0.0, output=1.0, so_far={"roundoff": 2.0**-9}), 16 * 2.0**-9 * BY_CHANCE),
    "gathered": (case("scaled_dot_product_attention", input=0.0, output=1.0), 32 * U),
    "logits_alone": (case(input=0.0, output=1.0, others=1, name="lm_head"), math.inf),
    "only_output": (case(input=0.0, output=1.0, others=1), 1e-3),
    "baseline": (case(input=0.0, output=1.0, noise=0.3), 0.6),
}
"""A row for each floor, and how high it is there."""

OFF = {"level": 0.01}


def gradient_case() -> Case:
    """Return a row of which golden alone has a gradient."""
    made = case(input=0.0)
    made.evidence.__dict__["one_sided_gradients"] = {0: OneSidedGradient("golden", "gradient.weight")}
    return made


def scaled_case() -> Case:
    """Return a row of which the output is scaled by twice what is explained."""
    made = case(input=1e-7, output=0.5, jumped=True)
    made.scaled = 2.0
    return made


CALLED: dict[str, Case] = {
    "one_sided_gradient": gradient_case(),
    "unmatched": case(match=None),
    "input_differs": case(input=0.5, so_far={"input_row": 0, "input_pair": INPUT}),
    "after_input": case(input=0.5, output=0.5, so_far={"input_row": 7}),
    "before_input": case(input=0.0, output=0.0, so_far={"input_row": 7}),
    "inside": case(input=0.0, output=0.5, so_far={"origins_inside": [1]}),
    "non_finite": case(input=0.0, output=math.inf, non_finite=frozenset({Role.OUTPUT}), jumped=True),
    "other_numbers": case(input=0.0, exact_inputs=True, tie_pair=OUTPUT),
    "weights": case(input=0.0, output=0.5, parameter=0.5, jumped=True),
    "argument": case(input=0.0, output=0.5, scalar_pair=INPUT, jumped=True),
    "chosen_number": case(
        name="Module.mlp.router.Router.forward.0", input=0.0, output=0.0, shape_pair=OUTPUT, size=2
    ),
    "amplified": case(input=0.1, output=0.9, so_far=OFF, jumped=True),
    "scaled": scaled_case(),
    "source": case(input=1e-7, output=0.5, jumped=True),
    "choice_after": case(input=0.5, tie_pair=OUTPUT, so_far=OFF),
    "tie": case(input=1e-7, tie_pair=OUTPUT),
    "choice_unknown": case(tie_pair=OUTPUT, so_far=OFF),
    "shape": case(input=0.0, shape_pair=OUTPUT),
    "reached": case(input=0.5, output=0.5, so_far=OFF),
    "masked": case(input=0.5, output=1e-38, so_far=OFF, output_side=MASKED),
    "healed": case(input=0.5, output=1e-7, so_far=OFF),
    "clean": case(input=1e-7, output=1e-7),
}
"""A row for each class rule that no rule before it decides."""


BEFORE = Call("Functional.linear.0.forward", inputs=[0.0], outputs=[0.0])
DROPOUT = "Functional.dropout.0.forward"
GELU = "Functional.gelu.1.forward"
MLP, LINEAR = "Module.mlp.MLP.forward.0", "Functional.linear.2.forward"

ALL_REDUCE = "Distributed.all_reduce.0.forward"
OTHER_WEIGHTS = [
    Call(
        f"Module.{at}.Linear.forward.0", parameters={"weight": (values_of(f"{at}"), values_of(f"other {at}"))}
    )
    for at in range(5)
]

GIVEN = values_of("words")
HALF = np.where(np.abs(GIVEN) > 0.5, GIVEN, np.float32(0.0))


def after_a_fault() -> Judged:
    """Judge an operator that is off by more than it was given, and less than a fault before it brings."""
    made = make(
        Call("Functional.gelu.0.forward", inputs=[0.0], outputs=[0.5]),
        Call(GELU, inputs=[0.0], outputs=[0.05]),
        dtype="bfloat16",
    )
    *before, _ = made.measurements
    told = measure_statistics(SIDE, replace(SIDE, norm=1.05 * (SIDE.norm or 0.0), maximum=1.1))
    return replace(made, measurements=(*before, told)).judge()


OF_SLICES: dict[str, tuple[Judged, str]] = {
    "entered": (
        judge(
            BEFORE,
            Call(LINEAR, MLP, inputs=[0.3], outputs=[0.3]),
            Call(MLP, inputs=[0.0], outputs=[0.3]),
        ),
        MLP,
    ),
    "dropout": (judge(Call(DROPOUT, inputs=[(GIVEN, GIVEN)], outputs=[(2 * HALF, HALF)])), DROPOUT),
    "brought": (judge(Call(MLP, inputs=[0.0], outputs=[0.2]), coordinates=Coordinates(token=0)), MLP),
    "may_follow": (after_a_fault(), GELU),
    "from_other_ranks": (judge(Call(ALL_REDUCE, inputs=[0.0], outputs=[0.2])), ALL_REDUCE),
    "as_all_weights": (judge(*OTHER_WEIGHTS), OTHER_WEIGHTS[0].name),
}
"""A slice for each rule that decides by what is around a row, or when all pairs are judged, and the row."""


@pytest.mark.parametrize(
    ("entry", "made", "amount"), [*((name, *known) for name, known in EXPLAINED.items()), *EXPLAINED_TOO]
)
def test_a_bound_explains_an_error_where_it_applies(entry: str, made: Case, amount: float) -> None:
    assert made.explanation == entry
    assert made.explained == pytest.approx(amount)
    assert excused_by(made) == entry


@pytest.mark.parametrize("entry", TIMES)
def test_a_factor_says_what_is_an_error_of_the_row_itself(entry: str) -> None:
    made, factor = TIMES[entry]
    assert factor_of(made) == (pytest.approx(factor), entry)


@pytest.mark.parametrize("entry", LIMITS)
def test_a_floor_keeps_apart_what_begins_nowhere(entry: str) -> None:
    made, floor = LIMITS[entry]
    assert floor_of(made) == (pytest.approx(floor), entry)


@pytest.mark.parametrize("entry", CALLED)
def test_a_class_rule_decides_where_none_before_it_does(entry: str) -> None:
    assert rule_of(CALLED[entry]).id == entry


def test_another_argument_that_gives_another_number_of_elements_needs_no_error() -> None:
    assert rule_of(case(input=0.0, scalar_pair=INPUT, shape_pair=OUTPUT, size=2)).id == "argument"
    assert rule_of(case(input=0.0, scalar_pair=INPUT, shape_pair=OUTPUT)).id != "argument"


def test_what_chose_from_whole_numbers_that_a_fault_reached_chose_after_it() -> None:
    assert (
        rule_of(case(input=0.0, tie_pair=OUTPUT, integer_input_pair=INPUT, so_far=OFF)).id == "choice_after"
    )


def test_the_error_of_few_elements_may_come_out_larger_by_chance() -> None:
    made = case("mul", input=0.0, output=1.0, output_side=SideSummary(4, 1.0, 1.0, 1.0, 1.0))
    assert factor_of(made) == (6.0, "amplification")


def test_other_numbers_from_fractions_of_equal_statistics_are_a_tie_once_rounding_was_seen() -> None:
    counts = {"input": 0.0, "exact_inputs": True, "may_be_permuted": True, "tie_pair": OUTPUT}
    assert rule_of(case(**counts)).id == "other_numbers"
    assert rule_of(case(**counts, so_far={"seen": 0.01})).id == "tie"


@pytest.mark.parametrize("entry", OF_SLICES)
def test_a_class_rule_decides_by_the_rest_of_the_slice(entry: str) -> None:
    judged, node = OF_SLICES[entry]
    assert judged.of(node).rule == f"class.{entry}"


def test_what_masked_values_hide_is_not_shown_as_small() -> None:
    made = make(
        Call(LINEAR, inputs=[0.0], outputs=[0.3]),
        Call("Tensor.__add__.0.forward", inputs=[0.3], outputs=[0.0]),
        Call("Functional.softmax.0.forward", inputs=[0.0], outputs=[0.2]),
    )
    masked = measure_statistics(MASKED, replace(MASKED, maximum=15.0))
    *before, _, _, output = made.measurements
    judged = replace(made, measurements=(*before, masked, masked, output)).judge()
    added, softmax = judged.of("Tensor.__add__.0.forward"), judged.of("Functional.softmax.0.forward")
    assert (added.rule, added.verdict, added.output_error) == ("class.masked", Verdict.ERROR, None)
    assert (softmax.rule, softmax.input_error, softmax.amplification) == ("class.reached", None, None)
    assert judged.said.pairs[3].reasons == (Message.of("pair.masked"),)


def test_inputs_that_masked_values_outweigh_are_not_said_to_match() -> None:
    made = make(Call("Functional.softmax.0.forward", inputs=[0.0], outputs=[0.2]))
    told = replace(made, measurements=(measure_statistics(MASKED, MASKED), made.measurements[1])).judge()
    assert [one.id for one in told.first.reasons] == ["reason.masked_before"]
    assert [one.id for one in made.judge().first.reasons] == ["reason.equal_inputs"]


def test_weights_that_an_earlier_step_made_differ_are_why_a_node_is_off() -> None:
    after = case(input=0.0, output=0.5, parameter=0.1, so_far=OFF, step=2)
    assert [reason.id for reason in reached(after)] == ["reason.trained_apart"]


def test_each_entry_has_a_test_and_a_sentence_in_each_language() -> None:
    assert {*EXPLAINED, *TIMES, *LIMITS} == {entry.id for entry in (*BOUNDS, *FACTORS, *FLOORS)}
    assert {*CALLED, *OF_SLICES} == {rule.id for rule in ALL_CLASS_RULES}
    for language in LANGUAGES:
        known = {name.removeprefix("rule.") for name in texts(language) if name.startswith("rule.")}
        assert {name for name in known if not name.startswith("table.")} == set(ENTRIES)


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_names_thresholds_and_a_place_that_there_are(name: str) -> None:
    entry = ENTRIES[name]
    assert set(entry.thresholds) <= set(ABOUT)
    assert entry.place in places()


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_says_its_unit_its_meaning_and_where_it_comes_from(name: str) -> None:
    number = NUMBERS[name]
    assert number.unit
    assert number.meaning.endswith(".")
    assert number.place in places()


def places() -> set[str]:
    headings = re.findall(r"^#+ (.*)$|\*\*(.*?)\.?\*\*", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    return {part for found in headings for part in found}


def test_the_tables_are_listed_in_the_order_in_which_they_are_asked() -> None:
    assert [entry.name for entry in TABLES["bounds"]] == [one.name for one in BOUNDS]
    assert [entry.name for entry in TABLES["factors"]] == [one.name for one in FACTORS]
    assert [entry.name for entry in TABLES["classes"]] == [one.name for one in ALL_CLASS_RULES]
    assert CLASS_RULES[-1].id == "clean"
    assert {rule.node_class for rule in ALL_CLASS_RULES} >= ORIGINS


@pytest.mark.parametrize(
    ("differences", "norm", "error"),
    [
        ([1.0, 2.0], 6.0, 0.5),
        ([1.0], 0.0, math.inf),
        ([0.0], 0.0, 0.0),
        ([1.0], None, 0.0),
        ([1.0], math.inf, 0.0),
    ],
)
def test_a_sum_of_nothing_has_any_error(differences: list[float], norm: float | None, error: float) -> None:
    assert error_of_sum(differences, norm) == error
