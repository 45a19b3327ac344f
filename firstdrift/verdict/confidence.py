"""How sure a finding is: by how much it exceeds its limit, what it rests on, and how many slices show it.

| certainty | from values           | from statistics        | without a number                             |
| --------- | --------------------- | ---------------------- | -------------------------------------------- |
| certain   | 3 times the limit     | 10 times the limit     | another argument or shape, NaN, a gradient   |
|           |                       |                        | of one side alone, digests of equal inputs   |
| likely    | 1.5 times             | 2 times                |                                              |
| suspected | less, or only peers of other layers say so                                                    |

Statistics bound errors from below, those of inputs too: so more is asked of them, and as much of the values
of an operator that has no error model and was given what is off. A finding repeated in another slice (token,
step or rank) rises one step in certainty.
"""

from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.verdict.fixed_thresholds import (
    CERTAIN_FROM_STATISTICS,
    CERTAIN_FROM_VALUES,
    FAR_BEYOND,
    LIKELY_FROM_STATISTICS,
    LIKELY_FROM_VALUES,
)
from firstdrift.wording.message import Message


class Certainty(StrEnum):
    """How sure a finding is, the least sure first."""

    SUSPECTED = "suspected"
    LIKELY = "likely"
    CERTAIN = "certain"

    def reaches(self, other: "Certainty") -> bool:
        """Tell whether this is as sure as another, or surer."""
        return _ORDER.index(self) >= _ORDER.index(other)


_ORDER: Final = tuple(Certainty)


class Basis(StrEnum):
    """What a finding rests on."""

    VALUES = "values"
    STATISTICS = "statistics"
    DIGESTS = "digests"
    STRUCTURE = "structure"
    """No number: what was called, with which arguments."""

    GRADIENTS = "gradients"
    """No number: which gradients of parameters each side recorded."""

    OPERATORS = "operators"
    """No number: which operators each side ran."""

    SHAPES = "shapes"
    """No number: of which shapes and dtypes outputs are."""

    UNMODELLED = "unmodelled"
    """Values, of an operator without an error model whose inputs are off: how far that reaches is a guess."""
    PEERS = "peers"
    """Nothing but the same node of other layers says that it is off."""


class Quantity(StrEnum):
    """What a limit is the limit of."""

    OUTPUT = "output"
    INPUT = "input"
    WEIGHT = "weight"
    END = "end"
    """The largest or the smallest element of a weight."""

    SCALE = "scale"
    """By how much the output is golden times a number."""


class Excess(NamedTuple):
    """An error, and the limit that it exceeds."""

    error: float
    limit: float
    of: Quantity = Quantity.OUTPUT

    @property
    def margin(self) -> float:
        """The error over the limit."""
        return self.error / self.limit


class Confidence(Struct, frozen=True, gc=False):
    """How sure a finding is, and why.

    Attributes:
        margin: its error over the limit that it exceeds, 1 at least; None where no number decided.
        limit: that limit; None where no number decided, and of what an earlier version found.
        slices: in how many slices an error begins at the same node.
        along: the coordinate in which alone these slices differ, such as "token"; None of one, or of several.
        of: what it is the limit of; None likewise.
    """

    certainty: Certainty
    basis: Basis
    margin: float | None = None
    slices: int = 1
    limit: float | None = None
    of: Quantity | None = None
    along: str | None = None

    @property
    def said(self) -> Message:
        """Say it in a sentence or two."""
        said = self._without_number if self.margin is None else self._beyond_limit(self.margin)
        if self.slices == 1:
            return said
        return Message.of(f"confidence.found_in_{self.along or 'slice'}s", said=said, slices=self.slices)

    @property
    def _without_number(self) -> Message:
        basis = Message.of(f"confidence.basis_{self.basis}")
        return Message.of(
            "confidence.said", certainty=Message.of(f"confidence.{self.certainty}"), basis=basis
        )

    def _beyond_limit(self, margin: float) -> Message:
        said = Message.of(
            f"confidence.said_{'far' if margin > FAR_BEYOND.value else 'by'}",
            certainty=Message.of(f"confidence.{self.certainty}"),
            what=Message.of(f"confidence.of_{self.of or 'unknown'}"),
            margin=margin,
            limit=self.limit,
        )
        is_exact = self.basis not in _LESS_SURE or self.of is Quantity.END
        return said if is_exact else Message.of(f"confidence.by_{self.basis}", said=said)


_LESS_SURE: Final = frozenset({Basis.STATISTICS, Basis.UNMODELLED, Basis.PEERS})
"""Bases whose sentence says why the number tells less than that of values."""

_BASES: Final = {
    MeasurementKind.DATA: Basis.VALUES,
    MeasurementKind.STATISTICS: Basis.STATISTICS,
    MeasurementKind.DIGEST: Basis.DIGESTS,
}


def basis_of(kind: MeasurementKind | None, *, by_peers: bool = False, is_modelled: bool = True) -> Basis:
    """Return what a finding rests on that a pair of this kind shows; None for one that no pair shows."""
    if by_peers:
        return Basis.PEERS
    known = _BASES.get(kind, Basis.STRUCTURE) if kind else Basis.STRUCTURE
    return known if is_modelled or known is not Basis.VALUES else Basis.UNMODELLED


def confidence_in(basis: Basis, excess: Excess | None) -> Confidence:
    """Say how sure a finding of one slice is; without an excess no number decided."""
    if excess is None:
        return Confidence(Certainty.SUSPECTED if basis is Basis.PEERS else Certainty.CERTAIN, basis)
    return Confidence(
        _certainty(basis, excess.margin), basis, excess.margin, limit=excess.limit, of=excess.of
    )


def _certainty(basis: Basis, margin: float) -> Certainty:
    if basis is Basis.PEERS:
        return Certainty.SUSPECTED
    is_exact = basis not in {Basis.STATISTICS, Basis.UNMODELLED}
    certain = (CERTAIN_FROM_VALUES if is_exact else CERTAIN_FROM_STATISTICS).value
    likely = (LIKELY_FROM_VALUES if is_exact else LIKELY_FROM_STATISTICS).value
    known = Certainty.CERTAIN if margin >= certain else Certainty.LIKELY
    return known if margin >= likely else Certainty.SUSPECTED


def seen_in(confidence: Confidence, slices: int, along: str | None = None) -> Confidence:
    """Make a finding surer that other slices show as well."""
    at = min(_ORDER.index(confidence.certainty) + (slices > 1), len(_ORDER) - 1)
    return replace(confidence, certainty=_ORDER[at], slices=slices, along=along)
