"""From the measurements of one pair of slices to verdicts, classes and candidate findings.

Evidence ─▶ Classification ─▶ verdicts of pairs ─▶ verdicts of rows ─▶ what is found in the slice
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec.structs import replace

from firstdrift.errors import SettingsError
from firstdrift.matching.plan import SlicePlan
from firstdrift.metrics.measurement import Measurement
from firstdrift.verdict.after_ties import ties_of
from firstdrift.verdict.bit_rules import judge_bitwise
from firstdrift.verdict.bitwise import BITWISE, with_first_differences
from firstdrift.verdict.classify import Classification, affects_output, classify
from firstdrift.verdict.communication import communications_of
from firstdrift.verdict.compared_nodes import coverage_of
from firstdrift.verdict.equality import equality_of
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.input_difference import input_difference, inputs_agree, positions
from firstdrift.verdict.judgement import (
    ORIGINS,
    OWN_RULES,
    Counts,
    NodeClass,
    PairJudgement,
    RowJudgement,
    SliceJudgement,
    Ties,
    Verdict,
)
from firstdrift.verdict.last_output import chosen_tokens, last_output, may_be_another_choice
from firstdrift.verdict.model_mismatch import unlikeness
from firstdrift.verdict.movable_thresholds import Thresholds
from firstdrift.verdict.overflow import find_overflow
from firstdrift.verdict.pair_error import PairError
from firstdrift.verdict.pair_verdicts import judge_pairs
from firstdrift.verdict.row_errors import fingerprint
from firstdrift.verdict.row_verdicts import classes, judge_rows, shown_of, with_roll_ups
from firstdrift.verdict.slice_findings import finding_of_pair, finding_of_row, worst_finding
from firstdrift.verdict.systematic_findings import beside, systematic_differences
from firstdrift.verdict.tool_rules import judge_by_msit, judge_by_msprobe
from firstdrift.verdict.training_shown import training_of
from firstdrift.verdict.tree import TreeRow
from firstdrift.wording.message import Message

_PairRules = Callable[
    [SlicePlan, Sequence[Measurement], Sequence[PairError], Thresholds], list[PairJudgement]
]
_TOOLS: dict[str, _PairRules] = {
    "msprobe": judge_by_msprobe,
    "msit": judge_by_msit,
    BITWISE: judge_bitwise,
}
RULES = (OWN_RULES, *_TOOLS)
"""Names of the rule sets."""


def no_rule_set(name: str) -> SettingsError:
    """Make the error of a rule set that there is none of."""
    return SettingsError(
        Message.of("error.no_rule_set", name=name), hint=Message.of("error.choose_one", names=RULES)
    )


def judge(evidence: Evidence, rules: str = OWN_RULES, *, other_input: bool = False) -> SliceJudgement:
    """Judge a pair of slices by what is known of it; `other_input` if the two were given something else.

    Raises:
        SettingsError: there is no rule set of that name.
    """
    if rules not in RULES:
        raise no_rule_set(rules)
    plan, rows = evidence.plan, evidence.rows
    own_rules = rules == OWN_RULES
    classification = classify(evidence, other_input=other_input)
    logits = last_output(evidence)
    own = judge_pairs(evidence, classification)
    pairs = own if own_rules else _by_tool(evidence, rules)
    called = classes(evidence, classification, own, logits)
    judged = judge_rows(evidence, classification, called, pairs, own_rules=own_rules)
    judgement = SliceJudgement(
        coordinates=plan.target.coordinates,
        rows=with_roll_ups(rows, shown_of(evidence, classification, judged, own_rules=own_rules)),
        pairs=tuple(pairs),
        counts=_count(plan, pairs),
        worst=worst_finding(evidence, judged),
        roundoff=classification.roundoff,
        inputs_agree=inputs_agree(evidence, classification),
        positions=positions(evidence),
        compared_outputs=evidence.measured_outputs,
        input_difference=input_difference(evidence, classification),
        overflow=find_overflow(evidence.in_order, evidence.errors, plan.target.coordinates),
        rules=rules,
        communications=tuple(communications_of(evidence, classification, judged)),
        limits=evidence.limits,
        unlike=unlikeness(plan, rows),
        choice=_first_choice(evidence, classification),
        coverage=coverage_of(evidence),
        given=classification.given,
        equality=equality_of(evidence),
        ties=ties_of(evidence, classification, pairs) if own_rules else Ties(),
        level=classification.level if math.isfinite(classification.level) else None,
    )
    if logits is not None:
        judgement = _with_last_output(judgement, evidence, logits)
    if own_rules:
        return _by_own_rules(judgement, evidence, classification, judged)
    return _by_rules_of_tool(judgement, evidence)


def _with_last_output(judgement: SliceJudgement, evidence: Evidence, pair: int) -> SliceJudgement:
    golden_token, target_token = chosen_tokens(evidence, pair)
    return replace(
        judgement,
        logits=finding_of_pair(evidence, pair, judgement.pairs[pair]),
        logits_error=evidence.pair_errors[pair].value,
        logits_pair=pair,
        logits_recorded=pair in evidence.logits,
        golden_token=golden_token,
        target_token=target_token,
        noise=evidence.noise.of_output(evidence.row_of(pair)) or None,
        chosen_otherwise=may_be_another_choice(evidence, pair),
    )


def _by_tool(evidence: Evidence, rules: str) -> list[PairJudgement]:
    return _TOOLS[rules](evidence.plan, evidence.measurements, evidence.pair_errors, evidence.limits)


def _by_own_rules(
    judgement: SliceJudgement,
    evidence: Evidence,
    classification: Classification,
    judged: Sequence[RowJudgement],
) -> SliceJudgement:
    """Add what only our own rules know: where an error begins, or may, what differs throughout, training."""
    if evidence.plan.target.coordinates.step is not None:
        judgement = replace(judgement, training=training_of(evidence))
    # Of two models, what happens to have the same shape differs anyway: no error begins there.
    if judgement.unlike is not None:
        return judgement
    classified = classification.rows
    wrong = [row for row in _in_error(judgement, evidence) if judged[row.index].node_class in ORIGINS]
    felt = [row for row in wrong if affects_output(classified[row.index], evidence.errors[row.index])]
    weak = [row for row in evidence.in_order if row.index in classification.weak]
    return replace(
        judgement,
        origins=tuple(
            finding_of_row(evidence, row, judged[row.index], classified[row.index])
            for row in beside(evidence, classification, list(_each_weight_once(evidence, judged, felt)))
        ),
        weak_origins=tuple(finding_of_row(evidence, row, judged[row.index]) for row in weak),
        systematic=systematic_differences(evidence),
    )


def _each_weight_once(
    evidence: Evidence, judged: Sequence[RowJudgement], rows: Iterable[TreeRow]
) -> Iterator[TreeRow]:
    """Leave out rows that take a weight which an earlier one took: a tied head, the optimizer."""
    taken = set()
    for row in rows:
        said = judged[row.index]
        if said.node_class is NodeClass.WEIGHTS_DIFFER and said.worst_pair is not None:
            pair = evidence.plan.pairs[said.worst_pair]
            weight = fingerprint(pair.golden, pair.target)
            is_known = pair.golden.statistics is not None or pair.golden.digest is not None
            if is_known and weight in taken:
                continue
            taken.add(weight)
        yield row


def _by_rules_of_tool(judgement: SliceJudgement, evidence: Evidence) -> SliceJudgement:
    """Add what another tool's rules flag, none of it in two models."""
    flagged = _in_error(judgement, evidence) if judgement.unlike is None else ()
    origins = tuple(finding_of_row(evidence, row, judgement.rows[row.index]) for row in flagged)
    judgement = replace(judgement, origins=origins)
    return with_first_differences(evidence, judgement) if judgement.rules == BITWISE else judgement


def _in_error(judgement: SliceJudgement, evidence: Evidence) -> list[TreeRow]:
    """List the rows that are in error, in the order of execution."""
    error = Verdict.ERROR
    return [row for row in evidence.in_order if judgement.rows[row.index].verdict is error]


def _count(plan: SlicePlan, pairs: Sequence[PairJudgement]) -> Counts:
    number = Counter(pair.verdict for pair in pairs)
    return Counts(
        pairs=len(pairs),
        passed=number[Verdict.PASS],
        warning=number[Verdict.WARNING],
        error=number[Verdict.ERROR],
        incomparable=number[Verdict.INCOMPARABLE],
        unmatched_golden_nodes=len(plan.unmatched_golden),
        unmatched_target_nodes=len(plan.unmatched_target),
        unmatched_golden_tensors=len(plan.unmatched_golden_tensors),
        unmatched_target_tensors=len(plan.unmatched_target_tensors),
    )


def _first_choice(evidence: Evidence, classification: Classification) -> str | None:
    blocks = (evidence.rows[choice.block].path for choice in evidence.choices if choice.block >= 0)
    has_tie = any(classified.is_tie for classified in classification.rows)
    return next(filter(None, blocks), "" if has_tie else None)
