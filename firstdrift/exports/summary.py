"""What a report for people says of a comparison: a page of it, not all of its pairs.

report of a notebook or terminal ─▶ summary_of ───┐
                                                  ├─▶ Summary ─▶ HTML, Markdown
comparison in the catalogue ─▶ stored_summary ────┘
"""

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from heapq import nsmallest
from pathlib import PurePath

from msgspec import Struct

from firstdrift.comparison.report import DumpSummary, Report, SliceResult
from firstdrift.groups import fields_of
from firstdrift.matching.plan import Messages
from firstdrift.model.slice import Coordinates, only_on_one_side
from firstdrift.verdict.judgement import ORIGINS, Counts, Findings, NodeClass, Reasons, RowJudgement, Verdict
from firstdrift.verdict.limit import limit_of_nodes
from firstdrift.verdict.tree import TreeRow, layer_rows

WORST = 150
"""So many nodes are listed, the worst first."""


class SliceLine(Struct, frozen=True):
    """A slice in a line: how it came out, and the error of its logits or last output."""

    coordinates: Coordinates
    verdict: Verdict
    error: float | None
    of_logits: bool


class Layer(Struct, frozen=True):
    """A layer of a slice.

    Attributes:
        at: number of the slice.
        path: of the layer, "model.layers.7".
        row: index of its row; the last row below it.
        verdict: the worst of it.
        error: of its output; None if not known.
    """

    at: int
    path: str
    row: int
    last: int
    verdict: Verdict
    error: float | None


class NodeLine(Struct, frozen=True):
    """A node at fault, and why."""

    coordinates: Coordinates
    name: str
    module: str | None
    verdict: Verdict
    node_class: NodeClass
    reasons: Reasons
    input_error: float | None
    parameter_error: float | None
    output_error: float | None
    amplification: float | None
    rule: str | None = None


class WrittenNote(Struct, frozen=True):
    """What somebody wrote about a node."""

    coordinates: Coordinates
    node: str
    author: str
    text: str
    written_at: datetime


class Summary(Struct, frozen=True):
    """A comparison as a report for people shows it.

    Attributes:
        golden: what was read of the golden dump; likewise target.
        rules: name of the rule set in force.
        slices: in execution order.
        layers: of all slices, in execution order.
        limit: error above which one is a fault's; None if the rules have none.
        worst: nodes with a verdict of warning or error: first where errors begin, in execution order,
            then the others by their output error.
        bad: how many such nodes there are.
        notes: remarks on what was compared and how.
        unpaired: which slices one dump alone has.
        unreadable: how many slices and pairs could not be compared because a file is damaged or missing.
        written: what people wrote about nodes.
        compared_at: None if just now.
    """

    golden: DumpSummary
    target: DumpSummary
    rules: str
    findings: Findings
    counts: Counts
    slices: tuple[SliceLine, ...]
    layers: tuple[Layer, ...]
    worst: tuple[NodeLine, ...]
    bad: int
    notes: Messages
    unpaired: Messages
    unreadable: int
    seconds: float | None = None
    written: tuple[WrittenNote, ...] = ()
    compared_at: datetime | None = None
    limit: float | None = None

    @property
    def names(self) -> tuple[str, str]:
        """Short names of both dumps: the last parts of their paths."""
        golden, target = PurePath(self.golden.path).parts, PurePath(self.target.path).parts
        return "/".join(golden[-2:]), "/".join(target[-2:])

    @property
    def tone(self) -> Verdict:
        """How it came out as a whole."""
        return self.findings.tone(self.counts, self.unreadable)


def summary_of(report: Report) -> Summary:
    """Sum a report up."""
    bad = [found for result in report.slices for found in _bad_rows(result)]
    limit = limit_of_nodes(result.judgement for result in report.slices)
    return Summary(
        golden=report.golden,
        target=report.target,
        rules=report.options.rules,
        findings=report.findings,
        counts=report.counts,
        slices=tuple(map(_slice_line, report.slices)),
        layers=tuple(layer for at, result in enumerate(report.slices) for layer in _layers(at, result)),
        worst=_worst(bad),
        bad=len(bad),
        notes=report.notes(),
        unpaired=only_on_one_side(report.pairing.unmatched_golden, report.pairing.unmatched_target),
        unreadable=report.unreadable,
        seconds=report.seconds.get("total"),
        limit=limit,
    )


_BAD = frozenset({Verdict.WARNING, Verdict.ERROR})


def _slice_line(result: SliceResult) -> SliceLine:
    judged = result.judgement
    matched = (row.verdict for row in judged.rows if row.node_class is not NodeClass.UNMATCHED)
    worst = max(matched, key=lambda verdict: verdict.severity, default=Verdict.PASS)
    verdict = worst if result.plan.pairs else Verdict.INCOMPARABLE
    return SliceLine(judged.coordinates, verdict, judged.logits_error, judged.logits_recorded)


def _layers(at: int, result: SliceResult) -> list[Layer]:
    rows, judged = result.rows, result.judgement.rows
    indexes = sorted(layer_rows(rows), key=lambda index: (rows[index].order, index))
    return [
        Layer(
            at,
            rows[index].path or "",
            index,
            rows[index].last,
            judged[index].verdict,
            judged[index].output_error,
        )
        for index in indexes
    ]


def _bad_rows(result: SliceResult) -> Iterator[tuple[Coordinates, TreeRow, RowJudgement]]:
    both = sorted(zip(result.rows, result.judgement.rows, strict=True), key=lambda each: each[0].order)
    for row, judged in both:
        if judged.verdict in _BAD:
            yield result.judgement.coordinates, row, judged


def node_line(coordinates: Coordinates, row: TreeRow, judged: RowJudgement) -> NodeLine:
    """Describe a node at fault."""
    name = next(iter(row.target or row.golden), row.label)
    of_row = fields_of(judged, NodeLine.__struct_fields__[3:])
    return NodeLine(coordinates, name, row.path, **of_row)


def _worst(bad: Sequence[tuple[Coordinates, TreeRow, RowJudgement]]) -> tuple[NodeLine, ...]:
    return tuple(node_line(*each) for _, each in nsmallest(WORST, enumerate(bad), key=_badness))


def _badness(numbered: tuple[int, tuple[Coordinates, TreeRow, RowJudgement]]) -> tuple[bool, float, int]:
    """Order nodes: where errors begin first, as they come; then the largest output error, NaN before all."""
    number, (_, _, judged) = numbered
    if judged.node_class in ORIGINS:
        return (False, 0.0, number)
    error = judged.output_error
    return (True, 1.0 if error is None else -math.inf if math.isnan(error) else -error, number)
