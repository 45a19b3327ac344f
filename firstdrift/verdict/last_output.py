"""Which pair of a slice is its last output, by which tokens and slices are held against each other."""

from firstdrift.model.node import API, BACKWARD
from firstdrift.model.tensor import OUTPUT
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.router_ties import hides


def last_output(evidence: Evidence) -> int | None:
    """Return the pair of the last logits; failing these, of the last floating output that was compared.

    An output of a module goes before one of an operator: only of a token that was dumped without modules,
    as the graph that a compiler made of it, does the last operator give what the model gives.
    """
    ranked = (
        (index in evidence.logits, row.kind is not API, row.order, -index)
        for row, error in zip(evidence.rows, evidence.errors, strict=True)
        if row.direction is not BACKWARD
        for index in error.pairs
        if _is_compared_output(evidence, index)
    )
    is_token = evidence.plan.target.coordinates.token is not None
    last = max((one for one in ranked if is_token or any(one[:2])), default=None)
    return None if last is None else -last[-1]


def _is_compared_output(evidence: Evidence, index: int) -> bool:
    error, pair = evidence.pair_errors[index], evidence.plan.pairs[index]
    is_output = pair.role is OUTPUT and pair.target.is_tensor
    return is_output and error.value is not None and not error.discrete


def chosen_tokens(evidence: Evidence, logits: int) -> tuple[int | None, int | None]:
    """Return the tokens that the golden and the target logits choose; None where none were measured."""
    known = evidence.measurements[logits].logits
    return (None, None) if known is None else (known.last.golden_top, known.last.target_top)


def may_be_another_choice(evidence: Evidence, logits: int) -> bool:
    """Tell whether logits may be off because other experts were chosen."""
    pair = evidence.plan.pairs[logits]
    return hides(evidence.choices, evidence.row_of(logits), pair, evidence.measurements[logits])
