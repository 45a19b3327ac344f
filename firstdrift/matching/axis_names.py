"""Lay two tensors alike whose dimensions have the same names in another order, where both dumps name them.

golden "b h d" [4, 8, 16]     target "b d h" [4, 16, 8]   ──▶   target [4, 8, 16]
"""

from msgspec.structs import replace

from firstdrift.dumps.sglang.dims import parse_dims, portion_of
from firstdrift.dumps.storage.views import PERMUTED
from firstdrift.matching.plan import TensorPair
from firstdrift.matching.tensors import relate_shapes
from firstdrift.model.tensor import DataLocation, TensorRecord, ViewStep
from firstdrift.wording.message import Message


def lay_alike(pair: TensorPair) -> TensorPair:
    """Return a pair whose dimensions are in the same order, if their names tell that they are not."""
    golden, target = pair.golden, pair.target
    if golden.location is None or target.location is None or target.shape is None:
        return pair
    order = _order(golden, target)
    if order is None:
        return pair
    shape = tuple(target.shape[axis] for axis in order)
    location = replace(target.location, view=(ViewStep(PERMUTED, order), *target.location.view))
    laid = replace(target, shape=shape, location=location, digest=None, statistics=None)
    transform, incomparable = relate_shapes(golden.shape, shape)
    how = Message.of("matching.transform.reordered", order=order)
    return replace(pair, target=laid, transform=(how, *transform), incomparable=incomparable)


def _order(golden: TensorRecord, target: TensorRecord) -> tuple[int, ...] | None:
    """Return which dimension of the target comes where; None if it need not be moved, or nobody can tell."""
    names = _names(golden), _names(target)
    if names[0] == names[1] or sorted(names[0]) != sorted(names[1]):
        return None
    if _is_moved(target.location) or golden.shards or target.shards:
        return None
    return tuple(map(names[1].index, names[0]))


def _names(record: TensorRecord) -> tuple[str, ...]:
    portion = portion_of(record.location)
    dims = portion and parse_dims(portion.dims)
    is_known = dims and record.shape is not None and len(dims.names) == len(record.shape)
    return dims.names if dims and is_known and "1" not in dims.names else ()


def _is_moved(location: DataLocation | None) -> bool:
    return location is not None and any(step.name == PERMUTED for step in location.view)
