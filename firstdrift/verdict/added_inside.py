"""What a module adds up in its own code: the stream it was given, and what a branch inside it gives.

    layer(x) = h + mlp(norm(h)),  h = x + attention(norm(x))       h is what the norm was given

The worst error inside a module says little of such a sum: a branch may be far off and weigh next to
nothing. What was added tells more, and where the means add up, values say what it was.
"""

import math
from collections.abc import Iterable
from itertools import product

from firstdrift.groups import known
from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.model.node import Direction, NodeKind
from firstdrift.verdict.case import Case
from firstdrift.verdict.conditioning import Term, error_of_terms, is_sum
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.explanations import jumps
from firstdrift.verdict.tree import TreeRow


def added_inside(case: Case) -> tuple[Term, ...]:
    """Return what the output of a module adds, where only the errors inside it would excuse it.

    It is looked for where the module's own inputs and all that was added are known to the last digit.
    """
    if not _is_excused_by_inside_alone(case):
        return ()
    evidence, row, error = case.evidence, case.row, case.error
    total = _term(evidence, row, error.output, error.output_pair)
    if total is None:
        return ()
    children = list(filter(_is_forward_module, evidence.children(row)))
    streams = _known(_input(evidence, one) for one in (row, *reversed(children)))
    branches = _known(_branch(evidence, child) for child in reversed(children))
    unit = evidence.unit_of(total.pair, case.roundoff)
    added = next(
        (
            (stream, branch)
            for branch, stream in product(branches, streams)
            if stream.side is not branch.side and is_sum(total.side, (stream.side, branch.side), unit)
        ),
        (),
    )
    return added if added and jumps(case, error_of_terms(added, total.side)) else ()


def explained_by_added(case: Case) -> float:
    """Return the output error that what a module adds explains."""
    pair = case.error.output_pair
    total = case.evidence.measurements[pair].golden if pair is not None else None
    return case.roundoff if total is None else max(case.roundoff, error_of_terms(case.added, total))


def _is_excused_by_inside_alone(case: Case) -> bool:
    row, at_least = case.row, max(case.roundoff, case.error.input or 0.0)
    return not (
        row.direction is Direction.BACKWARD
        or case.progress.origins_inside[row.index]
        or case.explained > max(case.roundoff, case.progress.inside[row.index])
        or jumps(case, case.explained)
        or not jumps(case, at_least)
    )


def _is_forward_module(row: TreeRow) -> bool:
    is_module = row.match is not None and row.kind is not NodeKind.API
    return is_module and row.direction is not Direction.BACKWARD


def _known(terms: Iterable[Term | None]) -> list[Term]:
    return known(terms)


def _input(evidence: Evidence, row: TreeRow) -> Term | None:
    error = evidence.errors[row.index]
    return _term(evidence, row, error.input, error.input_pair)


def _branch(evidence: Evidence, row: TreeRow) -> Term | None:
    """Return what a module inside gives; if that was not compared, what its last module does."""
    error = evidence.errors[row.index]
    while error.output is None:
        children = evidence.children(row)
        if not children:
            return None
        row = children[-1]
        error = evidence.errors[row.index]
    return _term(evidence, row, error.output, error.output_pair)


def _term(evidence: Evidence, row: TreeRow, error: float | None, pair: int | None) -> Term | None:
    """Return a value that may have been added, if all of it is known."""
    if error is None or not math.isfinite(error) or pair is None:
        return None
    measured = evidence.measurements[pair]
    if measured.kind is not MeasurementKind.DATA or measured.golden is None:
        return None
    return Term((row.target or row.golden)[0], error, measured.golden, pair)
