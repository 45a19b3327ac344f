"""From the measurements of one pair of slices to verdicts, classes and candidate findings.

Evidence ─▶ Classification ─▶ verdicts of pairs ─▶ verdicts of rows ─▶ what is found in the slice
"""

from collections import Counter
from collections.abc import Callable, Sequence

from firstdrift.errors import SettingsError
from firstdrift.matching.plan import SlicePlan
from firstdrift.metrics.measurement import Measurement
from firstdrift.verdict.baseline import QUIET, Noise
from firstdrift.verdict.bit_rules import judge_bitwise
from firstdrift.verdict.bitwise import BITWISE, with_first_differences
from firstdrift.verdict.classify import Classification, affects_output, classify
from firstdrift.verdict.communication import communications_of
from firstdrift.verdict.compared_nodes import coverage_of
from firstdrift.verdict.equality import equality_of
from firstdrift.verdict.evidence import Evidence, evidence_of
from firstdrift.verdict.input_difference import input_difference, inputs_agree, positions
from firstdrift.verdict.judgement import (
    ORIGINS,
    OWN_RULES,
    Counts,
    PairJudgement,
    RowJudgement,
    SliceJudgement,
    Verdict,
)
from firstdrift.verdict.last_output import chosen_tokens, last_output, may_be_another_choice
from firstdrift.verdict.model_mismatch import unlikeness
from firstdrift.verdict.movable_thresholds import DEFAULTS, Thresholds
from firstdrift.verdict.overflow import find_overflow
from firstdrift.verdict.pair_error import PairError
from firstdrift.verdict.pair_verdicts import judge_pairs
from firstdrift.verdict.row_verdicts import classes, judge_rows, with_roll_ups
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


def judge_slice(
    plan: SlicePlan,
    rows: Sequence[TreeRow],
    measurements: Sequence[Measurement],
    rules: str = OWN_RULES,
    *,
    limits: Thresholds = DEFAULTS,
    noise: Noise = QUIET,
) -> SliceJudgement:
    """Say what there is to say of one pair of slices by looking at it alone.

    Args:
        plan: what is compared.
        rows: the tree.
        measurements: one for each pair of the plan.
        rules: name of the rule set.
        limits: what errors are held against.
        noise: what a healthy run shows of the same slice.

    Raises:
        SettingsError: there is no rule set of that name.
    """
    return judge(evidence_of(plan, rows, measurements, limits, noise), rules)


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
    classified, logits = classification.rows, last_output(evidence)
    own = judge_pairs(evidence, classification)
    pairs = own if own_rules else _by_tool(evidence, rules)
    called = classes(evidence, classification, own, logits)
    judged = judge_rows(evidence, classification, called, pairs, own_rules=own_rules)
    unlike = unlikeness(plan, rows)
    # Of two models, what happens to have the same shape differs anyway: no error begins there.
    comparable = evidence.in_order if unlike is None else ()
    origins = _origins(evidence, classification, judged, comparable, own_rules=own_rules)
    weak = [row for row in comparable if own_rules and row.index in classification.weak]
    golden_token, target_token = chosen_tokens(evidence, logits)
    judgement = SliceJudgement(
        coordinates=plan.target.coordinates,
        rows=with_roll_ups(rows, judged),
        pairs=tuple(pairs),
        counts=_count(plan, pairs),
        origins=tuple(
            finding_of_row(evidence, row, judged[row.index], classified[row.index] if own_rules else None)
            for row in origins
        ),
        worst=worst_finding(evidence, judged),
        logits=None if logits is None else finding_of_pair(evidence, logits, pairs[logits]),
        logits_error=None if logits is None else evidence.pair_errors[logits].value,
        roundoff=classification.roundoff,
        weak_origins=tuple(finding_of_row(evidence, row, judged[row.index]) for row in weak),
        logits_recorded=logits in evidence.logits,
        golden_token=golden_token,
        target_token=target_token,
        inputs_agree=inputs_agree(evidence, classification),
        positions=positions(evidence),
        compared_outputs=evidence.measured_outputs,
        input_difference=input_difference(evidence, classification),
        overflow=find_overflow(evidence.in_order, evidence.errors, plan.target.coordinates),
        rules=rules,
        communications=tuple(communications_of(evidence, classification, judged)),
        limits=evidence.limits,
        noise=None if logits is None else evidence.noise.of_output(evidence.row_of(logits)) or None,
        chosen_otherwise=logits is not None and may_be_another_choice(evidence, logits),
        logits_pair=logits,
        unlike=unlike,
        choice=_first_choice(evidence, classification),
        systematic=systematic_differences(evidence) if own_rules and unlike is None else (),
        coverage=coverage_of(evidence),
        given=classification.given,
        equality=equality_of(evidence),
        training=training_of(evidence) if own_rules and plan.target.coordinates.step is not None else None,
    )
    return with_first_differences(evidence, judgement) if rules == BITWISE else judgement


def _by_tool(evidence: Evidence, rules: str) -> list[PairJudgement]:
    return _TOOLS[rules](evidence.plan, evidence.measurements, evidence.pair_errors, evidence.limits)


def _origins(
    evidence: Evidence,
    classification: Classification,
    judged: Sequence[RowJudgement],
    comparable: Sequence[TreeRow],
    *,
    own_rules: bool,
) -> Sequence[TreeRow]:
    """List the rows at which an error begins, in the order of execution."""
    origins = [row for row in comparable if _is_origin(judged[row.index], own_rules=own_rules)]
    if not own_rules:
        return origins
    of_rows = classification.rows
    felt = [row for row in origins if affects_output(of_rows[row.index], evidence.errors[row.index])]
    return beside(evidence, classification, felt)


def _is_origin(judged: RowJudgement, *, own_rules: bool) -> bool:
    return judged.verdict is Verdict.ERROR and (not own_rules or judged.node_class in ORIGINS)


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
