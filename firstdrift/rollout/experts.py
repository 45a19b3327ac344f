"""Which experts a router chose on both sides, as sets: first token and layer of others, share of equal sets.

Rows of `routed_experts` are tokens. vLLM and SGLang give one for each token that was an input, those of the
prompt first and often none for the last that was generated; others give one for each generated token. With a
prompt of P tokens and G generated ones:

| rows               | first row is of token     |
| ------------------ | ------------------------- |
| P + G, P + G - 1   | 0, the first of prompt    |
| G                  | P, the first generated    |

| rollout, trainer                         | counts as                              |
| ---------------------------------------- | -------------------------------------- |
| recorded, not recorded                   | not compared, with the reason          |
| other numbers of layers, or of experts   | not compared, with the reason          |
| rows that cannot be placed so            | not compared, unless both have as many |
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from firstdrift.rollout.sequences import Flags, Integers, TokenSequence
from firstdrift.wording.message import Message

_UNKNOWN = -1


class ExpertsOfPair(Struct, frozen=True):
    """What was compared of the experts of a sequence.

    Attributes:
        equal: by token and layer, whether both sides chose the same set.
        first_token: where the first row stands in the whole sequence, prompt included.
        prompt_length: where the generated tokens begin in it; -1 if that is not known.
    """

    equal: Flags
    first_token: int
    prompt_length: int

    @property
    def first(self) -> tuple[int, int] | None:
        """Row and layer of the first other set; None if all are equal."""
        other = np.argwhere(~self.equal)
        return (int(other[0][0]), int(other[0][1])) if len(other) else None

    def rerouted(self, places: Integers) -> Integers:
        """Count the layers that chose otherwise where generated tokens were made likely: at the token before.

        It is -1 where that is not known.
        """
        found = np.full(len(places), _UNKNOWN)
        if self.prompt_length == _UNKNOWN:
            return found
        rows = places + self.prompt_length - 1 - self.first_token
        is_known = (rows >= 0) & (rows < len(self.equal))
        found[is_known] = (~self.equal[rows[is_known]]).sum(axis=1)
        return found


def compare_experts(rollout: TokenSequence, trainer: TokenSequence) -> ExpertsOfPair | Message | None:
    """Compare the experts of a sequence; None if neither side has any, a message why not."""
    ours, theirs = rollout.experts, trainer.experts
    if ours is None or theirs is None:
        return None if ours is None and theirs is None else Message.of("rollout.experts.one_side")
    if ours.shape[1:] != theirs.shape[1:]:
        shapes = {"rollout": str(list(ours.shape)), "trainer": str(list(theirs.shape))}
        return Message.of("rollout.experts.shapes", **shapes)
    prompt = rollout.prompt_length if rollout.prompt_length is not None else trainer.prompt_length
    starts = [_start(len(ours), len(rollout), prompt), _start(len(theirs), len(trainer), prompt)]
    if _UNKNOWN in starts:
        if len(ours) != len(theirs):
            return Message.of("rollout.experts.rows", rollout=len(ours), trainer=len(theirs))
        starts = [0, 0]
    first = max(starts)
    ours, theirs = ours[first - starts[0] :], theirs[first - starts[1] :]
    rows = min(len(ours), len(theirs))
    known = _UNKNOWN if prompt is None else prompt
    return ExpertsOfPair(_sets_equal(ours[:rows], theirs[:rows]), first, known)


def _sets_equal(ours: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> Flags:
    found: Flags = (np.sort(ours, axis=-1) == np.sort(theirs, axis=-1)).all(axis=-1)
    return found


def _start(rows: int, generated: int, prompt: int | None) -> int:
    if prompt is not None and rows in (prompt + generated, prompt + generated - 1):
        return 0
    if rows == generated:
        return 0 if prompt is None else prompt
    return _UNKNOWN
