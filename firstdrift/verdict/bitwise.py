"""What the rule set `bitwise` finds first: the first token, node, tensor and element whose bits differ.

A tensor is where a value is handed over, and these are in order: what a node is given, its parameters
included, comes before all that runs inside it, what it gives comes after.

    layer.input   q_proj.input   q_proj.weight   q_proj.output   ...   layer.output        gradients

Nothing is excused: neither rounding, nor another input, nor another token that was generated before.
"""

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from firstdrift.dumps.execution_order import natural_key
from firstdrift.model.tensor import Role
from firstdrift.parallel.point_to_point import is_communication
from firstdrift.verdict.bit_count import BitCount, BitsOfSlice
from firstdrift.verdict.bit_rules import count_of
from firstdrift.verdict.comparable import in_order, time_of
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.judgement import (
    Counts,
    Finding,
    Findings,
    RowJudgement,
    SliceJudgement,
    Verdict,
)
from firstdrift.verdict.rank_finding import rank_of_node
from firstdrift.verdict.slice_findings import finding_of_row
from firstdrift.verdict.tree import TreeRow, holds_gradients
from firstdrift.wording.message import Message

BITWISE: Final = "bitwise"
"""Name of the rule set."""

_SUSPECTS: Final = 10

_Moment: TypeAlias = tuple[bool, int, int, int, int, list[tuple[int, int | str]], str]
"""When a tensor was handed over, by which the tensors of a slice are ordered."""

_GIVEN: Final = {Role.INPUT: 0, Role.PARAMETER: 1}


def with_first_differences(evidence: Evidence, judged: SliceJudgement) -> SliceJudgement:
    """Let what is said of a slice begin with the first tensor that is not bit-equal.

    Each row says of its own first tensor that differs. Where an error begins, all that a node is given is
    bit-equal; only of the very first that need not be so.
    """
    order = _in_order(evidence)
    different = [at for at in order if judged.pairs[at].verdict is Verdict.ERROR]
    first_of_row: dict[int, int] = {}
    for at in different:
        first_of_row.setdefault(evidence.row_of(at).index, at)
    rows = tuple(_about(row, first_of_row.get(index), judged) for index, row in enumerate(judged.rows))
    makers = _makers(evidence, judged, first_of_row)
    origins = dict.fromkeys([*list(first_of_row)[:1], *makers])
    counts = [count_of(evidence.plan.pairs[at], evidence.measurements[at], judged.pairs[at]) for at in order]
    known = order.index(different[0]) if different else len(order)
    return replace(
        judged,
        rows=rows,
        origins=tuple(finding_of_row(evidence, evidence.rows[row], rows[row]) for row in origins),
        weak_origins=(),
        input_difference=None,
        bits=BitsOfSlice(
            sum(counts, BitCount()), sum(counts[:known], BitCount()), made=list(origins)[:1] == makers[:1]
        ),
    )


def _about(row: RowJudgement, pair: int | None, judged: SliceJudgement) -> RowJudgement:
    return row if pair is None else replace(row, reasons=judged.pairs[pair].reasons, worst_pair=pair)


def _in_order(evidence: Evidence) -> list[int]:
    """Return the pairs in the order in which their tensors were handed over."""
    began = _beginnings(evidence.rows)
    return sorted(range(len(evidence.plan.pairs)), key=lambda at: _moment(evidence, began, at))


def _moment(evidence: Evidence, began: Sequence[int], at: int) -> _Moment:
    row, pair = evidence.row_of(at), evidence.plan.pairs[at]
    given = _GIVEN.get(pair.role)
    key = natural_key(pair.target.key), pair.golden_node
    if given is None:
        return holds_gradients(row), row.order, 1, -row.depth, 0, *key
    return holds_gradients(row), began[row.index], 0, row.depth, given, *key


def _beginnings(rows: Sequence[TreeRow]) -> list[int]:
    """Return when each row began: when the first of all that lies in it did."""
    began = [row.order for row in rows]
    for row in reversed(rows):
        if row.parent is not None:
            began[row.parent] = min(began[row.parent], began[row.index])
    return began


def _makers(evidence: Evidence, judged: SliceJudgement, first_of_row: Iterable[int]) -> list[int]:
    """Return the rows that give other bits although all that they are given is proven bit-equal."""
    differing = set(first_of_row)
    return [
        row
        for row in sorted(differing, key=evidence.places.__getitem__)
        if _is_given_equals(evidence, judged, row)
        and differing.isdisjoint(range(row + 1, evidence.rows[row].last + 1))
    ]


def _is_given_equals(evidence: Evidence, judged: SliceJudgement, row: int) -> bool:
    """Tell whether a row was given something, and nothing but equals; what ranks receive is not seen."""
    if is_communication(evidence.rows[row].type_name):
        return False
    given = [
        judged.pairs[at].verdict
        for at in evidence.errors[row].pairs
        if evidence.plan.pairs[at].role in _GIVEN
    ]
    return bool(given) and set(given) == {Verdict.PASS}


def conclude_bitwise(judgements: Sequence[SliceJudgement]) -> Findings:
    """Say which bits differ first, over all pairs of slices, and how much is proven equal."""
    ordered = in_order(judgements)
    overflow = tuple(overflow for judged in ordered for overflow in judged.overflow)
    here = _where_it_begins(ordered)
    if here is None:
        return Findings(_equal(ordered), overflow=overflow)
    node = here.origins[0]
    token = None if node.coordinates.token is None else _bad_token(here, node)
    known = _known_before(ordered, here)
    firsts = [judged.origins[0] for judged in ordered if judged.origins]
    makers = [origin for judged in ordered for origin in judged.origins[0 if _is_made(judged) else 1 :]]
    return Findings(
        summary=_summary(node, token, known, alone=len(ordered) == 1),
        first_bad_token=token,
        first_bad_node=node,
        rank_finding=rank_of_node(node, firsts, ordered),
        suspects=tuple(_named_once(node, makers)),
        overflow=overflow,
    )


def _is_made(judged: SliceJudgement) -> bool:
    return judged.bits is not None and judged.bits.made


def _where_it_begins(ordered: Sequence[SliceJudgement]) -> SliceJudgement | None:
    """Return the slice of the first difference; of ranks that ran at once, none that received it."""
    bad = [judged for judged in ordered if judged.origins]
    at_once = [judged for judged in bad if time_of(judged.coordinates) == time_of(bad[0].coordinates)]
    return min(at_once, key=_communications_before, default=None)


def _communications_before(judged: SliceJudgement) -> tuple[int, bool]:
    first = judged.origins[0]
    return first.epoch, is_communication(first.target)


def _known_before(ordered: Sequence[SliceJudgement], here: SliceJudgement) -> BitCount:
    """Count what was handed over before the first difference: on its rank, and at any time before."""
    now = time_of(here.coordinates)
    earlier = [judged.bits.all for judged in ordered if judged.bits and time_of(judged.coordinates) < now]
    return sum(earlier, here.bits.before if here.bits else BitCount())


def _named_once(first: Finding, others: Sequence[Finding]) -> list[Finding]:
    """Return the others, of each node the first."""
    by_node = {(first.golden, first.target): first}
    for one in others:
        by_node.setdefault((one.golden, one.target), one)
    return list(by_node.values())[1 : _SUSPECTS + 1]


def _bad_token(judged: SliceJudgement, node: Finding) -> Finding:
    """Return what shows that a token is not bit-equal: its logits if they are not, else its first node."""
    logits = judged.logits
    return logits if logits is not None and logits.verdict is Verdict.ERROR else node


def _summary(node: Finding, token: Finding | None, before: BitCount, *, alone: bool) -> Message:
    place = Message.of("bitwise.node", bad_node=node.place, tensor=node.tensor, reason=node.reasons[0])
    if token is not None:
        number = Message.of("finding.token", number=node.coordinates.token)
        said = Message.of("bitwise.token_and_node", bad_token=number, node=place)
    elif alone or not node.coordinates.name().arguments:
        said = Message.of("bitwise.first", node=place)
    else:
        said = Message.of("bitwise.first_in", where=node.coordinates.name(), node=place)
    if before.unproven:
        return Message.of("bitwise.after_unproven", said=said, equal=before.equal, unproven=before.unproven)
    return Message.of("bitwise.after", said=said, equal=before.equal) if before.equal else said


def _equal(judgements: Sequence[SliceJudgement]) -> Message:
    """Say how much is proven equal, where nothing is known to differ."""
    if not judgements:
        return Message.of("summary.no_slices")
    bits = sum((judged.bits.all for judged in judgements if judged.bits), BitCount())
    counts = sum((judged.counts for judged in judgements), Counts())
    if not counts.pairs:
        return Message.of("summary.no_values")
    if bits.proves_nothing:
        return Message.of("bitwise.nothing_proven", unproven=bits.unproven)
    by = [
        Message.of(f"bitwise.by_{name}", count=count, elements=bits.elements)
        for name in ("values", "digests", "xor", "arguments")
        if (count := getattr(bits, name))
    ]
    said = Message.of("bitwise.equal", pairs=bits.equal, by=tuple(by))
    if bits.unproven:
        said = Message.of("bitwise.equal_but", said=said, unproven=bits.unproven)
    nodes = counts.unmatched_golden_nodes + counts.unmatched_target_nodes
    tensors = counts.unmatched_golden_tensors + counts.unmatched_target_tensors
    if nodes or tensors:
        return Message.of("bitwise.beside_unmatched", said=said, nodes=nodes, tensors=tensors)
    return said
