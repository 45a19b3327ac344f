"""A pair of tensors as a piece of Python that loads both and prints how far they are apart."""

from math import prod

from firstdrift.matching.fused.joined_tensors import joined_axis
from firstdrift.matching.plan import Joining, TensorPair
from firstdrift.model.tensor import DataLocation, TensorRecord, ViewStep
from firstdrift.wording.text import texts_of

_HEAD = """\
from pathlib import Path

import numpy as np

from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.model.tensor import DataLocation, ViewStep
"""

_TAIL = """\
print("golden", golden.dtype, golden.shape)
print("target", target.dtype, target.shape)

wide = "complex128" if "c" in golden.dtype.kind + target.dtype.kind else "float64"
golden, target = (tensor.astype(wide).reshape({shape}) for tensor in (golden, target))
difference = target - golden
finite = np.isfinite(difference)
distance = np.where(finite, np.abs(difference), 0)
at = tuple(map(int, np.unravel_index(distance.argmax(), distance.shape)))

print("relative L2", np.linalg.norm(difference[finite]) / np.linalg.norm(golden[finite]))
print("largest difference", distance[at], "at", at, "golden", golden[at], "target", target[at])
print("not finite", distance.size - int(finite.sum()))
"""


def reproduction(pair: TensorPair, shape: tuple[int, ...]) -> str | None:
    """Write a script that loads both tensors of a pair and prints their difference in a shape.

    It needs numpy and firstdrift, which reads any file that is in a dump. None where the values of one were
    not saved, where there are none, or where one is rotated, or laid together from the rows or weights of
    experts, which is not done in a line.
    """
    golden, target = _side(pair.golden, pair.golden_parts, pair), _side(pair.target, pair.target_parts, pair)
    if golden is None or target is None or not prod(shape):
        return None
    about = f"# golden {pair.golden_node!r} {pair.golden.label!r}\n"
    about += f"# target {pair.target_node!r} {pair.target.label!r}\n"
    done = "; ".join(texts_of(pair.transform))
    remark = f"# {done!r}\n" if done else ""
    load = f"golden = {golden}\ntarget = {target}\n"
    return f"{about}{remark}{_HEAD}\n{load}{_TAIL.format(shape=shape)}"


def _side(record: TensorRecord, parts: tuple[TensorRecord, ...], pair: TensorPair) -> str | None:
    """Write the expression that loads a tensor, or the parts that it is made of."""
    parts = () if pair.joining is Joining.REARRANGED else parts
    loaded = [f"load_tensor({_location(one.location)})" for one in parts or (record,) if one.location]
    if len(loaded) < max(1, len(parts)):
        return None
    return _joined(loaded, parts, pair) if parts else loaded[0]


def _joined(loaded: list[str], parts: tuple[TensorRecord, ...], pair: TensorPair) -> str | None:
    if pair.joining in (Joining.ROTATED, Joining.OF_EXPERTS, Joining.STACKED):
        return None
    lines = "".join(f"\n    {one}," for one in loaded)
    if pair.joining is Joining.SUMMED:
        return f"sum(part.astype(float) for part in [{lines}\n])"
    whole = pair.target if pair.golden_parts else pair.golden
    axis = joined_axis(parts, whole)
    return None if axis is None else f"np.concatenate([{lines}\n], axis={axis})"


def _location(location: DataLocation) -> str:
    given = [f"Path({str(location.file)!r})", repr(location.container)]
    if location.entry:
        given.append(repr(location.entry))
    if location.shards:
        given.append(f"shards=({', '.join(map(_location, location.shards))},)")
        given.append(f"axis={location.axis!r}")
    if location.order:
        given.append(f"order={location.order!r}")
    if location.view:
        given.append(f"view=({', '.join(map(_step, location.view))},)")
    return f"DataLocation({', '.join(given)})"


def _step(step: ViewStep) -> str:
    others = "".join(f"{_location(other)}, " for other in step.other)
    return f"ViewStep({step.name!r}, {step.numbers!r}, ({others}))"
