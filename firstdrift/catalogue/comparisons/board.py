"""Many comparisons side by side: how each slice of each came out, and which run was before which."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from pathlib import PurePath
from typing import Final

from msgspec import Struct
from sqlalchemy import select
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.overview import overviews_of
from firstdrift.catalogue.comparisons.records import Comparison
from firstdrift.catalogue.tables import BAD, ComparisonEntry, MatchSetVersionEntry, SliceEntry, SlicePairEntry
from firstdrift.groups import gathered
from firstdrift.model.slice import Coordinates
from firstdrift.verdict.judgement import Finding, SliceJudgement, Verdict
from firstdrift.verdict.limit import limit_of_nodes


class Outcome(Struct, frozen=True):
    """How a slice of a comparison came out.

    Attributes:
        position: of the slice in the comparison.
        coordinates: of the target slice.
        node: name of the first node that is bad, its module where that is known; None if none is.
        row: its row in the tree of the slice; None if none is.
        is_first: whether the first bad node of the whole comparison lies in it.
        operator: short name of the operator that is that node, where it is one in a module.
    """

    comparison_id: int
    position: int
    coordinates: Coordinates
    verdict: Verdict
    node: str | None = None
    row: int | None = None
    is_first: bool = False
    operator: str | None = None


def outcomes(session: Session, comparison_ids: Collection[int]) -> dict[int, list[Outcome]]:
    """Say how the slices of comparisons came out, each in the order of execution."""
    here = (SlicePairEntry.comparison_id.in_(comparison_ids), SlicePairEntry.complete)
    first = {
        pair: _named(judgement)
        for pair, judgement in session.execute(
            select(SlicePairEntry.id, SlicePairEntry.judgement).where(*here, SlicePairEntry.verdict.in_(BAD))
        )
    }
    said = session.execute(
        select(ComparisonEntry.id, ComparisonEntry.findings).where(ComparisonEntry.id.in_(comparison_ids))
    )
    begins = {
        comparison: _place(findings.first_bad_node.coordinates)
        for comparison, findings in said
        if findings is not None and findings.first_bad_node is not None
    }
    found: defaultdict[int, list[Outcome]] = defaultdict(list)
    pairs = (
        select(
            SlicePairEntry.id,
            SlicePairEntry.comparison_id,
            SlicePairEntry.position,
            SlicePairEntry.verdict,
            SliceEntry.step,
            SliceEntry.rank,
            SliceEntry.token,
            SliceEntry.micro_step,
        )
        .join(SliceEntry, SliceEntry.id == SlicePairEntry.target_id)
        .where(*here)
        .order_by(SlicePairEntry.comparison_id, SlicePairEntry.position)
    )
    for pair, comparison, position, verdict, step, rank, token, micro_step in session.execute(pairs):
        where = Coordinates(step, rank, token, micro_step)
        bad = first.get(pair)
        found[comparison].append(
            Outcome(
                comparison,
                position,
                where,
                verdict,
                node=bad.name if bad else None,
                row=bad.row if bad else None,
                is_first=begins.get(comparison) == _place(where),
                operator=bad.operator if bad else None,
            )
        )
    return dict(found)


def _named(judged: SliceJudgement) -> Finding | None:
    """Return the node that a bad slice is named by; None where all of it differs for one reason."""
    found = next(iter(judged.own_origins or judged.weak_origins), None)
    is_throughout = any(difference.is_fault for difference in judged.systematic)
    return found if found is not None or is_throughout else judged.worst


class Profile(Struct, frozen=True):
    """The numbers of a slice: the error of its logits, or last output, and those of its layers, in order.

    Attributes:
        metric: which error of the logits it is, as the overview shows it first; None if it is another one.
    """

    error: float | None
    layers: tuple[float | None, ...]
    limit: float | None
    metric: str | None = None


_SHOWN: Final = ("relative_l2", "error_bound")
"""The errors of logits that are shown of a slice, the first that is known."""


def profiles(session: Session, comparison_id: int, positions: Collection[int]) -> dict[int, Profile]:
    """Give the numbers of some slices of a comparison, by their positions."""
    overviews = overviews_of(session, comparison_id, positions)
    asked = select(SlicePairEntry.position, SlicePairEntry.judgement).where(
        SlicePairEntry.comparison_id == comparison_id, SlicePairEntry.position.in_(positions)
    )
    return {
        position: _profile(judged, tuple(layer.output_error for layer in overviews[position].layers))
        for position, judged in session.execute(asked)
        if position in overviews
    }


def _profile(judged: SliceJudgement, layers: tuple[float | None, ...]) -> Profile:
    known = judged.logits.metrics if judged.logits is not None else {}
    metric = next((name for name in _SHOWN if known.get(name) is not None), None)
    error = judged.logits_error if metric is None else known[metric]
    return Profile(error, layers, limit_of_nodes([judged]), metric)


def _place(where: Coordinates) -> tuple[int | None, ...]:
    return where.step, where.rank, where.token, where.micro_step


def runs_before(session: Session, comparisons: Iterable[Comparison]) -> dict[int, int]:
    """Find for comparisons the last finished one before each that tried the same thing.

    That is one with the same golden dump whose target has the same name, or lies in the same folder.
    Comparisons without one are left out.
    """
    given = list(comparisons)
    results = select(MatchSetVersionEntry.results_id).where(MatchSetVersionEntry.results_id.is_not(None))
    known = session.execute(
        select(ComparisonEntry.id, ComparisonEntry.golden_path, ComparisonEntry.target_path)
        .where(
            ComparisonEntry.golden_path.in_({str(each.golden_path) for each in given}),
            ComparisonEntry.deleted_at.is_(None),
            ComparisonEntry.findings.is_not(None),
            ComparisonEntry.id.not_in(results),
        )
        .order_by(ComparisonEntry.id.desc())
    ).all()
    earlier = gathered((golden, (number, PurePath(path))) for number, golden, path in known)
    found = {}
    for each in given:
        target = each.target_path
        before = (
            number
            for number, other in earlier[str(each.golden_path)]
            if number < each.id and (other.name == target.name or other.parent == target.parent)
        )
        if (last := next(before, None)) is not None:
            found[each.id] = last
    return found
