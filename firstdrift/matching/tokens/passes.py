"""Which passes of two runs hold the same tokens: a prompt that one run was given in chunks, for example.

golden   step 0  [5, 7, 9, 4]            step 1  [6]     one pass, then a generated token
target   step 0  [5, 7]  step 1  [9, 4]  step 2  [6]     two chunks, then the same

Passes that share tokens are compared as one: golden step 0 with target steps 0 and 1, step 1 with step 2.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, product
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from firstdrift.groups import not_in
from firstdrift.matching.plan import Messages
from firstdrift.matching.tokens.given import Given, Recorded, read_recorded, readings
from firstdrift.matching.tokens.thresholds import MOST_PASSES
from firstdrift.matching.tokens.tree import TokenTree
from firstdrift.model.slice import Slice, SliceListing
from firstdrift.wording.message import Message

Sides: TypeAlias = tuple[Sequence[SliceListing], Sequence[SliceListing]]
"""The golden and the target slices."""


class Held(Struct):
    """Which passes of a run hold what.

    Attributes:
        tokens: those that hold each token, which goes by its node in the tree of both runs.
        drafts: those that hold drafts, with the next ones, which took these back.
    """

    tokens: dict[int, set[int]] = field(default_factory=dict)
    drafts: list[set[int]] = field(default_factory=list)


Together: TypeAlias = tuple[SliceListing, SliceListing]
"""A golden and a target slice that are compared."""


def passes_of_one_token(
    sides: Sides, read: Callable[[int, SliceListing], Slice]
) -> tuple[list[Together], Messages]:
    """Return which passes hold the same tokens, those that share some laid one after the other.

    Nothing is returned where the first passes were given the same, and the second ones as many tokens, or
    each has a token that the other run lacks: then passes are what their numbers say. So they are where there
    are too many, which is said.

    Args:
        sides: the slices of both dumps.
        read: reads a slice of the golden dump (0) or of the target (1).
    """
    if not _begin_otherwise(sides, read):
        return [], ()
    most = max(map(len, sides))
    if most > MOST_PASSES:
        return [], (Message.of("matching.note.many_passes", passes=most, most=MOST_PASSES),)
    recorded = [_recorded(side, partial(read, at)) for at, side in enumerate(sides)]
    if [*map(len, recorded)] != [*map(len, sides)]:
        return [], ()
    ways = product(*map(_in_all, recorded))
    found = ([*_groups(_shared(_held(given)))] for given in ways)
    return [
        (_laid(sides[0], recorded[0], golden), _laid(sides[1], recorded[1], target))
        for golden, target in next(filter(None, found), ())
        if golden and target
    ], ()


def _begin_otherwise(sides: Sides, read: Callable[[int, SliceListing], Slice]) -> bool:
    """Tell whether two runs of several passes were given other tokens, in the first or in the second one."""
    if not all(sides) or max(map(len, sides)) == 1 or any(one.parts for one in chain(*sides)):
        return False
    firsts = [read_recorded(read(at, side[0]).nodes) for at, side in enumerate(sides)]
    return all(firsts) and (firsts[0][0].ids != firsts[1][0].ids or _go_on_otherwise(sides, read))


def _go_on_otherwise(sides: Sides, read: Callable[[int, SliceListing], Slice]) -> bool:
    """Tell whether the second passes go on with other numbers of tokens, as where one run drafts several."""
    seconds = [read_recorded(read(at, one).nodes) for at, side in enumerate(sides) for one in side[1:2]]
    if len(seconds) < len(sides) or not all(seconds):
        return False
    go_on = all(found[0].positions and min(found[0].positions) > 0 for found in seconds)
    return go_on and len(seconds[0][0].ids) != len(seconds[1][0].ids)


def _recorded(side: Sequence[SliceListing], read: Callable[[SliceListing], Slice]) -> list[Recorded]:
    """Return the token ids of the passes that have some."""
    return [found[0] for listing in side if (found := read_recorded(read(listing).nodes))]


def _shared(held: Sequence[Held]) -> Iterator[tuple[set[int], set[int]]]:
    """Yield which passes of both hold each token; nothing where neither first pass is shared as a whole."""
    golden, target = (side.tokens for side in held)
    shared = golden.keys() & target.keys()
    firsts = ({node for node, passes in side.items() if 0 in passes} for side in (golden, target))
    if any(first <= shared for first in firsts):
        yield from ((golden[node], target[node]) for node in sorted(shared))
        yield from ((drafts, set()) for drafts in held[0].drafts)
        yield from ((set(), drafts) for drafts in held[1].drafts)


def _held(given: Sequence[Given]) -> list[Held]:
    held = [Held(), Held()]
    for side, one, nodes in zip(held, given, TokenTree().place(given), strict=True):
        for run, of_run in zip(one.runs, nodes, strict=True):
            for node in of_run or ():
                side.tokens.setdefault(node, set()).add(run.part)
            if of_run is not None and len(of_run) < len(run.ids):
                side.drafts.append({run.part, run.part + 1})
    return held


def _in_all(passes: Iterable[Recorded]) -> Iterator[Given]:
    """Yield what a run may have been given in all of its passes."""
    return readings(replace(each, part=part) for part, each in enumerate(passes))


def _groups(together: Iterable[tuple[set[int], set[int]]]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the golden and the target passes that share tokens, with each other or with one between."""
    groups: list[tuple[set[int], set[int]]] = []
    for golden, target in together:
        touched = [one for one in groups if golden & one[0] or target & one[1]]
        groups = not_in(groups, touched)
        groups.append(
            (golden.union(*(one[0] for one in touched)), target.union(*(one[1] for one in touched)))
        )
    yield from sorted((sorted(golden), sorted(target)) for golden, target in groups)


def _laid(
    listings: Sequence[SliceListing], recorded: Sequence[Recorded], places: Sequence[int]
) -> SliceListing:
    parts = tuple(listings[at] for at in places)
    if len(parts) == 1:
        return parts[0]
    shapes = tuple(recorded[at].shape for at in places)
    return SliceListing(parts[0].coordinates, parts[0].directory, parts, rows=shapes)
