"""Which tokens go wrong, from the logits of one series of tokens.

A token's logits always carry rounding, and how much depends on the token. So a token is held against
the tokens before it:

* a token is bad if an error begins at a node in it and reaches its logits;
* or, whether or not the layers were dumped too, if the error of its logits is over 2.5 times the worst
  before it and stays so; over 4 times, if no token follows; over 6 times, whatever follows;
* the first of all tokens has nothing before it: only an error that no rounding makes is called bad.

Tokens are compared only while what was generated before them agrees.
"""

import math
from collections.abc import Sequence

from msgspec.structs import replace

from firstdrift.groups import known
from firstdrift.model.slice import Coordinates
from firstdrift.verdict.judgement import (
    OWN_RULES,
    Finding,
    InputDifference,
    Reasons,
    SliceJudgement,
    Verdict,
)
from firstdrift.verdict.movable_thresholds import Thresholds
from firstdrift.verdict.pair_error import size
from firstdrift.verdict.systematic import DROPOUT
from firstdrift.wording.message import Message


def drift_limit(judged: SliceJudgement) -> float:
    """Return the error of logits above which neither rounding nor what healthy runs show explains it.

    Each step of training makes more of the rounding of those before it. What the model is given counts as
    rounded by as much as it is off.
    """
    is_trained = judged.training is not None and bool(judged.coordinates.step)
    limit = judged.limits.drift_most if is_trained else _drift(judged)
    return max(limit, _healthy(judged))


def _drift(judged: SliceJudgement) -> float:
    """Return what a whole network makes of rounding; of inputs that are off, no more than of any output."""
    limits = judged.limits
    return max(limits.drift(judged.roundoff), min(limits.alone_floor, limits.drift(judged.given)))


def least_bad_output(limits: Thresholds, roundoff: float, coordinates: Coordinates) -> float:
    """Return the error up to which logits, or a last output, are never bad, whatever other slices show."""
    drift = limits.drift(roundoff)
    return drift if coordinates.token is None else min(drift, limits.floor * roundoff)


def _healthy(judged: SliceJudgement) -> float:
    """Return the error of logits that a healthy run excuses, a tie between experts, or what a run has."""
    if judged.chosen_otherwise or _has_no_level(judged):
        return math.inf
    return judged.limits.excess * (judged.noise or 0.0)


def _has_no_level(judged: SliceJudgement) -> bool:
    """Tell whether what a run has throughout is so large that no output is far enough off to be bad."""
    rules = {one.rule for one in judged.systematic}
    return DROPOUT.name in rules or (bool(rules) and judged.limits.hides_faults(judged.roundoff))


def how_far_off(judged: SliceJudgement) -> Message:
    """Say how far apart the logits, or the last outputs, are: "off by 0.2 (relative L2)", for example."""
    error = judged.logits_error
    metrics = judged.logits.metrics if judged.logits is not None else {}
    if error is None:
        return Message.of("off.incomparable")
    if math.isfinite(error):
        is_bound = "error_bound" in metrics and "relative_l2" not in metrics
        return Message.of("off.by", size=size(error, metrics.get("relative_l2"), is_bound=is_bound))
    by_digest = set(metrics) == {"equal"}
    return Message.of("off.digests") if by_digest else Message.of("off.non_finite")


def what_is_off(judged: SliceJudgement) -> Message:
    """Say what is held against other tokens: "the logits are off by 0.2 (relative L2)"."""
    far = how_far_off(judged)
    return Message.of("off.logits", far=far) if judged.logits_recorded else Message.of("off.output", far=far)


def prompts(series: Sequence[SliceJudgement]) -> list[list[SliceJudgement]]:
    """Split a series where a new prompt begins: the model is given more tokens than for the token before.

    What was generated for one prompt is no input of the next.
    """
    split: list[list[SliceJudgement]] = []
    before: int | None = None
    for judged in series:
        given = judged.positions if judged.coordinates.token is not None else None
        if not split or (before is not None and given is not None and given > before):
            split.append([])
        split[-1].append(judged)
        before = given
    return split


def differing_inputs(series: Sequence[SliceJudgement]) -> list[InputDifference]:
    """List the tokens of a prompt that were not given the same input, in order."""
    found: list[InputDifference] = []
    before: SliceJudgement | None = None
    for judged in series:
        chosen = _chosen_differently(before)
        if chosen is not None and judged.inputs_agree is not True:
            found.append(InputDifference(judged.coordinates, chosen))
        elif judged.input_difference is not None:
            found.append(judged.input_difference)
        elif found and judged.coordinates.token is not None:
            found.append(InputDifference(judged.coordinates, Message.of("input.earlier_token")))
        before = judged
    return found


def _chosen_differently(before: SliceJudgement | None) -> Message | None:
    if before is None or before.coordinates.token is None:
        return None
    golden, target = before.golden_token, before.target_token
    if golden is None or golden == target:
        return None
    return Message.of("input.token_before", golden=golden, target=target)


def first_bad_token(series: Sequence[SliceJudgement]) -> Finding | None:
    """Return the first token of a series that goes wrong; the series has comparable tokens only."""
    clean: list[float] = []
    for place, judged in enumerate(series):
        if judged.coordinates.token is None or judged.logits is None:
            continue
        if judged.rules == OWN_RULES:
            reasons = _why_bad(judged, clean, series[place + 1 :])
        else:
            reasons = judged.logits.reasons if judged.logits.verdict is Verdict.ERROR else ()
        if reasons:
            return replace(judged.logits, verdict=Verdict.ERROR, reasons=reasons)
        if (error := _clean_error(judged)) is not None:
            clean.append(error)
    return None


def bad_logits(series: Sequence[SliceJudgement]) -> list[tuple[SliceJudgement, Finding]]:
    """List the tokens whose logits are bad although no error begins at a node of them, and say why.

    They are the first bad token, and the tokens after it that are as bad.
    """
    first = first_bad_token(series)
    if first is None:
        return []
    at = next(place for place, one in enumerate(series) if one.logits and _is_at(one.logits, first))
    if series[at].rules != OWN_RULES:
        return []
    clean = known(map(_clean_error, series[:at]))
    bad = [] if series[at].origins else [(series[at], first)]
    for judged in series[at + 1 :]:
        if judged.logits is not None and not judged.origins and _is_as_bad(judged, clean):
            token = first.coordinates.token
            reason = Message.of("token.after_bad", off=what_is_off(judged), token=token)
            bad.append((judged, replace(judged.logits, verdict=Verdict.ERROR, reasons=(reason,))))
    return bad


def _clean_error(judged: SliceJudgement) -> float | None:
    """Return the error of logits by which others are judged; None of those that a fault or a tie explains."""
    return None if judged.origins or judged.chosen_otherwise else judged.logits_error


def _is_as_bad(judged: SliceJudgement, clean: Sequence[float]) -> bool:
    limits, roundoff = judged.limits, judged.roundoff
    before = limits.token_lasting * max(*clean, roundoff) if clean else drift_limit(judged)
    return (judged.logits_error or 0.0) > max(before, limits.floor * roundoff, _healthy(judged))


def _is_at(one: Finding, other: Finding) -> bool:
    return (one.coordinates, one.row, one.tensor) == (other.coordinates, other.row, other.tensor)


def _why_bad(judged: SliceJudgement, clean: Sequence[float], later: Sequence[SliceJudgement]) -> Reasons:
    error = judged.logits_error
    if judged.origins:
        origin = (judged.own_origins or judged.origins)[0]
        if error is None or error > judged.roundoff:
            return (Message.of("token.origin", node=origin.place, off=what_is_off(judged)),)
        return ()
    if error is None:
        return ()
    if not clean:
        limit = drift_limit(judged)
        return (what_is_off(judged),) if error > limit else ()
    before = max(*clean, judged.roundoff)
    limits = judged.limits
    if error <= max(limits.token_ratio * before, limits.floor * judged.roundoff, _healthy(judged)):
        return ()
    from statistics import median  # imported late: most dumps have one token, and it is slow to load

    after = known(j.logits_error for j in later)
    lasts = (
        median(after) > limits.token_lasting * before if after else error > limits.token_unfollowed * before
    )
    if lasts or error > limits.token_sudden * before:
        return (Message.of("token.stands_out", off=what_is_off(judged), before=before),)
    return ()
