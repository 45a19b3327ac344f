"""What is known about a tensor before its values are read."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from math import fsum, isnan, nan, prod, sqrt
from operator import mul
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import astuple

from firstdrift.groups import known
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import ranks_named


class Role(StrEnum):
    """What a tensor is to its node."""

    INPUT = "input"
    OUTPUT = "output"
    PARAMETER = "parameter"
    GRADIENT = "gradient"


INPUT, OUTPUT, PARAMETER, GRADIENT = Role
"""By themselves, for what is asked of every tensor: Python 3.11 looks up slowly what an enum holds."""


class Statistics(Struct, frozen=True, gc=False):
    """The statistics that the dumping tool recorded; None where it recorded none.

    NaN and infinities are values here, as the tool wrote them.
    """

    maximum: float | None = None
    minimum: float | None = None
    mean: float | None = None
    norm: float | None = None


class ViewStep(Struct, frozen=True, gc=False):
    """One thing that is done to a tensor as it is read, so that it is laid out as another one.

    Attributes:
        name: what is done, of the table of `dumps/storage/views.py`.
        numbers: axes, sizes or places, as that table says.
        other: where another tensor lies that it takes.
    """

    name: str
    numbers: tuple[int, ...] = ()
    other: "tuple[DataLocation, ...]" = ()


class DataLocation(Struct, frozen=True, gc=False):
    """Where the values of a tensor lie.

    Attributes:
        file: the file that holds them.
        container: how the file is laid out: "pt", "npy", "npz", "safetensors", "bin", "ge",
            or "quantised", if it is made from several.
        entry: the tensor's name inside a file that holds several; empty for a file of one tensor.
        shards: where the parts lie, in order, of a tensor that several ranks hold ("shards").
        axis: along which dimension the shards lie side by side; None if they are added up.
        order: which of the equal pieces of the shards, laid side by side, comes where; as they lie if empty.
        view: what is done to the values as they are read, in order.
    """

    file: Path
    container: str
    entry: str = ""
    shards: "tuple[DataLocation, ...]" = ()
    axis: int | None = None
    order: tuple[int, ...] = ()
    view: tuple[ViewStep, ...] = ()


class Sharding(StrEnum):
    """What the tensors of several ranks are to the one tensor of a model that runs on one rank."""

    REPLICATED = "replicated"
    CONCATENATED = "concatenated"
    SUMMED = "summed"
    BY_VALUES = "by values"


class TensorRecord(Struct, frozen=True, gc=False):
    """One value of a node: a tensor, or a Python scalar passed as an argument.

    Attributes:
        role: input, output, parameter or gradient.
        key: which one: "0", "0.1", "hidden_states", "weight".
        dtype: numpy or ml_dtypes name ("float32", "bfloat16", "float8_e4m3fn", "int64", "bool",
            "complex64"), "quantised int8" for what was made from int8 and a scale; for a scalar the name
            of its Python type ("int", "float", "bool", "str");
            "" where unknown.
        shape: dimensions; () for a scalar, None where unknown.
        statistics: as recorded by the dumping tool, if it recorded any.
        digest: checksum of the raw bytes as recorded; comparable only between dumps of one format.
        location: where the values lie, if they were saved.
        scalar: the value of a Python argument as text; None for tensors.
        requires_grad: as recorded.
        problem: why the tensor cannot be compared (file missing, unknown dtype, ...); None if it can.
        shards: what each rank holds of it, in a slice merged from ranks.
    """

    role: Role
    key: str
    dtype: str
    shape: tuple[int, ...] | None
    statistics: Statistics | None = None
    digest: str | None = None
    location: DataLocation | None = None
    scalar: str | None = None
    requires_grad: bool | None = None
    problem: Message | None = None
    shards: "Shards | None" = None

    @property
    def is_tensor(self) -> bool:
        """True for a tensor, False for a Python scalar."""
        return self.scalar is None

    @property
    def label(self) -> str:
        """Role and key, as shown: "output.0"."""
        return self.role + "." + self.key  # a third of the time that an f-string takes of an enum

    @property
    def data_bytes(self) -> int:
        """How much room its values take, as far as shape and dtype tell."""
        import ml_dtypes  # noqa: F401 (tells numpy of bfloat16 and its like)
        import numpy as np

        try:
            itemsize = np.dtype(self.dtype).itemsize
        except (TypeError, ValueError, SyntaxError):  # a dtype that is no word of numpy's
            itemsize = 1
        return itemsize * prod(self.shape or ())


class Shards(Struct, frozen=True, gc=False):
    """What the ranks of a merged slice hold of one tensor.

    Attributes:
        ranks: which ranks, in ascending order.
        records: the tensor of each of them.
        total: the sum of the records, where an all-reduce recorded it; as shards, where a reduce-scatter did.
        sharding: what they are to the whole; None until it was held against the other dump.
        axis: dimension along which they are concatenated, from 0.
        missing: ranks that have the node, but recorded nothing of the tensor.
        only: the one rank whose tensor is compared, where that was asked for; the others tell what it is.
        of: over how many ranks at least the model is spread, where the dump has one of them alone.
        dealt: whether each has two pieces of what is concatenated, from the front and from the back.
    """

    ranks: tuple[int, ...]
    records: tuple[TensorRecord, ...]
    total: TensorRecord | None = None
    sharding: Sharding | None = None
    axis: int | None = None
    missing: tuple[int, ...] = ()
    only: int | None = None
    of: int = 0
    dealt: bool = False

    @property
    def locations(self) -> tuple[DataLocation, ...]:
        """Where the values of the records lie, of those that were saved."""
        return tuple(known(record.location for record in self.records))

    @property
    def own(self) -> TensorRecord | None:
        """What the one rank holds that is compared; None if all are."""
        return None if self.only is None else self.records[self.ranks.index(self.only)]


_OF_A_PART: Final = frozenset({"number", "ggml_log"})
"""Containers that hold a number made of the values, or printed digits of some."""


def holds_a_part(record: TensorRecord) -> bool:
    """Tell whether what was recorded as values is less than all of them: what is equal so proves nothing."""
    return record.location is not None and record.location.container in _OF_A_PART


def is_part_of_rank(record: TensorRecord) -> bool:
    """Tell whether a tensor is what one rank holds of a whole, with what the others hold of it."""
    shards = record.shards
    return shards is not None and shards.only is not None and shards.sharding is Sharding.CONCATENATED


MAY_BE_ADDEND: Final = Message.of("metrics.may_be_addend")


def say_addend(shards: Shards) -> Message:
    """Say why what one rank holds is not compared where the other dump has the sum over all."""
    return Message.of("metrics.addend", rank=shards.only, ranks=ranks_named(shards.ranks))


QUANTISED = "quantised "
"""Begins the dtype of fractions that were made from whole numbers and their scale: "quantised int8"."""

FOUR_DECIMALS: Final = " to 4 decimals"
"""Ends the dtype of numbers that were printed so: "float16 to 4 decimals"."""

UNIT_ROUNDOFF: Final[dict[str, float]] = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4,
    "float8_e5m2": 2.0**-3,
    "float4_e2m1fn": 2.0**-2,
    "complex64": 2.0**-24,
    "complex128": 2.0**-53,
}
"""Largest relative error of rounding a number to nearest, by dtype: half the machine epsilon."""

_HALVED: Final = {**UNIT_ROUNDOFF, "bfloat16": 2.0**-9}

ROUNDING: Final[dict[str, float]] = {
    **_HALVED,
    **{f"{dtype}{FOUR_DECIMALS}": _HALVED[dtype] for dtype in ("float64", "float32", "float16", "bfloat16")},
    f"{QUANTISED}int8": 2.0**-7,
    f"{QUANTISED}uint8": 2.0**-7,
    f"{QUANTISED}int4": 2.0**-3,
    f"{QUANTISED}float8_e4m3fn": 2.0**-4,
    f"{QUANTISED}float8_e5m2": 2.0**-3,
}
"""The size of one rounding, in which errors are counted, by dtype: the unit roundoff.

Of bfloat16 it is half of that: the thresholds of the verdict were chosen with it, and near it lies the root
mean square of such roundings. Whole numbers with a scale have no unit roundoff: theirs is one step, relative
to the largest of them, near which the root mean square of their errors lies for weights with some outliers.
"""

UNDERFLOW: Final[dict[str, float]] = {
    "float16": 2.0**-25,
    "float8_e4m3fn": 2.0**-10,
    "float8_e5m2": 2.0**-17,
    **dict.fromkeys((dtype for dtype in ROUNDING if dtype.endswith(FOUR_DECIMALS)), 0.5e-4),
}
"""Largest absolute error of rounding a number to nearest, however small, by dtype (half the least number).

Other floating dtypes go down so far that nothing is lost.
"""


def possible_shapes(record: TensorRecord) -> tuple[tuple[int, ...], ...]:
    """Return the shapes that a tensor may have as a whole, the likeliest first; none where it is unknown.

    What ranks hold of it, where they hold other values each, may lie side by side along the last dimension,
    be parts of a sum, or be the same but for a fault of one of them.
    """
    if record.shape is None:
        return ()
    shapes = {part.shape for part in record.shards.records} if record.shards is not None else set()
    own = shapes.pop() if len(shapes) == 1 else None
    if record.shards is None or not own or not is_floating(record.dtype):
        return (record.shape,)
    side_by_side = (*own[:-1], max(record.shards.of, len(record.shards.ranks)) * own[-1])
    return tuple(dict.fromkeys((record.shape, own, side_by_side)))


def is_floating(dtype: str) -> bool:
    """Tell whether a dtype holds fractions, so that rounding is to be expected of it."""
    return dtype in ROUNDING or dtype.startswith(("float", "bfloat", "complex"))


def coarsest_roundoff(*dtypes: str) -> float:
    """Return the largest rounding among dtypes; float32's where none is a floating dtype."""
    return max(known(map(ROUNDING.get, dtypes)), default=ROUNDING["float32"])


def shared_location(locations: Sequence[DataLocation], axis: int | None) -> DataLocation:
    """Say where a tensor lies that is spread over files: side by side along a dimension, or added up."""
    return DataLocation(locations[0].file, "shards", shards=tuple(locations), axis=axis)


def join_statistics(parts: Sequence[TensorRecord]) -> Statistics | None:
    """Return the statistics of all elements of some tensors, however they are arranged; None if not known.

    They are the largest maximum, the smallest minimum, the weighted mean, and the root of the sum of squared
    norms.
    """
    said = known(part.statistics for part in parts)
    sizes = list(map(prod, known(part.shape for part in parts)))
    if not len(said) == len(sizes) == len(parts):
        return None
    maxima, minima, means, norms = zip(*map(astuple, said), strict=True)
    return Statistics(
        _extreme(max, maxima), _extreme(min, minima), _weighted_mean(means, sizes), _norm(norms)
    )


def _all_known(values: Sequence[float | None]) -> list[float] | None:
    there = known(values)
    return there if len(there) == len(values) else None


def _extreme(which: Callable[[list[float]], float], values: Sequence[float | None]) -> float | None:
    there = _all_known(values)
    if there is None:
        return None
    return nan if any(map(isnan, there)) else which(there)


def _weighted_mean(means: Sequence[float | None], sizes: Sequence[int]) -> float | None:
    there, size = _all_known(means), sum(sizes)
    return _sum(list(map(mul, there, sizes))) / size if there is not None and size else None


def _norm(norms: Sequence[float | None]) -> float | None:
    there = _all_known(norms)
    return None if there is None else sqrt(_sum(list(map(mul, there, there))))


def _sum(values: list[float]) -> float:
    """Add up; fsum alone refuses infinities of both signs and sums too large."""
    try:
        return fsum(values)
    except (OverflowError, ValueError):
        return sum(values)


class Parts(Struct, frozen=True):
    """What a tensor is joined from.

    Attributes:
        records: the parts, in order.
        are_golden: whether they are on the golden side.
        summed: whether the tensor is their sum; if not, they are laid side by side.
        rotated: whether the tensor is the first, rotated by the angles whose cosine and sine follow.
        of_experts: whether they are rows of experts, which lie one after another.
        rearranged: whether the elements of the first may lie in another order along a dimension: one that
            holds as well for what follows, a golden and a target tensor each, if anything does.
        stacked: whether they are weights of experts, which lie in a dimension of their own.
        witnesses: what has to be arranged as parts are that are laid side by side: parts and whole of each.
    """

    records: tuple[TensorRecord, ...]
    are_golden: bool
    summed: bool = False
    rotated: bool = False
    of_experts: bool = False
    stacked: bool = False
    rearranged: bool = False
    witnesses: tuple[tuple[TensorRecord, ...], ...] = ()
