"""Find out which slice of the golden dump is compared with which slice of the target dump.

golden  (no rank) token 0, 1, 2        rank: each side has only one   ─▶  they are the same
target  rank 0    token 0, 1           token 0 ── token 0, token 1 ── token 1; golden token 2 is left over

golden  rank 0                         more ranks on one side: the model was spread over them
target  rank 0, 1                      rank 0 ── rank 0+1, merged; where rank 1 was asked for, what it holds;
                                       where rank 0 is one of two as well, rank 0 ── rank 0

golden  rank 0, 1  (shards)            as many ranks that were spread otherwise
target  rank 0, 1  (stages)            rank 0+1 ── rank 0+1, both merged

golden  step 0                         the same tokens in other passes
target  step 0, 1  (chunks)            step 0 ── steps 0 and 1, one after the other
"""

from collections.abc import Iterable
from itertools import chain
from operator import itemgetter
from typing import Final

from msgspec.structs import replace

from firstdrift.errors import DumpUnreadableError
from firstdrift.groups import grouped, known, positions, seconds
from firstdrift.matching.plan import MatchingRules, Messages, SlicePairing
from firstdrift.matching.ranks.merge_slices import (
    SIDES,
    Sides,
    choose_rank,
    merge_slices,
    model_of,
    models_of,
)
from firstdrift.matching.ranks.missing_ranks import MissingRanks, Read, find_missing_ranks, have_other_parts
from firstdrift.matching.slice_selection import (
    coordinates_named,
    is_chosen,
    numbered,
    require_chosen_slices,
    spelled,
    told_numbers,
)
from firstdrift.matching.tokens.passes import passes_of_one_token
from firstdrift.model.slice import Coordinates, Dump, SliceListing
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named

_COORDINATES: Final = ("step", "rank", "token", "micro_step")
_RANK: Final = _COORDINATES.index("rank")

Key = tuple[int | None, ...]
"""Step, rank, token and micro step, so that slices of one key are compared."""


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

    `read` tells whether ranks of one number hold the same; without it, as many ranks do, and a dump of fewer
    ranks is whole.

    Raises:
        SettingsError: a dump has no slice of the chosen step, rank or token.
    """
    require_chosen_slices(golden, target, rules)
    sides, missing, notes = _of_one_model((golden, target), rules, read)
    if read is not None and missing is None:
        together, too_many = _of_one_token(sides, (golden, target), rules, read)
        if together:
            return _pairing_of_passes(sides, together)
        notes += too_many
    keys = _keys_of_sides(sides, rules, missing)
    keys, assumed, ambiguous = _unify(keys, rules)
    pairs, ordered = _pair_by_key(sides, keys)
    if not pairs and not ambiguous:
        ambiguous = _how_to_shift(golden, target)
    return SlicePairing(
        pairs=tuple(sorted(pairs, key=lambda pair: pair[0].coordinates.sort_key())),
        unmatched_golden=_unpaired(sides[0], [pair[0] for pair in pairs]),
        unmatched_target=_unpaired(sides[1], [pair[1] for pair in pairs]),
        # What was assumed is of no interest where nothing came of it.
        notes=(*_same_dump(golden, target), *notes, *ordered, *(assumed if pairs else ()), *ambiguous),
    )


def _of_one_model(
    dumps: tuple[Dump, Dump], rules: MatchingRules, read: Read | None
) -> tuple[Sides, MissingRanks | None, list[Message]]:
    """Choose the slices that the rules ask for, and merge those of ranks of one model; say what was done."""
    sides = _chosen(dumps, rules)
    layouts = rules.golden_layout, rules.target_layout
    if rules.rank is not None:
        notes: list[Message] = []
        if layouts[0] is None or layouts[0] != layouts[1]:
            sides, notes = merge_slices(sides, layouts, tells_merged=False)
        sides, chosen = choose_rank(sides, rules.rank)
        return sides, None, notes + chosen
    spread_otherwise = False
    if read is not None and layouts == (None, None):
        missing = find_missing_ranks(dumps, sides, read)
        if missing is not None:
            return sides, missing, [missing.note]
        spread_otherwise = have_other_parts(dumps, sides, read)
    sides, notes = merge_slices(sides, layouts, spread_otherwise=spread_otherwise)
    return sides, None, notes


def _of_one_token(
    sides: Sides, dumps: tuple[Dump, Dump], rules: MatchingRules, read: Read
) -> tuple[list[tuple[SliceListing, SliceListing]], Messages]:
    """Return which passes hold the same tokens, unless a person said which are compared."""
    ranks = [{listing.coordinates.rank for listing in side} for side in sides]
    if max(map(len, ranks)) > 1 or rules.token_offset or (rules.step, rules.token) != (None, None):
        return [], ()
    ordered = [sorted(side, key=lambda listing: listing.coordinates.sort_key()) for side in sides]
    try:
        return passes_of_one_token((ordered[0], ordered[1]), lambda side, one: read(dumps[side], one))
    except DumpUnreadableError:
        return [], ()  # a damaged slice spoils itself alone, as it is read again


def _pairing_of_passes(sides: Sides, together: list[tuple[SliceListing, SliceListing]]) -> SlicePairing:
    """Compare passes that hold the same tokens, and say which these are."""
    held = [[part for pair in together for part in (pair[at].parts or (pair[at],))] for at in (0, 1)]
    return SlicePairing(
        pairs=tuple(together),
        unmatched_golden=_unpaired(sides[0], held[0]),
        unmatched_target=_unpaired(sides[1], held[1]),
        notes=tuple(
            Message.of("matching.note.passes_of_one_token", golden=_named(golden), target=_named(target))
            for golden, target in together
            if golden.parts or target.parts
        ),
    )


def _named(listing: SliceListing) -> tuple[Message, ...]:
    return tuple(part.coordinates.name() for part in listing.parts or (listing,))


def _chosen(dumps: tuple[Dump, Dump], rules: MatchingRules) -> Sides:
    """Return the slices of the chosen step and token, of any rank."""
    of_any_rank = replace(rules, rank=None)
    return tuple(
        [listing for listing in dump.slices if is_chosen(listing.coordinates, of_any_rank, shift)]
        for dump, shift in zip(dumps, (0, rules.token_offset), strict=True)
    )


def _keys_of_sides(sides: Sides, rules: MatchingRules, missing: MissingRanks | None) -> list[list[Key]]:
    keys = [_keys(side, shift) for side, shift in zip(sides, (0, rules.token_offset), strict=True)]
    if missing is not None and missing.number is not None:
        keys[missing.in_target] = _put(keys[missing.in_target], _RANK, missing.number)
    are_merged = any(listing.parts for listing in chain.from_iterable(sides))
    return list(map(_number_models, sides, keys)) if are_merged else keys


def _keys(side: list[SliceListing], token_shift: int) -> list[Key]:
    return [
        (at.step, at.rank, None if at.token is None else at.token - token_shift, at.micro_step)
        for at in (listing.coordinates for listing in side)
    ]


def _number_models(side: list[SliceListing], keys: list[Key]) -> list[Key]:
    """Put in place of the rank which model of its side a slice is of: they are paired in order."""
    numbers = positions(models_of(side))
    return [(key[0], numbers[model_of(one)], *key[2:]) for key, one in zip(keys, side, strict=True)]


def _pair_by_key(
    sides: Sides, keys: list[list[Key]]
) -> tuple[list[tuple[SliceListing, SliceListing]], list[Message]]:
    """Pair slices of equal keys; several of one key in their order, which is said."""
    golden, target = map(_by_key, keys, sides)
    pairs: list[tuple[SliceListing, SliceListing]] = []
    notes: list[Message] = []
    for key, listings in golden.items():
        others = target.get(key, [])
        pairs += zip(listings, others, strict=False)
        if others and max(len(listings), len(others)) > 1:
            notes.append(Message.of("matching.note.paired_in_order", slice=listings[0].coordinates.name()))
    return pairs, notes


def _by_key(keys: list[Key], listings: list[SliceListing]) -> dict[Key, list[SliceListing]]:
    groups = grouped(zip(keys, listings, strict=True), itemgetter(0))
    return {key: seconds(group) for key, group in groups.items()}


def _same_dump(golden: Dump, target: Dump) -> Messages:
    same = golden.path.resolve() == target.path.resolve()
    return (Message.of("matching.note.same_dump"),) if same else ()


def _how_to_shift(golden: Dump, target: Dump) -> list[Message]:
    """Say what pairs dumps of which the tokens have no number in common."""
    tokens = told_numbers(golden, "token"), told_numbers(target, "token")
    if not all(tokens) or tokens[0] & tokens[1]:
        return []
    first, second = map(spelled, tokens)
    return [Message.of("matching.note.no_common_token", golden=first, target=second)]


def _unify(
    keys: list[list[Key]], rules: MatchingRules
) -> tuple[list[list[Key]], list[Message], list[Message]]:
    """Strike out the coordinates that do not tell slices apart.

    Returns:
        The keys, what was assumed, and which coordinates a person must choose.
    """
    assumed: list[Message] = []
    ambiguous: list[Message] = []
    for place, name in enumerate(_COORDINATES):
        golden, target = (set(map(itemgetter(place), side)) for side in keys)
        is_told = None not in golden | target
        is_shifted = name == "token" and rules.token_offset and is_told
        if golden == target or not (golden and target):
            continue
        if len(golden) == len(target) == 1 and not is_shifted:
            assumed.append(_assumed(name, *golden, *target))
            keys = [_put(side, place, None) for side in keys]
        elif not is_told:
            ambiguous.append(_ambiguous(name, golden, target))
    return keys, assumed, ambiguous


def _put(keys: Iterable[Key], place: int, number: int | None) -> list[Key]:
    """Put a number in place of one of the coordinates of each slice."""
    return [(*key[:place], number, *key[place + 1 :]) for key in keys]


def _ambiguous(name: str, golden: set[int | None], target: set[int | None]) -> Message:
    """Say that one dump alone tells a coordinate, of which one has to be chosen."""
    side, numbers = (SIDES[1], target) if None in golden else (SIDES[0], golden)
    return Message.of(
        "matching.note.ambiguous",
        side=side_named(side),
        coordinates=coordinates_named(name),
        numbers=spelled(known(numbers)),
    )


def _assumed(name: str, golden: int | None, target: int | None) -> Message:
    """Say that the only slice of a dump is compared with the only one of the other, whatever it is called."""
    sides = {"golden": numbered(name, golden), "target": numbered(name, target)}
    if golden is None:
        return Message.of("matching.note.untold_by_golden", coordinates=coordinates_named(name), **sides)
    if target is None:
        return Message.of("matching.note.untold_by_target", coordinates=coordinates_named(name), **sides)
    return Message.of("matching.note.assumed_same", **sides)


def _unpaired(side: list[SliceListing], paired: list[SliceListing]) -> tuple[Coordinates, ...]:
    taken = set(map(id, paired))
    left = [listing.coordinates for listing in side if id(listing) not in taken]
    return tuple(sorted(left, key=Coordinates.sort_key))
