"""The verdict of each row of the tree, and what lies below it."""

import math
from collections.abc import Sequence

from msgspec.structs import replace

from firstdrift.verdict.classes import AS_ALL_WEIGHTS, BROUGHT, FROM_OTHER_RANKS
from firstdrift.verdict.classify import Classification, Classified
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.judgement import (
    ORIGINS,
    NodeClass,
    PairJudgement,
    Reasons,
    RollUp,
    RowJudgement,
    Verdict,
)
from firstdrift.verdict.pair_error import error_of_numbers
from firstdrift.verdict.pair_verdicts import is_hidden
from firstdrift.verdict.reasons import as_all_weights, input_already_differs
from firstdrift.verdict.row_errors import RowErrors
from firstdrift.verdict.tokens import least_bad_output
from firstdrift.verdict.tree import TreeRow
from firstdrift.verdict.unmatched_reason import why_left_over
from firstdrift.wording.message import Message

_PASS, _INCOMPARABLE, _WARNING, _ERROR = Verdict
_UNMATCHED, _HEALED, _CLEAN = NodeClass.UNMATCHED, NodeClass.HEALED, NodeClass.CLEAN
"""By themselves, as they are asked of every row: Python 3.11 looks up slowly what an enum holds."""


def classes(
    evidence: Evidence, classification: Classification, own: Sequence[PairJudgement], logits: int | None
) -> list[NodeClass]:
    """Say what each row did to the error, whatever rules are in force.

    A row at which nothing begins is not clean if it has an error all the same: that was brought there. Nor
    is that of the last output if it is so far off that the slices beside it may show it to be bad.

    Args:
        evidence: of the slice.
        classification: of its rows.
        own: of each pair, the verdict of our own rules.
        logits: the pair of the last output.
    """
    reached = {at for at, pair in enumerate(own) if pair.verdict is _ERROR}
    least = least_bad_output(evidence.limits, classification.roundoff, evidence.plan.target.coordinates)
    if logits is not None and (evidence.pair_errors[logits].value or 0.0) > least:
        reached.add(logits)
    return [
        NodeClass.PROPAGATED
        if row.node_class is _CLEAN and not reached.isdisjoint(error.pairs)
        else row.node_class
        for row, error in zip(classification.rows, evidence.errors, strict=True)
    ]


def judge_rows(
    evidence: Evidence,
    classification: Classification,
    called: Sequence[NodeClass],
    pairs: Sequence[PairJudgement],
    *,
    own_rules: bool,
) -> list[RowJudgement]:
    """Judge each row by its pairs and by what it is called."""
    left_over = why_left_over(evidence.rows)
    judged = []
    for row, own, error, node_class in zip(
        evidence.rows, classification.rows, evidence.errors, called, strict=True
    ):
        verdicts = [pairs[index].verdict for index in error.pairs]
        verdicts += _own_verdict(own, own_rules=own_rules)
        verdict, shown_class = _agreeing(verdicts, node_class, own_rules=own_rules)
        inputs, output = (
            None if at is not None and is_hidden(evidence, classification, at) else value
            for value, at in ((error.input, error.input_pair), (error.output, error.output_pair))
        )
        if not inputs and error.integer_input_pair is not None:
            inputs = error_of_numbers(evidence.measurements[error.integer_input_pair])
        is_left_over = row.match is None and own.node_class is _UNMATCHED
        is_brought = shown_class is not own.node_class
        came_in = is_brought and (error.input or 0.0) > classification.level
        known = (input_already_differs(evidence, error),) if came_in else own.reasons
        reasons = left_over[row.index] if is_left_over else known or _first_reasons(error, pairs)
        judged.append(
            RowJudgement(
                verdict=verdict,
                node_class=shown_class,
                reasons=reasons,
                input_error=inputs,
                parameter_error=error.parameter,
                output_error=output,
                amplification=_amplification(inputs, output),
                worst_pair=own.worst_pair,
                rule=BROUGHT.name if is_brought else own.rule,
                excused_up_to=None if is_brought or not own_rules else own.excused_up_to,
            )
        )
    return judged


def _agreeing(
    verdicts: Sequence[Verdict], node_class: NodeClass, *, own_rules: bool
) -> tuple[Verdict, NodeClass]:
    """Return verdict and class of a row: none has recovered and fails, as another tool may say."""
    verdict = max(verdicts, key=_SEVERITIES.__getitem__, default=_PASS)
    if node_class is not _HEALED:
        return verdict, node_class
    if own_rules:
        return _WARNING, node_class
    return verdict, NodeClass.PROPAGATED if verdict is _ERROR else node_class


def shown_of(
    evidence: Evidence, classification: Classification, judged: Sequence[RowJudgement], *, own_rules: bool
) -> list[RowJudgement]:
    """Say of rows what is no origin of the slice, but is how its error came to them.

    What a communication gives is made of what all ranks give to it, and of these one alone is seen here. Of
    weights that nearly all differ, none is the first bad node; other rules than ours flag what they flag.
    """
    shown = list(judged)
    is_given_the_same = classification.input_row is None
    for row, error in zip(evidence.rows, evidence.errors, strict=True) if is_given_the_same else ():
        differing = [at for at in error.parameters if at in evidence.systematic_pairs]
        if not differing or judged[row.index].node_class in ORIGINS:
            continue
        called = replace(judged[row.index], node_class=AS_ALL_WEIGHTS.node_class, rule=AS_ALL_WEIGHTS.name)
        if own_rules:
            worst = max(differing, key=lambda at: evidence.pair_errors[at].value or 0.0)
            reasons: Reasons = (as_all_weights(evidence, worst),)
            called = replace(called, verdict=_ERROR, reasons=reasons, worst_pair=worst)
        shown[row.index] = called
    for row in evidence.communications:
        own = judged[row.index]
        if own.node_class in ORIGINS:
            reasons = (*own.reasons, Message.of("reason.from_other_ranks"))
            shown[row.index] = replace(
                own,
                node_class=FROM_OTHER_RANKS.node_class,
                reasons=reasons,
                rule=FROM_OTHER_RANKS.name,
            )
    return shown


def _amplification(inputs: float | None, output: float | None) -> float | None:
    """Return how many times the output error is the input error, as both are shown."""
    if inputs is None or output is None:
        return None
    if not inputs:
        return math.inf if output else None
    return output / inputs if math.isfinite(inputs) else None


def _own_verdict(own: Classified, *, own_rules: bool) -> list[Verdict]:
    """Return the verdict of a row for what no pair of it shows."""
    if own.node_class is _UNMATCHED:
        return [_INCOMPARABLE]
    is_entered = own_rules and own.entered is not None and own.node_class in ORIGINS
    return [_ERROR] if is_entered or (own_rules and own.is_shown_by_no_pair) else []


def _first_reasons(error: RowErrors, pairs: Sequence[PairJudgement]) -> Reasons:
    flagged = [pairs[index] for index in error.pairs if pairs[index].reasons]
    # Of several as bad, any one, if only it is the same in whatever order the pairs come.
    first = min(flagged, key=lambda pair: (-pair.verdict.severity, str(pair.reasons)), default=None)
    return () if first is None else first.reasons


def with_roll_ups(rows: Sequence[TreeRow], judged: Sequence[RowJudgement]) -> tuple[RowJudgement, ...]:
    """Say of each row what lies below it."""
    sums = [[0, 0, 0, 0, 0, 0] for _ in rows]  # error, warning, incomparable, unmatched, origins, severity
    for row in reversed(rows):
        if row.parent is None:
            continue
        above, below, own = sums[row.parent], sums[row.index], judged[row.index]
        is_unmatched, is_error = own.node_class is _UNMATCHED, own.verdict is _ERROR
        above[0] += below[0] + is_error
        above[1] += below[1] + (own.verdict is _WARNING)
        above[2] += below[2] + (own.verdict is _INCOMPARABLE and not is_unmatched)
        above[3] += below[3] + is_unmatched
        above[4] += below[4] + (is_error and own.node_class in ORIGINS)
        above[5] = max(above[5], below[5], own.verdict.severity)
    return tuple(
        replace(own, below=_roll_up(*sums_of_row)) if row.last > row.index else own
        for row, own, sums_of_row in zip(rows, judged, sums, strict=True)
    )


def _roll_up(error: int, warning: int, incomparable: int, unmatched: int, origins: int, worst: int) -> RollUp:
    return RollUp(error, warning, incomparable, unmatched, origins, _BY_SEVERITY[worst])


_SEVERITIES = {verdict: verdict.severity for verdict in Verdict}
_BY_SEVERITY = sorted(Verdict, key=_SEVERITIES.__getitem__)
