"""What SGLang's dumper says of the dimensions of a tensor, and of what a rank holds of it.

"b s[cp:zigzag] h[tp] d"     batch, sequence dealt out over cp in zigzag, hidden over tp, another
"t h[tp:partial]"            each rank of tp has an addend of the whole
"b s (heads*d)[tp]"          two dimensions in one
"b s(cp,zigzag) h(tp)"       the same as earlier releases wrote it

Portion("value", "b h[tp]", (("tp", 1, 2),))     of a rank that is the second of two of tp
"""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final

from msgspec import Struct

from firstdrift.groups import known
from firstdrift.model.tensor import DataLocation

CONTAINER: Final = "sglang"
_INFO: Final = ("sglang_parallel_info", "megatron_parallel_info")
_DIM: Final = re.compile(
    r"(?P<name>[A-Za-z_]\w{0,60}|1|\([A-Za-z_][\w* ]{0,120}\))(?:[\[(](?P<cuts>[^\])]{1,200})[\])])?",
    re.ASCII,
)
_DIMS: Final = re.compile(rf"(?:{_DIM.pattern}(?:\s+|$))+", re.ASCII)
_CUT: Final = re.compile(r"(?P<group>[a-z_]{1,30})\s*(?::\s*(?P<how>[a-z_+ ]{1,60}))?", re.ASCII)
_RANK: Final = re.compile(r"(?P<group>[a-z_]{1,30})_rank", re.ASCII)
_HOWS: Final = frozenset({"zigzag", "natural", "partial", "sharded"})
_LONGEST: Final = 1000
_MOST_RANKS: Final = 2**20


class Cut(Struct, frozen=True):
    """How the ranks of a group share a dimension.

    Attributes:
        group: "tp", "cp".
        axis: the dimension.
        is_zigzag: each has two pieces of it, one from the front and one from the back.
        is_addend: each has an addend of the whole.
    """

    group: str
    axis: int
    is_zigzag: bool = False
    is_addend: bool = False


class Dims(Struct, frozen=True):
    """The dimensions of a tensor: their names, and how ranks share them, the outermost cut first."""

    names: tuple[str, ...]
    cuts: tuple[Cut, ...]


class Portion(Struct, frozen=True):
    """What a rank holds of a tensor, as the dumper says.

    Attributes:
        entry: the name of the tensor in its file.
        dims: as they were written.
        ranks: of each group of several ranks its name, which one this is, and how many there are.
    """

    entry: str
    dims: str
    ranks: tuple[tuple[str, int, int], ...] = ()


def parse_dims(text: str) -> Dims | None:
    """Read what was written of dimensions; None if nobody understands it."""
    words = text.partition("#")[0].strip()
    if len(words) > _LONGEST or not _DIMS.fullmatch(words):
        return None
    dims = list(_DIM.finditer(words))
    cuts = [_cuts(dim["cuts"] or "", axis) for axis, dim in enumerate(dims)]
    names = tuple(dim["name"].strip("()").replace(" ", "") for dim in dims)
    bare = [name for name in names if name != "1"]
    is_sound = None not in cuts and len(set(bare)) == len(bare)
    return Dims(names, tuple(chain.from_iterable(known(cuts)))) if is_sound else None


def _cuts(text: str, axis: int) -> list[Cut] | None:
    """Read how a dimension is cut: "cp:zigzag,tp", and "cp,zigzag" of earlier releases."""
    cuts: list[Cut] = []
    for word in filter(None, map(str.strip, text.split(","))):
        if word in _HOWS and cuts:
            cuts[-1] = _qualified(cuts[-1], {word})
            continue
        match = _CUT.fullmatch(word)
        if match is None:
            return None
        hows = set(map(str.strip, (match["how"] or "sharded").split("+")))
        if not hows <= _HOWS:
            return None
        cuts.append(_qualified(Cut(match["group"], axis), hows))
    return cuts


def _qualified(cut: Cut, hows: set[str]) -> Cut:
    is_zigzag, is_addend = cut.is_zigzag or "zigzag" in hows, cut.is_addend or "partial" in hows
    return Cut(cut.group, cut.axis, is_zigzag, is_addend)


def ranks_in(meta: Mapping[Any, Any]) -> tuple[tuple[str, int, int], ...]:
    """Return which rank of each group wrote a file, of groups of several."""
    infos = (info for info in map(meta.get, _INFO) if isinstance(info, dict))
    return tuple(known(chain.from_iterable(map(_places, infos))))


def _places(info: Mapping[Any, Any]) -> Iterator[tuple[str, int, int] | None]:
    """Yield what is said of each group, under keys such as "tp_rank" and "tp_size"."""
    for match in known(_RANK.fullmatch(str(key)) for key in info):
        group = match["group"]
        yield _place((group, info.get(match[0]), info.get(f"{group}_size")))


def written(portion: Portion) -> str:
    """Write a portion as the name of a tensor in a file."""
    return json.dumps([portion.entry, portion.dims, portion.ranks])


def portion_of(location: DataLocation | None) -> Portion | None:
    """Return what a tensor is of the whole, as its place says; None if that says nothing."""
    while location is not None and location.shards:
        location = location.shards[0]
    return read_portion(location.entry) if location is not None and location.container == CONTAINER else None


def read_portion(entry: str) -> Portion | None:
    """Read what `written` gives; None if it is something else."""
    try:
        value = json.loads(entry)
    except (ValueError, RecursionError):
        return None
    match value:
        case [str(name), str(dims), list(ranks)]:
            places = (_place(tuple(one)) for one in ranks if isinstance(one, list))
            return Portion(name, dims, tuple(known(places)))
    return None


def _place(said: tuple[Any, ...]) -> tuple[str, int, int] | None:
    """Return what was said of a rank and its group of several; None if it makes no sense."""
    match said:
        case (str(group), int(rank), int(size)) if 0 <= rank < size and 1 < size <= _MOST_RANKS:
            return group, rank, size
    return None
