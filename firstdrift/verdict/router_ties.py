"""Where tokens went to other experts than on the golden side, by a tie of nearly equal scores.

    scores               golden  0.301  0.300  0.12    target  0.299  0.302  0.12   another one is the largest
    rows of experts.3    golden [17, 64]               target [16, 64]              another number of tokens

That is no fault, and what the experts are then given is no error. Such a token is off from there on, and so
are those that attend to it later; all others are as they were. So its row is left out of what is judged,
where rows are known; where they are not, what the experts gave is explained, and goes on as an error that
comes in.

Evidence: scores of which other ones are the largest; whole numbers that tell who was chosen; experts that
were given other numbers of rows, as many in all.
"""

import math
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from firstdrift.groups import firsts, gathered, known
from firstdrift.matching.experts.seen_in_order import SAME_EXPERT
from firstdrift.matching.plan import Joining, SlicePlan, TensorPair
from firstdrift.metrics.measurement import Measurement, MeasurementKind, SideSummary
from firstdrift.model.node import Direction, NodeKind
from firstdrift.model.tensor import Role, TensorRecord, is_floating
from firstdrift.operators.kinds import ROW_BY_ROW, OpKind
from firstdrift.operators.paths import (
    is_feed_forward,
    is_of_chosen_experts,
    is_router,
    may_speak_of_experts,
    numbered_chosen_expert,
    numbered_expert,
)
from firstdrift.operators.properties import last_part, parameter_positions
from firstdrift.verdict.fixed_thresholds import MOST_EXPERTS, MOST_SWAPPED, SAME_WEIGHTS
from firstdrift.verdict.tree import TreeRow, kind_of_row, last_name, rows_by_match

_Step: TypeAlias = tuple[int, str]
"""A step that each expert of a block does: the row of the block, and what it is called in the expert."""


class Choice(Struct, frozen=True):
    """A place where other experts were chosen.

    Attributes:
        order: when, in the order of execution.
        block: index of the row that holds the experts; what is in it after the choice depends on it.
        last: index of the last row in it.
        pair: the pair that shows it.
        swapped: how many choices are others, over all tokens; None if that is not known.
        tokens: number of tokens; 0 if not known.
        of_calls: experts were called otherwise, so that calls of the same number are of different experts.
    """

    order: int
    block: int
    last: int
    pair: int
    swapped: int | None = None
    tokens: int = 0
    of_calls: bool = False

    def holds(self, index: int) -> bool:
        """Tell whether the row at an index is among the experts, or around one of them."""
        return self.block <= index <= self.last


def may_be_scores(pair: TensorPair) -> bool:
    """Tell whether experts may be chosen by a tensor: a floating output of what is named as a router."""
    shape = pair.target.shape or ()
    return (
        pair.role is Role.OUTPUT
        and len(shape) > 1
        and 1 < shape[-1] <= MOST_EXPERTS.value
        and is_floating(pair.target.dtype)
        and any(map(is_router, (pair.golden_node, pair.target_node)))
        and ".backward" not in pair.target_node
    )


def is_done_by_row(row: TreeRow) -> bool:
    """Tell whether a row treats each token by itself, so that one that is off spoils no other."""
    return kind_of_row(row) in ROW_BY_ROW or (
        row.kind is not NodeKind.API and is_feed_forward(row.type_name or last_name(row))
    )


def is_of_experts(row: TreeRow) -> bool:
    """Tell whether a row is one of experts that are chosen, or sorts tokens by them."""
    return any(map(is_of_chosen_experts, (*row.golden, *row.target)))


def find_choices(
    rows: Sequence[TreeRow], plan: SlicePlan, measurements: Sequence[Measurement]
) -> tuple[Choice, ...]:
    """Find where other experts were chosen in one pair of slices, in the order of execution."""
    if not _may_have_experts(rows):
        return ()
    experts = [row.index for row in rows if row.direction is not Direction.BACKWARD and is_of_experts(row)]
    if not experts:
        return ()
    search = _Search(rows, plan, measurements, experts)
    found: dict[int, Choice] = {}
    for choice in (*search.by_scores(), *search.by_numbers(), *search.by_rows(), *search.by_calls()):
        if not any(one.holds(choice.block) for one in found.values()):
            found[choice.block] = choice
    return tuple(sorted(found.values(), key=lambda choice: choice.order))


def _may_have_experts(rows: Sequence[TreeRow]) -> bool:
    """Look for experts in all names at once: most models have none, and many names."""
    names = "\n".join(name for row in rows for name in (*row.golden, *row.target)).lower()
    return may_speak_of_experts(names)


class _Given(NamedTuple):
    """In how many rows a tensor of an expert lies on either side; of which pair, if both sides have it."""

    row: TreeRow
    label: str
    golden: int
    target: int
    pair: int | None = None


class _Search:
    """Looks for the places of one pair of slices where experts were chosen otherwise."""

    def __init__(
        self,
        rows: Sequence[TreeRow],
        plan: SlicePlan,
        measurements: Sequence[Measurement],
        experts: Sequence[int],
    ) -> None:
        self.rows, self.plan, self.measurements, self.experts = rows, plan, measurements, experts
        self.of_experts = frozenset(experts)
        self.row_of_match = rows_by_match(rows)
        self.pairs = [(index, pair, self.row_of_match[pair.match]) for index, pair in enumerate(plan.pairs)]
        self.pairs = [one for one in self.pairs if one[2].direction is not Direction.BACKWARD]
        self.of_row = gathered((row.index, (index, pair)) for index, pair, row in self.pairs)
        self.is_merged = any(side.coordinates.merged for side in (plan.golden, plan.target))

    def by_scores(self) -> Iterator[Choice]:
        """Yield the choices that scores show: of each block the first that runs."""
        seen: set[int] = set()
        for index, pair, row in sorted(self.pairs, key=lambda one: one[2].order):
            swapped = self.measurements[index].swapped
            if swapped is None or row.index in self.of_experts:
                continue
            block = self._block(row)
            if block is None or block.index in seen:
                continue
            seen.add(block.index)
            tokens = math.prod((pair.target.shape or ())[:-1])
            chosen = self._chosen(block, tokens, len(swapped) + 1)
            count = swapped[chosen - 1] if chosen else max(swapped)
            if 0 < count <= max(1, MOST_SWAPPED.value * tokens * (chosen or 1)):
                yield Choice(row.order, block.index, block.last, index, count, tokens)

    def by_numbers(self) -> Iterator[Choice]:
        """Yield the choices that whole numbers show: the chosen ones, or how many rows each was given."""
        for index, pair, row in self.pairs:
            if pair.role is not Role.OUTPUT or not pair.target.is_tensor or pair.incomparable:
                continue
            if is_floating(pair.target.dtype) or self.measurements[index].equal is not False:
                continue
            block = self._block(row)
            if block is not None and (row.index in self.of_experts or kind_of_row(row) is OpKind.ROUTE):
                is_given = row.index in self.of_experts
                yield Choice(row.order - is_given, block.index, block.last, index)

    def by_rows(self) -> Iterator[Choice]:
        """Yield the choices that show in how many rows experts were given, if they are as many in all."""
        given = [(step, one) for one in self._given() if (step := self._step(one.row)) is not None]
        shown = gathered((step, (one.row.order, one.pair)) for step, one in given if one.pair is not None)
        alone = {self._step(self.rows[index]) for index in self.experts if self.rows[index].match is None}
        renumbered = {step for step, one in given if self._is_of_another_number(one)}
        for (step, _), each in gathered(((step, one.label), one) for step, one in given).items():
            if step in shown and (step in alone or _went_elsewhere(each, renumbered=step in renumbered)):
                order, index = min(shown[step])
                yield Choice(order - 1, step[0], self.rows[step[0]].last, index)

    def _is_of_another_number(self, given: _Given) -> bool:
        # Ranks that have experts of their own may all number them from 0.
        if self.is_merged or given.pair is None or given.row.match is None:
            return False
        reasons = self.plan.matches[given.row.match].reasons
        return _are_numbered_otherwise(given.row) and all(why.id != SAME_EXPERT for why in reasons)

    def by_calls(self) -> Iterator[Choice]:
        """Yield the choices that calls show: expert after expert runs, and only those that were chosen.

        Then there are more calls on one side, or one that is given the weights of another expert.
        """
        for around in () if self.is_merged else (self.rows[index] for index in self.experts):
            if around.golden != around.target or _place(around) is not None:  # its name says which it is
                continue
            calls = self._calls_in(around)
            shown = next((at for one in calls for at, _ in self.of_row[one.index]), None)
            block = self._block(around)
            if shown is not None and block is not None and self._were_called_otherwise(calls):
                order = min(one.order for one in calls) - 1
                yield Choice(order, block.index, block.last, shown, of_calls=True)

    def _calls_in(self, around: TreeRow) -> list[TreeRow]:
        """Return the operators that run right in a row."""
        inside = self.rows[around.index + 1 : around.last + 1]
        return [one for one in inside if one.kind is NodeKind.API and one.parent == around.index]

    def _were_called_otherwise(self, calls: Sequence[TreeRow]) -> bool:
        alone = {bool(one.golden) for one in calls if one.match is None and _takes_weights(one)}
        return len(alone) == 1 or self._run_other_experts(calls)

    def _run_other_experts(self, calls: Sequence[TreeRow]) -> bool:
        """Tell whether a call is given the weights that another one has on the golden side."""
        given = [self.measurements[at] for one in calls for at in self._weights_of(one)]
        others = known(own.target for own in given if not _are_alike(own.golden, own.target))
        return any_alike(known(own.golden for own in given), others)

    def _weights_of(self, row: TreeRow) -> Iterator[int]:
        positions = parameter_positions(last_part(row.type_name))
        return (at for at, pair in self.of_row[row.index] if pair.golden.key in positions)

    def _given(self) -> Iterator[_Given]:
        """Yield what experts have on both sides with rows as wide, then what they have in one dump alone."""
        for index, pair, row in self.pairs:
            golden, target = pair.golden.shape, pair.target.shape
            if golden and target and golden[-1] == target[-1]:
                yield _Given(row, pair.target.label, math.prod(golden[:-1]), math.prod(target[:-1]), index)
        yield from self._given_on_one_side()

    def _given_on_one_side(self) -> Iterator[_Given]:
        for at, left in enumerate((self.plan.unmatched_golden_tensors, self.plan.unmatched_target_tensors)):
            for tensor in left:
                row = self.row_of_match.get(tensor.match)
                if row is not None and row.index in self.of_experts and tensor.record.shape:
                    rows = math.prod(tensor.record.shape[:-1])
                    yield _Given(row, tensor.record.label, *((0, rows) if at else (rows, 0)))

    def _step(self, row: TreeRow) -> _Step | None:
        """Return which step of a numbered expert a row is, whichever expert it is; None if of none."""
        place, block = _place(row), self._block(row)
        if place is None or block is None or not _is_numbered_alike(row):
            return None
        return block.index, place["name"]

    def _block(self, row: TreeRow) -> TreeRow | None:
        """Return the innermost row around another that is no expert, and holds some."""
        while row.parent is not None:
            row = self.rows[row.parent]
            behind = bisect_right(self.experts, row.index)
            holds = behind < len(self.experts) and self.experts[behind] <= row.last
            if holds and row.index not in self.of_experts:
                return row
        return None

    def _chosen(self, block: TreeRow, tokens: int, experts: int) -> int | None:
        """Return how many experts each token goes to; None if nothing tells."""
        if not tokens:
            return None
        for row in self.rows[block.index : block.last + 1]:
            for _, pair in self.of_row[row.index]:
                shape = pair.golden.shape or pair.target.shape or ()
                if pair.joining is Joining.OF_EXPERTS and shape:
                    return _whole(math.prod(shape[:-1]), tokens, experts)
                if _lists_experts(pair.target, shape, tokens, experts):
                    return shape[-1]
        return _whole(self._rows_in_all(block), tokens, experts)

    def _rows_in_all(self, block: TreeRow) -> int:
        """Add up in how many rows the experts of a block were given the same tensor, on the golden side."""
        given: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
        for row, label, rows in self._golden_rows(block):
            if (place := _place(row)) is not None:
                given[place["name"], label][place["number"]] = rows
        return max((sum(rows.values()) for rows in given.values()), default=0)

    def _golden_rows(self, block: TreeRow) -> Iterator[tuple[TreeRow, str, int]]:
        for row in self.rows[block.index : block.last + 1]:
            for _, pair in self.of_row[row.index]:
                if pair.golden.shape and pair.golden.is_tensor:
                    yield row, pair.golden.label, math.prod(pair.golden.shape[:-1])
        for one in self._given_on_one_side():
            if block.index < one.row.index <= block.last:
                yield one.row, one.label, one.golden


def _lists_experts(tensor: TensorRecord, shape: Sequence[int], tokens: int, experts: int) -> bool:
    """Tell whether a tensor holds a few whole numbers for each token, as those of the chosen experts."""
    if is_floating(tensor.dtype) or not tensor.is_tensor or len(shape) < 2:  # noqa: PLR2004
        return False
    return math.prod(shape[:-1]) == tokens and shape[-1] < experts


def _went_elsewhere(given: Sequence[_Given], *, renumbered: bool) -> bool:
    """Tell whether experts were given other rows than on the golden side, but as many in all."""
    is_as_many = sum(one.golden for one in given) == sum(one.target for one in given)
    return is_as_many and (renumbered or any(one.golden != one.target for one in given))


def _takes_weights(row: TreeRow) -> bool:
    return bool(parameter_positions(last_part(row.type_name)))


def any_alike(sides: Sequence[SideSummary], others: Sequence[SideSummary]) -> bool:
    """Tell whether one of some tensors has the same statistics as one of others, within the rounding of them.

    Those that have are neighbours in the order of norms, so that only these are held against each other.
    """
    told = sorted(
        (side.norm, at)
        for at, side in enumerate(sides)
        if side.norm is not None and not math.isnan(side.norm)
    )
    untold = [side for side in sides if side.norm is None]
    norms = firsts(told)
    for other in others:
        near: Iterable[SideSummary] = sides
        if other.norm is not None:
            apart = 2 * SAME_WEIGHTS.value * abs(other.norm)
            first, last = bisect_left(norms, other.norm - apart), bisect_right(norms, other.norm + apart)
            near = chain((sides[at] for _, at in told[first:last]), untold)
        if any(_are_alike(side, other) for side in near):
            return True
    return False


def _are_alike(one: SideSummary | None, other: SideSummary | None) -> bool:
    """Tell whether two tensors have the same statistics, within the rounding of them."""
    if one is None or other is None:
        return False
    numbers = ((one.norm, other.norm), (one.maximum, other.maximum), (one.minimum, other.minimum))
    known = [(a, b) for a, b in numbers if a is not None and b is not None]
    return bool(known) and all(math.isclose(a, b, rel_tol=SAME_WEIGHTS.value) for a, b in known)


def _place(row: TreeRow) -> re.Match[str] | None:
    found = map(numbered_chosen_expert, (*row.golden, *row.target))
    return next((match for match in found if match is not None), None)


def _is_numbered_alike(row: TreeRow) -> bool:
    """Tell whether both sides number their experts, as far as a row has both."""
    return all(numbered_expert(name) is not None for name in (*row.golden, *row.target))


def _are_numbered_otherwise(row: TreeRow) -> bool:
    """Tell whether an expert is held against one of another number in a list of the same name."""
    if not (row.golden and row.target):
        return False
    found = known(numbered_expert(side[0]) for side in (row.golden, row.target))
    before = {match.string[: match.start("number")] for match in found}
    return len(found) == 2 and len(before) == 1 and found[0]["number"] != found[1]["number"]  # noqa: PLR2004


def _whole(rows: int, tokens: int, experts: int) -> int | None:
    chosen = -(-rows // tokens)
    return chosen if 0 < chosen < experts else None


class Excuse(Struct, frozen=True):
    """What the choices of a slice excuse in one of its pairs.

    Attributes:
        left_out: worst rows that are those of tokens that went elsewhere.
        is_within: it depends on the choice, and which of its rows are whose is not known.
        is_set_aside: it is so, but where rows are known it is judged what it leads to: it explains nothing.
        tells_little: which rows are off is not known, and statistics may hide that some are.
        is_by_number: it is of a call that may be one of another expert on the other side.
    """

    left_out: int = 0
    is_within: bool = False
    is_set_aside: bool = False
    tells_little: bool = False
    is_by_number: bool = False


def excuse(choices: Sequence[Choice], row: TreeRow, pair: TensorPair, measured: Measurement) -> Excuse:
    """Say what choices that were made before a row excuse in one of its pairs."""
    before = [choice for choice in choices if choice.order < row.order]
    if not before or row.direction is Direction.BACKWARD or pair.role is Role.GRADIENT:
        return Excuse()
    own = next((choice for choice in reversed(before) if choice.holds(row.index)), None)
    if any(choice.swapped is None for choice in before):
        return _excuse_of_any_row(own, row, measured)
    left_out = _rows_left_out(before, own, measured)
    if own is None:
        return Excuse(left_out)
    if left_out >= own.tokens:
        return Excuse(left_out, is_within=True)
    is_sorted = _is_sorted(own, row, pair)
    return Excuse(left_out, is_within=is_sorted, is_set_aside=is_sorted)


def _excuse_of_any_row(own: Choice | None, row: TreeRow, measured: Measurement) -> Excuse:
    """Say what is excused where it is not known how many tokens went elsewhere."""
    by_statistics = measured.kind is MeasurementKind.STATISTICS
    is_by_number = own is not None and own.of_calls and row.kind is NodeKind.API
    return Excuse(is_within=own is not None, tells_little=by_statistics, is_by_number=is_by_number)


def _is_sorted(own: Choice, row: TreeRow, pair: TensorPair) -> bool:
    """Tell whether the rows of a tensor stand in the order of experts, and not of tokens."""
    if pair.joining is Joining.OF_EXPERTS:
        return False
    return is_of_experts(row) or math.prod((pair.target.shape or ())[:-1]) != own.tokens


def _rows_left_out(before: Sequence[Choice], own: Choice | None, measured: Measurement) -> int:
    """Return how many rows choices spoil, of a tensor that may have several for each token."""
    rows = measured.by_row.rows if measured.by_row is not None else 0
    return sum(
        (choice.swapped or 0)
        * (1 if choice is own or not choice.tokens else max(1, -(-rows // choice.tokens)))
        for choice in before
    )


def hides(choices: Sequence[Choice], row: TreeRow, pair: TensorPair, measured: Measurement) -> bool:
    """Tell whether all that is known of a pair may be off because other experts were chosen before."""
    if not any(choice.order < row.order for choice in choices):
        return False
    left_out = excuse(choices, row, pair, measured).left_out
    return not left_out or measured.by_row is None or measured.by_row.without(left_out) is None
