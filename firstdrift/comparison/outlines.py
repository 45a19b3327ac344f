"""From the result of a pair of slices to what a report says of it without its rows and pairs."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from firstdrift.comparison.report import Alike, SliceOutline, SliceResult
from firstdrift.comparison.session import without_details
from firstdrift.comparison.stages import count_unreadable
from firstdrift.matching.plan import TensorPair
from firstdrift.verdict.after_ties import FOLLOWS
from firstdrift.verdict.judgement import Verdict
from firstdrift.wording.message import Message, joined
from firstdrift.wording.phrases import within

LISTED: Final = 100
"""So many pairs that could not be compared are listed one by one."""

_INCOMPARABLE: Final = Verdict.INCOMPARABLE
"""By itself, as it is asked of every pair: Python 3.11 looks up slowly what an enum holds."""


def outline_of(result: SliceResult) -> SliceOutline:
    """Say of a pair of slices what is small."""
    left = list(_incomparable(result))
    return SliceOutline(
        judgement=without_details(result.judgement),
        notes=result.plan.notes,
        unreadable=count_unreadable(result),
        incomparable=_by_reason(left),
        listed=tuple(islice((one for one in left if one[1].id != FOLLOWS), LISTED)),
    )


def _by_reason(left: Sequence[tuple[TensorPair, Message]]) -> tuple[Alike, ...]:
    found: defaultdict[tuple[str, ...], list[tuple[TensorPair, Message]]] = defaultdict(list)
    for pair, reason in left:
        found[_why(reason)].append((pair, reason))
    return tuple(Alike(why, len(alike), *alike[0]) for why, alike in found.items())


def _incomparable(result: SliceResult) -> Iterator[tuple[TensorPair, Message]]:
    for pair, judged in zip(result.plan.pairs, result.judgement.pairs, strict=True):
        if judged.verdict is _INCOMPARABLE:
            yield pair, joined(*judged.reasons)


def _why(reason: Message) -> tuple[str, ...]:
    return tuple(part.id for part in within(reason))
