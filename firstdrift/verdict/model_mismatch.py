"""Two dumps that look like those of different models.

A comparison of theirs says little: most tensors that stand for each other have other widths.
"""

from collections.abc import Iterator, Sequence

from firstdrift.groups import known
from firstdrift.matching.plan import SlicePlan, TensorPair
from firstdrift.model.node import Direction
from firstdrift.model.tensor import Role, is_part_of_rank
from firstdrift.operators.paths import numbered_layer
from firstdrift.verdict.fixed_thresholds import LEAST_TENSORS, OTHER_WIDTHS
from firstdrift.verdict.tree import TreeRow, is_embedding
from firstdrift.wording.message import Message


def unlikeness(plan: SlicePlan, rows: Sequence[TreeRow]) -> Message | None:
    """Say what makes two slices look like those of different models; None if nothing does."""
    others = list(filter(_has_other_width, plan.pairs))
    if not others:
        return None
    tensors = list(filter(_are_tensors, plan.pairs))
    if len(tensors) < LEAST_TENSORS.value or len(others) <= OTHER_WIDTHS.value * len(tensors):
        return None
    shapes = Message.of("mismatch.shapes", count=len(others), pairs=len(tensors))
    facts = (shapes, *_other_hidden_size(plan, rows), *_other_layers(plan))
    return Message.of("mismatch.facts", facts=facts)


def _other_hidden_size(plan: SlicePlan, rows: Sequence[TreeRow]) -> Iterator[Message]:
    widths = known(_hidden_size(plan, row) for row in rows)
    if widths and widths[0][0] != widths[0][1]:
        golden, target = widths[0]
        yield Message.of("mismatch.hidden_size", golden=golden, target=target)


def _other_layers(plan: SlicePlan) -> Iterator[Message]:
    golden = _layers([*(name for match in plan.matches for name in match.golden), *plan.unmatched_golden])
    target = _layers([*(name for match in plan.matches for name in match.target), *plan.unmatched_target])
    if golden and target and golden != target:
        yield Message.of("mismatch.layers", golden=golden, target=target)


def _has_other_width(pair: TensorPair) -> bool:
    """Tell whether two tensors differ in more than the number of tokens."""
    golden, target = pair.golden.shape, pair.target.shape
    if pair.incomparable is None or not golden or not target or golden[-1] == target[-1]:
        return False
    return _are_tensors(pair) and not (is_part_of_rank(pair.golden) or is_part_of_rank(pair.target))


def _are_tensors(pair: TensorPair) -> bool:
    return pair.golden.is_tensor and pair.target.is_tensor


def _hidden_size(plan: SlicePlan, row: TreeRow) -> tuple[int, int] | None:
    """Return how wide the vectors of tokens are on both sides, if a row makes them."""
    if not is_embedding(row) or row.direction is Direction.BACKWARD:
        return None
    for pair in plan.pairs:
        if pair.match == row.match and pair.role is Role.OUTPUT:
            golden, target = pair.golden.shape, pair.target.shape
            if golden and target and len(golden) > 1:
                return golden[-1], target[-1]
    return None


def _layers(names: list[str]) -> int:
    """Count the numbered elements of the longest list of layers."""
    numbers: dict[str, set[int]] = {}
    for name in names:
        if found := numbered_layer(name):
            numbers.setdefault(found[0], set()).add(found[1])
    return max(map(len, numbers.values()), default=0)
