"""Which nodes without partner may belong together: a draft of a match set, for a person to mend.

golden    layers.0.mlp   layers.0.norm               layers.0.mlp  =  layers.0.feed_forward    0.83
target    layers.0.feed_forward              ─▶      layers.0.norm    no partner is likely

Each node is in one suggestion at most, the likeliest first. What lies inside modules that are suggested is
aligned when they are matched, and not listed.
"""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from firstdrift.comparison.rematch import read_slices
from firstdrift.comparison.report import Report, SliceOutline, SliceResult
from firstdrift.groups import known, not_in
from firstdrift.matching.manual.edits import Edit, match
from firstdrift.matching.match import find_matches, lay_edits_on
from firstdrift.matching.pairing import Pairing
from firstdrift.matching.structure.suggestions import Suggestion, suggest
from firstdrift.model.node import Direction, Node
from firstdrift.verdict.coverage import Coverage

LOOKED_AT: Final = 300
"""So many nodes without partner are looked at; for each all others are weighed."""

_CANDIDATES: Final = 3
"""So many partners are asked for of each: the likeliest may be taken."""


class SuggestedMatch(Struct, frozen=True):
    """Two nodes that may belong together, and how much speaks for it, 0 to 1."""

    edit: Edit
    score: float


class SuggestedMatches(Struct, frozen=True):
    """What of a pair of slices may belong together, and what is left over besides.

    Attributes:
        matches: in the order of the golden nodes.
        golden: golden nodes for which no partner is likely; likewise target.
    """

    matches: tuple[SuggestedMatch, ...]
    golden: tuple[str, ...]
    target: tuple[str, ...]


def suggested_matches(report: Report) -> SuggestedMatches:
    """Suggest matches for what has no partner in the slice of which least was compared.

    Raises:
        DumpError: one of the dumps cannot be used any more.
    """
    if not report.slices:
        return SuggestedMatches((), (), ())
    least = min(range(len(report.slices)), key=lambda at: _share(report.outlines[at]))
    result = report.slices[least]
    golden, target = read_slices(report, result.plan)
    matching = report.options.matching
    work, _ = find_matches(golden, target, matching)
    lay_edits_on(work, matching.edits)
    asked = [node.name for node in _free_nodes(golden.nodes, result)]
    ranked = sorted(_ranked(work, asked), key=lambda one: -one.score)
    chosen = _chosen(ranked, set(result.plan.unmatched_target))
    taken = {name for one in chosen.values() for name in (*one.golden, *one.target)}
    in_order = known(map(chosen.get, asked))
    return SuggestedMatches(
        tuple(SuggestedMatch(match(one.golden, one.target), one.score) for one in in_order),
        tuple(not_in(asked, taken)),
        tuple(not_in(result.plan.unmatched_target, taken)),
    )


def _share(outline: SliceOutline) -> float:
    coverage = outline.judgement.coverage or Coverage()
    return coverage.compared_nodes / coverage.nodes if coverage.nodes else 1.0


def _free_nodes(nodes: tuple[Node, ...], result: SliceResult) -> list[Node]:
    """List the first forward nodes without partner of which something was recorded, outermost first."""
    there = result.plan.to_compare
    free = set(result.plan.unmatched_golden).difference(there.aside if there is not None else ())
    forward = [node for node in nodes if node.name in free and node.direction is not Direction.BACKWARD]
    return [node for node in forward if node.parent not in free][:LOOKED_AT]


def _ranked(work: Pairing, names: list[str]) -> Iterator[Suggestion]:
    for name in names:
        yield from suggest(work, golden=name, most=_CANDIDATES)


def _chosen(ranked: list[Suggestion], free: set[str]) -> dict[str, Suggestion]:
    """Give each golden node the likeliest partner that is still free."""
    chosen: dict[str, Suggestion] = {}
    taken: set[str] = set()
    for one in ranked:
        names = {*one.golden, *one.target}
        if taken.isdisjoint(names) and (one.doubtful or free.issuperset(one.target)):
            chosen[one.golden[0]] = one
            taken |= names
    return chosen
