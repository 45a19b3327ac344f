"""From the judgements of all slices to what is said first: token, node, rank."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from msgspec.structs import replace

from firstdrift.groups import known
from firstdrift.matching.plan import SlicePlan
from firstdrift.metrics.measurement import Measurement, MeasurementKind
from firstdrift.model.slice import Coordinates
from firstdrift.parallel.point_to_point import is_communication
from firstdrift.verdict.baseline import QUIET, Noise
from firstdrift.verdict.bitwise import BITWISE, conclude_bitwise
from firstdrift.verdict.communication import Explained, explain
from firstdrift.verdict.comparable import by_input, in_order, series_of, time_of
from firstdrift.verdict.confidence import Confidence, seen_in
from firstdrift.verdict.earlier import Earlier
from firstdrift.verdict.evidence import evidence_after_choice, evidence_of
from firstdrift.verdict.judge import judge
from firstdrift.verdict.judgement import (
    OWN_RULES,
    Finding,
    Findings,
    InputDifference,
    NodeClass,
    SliceJudgement,
    SystematicDifference,
    Ties,
    Verdict,
)
from firstdrift.verdict.movable_thresholds import DEFAULTS, Thresholds
from firstdrift.verdict.not_judged import with_coverage
from firstdrift.verdict.rank_finding import rank_of_input, rank_of_node, rank_of_token
from firstdrift.verdict.summary import summarise
from firstdrift.verdict.systematic import OF_WEIGHTS
from firstdrift.verdict.tokens import bad_logits, drift_limit, first_bad_token, how_far_off
from firstdrift.verdict.tree import TreeRow
from firstdrift.wording.message import Message

_SUSPECTS = 10


def conclude(judgements: Sequence[SliceJudgement]) -> Findings:
    """Say what a comparison found. Rows and pairs of the judgements are not looked at."""
    return AllSlices(judgements).conclude(judgements)


@dataclass(frozen=True, eq=False)
class AllSlices:
    """What the slices of a comparison show together; each part is worked out once."""

    judgements: Sequence[SliceJudgement]

    @cached_property
    def _by_input(self) -> tuple[list[InputDifference], list[SliceJudgement]]:
        inputs, comparable = by_input(in_order(self.judgements))
        return inputs, _with_weak_origins(comparable)

    @cached_property
    def _series(self) -> list[list[SliceJudgement]]:
        return series_of(self._by_input[1])

    @cached_property
    def _origins(self) -> list[Finding]:
        inputs, comparable = self._by_input
        return _with_slices(_origins(comparable, inputs))

    @cached_property
    def _bad_tokens(self) -> list[Finding]:
        tokens = known(map(first_bad_token, self._series))
        return sorted(tokens, key=lambda token: token.coordinates.sort_key())

    @cached_property
    def _drift(self) -> SliceJudgement | None:
        """The first slice whose output drifted, where no error begins at a node."""
        return None if self._origins else _gradual_drift(self._by_input[1])

    @cached_property
    def _drifted(self) -> dict[Coordinates, Finding]:
        """The output of that slice: no source, but no agreement either."""
        drift = self._drift
        if drift is None or drift.logits is None:
            return {}
        reason = Message.of("finding.drifted", off=how_far_off(drift))
        return {drift.coordinates: replace(drift.logits, verdict=Verdict.ERROR, reasons=(reason,))}

    @cached_property
    def bad_outputs(self) -> Mapping[Coordinates, Finding]:
        """Logits, or last outputs, that are bad although no error begins at a node of their slice.

        A slice alone does not tell: they are held against the tokens before, or drifted. They go by the
        coordinates of their slice.
        """
        return self._drifted | {
            judged.coordinates: finding for series in self._series for judged, finding in bad_logits(series)
        }

    def conclude(self, settled: Sequence[SliceJudgement], left_out: int = 0) -> Findings:
        """Say what the comparison found, once bad outputs have been settled in its judgements.

        Args:
            settled: the judgements.
            left_out: how many slices of the golden dump were not compared.
        """
        return with_coverage(self._conclude(settled), settled, left_out)

    def _conclude(self, settled: Sequence[SliceJudgement]) -> Findings:
        if settled and settled[0].rules == BITWISE:
            return conclude_bitwise(settled)
        ordered, inputs, origins = in_order(settled), self._by_input[0], self._origins
        bad_tokens = self._bad_tokens
        bad_token, bad_node = next(iter(bad_tokens), None), next(iter(origins), None)
        suspects = list(self._drifted.values()) or _suspects(origins)
        systematic = _systematic(ordered)
        rank = self._rank(bad_tokens, ordered)
        bad_node = None if bad_node is None else _with_rank(bad_node, rank)
        return Findings(
            summary=summarise(bad_token, bad_node, self._drift, inputs, ordered, systematic),
            first_bad_token=bad_token,
            first_bad_node=bad_node,
            input_differs=tuple(inputs),
            rank_finding=rank,
            suspects=tuple(suspects[:_SUSPECTS]),
            overflow=tuple(overflow for judged in ordered for overflow in judged.overflow),
            systematic=systematic,
            ties=sum((one.ties for one in ordered), Ties()).said,
            unlike=_unlike(ordered),
        )

    def _rank(self, bad_tokens: Sequence[Finding], ordered: Sequence[SliceJudgement]) -> Message | None:
        """Say on which rank the first bad node began, or where none did, the inputs or the tokens differ."""
        inputs, origins = self._by_input[0], self._origins
        rank = rank_of_node(origins[0], origins, ordered) if origins else rank_of_input(inputs, ordered)
        if rank is None and bad_tokens:
            return rank_of_token(bad_tokens[0], bad_tokens, ordered)
        return rank


def _unlike(ordered: Sequence[SliceJudgement]) -> Message | None:
    return ordered[0].unlike if ordered and all(judged.unlike for judged in ordered) else None


def _with_rank(bad_node: Finding, rank: Message | None) -> Finding:
    """Say beside the cause of a finding that it is there on one rank alone."""
    if not bad_node.cause or rank is None or rank.id != "rank.began":
        return bad_node
    only = Message.of("cause.only_rank", rank=bad_node.coordinates.rank)
    return replace(bad_node, cause=(*bad_node.cause, only))


def judge_after(
    earlier: Earlier | Iterable[SliceJudgement],
    plan: SlicePlan,
    rows: Sequence[TreeRow],
    measurements: Sequence[Measurement],
    rules: str = OWN_RULES,
    *,
    limits: Thresholds = DEFAULTS,
    noise: Noise = QUIET,
) -> SliceJudgement:
    """Judge a pair of slices, knowing what was said of those that ran before.

    Where a token before was another one on the two sides, nothing that differs from then on is an error.

    Raises:
        SettingsError: there is no rule set of that name.
    """
    earlier = earlier if isinstance(earlier, Earlier) else Earlier(earlier)
    context = earlier.context(plan.target.coordinates)
    evidence = evidence_of(plan, rows, measurements, limits, noise, context.before)
    # Data show which tokens it was, and all others are as they were; statistics do not.
    if context.choice is not None and any(one.kind is MeasurementKind.STATISTICS for one in measurements):
        choice, is_training = context.choice
        evidence = evidence_after_choice(evidence, None if is_training else choice)
    judged = judge(evidence, rules)
    if judged.input_difference is None and earlier.is_other_input(judged):
        return judge(evidence, rules, other_input=True)
    return judged


def _with_weak_origins(judgements: Sequence[SliceJudgement]) -> list[SliceJudgement]:
    """Let a token that shows a fault clearly confirm the weak signs of it in the tokens before."""
    confirmed: list[SliceJudgement] = []
    for series in series_of(judgements):
        after: SliceJudgement | None = None
        backwards: list[SliceJudgement] = []
        for judged in reversed(series):
            told = judged if judged.origins or after is None else _confirm(judged, after)
            backwards.append(told)
            after = told
        confirmed += reversed(backwards)
    return sorted(confirmed, key=lambda judged: judged.coordinates.sort_key())


def _confirm(judged: SliceJudgement, after: SliceJudgement) -> SliceJudgement:
    clear = {origin.target for origin in after.origins[:1]}
    weak = [
        replace(finding, verdict=Verdict.ERROR) for finding in judged.weak_origins if finding.target in clear
    ]
    if not weak:
        return judged
    origins = [replace(finding, node_class=after.origins[0].node_class) for finding in weak]
    reasons = (Message.of("finding.confirmed", reason=after.origins[0].reasons[0]),)
    return replace(judged, origins=tuple(replace(origin, reasons=reasons) for origin in origins))


def _origins(comparable: Sequence[SliceJudgement], inputs: Sequence[InputDifference]) -> list[Finding]:
    """List where errors begin, first first.

    What a communication operator receives comes from other ranks: it is no origin while another rank
    of the same step has one, or gave it what differs. Where nothing else is known of that, what the rank
    gave is where the error begins.
    """
    found: list[Finding] = []
    for when, group in groupby(comparable, lambda judged: time_of(judged.coordinates)):
        judged = list(group)
        explained = explain(judged)
        own, received = _own_and_received(judged, explained)
        given = [_given(each.source) for each in explained[:1]] if not received else []
        is_elsewhere = any(time_of(difference.coordinates) == when for difference in inputs)
        kept = own if own or is_elsewhere else received + given
        found += sorted(kept, key=lambda finding: _place(finding, judged))
    return found


def _own_and_received(
    judged: Sequence[SliceJudgement], explained: Sequence[Explained]
) -> tuple[list[Finding], list[Finding]]:
    """Tell the origins of one step that are of a rank itself from those that came, and nothing explains."""
    known = {(id(each.judged), each.node) for each in explained}
    begun = [(id(one), finding) for one in judged for finding in one.origins]
    own = [finding for _, finding in begun if not is_communication(finding.target)]
    received = [
        finding
        for rank, finding in begun
        if is_communication(finding.target) and (rank, finding.target) not in known
    ]
    return own, received


def _with_slices(origins: Sequence[Finding]) -> list[Finding]:
    """Let findings be surer that several slices show."""
    slices: dict[str, set[Coordinates]] = {}
    for finding in origins:
        slices.setdefault(finding.target, set()).add(replace(finding.coordinates, micro_step=None))
    return [
        finding
        if finding.confidence is None
        else replace(finding, confidence=_surer(finding.confidence, slices[finding.target]))
        for finding in origins
    ]


def _surer(confidence: Confidence, slices: Collection[Coordinates]) -> Confidence:
    differ = [name for name in ("step", "rank", "token") if len({getattr(one, name) for one in slices}) > 1]
    return seen_in(confidence, len(slices), differ[0] if len(differ) == 1 else None)


def _given(finding: Finding) -> Finding:
    """Make what a rank gives to others the place where an error begins."""
    reason = Message.of("finding.given", rank=finding.coordinates.rank)
    return replace(finding, verdict=Verdict.ERROR, node_class=NodeClass.PROPAGATED, reasons=(reason,))


def _suspects(origins: Sequence[Finding]) -> list[Finding]:
    """Return other places of the step where an error begins, one for each module, strongest first."""
    if not origins:
        return []
    first, *others = origins
    named = {first.module}
    found: list[Finding] = []
    for finding in others:
        if finding.coordinates.step != first.coordinates.step or (finding.module and finding.module in named):
            continue
        named.add(finding.module)
        found.append(finding)
    return sorted(found, key=lambda finding: (finding.amplification or 0.0, _error(finding)), reverse=True)


def _error(finding: Finding) -> float:
    """Return the error of a finding, by which those of equal inputs are told apart."""
    return finding.metrics.get("relative_l2", finding.metrics.get("error_bound")) or 0.0


def _place(finding: Finding, judged: Sequence[SliceJudgement]) -> tuple[int, int, int]:
    """Order the origins of one step: by the communications before, by their place on their rank, by rank."""
    for one in judged:
        for place, origin in enumerate(one.origins):
            if origin is finding:
                return (finding.epoch, place, one.coordinates.sort_key()[-1])
    return (finding.epoch, 0, 0)


def _systematic(ordered: Sequence[SliceJudgement]) -> tuple[SystematicDifference, ...]:
    """Say once what several slices show; weights that differ in one way are trained into others."""
    found: dict[str, SystematicDifference] = {}
    for judged in ordered:
        for difference in judged.systematic:
            found.setdefault("weights" if difference.rule in OF_WEIGHTS else difference.rule, difference)
    return tuple(found.values())


def _gradual_drift(comparable: Sequence[SliceJudgement]) -> SliceJudgement | None:
    for judged in comparable:
        error = judged.logits_error if judged.rules == OWN_RULES else None
        if error is not None and judged.compared_outputs > 1 and error > drift_limit(judged):
            return judged
    return None
