"""How a tensor of one implementation is seen as that of another: the table of views.

| view        | golden      | target     |                                                  |
| ----------- | ----------- | ---------- | ------------------------------------------------ |
| as it is    | [2, 9, 64]  | [18, 64]   | dimensions of one index, and neighbours merged   |
| swapped     | [2, 9, 64]  | [9, 2, 64] | batch and sequence, heads and sequence, a matrix |
| without pad | [128, 64]   | [160, 64]  | a vocabulary that was made larger                |
| last tokens | [2, 9, 128] | [2, 128]   | logits of the last token of each sequence        |
| rows        | [2, 9, 64]  | [14, 64]   | of the tokens that both have: `tokens/rows.py`   |
| repeated    | [1, 9, 64]  | [2, 9, 64] | positions, looked up once or for each sequence   |

Statistics do not depend on how the same elements are laid out; of what takes some elements only, values are
needed.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, chain
from math import prod, sqrt
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.storage.views import FIRST, LAST, ROWS, SHAPED, SWAPPED
from firstdrift.matching.plan import Messages
from firstdrift.matching.tensors import merge, relate_shapes, reshape
from firstdrift.model.tensor import DataLocation, Role, TensorRecord, ViewStep, is_floating
from firstdrift.wording.message import Message

Shape: TypeAlias = tuple[int, ...]


class Seen(Struct, frozen=True):
    """Two tensors as they are compared, and what is done before."""

    golden: TensorRecord
    target: TensorRecord
    transform: Messages = ()


class _Case(Struct, frozen=True):
    """Two tensors of known shapes, as they were recorded.

    Attributes:
        of_vocabulary: whether one of the dimensions is the vocabulary.
    """

    golden: TensorRecord
    target: TensorRecord
    first: Shape
    second: Shape
    of_vocabulary: bool

    @property
    def is_weight(self) -> bool:
        return self.golden.role in (Role.PARAMETER, Role.GRADIENT)


def seen(golden: TensorRecord, target: TensorRecord, *, of_vocabulary: bool = False) -> Seen | None:
    """Say how two tensors can be compared, by the first view that fits; None if by none."""
    if golden.is_tensor is not target.is_tensor:
        return None
    if golden.shape is None or target.shape is None or golden.shards or target.shards:
        transform, reason = relate_shapes(golden.shape, target.shape)
        return None if reason else Seen(golden, target, transform)
    if 0 in (*golden.shape, *target.shape):
        return None
    case = _Case(golden, target, golden.shape, target.shape, of_vocabulary)
    return next((found for view in _VIEWS if (found := view(case)) is not None), None)


def swapped(record: TensorRecord) -> TensorRecord:
    """Return a matrix transposed."""
    turned = with_steps(record, ViewStep(SWAPPED, (0, 1)))
    return replace(turned, shape=None if record.shape is None else record.shape[::-1])


def with_steps(record: TensorRecord, *steps: ViewStep) -> TensorRecord:
    """Return a tensor whose values are laid out anew as they are read, where they were saved.

    A digest is of the values as they were saved, and says nothing of another order.
    """
    if any(step.name != SHAPED for step in steps):
        record = replace(record, digest=None)
    location = record.location
    if location is None:
        return record
    return replace(record, location=replace(location, view=(*location.view, *steps)))


# ---- the views, in the order in which they are tried


def _as_it_is(case: _Case) -> Seen | None:
    if case.first == case.second:
        return Seen(case.golden, case.target)
    if not merge(case.first, case.second):
        return None
    return Seen(case.golden, case.target, (reshape(case.first, case.second),))


def _swapped(case: _Case) -> Seen | None:
    """See a tensor with two neighbouring dimensions in the other order: a matrix, or three and more."""
    for first in range(min(2, len(case.second) - 1)):
        turned = list(case.second)
        turned[first], turned[first + 1] = turned[first + 1], turned[first]
        is_matrix = len(case.second) == len(case.first) == 2  # noqa: PLR2004
        if case.is_weight is is_matrix and merge(case.first, tuple(turned)):
            axes = first, first + 1
            of_axes = Message.of("matching.transform.swapped", axes=axes)
            said = Message.of("matching.transform.transposed") if is_matrix else of_axes
            return Seen(case.golden, with_steps(case.target, ViewStep(SWAPPED, axes)), (said,))
    return None


def _without_pad(case: _Case) -> Seen | None:
    """See what both have of a vocabulary that one of them made larger."""
    if not case.of_vocabulary or len(case.first) != len(case.second):
        return None
    other = [axis for axis in range(len(case.first)) if case.first[axis] != case.second[axis]]
    if len(other) != 1 or other[0] not in (0, len(case.first) - 1):
        return None
    sizes = case.first[other[0]], case.second[other[0]]
    if not is_made_larger(*sizes):
        return None
    less = min(sizes)
    larger = case.target if sizes[0] == less else case.golden
    said = Message.of("matching.transform.first_of", size=less)
    return _some_of(case, larger, ViewStep(FIRST, (other[0], less)), said)


def is_made_larger(golden: int, target: int) -> bool:
    """Tell whether two sizes may be those of one vocabulary, which one run has filled up."""
    less, more = sorted((golden, target))
    return more < 2 * less


def _last_tokens(case: _Case) -> Seen | None:
    """See what the last tokens have of what all tokens have."""
    if not case.of_vocabulary or case.is_weight:
        return None
    for record, last in ((case.golden, case.second), (case.target, case.first)):
        if (step := _to_last(record, last)) is not None:
            return _some_of(case, record, step, Message.of("matching.transform.last_tokens"))
    return None


def _to_last(record: TensorRecord, last: Shape) -> ViewStep | None:
    """Say how the last token of each sequence is taken; None unless that gives another shape."""
    shape, runs = record.shape or (), rows_of(record.location)
    if runs:
        step, sequences, longest = _last_rows(runs), len(runs) // 2, max(runs[1::2])
    elif len(shape) == 3:  # noqa: PLR2004 ([batch, sequence, vocabulary])
        step, sequences, longest = ViewStep(LAST, (1,)), *shape[:2]
    else:
        return None
    is_last = longest > 1 and last[-1] == shape[-1] and prod(last) == sequences * shape[-1]
    return step if is_last else None


def rows_of(location: DataLocation | None) -> tuple[int, ...]:
    """Return the rows that are taken of a tensor of which some are compared, as runs; nothing of all."""
    steps = () if location is None else location.view
    return next((step.numbers for step in reversed(steps) if step.name == ROWS), ())


def _last_rows(runs: tuple[int, ...]) -> ViewStep:
    """Take the last row of each run, of rows that were taken already."""
    ends = accumulate(runs[1::2])
    return ViewStep(ROWS, tuple(chain.from_iterable((end - 1, 1) for end in ends)))


def _some_of(case: _Case, record: TensorRecord, step: ViewStep, said: Message) -> Seen | None:
    """See some elements of one tensor, of which nothing was recorded: the values of both are needed."""
    if case.golden.location is None or case.target.location is None:
        return None
    some = replace(with_steps(record, step), statistics=None, digest=None, shape=None)
    return Seen(*((some, case.target) if record is case.golden else (case.golden, some)), (said,))


def repeated(golden: TensorRecord, target: TensorRecord) -> Seen | None:
    """See one row as that of all sequences: as positions are looked up, once or for each of them."""
    first, second = golden.shape or (), target.shape or ()
    sizes = first[:1] + second[:1]
    if 1 not in sizes or first == second or first[1:] != second[1:]:
        return None
    said = (Message.of("matching.transform.repeated", times=max(sizes)),)
    sides = [
        _of_one(side) if None not in (golden.location, target.location) else _of_all(side, max(sizes))
        for side in (golden, target)
    ]
    return Seen(sides[0], sides[1], said)


def _of_one(record: TensorRecord) -> TensorRecord:
    """Return what a tensor is for the first of its sequences."""
    shape = record.shape or ()
    if shape[0] == 1:
        return record
    first = with_steps(record, ViewStep(FIRST, (0, 1)))
    return replace(first, statistics=None, digest=None, shape=(1, *shape[1:]))


def _of_all(record: TensorRecord, times: int) -> TensorRecord:
    """Return what was recorded of a tensor as it is for all sequences, of which it may have the only row."""
    shape, told = record.shape or (), record.statistics
    if shape[0] == times or told is None:
        return record
    norm = None if told.norm is None else told.norm * sqrt(times)
    return replace(record, shape=(times, *shape[1:]), statistics=replace(told, norm=norm), digest=None)


_VIEWS: Final[tuple[Callable[[_Case], Seen | None], ...]] = (
    _as_it_is,
    _swapped,
    _without_pad,
    _last_tokens,
)
"""The table above."""


def floating(records: Iterable[TensorRecord]) -> Iterator[TensorRecord]:
    """Yield the tensors that hold fractions and have elements."""
    return (
        each for each in records if each.is_tensor and is_floating(each.dtype) and 0 not in (each.shape or ())
    )
