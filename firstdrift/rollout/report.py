"""What a rollout held against a trainer comes to: the whole, each sequence, each position, each prompt."""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np
from msgspec import Struct

from firstdrift.errors import SettingsError
from firstdrift.groups import known
from firstdrift.rollout.experts import ExpertsOfPair
from firstdrift.rollout.pair import Pairing
from firstdrift.rollout.routing import Routed
from firstdrift.rollout.sequences import Flags, Integers, Side, TokenSequence
from firstdrift.rollout.statistics import Statistics, differences
from firstdrift.rollout.thresholds import BAND, EXPLAINED, LEAST_COMPARED
from firstdrift.wording.message import Message

DTYPES = tuple(EXPLAINED)


class RolloutVerdict(StrEnum):
    """What the differences of log-probabilities are."""

    WITHIN = "within rounding"
    OFF = "tokens off"
    DRIFTING = "drifting"
    TOO_LITTLE = "too little compared"


class RolloutOptions(Struct, frozen=True):
    """By what is judged.

    Attributes:
        band: ratios within it are counted as inside, its edges too.
        dtype: in which the model was computed, of which the coarser one.
    """

    band: tuple[float, float] = BAND
    dtype: str = "bfloat16"

    @property
    def explained(self) -> float:
        """Noise in log-odds that rounding explains."""
        return EXPLAINED[self.dtype]


def options_of(band: Sequence[float], dtype: str) -> RolloutOptions:
    """Take options as somebody gave them.

    Raises:
        SettingsError: they make no sense.
    """
    low, high = band
    if not 0 <= low <= high < math.inf:
        raise SettingsError(Message.of("rollout.choose_band"))
    if dtype not in EXPLAINED:
        raise SettingsError(Message.of("rollout.choose_dtype", dtypes=DTYPES))
    return RolloutOptions((low, high), dtype)


class SequencePair(Struct, frozen=True, kw_only=True):
    """A sequence on both sides.

    Attributes:
        number: its place on the side of the rollout.
        name: what it is called.
        prompt: what its prompt is called; empty if nothing says so.
        rollout: what the rollout has of it.
        trainer: what the trainer has of it.
        compared: places of the tokens that were compared.
        statistics: of them.
        out: which of them have left the noise.
        rerouted: which of those that have are as far off as near ties of routers explain.
        scale: of their noise, in log-odds; None of too few.
        other_token: place of the first token that is another one; None if there is none, or it is not known.
        not_finite: place of the first token whose difference is NaN or infinite; None if there is none.
        missing: tokens without a log-probability on a side.
        unmasked: tokens that only one side's mask lets count.
        experts: of its tokens, or why they are not compared; None without any.
        verdict: of this sequence alone.
        hints: what the differences look like.
    """

    number: int
    name: str
    prompt: str
    rollout: TokenSequence
    trainer: TokenSequence
    compared: Integers
    statistics: Statistics
    out: Flags
    rerouted: Flags
    scale: float | None
    other_token: int | None
    not_finite: int | None
    missing: int
    unmasked: int
    experts: ExpertsOfPair | Message | None
    verdict: RolloutVerdict
    hints: tuple[Message, ...]

    @property
    def first_out(self) -> int | None:
        """Place of the first token that has left the noise, if possible not by other experts alone."""
        left = self.out & ~self.rerouted
        places = self.compared[left if left.any() else self.out]
        return int(places[0]) if len(places) else None

    @property
    def not_finite_at(self) -> Integers:
        """Places of the tokens whose difference is NaN or infinite."""
        ours, theirs = (side.log_probs[self.compared] for side in (self.rollout, self.trainer))
        return self.compared[~np.isfinite(differences(ours, theirs))]

    @property
    def first_found(self) -> int | None:
        """Place at which to look: where the noise was left, or another token stands."""
        return min(known((self.first_out, self.other_token)), default=None)


class PositionBin(Struct, frozen=True):
    """Tokens of all sequences between two positions, both included.

    Attributes:
        first: the first position.
        last: the last one.
        statistics: of the tokens.
        scale: of their noise, in log-odds; None of too few.
        out: how many of them have left the noise.
    """

    first: int
    last: int
    statistics: Statistics
    scale: float | None
    out: int


class PromptGroup(Struct, frozen=True):
    """The sequences of a prompt.

    Attributes:
        name: of the prompt.
        sequences: how many.
        statistics: of all their tokens.
        out: how many of them have left the noise.
    """

    name: str
    sequences: int
    statistics: Statistics
    out: int


class LayerExperts(Struct, frozen=True):
    """How often a layer chose the same experts on both sides.

    Attributes:
        layer: its place among the layers that have a router.
        sets: how many were compared.
        other: how many of them are not equal.
    """

    layer: int
    sets: int
    other: int

    @property
    def equal_share(self) -> float:
        """Share of equal sets."""
        return 1.0 - self.other / self.sets if self.sets else 1.0


class ExpertsReport(Struct, frozen=True):
    """Experts of all sequences.

    Attributes:
        layers: each of them.
        first_layer: the first that chooses other experts too often for ties; None if none does.
        first: sequence (by number), token (of prompt and answer) and layer of the first other set.
        not_compared: how many sequences have experts that were not compared, by reason.
        routed: tokens by how many of their layers chose other experts.
    """

    layers: tuple[LayerExperts, ...]
    first_layer: int | None
    first: tuple[int, int, int] | None
    not_compared: Mapping[Message, int]
    routed: tuple[Routed, ...] = ()

    @property
    def other_share(self) -> float:
        """Share of the choices, of all tokens and layers, that are not equal."""
        sets, other = (sum(getattr(one, name) for one in self.layers) for name in ("sets", "other"))
        return other / sets if sets else 0.0


class Bias(Struct, frozen=True):
    """A mean ratio that chance does not explain.

    Attributes:
        mean: by how much the mean ratio of the tokens of a sequence is off 1, on average.
        errors: the same in standard errors, over sequences.
    """

    mean: float
    errors: float


class RolloutCounts(Struct, frozen=True, kw_only=True):
    """How many there are of each; what was left out is counted as what was compared is.

    Attributes:
        sequences: pairs of sequences.
        compared: pairs of which a token was compared.
        tokens: compared.
        out: of them, those that have left the noise.
        rerouted: of those, the ones that were computed by other experts on the two sides.
        rollout_only: sequences without a partner.
        trainer_only: likewise.
        other_tokens: pairs with another token.
        other_lengths: pairs of which one side goes on.
        tokens_unknown: pairs of which it is not known whether their tokens are the same.
        missing: tokens without a log-probability.
        unmasked: tokens that only one side's mask lets count.
        unreadable: lines and files that could not be used.
    """

    sequences: int
    compared: int
    tokens: int
    out: int
    rerouted: int
    rollout_only: int
    trainer_only: int
    other_tokens: int
    other_lengths: int
    tokens_unknown: int
    missing: int
    unmasked: int
    unreadable: int

    @property
    def are_few(self) -> bool:
        """Whether too few sequences of the rollout were compared to say that both sides agree."""
        return self.compared < LEAST_COMPARED * (self.sequences + self.rollout_only)


class RolloutReport(Struct, frozen=True, kw_only=True):
    """The whole answer.

    Attributes:
        options: by what was judged.
        rollout: what was read of the rollout.
        trainer: what was read of the trainer.
        pairing: what was held to belong together, and how that was found.
        pairs: the worst first.
        statistics: of all tokens.
        scale: of their noise, in log-odds.
        positions: the same by position.
        prompts: by prompt, the worst first; empty if each has a sequence only, or none is known.
        experts: None if no side recorded any.
        counts: of everything.
        verdict: of the whole.
        summary: it in a sentence.
        hints: what the differences look like.
    """

    options: RolloutOptions
    rollout: Side
    trainer: Side
    pairing: Pairing
    pairs: tuple[SequencePair, ...]
    statistics: Statistics
    scale: float | None
    positions: tuple[PositionBin, ...]
    prompts: tuple[PromptGroup, ...]
    bias: Bias | None
    experts: ExpertsReport | None
    counts: RolloutCounts
    verdict: RolloutVerdict
    summary: Message
    hints: tuple[Message, ...]
