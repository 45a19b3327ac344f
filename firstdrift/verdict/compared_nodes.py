"""How much of the golden dump was compared: without that, nothing found says little.

golden    embed ─ layers.0 ─ layers.1 ─ norm ─ lm_head        4 of 5 nodes, the output: two runs may agree
compared  embed ─ layers.0 ─ layers.1 ────────  lm_head

golden    embed ─ layers.0 ─ layers.1 ─ norm ─ lm_head        1 of 5 nodes: not judged
compared  ──────────────────────────────────── lm_head

golden    lm_head                                             1 of 1 nodes: judged, and said to
target    embed ─ layers.0 ─ layers.1 ─ norm ─ lm_head        be of the output alone

| a golden node                                                  | counts as                          |
| -------------------------------------------------------------- | ---------------------------------- |
| an output of it was compared                                   | compared                           |
| it recorded no output (a weight), and something of it was      | compared                           |
| it recorded no tensor, or was not asked for (`--level`)        | nothing: there is none to compare  |
| its pass, or its kind, is not in the target dump               | nothing                            |
| an operator in a module that was compared                      | nothing: the module tells          |
| a module in one of other code, which was compared, holds none  | nothing: the same                  |
| communication that only one of the two runs needed             | nothing                            |
| its output is another quantity, what follows is given the same | nothing                            |
| anything else                                                  | missed                             |

What counts as nothing and has no match is no reason to doubt a verdict; readers are told how many there are.
"""

from collections.abc import Iterator, Sequence
from math import prod

from msgspec import Struct

from firstdrift.groups import not_in
from firstdrift.matching.implementations.boundaries import is_other_quantity
from firstdrift.matching.plan import ToCompare
from firstdrift.model.node import API, BACKWARD, MODULE
from firstdrift.model.tensor import OUTPUT
from firstdrift.parallel.point_to_point import is_communication
from firstdrift.verdict.coverage import Coverage
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.tree import TreeRow


class _Seen(Struct, frozen=True):
    """What is known of the tensors of the matches.

    Attributes:
        compared: matches that were compared: an output of them, or, where none was recorded, anything.
        elsewhere: matches with an output that is another quantity on the two sides.
    """

    compared: frozenset[int]
    elsewhere: frozenset[int]


def coverage_of(evidence: Evidence) -> Coverage | None:
    """Count what of a pair of slices was compared; None if it is not known what there is."""
    there = evidence.plan.to_compare
    if there is None:
        return None
    seen = _seen(evidence)
    compared = _compared(evidence, there, seen)
    nodes = compared | set(_missed(evidence, there, seen, compared))
    backward = {name for row in evidence.rows if row.direction is BACKWARD for name in row.golden}
    has_outputs = _is_any_compared(evidence, there.outputs)
    has_before = not has_outputs and _gives_less(evidence, there) and _is_any_compared(evidence, there.before)
    return Coverage(
        nodes=len(nodes),
        compared_nodes=len(compared),
        backward_nodes=len(backward & nodes),
        compared_backward_nodes=len(backward & compared),
        outputs=int(bool(there.outputs)),
        compared_outputs=int(has_outputs or has_before),
        before_outputs=int(has_before),
        target_nodes=there.target_nodes,
        outputs_alone=int(_are_outputs_alone(nodes, there)),
        unmatched_golden=len(evidence.plan.unmatched_golden),
        unmatched_target=len(evidence.plan.unmatched_target),
        unmatched_beside=len(_unmatched_golden(evidence.rows) - nodes),
    )


def _unmatched_golden(rows: Sequence[TreeRow]) -> set[str]:
    """Name the golden nodes that have no match."""
    return {name for row in rows if row.match is None for name in row.golden}


def _compared(evidence: Evidence, there: ToCompare, seen: _Seen) -> set[str]:
    """Name the golden nodes that were compared, or that give the values of one that was."""
    compared = {name for row in evidence.rows if row.match in seen.compared for name in row.golden}
    return compared | {name for name, other in there.alike if other in compared}


def _is_any_compared(evidence: Evidence, places: Sequence[tuple[str, str]]) -> bool:
    """Tell whether any of some golden tensors was compared."""
    nodes = {node for node, _ in places}
    pairs = ((at, pair) for at, pair in enumerate(evidence.plan.pairs) if pair.golden_node in nodes)
    compared = (pair for at, pair in pairs if evidence.pair_errors[at].value is not None)
    return any((pair.golden_node, pair.golden.label) in places for pair in compared)


def _are_outputs_alone(nodes: set[str], there: ToCompare) -> bool:
    """Tell whether the golden dump holds what the model gives and nothing else, and the target holds more."""
    of_outputs = {node for node, _ in there.outputs}
    return bool(of_outputs) and nodes <= of_outputs and there.target_nodes > len(nodes)


def _gives_less(evidence: Evidence, there: ToCompare) -> bool:
    """Tell whether the target has no more than a part of what the model gives, as of the last token alone."""
    plan, places = evidence.plan, set(there.outputs)
    sizes = {
        left.match: prod(left.record.shape or ())
        for left in plan.unmatched_golden_tensors
        if left.place in places
    }
    parts = [
        prod(left.record.shape or ()) < sizes[left.match]
        for left in plan.unmatched_target_tensors
        if left.match in sizes and left.record.role is OUTPUT and left.record.is_tensor
    ]
    return bool(parts) and all(parts)


def _seen(evidence: Evidence) -> _Seen:
    tensors = _golden_tensors(evidence)
    compared = {match for match, _, is_compared in tensors if is_compared}
    by_output = {match for match, is_output, is_compared in tensors if is_output and is_compared}
    with_output = {match for match, is_output, _ in tensors if is_output}
    elsewhere = frozenset(pair.match for pair in evidence.plan.pairs if is_other_quantity(pair))
    return _Seen(frozenset(compared - (with_output - by_output)), elsewhere)


def _golden_tensors(evidence: Evidence) -> list[tuple[int, bool, bool]]:
    """List the golden tensors of the matches: of which, whether it is an output, whether it was compared."""
    plan = evidence.plan
    left = [(one.match, one.record) for one in plan.unmatched_golden_tensors]
    return [
        (pair.match, pair.golden.role is OUTPUT, error.value is not None)
        for pair, error in zip(plan.pairs, evidence.pair_errors, strict=True)
        if pair.golden.is_tensor
    ] + [(match, record.role is OUTPUT, False) for match, record in left if record.is_tensor]


def _missed(evidence: Evidence, there: ToCompare, seen: _Seen, compared: set[str]) -> Iterator[str]:
    """Yield the golden nodes that were not compared though there was something to compare."""
    aside = {*there.aside, *compared}
    talks = _sides_that_talk(evidence.communications)
    holding = set(_holding(evidence.rows))
    for row in evidence.rows:
        if aside.issuperset(row.golden) or row.match in seen.elsewhere:
            continue
        if talks == 1 and is_communication(row.type_name):
            continue
        if _is_told_above(row, evidence.rows, compared, holding):
            continue
        yield from not_in(row.golden, aside)


def _sides_that_talk(communications: Sequence[TreeRow]) -> int:
    """Count the dumps that record communication between ranks."""
    return any(row.golden for row in communications) + any(row.target for row in communications)


def _holding(rows: Sequence[TreeRow]) -> Iterator[int]:
    """Yield the rows that hold a module of the target dump: another one than that of their own gradients.

    Those of one name and class run one code: what they hold in the golden run alone was left out of the dump.
    """
    modules = (row for row in rows if row.target and row.kind is MODULE)
    yield from (at for row in modules if (at := row.parent) is not None and row.path != rows[at].path)
    yield from (row.index for row in rows if row.golden == row.target)


def _is_told_above(row: TreeRow, rows: Sequence[TreeRow], compared: set[str], holding: set[int]) -> bool:
    """Tell whether a module around a row was compared; of a module one that holds none in the other run."""
    above = row.parent
    while above is not None and compared.isdisjoint(rows[above].golden):
        above = rows[above].parent
    return above is not None and (row.kind is API or above not in holding)
