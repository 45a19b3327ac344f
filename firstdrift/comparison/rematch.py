"""Lay edits over a comparison that is there: only what they change is measured and judged.

plan ── edits ──▶ plan'     pairs that were in the plan keep their measurements
                    └──▶ new pairs are measured
"""

import time
from collections.abc import Container, Sequence
from itertools import chain
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.comparison.clock import Clock
from firstdrift.comparison.in_memory import InMemory
from firstdrift.comparison.report import Options, Report
from firstdrift.comparison.session import ComparisonSession, without_details
from firstdrift.comparison.stages import measure_missing
from firstdrift.dumps.detect import open_dump
from firstdrift.errors import SettingsError
from firstdrift.groups import not_in
from firstdrift.matching.manual.edits import Edit
from firstdrift.matching.match import find_matches, lay_edits_on
from firstdrift.matching.plan import Messages, NodeMatch, SlicePlan, TensorPair
from firstdrift.matching.structure.suggestions import Suggestion, suggest
from firstdrift.metrics.measurement import Measurement
from firstdrift.model.slice import Dump, Slice
from firstdrift.parallel.slices import read_slice
from firstdrift.remote.addresses import path_of
from firstdrift.verdict.judgement import Counts, Findings, SliceJudgement
from firstdrift.wording.message import Message

AnyReport = TypeVar("AnyReport", bound=Report)

Identity = tuple[object, ...]
"""What tells a pair from all others of two slices: which tensors are compared, and how."""


class Effect(Struct, frozen=True):
    """What edits change.

    Attributes:
        before: counts without the edits; likewise after.
        findings_before: what is said first without them; likewise findings_after.
        added: matches that they make, in the order of the target nodes.
        removed: matches that they take apart.
        new_pairs: how many pairs of tensors are compared that were not before.
        unmeasured: how many of these were left out of the counts, because there is too much data to read.
        notes: why edits could not be applied.
        slices: how many slices were looked at, of `of_slices`; the counts are of these.
    """

    before: Counts
    after: Counts
    findings_before: Findings
    findings_after: Findings
    added: tuple[NodeMatch, ...]
    removed: tuple[NodeMatch, ...]
    new_pairs: int
    unmeasured: int = 0
    notes: Messages = ()
    slices: int = 0
    of_slices: int = 0


def identity(pair: TensorPair) -> Identity:
    """Return what tells a pair from all others of two slices."""
    return (
        pair.golden_node,
        pair.golden.label,
        pair.target_node,
        pair.target.label,
        pair.transform,
        pair.incomparable,
        pair.joining,
        tuple((part.location, part.label) for part in (*pair.golden_parts, *pair.target_parts)),
        tuple((record.location, record.label) for record in chain(*pair.witnesses)),
    )


def rematch(report: AnyReport, edits: Sequence[Edit]) -> AnyReport:
    """Return the report with further edits laid over it; the report itself stays as it is.

    Slices that have none of the nodes are taken over as they are. The two dumps are opened again, and
    must not have changed since.

    Raises:
        DumpError: one of them cannot be used any more.
        SettingsError: an edit can be applied to no slice.
    """
    started = time.perf_counter()
    matching = report.options.matching
    options = replace(report.options, matching=replace(matching, edits=(*matching.edits, *edits)))
    storage = _Edited(report, options, edits)
    session = ComparisonSession(storage, options.rules, options.thresholds)
    session.run(range(len(report.slices)))
    if storage.outlines:
        require_applied(edits, [outline.notes for outline in storage.outlined()])
    findings = session.conclude(len(report.pairing.unmatched_golden))
    return replace(
        report,
        options=options,
        slices=storage.slices(),
        outlines=storage.outlined(),
        findings=findings,
        counts=session.counts(),
        seconds={**report.seconds, "rematch": time.perf_counter() - started},
        unreadable=report.unreadable
        + sum(outline.unreadable for outline in storage.outlined())
        - sum(outline.unreadable for outline in report.outlines),
    )


def preview(report: Report, edits: Sequence[Edit]) -> Effect:
    """Say what edits would change.

    Raises:
        DumpError: one of the dumps cannot be used any more.
        SettingsError: an edit can be applied to no slice.
    """
    after = rematch(report, edits)
    changes = Changes()
    for old, new in zip(report.slices, after.slices, strict=True):
        changes.add(old.plan, new.plan)
    before_notes = report.notes()
    return Effect(
        before=report.counts,
        after=after.counts,
        findings_before=report.findings,
        findings_after=after.findings,
        added=tuple(changes.added),
        removed=tuple(changes.removed),
        new_pairs=changes.new_pairs,
        notes=tuple(not_in(after.notes(), before_notes)),
        slices=len(report.slices),
        of_slices=len(report.slices),
    )


def suggest_for(
    report: Report, *, golden: str | None = None, target: str | None = None, at: int = 0, most: int = 10
) -> tuple[Suggestion, ...]:
    """Rank the partners that a node of a slice (number `at` of the report) may have, the likeliest first.

    Raises:
        DumpError: one of the dumps cannot be used any more.
        SettingsError: not exactly one node is named, or there is no such node or slice.
    """
    if not 0 <= at < len(report.slices):
        raise SettingsError(Message.of("comparison.options.no_slice", number=at))
    both = _Dumps(report).read(report.slices[at].plan)
    matching = report.options.matching
    work, _ = find_matches(*both, matching)
    lay_edits_on(work, matching.edits)
    return suggest(work, golden=golden, target=target, most=most)


def read_slices(report: Report, plan: SlicePlan) -> tuple[Slice, Slice]:
    """Read a pair of slices of a report again.

    Raises:
        DumpError: one of the dumps cannot be used any more.
    """
    return _Dumps(report).read(plan)


class Changes:
    """What edits change in the plans of slices, added up.

    A match that is now known in another way is the same, unless it has become certain.

    Attributes:
        added: matches that are only there with the edits; likewise removed, those only there without them.
        new_pairs: how many pairs of tensors are only there with the edits.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.added: dict[NodeMatch, None] = {}
        self.removed: dict[NodeMatch, None] = {}
        self.new_pairs = 0

    def add(self, before: SlicePlan, after: SlicePlan) -> None:
        """Take in the plans of a pair of slices without the edits and with them."""
        old, new = (
            {(match.golden, match.target, match.doubtful): match for match in plan.matches}
            for plan in (before, after)
        )
        self.added |= dict.fromkeys(match for key, match in new.items() if key not in old)
        self.removed |= dict.fromkeys(match for key, match in old.items() if key not in new)
        known = set(map(identity, before.pairs))
        self.new_pairs += sum(identity(pair) not in known for pair in after.pairs)


def is_touched(edits: Sequence[Edit], golden: Container[str], target: Container[str]) -> bool:
    """Tell whether edits name any node of a pair of slices."""
    return any(
        any(map(golden.__contains__, edit.golden)) or any(map(target.__contains__, edit.target))
        for edit in edits
    )


def refusals(edits: Sequence[Edit], golden: Container[str], target: Container[str]) -> Messages:
    """Write the remarks on edits whose nodes a pair of slices lacks."""
    absent = ((edit, edit.why_absent(golden, target)) for edit in edits)
    return tuple(edit.refused(why) for edit, why in absent if why is not None)


def require_applied(edits: Sequence[Edit], notes: Sequence[Sequence[Message]]) -> None:
    """Raise an error if an edit could be applied to none of the slices that these notes are on.

    Raises:
        SettingsError: it names the edit and says why.
    """
    for edit in edits:
        refused = [note for of_slice in notes for note in of_slice if edit.is_refused(note)]
        if len(refused) >= len(notes):
            raise SettingsError(refused[0])


class _Edited(InMemory):
    """The pairs of slices of a report, with edits laid over; what they do not touch stays as it is."""

    def __init__(self, report: Report, options: Options, edits: Sequence[Edit]) -> None:
        super().__init__(options, report.additions, report.noise)
        self._before, self._edits, self._dumps = report.slices, edits, _Dumps(report)

    def kept(self, position: int) -> SliceJudgement | None:
        result = self._before[position]
        plan = result.plan
        golden = {name for match in plan.matches for name in match.golden} | set(plan.unmatched_golden)
        target = {name for match in plan.matches for name in match.target} | set(plan.unmatched_target)
        if is_touched(self._edits, golden, target):
            return None
        notes = (*plan.notes, *refusals(self._edits, golden, target))
        self.keep(position, replace(result, plan=replace(plan, notes=notes)), Clock())
        return without_details(result.judgement)

    def read(self, position: int) -> tuple[Slice, Slice]:
        return self._dumps.read(self._before[position].plan)

    def measure(self, position: int, plan: SlicePlan) -> list[Measurement]:
        before = self._before[position]
        known = dict(zip(map(identity, before.plan.pairs), before.measurements, strict=True))
        return measure_missing(plan, list(map(identity, plan.pairs)), known)


class _Dumps:
    """The two dumps of a report, opened again when they are needed."""

    def __init__(self, report: Report) -> None:
        self._paths = path_of(report.golden.path), path_of(report.target.path)
        self._dumps: tuple[Dump, Dump] | None = None

    def read(self, plan: SlicePlan) -> tuple[Slice, Slice]:
        if self._dumps is None:
            self._dumps = open_dump(self._paths[0]), open_dump(self._paths[1])
        return read_slice(self._dumps[0], plan.golden), read_slice(self._dumps[1], plan.target)
