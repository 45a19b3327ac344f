"""Find out from slices of two dumps which ranks of a model one of them lacks, and which it has otherwise.

golden  rank 0, 1     the target has one rank of the model:     rank 0 ── rank 0
target  rank 0        it lacks rank 1

golden  rank 0, 1  (shards)      as many ranks, spread otherwise
target  rank 0, 1  (stages)
"""

from collections.abc import Callable, Sequence
from functools import cache, partial

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.errors import DumpUnreadableError
from firstdrift.groups import known
from firstdrift.matching.ranks.rank_correspondence import are_spread_otherwise, hold_same_part
from firstdrift.matching.ranks.thresholds import MOST_TRIED
from firstdrift.model.slice import Dump, Slice, SliceListing
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import ranks_named, side_named

Read = Callable[[Dump, SliceListing], Slice]
"""Reads a slice of a dump."""


class MissingRanks(Struct, frozen=True):
    """One dump lacks ranks of a model that both dumps have spread alike.

    Attributes:
        in_target: whether it is the target.
        number: which rank it has, if it does not say so.
        note: says all this.
    """

    in_target: bool
    number: int | None
    note: Message


class _Candidate(Struct, frozen=True):
    """The dump of fewer ranks, which may lack those that the other has.

    Attributes:
        in_target: whether it is the target.
        own: its first slice.
        held: the ranks that it has; none if it does not tell.
        all_ranks: those of the other dump.
    """

    in_target: bool
    own: SliceListing
    held: list[int]
    all_ranks: list[int]

    def missing(self, rank: int) -> list[int]:
        """Return the ranks that it lacks if what it has is this rank."""
        return [one for one in self.all_ranks if one not in {rank, *self.held}]


def find_missing_ranks(
    dumps: tuple[Dump, Dump], sides: tuple[list[SliceListing], ...], read: Read
) -> MissingRanks | None:
    """Find out whether the dump of fewer ranks lacks those that the other has; None if it is whole."""
    few = _candidate(sides)
    if few is None:
        return None
    other_side = sides[not few.in_target]
    read_other = cache(partial(read, dumps[not few.in_target]))
    slice_of = partial(corresponding_slice, few.own, other_side)
    ranks = few.held[:1] or few.all_ranks[:MOST_TRIED]

    def is_same_part(rank: int) -> bool:
        same, other = slice_of(rank), slice_of(few.missing(rank)[0])
        return hold_same_part(own, read_other(same), partial(read_other, other))

    try:
        own = read(dumps[few.in_target], few.own)
        rank = next(filter(is_same_part, ranks), None)
    except DumpUnreadableError:  # which is said once it is read to be compared
        return None
    return None if rank is None else MissingRanks(few.in_target, None if few.held else rank, _note(few, rank))


def _candidate(sides: tuple[list[SliceListing], ...]) -> _Candidate | None:
    ranks = list(map(ranks_of, sides))
    few = len(ranks[1]) < len(ranks[0])
    held, all_ranks = ranks[few], ranks[not few]
    if len(all_ranks) < 2 or not set(held) < set(all_ranks) or not sides[few]:  # noqa: PLR2004 (several)
        return None
    first = (one for one in sides[few] if one.coordinates.rank in {None, *held[:1]})
    return _Candidate(few, min(first, key=in_order), held, all_ranks)


def _note(few: _Candidate, rank: int) -> Message:
    side, other = ("target", "golden") if few.in_target else ("golden", "target")
    held, missing = ranks_named(few.held or [rank]), ranks_named(few.missing(rank))
    names = {"side": side_named(side), "other": side_named(other)}
    return Message.of("matching.note.missing_ranks", **names, held=held, missing=missing)


def have_other_parts(dumps: tuple[Dump, Dump], sides: tuple[list[SliceListing], ...], read: Read) -> bool:
    """Tell whether dumps of as many ranks have other parts of a model on them."""
    golden, target = ({listing.coordinates.rank for listing in side} for side in sides)
    if golden != target or len(golden) < 2:  # noqa: PLR2004 (several)
        return False
    ranks = ranks_of(sides[0])
    own = min((listing for listing in sides[0] if listing.coordinates.rank == ranks[0]), key=in_order)
    try:
        slices = read(dumps[0], own), read(dumps[1], corresponding_slice(own, sides[1], ranks[0]))
        return are_spread_otherwise(*slices, len(ranks))
    except DumpUnreadableError:  # which is said once it is read to be compared
        return False


def ranks_of(side: Sequence[SliceListing]) -> list[int]:
    """Return the ranks of the slices of a side, in ascending order."""
    return sorted(set(known(listing.coordinates.rank for listing in side)))


def corresponding_slice(own: SliceListing, side: Sequence[SliceListing], rank: int) -> SliceListing:
    """Return a rank's slice of the same step and token in the other dump; if it has none, its first."""
    at = replace(own.coordinates, rank=rank)
    of_rank = [listing for listing in side if listing.coordinates.rank == rank]
    return min(of_rank, key=lambda listing: (listing.coordinates != at, in_order(listing)))


def in_order(listing: SliceListing) -> tuple[int, ...]:
    """Order slices as they ran."""
    return listing.coordinates.sort_key()
