"""What is promised of every judgement, on slices drawn at random."""

import re
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from library.verdict.made_slices import Call, Judged, Values, judge, make, values_of
from library.verdict.test_findings import logits
from messages import refuses
from msgspec import Struct
from msgspec.structs import replace

from firstdrift.errors import SettingsError
from firstdrift.model.slice import Coordinates
from firstdrift.verdict.findings import AllSlices, conclude, judge_after
from firstdrift.verdict.judge import RULES
from firstdrift.verdict.judgement import ORIGINS, NodeClass, RowJudgement, Verdict
from firstdrift.verdict.series import with_bad_output

UNHURRIED = settings(deadline=None)
ERRORS = st.sampled_from([0.0, 1e-7, 3e-7, 2e-6, 5e-6, 1e-4, 3e-3, 0.2, 1.5])
BLOCK = "Module.layers.0.Block.forward.0"


def choice(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def spoiled() -> tuple[np.ndarray, np.ndarray]:
    golden = values_of("spoiled")
    target = golden.copy()
    target[0, 0] = np.nan
    return golden, target


SPECIAL: dict[str, Values] = {
    "equal whole numbers": (choice(1, 2), choice(1, 2)),
    "other whole numbers": (choice(1, 2), choice(2, 1)),
    "NaN in the target": spoiled(),
    "equal arguments": (0.1, 0.1),
    "other arguments": (0.1, 0.2),
    "other devices": ("cpu", "npu"),
}
VALUES = ERRORS | st.sampled_from(sorted(SPECIAL))


def values(drawn: float | str) -> Values:
    return SPECIAL[drawn] if isinstance(drawn, str) else drawn


class Drawn(Struct, frozen=True):
    """A call that is yet to be made, short to print."""

    name: str
    parent: str | None
    inputs: tuple[float | str, ...]
    outputs: tuple[float | str, ...]
    parameters: tuple[float, ...] = ()

    def call(self) -> Call:
        return Call(
            self.name,
            self.parent,
            inputs=[values(drawn) for drawn in self.inputs],
            outputs=[values(drawn) for drawn in self.outputs],
            parameters=dict(zip(("weight", "bias"), self.parameters, strict=False)),
        )

    def equal(self) -> Call:
        """Return the call as it would be had both runs been the same."""
        call = self.call()
        return replace(
            call,
            inputs=[_equal(value) for value in call.inputs],
            outputs=[_equal(value) for value in call.outputs],
            parameters=dict.fromkeys(call.parameters, 0.0),
        )

    def unambiguous(self) -> Call:
        """Return the call with no two values of a kind of which the first would be named."""
        kinds = {_kind(drawn): drawn for drawn in reversed(self.inputs)}
        return replace(self, inputs=tuple(kinds.values()), outputs=self.outputs[:1]).call()


def _equal(value: Values) -> Values:
    return (value[0], value[0]) if isinstance(value, tuple) else 0.0


def _kind(drawn: float | str) -> float | str:
    return drawn.partition(" ")[2] if isinstance(drawn, str) else drawn


NAMES = ["Functional.linear.{}.forward", "Torch.mul.{}.forward", "Module.layers.{}.mlp.MLP.forward.0"]


@st.composite
def slices(draw: st.DrawFn) -> list[Drawn]:
    """Draw calls of operators and modules, some inside a block, that did anything to the error."""
    calls = [
        Drawn(
            draw(st.sampled_from(NAMES)).format(number),
            draw(st.sampled_from([None, BLOCK])),
            tuple(draw(st.lists(VALUES, max_size=3))),
            tuple(draw(st.lists(VALUES, max_size=2))),
            tuple(draw(st.lists(ERRORS, max_size=2))),
        )
        for number in range(draw(st.integers(1, 7)))
    ]
    return [*calls, Drawn(BLOCK, None, tuple(draw(st.lists(ERRORS, max_size=1))), (draw(ERRORS),))]


def without_places(row: RowJudgement) -> RowJudgement:
    """Forget what depends on the order of the pairs: an index, and which of two remarks comes first."""
    reasons = row.reasons if row.node_class in ORIGINS else ()
    return replace(row, worst_pair=None, reasons=reasons)


def said(judged: Judged) -> tuple[object, ...]:
    """Return what was said of the rows, the pairs and the origins."""
    pairs = {
        (pair.target_node, pair.target.label): verdict
        for pair, verdict in zip(judged.made.plan.pairs, judged.said.pairs, strict=True)
    }
    origins = [
        (origin.target, origin.tensor, origin.node_class, origin.reasons) for origin in judged.said.origins
    ]
    return [without_places(row) for row in judged.said.rows], pairs, origins


@UNHURRIED
@given(slices(), st.sampled_from(RULES))
def test_a_slice_against_itself_has_no_finding(drawn: list[Drawn], rules: str) -> None:
    judged = make(*(call.equal() for call in drawn)).judge(rules)
    assert all(row.node_class == NodeClass.CLEAN for row in judged.said.rows)
    assert all(pair.verdict == Verdict.PASS for pair in judged.said.pairs)
    assert judged.said.origins == judged.said.weak_origins == judged.said.overflow == ()
    assert judged.said.input_difference is None
    findings = conclude([judged.said])
    assert findings.first_bad_node is None
    assert findings.first_bad_token is None


@UNHURRIED
@given(slices(), st.integers(-12, 6))
def test_the_unit_of_the_values_does_not_matter(drawn: list[Drawn], exponent: int) -> None:
    # The unit of a product is that of both its factors, of which one is scaled here.
    calls = [
        replace(call.call(), name=re.sub(r"^(Functional|Torch)\.\w+", "Torch.cat", call.name))
        for call in drawn
    ]
    plain, scaled = make(*calls).judge(), make(*calls, scale=2.0**exponent).judge()
    assert plain.said.rows == scaled.said.rows
    assert said(plain) == said(scaled)
    assert conclude([plain.said]).summary == conclude([scaled.said]).summary


@UNHURRIED
@given(slices(), st.sampled_from(RULES), st.randoms(use_true_random=False))
def test_the_order_of_the_pairs_does_not_matter(drawn: list[Drawn], rules: str, chance: Random) -> None:
    made = make(*(call.unambiguous() for call in drawn))
    order = list(range(len(made.plan.pairs)))
    chance.shuffle(order)
    assert said(made.judge(rules)) == said(made.shuffled(order).judge(rules))


@UNHURRIED
@given(slices())
def test_a_judgement_is_consistent(drawn: list[Drawn]) -> None:
    judged = judge(*(call.call() for call in drawn))
    counts = judged.said.counts
    assert counts.pairs == counts.passed + counts.warning + counts.error + counts.incomparable
    assert counts.pairs == len(judged.said.pairs) == len(judged.made.plan.pairs)
    for finding in judged.said.origins:
        assert finding.node_class in ORIGINS
        assert finding.verdict == Verdict.ERROR
        assert finding.reasons
        assert judged.of(finding.target).verdict == Verdict.ERROR
    for row, tree_row in zip(judged.said.rows, judged.made.rows, strict=True):
        inside = judged.said.rows[tree_row.index + 1 : tree_row.last + 1]
        assert row.below.error == sum(one.verdict == Verdict.ERROR for one in inside)
        worst = max((one.verdict.severity for one in inside), default=0)
        assert row.below.worst.severity == worst


def is_contradiction(row: RowJudgement) -> bool:
    """Tell whether a row is said to be clean and in error."""
    return row.verdict is Verdict.ERROR and row.node_class is NodeClass.CLEAN


def known_class(row: RowJudgement) -> NodeClass:
    """Return the class of a row; one that recovered is called otherwise where a tool flags it."""
    return NodeClass.PROPAGATED if row.node_class is NodeClass.HEALED else row.node_class


@UNHURRIED
@given(slices())
def test_the_class_of_a_node_is_the_same_under_all_rules_and_no_error_is_clean(drawn: list[Drawn]) -> None:
    made = make(*(call.call() for call in drawn))
    own, *others = ([known_class(row) for row in made.judge(rules).said.rows] for rules in RULES)
    assert all(other == own for other in others)
    assert not any(is_contradiction(row) for row in made.judge().said.rows)


HEAD = "Module.lm_head.Linear.forward.0"
LOGITS = st.sampled_from([0.0, 1e-7, 1e-6, 3e-6, 2e-5, 4e-4, 3e-3, 0.2])


@UNHURRIED
@given(slices(), st.lists(LOGITS, min_size=1, max_size=5), st.booleans())
def test_what_all_slices_show_changes_no_class_and_leaves_no_error_clean(
    drawn: list[Drawn], errors: list[float], has_layers: bool
) -> None:
    calls = [call.call() for call in drawn] if has_layers else []
    made = [
        make(*calls, Call(HEAD, outputs=[logits(error)]), coordinates=Coordinates(step=0, token=number))
        for number, error in enumerate(errors)
    ]
    judged = [one.judge().said for one in made]
    bad = AllSlices(judged).bad_outputs
    settled = [
        with_bad_output(one, bad[one.coordinates], case.rows) if one.coordinates in bad else one
        for one, case in zip(judged, made, strict=True)
    ]
    for before, after in zip(judged, settled, strict=True):
        assert [row.node_class for row in after.rows] == [row.node_class for row in before.rows]
        assert not any(is_contradiction(row) for row in after.rows)


def test_rules_that_do_not_exist_are_refused() -> None:
    made = make(Call("Torch.mul.0.forward", inputs=[0.0], outputs=[0.0]))
    with refuses(SettingsError, "error.no_rule_set"):
        judge_after((), made.plan, made.rows, made.measurements, "mine")
