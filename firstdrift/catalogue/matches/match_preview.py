"""Try edits on a comparison without writing anything: checks, previews, suggestions, plans.

bench = load_bench(session, pair, options)      two slices, matched by all rules but the edits
effect(session, state, edits, benches.get)      what the edits would change, in counts and findings
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.baselines import load_noise, noise_places
from firstdrift.catalogue.comparisons.measurements import load_measurements, pair_keys
from firstdrift.catalogue.comparisons.records import Comparison, get_comparison
from firstdrift.catalogue.comparisons.results import SlicePlace
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair, slice_pairs_of
from firstdrift.catalogue.comparisons.trained import whole_judgements
from firstdrift.catalogue.comparisons.tree import all_pairs, all_rows
from firstdrift.catalogue.dumps.nodes import nodes_named
from firstdrift.catalogue.dumps.records import get_slice, ids_of_slices, load_slice
from firstdrift.catalogue.matches.match_sets import MatchSet, laid_over
from firstdrift.catalogue.tables import JobState
from firstdrift.comparison.clock import Clock
from firstdrift.comparison.levels import at_level
from firstdrift.comparison.rematch import Changes, Effect, refusals, require_applied
from firstdrift.comparison.report import Options, SliceResult
from firstdrift.comparison.session import ComparisonSession, Planned, in_time
from firstdrift.comparison.stages import Measure, measure_missing, measure_pairs
from firstdrift.errors import LimitError, SettingsError
from firstdrift.matching.manual.edits import Edit
from firstdrift.matching.match import find_matches, lay_edits_on, lay_edits_over
from firstdrift.matching.pairing import Pairing
from firstdrift.matching.plan import Messages, SlicePlan, TensorPair
from firstdrift.matching.structure.suggestions import Suggestion, suggest
from firstdrift.metrics.measurement import Measurement, MeasurementKind
from firstdrift.model.slice import Coordinates, Slice, SliceListing
from firstdrift.parallel.slices import Merge, read_merged
from firstdrift.verdict.baseline import Noise
from firstdrift.verdict.judgement import Finding, SliceJudgement
from firstdrift.verdict.tree import build_rows
from firstdrift.wording.message import Message

PREVIEW_SECONDS: Final = 1.0
"""After so long a preview looks at no further slice."""

PREVIEW_BYTES: Final = 32 * 2**20
"""More data than this is not read for a preview."""

_NOWHERE: Final = Path()
_NOT_READ: Final = Measurement(MeasurementKind.INCOMPARABLE, Message.of("catalogue.not_read_for_preview"))

_NO_SLICE: Final = Message.of("matching.edit.no_slice")
"""Why an edit could be applied to no slice at all."""


class Bench(Struct, frozen=True, eq=False):
    """Two indexed slices, matched by all rules but the edits.

    Attributes:
        slice_ids: ids of the golden and the target slice.
        options: what the comparison was asked for; its edits are laid over by `plan`.
    """

    slice_ids: tuple[int, int]
    golden: Slice
    target: Slice
    options: Options
    work: Pairing
    notes: Messages

    def plan(self, edits: Iterable[Edit]) -> SlicePlan:
        """Return the plan with edits laid over."""
        plan = lay_edits_over(self.golden, self.target, self.work.copy(), self.notes, edits)
        return at_level(plan, self.golden, self.target, self.options.level)

    def planned(self, edits: Iterable[Edit]) -> Planned:
        """Return the plan with edits laid over, and the two trees laid over each other."""
        plan = self.plan(edits)
        return Planned(plan, build_rows(self.golden, self.target, plan))


Benches = Callable[[SlicePair], Bench]
"""Gives the bench of a pair of slices, made or remembered."""


def load_bench(session: Session, pair: SlicePair, options: Options, merge: Merge | None = None) -> Bench:
    """Load two indexed slices and match them by all rules but the edits."""
    golden, target = (_load(session, one, merge) for one in (pair.golden_slice_id, pair.target_slice_id))
    work, notes = find_matches(golden, target, options.matching)
    return Bench((pair.golden_slice_id, pair.target_slice_id), golden, target, options, work, notes)


def _load(session: Session, slice_id: int, merge: Merge | None) -> Slice:
    """Restore a slice; one that was merged from ranks is merged again, for its parts say where data lie."""
    known = get_slice(session, slice_id)
    if known.merged is None:
        return load_slice(session, slice_id)
    ids = ids_of_slices(session, known.dump_id)
    return read_merged(known.merged, lambda part: load_slice(session, ids[part]), merge)


class State(Struct, frozen=True):
    """A match set as it is to be changed.

    Attributes:
        base: the comparison it is laid over.
        edits: in force.
        pairs: slice pairs of the comparison that the set is laid over.
        judged: what was said of each slice pair with the edits in force, by position; empty while the
            results of that version are being made.
    """

    base: Comparison
    edits: tuple[Edit, ...]
    pairs: tuple[SlicePair, ...]
    judged: Mapping[int, SliceJudgement]


def state_of(session: Session, known: MatchSet) -> State:
    """Look up what a match set is laid over, and what was said of it.

    Raises:
        SettingsError: nothing has been compared yet.
    """
    base = get_comparison(session, known.comparison_id)
    pairs = slice_pairs_of(session, base.id)
    if not pairs:
        raise SettingsError(
            Message.of("catalogue.nothing_compared"), hint=Message.of("catalogue.hint.wait_for_comparison")
        )
    results = known.results()
    judged: dict[int, SliceJudgement] = {}
    if results is not None and get_comparison(session, results).state is JobState.DONE:
        judged = whole_judgements(session, results)
    return State(base, base.options.matching.edits + known.edits(), pairs, judged)


def check_edits(session: Session, state: State, edits: Sequence[Edit], bench_of: Benches) -> None:
    """Make sure that each edit can be applied to a slice, on top of those in force.

    Raises:
        SettingsError: one cannot, and why.
    """
    waiting = list(edits)
    notes = []
    for pair in state.pairs:
        if not touches(session, waiting, pair.golden_slice_id, pair.target_slice_id):
            notes.append(tuple(edit.refused(_NO_SLICE) for edit in waiting))
            continue
        notes.append(bench_of(pair).plan((*state.edits, *edits)).notes)
        waiting = [edit for edit in waiting if any(map(edit.is_refused, notes[-1]))]
        if not waiting:
            return
    # What a slice says of the nodes it has tells more than that others lack them.
    notes.sort(key=lambda of_slice: any(note.arguments.get("why") == _NO_SLICE for note in of_slice))
    require_applied(waiting, notes)


def touches(session: Session, edits: Iterable[Edit], golden: int, target: int) -> bool:
    """Tell whether edits name any node of a pair of indexed slices."""
    edits = tuple(edits)
    names = ([name for edit in edits for name in getattr(edit, side)] for side in ("golden", "target"))
    return any(map(partial(_has_any, session), (golden, target), names))


def _has_any(session: Session, slice_id: int, names: Sequence[str]) -> bool:
    return bool(names) and bool(nodes_named(session, slice_id, names))


def unchanged_slice(session: Session, place: SlicePlace, options: Options) -> tuple[int, Messages] | None:
    """Find a slice pair that a match set changes nothing of, in the comparison that the set is laid over.

    Return its id, and the remarks on edits whose nodes it lacks; None if there is none, or it has some of
    these nodes.
    """
    known = laid_over(session, place.comparison_id)
    if known is None:
        return None
    comparison = get_comparison(session, known.comparison_id)
    base = comparison.options
    edits = options.matching.edits[len(base.matching.edits) :]
    if replace(options, matching=replace(options.matching, edits=base.matching.edits)) != base:
        return None
    if touches(session, edits, place.golden, place.target):
        return None
    here = (place.golden, place.target)
    for pair in slice_pairs_of(session, known.comparison_id):
        if (pair.golden_slice_id, pair.target_slice_id) == here and pair.revision == comparison.revision:
            return pair.id, refusals(edits, (), ())
    return None


def suggest_for(bench: Bench, state: State, asked: Mapping[str, str | None]) -> tuple[Suggestion, ...]:
    """Rank the partners that a node may have, with the edits in force.

    Args:
        bench: the slices.
        state: the match set.
        asked: the name of a `golden` or of a `target` node.

    Raises:
        SettingsError: not exactly one node is named, or there is no such node.
    """
    work = bench.work.copy()
    lay_edits_on(work, state.edits)
    return suggest(work, golden=asked.get("golden"), target=asked.get("target"))


def effect(
    session: Session,
    state: State,
    edits: Sequence[Edit],
    bench_of: Benches,
    *,
    first: int = 0,
    seconds: float = PREVIEW_SECONDS,
    measure: Measure = measure_pairs,
) -> Effect:
    """Say what edits would change, without writing anything.

    Slices are looked at until the time is over, the one at position `first` whatever it takes.

    Raises:
        SettingsError: an edit can be applied to no slice.
    """
    check_edits(session, state, edits, bench_of)
    measuring = _Measuring(session, measure)
    old, new = (_Version(session, state, more, bench_of, measuring) for more in ((), tuple(edits)))
    options = state.base.options
    before, after = (
        ComparisonSession(version, options.rules, options.thresholds, known=state.judged)
        for version in (old, new)
    )
    looked_at: list[int] = []
    changes = Changes()
    notes: dict[Message, None] = {}
    for position in in_time([pair.position for pair in state.pairs], first, seconds):
        looked_at.append(position)
        before.look_at(position)
        after.look_at(position)
        if (changed := new.plan_of(position)) is None:
            continue
        plain = old.plan_of(position) or old.planned(position).plan
        changes.add(plain, changed)
        notes |= dict.fromkeys(note for note in changed.notes if note not in plain.notes)
    left_out = len(state.base.unmatched_golden)
    findings = before.conclude(left_out), after.conclude(left_out)
    return Effect(
        before=before.counts(looked_at),
        after=after.counts(looked_at),
        findings_before=findings[0],
        findings_after=findings[1],
        added=tuple(changes.added),
        removed=tuple(changes.removed),
        new_pairs=changes.new_pairs,
        unmeasured=new.unmeasured,
        notes=tuple(notes),
        slices=len(looked_at),
        of_slices=len(state.pairs),
    )


class PreviewStorage:
    """The part of a storage (`firstdrift.comparison.session.Storage`) that all previews share."""

    def __init__(self, session: Session, baseline: int | None) -> None:
        """Look up where the noise of a healthy run is.

        Raises:
            SettingsError: that comparison is gone.
        """
        self.session = session
        self._noise_places = noise_places(session, baseline)

    def kept(self, position: int) -> SliceJudgement | None:
        """Return what was said of a pair before: it is to be judged anew."""
        del position
        return None

    def noise(self, golden: Coordinates) -> Noise:
        """Return what a healthy run shows of a golden slice."""
        return load_noise(self.session, self._noise_places, golden)

    def shown(self, position: int, pair: TensorPair, measured: Measurement) -> Messages:
        """Look at nothing: a preview reads no dump."""
        del position, pair, measured
        return ()

    def keep(self, position: int, result: SliceResult, clock: Clock) -> None:
        """Keep nothing."""

    def settle(self, position: int, bad: Finding) -> None:
        """Change nothing that was kept."""


class _Version(PreviewStorage):
    """The pairs of slices of a match set, with further edits laid over, or none.

    Attributes:
        unmeasured: how many pairs of tensors were not measured: there is too much data.
    """

    def __init__(
        self,
        session: Session,
        state: State,
        edits: tuple[Edit, ...],
        bench_of: Benches,
        measuring: "_Measuring",
    ) -> None:
        super().__init__(session, state.base.options.baseline)
        self.unmeasured = 0
        self._pairs = {pair.position: pair for pair in state.pairs}
        self._judged, self._edits_before, self._edits = state.judged, state.edits, edits
        self._bench_of, self._measuring = bench_of, measuring
        self._planned: tuple[int, SlicePlan] | None = None

    def kept(self, position: int) -> SliceJudgement | None:
        pair = self._pairs[position]
        is_touched = touches(self.session, self._edits, pair.golden_slice_id, pair.target_slice_id)
        return None if is_touched else self._judged.get(position)

    def planned(self, position: int, clock: Clock | None = None) -> Planned:
        del clock
        planned = self._bench_of(self._pairs[position]).planned((*self._edits_before, *self._edits))
        self._planned = position, planned.plan
        return planned

    def plan_of(self, position: int) -> SlicePlan | None:
        """Return the plan of a pair, if it was the last that was judged."""
        return self._planned[1] if self._planned is not None and self._planned[0] == position else None

    def measured(self, position: int, plan: SlicePlan) -> list[Measurement]:
        known = self._measuring.known(self._pairs[position])
        found = measure_missing(plan, pair_keys(plan.pairs), known, self._measuring.measure)
        self.unmeasured += sum(one is _NOT_READ for one in found)
        return found


class _Measuring:
    """Measures what has not been measured before, as long as few bytes are read."""

    def __init__(self, session: Session, measure: Measure) -> None:
        self._session, self._measure = session, measure
        self._bytes_left = PREVIEW_BYTES
        self._known: tuple[int, Mapping[bytes, Measurement]] | None = None

    def known(self, pair: SlicePair) -> Mapping[bytes, Measurement]:
        """Return what has been measured of a pair of slices."""
        if self._known is None or self._known[0] != pair.position:
            found = load_measurements(self._session, pair.golden_slice_id, pair.target_slice_id)
            self._known = pair.position, found
        return self._known[1]

    def measure(self, plan: SlicePlan, start: int, stop: int) -> list[Measurement]:
        """Measure pairs of a plan; of those that would take too many bytes, say that they were not."""
        pairs = plan.pairs[start:stop]
        small = [pair for pair in pairs if self._may_read(pair.data_bytes)]
        new = SlicePlan(plan.golden, plan.target, (), tuple(small), (), ())
        try:
            measured = self._measure(new, 0, len(small)) if small else []
        except LimitError as error:
            measured = [Measurement(MeasurementKind.INCOMPARABLE, error.message) for _ in small]
        known = dict(zip(map(id, small), measured, strict=True))
        return [known.get(id(pair), _NOT_READ) for pair in pairs]

    def _may_read(self, size: int) -> bool:
        if size > self._bytes_left:
            return False
        self._bytes_left -= size
        return True


def load_plan(session: Session, pair: SlicePair) -> SlicePlan:
    """Restore the plan of a slice pair, to export what was matched."""
    rows = list(all_rows(session, pair.id))
    matches = [(row.tree.match, row.match) for row in rows if row.match is not None]
    free = [row.tree for row in rows if row.match is None]
    return SlicePlan(
        golden=SliceListing(pair.golden, _NOWHERE),
        target=SliceListing(pair.target, _NOWHERE),
        matches=tuple(map(itemgetter(1), sorted(matches, key=itemgetter(0)))),
        pairs=tuple(map(attrgetter("plan"), all_pairs(session, pair.id))),
        unmatched_golden=tuple(chain.from_iterable(map(attrgetter("golden"), free))),
        unmatched_target=tuple(chain.from_iterable(map(attrgetter("target"), free))),
        unmatched_golden_tensors=pair.unmatched_golden,
        unmatched_target_tensors=pair.unmatched_target,
        notes=pair.notes,
    )


def plans_of(session: Session, comparison_id: int) -> tuple[SlicePlan, ...]:
    """Restore the plans of all slice pairs of a comparison.

    Raises:
        SettingsError: it is not finished.
    """
    if get_comparison(session, comparison_id).state is not JobState.DONE:
        raise SettingsError(
            Message.of("catalogue.results_not_finished"), hint=Message.of("catalogue.hint.try_when_finished")
        )
    return tuple(load_plan(session, pair) for pair in slice_pairs_of(session, comparison_id))
