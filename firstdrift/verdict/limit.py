"""The error that decided: what lies above it is a fault's, what lies below it is rounding's.

Pages draw it as a line, and colours change at it, so that a run that passes looks calm whatever its largest
error is.

    fault found ─▶ its level              errors above it belong to the fault
    none found  ─▶ floor x rounding       errors of nodes up to it are never called a fault
                   what is drift          likewise of the last output: a network makes more of rounding
                   2.5 x tokens before    where a token stands out among them
"""

import math
from collections.abc import Iterable

from msgspec import Struct

from firstdrift.verdict.judgement import OWN_RULES, Finding, SliceJudgement
from firstdrift.verdict.movable_thresholds import Thresholds
from firstdrift.verdict.systematic import OF_WEIGHTS
from firstdrift.verdict.tokens import drift_limit, least_bad_output
from firstdrift.wording.message import Message

OF_ERRORS = frozenset({"relative_l2", "worst_row_relative_l2", "error_bound"})
"""The metrics that our own rules hold against a limit: what is above it fails."""


class Limit(Struct, frozen=True):
    """A line in a chart: where it is, and what it stands for."""

    value: float
    meaning: Message


def limit_of_nodes(judged: Iterable[SliceJudgement]) -> float | None:
    """Return the limit of the errors of nodes in some slices; None under the rules of another tool."""
    own = _by_own_rules(judged)
    limit = (_level(own) or _rounding(own)) if own else None
    return None if limit is None else limit.value


def limit_of_row(limit: float | None, error: float | None, excused: float | None) -> float | None:
    """Return the limit that decided of a row: what excuses its error, where more is allowed by that.

    Args:
        limit: of the nodes of its slice, or of several.
        error: of its output.
        excused: the error that what excuses it allows, if it is known.
    """
    if limit is None or error is None or excused is None or error <= limit:
        return limit
    return max(limit, excused)


def limit_of_outputs(
    metric: str, judged: Iterable[SliceJudgement], first_bad: Finding | None = None
) -> Limit | None:
    """Return the limit of a metric of logits, or last outputs; None where the rules in force have none.

    Args:
        metric: by its name.
        judged: the slices.
        first_bad: the first bad token, if there is one.
    """
    known = tuple(judged)
    own = _by_own_rules(known)
    if own:
        return _of_own(own, first_bad) if metric in OF_ERRORS else None
    return _of_tool(metric, known[0].rules, known[0].limits, known) if known else None


def _by_own_rules(judged: Iterable[SliceJudgement]) -> tuple[SliceJudgement, ...]:
    return tuple(one for one in judged if one.rules == OWN_RULES)


def _level(own: tuple[SliceJudgement, ...]) -> Limit | None:
    """Return the level of the fault; the least of several."""
    levels = [level for one in own if (level := one.level) is not None]
    is_by_weights = _have_other_weights(own) and not any(one.origins for one in own)
    meaning = Message.of(f"metric_limit.{'after_weights' if is_by_weights else 'fault'}")
    return Limit(min(levels), meaning) if levels else None


def _have_other_weights(own: tuple[SliceJudgement, ...]) -> bool:
    return any(found.rule in OF_WEIGHTS for one in own for found in one.systematic)


def _rounding(own: tuple[SliceJudgement, ...]) -> Limit | None:
    limits, roundoff = own[0].limits, max(one.roundoff for one in own)
    if not roundoff:
        return None
    if _have_other_weights(own) and roundoff not in limits.roundoffs:
        meaning = Message.of("metric_limit.weights", factor=limits.floor)
    else:
        meaning = Message.of("metric_limit.rounding", factor=limits.floor, dtype=limits.dtype_of(roundoff))
    return Limit(limits.floor * roundoff, meaning)


def _of_own(own: tuple[SliceJudgement, ...], first_bad: Finding | None) -> Limit | None:
    """Return the limit of last outputs: what a whole network makes of rounding, or of the tokens before."""
    if (level := _level(own)) is not None:
        return level
    if first_bad is not None and (before := _errors_before(own, first_bad)):
        limits, coordinates = own[0].limits, first_bad.coordinates
        least = least_bad_output(limits, max(one.roundoff for one in own), coordinates)
        meaning = Message.of("metric_limit.tokens_before", factor=limits.token_ratio)
        return Limit(max(least, limits.token_ratio * max(before)), meaning)
    drifts = [limit for one in own if 0 < (limit := drift_limit(one)) < math.inf]
    return Limit(max(drifts), Message.of("metric_limit.drift")) if drifts else _rounding(own)


def _errors_before(own: tuple[SliceJudgement, ...], first_bad: Finding) -> list[float]:
    """List the errors of the tokens of its rank and step before the first bad one."""
    at = first_bad.coordinates
    if at.token is None:
        return []
    same = (one for one in own if (one.coordinates.step, one.coordinates.rank) == (at.step, at.rank))
    before = (one for one in same if one.coordinates.token is not None and one.coordinates.token < at.token)
    return [one.logits_error for one in before if one.logits_error is not None]


def _of_tool(metric: str, rules: str, limits: Thresholds, judged: tuple[SliceJudgement, ...]) -> Limit | None:
    """Return the limit that another tool holds a metric against, if it has one."""
    match rules, metric:
        case "msit", "cosine_similarity":
            meaning = Message.of("metric_limit.msit_above", limit=limits.msit_cosine)
            return Limit(limits.msit_cosine, meaning)
        case "msit", "kl_divergence":
            is_bfloat16 = any(one.roundoff == limits.roundoff_bfloat16 for one in judged)
            limit = limits.msit_kl_bfloat16 if is_bfloat16 else limits.msit_kl
            return Limit(limit, Message.of("metric_limit.msit_below", limit=limit))
        case "msprobe", "relative_norm":
            return Limit(limits.msprobe_norm_out, Message.of("metric_limit.msprobe_norm"))
    return None
