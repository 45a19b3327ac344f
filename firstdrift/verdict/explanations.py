"""What explains an error: the first of the two tables by which nodes are judged.

    e(output)  >  FACTORS * worst of BOUNDS    and    e(output)  >  worst of FLOORS        an error begins

Each entry is a first-order error bound, or what was found in healthy runs. `firstdrift rules` and the page
Rules list the entries in this order. Adding one: an entry here, its sentence in `wording/rule_sentences/`,
and a test of its own.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import ClassVar, Final, TypeAlias

from firstdrift.metrics.measurement import DATA, STATISTICS
from firstdrift.model.node import BACKWARD
from firstdrift.operators.kinds import OpKind
from firstdrift.verdict.case import Case, Scope, apart_by_training
from firstdrift.verdict.conditioning import error_of_terms
from firstdrift.verdict.gradients import explained_gradient
from firstdrift.verdict.layer_outliers import peer_group
from firstdrift.verdict.only_output import only_output_limit
from firstdrift.verdict.operator_bounds import is_bounded, is_known_throughout, operator_bound
from firstdrift.verdict.router_ties import is_done_by_row
from firstdrift.verdict.rule import Rule
from firstdrift.verdict.tree import kind_of_row

PEERS: Final = "peers"
_EXPERTS: Final = "Ties between experts"
_OPERATORS: Final = "The error model of an operator"


def _always(_: Case) -> bool:
    return True


class Explanation(Rule, frozen=True, kw_only=True):
    """Something that explains an error.

    Attributes:
        applies: whether it is in force for a row.
        amount: the error that it explains; of FACTORS, how many times the explained error is none yet.
        scope: of which rows it speaks; None for all.
    """

    amount: Callable[[Case], float]
    applies: Callable[[Case], bool] = _always
    scope: Scope | None = None

    kind: ClassVar[str] = "explanation"


def _unbounded(_: Case) -> float:
    return math.inf


def _roundoff(case: Case) -> float:
    pair = case.error.output_pair
    return case.roundoff if pair is None else max(case.roundoff, case.evidence.pair_errors[pair].underflow)


def _inside(case: Case) -> float:
    return case.progress.inside[case.row.index]


def _input(case: Case) -> float:
    return case.error.input or 0.0


def _whole_input(case: Case) -> float:
    return case.error.whole_input


def _seen(case: Case) -> float:
    return case.progress.seen_whole


def _was_given_other_numbers(case: Case) -> bool:
    """Tell whether a row, or the forward pass of a backward one, was given other whole numbers."""
    if case.error.integer_input_pair is not None:
        return True
    forward = case.evidence.forward_partner(case.row) if case.row.direction is BACKWARD else None
    return forward is not None and forward.integer_input_pair is not None


def _was_given_other_tokens(case: Case) -> bool:
    # Another choice of experts gives them other tokens, and no other weights.
    return not case.weights and case.was_chosen_otherwise


def _mixes_tokens(case: Case) -> bool:
    return case.error.whole_input > 0.0 and not is_done_by_row(case.row)


def _follows_a_choice(case: Case) -> bool:
    return case.error.tells_little


def _trained(case: Case) -> float:
    trained = apart_by_training(case.evidence, case.error)
    own = 0.0 if case.weights else max(case.error.parameter or 0.0, trained)
    before = case.progress.trained
    return max(own, before) if before and _shows_a_part(case) else own


def _shows_a_part(case: Case) -> bool:
    """Tell whether of an output only statistics are known: they show a part of what parameters make."""
    pair = case.error.output_pair
    return pair is not None and case.evidence.measurements[pair].kind is STATISTICS


def _adds_what_was_compared(case: Case) -> bool:
    return bool(case.operands)


def _operands(case: Case) -> float:
    pair = case.error.output_pair
    total = case.evidence.measurements[pair].golden if pair is not None else None
    return 0.0 if total is None else error_of_terms(case.operands, total)


def _is_held_against_what_ran_before(case: Case) -> bool:
    return not case.operands


def _before(case: Case) -> float:
    progress = case.progress
    return (progress.seen or 0.0) if is_done_by_row(case.row) else progress.seen_whole


def _before_backward(case: Case) -> float:
    forward = case.evidence.forward_partner(case.row)
    return max(_seen(case), forward.worst if forward else 0.0)


def _may_be_reached_by_more(case: Case) -> bool:
    """Tell whether more than what it was given reaches a backward row: else its own error model says all."""
    return not is_known_throughout(case)


def _size(case: Case) -> int | None:
    pair = case.error.output_pair
    summary = case.evidence.measurements[pair].golden if pair is not None else None
    return summary.size if summary is not None else None


def _is_more_than_explained(case: Case) -> bool:
    return (case.error.output or 0.0) > case.explained


def _of_operator(case: Case) -> float:
    pair = case.error.output_pair
    return 0.0 if pair is None else operator_bound(case, pair)


BOUNDS: Final = (
    Explanation("rounding", "The rule", amount=_roundoff),
    Explanation("inside", "Leaves first", amount=_inside),
    Explanation(
        "gradient", "Gradients", ("gradient_scale",), amount=explained_gradient, scope=Scope.GRADIENT
    ),
    Explanation(
        "other_numbers",
        "Ties",
        applies=_was_given_other_numbers,
        amount=_unbounded,
        scope=Scope.ACTIVATION,
    ),
    Explanation(
        "other_tokens",
        _EXPERTS,
        applies=_was_given_other_tokens,
        amount=_unbounded,
        scope=Scope.CHOICE,
    ),
    Explanation("mixed_tokens", _EXPERTS, applies=_mixes_tokens, amount=_whole_input, scope=Scope.CHOICE),
    Explanation("after_choice", _EXPERTS, applies=_follows_a_choice, amount=_seen, scope=Scope.CHOICE),
    Explanation(
        "training",
        "Parameters",
        ("parameter_floor", "later_step_parameters"),
        amount=_trained,
        scope=Scope.ACTIVATION,
    ),
    Explanation("input", "The rule", ("factor",), amount=_input, scope=Scope.INPUT),
    Explanation(
        "operands", "Sums", applies=_adds_what_was_compared, amount=_operands, scope=Scope.UNRECORDED
    ),
    Explanation(
        "before",
        "The rule",
        applies=_is_held_against_what_ran_before,
        amount=_before,
        scope=Scope.UNRECORDED,
    ),
    Explanation(
        "backward",
        "Gradients",
        applies=_may_be_reached_by_more,
        amount=_before_backward,
        scope=Scope.BACKWARD,
    ),
    Explanation(
        "operator",
        _OPERATORS,
        applies=_is_more_than_explained,
        amount=_of_operator,
        scope=Scope.ACTIVATION,
    ),
)
"""The error that each of these explains; the largest counts."""


def _is_bounded_sum(case: Case) -> bool:
    """Tell whether a row is the sum of outputs of which all the data were compared."""
    pairs = (case.error.output_pair, *(term.pair for term in case.operands))
    kinds = {case.evidence.measurements[pair].kind for pair in pairs if pair is not None}
    return bool(case.operands) and kinds == {DATA}


def _counted(case: Case) -> int | None:
    """Return of how many elements the error of an output is: of its worst row, if that was taken."""
    pair = case.error.output_pair
    errors = case.evidence.measurements[pair].errors if pair is not None else None
    shape = case.evidence.plan.pairs[pair].golden.shape if pair is not None else None
    if errors is None or not shape or errors.worst_row_relative_l2 <= errors.relative_l2:
        return _size(case)
    return shape[-1]


def _factor(case: Case) -> float:
    return case.limits.factor


def _by_chance(case: Case) -> float:
    """Return by how much the error of few elements may come out larger, by chance."""
    return 1.0 + 2.0 / math.sqrt(_counted(case) or math.inf)


def _amplification(case: Case) -> float:
    return case.limits.factor * _by_chance(case)


FACTORS: Final = (
    Explanation("bounded_sum", "Sums", ("factor",), applies=_is_bounded_sum, amount=_factor),
    Explanation("amplification", "The rule", ("factor",), amount=_amplification),
)
"""How many times the explained error begins to be one of the row's own; the first that applies counts."""


def _is_alone(case: Case) -> bool:
    return case.evidence.measured_outputs <= 1


def _is_of_logits(case: Case) -> bool:
    pair = case.error.output_pair
    return pair in case.evidence.logits and _is_alone(case)


def _is_only_output(case: Case) -> bool:
    return _is_alone(case) and not _is_of_logits(case)


def _stands_out(case: Case) -> bool:
    pair = case.error.output_pair
    if case.row.index not in case.progress.outstanding or pair is None or _is_alone(case):
        return False
    if case.is_unrecorded and not case.operands and peer_group(case.row) not in case.progress.peers_before:
        # That grows from layer to layer: the first of the peers stands out in healthy runs too.
        return False
    # Statistics bound errors from below, those of inputs and outputs too unevenly to be held against peers.
    return case.evidence.measurements[pair].kind is DATA


def _is_looked_up(case: Case) -> bool:
    return kind_of_row(case.row) is OpKind.LOOKUP


def _has_no_floor_of_its_own(case: Case) -> bool:
    return not (_is_alone(case) or _stands_out(case) or _is_looked_up(case))


def _is_one_operator(case: Case) -> bool:
    return _has_no_floor_of_its_own(case) and not case.error.tells_little and is_bounded(case)


def _is_among_others(case: Case) -> bool:
    return _has_no_floor_of_its_own(case) and not _is_one_operator(case)


def _peer_floor(case: Case) -> float:
    return case.limits.peer_floor * case.roundoff


def _bounded_floor(case: Case) -> float:
    pair = case.error.output_pair
    is_exact = pair is not None and case.evidence.measurements[pair].kind is DATA
    rounding = (1.0 if is_exact else 2.0) * _by_chance(case) * case.limits.bounded_floor * case.roundoff
    return max(rounding, case.limits.floor * case.limits.roundoff_float32)  # inside it is computed in float32


def _floor(case: Case) -> float:
    return case.limits.floor * case.roundoff


def _has_baseline(case: Case) -> bool:
    return bool(case.evidence.noise.outputs)


def _baseline(case: Case) -> float:
    return case.limits.excess * case.evidence.noise.of_output(case.row)


FLOORS: Final = (
    Explanation(PEERS, "Peers", ("peer_floor",), applies=_stands_out, amount=_peer_floor),
    Explanation("copied", "The rule", ("peer_floor",), applies=_is_looked_up, amount=_peer_floor),
    Explanation(
        "bounded", _OPERATORS, ("bounded_floor", "floor"), applies=_is_one_operator, amount=_bounded_floor
    ),
    Explanation("gathered", "The rule", ("floor",), applies=_is_among_others, amount=_floor),
    Explanation("logits_alone", "Tokens", applies=_is_of_logits, amount=_unbounded),
    Explanation(
        "only_output",
        "A single output",
        (
            "drift_roundoffs",
            "drift_least",
            "alone_floor",
            "hidden_floor",
            "msit_cosine",
            "msit_kl_bfloat16",
            "msit_kl",
        ),
        applies=_is_only_output,
        amount=only_output_limit,
    ),
    Explanation("baseline", "What healthy runs show", ("excess",), applies=_has_baseline, amount=_baseline),
)
"""Output errors up to which nothing begins at a row, whatever came in; the largest counts."""


def explain(case: Case) -> None:
    """Find the output error that a row's inputs and what ran before explain, and the entry that says so."""
    case.explained, case.explanation = 0.0, ""
    for applies, amount_of, name in _in_scope(case.scope.value):
        if (applies is None or applies(case)) and (amount := amount_of(case)) > case.explained:
            case.explained, case.explanation = amount, name


_Quick: TypeAlias = tuple[Callable[[Case], bool] | None, Callable[[Case], float], str]


@cache
def _in_scope(scope: int) -> tuple[_Quick, ...]:
    """Lay out the bounds of a kind of row so that they are asked quickly: of every row each is."""
    return tuple(
        (None if entry.applies is _always else entry.applies, entry.amount, entry.id)
        for entry in BOUNDS
        if entry.scope is None or entry.scope.value & scope
    )


def jumps(case: Case, explained: float) -> bool:
    """Tell whether the output error of a row is more than what is explained, rounding and noise."""
    output = case.error.output
    if output is None or output <= case.limits.factor * explained:
        return False
    return output > factor_of(case)[0] * explained and output > floor_of(case)[0]


def factor_of(case: Case) -> tuple[float, str]:
    """Return how many times the explained error is one of the row's own, and the entry that says so."""
    entry = next(entry for entry in FACTORS if entry.applies(case))
    return entry.amount(case), entry.id


def floor_of(case: Case) -> tuple[float, str]:
    """Return the output error up to which nothing begins at a row, and the entry that says so."""
    return max((entry.amount(case), entry.id) for entry in FLOORS if entry.applies(case))


def excused_up_to(case: Case) -> float | None:
    """Return the output error up to which nothing begins at a row; None if any error is explained."""
    limit = max(factor_of(case)[0] * case.explained, floor_of(case)[0])
    return limit if limit < math.inf else None


def excused_by(case: Case) -> str | None:
    """Return the entry that excuses the output error of a row at which nothing begins; None without one."""
    output = case.error.output
    if not output:
        return None
    if output <= case.limits.factor * case.explained:
        return case.explanation
    factor, by = factor_of(case)
    return by if output <= factor * case.explained else floor_of(case)[1]
