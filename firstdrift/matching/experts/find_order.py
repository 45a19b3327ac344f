"""In which order the target stores the experts that the golden run has.

golden   experts 0 1 2 3    rows of the router 0 1 2 3
target   experts 1 3 0 2    rows of the router 1 3 0 2     healthy: golden's expert 0 is the target's 2
target   experts 1 3 0 2    rows of the router 0 1 2 3     a fault: weights of experts changed places

Weights tell which expert is which: values, or what was recorded of them. That the router gives each the same
tokens tell its rows where they were saved, else what the experts were given.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import starmap
from operator import itemgetter
from statistics import median_low
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import TensorUnreadableError
from firstdrift.groups import alone, known
from firstdrift.matching.experts.blocks import Block, Weights, blocks_of
from firstdrift.matching.experts.thresholds import (
    CLEARLY_NEARER,
    LARGEST,
    MOST_FIRST,
    ROUTER_NEARER,
    SAMPLE,
)
from firstdrift.matching.structure.statistics_similarity import value_distance
from firstdrift.matching.structure.thresholds import SAME_PARAMETER
from firstdrift.model.slice import Slice
from firstdrift.model.tensor import TensorRecord

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

Distance = Callable[[int, int], float]
"""How far the golden expert of a number is from a target expert of a number; infinite if not known."""


class Moved(Struct, frozen=True):
    """A mixture of experts that the target stores in another order.

    Attributes:
        golden: path of the module around them in the golden run; likewise target.
        order: for the number of each golden expert, that of the same expert in the target.
        router_moved: whether the rows of the router lie in that order too.
    """

    golden: str
    target: str
    order: tuple[int, ...]
    router_moved: bool


def find_moved(golden: Slice, target: Slice) -> tuple[Moved, ...]:
    """Find the mixtures of which the experts lie in another order."""
    others = blocks_of(target)
    pairs = ((one, _same_block(one, others)) for one in blocks_of(golden).values()) if others else ()
    return tuple(known(_moved(one, other) for one, other in pairs if other is not None))


def _same_block(block: Block, others: Mapping[str, Block]) -> Block | None:
    """Return the block of that path, or the only one of the same layer."""
    if block.path in others:
        return others[block.path]
    numbers = re.findall(r"\d+", block.path)
    alike = [other for path, other in others.items() if re.findall(r"\d+", path) == numbers]
    return alike[0] if len(alike) == 1 else None


def _moved(golden: Block, target: Block) -> Moved | None:
    size = golden.size
    if size != target.size or size < 2:  # noqa: PLR2004
        return None
    partners = _partners(golden, target)
    numbers = [partners[number] for number in sorted(partners)]
    if numbers == sorted(numbers):  # of ranks that have experts of their own, one may number them from 0
        return None
    rows = _rows_of_routers(golden, target, size)
    order = _completed(partners, rows, size)
    is_moved = _are_given_alike(golden, target, order) if rows is None else _is_router_moved(*rows, order)
    return None if is_moved is None else Moved(golden.path, target.path, order, is_moved)


def _partners(golden: Block, target: Block) -> dict[int, int]:
    """Return which target expert has the weights of each golden one, of those that are found."""
    distance = _of_single(golden, target)
    numbers: tuple[Sequence[int], Sequence[int]] = sorted(golden.single), sorted(target.single)
    if not numbers[0] or not numbers[1]:
        samples = known(map(_sampled_rows, _alone_together(golden.stacked, target.stacked)))
        # A router may have more rows than there are experts: one that says that none is needed.
        stacked = range(min((len(first) for first, _ in samples), default=0))
        distance, numbers = _of_stacked(samples), (stacked, stacked)
    if _are_in_place(*numbers, distance):
        return {}
    found = dict(_nearest(numbers[0][:MOST_FIRST], numbers[1], distance))
    if found:
        found |= _nearest(numbers[0][MOST_FIRST:], numbers[1], distance)
    return dict(alone(found.items(), itemgetter(1)).values())


def _are_in_place(own: Iterable[int], others: Sequence[int], distance: Distance) -> bool:
    return all(number in others and distance(number, number) <= SAME_PARAMETER for number in own)


def _nearest(own: Iterable[int], others: Sequence[int], distance: Distance) -> Iterator[tuple[int, int]]:
    """Yield the experts to which another one is clearly nearer than all others."""
    for number in own:
        nearest, *further = sorted((distance(number, other), other) for other in others)
        if nearest[0] <= LARGEST and (not further or nearest[0] < CLEARLY_NEARER * further[0][0]):
            yield number, nearest[1]


def _of_single(golden: Block, target: Block) -> Distance:
    def distance(own: int, other: int) -> float:
        pairs = _together(golden.single[own], target.single[other])
        return _middle(min(known(starmap(_apart, pair)), default=None) for pair in pairs)

    return distance


def _together(golden: Weights, target: Weights) -> Iterator[list[tuple[TensorRecord, TensorRecord]]]:
    """Yield each golden weight with that of its name, or with all of its shape where names differ."""
    for key, record in golden.items():
        others = [target[key]] if key in target else target.values()
        yield [(record, other) for other in others if other.shape == record.shape]


def _apart(golden: TensorRecord, target: TensorRecord) -> float | None:
    if golden.statistics is None and golden.digest and target.digest:
        return float(golden.digest != target.digest)
    return value_distance(golden, target)


def _of_stacked(samples: "Sequence[tuple[Array, Array]]") -> Distance:
    """Measure by the first elements of each expert, where they were saved."""

    def distance(own: int, other: int) -> float:
        return _middle(_relative(first[own], second[other]) for first, second in samples)

    return distance


def _middle(distances: Iterable[float | None]) -> float:
    """Return the distance that half of the weights keep, so that a faulty one makes no other expert of it."""
    told = known(distances)
    return median_low(told) if told else math.inf


def _alone_together(golden: Weights, target: Weights) -> list[tuple[TensorRecord, TensorRecord]]:
    return [pairs[0] for pairs in _together(golden, target) if len(pairs) == 1]


def _sampled_rows(sides: tuple[TensorRecord, TensorRecord]) -> "tuple[Array, Array] | None":
    """Return the first elements of each row of two tensors; None if values were not saved of both."""
    golden, target = map(_sample, sides)
    if golden is None or target is None or golden.shape != target.shape:
        return None
    return golden, target


def _sample(record: TensorRecord) -> "Array | None":
    import numpy as np

    if record.location is None or record.location.shards or record.problem is not None:
        return None
    try:
        values = load_tensor(record.location)
    except TensorUnreadableError:
        return None
    return np.stack([row.flat[:SAMPLE].astype("float64") for row in np.atleast_2d(values)])


def _relative(golden: "Array", target: "Array") -> float:
    import numpy as np

    scale = float(np.linalg.norm(golden))
    return float(np.linalg.norm(golden - target)) / scale if scale else math.inf


def _rows_of_routers(golden: Block, target: Block, size: int) -> "tuple[Array, Array] | None":
    """Return the first elements of each row of the two routers, where values were saved."""
    rows = known(map(_sampled_rows, _alone_together(golden.router, target.router)))
    return next((sides for sides in rows if len(sides[0]) == size), None)


def _completed(partners: Mapping[int, int], rows: "tuple[Array, Array] | None", size: int) -> tuple[int, ...]:
    """Give each golden expert a number: those that did not run by the rows of the router, else in order."""
    order, free = dict(partners), [number for number in range(size) if number not in partners.values()]
    for number in range(size):
        if number not in order:
            order[number] = free[0] if rows is None else _nearest_row(number, free, *rows)
            free.remove(order[number])
    return tuple(order[number] for number in range(size))


def _nearest_row(number: int, others: Iterable[int], golden: "Array", target: "Array") -> int:
    return min(others, key=lambda other: _relative(golden[number], target[other]))


def _is_router_moved(golden: "Array", target: "Array", order: Sequence[int]) -> bool:
    """Tell whether the rows of two routers lie in an order."""
    return _norm_of(golden - target[list(order)]) < ROUTER_NEARER * _norm_of(golden - target)


def _are_given_alike(golden: Block, target: Block, order: Sequence[int]) -> bool | None:
    """Tell whether experts are given what those in that order are; None if that is not told."""
    moved = [number for number in golden.given if order[number] != number]
    apart = partial(_given_apart, golden, target)
    signs = [_sign(apart(number, number) - apart(number, order[number])) for number in moved]
    return sum(signs) > 0 if sum(signs) else None


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)


def _norm_of(array: "Array") -> float:
    import numpy as np

    return float(np.linalg.norm(array))


def _given_apart(golden: Block, target: Block, own: int, other: int) -> float:
    """Return how far what one expert was given is from that of another one; 1 for other numbers of rows."""
    if other not in target.given:
        return 1.0
    apart = _apart(golden.given[own], target.given[other])
    return 1.0 if apart is None else apart
