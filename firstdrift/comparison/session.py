"""One comparison as it goes on: pair of slices after pair of slices, then all of them together.

    planned ─▶ measured ─▶ judged ─▶ kept       each pair of slices, unless what was said of it still holds
    settled ─▶ concluded                        all of them

Whoever compares goes through the same session: `compare`, `rematch`, the worker's job and the previews.
What differs between them is the `Storage`, which knows where slices come from, what was measured before
and where results are kept.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.comparison.clock import Clock
from firstdrift.comparison.report import SliceResult
from firstdrift.groups import known
from firstdrift.matching.plan import Messages, SlicePlan, TensorPair
from firstdrift.metrics.measurement import Measurement, MeasurementKind
from firstdrift.model.slice import Coordinates
from firstdrift.verdict.baseline import Noise
from firstdrift.verdict.cause import most_telling, seen_from, tells_cause, with_causes, with_values
from firstdrift.verdict.comparable import When, time_of
from firstdrift.verdict.earlier import Context, Earlier, without_parameters
from firstdrift.verdict.findings import AllSlices, judge_after
from firstdrift.verdict.input_difference import with_shown
from firstdrift.verdict.judgement import OWN_RULES, Counts, Finding, Findings, SliceJudgement
from firstdrift.verdict.movable_thresholds import DEFAULTS, Thresholds
from firstdrift.verdict.series import with_bad_output
from firstdrift.verdict.tree import TreeRow

_STEPS_REMEMBERED: Final = 2
"""Of each rank: the last step, and the one before it, as a step may consist of several slices."""


class Planned(Struct, frozen=True, eq=False):
    """What of a pair of slices is compared, and their two trees laid over each other."""

    plan: SlicePlan
    rows: tuple[TreeRow, ...]

    def label_of(self, pair: int) -> str:
        """Name the node that a pair belongs to, as the tree does."""
        node = self.plan.pairs[pair].target_node
        return next((row.label for row in self.rows if node in row.target), node)


class Prepared(Struct, frozen=True, eq=False):
    """A pair of slices that was measured, and waits to be judged; the clock says how long that took."""

    planned: Planned
    measured: tuple[Measurement, ...]
    clock: Clock


class Storage(Protocol):
    """Where a session finds pairs of slices, and where it keeps what it says of them.

    Pairs of slices are named by their position in the comparison.
    """

    def kept(self, position: int) -> SliceJudgement | None:
        """Return what was said of a pair before, if it still holds."""

    def planned(self, position: int, clock: Clock) -> Planned | None:
        """Return what is compared of a pair; None if one of the slices is damaged."""

    def measured(self, position: int, plan: SlicePlan) -> Sequence[Measurement]:
        """Return the measurement of each pair of tensors of a plan."""

    def noise(self, golden: Coordinates) -> Noise:
        """Return what a healthy run shows of a golden slice."""

    def shown(self, position: int, pair: TensorPair, measured: Measurement) -> Messages:
        """Say what the values of a pair of tensors of a pair of slices show, if they are looked at."""

    def keep(self, position: int, result: SliceResult, clock: Clock) -> None:
        """Keep what was found of a pair; the clock says how long it took."""

    def settle(self, position: int, bad: Finding) -> None:
        """Change what was kept of a pair: its logits, or last output, are bad, as the other slices show."""


class Judgements(dict[int, SliceJudgement]):
    """What is said of pairs of slices, by position, without rows and pairs of tensors."""

    def __init__(self, known: Mapping[int, SliceJudgement]) -> None:
        """Begin with what is known."""
        super().__init__(known)
        self._trained: defaultdict[int, dict[When, list[int]]] = defaultdict(dict)
        self._earlier, self._last = Earlier(), -1
        self._is_in_order = not known

    @classmethod
    def after(cls, earlier: Earlier) -> "Judgements":
        """Begin after pairs of which it is known what they bear on the next."""
        begun = cls({})
        begun._earlier = earlier
        return begun

    def add(self, position: int, said: SliceJudgement) -> None:
        """Add what is said of a pair, and forget parameters that no later step is held against."""
        self[position] = said
        self._is_in_order &= position > self._last
        self._last = max(self._last, position)
        self._earlier.add(said)
        if said.training is None:
            return
        steps = self._trained[said.coordinates.sort_key()[-1]]
        steps.setdefault(time_of(said.coordinates), []).append(position)
        for old in sorted(steps)[:-_STEPS_REMEMBERED]:
            for at in filter(self.__contains__, steps.pop(old)):
                self[at] = without_parameters(self[at])

    def before(self, position: int) -> Earlier:
        """Give what is said of pairs before one."""
        if self._is_in_order and self._last < position:
            return self._earlier
        return Earlier(said for at, said in sorted(self.items()) if at < position)


class ComparisonSession:
    """Judges pairs of slices, each knowing what was said of those that ran before.

    What is measured does not depend on what is said of others, so pairs may be prepared side by side
    (`firstdrift.comparison.side_by_side`); judged they are in order.

    Attributes:
        judged: what is said of each pair, by position, without rows and pairs of tensors.
        damaged: the positions of pairs of which a slice could not be read.
        clock: how long the stages took.
    """

    def __init__(
        self,
        storage: Storage,
        rules: str = OWN_RULES,
        limits: Thresholds = DEFAULTS,
        *,
        known: Mapping[int, SliceJudgement] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Begin; what is `known` is said of pairs until they are looked at."""
        self.judged = Judgements(known or {})
        self.damaged: list[int] = []
        self.clock = clock or Clock()
        self._storage = storage
        self._rules, self._limits = rules, limits

    def run(self, positions: Iterable[int]) -> None:
        """Look at pairs of slices, one after the other."""
        for position in positions:
            self.look_at(position)

    def look_at(self, position: int) -> None:
        """Judge a pair of slices, unless what was said of it still holds."""
        if self.recall(position):
            return
        prepared = self.prepare(position)
        if prepared is None:
            self.damaged.append(position)
        else:
            self.judged.add(position, self.judge(position, prepared))

    def known(self, position: int) -> SliceJudgement | None:
        """Return what was said of a pair of slices before, if it still holds."""
        return self._storage.kept(position)

    def recall(self, position: int) -> bool:
        """Take over what was said of a pair of slices, if it still holds; tell whether it does."""
        said = self.known(position)
        if said is not None:
            self.judged.add(position, said)
        return said is not None

    def prepare(self, position: int) -> Prepared | None:
        """Match and measure a pair of slices; None if one of them is damaged."""
        clock = Clock()
        planned = self._storage.planned(position, clock)
        if planned is None:
            self.clock.add(clock.seconds)
            return None
        with clock.measure("measure"):
            measured = tuple(self._storage.measured(position, planned.plan))
        return Prepared(planned, measured, clock)

    def judge(self, position: int, prepared: Prepared) -> SliceJudgement:
        """Judge a pair of slices, knowing what is said of those before, and keep what was found."""
        planned, measured, clock = prepared.planned, prepared.measured, prepared.clock
        before = self.judged.before(position)
        context = before.context(planned.plan.target.coordinates)
        with clock.measure("measure"):
            judged = judge_after(
                before,
                planned.plan,
                planned.rows,
                measured,
                self._rules,
                limits=self._limits,
                noise=self._storage.noise(planned.plan.golden.coordinates),
            )
            is_own = self._rules == OWN_RULES  # other tools do not say where an error begins
            if is_own and judged.origins:
                looked_at = self._look_closely(
                    position, judged, planned, measured, is_first=not context.has_origins
                )
                judged = with_causes(looked_at)
            if context.are_alike:
                judged = self._look_at_input(position, judged, planned, measured)
        self._storage.keep(position, SliceResult(planned.plan, planned.rows, measured, judged), clock)
        self.clock.add(clock.seconds)
        return without_details(judged)

    def _look_closely(
        self,
        position: int,
        judged: SliceJudgement,
        planned: Planned,
        measured: Sequence[Measurement],
        *,
        is_first: bool,
    ) -> SliceJudgement:
        """Say of the first node at which an error begins what its values show; statistics are at hand."""
        first = (judged.own_origins or judged.origins)[0]
        shown: Messages = ()
        for at in dict.fromkeys(known((first.entered, judged.rows[first.row].worst_pair))):
            if tells_cause(shown) or not (is_first or measured[at].kind is MeasurementKind.STATISTICS):
                break
            found = self._storage.shown(position, planned.plan.pairs[at], measured[at])
            shown = most_telling(shown, seen_from(first, at, found, planned.label_of(at)))
        if not shown:
            return judged
        seen = with_values(first, shown)
        return replace(judged, origins=tuple(seen if one is first else one for one in judged.origins))

    def _look_at_input(
        self, position: int, judged: SliceJudgement, planned: Planned, measured: Sequence[Measurement]
    ) -> SliceJudgement:
        """Say what the values of the first input that differs show."""
        difference = judged.input_difference
        if difference is None or difference.pair is None:
            return judged
        at = difference.pair
        shown = self._storage.shown(position, planned.plan.pairs[at], measured[at])
        return replace(judged, input_difference=with_shown(difference, shown))

    def context(self, position: int, coordinates: Coordinates) -> Context:
        """Say what was said of pairs before bears on the judgement of one."""
        return self.judged.before(position).context(coordinates)

    def conclude(self, left_out: int = 0) -> Findings:
        """Let what is said of each pair agree with what all of them show, and say what that is.

        Args:
            left_out: how many slices of the golden dump have no partner.
        """
        with self.clock.measure("measure"):
            together = AllSlices(list(self.judged.values()))
            for position, judged in list(self.judged.items()):
                if (finding := together.bad_outputs.get(judged.coordinates)) is not None:
                    self._settle(position, judged, finding)
            return together.conclude(list(self.judged.values()), left_out + len(self.damaged))

    def _settle(self, position: int, judged: SliceJudgement, bad: Finding) -> None:
        settled = with_bad_output(judged, bad)
        if settled is not judged:
            self.judged[position] = settled
            self._storage.settle(position, bad)

    def counts(self, positions: Iterable[int] | None = None) -> Counts:
        """Sum up the counts of some pairs of slices, or of all."""
        chosen = self.judged if positions is None else positions
        return sum((self.judged[position].counts for position in chosen), Counts())


def without_details(judgement: SliceJudgement) -> SliceJudgement:
    """Leave out the rows and pairs: enough to conclude from, and small."""
    return replace(judgement, rows=(), pairs=())


def in_time(positions: Iterable[int], first: int, seconds: float) -> Iterator[int]:
    """Give positions until the time is over, `first` before all others and whatever it takes."""
    until = time.monotonic() + seconds
    for count, position in enumerate(sorted(positions, key=lambda at: at != first)):
        if count and time.monotonic() > until:
            return
        yield position
