"""What a node is called: the second of the two tables by which nodes are judged.

The first rule that applies to a row decides, and the row keeps its id. `firstdrift rules` and the page Rules
list them in this order. Adding one: an entry here, its sentence under `[rule.class]` in `wording/`, and a
test of its own.
"""

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from firstdrift.model.tensor import Role
from firstdrift.verdict import reasons
from firstdrift.verdict.evidence import Case
from firstdrift.verdict.judgement import NodeClass, Reasons
from firstdrift.wording.message import Message

_WORDS: Final = "What a node did to the error"


def _nothing_to_say(_: Case) -> Reasons:
    return ()


def _output_pair(case: Case) -> int | None:
    return case.error.output_pair


class ClassRule(NamedTuple):
    """A rule that says what a node is called.

    Attributes:
        id: what it is called; also the last part of its message.
        applies: whether it decides of a row that no rule before it decided.
        node_class: what the row is called then.
        place: the heading, or the bold word, of docs/verdict.md where it is described.
        reasons: why, for the reader.
        pair: the pair that the reasons are about.
        thresholds: names of the thresholds that it goes by.
        is_tie: it chose otherwise among values that are equal within rounding.
    """

    id: str
    applies: Callable[[Case], bool]
    node_class: NodeClass
    place: str
    reasons: Callable[[Case], Reasons] = _nothing_to_say
    pair: Callable[[Case], int | None] = _output_pair
    thresholds: tuple[str, ...] = ()
    is_tie: bool = False

    @property
    def name(self) -> str:
        """What rows keep of it: "class.source"."""
        return f"class.{self.id}"

    @property
    def why(self) -> Message:
        """One sentence of what it looks at."""
        return Message.of(f"rule.class.{self.id}")


def _parameter_pair(case: Case) -> int | None:
    return case.error.parameter_pair


def _tie_pair(case: Case) -> int | None:
    return case.error.tie_pair


def _no_pair(_: Case) -> int | None:
    return None


def _is_unmatched(case: Case) -> bool:
    return case.row.match is None


def _is_where_the_input_differs(case: Case) -> bool:
    return case.progress.input_row == case.row.index and case.progress.input_pair is not None


def _is_off_by_another_input(case: Case) -> bool:
    limit = case.limits.floor * case.roundoff
    return case.progress.input_row is not None and case.error.worst > limit


def _has_another_input(case: Case) -> bool:
    return case.progress.input_row is not None


def _holds_an_origin(case: Case) -> bool:
    return bool(case.progress.origins_inside[case.row.index])


def _is_non_finite(case: Case) -> bool:
    return bool(case.error.non_finite) and (case.jumped or Role.PARAMETER in case.error.non_finite)


def _chose_from_equal(case: Case) -> bool:
    return not case.jumped and case.error.tie_pair is not None and case.error.exact_inputs


def _has_other_weights(case: Case) -> bool:
    return case.weights


def _has_another_argument(case: Case) -> bool:
    return case.jumped and case.error.scalar_pair is not None


def _is_amplified(case: Case) -> bool:
    return case.jumped and (case.error.input or 0.0) > case.progress.level


def _jumps(case: Case) -> bool:
    return case.jumped


def _chose_after_a_fault(case: Case) -> bool:
    return case.error.tie_pair is not None and (case.error.input or 0.0) > case.progress.level


def _chose_from_other_numbers(case: Case) -> bool:
    chose = case.error.tie_pair is not None and case.error.integer_input_pair is not None
    return chose and math.isfinite(case.progress.level)


def _is_a_tie(case: Case) -> bool:
    is_known = math.isinf(case.progress.level) or case.error.input is not None
    return case.error.tie_pair is not None and is_known


def _chose_from_what_is_not_known(case: Case) -> bool:
    return case.error.tie_pair is not None


def _has_another_shape(case: Case) -> bool:
    return case.error.shape_pair is not None and case.error.output is None


def _is_reached(case: Case) -> bool:
    return case.error.output is not None and case.error.output > case.progress.level


def _is_healed(case: Case) -> bool:
    error = case.error
    return error.input is not None and error.input > case.progress.level and error.output is not None


def _always(_: Case) -> bool:
    return True


CLASS_RULES: Final = (
    ClassRule("unmatched", _is_unmatched, NodeClass.UNMATCHED, _WORDS, pair=_no_pair),
    ClassRule(
        "input_differs",
        _is_where_the_input_differs,
        NodeClass.PROPAGATED,
        "Input differs",
        reasons.input_differs,
        lambda case: case.progress.input_pair,
        ("floor",),
    ),
    ClassRule(
        "after_input",
        _is_off_by_another_input,
        NodeClass.PROPAGATED,
        "Input differs",
        pair=_no_pair,
        thresholds=("floor",),
    ),
    ClassRule("before_input", _has_another_input, NodeClass.CLEAN, "Input differs", pair=_no_pair),
    ClassRule("inside", _holds_an_origin, NodeClass.PROPAGATED, "Leaves first", reasons.begins_inside),
    ClassRule("non_finite", _is_non_finite, NodeClass.NON_FINITE, "Overflow", reasons.non_finite),
    ClassRule(
        "other_numbers",
        _chose_from_equal,
        NodeClass.SOURCE,
        "Ties",
        reasons.other_numbers,
        _tie_pair,
    ),
    ClassRule(
        "weights",
        _has_other_weights,
        NodeClass.WEIGHTS_DIFFER,
        "Parameters",
        reasons.weights,
        _parameter_pair,
        ("parameter_floor", "later_step_parameters"),
    ),
    ClassRule(
        "argument",
        _has_another_argument,
        NodeClass.STRUCTURE_DIFFERS,
        _WORDS,
        reasons.argument,
        lambda case: case.error.scalar_pair,
    ),
    ClassRule(
        "amplified",
        _is_amplified,
        NodeClass.AMPLIFIED,
        _WORDS,
        reasons.jump,
        thresholds=("factor", "floor"),
    ),
    ClassRule("source", _jumps, NodeClass.SOURCE, "The rule", reasons.jump, thresholds=("factor", "floor")),
    ClassRule(
        "choice_after",
        _chose_after_a_fault,
        NodeClass.PROPAGATED,
        "Ties",
        reasons.inputs_differ,
        _tie_pair,
    ),
    ClassRule(
        "choice_from_numbers",
        _chose_from_other_numbers,
        NodeClass.PROPAGATED,
        "Ties",
        reasons.numbers_differ,
        _tie_pair,
    ),
    ClassRule("tie", _is_a_tie, NodeClass.CLEAN, "Ties", reasons.tie, _tie_pair, is_tie=True),
    ClassRule("choice_unknown", _chose_from_what_is_not_known, NodeClass.CLEAN, "Ties", pair=_tie_pair),
    ClassRule(
        "shape",
        _has_another_shape,
        NodeClass.STRUCTURE_DIFFERS,
        _WORDS,
        reasons.shape,
        lambda case: case.error.shape_pair,
    ),
    ClassRule("reached", _is_reached, NodeClass.PROPAGATED, "What follows", reasons.reached),
    ClassRule(
        "healed",
        _is_healed,
        NodeClass.HEALED,
        _WORDS,
        reasons.healed,
        thresholds=("floor",),
    ),
    ClassRule("clean", _always, NodeClass.CLEAN, _WORDS),
)
"""In order: the first that applies decides."""

ENTERED: Final = ClassRule(
    "entered",
    lambda _: False,
    NodeClass.SOURCE,
    "An input that nothing explains",
    thresholds=("hidden_floor", "factor", "excess"),
)
"""Decides of the module around a row whose input nothing explains, and so not of the row it looks at."""

BROUGHT: Final = ClassRule(
    "brought",
    lambda _: False,
    NodeClass.PROPAGATED,
    _WORDS,
    thresholds=("drift_least",),
)
"""Decides of a row that is clean by itself, when all pairs of its slice have been judged."""

ALL_CLASS_RULES: Final = (ENTERED, *CLASS_RULES, BROUGHT)


_QUICK: Final = tuple((rule.applies, rule) for rule in CLASS_RULES)


def rule_of(case: Case) -> ClassRule:
    """Return the rule that decides what a row is called."""
    for applies, rule in _QUICK:
        if applies(case):
            return rule
    return CLASS_RULES[-1]
