"""What differences of log-probabilities are: rounding, a drift, or tokens that are off.

drifting          the noise, of all tokens or of those at a position, is larger than rounding explains
tokens off        not so, but more tokens than strays have left it, or are not finite, or are other tokens
within rounding   neither

Near ties of a router go to other experts in a healthy run as well, and such a token is far off. It counts as
one that left the noise only if a layer chooses others more often than ties do.
"""

import math
from collections.abc import Sequence

import numpy as np

from firstdrift.rollout.noise import log_odds, shift_of
from firstdrift.rollout.report import (
    ExpertsReport,
    PositionBin,
    RolloutCounts,
    RolloutOptions,
    RolloutVerdict,
    SequencePair,
)
from firstdrift.rollout.sequences import Floats
from firstdrift.rollout.statistics import Statistics
from firstdrift.rollout.thresholds import FEWEST, SHIFTED, SHORTEST_TAIL, STRAYS, TEMPERED
from firstdrift.wording.message import Message


def judge(
    statistics: Statistics, scales: Sequence[float | None], out: int, others: int, options: RolloutOptions
) -> RolloutVerdict:
    """Judge tokens by the scales of their noise, how many have left it, and whether there are others."""
    if not statistics.tokens and not others:
        return RolloutVerdict.TOO_LITTLE
    if any(scale is not None and scale > options.explained for scale in scales):
        return RolloutVerdict.DRIFTING
    if statistics.not_finite or others or out > STRAYS * statistics.tokens:
        return RolloutVerdict.OFF
    return RolloutVerdict.WITHIN


def summary_of(
    verdict: RolloutVerdict,
    statistics: Statistics,
    scale: float | None,
    positions: Sequence[PositionBin],
    pairs: Sequence[SequencePair],
    counts: RolloutCounts,
    *,
    options: RolloutOptions,
) -> Message:
    """Say in a sentence what was found."""
    if verdict is RolloutVerdict.TOO_LITTLE and not counts.compared:
        return Message.of("rollout.summary.nothing", sequences=counts.sequences)
    if verdict is RolloutVerdict.TOO_LITTLE:
        there = counts.sequences + counts.rollout_only
        return Message.of("rollout.summary.not_judged", compared=counts.compared, sequences=there)
    finite = statistics.tokens - statistics.not_finite
    measured = Message.of(
        "rollout.summary.measured", mean=statistics.mean_abs, tokens=finite, sequences=counts.compared
    )
    if verdict is RolloutVerdict.DRIFTING:
        return _drifting(positions, scale, options, measured)
    if verdict is RolloutVerdict.WITHIN:
        said = "within" if not counts.out else "rerouted" if counts.out == counts.rerouted else "strays"
        return Message.of(f"rollout.summary.{said}", dtype=options.dtype, out=counts.out, measured=measured)
    return _not_finite(pairs, statistics, measured) or _off(pairs, counts, measured)


def _drifting(
    positions: Sequence[PositionBin], scale: float | None, options: RolloutOptions, measured: Message
) -> Message:
    far = {one.first: one.scale for one in positions if (one.scale or 0.0) > options.explained}
    return Message.of(
        "rollout.summary.drifting",
        position=min(far, default=0),
        scale=max(filter(None, [scale, *far.values()])),
        dtype=options.dtype,
        explained=options.explained,
        measured=measured,
    )


def _not_finite(pairs: Sequence[SequencePair], statistics: Statistics, measured: Message) -> Message | None:
    """Say where the first difference without a number is, if there is one."""
    worst = next((pair for pair in pairs if pair.not_finite is not None), None)
    if worst is None:
        return None
    count = statistics.not_finite
    return Message.of(
        "rollout.summary.not_finite",
        count=count,
        sequence=worst.name,
        token=worst.not_finite,
        measured=measured,
    )


def _off(pairs: Sequence[SequencePair], counts: RolloutCounts, measured: Message) -> Message:
    worst = next((pair for pair in pairs if pair.first_found is not None), pairs[0])
    is_other = worst.first_found == worst.other_token
    return Message.of(
        "rollout.summary.other_token" if is_other else "rollout.summary.off",
        out=counts.out - counts.rerouted or counts.out,
        bad=sum(pair.verdict is not RolloutVerdict.WITHIN for pair in pairs),
        sequence=worst.name,
        token=worst.first_found,
        measured=measured,
    )


def hints_of_pair(rollout: Floats, trainer: Floats) -> tuple[Message, ...]:
    """Say what the differences of a sequence look like, from where it has left the noise."""
    found = shift_of(rollout, trainer) if len(rollout) >= SHORTEST_TAIL else None
    with np.errstate(invalid="ignore"):
        apart = float(np.abs(trainer - rollout).mean()) if found is not None else math.nan
    if found is None or not found[1] <= SHIFTED * apart:
        return ()
    return (Message.of("rollout.hint.shifted_on" if found[0] > 0 else "rollout.hint.shifted_back"),)


def hints_of_whole(
    rollout: Floats,
    trainer: Floats,
    verdict: RolloutVerdict,
    pairs: Sequence[SequencePair],
    experts: ExpertsReport | None,
) -> tuple[Message, ...]:
    """Say what the differences of all sequences look like."""
    shifted = sum(bool(pair.hints) for pair in pairs)
    found = [Message.of("rollout.hint.shifted", sequences=shifted)] if shifted else []
    if experts is not None and experts.first_layer is not None:
        layer = experts.layers[experts.first_layer]
        found.append(Message.of("rollout.hint.experts", layer=layer.layer, share=1 - layer.equal_share))
    if verdict is RolloutVerdict.DRIFTING and not shifted:
        found += _tempered(log_odds(rollout), log_odds(trainer))
    return tuple(found)


def _tempered(rollout: Floats, trainer: Floats) -> list[Message]:
    """Tell whether probable tokens became less probable, and the others more so, or the other way."""
    known = np.isfinite(rollout) & np.isfinite(trainer)
    ours, apart = rollout[known], (trainer - rollout)[known]
    if len(ours) < FEWEST or not ours.std() or not apart.std():
        return []
    correlation = float(np.corrcoef(ours, apart)[0, 1])
    if abs(correlation) < TEMPERED:
        return []
    return [Message.of("rollout.hint.flatter" if correlation < 0 else "rollout.hint.sharper")]
