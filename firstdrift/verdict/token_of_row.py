"""Of which token of which sequence the worst row is, where rows are compared by token."""

from math import prod

from firstdrift.matching.plan import TensorPair
from firstdrift.metrics.measurement import Measurement
from firstdrift.verdict.judgement import Reasons
from firstdrift.wording.message import Message


def token_of_row(pair: TensorPair, row: int) -> tuple[int, int] | None:
    """Return golden sequence and place of the token that a row is of, both from 0; None if that is not known.

    Args:
        pair: two tensors; `TensorPair.tokens` says of which tokens their rows are.
        row: index of a row of the last dimension, of the tensor as it is compared.
    """
    rows = sum(count for _, _, count in pair.tokens)
    shape = pair.golden.shape or ()
    if not rows or not shape or prod(shape[:-1]) % rows:
        return None
    left = row // max(1, prod(shape[:-1]) // rows)
    for sequence, place, count in pair.tokens:
        if left < count:
            return sequence, place + left
        left -= count
    return None


def worst_token(pair: TensorPair, measured: Measurement) -> Reasons:
    """Say of which token the worst row is; nothing where rows are compared as they lie."""
    row = measured.errors.worst_row if pair.tokens and measured.errors is not None else None
    at = None if row is None else token_of_row(pair, row)
    return () if at is None else (Message.of("reason.worst_token", sequence=at[0], position=at[1]),)
