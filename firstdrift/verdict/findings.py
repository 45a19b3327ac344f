"""From the judgements of all slices to what is said first: token, node, rank."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby

from msgspec.structs import replace

from firstdrift.matching.plan import SlicePlan
from firstdrift.metrics.measurement import Measurement
from firstdrift.model.slice import Coordinates
from firstdrift.parallel.point_to_point import is_communication
from firstdrift.verdict.baseline import QUIET, Noise
from firstdrift.verdict.communication import explain
from firstdrift.verdict.judge import judge_slice
from firstdrift.verdict.judgement import (
    OWN_RULES,
    Finding,
    Findings,
    InputDifference,
    NodeClass,
    SliceJudgement,
    Verdict,
)
from firstdrift.verdict.summary import summarise
from firstdrift.verdict.thresholds import DEFAULTS, Thresholds
from firstdrift.verdict.tokens import (
    bad_logits,
    differing_inputs,
    drift_limit,
    first_bad_token,
    how_far_off,
    prompts,
)
from firstdrift.verdict.tree import TreeRow
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import ranks_named

_SUSPECTS = 10
_WHEN = tuple[int, ...]


def conclude(judgements: Sequence[SliceJudgement]) -> Findings:
    """Say what a comparison found. Rows and pairs of the judgements are not looked at."""
    ordered = _in_order(judgements)
    inputs, comparable = _by_input(ordered)
    comparable = _with_weak_origins(comparable)
    bad_tokens = [found for series in _series(comparable) if (found := first_bad_token(series)) is not None]
    bad_token = _first(bad_tokens)
    origins = _origins(comparable, inputs)
    bad_node = origins[0] if origins else None
    drift = None if bad_node else _gradual_drift(comparable)
    suspects = _drifted(drift) if drift is not None else _suspects(origins)
    return Findings(
        summary=summarise(bad_token, bad_node, drift, inputs, ordered),
        first_bad_token=bad_token,
        first_bad_node=bad_node,
        input_differs=tuple(inputs),
        rank_finding=_rank_finding(bad_node, origins, inputs, ordered)
        or _rank_of_token(bad_token, bad_tokens, ordered),
        suspects=tuple(suspects[:_SUSPECTS]),
        overflow=tuple(overflow for judged in ordered for overflow in judged.overflow),
        unlike=ordered[0].unlike if ordered and all(judged.unlike for judged in ordered) else None,
    )


def bad_outputs(judgements: Sequence[SliceJudgement]) -> dict[Coordinates, Finding]:
    """Return logits, or last outputs, that are bad although no error begins at a node of their slice.

    A slice alone does not tell: they are held against the tokens before, or drifted. They go by the
    coordinates of their slice.
    """
    inputs, comparable = _by_input(_in_order(judgements))
    comparable = _with_weak_origins(comparable)
    found = {
        judged.coordinates: finding
        for series in _series(comparable)
        for judged, finding in bad_logits(series)
    }
    drift = None if _origins(comparable, inputs) else _gradual_drift(comparable)
    if drift is not None and drift.coordinates not in found:
        found |= {drift.coordinates: drifted for drifted in _drifted(drift)}  # noqa: B035 (one at most)
    return found


def judge_after(
    earlier: Iterable[SliceJudgement],
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
    judge = partial(judge_slice, plan, rows, measurements, rules, limits=limits, noise=noise)
    judged = judge()
    if judged.input_difference is None and _runs_on_other_input(earlier, judged):
        return judge(other_input=True)
    return judged


def _runs_on_other_input(earlier: Iterable[SliceJudgement], judged: SliceJudgement) -> bool:
    before = [one for one in earlier if _when(one.coordinates) <= _when(judged.coordinates)]
    if all(one.input_difference is None and one.golden_token == one.target_token for one in before):
        return False
    _, comparable = _by_input(_in_order([*before, judged]))
    return not any(one is judged for one in comparable)


def _in_order(judgements: Iterable[SliceJudgement]) -> list[SliceJudgement]:
    return sorted(judgements, key=lambda judged: judged.coordinates.sort_key())


def _by_input(ordered: Sequence[SliceJudgement]) -> tuple[list[InputDifference], list[SliceJudgement]]:
    """Return where inputs differ, and the slices that can be compared although they do.

    Those of different models cannot.
    """
    by_prompt = _prompts(ordered)
    inputs = [
        difference for split in by_prompt for prompt in split for difference in differing_inputs(prompt)
    ]
    inputs.sort(key=lambda difference: difference.coordinates.sort_key())
    restarts = sorted({_when(prompt[0].coordinates) for split in by_prompt for prompt in split[1:]})
    alike = [judged for judged in ordered if judged.unlike is None]
    return inputs, _comparable(alike, inputs, restarts)


def prompt_starts(judgements: Sequence[SliceJudgement]) -> tuple[Coordinates, ...]:
    """Return the slices at which a further prompt begins, in order."""
    starts = [prompt[0].coordinates for split in _prompts(judgements) for prompt in split[1:]]
    return tuple(sorted(starts, key=Coordinates.sort_key))


def _prompts(judgements: Iterable[SliceJudgement]) -> list[list[list[SliceJudgement]]]:
    return [prompts(series) for series in _series(judgements)]


def _series(judgements: Iterable[SliceJudgement]) -> list[list[SliceJudgement]]:
    """Group judgements by step and rank, tokens ascending."""

    def key(judged: SliceJudgement) -> tuple[int, int]:
        step = judged.coordinates.step
        return (-1 if step is None else step, judged.coordinates.sort_key()[-1])

    ordered = sorted(judgements, key=lambda judged: (*key(judged), judged.coordinates.sort_key()))
    return [list(group) for _, group in groupby(ordered, key)]


def _when(coordinates: Coordinates) -> _WHEN:
    """Order in time, whatever the rank."""
    return coordinates.sort_key()[:2]


def _comparable(
    ordered: Sequence[SliceJudgement], inputs: Sequence[InputDifference], restarts: Sequence[_WHEN]
) -> list[SliceJudgement]:
    """Leave out what ran after an input differed: it is bound to differ, until a new prompt begins.

    A slice whose own input differs stays if an error begins in it before that input is read.
    """
    firsts: dict[int, _WHEN] = {}
    for difference in inputs:
        when = _when(difference.coordinates)
        prompt = bisect_right(restarts, when)
        firsts[prompt] = min(firsts.get(prompt, when), when)
    kept = []
    for judged in ordered:
        when = _when(judged.coordinates)
        first = _first_of_step_or_prompt(firsts, bisect_right(restarts, when), when)
        if first is None or when < first or (when == first and not _follows(judged, inputs)):
            kept.append(judged)
    return kept


def _first_of_step_or_prompt(firsts: Mapping[int, _WHEN], prompt: int, when: _WHEN) -> _WHEN | None:
    """Return when an input first differed in a prompt, or before in another step: training remembers it."""
    before = [first for number, first in firsts.items() if number < prompt and first[0] != when[0]]
    return min([*before, *(first for number, first in firsts.items() if number == prompt)], default=None)


def _follows(judged: SliceJudgement, inputs: Sequence[InputDifference]) -> bool:
    here = [difference for difference in inputs if _same_slice(difference.coordinates, judged.coordinates)]
    return bool(here) and (not judged.origins or here[0].golden is None)


def _same_slice(one: Coordinates, other: Coordinates) -> bool:
    return (one.step, one.rank, one.token, one.merged) == (other.step, other.rank, other.token, other.merged)


def _with_weak_origins(judgements: Sequence[SliceJudgement]) -> list[SliceJudgement]:
    """Let a token that shows a fault clearly confirm the weak signs of it in the tokens before."""
    confirmed: list[SliceJudgement] = []
    for series in _series(judgements):
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
    for when, group in groupby(comparable, lambda judged: _when(judged.coordinates)):
        judged = list(group)
        explained = explain(judged)
        known = {(id(each.judged), each.node) for each in explained}
        own = [finding for one in judged for finding in one.origins if not is_communication(finding.target)]
        received = [
            finding
            for one in judged
            for finding in one.origins
            if is_communication(finding.target) and (id(one), finding.target) not in known
        ]
        elsewhere = own or any(_when(difference.coordinates) == when for difference in inputs)
        given = [_given(each.source) for each in explained[:1]] if not received else []
        kept = own if elsewhere else received + given
        found += sorted(kept, key=lambda finding: _place(finding, judged))
    return found


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
    return sorted(found, key=lambda finding: -(finding.amplification or 0.0))


def _place(finding: Finding, judged: Sequence[SliceJudgement]) -> tuple[int, int, int]:
    """Order the origins of one step: by the communications before, by their place on their rank, by rank."""
    for one in judged:
        for place, origin in enumerate(one.origins):
            if origin is finding:
                return (finding.epoch, place, one.coordinates.sort_key()[-1])
    return (finding.epoch, 0, 0)


def _first(findings: Iterable[Finding | None]) -> Finding | None:
    known = [finding for finding in findings if finding is not None]
    return min(known, key=lambda finding: finding.coordinates.sort_key(), default=None)


def _gradual_drift(comparable: Sequence[SliceJudgement]) -> SliceJudgement | None:
    for judged in comparable:
        error = judged.logits_error if judged.rules == OWN_RULES else None
        if error is not None and judged.compared_outputs > 1 and error > drift_limit(judged):
            return judged
    return None


def _drifted(drift: SliceJudgement) -> list[Finding]:
    """Return the output that drifted: no source, but no agreement either."""
    if drift.logits is None:
        return []
    reason = Message.of("finding.drifted", off=how_far_off(drift))
    return [replace(drift.logits, verdict=Verdict.ERROR, reasons=(reason,))]


def _rank_finding(
    bad_node: Finding | None,
    origins: Sequence[Finding],
    inputs: Sequence[InputDifference],
    judgements: Sequence[SliceJudgement],
) -> Message | None:
    """Say on which rank it began, where there are several."""
    ranks = {judged.coordinates.rank for judged in judgements if judged.coordinates.rank is not None}
    if bad_node is None:
        first = [one.coordinates for one in inputs if _when(one.coordinates) == _when(inputs[0].coordinates)]
        differ = {coordinates.rank for coordinates in first} - {None}
        if len(differ) == 1 and len(ranks) > 1:
            return Message.of("rank.only_its_input", rank=differ.pop())
        return None
    if bad_node.coordinates.merged or bad_node.golden_ranks:
        return _rank_of_merged(bad_node)
    if bad_node.coordinates.rank is None or len(ranks) < 2:  # noqa: PLR2004
        return None
    alike = {
        one.coordinates.rank
        for one in origins
        if one.epoch == bad_node.epoch
        and one.target == bad_node.target
        and _when(one.coordinates) == _when(bad_node.coordinates)
    }
    if len(alike) > 1:
        return Message.of("rank.began_on_several", ranks=tuple(sorted(ranks & alike)))
    return Message.of("rank.began", rank=bad_node.coordinates.rank)


def _rank_of_merged(bad_node: Finding) -> Message:
    """Say which of the ranks that were merged, of the target or else of the golden dump, is off."""
    merged = bad_node.coordinates.merged
    if merged is not None:
        if bad_node.on_rank is not None:
            return Message.of("rank.began", rank=bad_node.on_rank)
        return Message.of("rank.merged", ranks=ranks_named(merged))
    if bad_node.on_rank is not None:
        return Message.of("rank.of_golden", rank=bad_node.on_rank)
    return Message.of("rank.golden_merged", ranks=ranks_named(bad_node.golden_ranks or ()))


def _rank_of_token(
    bad_token: Finding | None, bad_tokens: Sequence[Finding], judgements: Sequence[SliceJudgement]
) -> Message | None:
    """Say on which rank the first bad token shows, where no node tells on which it began."""
    if bad_token is None:
        return None
    if bad_token.on_rank is not None:
        if bad_token.golden_ranks is not None:
            return Message.of("rank.shows_on_golden", rank=bad_token.on_rank)
        return Message.of("rank.shows", rank=bad_token.on_rank)
    ranks = {judged.coordinates.rank for judged in judgements if judged.coordinates.rank is not None}
    if bad_token.coordinates.rank is None or len(ranks) < 2:  # noqa: PLR2004
        return None
    at_once = {
        one.coordinates.rank for one in bad_tokens if _when(one.coordinates) == _when(bad_token.coordinates)
    }
    if len(at_once) == 1:
        return Message.of("rank.shows_first", rank=bad_token.coordinates.rank)
    return Message.of("rank.shows_on_several", ranks=tuple(sorted(ranks & at_once)))
