"""Pairs of slices made in memory: real values of a chosen error, measured and judged as those of dumps are.

    judge(Call("Functional.linear.0.forward", inputs=[0.0], outputs=[0.5]))

An error is relative L2: the target's values are the golden ones with noise of that size.
"""

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from firstdrift.matching.plan import NodeMatch, Origin, SlicePlan, TensorPair
from firstdrift.matching.tensors import shapes_differ
from firstdrift.metrics.measure import measure_pair
from firstdrift.metrics.measurement import Measurement
from firstdrift.model.names import parse_name
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Slice, SliceListing
from firstdrift.model.tensor import DataLocation, Role, TensorRecord
from firstdrift.verdict.findings import judge_after
from firstdrift.verdict.judgement import Finding, RowJudgement, SliceJudgement
from firstdrift.verdict.logits import is_logits
from firstdrift.verdict.router_ties import may_be_scores
from firstdrift.verdict.tree import TreeRow, build_rows

SHAPE = (16, 32)
Array = np.ndarray
Values = float | tuple[object, object]
"""An error, or the golden and the target value themselves (arrays; anything else is a Python argument)."""


class Call(Struct, frozen=True):
    """A call of a module or an operator, named as msprobe names it.

    Attributes:
        name: "Functional.linear.0.forward", "Module.mlp.MLP.forward.0".
        parent: name of the module around it.
        inputs: one for each input; likewise outputs.
        parameters: by name; likewise gradients.
        micro_step: which micro batch.
        is_classed: whether the dump tells its class.
    """

    name: str
    parent: str | None = None
    inputs: Sequence[Values] = ()
    outputs: Sequence[Values] = ()
    parameters: Mapping[str, Values] = field(default_factory=dict)
    gradients: Mapping[str, Values] = field(default_factory=dict)
    micro_step: int | None = None
    is_classed: bool = True

    def tensors(self) -> list[tuple[Role, str, Values]]:
        """List role, key and values of everything it was given and gave."""
        return [
            *((Role.INPUT, str(key), values) for key, values in enumerate(self.inputs)),
            *((Role.PARAMETER, key, values) for key, values in self.parameters.items()),
            *((Role.OUTPUT, str(key), values) for key, values in enumerate(self.outputs)),
            *((Role.GRADIENT, key, values) for key, values in self.gradients.items()),
        ]


def with_error(golden: Array, error: float, seed: str) -> Array:
    """Return values whose relative L2 error is `error` in every row, in golden's dtype."""
    if not error:
        return golden
    wide, noise = golden.astype(np.float64), values_of(seed, golden.shape, "float64")
    return (wide + noise * error * _norms(wide) / _norms(noise)).astype(golden.dtype)


def values_of(seed: str, shape: tuple[int, ...] = SHAPE, dtype: str = "float32") -> Array:
    """Return values that follow from a text, of which every row has the same norm."""
    made = np.random.default_rng(zlib.crc32(seed.encode())).standard_normal(shape)
    made *= np.sqrt(shape[-1]) / _norms(made)
    return made.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def _norms(values: Array) -> Array:
    return np.linalg.norm(values, axis=-1, keepdims=True)


class MadePair(Struct, frozen=True):
    """A pair of slices, planned and measured."""

    plan: SlicePlan
    rows: tuple[TreeRow, ...]
    measurements: tuple[Measurement, ...]

    def judge(self, rules: str = "firstdrift") -> "Judged":
        """Judge it."""
        return Judged(self, judge_after((), self.plan, self.rows, self.measurements, rules))

    def shuffled(self, order: Sequence[int]) -> "MadePair":
        """Return the same with its pairs in another order."""
        pairs = tuple(self.plan.pairs[index] for index in order)
        return replace(
            self,
            plan=replace(self.plan, pairs=pairs),
            measurements=tuple(self.measurements[index] for index in order),
        )


class Judged(Struct, frozen=True):
    """A pair of slices and what was said of it."""

    made: MadePair
    said: SliceJudgement

    def of(self, name: str) -> RowJudgement:
        """Return what was said of a node."""
        (row,) = (row for row in self.made.rows if name in row.target)
        return self.said.rows[row.index]

    @property
    def origins(self) -> list[str]:
        """Names of the nodes at which an error begins, in execution order."""
        return [finding.target for finding in self.said.origins]

    @property
    def first(self) -> Finding:
        """The first of them."""
        return self.said.origins[0]


def make(
    *calls: Call, dtype: str = "float32", coordinates: Coordinates | None = None, scale: float = 1.0
) -> MadePair:
    """Plan and measure a pair of slices in which both sides made the same calls.

    Args:
        calls: in execution order, children before the modules that contain them.
        dtype: of the values that are given by their errors.
        coordinates: which slice.
        scale: all values of both sides are multiplied by it.
    """
    arrays: dict[DataLocation, Array] = {}
    sides: tuple[list[Node], list[Node]] = ([], [])
    for order, call in enumerate(calls):
        records: tuple[list[TensorRecord], list[TensorRecord]] = ([], [])
        for role, key, values in call.tensors():
            for place, value in enumerate(_both(call, role, key, values, dtype, scale)):
                side = ("golden", "target")[place]
                records[place].append(_record(f"{side}/{call.name}", role, key, value, arrays))
        for place in (0, 1):
            sides[place].append(_node(call, order, tuple(records[place])))
    listing = SliceListing(coordinates or Coordinates(step=0), Path("made"))
    golden, target = (Slice(listing, tuple(nodes)) for nodes in sides)
    plan = _plan(golden, target)
    measurements = tuple(
        measure_pair(
            pair.golden,
            pair.target,
            arrays.__getitem__,
            logits=is_logits(pair),
            scores=may_be_scores(pair),
        )
        if pair.incomparable is None
        else measure_pair(pair.golden, replace(pair.target, problem=pair.incomparable), arrays.__getitem__)
        for pair in plan.pairs
    )
    return MadePair(plan, build_rows(golden, target, plan), measurements)


def with_digests(made: MadePair, calls: Sequence[Call]) -> MadePair:
    """Return the same with digests of the golden values that were given as they are: they tell them."""
    golden = {
        (call.name, str(role), key): zlib.crc32(values[0].tobytes())
        for call in calls
        for role, key, values in call.tensors()
        if isinstance(values, tuple) and isinstance(values[0], np.ndarray)
    }
    pairs = tuple(
        replace(one, golden=replace(one.golden, digest=f"{known:08x}"))
        if (known := golden.get((one.golden_node, str(one.golden.role), one.golden.key))) is not None
        else one
        for one in made.plan.pairs
    )
    return replace(made, plan=replace(made.plan, pairs=pairs))


def judge(*calls: Call, dtype: str = "float32", coordinates: Coordinates | None = None) -> Judged:
    """Make a pair of slices and judge it."""
    return make(*calls, dtype=dtype, coordinates=coordinates).judge()


def _both(
    call: Call, role: Role, key: str, values: Values, dtype: str, scale: float
) -> tuple[object, object]:
    if isinstance(values, tuple):
        return tuple(_scaled(value, scale) for value in values)  # type: ignore[return-value]
    seed = f"{call.name}/{role}/{key}"
    golden = values_of(seed, dtype=dtype)
    return _scaled(golden, scale), _scaled(with_error(golden, values, f"{seed}/noise"), scale)


def _scaled(value: object, scale: float) -> object:
    if isinstance(value, np.ndarray) and value.dtype.kind not in "iub":
        return (value * np.float64(scale)).astype(value.dtype)
    return value


def _record(
    where: str, role: Role, key: str, value: object, arrays: dict[DataLocation, Array]
) -> TensorRecord:
    if not isinstance(value, np.ndarray):
        return TensorRecord(role, key, type(value).__name__, (), scalar=str(value))
    location = DataLocation(Path(where), "memory", f"{role}.{key}")
    arrays[location] = value
    return TensorRecord(role, key, value.dtype.name, value.shape, location=location)


def _node(call: Call, order: int, tensors: tuple[TensorRecord, ...]) -> Node:
    parts = parse_name(call.name)
    return Node(
        name=call.name,
        path=parts.path,
        kind=NodeKind(parts.kind),
        type_name=parts.type_name if call.is_classed else "",
        direction=Direction(parts.direction),
        call=parts.call,
        order=order,
        parent=call.parent,
        tensors=tensors,
        micro_step=call.micro_step,
    )


def _plan(golden: Slice, target: Slice) -> SlicePlan:
    matches, pairs = [], []
    for index, (first, second) in enumerate(zip(golden.nodes, target.nodes, strict=True)):
        matches.append(NodeMatch((first.name,), (second.name,), Origin.EXACT))
        for one, other in zip(first.tensors, second.tensors, strict=True):
            differs = one.shape != other.shape
            why = shapes_differ(one.shape or (), other.shape or ())
            pairs.append(
                TensorPair(index, first.name, second.name, one, other, incomparable=why if differs else None)
            )
    return SlicePlan(golden.listing, target.listing, tuple(matches), tuple(pairs), (), ())
