"""What differences of log-probabilities are: rounding, a drift, or tokens that are off.

drifting          the noise, of all tokens or of those at a position, is larger than rounding explains
tokens off        not so, but more tokens than strays have left it, or are not finite, or are other tokens
within rounding   neither

Near ties of a router go to other experts in a healthy run as well, and such a token is far off. It counts as
one that left the noise only if a layer chooses others more often than ties do.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from firstdrift.rollout.noise import bins_of, edges_of, log_odds, moved, scale_of, shift_of, telling
from firstdrift.rollout.report import (
    Bias,
    ExpertsReport,
    PositionBin,
    RolloutCounts,
    RolloutOptions,
    RolloutVerdict,
    SequencePair,
)
from firstdrift.rollout.sequences import Floats
from firstdrift.rollout.statistics import Statistics
from firstdrift.rollout.thresholds import (
    BIASED,
    FEWEST,
    ROUNDED,
    SHIFTED,
    SHORTEST_TAIL,
    STRAYS,
    TEMPERED,
)
from firstdrift.wording.message import Message

_SHIFTED: Final = ("rollout.hint.shifted_on", "rollout.hint.shifted_back")


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


def bias_of(pairs: Sequence[SequencePair]) -> Bias | None:
    """Return by how much all of a run is off; None where that may be chance.

    Tokens were sampled as the rollout says, and both sides give probabilities, so that the mean ratio is
    expected to be 1, whatever the noise; how far it is off by chance is seen from the sequences.
    """
    found = [pair.statistics for pair in pairs]
    means = np.array([one.k3 - one.k1 for one in found if one.k3 is not None and one.k1 is not None])
    if len(means) < FEWEST:
        return None
    mean, error = float(means.mean()), float(means.std(ddof=1)) / math.sqrt(len(means))
    is_off = abs(mean) > max(BIASED * error, ROUNDED)
    return Bias(mean, abs(mean) / error if error else math.inf) if is_off else None


def drifting_with_all(
    pairs: Sequence[SequencePair],
    positions: Sequence[PositionBin],
    drift: tuple[float | None, Bias | None],
    options: RolloutOptions,
) -> tuple[SequencePair, ...]:
    """Let sequences drift that look fine one by one, and are of a run that drifts where they have tokens."""
    scale, bias = drift
    far = {one.first for one in positions if (one.scale or 0.0) > options.explained}
    is_whole = bias is not None or (scale or 0.0) > options.explained

    def drifts(pair: SequencePair) -> bool:
        bins = np.unique(bins_of(pair.compared)).tolist()
        return pair.verdict is RolloutVerdict.WITHIN and (
            is_whole or not far.isdisjoint(edges_of(number)[0] for number in bins)
        )

    return tuple(replace(pair, verdict=RolloutVerdict.DRIFTING) if drifts(pair) else pair for pair in pairs)


def summary_of(
    verdict: RolloutVerdict,
    statistics: Statistics,
    drift: tuple[float | None, Bias | None],
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
        return _drifting(positions, drift, options, measured)
    if verdict is RolloutVerdict.WITHIN:
        said = "within" if not counts.out else "rerouted" if counts.out == counts.rerouted else "strays"
        return Message.of(f"rollout.summary.{said}", dtype=options.dtype, out=counts.out, measured=measured)
    return _not_finite(pairs, statistics, measured) or _off(pairs, counts, measured, options)


def _drifting(
    positions: Sequence[PositionBin],
    drift: tuple[float | None, Bias | None],
    options: RolloutOptions,
    measured: Message,
) -> Message:
    scale, bias = drift
    far = {one.first: one.scale for one in positions if (one.scale or 0.0) > options.explained}
    if bias is not None and not far and (scale or 0.0) <= options.explained:
        off = {"mean": bias.mean, "errors": bias.errors}
        return Message.of("rollout.summary.biased", measured=measured, **off)
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


def _off(
    pairs: Sequence[SequencePair], counts: RolloutCounts, measured: Message, options: RolloutOptions
) -> Message:
    worst = next((pair for pair in pairs if pair.first_found is not None), pairs[0])
    if worst.verdict is RolloutVerdict.DRIFTING and _is_off_throughout(worst, options):
        of_it = {"mean": worst.statistics.mean_abs, "tokens": worst.statistics.tokens}
        return Message.of("rollout.summary.sequence", sequence=worst.name, measured=measured, **of_it)
    is_other = worst.first_found == worst.other_token
    return Message.of(
        "rollout.summary.other_token" if is_other else "rollout.summary.off",
        out=counts.out - counts.rerouted,
        bad=sum(pair.verdict is not RolloutVerdict.WITHIN for pair in pairs),
        sequence=worst.name,
        token=worst.first_found,
        measured=measured,
    )


def _is_off_throughout(pair: SequencePair, options: RolloutOptions) -> bool:
    """Tell whether the noise of both halves of a sequence is larger than rounding explains."""
    both = pair.rollout.log_probs[pair.compared], pair.trainer.log_probs[pair.compared]
    halves = map(scale_of, np.array_split(moved(*both)[telling(*both)], 2))
    return all(scale is not None and scale > options.explained for scale in halves)


def hints_of_pair(rollout: Floats, trainer: Floats, verdict: RolloutVerdict) -> tuple[Message, ...]:
    """Say what the differences of a sequence look like, from where it has left the noise."""
    if verdict not in (RolloutVerdict.OFF, RolloutVerdict.DRIFTING):
        return ()
    found = shift_of(rollout, trainer) if len(rollout) >= SHORTEST_TAIL else None
    with np.errstate(invalid="ignore"):
        apart = float(np.abs(trainer - rollout).mean()) if found is not None else math.nan
    if found is None or not found[1] <= SHIFTED * apart:
        is_whole = verdict is RolloutVerdict.DRIFTING
        return tuple(_tempered(log_odds(rollout), log_odds(trainer))) if is_whole else ()
    return (Message.of(_SHIFTED[0] if found[0] > 0 else _SHIFTED[1]),)


def hints_of_whole(
    rollout: Floats,
    trainer: Floats,
    verdict: RolloutVerdict,
    pairs: Sequence[SequencePair],
    experts: ExpertsReport | None,
) -> tuple[Message, ...]:
    """Say what the differences of all sequences look like."""
    shifted = sum(any(hint.id in _SHIFTED for hint in pair.hints) for pair in pairs)
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
