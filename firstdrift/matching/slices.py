"""Find out which slice of the golden dump is compared with which slice of the target dump.

golden  (no rank) token 0, 1, 2        rank: each side has only one   ─▶  they are the same
target  rank 0    token 0, 1           token 0 ── token 0, token 1 ── token 1; golden token 2 is left over

golden  rank 0                         more ranks on one side: the model was spread over them
target  rank 0, 1                      rank 0 ── rank 0+1, merged; where rank 1 was asked for, what it holds;
                                       where rank 0 is one of two as well, rank 0 ── rank 0

golden  rank 0, 1  (shards)            as many ranks that were spread otherwise
target  rank 0, 1  (stages)            rank 0+1 ── rank 0+1, both merged
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.errors import DumpUnreadableError
from firstdrift.matching.plan import MatchingRules, SlicePairing
from firstdrift.matching.ranks.rank_correspondence import are_spread_otherwise, hold_same_part
from firstdrift.matching.slice_selection import is_chosen, require_chosen_slices, spelled
from firstdrift.model.slice import Coordinates, Dump, Layout, Slice, SliceListing

_NAMES: Final = {"step": "step", "rank": "rank", "token": "token", "micro_step": "micro step"}

_MOST_TRIED: Final = 8
"""Ranks that a dump without rank is held against."""

Key = tuple[int | None, ...]
"""Step, rank, token and micro step, so that slices of one key are compared."""

Read = Callable[[Dump, SliceListing], Slice]
"""Reads a slice of a dump."""


def pair_slices(golden: Dump, target: Dump, rules: MatchingRules, read: Read | None = None) -> SlicePairing:
    """Pair the slices of two dumps by their coordinates, in the order of the golden ones.

    A coordinate of which each side has only one value, or none, does not tell slices apart: the two are the
    same whatever they are called, and a note says so. Slices that the rules did not ask for are not left
    over. Several slices of the same coordinates are paired in their order.

    Where one side has more ranks than the other, those of each side are merged: into one model, or, where
    the rules say over how many ranks a model is spread, into as many models as there are. Of a rank that was
    asked for, the others are read as well: they tell what it holds of the model. Where the dump of fewer
    ranks lacks the others of a model that is spread alike, it is compared rank by rank; as many ranks that
    were spread otherwise are merged.

    Args:
        golden: the golden dump.
        target: the target dump.
        rules: which slices may be compared.
        read: reads what tells whether ranks of one number hold the same; without it, as many ranks do, and
            a dump of fewer ranks is whole.

    Raises:
        SettingsError: a dump has no slice of the chosen step, rank or token.
    """
    require_chosen_slices(golden, target, rules)
    of_any_rank = replace(rules, rank=None)
    sides = (
        [listing for listing in golden.slices if is_chosen(listing.coordinates, of_any_rank, 0)],
        [
            listing
            for listing in target.slices
            if is_chosen(listing.coordinates, of_any_rank, rules.token_offset)
        ],
    )
    notes = list(_say_if_same(golden, target))
    layouts = rules.golden_layout, rules.target_layout
    lacking, otherwise = None, False
    if read is not None and rules.rank is None and layouts == (None, None):
        lacking = _find_lacking((golden, target), sides, read)
        otherwise = _are_spread_otherwise((golden, target), sides, read)
    if lacking is not None:
        notes.append(lacking.note)
    elif rules.rank is None:
        notes += _merge_ranks(sides, layouts, is_said=True, otherwise=otherwise)
    else:
        if layouts[0] is None or layouts[0] != layouts[1]:
            notes += _merge_ranks(sides, layouts, is_said=False)
        notes += _choose_rank(sides, rules.rank)
    keys = [_keys(side, shift) for side, shift in zip(sides, (0, rules.token_offset), strict=True)]
    if lacking is not None and lacking.number is not None:
        keys[lacking.in_target] = [(key[0], lacking.number, *key[2:]) for key in keys[lacking.in_target]]
    if any(listing.parts for side in sides for listing in side):
        keys = [_number_models(side, its) for side, its in zip(sides, keys, strict=True)]
    assumed, ambiguous = _unify(keys, rules)
    golden_slices, target_slices = (_by_key(*side) for side in zip(keys, sides, strict=True))
    pairs: list[tuple[SliceListing, SliceListing]] = []
    for key, listings in golden_slices.items():
        others = target_slices.get(key, [])
        pairs += zip(listings, others, strict=False)
        if others and max(len(listings), len(others)) > 1:
            notes.append(f"several slices are {listings[0].coordinates.describe()}: they are paired in order")
    if not pairs and not ambiguous:
        ambiguous += _say_how_to_shift(golden, target)
    # What was assumed is of no interest where nothing came of it.
    notes += [*(assumed if pairs else ()), *ambiguous]
    return SlicePairing(
        pairs=tuple(sorted(pairs, key=lambda pair: pair[0].coordinates.sort_key())),
        unmatched_golden=_left_over(sides[0], [pair[0] for pair in pairs]),
        unmatched_target=_left_over(sides[1], [pair[1] for pair in pairs]),
        notes=tuple(notes),
    )


class _Lacking(Struct, frozen=True):
    """One dump lacks ranks of a model that both dumps have spread alike.

    Attributes:
        in_target: whether it is the target.
        number: which rank it has, if it does not say so.
        note: says all this.
    """

    in_target: bool
    number: int | None
    note: str


def _find_lacking(
    dumps: tuple[Dump, Dump], sides: tuple[list[SliceListing], ...], read: Read
) -> _Lacking | None:
    """Find out whether the dump of fewer ranks lacks those that the other has; None if it is whole."""
    ranks = [sorted({at.rank for at in _coordinates(side) if at.rank is not None}) for side in sides]
    few = len(ranks[1]) < len(ranks[0])
    held, all_of_them = ranks[few], ranks[not few]
    if len(all_of_them) < 2 or not set(held) < set(all_of_them) or not sides[few]:  # noqa: PLR2004
        return None
    own = min((one for one in sides[few] if one.coordinates.rank in {None, *held[:1]}), key=_order)
    slice_of = cache(lambda listing: read(dumps[few if listing is own else not few], listing))
    for rank in held[:1] or all_of_them[:_MOST_TRIED]:
        another = next(one for one in all_of_them if one not in {rank, *held})
        same, other = (_beside(own, sides[not few], number) for number in (rank, another))
        try:
            is_same = hold_same_part(slice_of(own), slice_of(same), partial(slice_of, other))
        except DumpUnreadableError:  # which is said once it is read to be compared
            return None
        if is_same:
            has, left = held or [rank], [one for one in all_of_them if one not in {rank, *held}]
            side, other_side = ("target", "golden") if few else ("golden", "target")
            note = (
                f"the {side} dump has only rank {_joined(has)} of a model that both dumps have spread alike: "
                f"rank {_joined(left)} of the {other_side} dump is left over"
            )
            return _Lacking(few, None if held else rank, note)
    return None


def _are_spread_otherwise(
    dumps: tuple[Dump, Dump], sides: tuple[list[SliceListing], ...], read: Read
) -> bool:
    """Tell whether dumps of as many ranks have other parts of a model on them."""
    golden, target = ({at.rank for at in _coordinates(side)} for side in sides)
    rank = min((one for one in golden if one is not None), default=None)
    if golden != target or len(golden) < 2 or rank is None:  # noqa: PLR2004
        return False
    own = min((listing for listing in sides[0] if listing.coordinates.rank == rank), key=_order)
    try:
        slices = read(dumps[0], own), read(dumps[1], _beside(own, sides[1], rank))
        return are_spread_otherwise(*slices, len(golden - {None}))
    except DumpUnreadableError:  # which is said once it is read to be compared
        return False


def _joined(ranks: Iterable[int]) -> str:
    return "+".join(map(str, ranks))


def _order(listing: SliceListing) -> tuple[int, ...]:
    return listing.coordinates.sort_key()


def _beside(own: SliceListing, side: list[SliceListing], rank: int) -> SliceListing:
    """Return the slice of a rank for the step and token of one of the other dump; else its first."""
    at = replace(own.coordinates, rank=rank)
    found = [listing for listing in side if listing.coordinates.rank == rank]
    return min(found, key=lambda listing: (listing.coordinates != at, _order(listing)))


def _merge_ranks(
    sides: tuple[list[SliceListing], ...],
    layouts: tuple[Layout | None, Layout | None],
    *,
    is_said: bool,
    otherwise: bool = False,
) -> Iterable[str]:
    """Merge, in place, the slices of ranks that make up one model; say what could not be, or was assumed."""
    ranks = [sorted({at.rank for at in _coordinates(side) if at.rank is not None}) for side in sides]
    counts = [max(1, len(held)) for held in ranks]
    if counts[0] == counts[1] and layouts == (None, None) and not otherwise:
        return
    for name, side, held, layout in zip(("golden", "target"), sides, ranks, layouts, strict=True):
        known = layout or Layout(tensor=max(1, len(held)))
        size = known.tensor * known.pipeline
        if len(held) < 2 and size == 1:  # noqa: PLR2004
            continue
        if len(held) % size or not held:
            yield f"the {name} dump has {len(held) or 1} ranks, no multiple of {size}: they are not merged"
            continue
        models = _models(held, known)
        side[:] = [merged for model in models for merged in _merged(side, model, layout)]
        if layout is None and is_said:
            said = _joined(held)
            yield f"ranks {said} of the {name} dump are compared merged, as one model spread over them"


def _choose_rank(sides: tuple[list[SliceListing], ...], rank: int) -> Iterable[str]:
    """Leave, in place, the slices of a rank; of one merged with others only what it holds of their model.

    Where both sides are merged, it is a rank of the one whose models are spread over more, and the other
    side is whole. Say what is compared.
    """
    models = [sorted({at.merged or (at.rank or 0,) for at in _coordinates(side)}) for side in sides]
    widths = [max(map(len, held), default=1) for held in models]
    if max(widths) == 1:
        for side in sides:
            side[:] = [listing for listing in side if listing.coordinates.rank in (None, rank)]
        return
    spread = widths[1] >= widths[0]
    number = next((at for at, model in enumerate(models[spread]) if rank in model), None)
    for at, (side, held) in enumerate(zip(sides, models, strict=True)):
        model = held[number] if number is not None and number < len(held) else None
        side[:] = [
            _held_by(listing, rank) if at == spread else listing
            for listing in side
            if (listing.coordinates.merged or (listing.coordinates.rank or 0,)) == model
        ]
    if number is not None and len(models[spread][number]) > 1:
        said = _joined(models[spread][number])
        yield (
            f"rank {rank} of the {('golden', 'target')[spread]} dump is compared with its part of a model "
            f"spread over ranks {said}"
        )


def _held_by(listing: SliceListing, rank: int) -> SliceListing:
    at = listing.coordinates
    return listing if at.merged is None else replace(listing, coordinates=replace(at, rank=rank, merged=None))


def _coordinates(side: list[SliceListing]) -> list[Coordinates]:
    return [listing.coordinates for listing in side]


def _models(ranks: list[int], layout: Layout) -> list[list[int]]:
    """Deal ranks out to copies of a model: its shards are numbered first, then copies, then stages."""
    width = len(ranks) // layout.pipeline
    return [
        [
            rank
            for stage in range(0, len(ranks), width)
            for rank in ranks[stage + start : stage + start + layout.tensor]
        ]
        for start in range(0, width, layout.tensor)
    ]


def _merged(side: list[SliceListing], ranks: list[int], layout: Layout | None) -> Iterable[SliceListing]:
    """Merge the slices of some ranks, for each step and token; one rank alone stays as it is."""
    groups: defaultdict[Coordinates, list[SliceListing]] = defaultdict(list)
    for listing in side:
        if listing.coordinates.rank in ranks:
            groups[replace(listing.coordinates, rank=None)].append(listing)
    for at, found in groups.items():
        parts = tuple(sorted(found, key=lambda listing: listing.coordinates.sort_key()))
        if len(ranks) == 1:
            yield from parts
            continue
        merged = tuple(part.coordinates.rank for part in parts if part.coordinates.rank is not None)
        yield SliceListing(replace(at, merged=merged), parts[0].directory, parts, layout)


def _keys(side: list[SliceListing], token_shift: int) -> list[Key]:
    keys: list[Key] = []
    for listing in side:
        at = listing.coordinates
        token = None if at.token is None else at.token - token_shift
        keys.append((at.step, at.rank, token, at.micro_step))
    return keys


def _number_models(side: list[SliceListing], keys: list[Key]) -> list[Key]:
    """Put in place of the rank which model of its side a slice is of: they are paired in order."""
    models = [at.merged or (at.rank or 0,) for at in _coordinates(side)]
    numbers = {model: number for number, model in enumerate(sorted(set(models)))}
    return [(key[0], numbers[model], *key[2:]) for key, model in zip(keys, models, strict=True)]


def _say_if_same(golden: Dump, target: Dump) -> Iterable[str]:
    if golden.path.resolve() == target.path.resolve():
        yield "golden and target are the same dump"


def _say_how_to_shift(golden: Dump, target: Dump) -> Iterable[str]:
    """Say what pairs dumps of which the tokens have no number in common."""
    held = [{listing.coordinates.token for listing in dump.slices} - {None} for dump in (golden, target)]
    if all(held) and not held[0] & held[1]:
        said = [spelled(token for token in tokens if token is not None) for tokens in held]
        yield f"no token is in both dumps (golden {said[0]}, target {said[1]}): give an offset of tokens"


def _unify(keys: list[list[Key]], rules: MatchingRules) -> tuple[list[str], list[str]]:
    """Strike out, in place, the coordinates that do not tell slices apart.

    Returns what was assumed, and which coordinates a person must choose.
    """
    assumed: list[str] = []
    ambiguous: list[str] = []
    for place, (field, name) in enumerate(_NAMES.items()):
        golden, target = ({key[place] for key in side} for side in keys)
        if golden == target or not golden or not target:
            continue
        shifted = field == "token" and rules.token_offset != 0 and None not in golden | target
        if len(golden) == len(target) == 1 and not shifted:
            assumed.append(_say_assumed(name, *golden, *target))
            keys[:] = [[(*key[:place], None, *key[place + 1 :]) for key in side] for side in keys]
        elif None in golden or None in target:
            side, numbers = ("target", target) if None in golden else ("golden", golden)
            ambiguous.append(
                f"only the {side} dump tells {name}s apart: choose which {name} to compare "
                f"({spelled(number for number in numbers if number is not None)})"
            )
    return assumed, ambiguous


def _say_assumed(name: str, golden: int | None, target: int | None) -> str:
    if golden is None:
        return f"the golden dump says no {name}: it is compared with {name} {target} of the target dump"
    if target is None:
        return f"the target dump says no {name}: it is compared with {name} {golden} of the golden dump"
    return f"golden {name} {golden} is compared with target {name} {target}: each dump has only one"


def _by_key(keys: list[Key], listings: list[SliceListing]) -> dict[Key, list[SliceListing]]:
    found: defaultdict[Key, list[SliceListing]] = defaultdict(list)
    for key, listing in zip(keys, listings, strict=True):
        found[key].append(listing)
    return dict(found)


def _left_over(side: list[SliceListing], paired: list[SliceListing]) -> tuple[Coordinates, ...]:
    taken = {id(listing) for listing in paired}
    left = [listing.coordinates for listing in side if id(listing) not in taken]
    return tuple(sorted(left, key=Coordinates.sort_key))
