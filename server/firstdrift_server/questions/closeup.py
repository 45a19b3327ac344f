"""A pair of tensors from near: read and looked at in a child process.

What was seen of a pair a moment ago is kept by the child, as long as the files stay as they were.
"""

import pickle
from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping, Sequence
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import asdict

from firstdrift.comparison.closeup import LoadedPair, NothingToSeeError, files_of, load_pair
from firstdrift.comparison.shown import roundoff_of
from firstdrift.exports.snippet import reproduction
from firstdrift.groups import known
from firstdrift.matching.plan import TensorPair
from firstdrift.metrics.measurement import Measurement
from firstdrift.model.tensor import Role
from firstdrift.wording.message import Message

if TYPE_CHECKING:
    from firstdrift.metrics.closeup.look import Closeup

PARTS = ("summary", "charts", "map", "values")
"""What can be asked for: hints and worst elements; histograms and profiles; a map; the numbers at a place."""

_WRITTEN_LATER = 2.0
"""Seconds by which the clock of another machine may be off."""

_MOST_HEADS = 2**16

_KEPT: Final = 8
_seen_before: OrderedDict[Hashable, "Closeup"] = OrderedDict()


class Asked(Struct, frozen=True):
    """What of a node is to be seen from near, as an address says it.

    Attributes:
        tensor: key of the pair (`tensor_keys`), or its number; None for the one that is worst.
        down: dimension that runs down the map; None for the last but one.
        across: dimension that runs across; None for the last.
        at: an index for each dimension, around which the values are shown; None for the worst element.
        heads: into how many heads the last dimension is cut; None to guess.
    """

    tensor: str | int | None = None
    down: int | None = None
    across: int | None = None
    at: tuple[int, ...] | None = None
    heads: int | None = None


class Known(Struct, frozen=True):
    """What is known of a pair before anything is read.

    Attributes:
        plan: what is compared.
        measurement: what was measured of it.
        role: its role; a weight that is given to an operator is a parameter, too.
        shapes: of all tensors of the node.
        finished_at: when the comparison was made; None if it is not yet.
    """

    plan: TensorPair
    measurement: Measurement
    role: Role
    shapes: tuple[tuple[int, ...] | None, ...]
    finished_at: datetime | None


def look_at(known: Known, asked: Asked, parts: Collection[str]) -> dict[str, Any]:
    """Look at a pair of tensors; where there is nothing to see, `reason` alone says why."""
    try:
        return _look(known, asked, parts)
    except NothingToSeeError as error:
        return {"reason": error.message}
    except OSError as error:
        return {"reason": Message.of("server.file_gone", why=error.strerror)}


def _look(known: Known, asked: Asked, parts: Collection[str]) -> dict[str, Any]:
    from firstdrift.metrics.closeup.area import difference_map, values_around

    plan = known.plan
    loaded = load_pair(plan, known.measurement)
    files = files_of(plan)
    heads = _heads(loaded, known, asked.heads)
    seen = _seen(loaded, known, heads)
    axes, at = _axes(loaded, asked), _index(loaded, seen, asked)
    found = _frame(loaded, known, seen) | {"axes": axes, "at": at}
    found["notes"] += _written_later(files, known.finished_at)
    if "summary" in parts:
        found |= _summary(seen) | {"snippet": reproduction(plan, loaded.golden.shape)}
    if "charts" in parts:
        found |= {
            "values_histogram": seen.values,
            "difference_histogram": seen.differences,
            "profiles": list(map(_profile, seen.profiles)),
        }
    if "map" in parts:
        area = difference_map(loaded.golden, loaded.target, axes, at)
        found["map"] = asdict(area) | {"cells": [list(map(_brief, row)) for row in area.cells]}
    if "values" in parts:
        found["values"] = values_around(loaded.golden, loaded.target, axes, at)
    return found


def _seen(loaded: LoadedPair, known: Known, heads: int | None) -> "Closeup":
    """Give what is to be seen of a pair however it is turned; kept for the next question."""
    stamps = [(str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files_of(known.plan)]
    key = (tuple(stamps), pickle.dumps((known.plan, known.measurement)), heads)
    seen = _seen_before.get(key) or _look_closely(loaded, known, heads)
    _seen_before[key] = seen
    _seen_before.move_to_end(key)
    while len(_seen_before) > _KEPT:
        _seen_before.popitem(last=False)
    return seen


def _look_closely(loaded: LoadedPair, known: Known, heads: int | None) -> "Closeup":
    from firstdrift.metrics.closeup.look import look_closely

    plan, measured = known.plan, known.measurement
    roundoff = roundoff_of(plan, measured)
    errors = measured.errors
    # A place among unmasked elements alone says nothing about all of them.
    is_whole = errors is not None and errors.size == loaded.golden.size
    worst = errors.max_absolute_at if errors is not None and is_whole else None
    always = () if worst is None else (worst,)
    return look_closely(loaded.golden, loaded.target, roundoff, heads=heads, fine=loaded.fine, always=always)


def _heads(loaded: LoadedPair, known: Known, asked: int | None) -> int | None:
    """Return into how many heads the last dimension is cut: as asked for, else as other shapes tell."""
    from firstdrift.metrics.closeup.profiles import guess_heads

    shape = loaded.golden.shape
    if asked is not None:
        fits = bool(shape) and 1 < asked <= min(_MOST_HEADS, shape[-1]) and shape[-1] % asked == 0
        return asked if fits else None
    return guess_heads(shape, *loaded.shapes, *known.shapes)


def _axes(loaded: LoadedPair, asked: Asked) -> tuple[int | None, int]:
    shape = loaded.golden.shape
    if len(shape) < 2:  # noqa: PLR2004 - then there is nothing to choose
        return None, 0
    # A dimension of one index is shown last of all: there is nothing to see along it.
    axes = sorted(range(len(shape)), key=lambda axis: (shape[axis] > 1, axis), reverse=True)
    across = asked.across if asked.across in axes else None
    down = asked.down if asked.down in axes and asked.down != across else None
    if across is None:
        across = next(axis for axis in axes if axis != down)
    return next(axis for axis in axes if axis != across) if down is None else down, across


def _index(loaded: LoadedPair, seen: "Closeup", asked: Asked) -> tuple[int, ...]:
    shape = loaded.golden.shape
    if asked.at is not None:
        padded = (*asked.at, *[0] * len(shape))[: len(shape)]
        return tuple(min(index, max(0, size - 1)) for index, size in zip(padded, shape, strict=True))
    return seen.worst[0].index[: len(shape)] if seen.worst else (0,) * len(shape)


def _frame(loaded: LoadedPair, known: Known, seen: "Closeup") -> dict[str, Any]:
    return {
        "shape": list(seen.shape),
        "shapes": loaded.shapes,
        "dimensions": _dimensions(seen.shape, known.role),
        "dtypes": seen.dtypes,
        "heads": seen.heads,
        "every": seen.every,
        "every_column": seen.every_column,
        "seen": seen.seen,
        "size": loaded.golden.size,
        "notes": list(loaded.notes),
    }


def _dimensions(shape: tuple[int, ...], role: Role) -> list[str]:
    """Say what each dimension is taken for; empty where that is anybody's guess."""
    names = [""] * len(shape)
    if role is Role.PARAMETER:
        return ["row", "column"] if len(shape) == 2 else names  # noqa: PLR2004 - a matrix
    if len(shape) in (2, 3):
        names[-2:] = ["token", "channel"]
    if len(shape) == 3:  # noqa: PLR2004 - [batch, tokens, channels]
        names[0] = "batch"
    return names


def _summary(seen: "Closeup") -> dict[str, Any]:
    return {
        "relative_l2": seen.relative_l2,
        "ulp_dtype": seen.ulp_dtype,
        "hints": seen.hints,
        "worst": seen.worst,
        "peaks": known(map(_peak, seen.profiles)),
    }


def _peak(profile: Any) -> dict[str, Any] | None:  # noqa: ANN401 - a Profile, whose module needs numpy
    """Say where along a dimension the largest difference of an element is."""
    known = [(value, at) for at, value in enumerate(profile.maximum) if value is not None]
    if not known:
        return None
    maximum, at = max(known, key=lambda each: (each[0], -each[1]))
    start = at * profile.width
    return {
        "axis": profile.axis,
        "heads": profile.heads,
        "size": profile.size,
        "first": start,
        "last": min(start + profile.width, profile.size) - 1,
        "norm": profile.norm[at],
        "maximum": maximum,
        "golden_norm": profile.golden_norm[at],
    }


def _profile(profile: Any) -> dict[str, Any]:  # noqa: ANN401 - likewise
    said: Mapping[str, Any] = asdict(profile)
    lists = {name: list(map(_brief, said[name])) for name in ("maximum", "norm", "golden_norm")}
    return {**said, **lists}


def _brief(value: float | None) -> float | None:
    """Keep the digits that a picture can show: a map of all of them would take megabytes."""
    return float(f"{value:.4g}") if value is not None and isfinite(value) else value


def _written_later(files: Sequence[Path], finished_at: datetime | None) -> list[Message]:
    if finished_at is None:
        return []
    limit = finished_at.timestamp() + _WRITTEN_LATER
    later = [file.name for file in files if file.stat().st_mtime > limit]
    return [Message.of("server.written_later", file=name) for name in later[:1]]
