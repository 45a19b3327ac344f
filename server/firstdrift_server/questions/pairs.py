"""Dumps that lie together as golden and target: told by their names, or by lying side by side."""

import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, permutations
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from firstdrift.dumps.detect import dumps_below
from firstdrift.errors import DumpError, PathOutsideRootsError
from firstdrift_server.questions.folders import Entry, Folder, Order, list_folder, with_formats

TRUSTED: Final = frozenset(
    ("golden", "gold", "baseline", "base", "bench", "benchmark", "reference", "ref", "expected", "good")
)
"""Words in the name of a golden dump, whatever the dumps beside it are called."""

SUSPECTED: Final = frozenset(("target", "actual", "bad", "npu", "ascend", "test", "my"))
"""Words that may stand in the place of one of these."""


class Words(NamedTuple):
    """Words of which one stands in the name of the golden dump where another stands in that of the target."""

    golden: frozenset[str]
    target: frozenset[str]


WORDS: Final = (
    Words(TRUSTED, SUSPECTED),
    Words(frozenset(("before", "old")), frozenset(("after", "new"))),
    Words(frozenset(("gpu", "cuda")), frozenset(("npu", "ascend"))),
    Words(frozenset(("cpu",)), frozenset(("gpu", "cuda", "npu", "ascend"))),
    Words(frozenset(("fp32", "float32")), frozenset(("bf16", "bfloat16", "fp16", "float16"))),
)

MOST_PAIRS: Final = 6
MOST_OF_ONE: Final = 3
"""So many pairs with one golden dump are listed."""

DEEPEST: Final = 3
MOST_FOLDERS: Final = 100
SECONDS: Final = 2.0
"""So deep, so many folders and so long pairs are looked for."""


@dataclass(frozen=True, slots=True)
class DumpPair:
    """Two dumps that lie together.

    Attributes:
        changed_at: when the later of the two was changed, in seconds since 1970.
    """

    golden: Entry
    target: Entry
    changed_at: float


def find_pairs(roots: Sequence[Path]) -> tuple[DumpPair, ...]:
    """Find pairs of dumps under the roots, the latest first; nearer ones are found before deeper ones."""
    found = [pair for dumps in _together(roots) for pair in pairs_of(dumps)]
    unique = {(pair.golden.path, pair.target.path): pair for pair in found}
    return tuple(sorted(unique.values(), key=lambda pair: -pair.changed_at)[:MOST_PAIRS])


def pairs_of(dumps: Sequence[Entry]) -> list[DumpPair]:
    """Pair dumps that lie in one folder.

    Names that are equal but for one word of the table make a pair; else a golden word makes one with each
    dump of the same format; else two dumps of the same format are one, of which the older is the golden one.
    """
    alike = [pair for pair in permutations(dumps, 2) if _are_named_alike(*pair)]
    taken = {dump.path for pair in alike for dump in pair}
    rest = [dump for dump in dumps if dump.path not in taken]
    pairs = alike + list(_with_trusted(rest))
    if not pairs:
        pairs = list(_side_by_side(dumps))
    return [DumpPair(one, other, max(one.changed_at, other.changed_at)) for one, other in pairs]


def _with_trusted(dumps: Sequence[Entry]) -> Iterator[tuple[Entry, Entry]]:
    by_trust = {dump: bool(TRUSTED & set(_words(dump.name))) for dump in dumps}
    for golden in (dump for dump in dumps if by_trust[dump]):
        others = [dump for dump in dumps if not by_trust[dump] and dump.format == golden.format]
        for target in sorted(others, key=lambda dump: -dump.changed_at)[:MOST_OF_ONE]:
            yield golden, target


def _side_by_side(dumps: Sequence[Entry]) -> Iterator[tuple[Entry, Entry]]:
    """Pair two dumps of the same format that have no other beside them, the older first."""
    match sorted(dumps, key=lambda dump: (dump.changed_at, dump.name)):
        case [older, newer] if older.format == newer.format:
            yield older, newer


def _are_named_alike(golden: Entry, target: Entry) -> bool:
    """Tell whether two names are equal but for one word, and the table has that pair of words."""
    one, other = _words(golden.name), _words(target.name)
    if len(one) != len(other):
        return False
    different = [pair for pair in zip(one, other, strict=True) if pair[0] != pair[1]]
    return len(different) == 1 and any(
        different[0][0] in row.golden and different[0][1] in row.target for row in WORDS
    )


def _words(name: str) -> tuple[str, ...]:
    """Take a name apart: "fp32" is a word of the table, "golden2" one and its number."""
    found = re.findall(r"[a-z]+[0-9]*|[0-9]+", name.lower())
    return tuple(part for word in found for part in ([word] if word in _TOLD else _NUMBERED.findall(word)))


_NUMBERED: Final = re.compile(r"[a-z]+|[0-9]+")
_TOLD: Final = frozenset(word for row in WORDS for words in row for word in words)


def _together(roots: Sequence[Path]) -> Iterator[list[Entry]]:
    """Give the dumps that lie together: those of each folder, and roots that are dumps themselves."""
    beside = sorted(
        with_formats([Entry(root.name, str(root), is_folder=True) for root in roots]), key=_parent
    )
    for _, group in groupby(beside, _parent):
        yield list(_dumps(group))
    yield from (list(_dumps(entries)) for entries in _listings(roots, beside))


def _listings(roots: Sequence[Path], beside: Sequence[Entry]) -> Iterator[tuple[Entry, ...]]:
    """List roots and the folders in them that are no dumps, as many and as deep as there is time for.

    A root that holds one run's folders among others is recognised as that run: what is called like one of
    two dumps in it is one all the same.
    """
    until = time.monotonic() + SECONDS
    are_dumps = {entry.path for entry in beside if entry.format}
    waiting = deque((entry.path, 0) for entry in beside if entry.is_folder)
    for _ in range(MOST_FOLDERS):
        if not waiting or time.monotonic() > until:
            return
        path, depth = waiting.popleft()
        entries = _listed(roots, path)
        is_dump = path in are_dumps
        yield tuple(one for one in entries if not (is_dump and one.format) or _is_called_like_one(one.name))
        if depth < DEEPEST:
            waiting.extend((inner, depth + 1) for inner in _inner(entries))


def _inner(entries: Iterable[Entry]) -> Iterator[str]:
    return (entry.path for entry in entries if entry.is_folder and not entry.format)


def _parent(entry: Entry) -> str:
    return str(Path(entry.path).parent)


def _listed(roots: Sequence[Path], path: str) -> tuple[Entry, ...]:
    try:
        folder: Folder = list_folder(roots, path, Order.RECENT)
    except (DumpError, PathOutsideRootsError, OSError):  # gone meanwhile, or not to be looked into
        return ()
    return folder.entries


def _dumps(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Give the dumps among entries; of a folder that is called like one, the only dump that lies in it."""
    for entry in entries:
        if entry.format:
            yield entry
        elif entry.is_folder and _is_called_like_one(entry.name):
            below = dumps_below(Path(entry.path))
            if len(below) == 1:
                (inner,) = with_formats([replace(entry, path=str(below[0]))])
                yield from filter(attrgetter("format"), [inner])


def _is_called_like_one(name: str) -> bool:
    words = set(_words(name))
    return any(words & (row.golden | row.target) for row in WORDS)
