"""Merge the slices of ranks that make up one model, or leave what one rank holds of it.

golden  rank 0           ─▶  rank 0
target  rank 0, 1        ─▶  rank 0+1, merged; where rank 1 was asked for, what it holds of the two
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Final

from msgspec.structs import replace

from firstdrift.groups import grouped
from firstdrift.matching.ranks.missing_ranks import in_order, ranks_of
from firstdrift.model.slice import Layout, SliceListing
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import ranks_named, side_named

SIDES: Final = ("golden", "target")
_MERGED: Final = "matching.note.merged"

Sides = tuple[list[SliceListing], ...]
"""The slices of the golden and of the target dump."""

Model = tuple[int, ...]
"""The ranks that make up one model."""


def merge_slices(
    sides: Sides,
    layouts: tuple[Layout | None, Layout | None],
    *,
    spread_otherwise: bool = False,
    tells_merged: bool = True,
) -> tuple[Sides, list[Message]]:
    """Merge on each side the slices of ranks that make up one model.

    Args:
        sides: the slices of both dumps.
        layouts: over how many ranks each model is spread; None to take all ranks for one model.
        spread_otherwise: whether as many ranks have other parts of the model.
        tells_merged: whether it is said that ranks were merged.

    Returns:
        The slices of both sides, and what could not be merged or was assumed.
    """
    ranks = list(map(ranks_of, sides))
    are_as_many = max(1, len(ranks[0])) == max(1, len(ranks[1]))
    if are_as_many and layouts == (None, None) and not spread_otherwise:
        return sides, []
    merged, notes = zip(*map(_merge_side, SIDES, sides, ranks, layouts), strict=True)
    told = (note for note in chain(*notes) if tells_merged or note.id != _MERGED)
    return merged, list(told)


def _merge_side(
    name: str, side: list[SliceListing], ranks: list[int], layout: Layout | None
) -> tuple[list[SliceListing], list[Message]]:
    count = max(1, len(ranks))
    known = layout or Layout(tensor=count)
    size = known.tensor * known.pipeline
    if count == size == 1:
        return side, []
    if len(ranks) % size or not ranks:
        return side, [Message.of("matching.note.no_multiple", side=side_named(name), ranks=count, size=size)]
    models = _models(ranks, known)
    slices = list(chain.from_iterable(_merge_model(side, model, layout) for model in models))
    note = Message.of(_MERGED, side=side_named(name), ranks=ranks_named(ranks))
    return slices, [note] if layout is None else []


def _models(ranks: list[int], layout: Layout) -> Iterator[Model]:
    """Yield the ranks of each copy of a model: its shards are numbered first, then copies, then stages."""
    width = len(ranks) // layout.pipeline
    for start in range(0, width, layout.tensor):
        stages = range(start, len(ranks), width)
        yield tuple(rank for stage in stages for rank in ranks[stage : stage + layout.tensor])


def _merge_model(side: list[SliceListing], model: Model, layout: Layout | None) -> Iterator[SliceListing]:
    """Merge the slices of some ranks, for each step and token; one rank alone stays as it is."""
    held = (listing for listing in side if listing.coordinates.rank in model)
    for at, of_ranks in grouped(held, lambda listing: replace(listing.coordinates, rank=None)).items():
        parts = tuple(sorted(of_ranks, key=in_order))
        if len(model) == 1:
            yield from parts
        else:
            merged = replace(at, merged=tuple(ranks_of(parts)))
            yield SliceListing(merged, parts[0].directory, parts, layout)


def choose_rank(sides: Sides, rank: int) -> tuple[Sides, list[Message]]:
    """Leave the slices of a rank; of one merged with others only what it holds of their model.

    Where both sides are merged, it is a rank of the one whose models are spread over more, and the other
    side is whole.

    Returns:
        The slices of both sides, and what is compared with what.
    """
    models = list(map(models_of, sides))
    widths = [max(map(len, held), default=1) for held in models]
    if max(widths) == 1:
        return tuple(_of_ranks(side, {None, rank}) for side in sides), []
    wider = int(widths[1] >= widths[0])
    ranks = next((model for model in models[wider] if rank in model), ())
    if not ranks:
        return ([], []), []
    of_model = list(map(partial(_of_model, models[wider].index(ranks)), sides, models))
    of_model[wider] = [_held_by(listing, rank) for listing in of_model[wider]]
    side, named = side_named(SIDES[wider]), ranks_named(ranks)
    note = Message.of("matching.note.part_of_model", side=side, rank=rank, ranks=named)
    return tuple(of_model), [note] if len(ranks) > 1 else []


def _of_ranks(side: Iterable[SliceListing], ranks: set[int | None]) -> list[SliceListing]:
    return [listing for listing in side if listing.coordinates.rank in ranks]


def _of_model(number: int, side: Iterable[SliceListing], models: list[Model]) -> list[SliceListing]:
    return [listing for listing in side if model_of(listing) in models[number : number + 1]]


def models_of(side: Iterable[SliceListing]) -> list[Model]:
    """Return the models of a side, each by its ranks, in ascending order."""
    return sorted(set(map(model_of, side)))


def model_of(listing: SliceListing) -> Model:
    """Return the ranks of the model that a slice is of."""
    return listing.coordinates.merged or (listing.coordinates.rank or 0,)


def _held_by(listing: SliceListing, rank: int) -> SliceListing:
    at = listing.coordinates
    return listing if at.merged is None else replace(listing, coordinates=replace(at, rank=rank, merged=None))
