"""Whether ranks that have a part of the sequence each hold it in zigzag, as what they were given tells.

    rank 0   5 7 | 1 1        golden   5 7 3 9 2 8 1 1
    rank 1   3 9 | 2 8

Each rank has a piece from the front and one from the back, so that all have as much to attend to. Token ids
tell, positions, or the rows that were looked up: equal rows in that order alone. What comes later is held
against that order, and shows a fault in it.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from firstdrift.matching.plan import TensorPair
from firstdrift.matching.ranks.thresholds import EQUAL_ROWS, MOST_DEALT
from firstdrift.model.tensor import Role, Sharding, Shards, TensorRecord, is_floating
from firstdrift.parallel.shards_of_tensors import first_values, zigzag
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import ranks_named

if TYPE_CHECKING:
    import numpy.typing as npt


def in_zigzag(pairs: Sequence[TensorPair]) -> list[TensorPair]:
    """Say of parts of a sequence that they were dealt out in zigzag, if what was given first tells so."""
    told = next(filter(None, map(_parts_of_rows, (*_whole_numbers(pairs), *_first_rows(pairs)))), None)
    if told is None or not _is_dealt(*told):
        return list(pairs)
    sizes = _sizes(told[0])
    return [_dealt(pair) if _is_of_rows(pair, sizes) else pair for pair in pairs]


def _whole_numbers(pairs: Sequence[TensorPair]) -> Iterator[TensorPair]:
    inputs = (pair for pair in pairs if pair.target.role is Role.INPUT)
    return (pair for pair in inputs if not is_floating(pair.target.dtype))


def _first_rows(pairs: Sequence[TensorPair]) -> Iterator[TensorPair]:
    """Yield the first pair of fractions that may be parts of a sequence."""
    return islice((pair for pair in pairs if is_floating(pair.target.dtype) and _is_of_rows(pair)), 1)


def _parts_of_rows(pair: TensorPair) -> tuple[Shards, TensorRecord] | None:
    """Return the parts that ranks hold of one side, and the whole of the other; None if it is not so."""
    sides = (pair.golden, pair.target), (pair.target, pair.golden)
    for own, other in sides:
        held = own.shards
        if held is not None and held.sharding is Sharding.CONCATENATED and other.shards is None:
            return held, other
    return None


def _sizes(shards: Shards) -> list[int]:
    return [(part.shape or ())[shards.axis or 0] for part in shards.records]


def _is_of_rows(pair: TensorPair, sizes: Sequence[int] | None = None) -> bool:
    """Tell whether a pair is of parts of a sequence, of so many tokens each: of fractions not the last."""
    told = _parts_of_rows(pair)
    if told is None or pair.target.role not in (Role.INPUT, Role.OUTPUT):
        return False
    shards = told[0]
    is_last = shards.axis == len(shards.records[0].shape or ()) - 1
    of_rows = not is_last or not is_floating(pair.target.dtype)
    return of_rows and (sizes is None or _sizes(shards) == sizes)


def _is_dealt(shards: Shards, whole: TensorRecord) -> bool:
    """Tell whether the values are equal in zigzag, and not as ranks lie one after the other."""
    import numpy as np

    sizes, axis = _sizes(shards), shards.axis or 0
    values = first_values([*shards.records, whole], MOST_DEALT)
    shapes = [part.shape or () for part in shards.records]
    if values is None or len(set(shapes)) > 1 or sizes[0] % 2:
        return False
    if any(one.size != prod(shapes[0]) for one in values[:-1]) or values[-1].size != len(sizes) * prod(
        shapes[0]
    ):
        return False
    laid = np.concatenate([one.reshape(shapes[0]) for one in values[:-1]], axis=axis)
    pieces = np.split(laid, 2 * len(sizes), axis=axis)
    dealt = np.concatenate([pieces[at] for at in zigzag(len(sizes))], axis=axis)
    other = values[-1].reshape(laid.shape)
    return not _are_equal(laid, other) and _are_equal(dealt, other)


def _are_equal(one: "npt.NDArray[Any]", other: "npt.NDArray[Any]") -> bool:
    import numpy as np

    return bool(np.linalg.norm(one - other) <= EQUAL_ROWS * np.linalg.norm(other))


def _dealt(pair: TensorPair) -> TensorPair:
    golden, target = map(_with_dealt, (pair.golden, pair.target))
    shards = golden.shards or target.shards
    said = Message.of("matching.transform.zigzag", ranks=ranks_named(shards.ranks if shards else ()))
    return replace(pair, golden=golden, target=target, transform=(*pair.transform, said))


def _with_dealt(record: TensorRecord) -> TensorRecord:
    return record if record.shards is None else replace(record, shards=replace(record.shards, dealt=True))
