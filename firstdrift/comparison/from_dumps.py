"""The storage of a comparison of two dumps: slices are read from them, matched and measured."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.comparison.clock import Clock
from firstdrift.comparison.in_memory import Contents, DumpReader, InMemory
from firstdrift.comparison.outlines import outline_of
from firstdrift.comparison.report import Options, SliceOutline, SliceResult
from firstdrift.comparison.slice_results import compressed
from firstdrift.comparison.stages import measure_pairs
from firstdrift.comparison.user_hooks import NOTHING_MORE, Additions
from firstdrift.dumps.storage.ahead import SMALL, ask_for
from firstdrift.dumps.storage.folders import files_ending
from firstdrift.errors import DumpUnreadableError
from firstdrift.matching.plan import SlicePairing, SlicePlan, TensorPair
from firstdrift.metrics.measurement import Measurement
from firstdrift.model.slice import Coordinates, Slice, SliceListing
from firstdrift.parallel.slices import read_slice
from firstdrift.processes.copies import copies_allowed, share_work
from firstdrift.processes.packed import pack, unpack
from firstdrift.verdict.baseline import Noise

if TYPE_CHECKING:
    from firstdrift.comparison.side_by_side import Judged

_BATCH = 32
_WORTH_SHARING: Final = 200
_BYTES_WORTH_SHARING: Final = 64 << 20
_JSON_WORTH_SHARING: Final = 2 << 20
"""So many pairs of tensors, or bytes of them, or of JSON, take clearly longer than to start a process."""


class Progress(Struct, frozen=True):
    """How far a comparison has come: `done` of `total` pairs of slices, and of pairs in those under way."""

    stage: str
    slices_done: int
    slices_total: int
    pairs_done: int = 0
    pairs_total: int = 0


class Handed(Struct, frozen=True):
    """What a lane hands over of a pair of slices: what was read, and what is kept."""

    contents: tuple[tuple[Contents, ...], tuple[Contents, ...]]
    outline: SliceOutline
    result: bytes | None


class FromDumps(InMemory):
    """Pairs of slices of which nothing is known: they are read, matched and measured.

    Attributes:
        shared_seconds: how long the last pair was measured by several processes; 0 if by this one alone.
    """

    def __init__(
        self,
        readers: tuple[DumpReader, DumpReader],
        pairing: SlicePairing,
        progress: Callable[[Progress], None],
        options: Options,
        additions: Additions,
        noise: Mapping[Coordinates, Noise],
        *,
        details: bool,
    ) -> None:
        """Begin with nothing read; `details` as `InMemory` has them."""
        super().__init__(options, additions, noise, details=details)
        self._details, self._is_lane = details, False
        self._readers, self._pairs, self._progress = readers, pairing.pairs, progress
        self.shared_seconds = 0.0

    def read(self, position: int) -> tuple[Slice, Slice] | None:
        """Read a pair of slices; None if one is damaged."""
        self._progress(Progress("reading", position, len(self._pairs)))
        if self._is_lane:  # what was read before was handed over, or is read again elsewhere
            for reader in self._readers:
                reader.contents.clear()
        _read_at_once(self._readers, self._pairs[position])
        golden, target = (
            reader.read(listing) for reader, listing in zip(self._readers, self._pairs[position], strict=True)
        )
        return None if golden is None or target is None else (golden, target)

    def measure(self, position: int, plan: SlicePlan) -> list[Measurement]:
        """Measure the pairs of a plan, in batches that copies of this process share."""
        total, slices = len(plan.pairs), len(self._pairs)

        def tell(batches: int) -> None:
            done = min(batches * _BATCH, total)
            self._progress(Progress("measuring", position, slices, done, total))

        sizes = [pair.data_bytes for pair in plan.pairs]
        largest_first = sorted(range(total), key=sizes.__getitem__, reverse=True)
        count = ceil(total / _BATCH)

        def measure_batch(at: int) -> list[Measurement]:
            places = largest_first[at::count]
            dealt = tuple(map(plan.pairs.__getitem__, places))
            ask_for(_files_of(plan.pairs[place] for place in places if 0 < sizes[place] <= SMALL))
            return measure_pairs(replace(plan, pairs=dealt), 0, len(dealt))

        tell(0)
        compiling = partial(self._progress, Progress("compiling", position, slices))
        if _prepare(sizes, slices - position, compiling):
            since = time.monotonic()
            batches = share_work(measure_batch, list[Measurement], count, tell)
            self.shared_seconds = time.monotonic() - since if copies_allowed() else 0.0
        else:
            batches = list(map(measure_batch, range(count)))
        places = chain.from_iterable(largest_first[at::count] for at in range(count))
        measured = dict(zip(places, chain.from_iterable(batches), strict=True))
        return [measured[place] for place in range(total)]

    @property
    def has_hooks(self) -> bool:
        """Whether anything is done beside what the options say; functions may hold on to what they see."""
        return self._additions != NOTHING_MORE

    def places(self) -> list[Coordinates]:
        """List where the target slice of each pair is in its run."""
        return [target.coordinates for _, target in self._pairs]

    def divide(self, tell: Callable[[int, int, int], None]) -> None:
        """Know that this is a lane."""
        self._is_lane = True
        self._progress = lambda at: tell(at.slices_done, at.pairs_done, at.pairs_total)

    def keep(self, position: int, result: SliceResult, clock: Clock) -> None:
        """Keep what was found of a pair; in a lane, to be handed over."""
        if not self._is_lane:
            super().keep(position, result, clock)
            return
        golden, target = (tuple(reader.contents) for reader in self._readers)
        packed = compressed(result) if self._details else None
        self._handed = pack(Handed((golden, target), outline_of(result), packed))

    def hand_over(self, position: int) -> bytes:
        """Give what was kept last."""
        del position
        return self._handed

    def take(self, answer: "Judged") -> None:
        """Keep here what a lane handed over."""
        position, handed = answer.position, unpack(Handed, answer.kept)
        for reader, contents in zip(self._readers, handed.contents, strict=True):
            reader.contents += contents
        self.outlines[position] = handed.outline
        self._results.add_packed(position, handed.result)


def _read_at_once(readers: Sequence[DumpReader], listings: Sequence[SliceListing]) -> None:
    """Let copies of this process read some of what a pair of slices is made of, where that takes long."""
    waiting = [
        (reader, part)
        for reader, listing in zip(readers, listings, strict=True)
        for part in reader.unread(listing)
    ]
    if sum(_json_bytes(part.directory) for _, part in waiting) < _JSON_WORTH_SHARING:
        return

    def read(at: int) -> Slice | None:
        reader, part = waiting[at]
        with suppress(DumpUnreadableError):  # it is told where it is read
            return read_slice(reader.dump, part)
        return None

    slices = share_work(read, Slice | None, len(waiting))
    for (reader, part), found in zip(waiting, slices, strict=True):
        if found is not None:
            reader.keep(part, found)


def _json_bytes(folder: Path) -> int:
    with suppress(OSError):
        return sum(file.stat().st_size for file in files_ending(folder, ".json"))
    return 0


def _files_of(pairs: Iterable[TensorPair]) -> Iterator[Path]:
    """Yield the files that hold one tensor of a pair, and nothing else."""
    for record in chain.from_iterable((pair.golden, pair.target) for pair in pairs):
        if record.location is not None and not record.location.entry:
            yield record.location.file


def _prepare(sizes: Sequence[int], slices_to_go: int, compiling: Callable[[], None]) -> bool:
    """Get ready to measure slices of pairs of these sizes; tell whether several processes are worth it.

    Where no values are read, nothing is imported.
    """
    total = sum(sizes)
    if total:
        from firstdrift.metrics.elementwise.measure import prepare_engine

        prepare_engine(total * slices_to_go, compiling)
    return sum(map(bool, sizes)) >= _WORTH_SHARING or total >= _BYTES_WORTH_SHARING
