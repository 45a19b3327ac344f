"""Try other rules on a comparison without writing anything: what they would flag, before and after.

    measured = load_measured(session, pair, options)                what was measured of a slice pair
    try_rules(session, comparison, pairs, judging, measured.get)    its verdicts under other rules

Nothing is measured and no tensor is read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.kept import row_of_match
from firstdrift.catalogue.comparisons.measurements import load_measurements, pair_keys
from firstdrift.catalogue.comparisons.overview import Tally, load_overview, tally_of
from firstdrift.catalogue.comparisons.planned import load_planned
from firstdrift.catalogue.comparisons.records import Comparison, Judging
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair
from firstdrift.catalogue.comparisons.trained import whole_judgements
from firstdrift.catalogue.dumps.nodes import dtypes_of_slices
from firstdrift.catalogue.matches.match_preview import PreviewStorage, load_bench
from firstdrift.comparison.clock import Clock
from firstdrift.comparison.in_memory import KeptResults
from firstdrift.comparison.report import Options
from firstdrift.comparison.session import ComparisonSession, Planned, in_time
from firstdrift.groups import firsts
from firstdrift.matching.plan import SlicePlan
from firstdrift.metrics.measurement import Measurement, MeasurementKind
from firstdrift.verdict.findings import conclude
from firstdrift.verdict.judgement import Findings
from firstdrift.verdict.movable_thresholds import DEFAULTS
from firstdrift.verdict.tree import TreeRow
from firstdrift.wording.message import Message

TRIAL_SECONDS: Final = 0.6
"""After so long no further slice is looked at; the first one is, whatever it takes."""

_UNMEASURED: Final = Measurement(MeasurementKind.INCOMPARABLE, Message.of("catalogue.not_measured"))


class Measured(Struct, frozen=True, eq=False):
    """What judging a slice pair takes.

    Attributes:
        missing: how many pairs have not been measured by this version; they count as incomparable.
    """

    plan: SlicePlan
    rows: tuple[TreeRow, ...]
    measurements: tuple[Measurement, ...]
    missing: int


class Trial(Struct, frozen=True):
    """What other rules would say.

    Attributes:
        before: of the slices that were looked at, as they are; likewise after, under the other rules.
        of_slice: before and after, of the slice that was looked at first.
        findings_before: what the comparison says; likewise findings_after: with the slices that were looked
            at judged anew, and the others as they are.
        slices: how many were looked at, of `of_slices`.
        missing: how many pairs have not been measured by this version, and count as incomparable.
    """

    before: Tally
    after: Tally
    of_slice: tuple[Tally, Tally]
    findings_before: Findings
    findings_after: Findings
    slices: int
    of_slices: int
    missing: int = 0


MeasuredOf = Callable[[SlicePair], Measured]
"""Gives what was measured of a slice pair, loaded or remembered."""


def load_measured(session: Session, pair: SlicePair, options: Options) -> Measured:
    """Load what was measured of a slice pair.

    Its nodes are matched anew, as a worker does it, if this version has not judged it yet.
    """
    known = load_planned(session, pair)
    if known is not None:
        planned, made = known
        return Measured(planned.plan, planned.rows, made, 0)
    plain = replace(options, thresholds=DEFAULTS, baseline=None)
    bench = load_bench(session, pair, plain)
    planned = bench.planned(options.matching.edits)
    measured = load_measurements(session, *bench.slice_ids)
    measurements = tuple(measured.get(key, _UNMEASURED) for key in pair_keys(planned.plan.pairs))
    missing = sum(one is _UNMEASURED for one in measurements)
    return Measured(planned.plan, planned.rows, measurements, missing)


def try_rules(
    session: Session,
    comparison: Comparison,
    pairs: Sequence[SlicePair],
    judging: Judging,
    measured_of: MeasuredOf,
    *,
    first: int = 0,
    seconds: float = TRIAL_SECONDS,
) -> Trial:
    """Say what a comparison would say under other rules.

    Slices are looked at until the time is over, the one at position `first` whatever it takes.

    Raises:
        SettingsError: there is no such rule set, or the baseline is gone.
    """
    storage = _OtherRules(session, {pair.position: pair for pair in pairs}, judging.baseline, measured_of)
    known = whole_judgements(session, comparison.id)
    trial = ComparisonSession(storage, judging.rules, judging.thresholds, known=known)
    trial.run(in_time(known, first, seconds))
    findings_after = trial.conclude(len(comparison.unmatched_golden))
    tallies = list(storage.tallies())
    return Trial(
        before=sum(firsts(tallies), Tally()),
        after=sum((other for _, other in tallies), Tally()),
        of_slice=next(iter(tallies), (Tally(), Tally())),
        findings_before=comparison.findings or conclude(list(known.values())),
        findings_after=findings_after,
        slices=len(tallies),
        of_slices=len(pairs),
        missing=storage.missing,
    )


class _OtherRules(KeptResults, PreviewStorage):
    """Pairs of slices as they were measured.

    Attributes:
        missing: how many pairs of tensors this version has not measured.
    """

    def __init__(
        self,
        session: Session,
        pairs: Mapping[int, SlicePair],
        baseline: int | None,
        measured_of: MeasuredOf,
    ) -> None:
        KeptResults.__init__(self)
        PreviewStorage.__init__(self, session, baseline)
        self.missing = 0
        self._pairs, self._measured_of = pairs, measured_of
        self._measurements: tuple[Measurement, ...] = ()

    def planned(self, position: int, clock: Clock) -> Planned:
        del clock
        found = self._measured_of(self._pairs[position])
        self.missing += found.missing
        self._measurements = found.measurements
        return Planned(found.plan, found.rows)

    def measured(self, position: int, plan: SlicePlan) -> tuple[Measurement, ...]:
        del position, plan
        return self._measurements

    def tallies(self) -> Iterator[tuple[Tally, Tally]]:
        """Count what is said of each pair of slices that was judged, and what would be said."""
        for position, result in self.results.items():
            rows = row_of_match(result)
            judged = zip(
                (rows[pair.match] for pair in result.plan.pairs), result.judgement.pairs, strict=True
            )
            yield (
                stored_tally(self.session, self._pairs[position]),
                tally_of(result.judgement, result.judgement.rows, judged),
            )


def as_it_is(session: Session, comparison: Comparison, pairs: Sequence[SlicePair], first: int = 0) -> Trial:
    """Say what a comparison says under the rules in force: what `try_rules` gives, without judging anew."""
    tallies = {pair.position: stored_tally(session, pair) for pair in pairs}
    whole = sum(tallies.values(), Tally())
    findings = comparison.findings or conclude([pair.judgement for pair in pairs])
    here = tallies.get(first, Tally())
    return Trial(whole, whole, (here, here), findings, findings, len(pairs), len(pairs))


def stored_tally(session: Session, pair: SlicePair) -> Tally:
    """Count what is said of a slice as it is."""
    return load_overview(session, pair.id).tally


def dtypes_of(session: Session, pair: SlicePair) -> frozenset[str]:
    """List the dtypes of the tensors of a slice pair."""
    return dtypes_of_slices(session, (pair.golden_slice_id, pair.target_slice_id))
