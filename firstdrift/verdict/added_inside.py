"""What a module adds up in its own code: the stream it was given, and what a branch inside it gives."""

import math

from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.model.node import Direction, NodeKind
from firstdrift.verdict.evidence import Case, Evidence
from firstdrift.verdict.explanations import jumps
from firstdrift.verdict.sums import Addend, addends, explained_by_sum
from firstdrift.verdict.tree import TreeRow


def added_inside(case: Case) -> tuple[Addend, ...]:
    """Return what the output of a module adds, where only the errors inside it would excuse it.

    It is looked for where the module's own inputs and all that was added are known to the last digit.
    """
    row, error, pair = case.row, case.error, case.error.output_pair
    if not _is_excused_by_inside_alone(case) or pair is None:
        return ()
    evidence = case.evidence
    total = _addend(evidence, row.label, error.output, pair)
    if total is None:
        return ()
    children = [child for child in evidence.children(row) if _is_forward_module(child)]
    given = [(one, evidence.errors[one.index]) for one in (row, *reversed(children))]
    streams = [_addend(evidence, _named(one), at.input, at.input_pair) for one, at in given]
    branches = [_branch(evidence, child) for child in reversed(children)]
    unit = evidence.unit_of(pair, case.roundoff)
    found = addends(total.side, [one for one in streams if one], [one for one in branches if one], unit)
    return found if found and jumps(case, explained_by_added(case, found)) else ()


def explained_by_added(case: Case, added: tuple[Addend, ...]) -> float:
    """Return the output error that what a module adds explains."""
    pair = case.error.output_pair
    total = case.evidence.measurements[pair].golden if pair is not None else None
    return math.inf if total is None else explained_by_sum(total, added)


def _is_excused_by_inside_alone(case: Case) -> bool:
    row, at_least = case.row, max(case.roundoff, case.error.input or 0.0)
    return not (
        row.last == row.index
        or row.direction is Direction.BACKWARD
        or case.progress.origins_inside[row.index]
        or case.explained > max(case.roundoff, case.progress.inside[row.index])
        or jumps(case, case.explained)
        or not jumps(case, at_least)
    )


def _is_forward_module(row: TreeRow) -> bool:
    is_module = row.match is not None and row.kind is not NodeKind.API
    return is_module and row.direction is not Direction.BACKWARD


def _branch(evidence: Evidence, row: TreeRow) -> Addend | None:
    """Return what a module inside gives; if that was not compared, what its last module does."""
    error = evidence.errors[row.index]
    while error.output is None:
        children = evidence.children(row)
        if not children:
            return None
        row = children[-1]
        error = evidence.errors[row.index]
    return _addend(evidence, _named(row), error.output, error.output_pair)


def _addend(evidence: Evidence, where: str, error: float | None, pair: int | None) -> Addend | None:
    """Return a value that may have been added, if all of it is known."""
    if error is None or not math.isfinite(error) or pair is None:
        return None
    measured = evidence.measurements[pair]
    if measured.kind is not MeasurementKind.DATA or measured.golden is None:
        return None
    return Addend(where, error, measured.golden, pair)


def _named(row: TreeRow) -> str:
    return (row.target or row.golden)[0]
