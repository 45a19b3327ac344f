"""What a node is called: the second of the two tables by which nodes are judged.

The first rule that applies to a row decides, and the row keeps its id. `firstdrift rules` and the page Rules
list them in this order. Adding one: an entry here, its sentence in `wording/rule_sentences/classes.toml`, and
a test.
"""

import math
from collections.abc import Callable
from enum import Flag, auto
from functools import cache
from typing import ClassVar, Final

from firstdrift.model.tensor import Role
from firstdrift.operators.kinds import OpKind
from firstdrift.operators.paths import is_router
from firstdrift.operators.properties import is_dropout
from firstdrift.verdict import reasons
from firstdrift.verdict.case import Case
from firstdrift.verdict.dropouts import dropout_of
from firstdrift.verdict.judgement import NodeClass, Reasons
from firstdrift.verdict.rule import Rule
from firstdrift.verdict.tree import kind_of_row
from firstdrift.wording.message import Message

_WORDS: Final = "What a node did to the error"
_JUMP: Final = ("factor", "floor")


class When(Flag):
    """In which situations a rule is asked: all that it names have to hold."""

    ALWAYS = 0

    UNMATCHED = auto()
    """The row has no partner."""

    OTHER_INPUT = auto()
    """It is where the model's input differs, or runs after."""

    JUMP = auto()
    """Its output error is more than what is explained."""

    CHOICE = auto()
    """Its whole-number output differs."""

    FAULT = auto()
    """An error begins at a row before it."""


def _always(_: Case) -> bool:
    return True


def _output_pair(case: Case) -> int | None:
    return case.error.output_pair


def _tie_pair(case: Case) -> int | None:
    return case.error.tie_pair


def _no_pair(_: Case) -> int | None:
    return None


def _says(*said: Message) -> Callable[[Case], Reasons]:
    return lambda _: said


class ClassRule(Rule, frozen=True, kw_only=True):
    """A rule that says what a node is called.

    Attributes:
        when: in which situations it is asked.
        applies: whether it decides of a row that no rule before it decided.
        reasons: why, for the reader.
        pair: the pair that the reasons are about.
        is_tie: it chose otherwise among values that are equal within rounding.
        is_shown_by_no_pair: the row is an error, though no pair of tensors is off.
    """

    node_class: NodeClass
    when: When = When.ALWAYS
    applies: Callable[[Case], bool] = _always
    reasons: Callable[[Case], Reasons] = _says()
    pair: Callable[[Case], int | None] = _output_pair
    is_tie: bool = False
    is_shown_by_no_pair: bool = False

    kind: ClassVar[str] = "class"


def _is_where_the_input_differs(case: Case) -> bool:
    return case.progress.input_row == case.row.index and case.progress.input_pair is not None


def _is_off(case: Case) -> bool:
    return case.error.worst > case.limits.floor * case.roundoff


def _holds_an_origin(case: Case) -> bool:
    return bool(case.progress.origins_inside[case.row.index])


def _is_non_finite(case: Case) -> bool:
    return bool(case.error.non_finite) and (case.jumped or Role.PARAMETER in case.error.non_finite)


def _chose_from_equal(case: Case) -> bool:
    # Where numbers before are off, fractions of equal statistics are whole: counts, that may stand elsewhere.
    may_be_permuted = case.error.may_be_permuted and bool(case.progress.seen)
    return not case.jumped and case.error.exact_inputs and not may_be_permuted


def _has_other_weights(case: Case) -> bool:
    # What a look-up gives is a part of its weight, of which statistics of the whole tell little once trained.
    may_be_trained = case.jumped and case.evidence.is_later_step and bool(case.error.parameter)
    return case.weights or (may_be_trained and kind_of_row(case.row) is OpKind.LOOKUP)


def _has_another_argument(case: Case) -> bool:
    return case.error.scalar_pair is not None and (case.jumped or _gives_more_or_less(case))


def _is_given_what_is_off(case: Case) -> bool:
    return (case.error.input or 0.0) > case.progress.level


def _chose_from_what_is_off(case: Case) -> bool:
    return _is_given_what_is_off(case) or case.error.integer_input_pair is not None


def _why_it_chose(case: Case) -> Reasons:
    return (reasons.inputs_differ if _is_given_what_is_off(case) else reasons.numbers_differ)(case)


def _is_a_tie(case: Case) -> bool:
    return math.isinf(case.progress.level) or case.error.input is not None


def _has_another_shape(case: Case) -> bool:
    return case.error.shape_pair is not None and case.error.output is None


def _chooses_more_or_fewer(case: Case) -> bool:
    """Tell whether a router that was given the same chose another number of experts.

    One of another name may be of another code, and give something else beside its scores.
    """
    is_one = _gives_more_or_less(case) and case.row.golden == case.row.target
    return is_one and any(map(is_router, case.row.target))


def _is_reached(case: Case) -> bool:
    return case.error.output is not None and case.error.output > case.progress.level


def _is_masked(case: Case) -> bool:
    return _is_given_what_is_off(case) and case.evidence.is_masked(case.error.output_pair)


def _is_healed(case: Case) -> bool:
    return case.error.output is not None and _is_given_what_is_off(case)


def _lacks_a_gradient(case: Case) -> bool:
    return case.row.index in case.evidence.one_sided_gradients


def _is_scaled(case: Case) -> bool:
    return case.scaled is not None


def _gives_more_or_less(case: Case) -> bool:
    """Tell whether equal inputs gave another number of elements."""
    evidence, error = case.evidence, case.error
    if error.shape_pair is None or error.input is None:
        return False
    pair = evidence.plan.pairs[error.shape_pair]
    sizes = {math.prod(one.shape) for one in (pair.golden, pair.target) if one.shape is not None}
    return len(sizes) == 2 and not _is_given_what_is_off(case) and not case.was_chosen_otherwise  # noqa: PLR2004


def _drops_otherwise(case: Case) -> bool:
    return bool(_says_how_it_drops(case))


def _says_how_it_drops(case: Case) -> Reasons:
    if not is_dropout(case.row.type_name) or case.weights:
        return ()
    found = dropout_of(case.evidence, case.row)
    return () if found is None or found.fault is None else (found.fault,)


SOURCE: Final = ClassRule(
    "source", "The rule", _JUMP, node_class=NodeClass.SOURCE, when=When.JUMP, reasons=reasons.jump
)

INSIDE: Final = ClassRule(
    "inside",
    "Leaves first",
    node_class=NodeClass.PROPAGATED,
    applies=_holds_an_origin,
    reasons=_says(Message.of("reason.begins_inside")),
)

CLASS_RULES: Final = (
    ClassRule(
        "one_sided_gradient",
        "Gradients",
        node_class=NodeClass.STRUCTURE_DIFFERS,
        applies=_lacks_a_gradient,
        reasons=reasons.one_sided_gradient,
        pair=_no_pair,
        is_shown_by_no_pair=True,
    ),
    ClassRule("unmatched", _WORDS, node_class=NodeClass.UNMATCHED, when=When.UNMATCHED, pair=_no_pair),
    ClassRule(
        "input_differs",
        "Input differs",
        ("floor",),
        node_class=NodeClass.PROPAGATED,
        when=When.OTHER_INPUT,
        applies=_is_where_the_input_differs,
        reasons=_says(Message.of("reason.input_differs")),
        pair=lambda case: case.progress.input_pair,
    ),
    ClassRule(
        "after_input",
        "Input differs",
        ("floor",),
        node_class=NodeClass.PROPAGATED,
        when=When.OTHER_INPUT,
        applies=_is_off,
        pair=_no_pair,
    ),
    ClassRule(
        "before_input", "Input differs", node_class=NodeClass.CLEAN, when=When.OTHER_INPUT, pair=_no_pair
    ),
    INSIDE,
    ClassRule(
        "non_finite",
        "Overflow",
        node_class=NodeClass.NON_FINITE,
        applies=_is_non_finite,
        reasons=reasons.non_finite,
    ),
    ClassRule(
        "other_numbers",
        "Ties",
        node_class=NodeClass.SOURCE,
        when=When.CHOICE,
        applies=_chose_from_equal,
        reasons=_says(Message.of("reason.other_numbers")),
        pair=_tie_pair,
    ),
    ClassRule(
        "weights",
        "Parameters",
        ("parameter_floor", "later_step_parameters"),
        node_class=NodeClass.WEIGHTS_DIFFER,
        applies=_has_other_weights,
        reasons=reasons.weights,
        pair=lambda case: case.error.parameter_pair,
    ),
    ClassRule(
        "argument",
        _WORDS,
        node_class=NodeClass.STRUCTURE_DIFFERS,
        applies=_has_another_argument,
        reasons=reasons.argument,
        pair=lambda case: case.error.scalar_pair,
        is_shown_by_no_pair=True,
    ),
    ClassRule(
        "chosen_number",
        _WORDS,
        node_class=NodeClass.STRUCTURE_DIFFERS,
        applies=_chooses_more_or_fewer,
        reasons=reasons.shape,
        pair=lambda case: case.error.shape_pair,
        is_shown_by_no_pair=True,
    ),
    ClassRule(
        "dropout",
        "Systematic differences",
        node_class=NodeClass.SOURCE,
        applies=_drops_otherwise,
        reasons=_says_how_it_drops,
        is_shown_by_no_pair=True,
    ),
    ClassRule(
        "amplified",
        _WORDS,
        _JUMP,
        node_class=NodeClass.AMPLIFIED,
        when=When.JUMP | When.FAULT,
        applies=_is_given_what_is_off,
        reasons=reasons.jump,
    ),
    ClassRule(
        "scaled",
        "Direction",
        ("factor", "peer_floor"),
        node_class=NodeClass.SOURCE,
        when=When.JUMP,
        applies=_is_scaled,
        reasons=reasons.scaled,
    ),
    SOURCE,
    ClassRule(
        "choice_after",
        "Ties",
        node_class=NodeClass.PROPAGATED,
        when=When.CHOICE | When.FAULT,
        applies=_chose_from_what_is_off,
        reasons=_why_it_chose,
        pair=_tie_pair,
    ),
    ClassRule(
        "tie",
        "Ties",
        node_class=NodeClass.CLEAN,
        when=When.CHOICE,
        applies=_is_a_tie,
        reasons=_says(Message.of("reason.tie")),
        pair=_tie_pair,
        is_tie=True,
    ),
    ClassRule("choice_unknown", "Ties", node_class=NodeClass.CLEAN, when=When.CHOICE, pair=_tie_pair),
    ClassRule(
        "shape",
        _WORDS,
        node_class=NodeClass.STRUCTURE_DIFFERS,
        applies=_has_another_shape,
        reasons=reasons.shape,
        pair=lambda case: case.error.shape_pair,
    ),
    ClassRule(
        "reached",
        "What follows",
        node_class=NodeClass.PROPAGATED,
        when=When.FAULT,
        applies=_is_reached,
        reasons=reasons.reached,
    ),
    ClassRule(
        "masked",
        "What follows",
        node_class=NodeClass.PROPAGATED,
        when=When.FAULT,
        applies=_is_masked,
        reasons=reasons.masked,
    ),
    ClassRule(
        "healed",
        _WORDS,
        ("floor",),
        node_class=NodeClass.HEALED,
        when=When.FAULT,
        applies=_is_healed,
        reasons=reasons.healed,
    ),
    ClassRule("clean", _WORDS, node_class=NodeClass.CLEAN),
)
"""In order: the first that applies decides."""

ENTERED: Final = ClassRule(
    "entered",
    "An input that nothing explains",
    ("hidden_floor", "factor", "peer_floor", "drift_least", "excess"),
    node_class=NodeClass.SOURCE,
)
"""Decides of the module around a row whose input nothing explains, and so not of the row it looks at."""

BROUGHT: Final = ClassRule("brought", _WORDS, ("drift_least",), node_class=NodeClass.PROPAGATED)
"""Decides of a row that is clean by itself, when all pairs of its slice have been judged."""

MAY_FOLLOW: Final = ClassRule("may_follow", "What follows", node_class=NodeClass.CLEAN)
"""Decides of a row after a fault of which statistics show less than the fault may have brought."""

FROM_OTHER_RANKS: Final = ClassRule("from_other_ranks", "Ranks", node_class=NodeClass.PROPAGATED)
"""Decides of a communication that gives what differs: what one rank shows does not tell where it began."""

AS_ALL_WEIGHTS: Final = ClassRule(
    "as_all_weights", "Systematic differences", node_class=NodeClass.WEIGHTS_DIFFER
)
"""Decides of a row whose weight differs as nearly all do, and at which nothing else begins."""

ALL_CLASS_RULES: Final = (ENTERED, *CLASS_RULES, MAY_FOLLOW, BROUGHT, FROM_OTHER_RANKS, AS_ALL_WEIGHTS)


def rule_of(case: Case) -> ClassRule:
    """Return the rule that decides what a row is called."""
    situations = (
        case.row.match is None,
        case.progress.input_row is not None,
        case.jumped,
        case.error.tie_pair is not None,
        case.progress.level != math.inf,
    )
    for applies, rule in _asked_in(situations):
        if applies(case):
            return rule
    return CLASS_RULES[-1]


@cache
def _asked_in(situations: tuple[bool, ...]) -> tuple[tuple[Callable[[Case], bool], ClassRule], ...]:
    """Lay out the rules that are asked in some situations, in the order of `When`."""
    outside = [one for one, holds in zip(When, situations, strict=True) if not holds]
    return tuple((rule.applies, rule) for rule in CLASS_RULES if not any(one & rule.when for one in outside))
