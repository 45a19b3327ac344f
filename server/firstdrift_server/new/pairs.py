"""Pairs of dumps that lie together, as the form offers them."""

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from firstdrift.errors import FirstdriftError
from firstdrift_server.context import Context
from firstdrift_server.questions.pairs import DumpPair, find_pairs

KEPT_SECONDS = 10
"""So long it is remembered which pairs there are: the form asks with each key."""


class PairView(Struct, frozen=True):
    """Two dumps that one click chooses.

    Attributes:
        folder: name of the folder that both lie in.
        golden_name, target_name: their paths from there.
        formats: of the two; one if they are of one format.
        choose: address that chooses both.
        is_chosen: both are chosen.
    """

    golden: str
    target: str
    folder: str
    golden_name: str
    target_name: str
    formats: tuple[str, ...]
    changed_at: datetime
    choose: str
    is_chosen: bool


def pairs_together(context: Context) -> tuple[DumpPair, ...]:
    """Give the pairs that lie together under the roots; none where looking for them takes too much."""
    roots = context.roots
    moment = int(time.monotonic() / KEPT_SECONDS)
    try:
        return context.pairs.get((roots, moment), lambda: context.ask(find_pairs, roots))
    except FirstdriftError:  # what the form is for can be done without them
        return ()


def pair_view(pair: DumpPair, choose: str, chosen: Mapping[str, str]) -> PairView:
    """Describe a pair; `choose` is the address that chooses it."""
    golden, target = pair.golden.path, pair.target.path
    shared = Path(os.path.commonpath((golden, target)))
    names = str(Path(golden).relative_to(shared)), str(Path(target).relative_to(shared))
    formats = tuple(dict.fromkeys(filter(None, (pair.golden.format, pair.target.format))))
    is_chosen = (chosen.get("golden"), chosen.get("target")) == (golden, target)
    changed_at = datetime.fromtimestamp(pair.changed_at, UTC)
    return PairView(golden, target, shared.name, *names, formats, changed_at, choose, is_chosen)
