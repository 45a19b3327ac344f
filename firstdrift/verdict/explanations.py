"""What explains an error: the first of the two tables by which nodes are judged.

    e(output)  >  FACTORS * worst of BOUNDS    and    e(output)  >  worst of FLOORS        an error begins

Each entry is a first-order error bound, or what was found in healthy runs. `firstdrift rules` and the page
Rules list the entries in this order. Adding one: an entry here, its sentence under `[rule.explanation]`
in `wording/`, and a test of its own.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final, NamedTuple, TypeAlias

from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.operators.kinds import Magnification, Work
from firstdrift.verdict.conditioning import honest_error, how_it_magnifies
from firstdrift.verdict.constants import MOST_CANCELLED
from firstdrift.verdict.evidence import Case, Scope
from firstdrift.verdict.gradients import explained_by_cancellation, explained_gradient
from firstdrift.verdict.layer_outliers import peer_group
from firstdrift.verdict.logits import is_logits
from firstdrift.verdict.router_ties import is_done_by_row
from firstdrift.verdict.tree import work_of_row
from firstdrift.wording.message import Message


class Explanation(NamedTuple):
    """Something that explains an error.

    Attributes:
        id: what it is called; also the last part of its message.
        applies: whether it is in force for a row.
        amount: the error that it explains; of FACTORS, how many times the explained error is none yet.
        place: the heading, or the bold word, of docs/verdict.md where it is described.
        thresholds: names of the thresholds that it goes by.
        scope: of which rows it speaks; None for all.
    """

    id: str
    applies: Callable[[Case], bool]
    amount: Callable[[Case], float]
    place: str
    thresholds: tuple[str, ...] = ()
    scope: Scope | None = None

    @property
    def name(self) -> str:
        """What rows keep of it: "explanation.input"."""
        return f"explanation.{self.id}"

    @property
    def why(self) -> Message:
        """One sentence of why."""
        return Message.of(f"rule.explanation.{self.id}")


_EXPERTS: Final = "Ties between experts"
_HONESTLY: Final = "Operators that magnify honestly"


def _always(_: Case) -> bool:
    return True


def _unbounded(_: Case) -> float:
    return math.inf


def _whole_input(case: Case) -> float:
    return case.error.whole_input


def _seen(case: Case) -> float:
    return case.progress.seen_whole


def _was_given_other_numbers(case: Case) -> bool:
    return case.error.integer_input_pair is not None


def _was_given_other_tokens(case: Case) -> bool:
    # Another choice of experts gives them other tokens, and no other weights.
    return not case.weights and case.was_chosen_otherwise


def _mixes_tokens(case: Case) -> bool:
    return case.error.whole_input > 0.0 and not is_done_by_row(case.row)


def _follows_a_choice(case: Case) -> bool:
    return case.error.tells_little


def _has_parameters_that_agree(case: Case) -> bool:
    return bool(case.error.parameter) and not case.weights


def _trained(case: Case) -> float:
    """Return the error that training noise in the parameters explains.

    It sits in the rows that were trained, of which statistics of the whole parameter tell nothing.
    """
    evidence, error = case.evidence, case.error
    pair = error.parameter_pair
    if not error.parameter or pair is None:
        return 0.0
    is_whole = evidence.measurements[pair].kind is MeasurementKind.STATISTICS
    return math.inf if evidence.is_later_step and is_whole else error.parameter


def _input(case: Case) -> float:
    return case.error.input or 0.0


def _magnifies(how: Magnification) -> Callable[[Case], bool]:
    def applies(case: Case) -> bool:
        return how_it_magnifies(case.row) is how

    return applies


def _magnified(case: Case) -> float:
    return honest_error(case.row, case.error, case.evidence.plan, case.evidence.measurements)


def _is_sum_of_recorded(case: Case) -> bool:
    return _sum_of_operands(case) is not None


def _sum_of_operands(case: Case) -> float | None:
    """Return |d operands| / |sum| of a sum whose operands are known; None where a row is none."""
    evidence = case.evidence
    total = evidence.output_of(case.row) if case.is_sum else None
    if total is None or not total[1].norm:
        return None
    operands = [evidence.output_of(other) for other in evidence.operands(case.row)]
    return sum(known[0] * (known[1].norm or 0.0) for known in operands if known) / total[1].norm


def _operands(case: Case) -> float:
    return _sum_of_operands(case) or 0.0


def _is_held_against_what_ran_before(case: Case) -> bool:
    return _sum_of_operands(case) is None


def _before(case: Case) -> float:
    progress = case.progress
    return (progress.seen or 0.0) if is_done_by_row(case.row) else progress.seen_whole


def _cancelled(case: Case) -> float:
    return explained_by_cancellation(case.evidence, case.row, case.error, case.progress.roundoff)


def _gradient(case: Case) -> float:
    return explained_gradient(case.evidence, case.error, case.progress.seen_whole)


def _forward(case: Case) -> float:
    partner = case.evidence.forward_partner(case.row)
    return partner.worst if partner else 0.0


BOUNDS: Final = (
    Explanation("rounding", _always, lambda case: case.roundoff, "The rule"),
    Explanation("inside", _always, lambda case: case.progress.inside[case.row.index], "Leaves first"),
    Explanation("gradient", _always, _gradient, "Gradients", ("gradient_scale",), Scope.GRADIENT),
    Explanation("other_numbers", _was_given_other_numbers, _unbounded, "Ties", (), Scope.ACTIVATION),
    Explanation("other_tokens", _was_given_other_tokens, _unbounded, _EXPERTS, (), Scope.ACTIVATION),
    Explanation("mixed_tokens", _mixes_tokens, _whole_input, _EXPERTS, (), Scope.ACTIVATION),
    Explanation("after_choice", _follows_a_choice, _seen, _EXPERTS, (), Scope.ACTIVATION),
    Explanation(
        "training",
        _has_parameters_that_agree,
        _trained,
        "Parameters",
        ("later_step_parameters",),
        Scope.ACTIVATION,
    ),
    Explanation("input", _always, _input, "The rule", ("factor",), Scope.INPUT),
    Explanation("absolute", _magnifies(Magnification.ABSOLUTE), _magnified, _HONESTLY, (), Scope.INPUT),
    Explanation("cancelling", _magnifies(Magnification.CANCELLING), _magnified, _HONESTLY, (), Scope.INPUT),
    Explanation("centring", _magnifies(Magnification.CENTRING), _magnified, _HONESTLY, (), Scope.INPUT),
    Explanation("operands", _is_sum_of_recorded, _operands, "Sums", (), Scope.UNRECORDED),
    Explanation("before", _is_held_against_what_ran_before, _before, "The rule", (), Scope.UNRECORDED),
    Explanation("cancelled_sum", _always, _cancelled, "Sums that cancel out", (), Scope.BACKWARD),
    Explanation("backward", _always, _seen, "Gradients", (), Scope.BACKWARD),
    Explanation("forward", _always, _forward, "Gradients", (), Scope.BACKWARD),
)
"""The error that each of these explains; the largest counts."""


def _size(case: Case) -> int | None:
    pair = case.error.output_pair
    summary = case.evidence.measurements[pair].golden if pair is not None else None
    return summary.size if summary is not None else None


def _is_single_product(case: Case) -> bool:
    return _size(case) == 1 and work_of_row(case.row) is Work.LINEAR


def _is_bounded_sum(case: Case) -> bool:
    return case.is_unrecorded and case.evidence.is_bounded_sum(case.row, case.progress.roundoff)


def _has_few_elements(case: Case) -> bool:
    return bool(_size(case))


def _of_few_elements(case: Case) -> float:
    return case.limits.factor * (1.0 + 2.0 / math.sqrt(_size(case) or math.inf))


FACTORS: Final = (
    Explanation(
        "single_product",
        _is_single_product,
        lambda case: case.limits.factor * MOST_CANCELLED.value,
        "A single dot product",
        ("factor",),
    ),
    Explanation("bounded_sum", _is_bounded_sum, lambda case: case.limits.factor, "Sums", ("factor",)),
    Explanation("few_elements", _has_few_elements, _of_few_elements, "The rule", ("factor",)),
    Explanation("amplification", _always, lambda case: case.limits.factor, "The rule", ("factor",)),
)
"""How many times the explained error begins to be one of the row's own; the first that applies counts."""


def _is_alone(case: Case) -> bool:
    return case.evidence.measured_outputs <= 1


def _is_of_logits(case: Case) -> bool:
    pair = case.error.output_pair
    return _is_alone(case) and pair is not None and is_logits(case.evidence.plan.pairs[pair])


def _is_only_output(case: Case) -> bool:
    return _is_alone(case) and not _is_of_logits(case)


def _stands_out(case: Case) -> bool:
    evidence, pair = case.evidence, case.error.output_pair
    if case.row.index not in evidence.outstanding or pair is None or _is_alone(case):
        return False
    is_first = peer_group(case.row) not in case.progress.peers_before
    if is_first and case.is_unrecorded and not case.is_sum:
        # That grows from layer to layer: the first of the peers stands out in healthy runs too.
        return False
    # Without norms the bound that statistics give is too uneven to be held against peers.
    measured = evidence.measurements[pair]
    norms = [side.norm for side in (measured.golden, measured.target) if side is not None]
    return measured.kind is MeasurementKind.DATA or (bool(norms) and None not in norms)


def _is_among_others(case: Case) -> bool:
    return not _is_alone(case) and not _stands_out(case)


def _only_output(case: Case) -> float:
    return max(case.limits.hidden_floor * case.roundoff, case.limits.alone_floor)


def _has_baseline(case: Case) -> bool:
    return bool(case.evidence.noise.outputs)


def _baseline(case: Case) -> float:
    return case.limits.excess * case.evidence.noise.of_output(case.row)


FLOORS: Final = (
    Explanation(
        "peers", _stands_out, lambda case: case.limits.peer_floor * case.roundoff, "Peers", ("peer_floor",)
    ),
    Explanation(
        "gathered", _is_among_others, lambda case: case.limits.floor * case.roundoff, "The rule", ("floor",)
    ),
    Explanation("logits_alone", _is_of_logits, _unbounded, "Tokens"),
    Explanation(
        "only_output", _is_only_output, _only_output, "Sums that cancel out", ("hidden_floor", "alone_floor")
    ),
    Explanation("baseline", _has_baseline, _baseline, "What healthy runs show", ("excess",)),
)
"""Output errors up to which nothing begins at a row, whatever came in; the largest counts."""

EXPLANATIONS: Final = (*BOUNDS, *FACTORS, *FLOORS)


def explain(case: Case) -> tuple[float, str]:
    """Return the output error that a row's inputs and what ran before explain, and the entry that says so."""
    most, by = 0.0, ""
    for applies, amount_of, name in _in_scope(case.scope.value):
        if (applies is None or applies(case)) and (amount := amount_of(case)) > most:
            most, by = amount, name
    return most, by


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
    entry = next(one for one in FACTORS if one.applies(case))
    return entry.amount(case), entry.id


def floor_of(case: Case) -> tuple[float, str]:
    """Return the output error up to which nothing begins at a row, and the entry that says so."""
    return max(_amounts(case, FLOORS))


def _amounts(case: Case, entries: Sequence[Explanation]) -> list[tuple[float, str]]:
    return [(entry.amount(case), entry.id) for entry in entries if entry.applies(case)]


def excused_by(case: Case) -> str | None:
    """Return the entry that excuses the output error of a row at which nothing begins; None without one."""
    output = case.error.output
    if not output:
        return None
    if output <= case.limits.factor * case.explained:
        return case.explanation
    factor, by = factor_of(case)
    return by if output <= factor * case.explained else floor_of(case)[1]
