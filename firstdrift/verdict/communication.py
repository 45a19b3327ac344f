"""From which rank an error came: what ranks tell each other.

    rank 0   ... all_reduce   its input agrees, its output does not   ◀─┐ explained: it comes from rank 1
    rank 1   ... all_reduce   its input differs                       ──┘

Calls belong together by operator, group and order: the k-th all_reduce of ranks 0 and 1 on either of them.
The k-th message that a rank sends to another is the k-th that this one receives from it, whether each was
called for alone or several at once.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.operators.properties import message_of
from firstdrift.parallel.point_to_point import Message as PeerMessage
from firstdrift.parallel.point_to_point import messages
from firstdrift.verdict.classify import Classification
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.judgement import Communication, Finding, RowJudgement, SliceJudgement
from firstdrift.verdict.slice_findings import finding_of_row
from firstdrift.verdict.tree import TreeRow

_RANKS: Final = re.compile(r"\[([\d, ]*)\]")


def communications_of(
    evidence: Evidence, classification: Classification, judged: Sequence[RowJudgement]
) -> Iterator[Communication]:
    """Say of each communication of a slice with whom it is, and whether what goes in and out differs."""
    counts: Counter[Hashable] = Counter()
    for row in evidence.communications:
        if not row.target:
            continue
        arguments = [evidence.plan.pairs[index].target for index in evidence.errors[row.index].pairs]
        group, operator = group_of(arguments), row.type_name.rpartition(".")[2]
        for message in tuple(messages(row.type_name, arguments)) or (None,):
            kind = (operator, group) if message is None else (message.sends, message.peer)
            worst, differs, agrees = _in_and_out(evidence, classification, row, message)
            yield Communication(
                node=row.target[0],
                operator=operator if message is None else message.operator,
                group=group,
                peer=None if message is None else message.peer,
                number=counts[kind],
                given=None
                if worst is None
                else finding_of_row(evidence, row, replace(judged[row.index], worst_pair=worst)),
                differs=differs,
                agrees=agrees,
            )
            counts[kind] += 1


def group_of(arguments: Sequence[TensorRecord]) -> tuple[int, ...]:
    """Return the ranks of the process group among some arguments; () if there is none."""
    for record in arguments:
        if record.dtype.endswith("ProcessGroup") and (found := _RANKS.search(record.scalar or "")):
            return tuple(int(rank) for rank in found[1].split(",") if rank.strip())
    return ()


def _in_and_out(
    evidence: Evidence, classification: Classification, row: TreeRow, message: PeerMessage | None
) -> tuple[int | None, bool | None, bool]:
    """Return the worst input pair if it differs, whether the output does, and whether the inputs agree."""
    limit = _limit(evidence, classification, row)
    given, taken, result = _errors(evidence, row, message)
    is_off = taken is not None and taken > limit and given is not None
    return (
        given if is_off else None,
        None if result is None else result > limit,
        taken is not None and not is_off,
    )


def _errors(
    evidence: Evidence, row: TreeRow, message: PeerMessage | None
) -> tuple[int | None, float | None, float | None]:
    """Return the worst input pair, its error, and the output error: of an operator or of a message."""
    error = evidence.errors[row.index]
    if message is None or not message.key:
        return error.input_pair, error.input, error.output
    if message.sends:
        return *_worst_of(evidence, row, message.key, Role.INPUT), None
    return None, None, _worst_of(evidence, row, message.key, Role.OUTPUT)[1]


def _worst_of(evidence: Evidence, row: TreeRow, key: str, role: Role) -> tuple[int | None, float | None]:
    """Return the pair of a message that differs most, and by how much; None where none was compared."""
    records = ((at, evidence.plan.pairs[at].target) for at in evidence.errors[row.index].pairs)
    own = [at for at, each in records if each.role is role and each.is_tensor and each.key.startswith(key)]
    known = [(error, at) for at in own if (error := evidence.pair_errors[at].value) is not None]
    worst, index = max(known, default=(None, None))
    return index, worst


def _limit(evidence: Evidence, classification: Classification, row: TreeRow) -> float:
    """Return the error above which what goes in or out of a communication differs."""
    if math.isfinite(classification.level):
        return classification.level
    return evidence.limits.hidden_floor * (evidence.errors[row.index].roundoff or classification.roundoff)


class Explained(NamedTuple):
    """Why what a communication operator gives differs: what another rank gave to it does.

    Attributes:
        judged: slice of the rank that it came to.
        node: name of the operator there.
        source: what the other rank gave to it.
    """

    judged: SliceJudgement
    node: str
    source: Finding


_Calls = list[tuple[SliceJudgement, Communication]]


def explain(judgements: Sequence[SliceJudgement]) -> list[Explained]:
    """Find the communications of one step whose bad outputs come from other ranks, in their order there."""
    together = defaultdict[Hashable, _Calls](list)
    for judged in judgements:
        rank = judged.coordinates.rank
        if rank is not None:
            for each in judged.communications:
                together[_key(rank, each)].append((judged, each))
    received = [call for calls in together.values() for call in _received(calls)]
    # Of several messages of one call each has to be explained.
    unexplained = {(id(judged), node) for judged, node, source in received if source is None}
    return [
        Explained(judged, node, source)
        for judged, node, source in received
        if source is not None and (id(judged), node) not in unexplained
    ]


def _received(calls: _Calls) -> Iterator[tuple[SliceJudgement, str, Finding | None]]:
    """Yield the calls that give what differs from what agrees, each with what another rank gave to it."""
    sources = [(judged, each.given) for judged, each in calls if each.given is not None]
    for judged, each in calls:
        if each.given is None and each.differs:
            yield judged, each.node, next((given for other, given in sources if other is not judged), None)


def _key(rank: int, each: Communication) -> Hashable:
    if each.peer is not None:
        ends = (rank, each.peer) if message_of(each.operator) == "sends" else (each.peer, rank)
        return "one to one", ends, each.number
    return each.operator, each.group, each.number
