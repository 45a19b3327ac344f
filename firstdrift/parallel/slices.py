"""Read slices, those of several ranks as the one slice of the model that is spread over them."""

from collections.abc import Mapping

from firstdrift.dumps import detect
from firstdrift.model.slice import Dump, Slice, SliceListing


def read_slice(dump: Dump, listing: SliceListing) -> Slice:
    """Read the nodes and tensors of a slice, without tensor data; those of several ranks are merged.

    Raises:
        DumpUnreadableError: a file that all else hangs on is damaged.
    """
    if not listing.parts:
        return detect.read_slice(dump, listing)
    from firstdrift.parallel.merge_ranks import merge_ranks

    return merge_ranks(listing, [detect.read_slice(dump, part) for part in listing.parts])


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
