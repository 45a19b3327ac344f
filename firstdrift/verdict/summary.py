"""What a comparison says first, as one sentence: first bad token and node, drift, other inputs, or nothing.

The places that it names stand in gaps of their own, `bad_token` and `bad_node`, for pages to make links of.
"""

import math
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from firstdrift.verdict.judgement import (
    OWN_RULES,
    Counts,
    Equality,
    Finding,
    InputDifference,
    NodeClass,
    SliceJudgement,
    SystematicDifference,
)
from firstdrift.verdict.tokens import how_far_off, what_is_off
from firstdrift.wording.message import VERBATIM, Message, joined

_WHAT: Final = {
    NodeClass.SOURCE: Message.of("finding.source"),
    NodeClass.WEIGHTS_DIFFER: Message.of("finding.weights"),
    NodeClass.NON_FINITE: Message.of("finding.non_finite"),
    NodeClass.PROPAGATED: Message.of("finding.first_given"),
}
_GIVEN: Final = "finding.given"
"""The reason of a node that was reached by what its own rank gives to the others, and by nothing else."""

_TELLING: Final = frozenset({"reason.sum", VERBATIM})
"""Reasons that say which node it is: a sum has no name of its own, but what was added has."""

_ENTERED: Final = frozenset({"reason.entered", "reason.entered_inside", "reason.entered_after"})
"""Reasons that say that an input differs which nothing recorded explains."""

_SAID_ALIKE: Final = {
    "reason.entered_sum": "finding.entered_sum",
    "reason.non_finite": "finding.non_finite_in",
}
"""What the first sentence says where a reason names more than the class does."""

_INPUTS_AGREE: Final = frozenset(
    {"reason.inputs_agree", "reason.equal_inputs", "reason.equal_given", "reason.other_numbers"}
)
"""Reasons that say that the inputs of a node agree."""


def summarise(
    bad_token: Finding | None,
    bad_node: Finding | None,
    drift: SliceJudgement | None,
    inputs: Sequence[InputDifference],
    judgements: Sequence[SliceJudgement],
    systematic: Sequence[SystematicDifference] = (),
) -> Message:
    """Sum up what was found: what differs throughout, then in one sentence the rest, most telling first."""
    said = _summed_up(bad_token, bad_node, drift, inputs, judgements)
    is_found = bad_token or bad_node or drift or inputs
    if any(one.is_fault for one in systematic) and not is_found:
        hides_others = any(judged.level is not None for judged in judgements)
        said = Message.of(f"summary.{'bound_to_differ' if hides_others else 'nothing_beside'}")
    return after_systematic(systematic, said)


def after_systematic(systematic: Sequence[SystematicDifference], said: Message) -> Message:
    """Say what differs throughout before the rest."""
    for difference in reversed(systematic):
        said = Message.of("summary.systematic", difference=difference.reason, rest=said)
    return said


def _summed_up(
    bad_token: Finding | None,
    bad_node: Finding | None,
    drift: SliceJudgement | None,
    inputs: Sequence[InputDifference],
    judgements: Sequence[SliceJudgement],
) -> Message:
    if not judgements:
        return Message.of("summary.no_slices")
    alone = len(judgements) == 1
    other_model = next((judged for judged in judgements if judged.unlike is not None), None)
    if other_model is not None:
        where = other_model.coordinates.name()
        return Message.of("summary.other_model", where=where, facts=other_model.unlike)
    if bad_node is not None and alone and bad_token is None and _is_one_tensor(judgements[0]):
        off = Message.of("summary.two_tensors", off=how_far_off(judgements[0]))
        return _with_cause(off, bad_node)
    if bad_node is not None:
        return _with_cause(_bad_node(bad_token, bad_node, judgements), bad_node)
    if bad_token is not None:
        return Message.of("summary.bad_token", token=_token_alone(bad_token, alone=alone))
    if drift is not None:
        return _drift(drift)
    if inputs:
        where = inputs[0].coordinates.name()
        return Message.of("summary.other_inputs", where=where, reason=inputs[0].reason)
    return _nothing_bad(judgements)


def _is_one_tensor(judged: SliceJudgement) -> bool:
    """Tell whether a tensor was compared with another, and neither is of a model."""
    return judged.counts.pairs == 1 and judged.coverage is not None and judged.coverage.is_one_tensor


def _nothing_bad(judgements: Sequence[SliceJudgement]) -> Message:
    counts = sum((judged.counts for judged in judgements), Counts())
    if not counts.pairs:
        return Message.of("summary.no_values")
    if counts.incomparable == counts.pairs:
        return Message.of("summary.none_comparable", pairs=counts.pairs)
    counts = replace(counts, incomparable=counts.incomparable - sum(one.ties.pairs for one in judgements))
    first = judgements[0]
    if first.rules != OWN_RULES:
        return _beside_incomparable(Message.of("summary.rules_pass", rules=first.rules), counts)
    if counts.error:
        return _beside_incomparable(Message.of("summary.unlocated", pairs=counts.error), counts)
    if len(judgements) == 1 and _is_off_alone(first):
        return Message.of("summary.off_alone", off=how_far_off(first))
    known = {judged.equality for judged in judgements}
    if None not in known:
        by = Equality.STATISTICS if Equality.STATISTICS in known else Equality.BITS
        return Message.of(f"summary.equal_{by}", tensors=counts.pairs)
    return _agreement(judgements, counts)


def _agreement(judgements: Sequence[SliceJudgement], counts: Counts) -> Message:
    """Say that two runs agree, and how far off logits are if they are noticeably."""
    far = max(judgements, key=lambda judged: judged.logits_error or 0.0)
    agree = _beside_incomparable(Message.of("summary.agree"), counts)
    if not _is_far_off(far):
        return agree
    off = what_is_off(far)
    if len(judgements) > 1:
        off = Message.of("summary.off_in", where=far.coordinates.name(), off=off)
    if far.chosen_otherwise:
        return Message.of("summary.other_expert", agree=agree, off=off)
    return _beside_incomparable(Message.of("summary.gathered_rounding", off=off), counts)


def _beside_incomparable(said: Message, counts: Counts) -> Message:
    """Say beside something how many tensors could not be compared."""
    if not counts.incomparable:
        return said
    return Message.of("summary.beside_incomparable", said=said, tensors=counts.incomparable)


def _is_far_off(judged: SliceJudgement) -> bool:
    """Tell whether logits are off by more than what a node gathers, which rounding alone rarely comes to."""
    error, limits = judged.logits_error or 0.0, judged.limits
    least = max(limits.floor * judged.roundoff, limits.drift_least, limits.excess * (judged.noise or 0.0))
    return math.isfinite(error) and error > least


def _is_off_alone(judged: SliceJudgement) -> bool:
    error = judged.logits_error or 0.0
    return (
        judged.compared_outputs == 1
        and not judged.logits_recorded
        and error > judged.limits.floor * judged.roundoff
    )


def _drift(drift: SliceJudgement) -> Message:
    where, off = drift.coordinates.name(), how_far_off(drift)
    if drift.counts.unmatched_target_nodes > drift.compared_outputs:
        return Message.of("summary.drift_unmatched", where=where, off=off)
    return Message.of("summary.drift", where=where, off=off)


def _token_alone(bad_token: Finding, *, alone: bool) -> Message:
    """Say which token is bad, where no node in it is."""
    first = _first_bad(bad_token, alone=alone)
    return Message.of("finding.token_unlocated", first=first, reason=bad_token.reasons[0])


def _first_bad(bad_token: Finding, *, alone: bool) -> Message:
    token = Message.of("finding.token", number=bad_token.coordinates.token)
    if alone:
        return Message.of("finding.only_token", bad_token=token)
    return Message.of("finding.first_token", bad_token=token)


def _bad_node(bad_token: Finding | None, bad_node: Finding, judgements: Sequence[SliceJudgement]) -> Message:
    alone = len(judgements) == 1
    name = "finding.suspect" if bad_node.is_suspected else "finding.node"
    node = Message.of(name, bad_node=bad_node.place, what=_what(bad_node, judgements))
    where = bad_node.coordinates.name()
    if bad_token is None:
        if alone or not where.arguments:
            return Message.of("summary.bad_node", node=node)
        return Message.of("summary.bad_node_in", where=where, node=node)
    if bad_token.coordinates.token == bad_node.coordinates.token:
        return Message.of("summary.bad_token_and_node", token=_first_bad(bad_token, alone=alone), node=node)
    token = _token_alone(bad_token, alone=alone)
    return Message.of("summary.bad_token_then_node", token=token, where=where, node=node)


def _with_cause(said: Message, bad_node: Finding) -> Message:
    if not bad_node.cause:
        return said
    return Message.of("summary.with_cause", said=said, cause=joined(*bad_node.cause))


def _by_optimizer(bad_node: Finding, judgements: Sequence[SliceJudgement]) -> Message:
    """Say that the optimizer made a weight differ, and how many others."""
    origins = (one for judged in judgements for one in judged.origins)
    beside = [one for one in origins if one.coordinates == bad_node.coordinates and one.is_by_optimizer]
    others = len(beside) - 1
    return Message.of(f"finding.optimizer{'_of_others' if others > 0 else ''}", others=others)


def _what(bad_node: Finding, judgements: Sequence[SliceJudgement]) -> Message:
    """Say what is wrong with a node."""
    reason = bad_node.reasons[0]
    if bad_node.node_class is NodeClass.STRUCTURE_DIFFERS:
        return reason  # which says what is done otherwise
    if bad_node.is_by_optimizer:
        return _by_optimizer(bad_node, judgements)
    if reason.id in _SAID_ALIKE:
        return Message.of(_SAID_ALIKE[reason.id], **reason.arguments)
    what = _WHAT.get(bad_node.node_class or NodeClass.SOURCE)
    if what is None or (bad_node.node_class is NodeClass.PROPAGATED and reason.id != _GIVEN):
        return Message.of("finding.flagged")  # by the rules of another tool, which do not ask what came in
    if bad_node.node_class is not NodeClass.SOURCE or reason.id in _INPUTS_AGREE:
        return what
    if reason.id in _ENTERED:
        return Message(f"finding.{reason.id.partition('.')[2]}")
    return reason if reason.id in _TELLING else Message.of("finding.output_first")
