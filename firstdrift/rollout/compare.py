"""Hold a rollout against a trainer: read both, pair their sequences, measure their tokens, judge.

    files ─▶ sequences ─▶ pairs ─▶ tokens that both have ─▶ noise of all ─▶ tokens that leave it ─▶ verdict

Tokens are compared while both sides have the same ones: behind another token, log-probabilities are those of
another text.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from firstdrift.errors import SettingsError
from firstdrift.groups import gathered, known
from firstdrift.rollout import noise
from firstdrift.rollout.experts import ExpertsOfPair, compare_experts
from firstdrift.rollout.fields import GROUPS, IDS
from firstdrift.rollout.judge import (
    bias_of,
    drifting_with_all,
    hints_of_pair,
    hints_of_whole,
    judge,
    summary_of,
)
from firstdrift.rollout.pair import Pairing, pair_sequences
from firstdrift.rollout.read import read_side
from firstdrift.rollout.report import (
    Bias,
    ExpertsReport,
    LayerExperts,
    PositionBin,
    PromptGroup,
    RolloutCounts,
    RolloutOptions,
    RolloutReport,
    RolloutVerdict,
    SequencePair,
)
from firstdrift.rollout.routing import Routed, Tokens, explained_by_routing, routed
from firstdrift.rollout.sequences import Flags, Floats, Integers, Side, TokenSequence
from firstdrift.rollout.statistics import measure
from firstdrift.rollout.thresholds import OTHER_EXPERTS
from firstdrift.wording.message import Message


class _Common(Struct, frozen=True, kw_only=True):
    """What of a pair can be compared, and the numbers of it."""

    other_token: int | None
    compared: Integers
    rollout: Floats
    trainer: Floats
    missing: int
    unmasked: int
    experts: ExpertsOfPair | Message | None

    @property
    def tokens(self) -> Tokens:
        """Those that were compared, and how many layers chose other experts for each."""
        if not isinstance(self.experts, ExpertsOfPair):
            return Tokens(self.rollout, self.trainer, np.full(len(self.compared), -1), 0)
        layers = self.experts.rerouted(self.compared)
        return Tokens(self.rollout, self.trainer, layers, self.experts.equal.shape[1])


class _Tokens(Struct, frozen=True):
    """All tokens that were compared, whatever their sequence."""

    rollout: Floats
    trainer: Floats
    bins: Integers
    moved: Floats
    tells: Flags
    routed: tuple[Routed, ...]


def compare_rollout(
    rollout: Path,
    trainer: Path,
    options: RolloutOptions | None = None,
    within: Sequence[Path] | None = None,
) -> RolloutReport:
    """Compare the log-probabilities of two engines.

    Raises:
        RolloutUnreadableError: a side cannot be read at all, or nothing tells what belongs together.
        LimitError: it is more than is held in memory.
        SettingsError: both sides are the same numbers, or a package is missing.
    """
    sides = read_side(rollout, "rollout", within), read_side(trainer, "trainer", within)
    if sides[0].path == sides[1].path and sides[0].fields == sides[1].fields:
        raise SettingsError(Message.of("rollout.same_numbers", field=sides[0].fields[0]), path=rollout)
    return compare_sides(*sides, options or RolloutOptions())


def compare_sides(rollout: Side, trainer: Side, options: RolloutOptions) -> RolloutReport:
    """Compare what was read of two sides.

    Raises:
        RolloutUnreadableError: nothing tells which sequences belong together.
    """
    pairing = pair_sequences(rollout.sequences, trainer.sequences)
    found = [(rollout.sequences[ours], trainer.sequences[theirs]) for ours, theirs in pairing.pairs]
    commons = [_common(*pair) for pair in found]
    tokens = _all_tokens(commons, options)
    scales = noise.scales_by_bin(tokens.bins, tokens.moved, tokens.tells)
    layers = tuple(_layers([one.experts for one in commons if isinstance(one.experts, ExpertsOfPair)]))
    often_other = next((one.layer for one in layers if one.other > OTHER_EXPERTS * one.sets), None)
    excuses = tokens.routed if often_other is None else ()
    pairs = [
        _pair(number, *both, common, (scales, excuses), options)
        for (number, _), both, common in zip(pairing.pairs, found, commons, strict=True)
    ]
    out = np.concatenate([pair.out for pair in pairs]) if pairs else np.empty(0, np.bool_)
    statistics = measure(tokens.rollout, tokens.trainer, options.band)
    scale = noise.scale_of(tokens.moved[tokens.tells])
    positions = tuple(_by_position(tokens, scales, out, options))
    worst_first = tuple(sorted(pairs, key=_how_bad))
    counts = _counts(pairs, pairing, rollout, trainer)
    experts = _experts(pairs, layers, often_other, tokens.routed)
    bias = bias_of(pairs)
    scales = [scale, *(one.scale for one in positions)]
    verdict = judge(statistics, scales, counts.out - counts.rerouted, counts.other_tokens, options)
    if verdict is RolloutVerdict.WITHIN:
        verdict = _agreeing(counts, bias)
    if verdict is RolloutVerdict.DRIFTING:
        worst_first = drifting_with_all(worst_first, positions, (scale, bias), options)
    tells = tokens.tells
    return RolloutReport(
        options=options,
        rollout=rollout,
        trainer=trainer,
        pairing=pairing,
        pairs=worst_first,
        statistics=statistics,
        scale=scale,
        positions=positions,
        prompts=_by_prompt(pairs, options),
        bias=bias,
        experts=experts,
        counts=counts,
        verdict=verdict,
        summary=summary_of(
            verdict, statistics, (scale, bias), positions, worst_first, counts, options=options
        ),
        hints=hints_of_whole(tokens.rollout[tells], tokens.trainer[tells], verdict, worst_first, experts),
    )


def _agreeing(counts: RolloutCounts, bias: Bias | None) -> RolloutVerdict:
    """Say of two sides of which each number is within its noise whether all of them together are, too."""
    if bias is not None:
        return RolloutVerdict.DRIFTING
    return RolloutVerdict.TOO_LITTLE if counts.are_few else RolloutVerdict.WITHIN


def _common(rollout: TokenSequence, trainer: TokenSequence) -> _Common:
    length = min(len(rollout), len(trainer))
    other = _other_tokens(rollout, trainer, length)
    first = None if other is None or not other.any() else int(other.argmax())
    until = length if first is None else first
    counts = rollout.counts[:until] & trainer.counts[:until]
    missing = (rollout.missing[:until] | trainer.missing[:until]) & counts
    places = np.flatnonzero(counts & ~missing)
    return _Common(
        other_token=first,
        compared=places,
        rollout=rollout.log_probs[places],
        trainer=trainer.log_probs[places],
        missing=int(missing.sum()),
        unmasked=int((rollout.counts[:until] != trainer.counts[:until]).sum()),
        experts=compare_experts(rollout, trainer),
    )


def _other_tokens(rollout: TokenSequence, trainer: TokenSequence, length: int) -> Flags | None:
    """Tell where tokens that count are not the same; None if it is not known."""
    counts = rollout.counts[:length] & trainer.counts[:length]
    if rollout.tokens is not None and trainer.tokens is not None:
        found: Flags = rollout.tokens[:length] != trainer.tokens[:length]
        return found & counts
    if rollout.texts is not None and trainer.texts is not None:
        both = zip(rollout.texts[:length], trainer.texts[:length], strict=True)
        return np.fromiter((ours != theirs for ours, theirs in both), np.bool_, length) & counts
    return None


def _all_tokens(commons: Sequence[_Common], options: RolloutOptions) -> _Tokens:
    empty = np.empty(0)
    rollout = np.concatenate([empty, *(one.rollout for one in commons)])
    trainer = np.concatenate([empty, *(one.trainer for one in commons)])
    places = np.concatenate([np.empty(0, np.int64), *(one.compared for one in commons)])
    moved = noise.moved(rollout, trainer)
    groups = routed(
        (one.tokens for one in commons),
        [noise.telling(one.rollout, one.trainer) for one in commons],
        options.band,
    )
    return _Tokens(rollout, trainer, noise.bins_of(places), moved, noise.telling(rollout, trainer), groups)


def _first_not_finite(common: _Common) -> int | None:
    """Return the place of the first token whose difference is NaN or infinite."""
    is_lost = ~(np.isfinite(common.rollout) & np.isfinite(common.trainer)) & (
        common.rollout != common.trainer
    )
    places = common.compared[is_lost]
    return int(places[0]) if len(places) else None


def _pair(
    number: int,
    rollout: TokenSequence,
    trainer: TokenSequence,
    common: _Common,
    shared: tuple[Sequence[float | None], Sequence[Routed]],
    options: RolloutOptions,
) -> SequencePair:
    """Measure a sequence; all of them show what is `shared`: scales by position, what routing explains."""
    scales, groups = shared
    statistics = measure(common.rollout, common.trainer, options.band)
    both = common.rollout, common.trainer
    out = noise.out_of_noise(*both, common.compared, scales, options.explained)
    scale = noise.scale_of(noise.moved(*both)[noise.telling(*both)])
    rerouted = out & explained_by_routing(common.tokens, groups)
    verdict = judge(
        statistics, [scale], int((out & ~rerouted).sum()), int(common.other_token is not None), options
    )
    start = int(out.argmax()) if len(out) else 0
    names = {**trainer.names, **rollout.names}
    return SequencePair(
        number=number,
        name=next(iter(known(map(names.get, IDS))), f"{rollout.file}:{rollout.line}"),
        prompt=next(iter(known(map(names.get, GROUPS))), rollout.prompt or trainer.prompt),
        rollout=rollout,
        trainer=trainer,
        compared=common.compared,
        statistics=statistics,
        out=out,
        rerouted=rerouted,
        scale=scale,
        other_token=common.other_token,
        not_finite=_first_not_finite(common),
        missing=common.missing,
        unmasked=common.unmasked,
        experts=common.experts,
        verdict=verdict,
        hints=hints_of_pair(common.rollout[start:], common.trainer[start:], verdict),
    )


def _how_bad(pair: SequencePair) -> tuple[bool, bool, float, int]:
    """Order sequences: what is not finite or another token, then what left the noise, then by mean |d|."""
    left_noise = pair.out & ~pair.rerouted
    is_broken = pair.statistics.not_finite > 0 or pair.other_token is not None
    return (not is_broken, not left_noise.any(), -(pair.statistics.mean_abs or 0.0), pair.number)


def _by_position(
    tokens: _Tokens, scales: Sequence[float | None], out: Flags, options: RolloutOptions
) -> Iterator[PositionBin]:
    for number, scale in enumerate(scales):
        here = tokens.bins == number
        if here.any():
            statistics = measure(tokens.rollout[here], tokens.trainer[here], options.band)
            yield PositionBin(*noise.edges_of(number), statistics, scale, int(out[here].sum()))


def _by_prompt(pairs: Sequence[SequencePair], options: RolloutOptions) -> tuple[PromptGroup, ...]:
    groups = gathered((pair.prompt, pair) for pair in pairs)
    if "" in groups or len(groups) == len(pairs):
        return ()
    found = [
        PromptGroup(
            name,
            len(members),
            measure(
                np.concatenate([one.rollout.log_probs[one.compared] for one in members]),
                np.concatenate([one.trainer.log_probs[one.compared] for one in members]),
                options.band,
            ),
            sum(int(one.out.sum()) for one in members),
        )
        for name, members in groups.items()
    ]
    return tuple(sorted(found, key=lambda one: (-one.out, -(one.statistics.mean_abs or 0.0))))


def _experts(
    pairs: Sequence[SequencePair],
    layers: tuple[LayerExperts, ...],
    often_other: int | None,
    groups: tuple[Routed, ...],
) -> ExpertsReport | None:
    routed_pairs = [(pair, pair.experts) for pair in pairs if isinstance(pair.experts, ExpertsOfPair)]
    reasons = Counter(pair.experts for pair in pairs if isinstance(pair.experts, Message))
    if not routed_pairs and not reasons:
        return None
    first = (
        (pair.number, experts.first_token + experts.first[0], experts.first[1])
        for pair, experts in routed_pairs
        if experts.first is not None
    )
    earliest = min(first, key=lambda one: one[1:], default=None)
    return ExpertsReport(layers, often_other, earliest, reasons, groups)


def _layers(compared: Iterable[ExpertsOfPair]) -> Iterator[LayerExperts]:
    sets: Counter[int] = Counter()
    other: Counter[int] = Counter()
    for experts in compared:
        for layer, count in enumerate((~experts.equal).sum(axis=0).tolist()):
            sets[layer] += len(experts.equal)
            other[layer] += count
    return (LayerExperts(layer, sets[layer], other[layer]) for layer in sorted(sets))


def _counts(pairs: Sequence[SequencePair], pairing: Pairing, rollout: Side, trainer: Side) -> RolloutCounts:
    return RolloutCounts(
        sequences=len(pairs),
        compared=sum(len(pair.compared) > 0 for pair in pairs),
        tokens=sum(len(pair.compared) for pair in pairs),
        out=sum(int(pair.out.sum()) for pair in pairs),
        rerouted=sum(int(pair.rerouted.sum()) for pair in pairs),
        rollout_only=len(pairing.rollout_only),
        trainer_only=len(pairing.trainer_only),
        other_tokens=sum(pair.other_token is not None for pair in pairs),
        other_lengths=sum(_end(pair.rollout) != _end(pair.trainer) for pair in pairs),
        tokens_unknown=sum(_other_tokens(pair.rollout, pair.trainer, 0) is None for pair in pairs),
        missing=sum(pair.missing for pair in pairs),
        unmasked=sum(pair.unmasked for pair in pairs),
        unreadable=rollout.problem_count + trainer.problem_count,
    )


def _end(sequence: TokenSequence) -> int:
    """Return the place behind the last token that counts: what follows is padding."""
    places = np.flatnonzero(sequence.counts)
    return int(places[-1]) + 1 if len(places) else 0
