"""What is kept for good of a judged pair of slices, packed by whoever judged it, wherever that was.

    SliceResult ─▶ PackedSlice ─▶ the catalogue (`firstdrift.catalogue.comparisons.results`)

Nothing here asks the catalogue: in which blocks measurements are is added when all of it is kept.
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final

from msgspec import Struct

from firstdrift.catalogue.comparisons.kept import (
    PLACE_OF_MEASUREMENT,
    kept_pairs,
    kept_rows,
    pack_rest,
    pair_blocks,
    row_blocks,
)
from firstdrift.catalogue.comparisons.measurements import (
    KEY_BYTES,
    PackedMeasurements,
    pack_measurements,
    pair_keys,
)
from firstdrift.catalogue.comparisons.overview import overview_of, pack_overview
from firstdrift.catalogue.dumps.records import PackedSliceOfDump, pack_slice_of_dump
from firstdrift.comparison.report import SliceResult
from firstdrift.comparison.stages import count_unreadable
from firstdrift.matching.plan import Messages, UnmatchedTensor
from firstdrift.model.slice import Slice
from firstdrift.processes.packed import pack
from firstdrift.verdict.judgement import NodeClass, Verdict

_NEITHER: Final = (False, False)


class Blocks(Struct, frozen=True):
    """Blocks of rows or pairs: the columns of their table, of which those of rows have one less."""

    first: tuple[int, ...]
    content: tuple[bytes, ...]
    incomparable: tuple[int, ...] | None = None

    def columns(self) -> dict[str, list[Any]]:
        """Give the columns."""
        columns = {"first": self.first, "content": self.content, "incomparable": self.incomparable}
        return {name: list(values) for name, values in columns.items() if values is not None}


class PackedSlice(Struct, frozen=True):
    """What is kept of a pair of slices beside what is said of it as a whole, and what was measured.

    Attributes:
        verdict: the worst of its matched rows; incomparable if no tensors of it could be compared.
        unmatched_golden: tensors of matched nodes left over; likewise unmatched_target.
        notes: remarks on its match plan.
        unreadable: how many pairs could not be compared because a file is damaged or missing.
        keys: which pairs of tensors it has, in order and in one piece.
        row_count: how many rows.
        rows: the rows; likewise pairs, but for where the measurement of each is.
        overview: what is asked of many slice pairs at once.
        rest: what the plan says beside all that; None if it cannot be written.
    """

    verdict: Verdict
    unmatched_golden: tuple[UnmatchedTensor, ...]
    unmatched_target: tuple[UnmatchedTensor, ...]
    notes: Messages
    unreadable: int
    keys: bytes
    row_count: int
    rows: Blocks
    pairs: Blocks
    overview: bytes
    rest: bytes | None

    def pair_keys(self) -> list[bytes]:
        """Say which pairs of tensors it has, in order."""
        return [self.keys[start : start + KEY_BYTES] for start in range(0, len(self.keys), KEY_BYTES)]


class FromElsewhere(Struct, frozen=True):
    """A pair of slices that was read, measured and judged elsewhere, ready to be kept.

    Attributes:
        slices: what lies in the golden and the target slice; None of one that the catalogue knows.
    """

    packed: PackedSlice
    measured: PackedMeasurements
    slices: tuple[PackedSliceOfDump | None, PackedSliceOfDump | None]


def pack_slice(result: SliceResult, slices: tuple[Slice, Slice]) -> PackedSlice:
    """Pack what is kept of a pair of slices."""
    rows, pairs = kept_rows(result, slices), list(kept_pairs(result, slices))
    overview = overview_of(result.judgement, rows, ((pair.row, pair.judgement) for pair in pairs))
    return PackedSlice(
        verdict=_verdict_of(result),
        unmatched_golden=result.plan.unmatched_golden_tensors,
        unmatched_target=result.plan.unmatched_target_tensors,
        notes=result.plan.notes,
        unreadable=count_unreadable(result),
        keys=b"".join(pair_keys(result.plan.pairs)),
        row_count=len(rows),
        rows=_blocks(row_blocks(rows)),
        pairs=_blocks(pair_blocks(pairs, PLACE_OF_MEASUREMENT)),
        overview=pack_overview(overview),
        rest=pack_rest(result.plan),
    )


def _blocks(columns: Mapping[str, list[Any]]) -> Blocks:
    return Blocks(**{name: tuple(values) for name, values in columns.items()})


def _verdict_of(result: SliceResult) -> Verdict:
    if not result.plan.pairs:
        return Verdict.INCOMPARABLE
    matched = (row for row in result.judgement.rows if row.node_class is not NodeClass.UNMATCHED)
    return max((row.verdict for row in matched), key=attrgetter("severity"), default=Verdict.PASS)


def pack_from_here(
    result: SliceResult, slices: tuple[Slice, Slice], wanted: tuple[bool, bool] = _NEITHER
) -> bytes:
    """Pack what somebody else keeps of a pair of slices; `wanted` says which of the two it does not know.

    Raises:
        UnicodeEncodeError: a name has characters that UTF-8 lacks.
    """
    packed = pack_slice(result, slices)
    measured = dict(zip(packed.pair_keys(), result.measurements, strict=True))
    golden, target = (
        pack_slice_of_dump(read) if is_wanted else None
        for read, is_wanted in zip(slices, wanted, strict=True)
    )
    return pack(FromElsewhere(packed, pack_measurements(measured), (golden, target)))
