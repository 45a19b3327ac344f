"""Read slices, those of several ranks as the one slice of the model that is spread over them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from firstdrift.dumps import detect
from firstdrift.model.slice import Dump, Slice, SliceListing

Merge = Callable[[SliceListing, Sequence[Slice]], Slice]
"""Merges the slices of ranks, as `merge_ranks` does: it looks at some of their values."""


def read_slice(dump: Dump, listing: SliceListing) -> Slice:
    """Read the nodes and tensors of a slice, without tensor data; those of several ranks are merged.

    Raises:
        DumpUnreadableError: a file that all else hangs on is damaged.
    """
    return read_merged(listing, partial(detect.read_slice, dump))


def read_merged(
    listing: SliceListing, read: Callable[[SliceListing], Slice], merge: Merge | None = None
) -> Slice:
    """Read a slice rank by rank, or pass by pass, and merge what was read; any other is read as it is.

    Args:
        listing: which slice.
        read: reads that of one process.
        merge: merges them; `merge_ranks`, unless another process does it.
    """
    if not listing.parts:
        return read(listing)
    parts = list(map(read, listing.parts))
    if listing.rows:
        from firstdrift.parallel.merge_passes import merge_passes

        return merge_passes(listing, parts)
    from firstdrift.parallel.merge_ranks import merge_ranks

    return (merge or merge_ranks)(listing, parts)


def read_stacks(dump: Dump, listing: SliceListing) -> Mapping[str, tuple[str, ...]]:
    """Return the Python call stack of each node name, innermost frame first; {} if none were recorded."""
    if not listing.parts:
        return detect.read_stacks(dump, listing)
    from firstdrift.parallel.merge_ranks import name_on_rank

    return {
        name_on_rank(name, part.coordinates.rank, first=place == 0): stack
        for place, part in reversed(list(enumerate(listing.parts)))
        for name, stack in detect.read_stacks(dump, part).items()
    }
