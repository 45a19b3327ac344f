"""Dumps that are still being written: which of their slices are not complete yet.

    step0  step1  …  step11  step12         step 12 is cut, and was changed a moment ago:
    whole  whole     whole   cut       ─▶   it is set aside, neither compared nor held to be damaged

A date alone says nothing, as a finished dump may just have been copied. So a slice is still being written if
it shows that it is not complete, and has been changed within the last minute, and others ran before it: it is
cut, lacks files, has changed while it was read, or other ranks of its step are to come.
"""

import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from firstdrift.dumps import detect
from firstdrift.dumps.reader import Basis
from firstdrift.dumps.storage.fingerprints import digest_of, holds_folder_links, last_written
from firstdrift.dumps.storage.folders import printable, problem_of_file, shown_below, written_at
from firstdrift.dumps.storage.tensor_data import read_headers
from firstdrift.errors import DumpUnreadableError, TensorUnreadableError
from firstdrift.groups import grouped, known, not_in
from firstdrift.model.slice import Dump, Slice, SliceListing, Unfinished
from firstdrift.model.tensor import DataLocation, TensorRecord
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import within

FRESH_SECONDS: Final = 60.0
"""What has not been changed for so long is not being written."""

_JUST_NOW_SECONDS: Final = 5.0
"""A file that has been changed within that may be half of what it will be."""

_LACKING: Final = frozenset(
    {"dumps.json.incomplete", "dumps.msprobe.no_data", "dumps.record.file_missing", "dumps.file.missing"}
)
"""What is said where a file that tells what lies in a slice is missing, has just begun, or is cut."""

_CUT: Final = frozenset(
    {
        "dumps.file.empty",
        "dumps.file.cut_short",
        "dumps.file.cut_short_meanwhile",
        "dumps.file.no_header",
        "dumps.file.values_past_end",
        "dumps.file.values_cut_short",
        "dumps.npy.header_cut_short",
        "dumps.zip.cut_short",
        "dumps.pt.storage_cut_off",
        "dumps.pt.storage_cut_short",
    }
)
"""What is said of a file of tensors that ends in the middle."""

Read = Callable[[Dump, SliceListing], Slice]

_EMPTY: Final = Message.of("growth.empty")
_NO_FILE: Final = Message.of("growth.no_file")
_CHANGES: Final = Message.of("growth.changes")
_HAS_CHANGED: Final = Message.of("growth.has_changed")
_OTHERS: Final = Message.of("growth.others_to_come")


def is_fresh(written: float, seconds: float = FRESH_SECONDS) -> bool:
    """Tell whether something was written within the last seconds; clocks of two machines may differ."""
    return abs(time.time() - written) < seconds


def settled(
    dump: Dump,
    read: Read = detect.read_slice,
    has_to_rest: Callable[[SliceListing], bool] = lambda _: False,
) -> Dump:
    """Set aside the slices of a dump that are still being written.

    Args:
        dump: as its reader lists it.
        read: reads a slice; the last ones are looked into.
        has_to_rest: tells of a slice of a dump that is known to grow that it was changed just now.
    """
    times = grouped((*dump.slices, *dump.begun), _time)
    ranks = {listing.coordinates.rank for listing in times[min(times)]} if times else set()
    found: list[Unfinished] = []
    for when in sorted(times)[:0:-1]:
        listings = times[when]
        if not any(is_fresh(last_written(listing.directory)) for listing in listings):
            break
        before = {one.coordinates.rank: one for one in times[max(at for at in times if at < when)]}
        reasons = {one: _why_unfinished(dump, one, before, read, has_to_rest) for one in listings}
        here = {listing.coordinates.rank for listing in listings}
        if not any(reasons.values()) and ranks <= here:
            break
        found += [Unfinished(one, reason or _OTHERS) for one, reason in reasons.items()]
    return _without(dump, found[::-1]) if found else dump


def fingerprints(dump: Dump) -> dict[SliceListing, str]:
    """Say by what each slice is told from what it was: two of which this is equal are read alike."""
    bases = {one: Basis((one.directory,)) for one in dump.begun} | dict(detect.bases_of(dump))
    whole = Basis((dump.path,))
    listings = (*dump.slices, *dump.begun)
    digests: dict[Basis, str] = {}
    for listing in listings:
        basis = bases.get(listing, whole)
        if basis not in digests:
            is_apart = not any(map(holds_folder_links, basis.paths))
            digests[basis] = digest_of(basis.paths if is_apart else (dump.path,), basis.beside)
    return {listing: digests[bases.get(listing, whole)] for listing in listings}


def _time(listing: SliceListing) -> tuple[int, ...]:
    return listing.coordinates.sort_key()[:-1]


def _without(dump: Dump, found: Sequence[Unfinished]) -> Dump:
    """Take unfinished slices, and what is wrong with their folders, out of what is said of a dump."""
    aside = [one.listing for one in found]
    folders = {shown_below(listing.directory, dump.path) for listing in aside}
    return replace(
        dump,
        slices=tuple(not_in(dump.slices, aside)),
        problems=tuple(problem for problem in dump.problems if problem.file not in folders),
        unfinished=tuple(found),
    )


def _why_unfinished(
    dump: Dump,
    listing: SliceListing,
    before: Mapping[int | None, SliceListing],
    read: Read,
    has_to_rest: Callable[[SliceListing], bool],
) -> Message | None:
    """Say what shows that a slice is not complete; None if nothing does."""
    if listing in dump.begun:
        return _NO_FILE
    files = digest_of([listing.directory])
    lack = _first_lack(dump, listing, before.get(listing.coordinates.rank), read)
    if lack is None and has_to_rest(listing):
        return _HAS_CHANGED
    return lack or (_CHANGES if digest_of([listing.directory]) != files else None)


def _first_lack(dump: Dump, listing: SliceListing, before: SliceListing | None, read: Read) -> Message | None:
    """Say what a slice lacks that the one before it has; None if that is nothing."""
    try:
        lack = next(_lacks(read(dump, listing)), None)
        is_usual = lack is not None and before is not None and _is_usual(lack, _lacks(read(dump, before)))
    except DumpUnreadableError as error:
        return error.message if _is_of(error.message, _LACKING) else None
    return None if is_usual else lack


def _lacks(read: Slice) -> Iterator[Message]:
    """Say what a slice lacks: all of it, files, and the end of those that were written a moment ago."""
    if not read.nodes:
        yield _EMPTY
    problems = [problem.reason for problem in read.problems]
    records = [record for node in read.nodes for record in node.tensors]
    problems += known(record.problem for record in records)
    yield from (problem for problem in problems if _is_of(problem, _LACKING))
    yield from (problem for problem in known(map(_new_problem, records)) if _is_of(problem, _CUT))


def _new_problem(record: TensorRecord) -> Message | None:
    """Say what is wrong with a tensor whose file was written a moment ago."""
    at = record.location
    if at is None or not is_fresh(written_at(at.file) / 1e9, _JUST_NOW_SECONDS):
        return None
    return record.problem or _problem_of_header(at)


def _problem_of_header(at: DataLocation) -> Message | None:
    try:
        read_headers(at.file, at.container)
    except TensorUnreadableError as error:
        return problem_of_file(printable(at.file.name), error.message)
    return None


def _is_of(message: Message, ids: Container[str]) -> bool:
    return any(part.id in ids for part in within(message))


def _is_usual(lack: Message, before: Iterable[Message]) -> bool:
    """Tell whether the slice before lacks something of the kind as well."""
    return lack.id in {one.id for one in before}
