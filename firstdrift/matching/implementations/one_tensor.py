"""What a node has as one tensor, where the other run has it so and this one in parts that are added up.

target   norm(hidden, residual)     input.0 + input.1
         linear ─▶ result, bias     output.0 + output.1
"""

from collections.abc import Hashable, Iterator, Sequence
from math import fsum
from typing import TypeAlias

from msgspec.structs import replace

from firstdrift.dumps.storage.views import PLUS
from firstdrift.groups import known
from firstdrift.matching.implementations.thresholds import TWO_PARTS
from firstdrift.matching.implementations.views import with_steps
from firstdrift.matching.plan import Messages
from firstdrift.matching.structure.statistics_similarity import value_key
from firstdrift.model.tensor import Statistics, TensorRecord, ViewStep, shared_location
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named

Sums: TypeAlias = dict[tuple[Hashable, Hashable], TensorRecord]
"""What two values add up to, by their keys, where a module was given both and gave their sum."""


Candidates: TypeAlias = Iterator[tuple[TensorRecord, TensorRecord, Messages]]
"""Tensors that may be the same, and what is said of how they are laid out."""


Whole: TypeAlias = tuple[TensorRecord, Messages]
"""What a node has as one tensor, and how that is made from what it recorded."""


def both(golden: Whole | None, target: Whole | None) -> Candidates:
    """Yield what two nodes have as one tensor each, if both have it."""
    if golden is not None and target is not None:
        yield golden[0], target[0], golden[1] + target[1]


def as_given(records: Sequence[TensorRecord]) -> Whole | None:
    """Return the first of several tensors, as it is."""
    return (records[0], ()) if records else None


def summed(side: str, records: Sequence[TensorRecord], sums: Sums) -> Whole | None:
    """Return the sum of the first two tensors; None where neither values nor a sum were recorded."""
    parts = records[:TWO_PARTS]
    keys = value_key(parts[0]), value_key(parts[1])
    total = sums.get((keys[0], keys[1])) or sums.get((keys[1], keys[0]))
    locations = known(part.location for part in parts)
    location = shared_location(locations, None) if len(locations) == TWO_PARTS else None
    if total is None and location is None:
        return None
    statistics = total and total.statistics
    return replace(parts[0], statistics=statistics, digest=None, location=location), said(side, parts)


def said(side: str, parts: Sequence[TensorRecord]) -> Messages:
    """Say that some tensors are added up."""
    labels = tuple(part.label for part in parts)
    return (Message.of("matching.transform.with_residual", side=side_named(side), parts=labels),)


def hands_on_bias(given: Sequence[TensorRecord]) -> bool:
    """Tell whether a node gives beside its result what has to be added to each row of it."""
    shapes = [record.shape or () for record in given]
    return len(shapes) == TWO_PARTS and len(shapes[0]) > 1 and shapes[1] == shapes[0][-1:]


def with_bias(side: str, given: Sequence[TensorRecord]) -> Whole | None:
    """Return a result, with the bias added that is handed on beside it; without values of both its mean."""
    if not hands_on_bias(given):
        return as_given(given)
    result, bias = given
    if result.shards or bias.shards:
        return None
    if result.location is None or bias.location is None:
        return replace(result, statistics=_mean_of_sum(given), digest=None), said(side, given)
    plus = with_steps(result, ViewStep(PLUS, other=(bias.location,)))
    return replace(plus, statistics=None), said(side, given)


def _mean_of_sum(records: Sequence[TensorRecord]) -> Statistics | None:
    """Return what is known of a result with a bias added to each row: means add up, and nothing else does."""
    told = known(record.statistics for record in records)
    means = known(each.mean for each in told)
    return Statistics(mean=fsum(means)) if len(means) == len(records) else None
