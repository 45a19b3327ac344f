"""From the measurements of one pair of slices to verdicts, classes and candidate findings."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, takewhile

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.errors import SettingsError
from firstdrift.matching.plan import Joining, SlicePlan, TensorPair
from firstdrift.metrics.measurement import Measurement, MeasurementKind
from firstdrift.model.node import Direction, NodeKind
from firstdrift.model.slice import Coordinates
from firstdrift.model.tensor import Role
from firstdrift.parallel.point_to_point import Message as PeerMessage
from firstdrift.parallel.point_to_point import is_communication, messages
from firstdrift.verdict.baseline import QUIET, Noise
from firstdrift.verdict.classes import BROUGHT
from firstdrift.verdict.classify import Classification, affects_output, classify
from firstdrift.verdict.communication import group_of, rank_alone
from firstdrift.verdict.judgement import (
    ORIGINS,
    OWN_RULES,
    Communication,
    Counts,
    Finding,
    InputDifference,
    NodeClass,
    PairJudgement,
    Reasons,
    RollUp,
    RowJudgement,
    SliceJudgement,
    Verdict,
)
from firstdrift.verdict.logits import count_outputs, is_logits
from firstdrift.verdict.model_mismatch import unlikeness
from firstdrift.verdict.overflow import find_overflow
from firstdrift.verdict.pair_error import PairError, size_of, why_incomparable
from firstdrift.verdict.router_ties import Choice, find_choices, hides
from firstdrift.verdict.row_errors import RowErrors, embeds_tokens, fingerprint, row_errors
from firstdrift.verdict.thresholds import DEFAULTS, Thresholds
from firstdrift.verdict.tokens import least_bad_output
from firstdrift.verdict.tool_rules import judge_by_msit, judge_by_msprobe
from firstdrift.verdict.tree import TreeRow, is_embedding
from firstdrift.verdict.unmatched_reason import why_left_over
from firstdrift.wording.message import Message

_PairRules = Callable[
    [SlicePlan, Sequence[Measurement], Sequence[PairError], Thresholds], list[PairJudgement]
]
_PEERS: dict[str, _PairRules] = {"msprobe": judge_by_msprobe, "msit": judge_by_msit}
RULES = (OWN_RULES, *_PEERS)
"""Names of the rule sets."""


def no_rule_set(name: str) -> SettingsError:
    """Make the error of a rule set that there is none of."""
    return SettingsError(
        Message.of("error.no_rule_set", name=name), hint=Message.of("error.choose_one", names=RULES)
    )


def judge_slice(
    plan: SlicePlan,
    rows: Sequence[TreeRow],
    measurements: Sequence[Measurement],
    rules: str = OWN_RULES,
    *,
    other_input: bool = False,
    limits: Thresholds = DEFAULTS,
    noise: Noise = QUIET,
) -> SliceJudgement:
    """Say what there is to say of one pair of slices by looking at it alone.

    Args:
        plan: what is compared.
        rows: the tree.
        measurements: one for each pair of the plan.
        rules: name of the rule set.
        other_input: whether it is known that the two sides were given something else.
        limits: what errors are held against.
        noise: what a healthy run shows of the same slice.

    Raises:
        SettingsError: there is no rule set of that name.
    """
    if rules not in RULES:
        raise no_rule_set(rules)
    choices = find_choices(rows, plan, measurements)
    errors, pair_errors = row_errors(rows, plan, measurements, limits, choices)
    classification = classify(
        rows, errors, plan, measurements, other_input=other_input, limits=limits, noise=noise
    )
    communications = sorted(row.order for row in rows if is_communication(row.type_name))
    case = _Case(
        plan=plan,
        rows=rows,
        measurements=measurements,
        errors=errors,
        pair_errors=pair_errors,
        classification=classification,
        communications=communications,
        limits=limits,
        noise=noise,
        ties=frozenset(choice.pair for choice in choices),
    )
    own = _judge_pairs(case)
    pairs = own if rules == OWN_RULES else _PEERS[rules](plan, measurements, pair_errors, limits)
    logits = _find_logits(case)
    judged = _judge_rows(case, pairs, _classes(case, own, logits), own_rules=rules == OWN_RULES)
    unlike = unlikeness(plan, rows)
    # Of two models, what happens to have the same shape differs anyway: no error begins there.
    origins = [
        row for row in rows if unlike is None and _is_origin(judged[row.index], own_rules=rules == OWN_RULES)
    ]
    weak = classification.weak if rules == OWN_RULES and unlike is None else ()
    return SliceJudgement(
        coordinates=plan.target.coordinates,
        rows=with_roll_ups(rows, judged),
        pairs=tuple(pairs),
        counts=_count(plan, pairs),
        origins=tuple(_finding(case, row, judged[row.index]) for row in sorted(origins, key=_order)),
        worst=_worst(case, judged),
        logits=_pair_finding(case, logits, pairs[logits]) if logits is not None else None,
        logits_error=pair_errors[logits].value if logits is not None else None,
        roundoff=classification.roundoff,
        weak_origins=tuple(_finding(case, rows[index], judged[index]) for index in weak),
        logits_recorded=logits is not None and is_logits(plan.pairs[logits]),
        golden_token=_token(measurements, logits, of_target=False),
        target_token=_token(measurements, logits, of_target=True),
        inputs_agree=_inputs_agree(case),
        positions=_positions(case),
        compared_outputs=count_outputs(errors, plan),
        input_difference=_input_difference(case),
        overflow=find_overflow(rows, errors, plan.target.coordinates),
        rules=rules,
        communications=tuple(_communications(case, judged)),
        limits=limits,
        noise=_noise_of_logits(case, logits),
        chosen_otherwise=logits is not None and _is_hidden(case, choices, logits),
        logits_pair=logits,
        unlike=unlike,
    )


class _Case(Struct, frozen=True):
    """All that is known of one pair of slices before it is judged."""

    plan: SlicePlan
    rows: Sequence[TreeRow]
    measurements: Sequence[Measurement]
    errors: Sequence[RowErrors]
    pair_errors: Sequence[PairError]
    classification: Classification
    communications: Sequence[int]  # when operators ran that let ranks talk to each other, ascending
    limits: Thresholds
    noise: Noise
    ties: frozenset[int]  # pairs that show that another expert was chosen


def _order(row: TreeRow) -> int:
    return row.order


def _is_origin(judged: RowJudgement, *, own_rules: bool) -> bool:
    if own_rules:
        return judged.node_class in ORIGINS and judged.verdict is Verdict.ERROR
    return judged.verdict is Verdict.ERROR


def _judge_pairs(case: _Case) -> list[PairJudgement]:
    row_of_match = {row.match: row for row in case.rows}
    origin_order = case.classification.first_origin
    outside = case.classification.input_row
    outside_order = case.rows[outside].order if outside is not None else None
    judged = []
    for index, pair in enumerate(case.plan.pairs):
        row = row_of_match[pair.match]
        if case.pair_errors[index].value is None:
            reason = why_incomparable(pair, case.measurements[index])
            judged.append(PairJudgement(Verdict.INCOMPARABLE, None, (reason,)))
        elif outside_order is not None and row.order >= outside_order:
            judged.append(_with_other_input(case, index))
        else:
            after = origin_order is not None and row.order >= origin_order
            judged.append(_judge_pair(case, index, row, after_origin=after))
    return judged


def _with_other_input(case: _Case, index: int) -> PairJudgement:
    error = case.pair_errors[index]
    if error.value is not None and error.value > case.limits.floor * error.roundoff:
        return PairJudgement(Verdict.WARNING, error.value, (Message.of("pair.input_differs"),))
    return PairJudgement(Verdict.PASS, error.value)


def _judge_pair(case: _Case, index: int, row: TreeRow, *, after_origin: bool) -> PairJudgement:
    error = case.pair_errors[index]
    said = case.classification.rows[row.index]
    if said.worst_pair == index and said.node_class in ORIGINS:
        verdict = (
            Verdict.ERROR if affects_output(said, case.errors[row.index], case.limits) else Verdict.WARNING
        )
        return PairJudgement(verdict, error.value, said.reasons)
    verdict, reason = _judge_follower(case, index, row, after_origin=after_origin)
    return PairJudgement(verdict, error.value, (reason,) if reason is not None else ())


def _judge_follower(
    case: _Case, index: int, row: TreeRow, *, after_origin: bool
) -> tuple[Verdict, Message | None]:
    error = case.pair_errors[index]
    if not error.value:
        return Verdict.PASS, None
    if case.measurements[index].kind is MeasurementKind.SCALAR:
        matters = case.errors[row.index].scalar_pair is not None
        return (Verdict.WARNING, Message.of("pair.argument")) if matters else (Verdict.PASS, None)
    if error.non_finite:
        return Verdict.ERROR, Message.of("pair.non_finite")
    is_tie = error.discrete and case.classification.rows[row.index].is_tie
    least = max(case.classification.level, case.limits.excess * _noise(case, row))
    if after_origin and error.value > least and not is_tie:
        return Verdict.ERROR, Message.of("pair.above_rounding")
    if error.discrete:
        return Verdict.WARNING, Message.of("pair.other_numbers")
    if index in case.ties and error.value <= case.limits.floor * error.roundoff:
        return Verdict.WARNING, Message.of("pair.router_tie")
    return Verdict.PASS, None


def _noise(case: _Case, row: TreeRow) -> float:
    """Return the error of a row in the healthy run; 0 if none is known."""
    return max(case.noise.of_input(row), case.noise.of_output(row))


def _noise_of_logits(case: _Case, logits: int | None) -> float | None:
    """Return the error that the logits have in the healthy run; None if that is not known."""
    if logits is None:
        return None
    row = next(row for row in case.rows if row.match == case.plan.pairs[logits].match)
    return case.noise.of_output(row) or None


def _is_hidden(case: _Case, choices: Sequence[Choice], logits: int) -> bool:
    """Tell whether the logits may be off because other experts were chosen."""
    pair = case.plan.pairs[logits]
    row = next(row for row in case.rows if row.match == pair.match)
    return hides(choices, row, pair, case.measurements[logits])


def _classes(case: _Case, own: Sequence[PairJudgement], logits: int | None) -> list[NodeClass]:
    """Say what each row did to the error, whatever rules are in force.

    A row at which nothing begins is not clean if it has an error all the same: that was brought there. Nor
    is that of the last output if it is so far off that the slices beside it may show it to be bad.

    Args:
        case: what is known.
        own: of each pair, the verdict of our own rules.
        logits: the pair of the last output.
    """
    reached = {at for at, pair in enumerate(own) if pair.verdict is Verdict.ERROR}
    least = least_bad_output(case.limits, case.classification.roundoff, case.plan.target.coordinates)
    if logits is not None and (case.pair_errors[logits].value or 0.0) > least:
        reached.add(logits)
    return [
        NodeClass.PROPAGATED
        if said.node_class is NodeClass.CLEAN and not reached.isdisjoint(error.pairs)
        else said.node_class
        for said, error in zip(case.classification.rows, case.errors, strict=True)
    ]


def _judge_rows(
    case: _Case, pairs: Sequence[PairJudgement], classes: Sequence[NodeClass], *, own_rules: bool
) -> list[RowJudgement]:
    judged = []
    left_over = why_left_over(case.rows)
    for row in case.rows:
        error, said = case.errors[row.index], case.classification.rows[row.index]
        verdicts = [pairs[index].verdict for index in error.pairs]
        if said.node_class is NodeClass.UNMATCHED:
            verdicts.append(Verdict.INCOMPARABLE)
        elif own_rules and said.entered is not None and said.node_class in ORIGINS:
            verdicts.append(Verdict.ERROR)
        judged.append(
            RowJudgement(
                verdict=max(verdicts, key=lambda verdict: verdict.severity, default=Verdict.PASS),
                node_class=classes[row.index],
                reasons=said.reasons or _first_reasons(error, pairs)
                if row.match is not None
                else left_over[row.index],
                input_error=error.input,
                parameter_error=error.parameter,
                output_error=error.output,
                amplification=said.amplification,
                worst_pair=said.worst_pair,
                rule=said.rule if classes[row.index] is said.node_class else BROUGHT.name,
            )
        )
    return judged


def _first_reasons(error: RowErrors, pairs: Sequence[PairJudgement]) -> Reasons:
    flagged = [pairs[index] for index in error.pairs if pairs[index].reasons]
    # Of several as bad, any one, if only it is the same in whatever order the pairs come.
    first = min(flagged, key=lambda pair: (-pair.verdict.severity, str(pair.reasons)), default=None)
    return () if first is None else first.reasons


def with_roll_ups(rows: Sequence[TreeRow], judged: Sequence[RowJudgement]) -> tuple[RowJudgement, ...]:
    """Say of each row what lies below it."""
    sums = [[0, 0, 0, 0, 0, 0] for _ in rows]  # error, warning, incomparable, unmatched, origins, severity
    for row in reversed(rows):
        if row.parent is None:
            continue
        above, below, said = sums[row.parent], sums[row.index], judged[row.index]
        above[0] += below[0] + (said.verdict is Verdict.ERROR)
        above[1] += below[1] + (said.verdict is Verdict.WARNING)
        unmatched = said.node_class is NodeClass.UNMATCHED
        above[2] += below[2] + (said.verdict is Verdict.INCOMPARABLE and not unmatched)
        above[3] += below[3] + unmatched
        above[4] += below[4] + (said.node_class in ORIGINS and said.verdict is Verdict.ERROR)
        above[5] = max(above[5], below[5], said.verdict.severity)
    return tuple(
        replace(said, below=_roll_up(below)) if row.last > row.index else said
        for row, said, below in zip(rows, judged, sums, strict=True)
    )


_BY_SEVERITY = sorted(Verdict, key=lambda verdict: verdict.severity)


def _roll_up(sums: Sequence[int]) -> RollUp:
    error, warning, incomparable, unmatched, origins, severity = sums
    return RollUp(error, warning, incomparable, unmatched, origins, _BY_SEVERITY[severity])


def _count(plan: SlicePlan, pairs: Sequence[PairJudgement]) -> Counts:
    verdicts = [pair.verdict for pair in pairs]
    return Counts(
        pairs=len(pairs),
        passed=verdicts.count(Verdict.PASS),
        warning=verdicts.count(Verdict.WARNING),
        error=verdicts.count(Verdict.ERROR),
        incomparable=verdicts.count(Verdict.INCOMPARABLE),
        unmatched_golden_nodes=len(plan.unmatched_golden),
        unmatched_target_nodes=len(plan.unmatched_target),
        unmatched_golden_tensors=len(plan.unmatched_golden_tensors),
        unmatched_target_tensors=len(plan.unmatched_target_tensors),
    )


def _finding(case: _Case, row: TreeRow, judged: RowJudgement) -> Finding:
    pair = case.plan.pairs[judged.worst_pair] if judged.worst_pair is not None else None
    golden = row.golden[0] if row.golden else pair.golden_node if pair is not None else ""
    target = row.target[0] if row.target else pair.target_node if pair is not None else ""
    module = row.path or _owner(case, pair)
    expert = _expert(pair, case.measurements[judged.worst_pair]) if judged.worst_pair is not None else None
    if expert is not None and pair is not None:
        if pair.golden_parts:
            golden = expert
        else:
            module = module and _moved(module, target, expert)
            target = expert
    return Finding(
        coordinates=_coordinates(case, row),
        golden=golden,
        target=target,
        module=module,
        tensor=pair.target.label if pair is not None else None,
        node_class=judged.node_class,
        verdict=judged.verdict,
        reasons=judged.reasons,
        metrics=case.measurements[judged.worst_pair].values() if judged.worst_pair is not None else {},
        row=row.index,
        amplification=judged.amplification,
        on_rank=_rank_of(case, row, judged.worst_pair),
        epoch=bisect_left(case.communications, row.order),
        operator=_operator_beside_modules(case, row),
        golden_ranks=_golden_ranks(case),
    )


def _expert(pair: TensorPair | None, measured: Measurement) -> str | None:
    """Return the node of the expert whose row differs most, of rows of several experts.

    Of what lies side by side (gate and up) it is the module around: in which of them the row differs is not
    known.
    """
    if pair is None or measured.errors is None:
        return None
    worst = measured.errors.worst_row
    parts = pair.golden_parts or pair.target_parts
    if pair.joining is Joining.STACKED and worst is not None:
        return _expert_of_stack(pair, worst)
    if pair.joining is not Joining.OF_EXPERTS:
        return None
    whole = (pair.target if pair.golden_parts else pair.golden).shape
    width = parts[0].shape[-1] if parts and parts[0].shape else 0
    if worst is None or not whole or not width or len(parts) != len(pair.part_nodes):
        return None
    count = len(parts) // max(1, whole[-1] // width)
    rows = accumulate(math.prod((part.shape or (0,))[:-1]) for part in parts[:count])
    at = next((at for at, end in enumerate(rows) if worst < end), None)
    if at is None:
        return None
    return _around_all(pair.part_nodes[at::count])


def _expert_of_stack(pair: TensorPair, worst: int) -> str | None:
    """Return the node of the expert that a row of a stack of weights belongs to."""
    whole = (pair.target if pair.golden_parts else pair.golden).shape or ()
    experts = whole[0] if whole else 0
    if not experts or len(pair.part_nodes) % experts:
        return None
    return _around_all(pair.part_nodes[worst // max(1, math.prod(whole[1:-1])) :: experts])


def _around_all(nodes: Sequence[str]) -> str | None:
    """Return the only node, or the name that those of several begin with."""
    own = [node.split(".") for node in nodes]
    if len(own) == 1:
        return nodes[0]
    alike = takewhile(lambda names: len(set(names)) == 1, zip(*own, strict=False))
    return ".".join(names[0] for names in alike) or None


def _moved(path: str, name: str, other: str) -> str:
    """Return the path of a node by that of another whose name is made of it in the same way."""
    before, found, after = name.partition(path)
    if not found or not other.startswith(before):
        return path
    return other[len(before) :].removesuffix(after)


def _operator_beside_modules(case: _Case, row: TreeRow) -> str | None:
    """Return the short name of an operator of which the module around it says too little: it holds others."""
    if row.kind is not NodeKind.API or row.parent is None:
        return None
    around = case.rows[row.parent]
    inside = case.rows[around.index + 1 : around.last + 1]
    if around.kind is NodeKind.API or all(one.kind is NodeKind.API for one in inside):
        return None
    return (row.target or row.golden)[0].rpartition("/")[2]


def _communications(case: _Case, judged: Sequence[RowJudgement]) -> Iterator[Communication]:
    """Say of each communication with whom it is, and whether what goes in and out differs."""
    seen: Counter[tuple[object, ...]] = Counter()
    known = [row for row in case.rows if is_communication(row.type_name) and row.target]
    for row in sorted(known, key=_order):
        arguments = [case.plan.pairs[index].target for index in case.errors[row.index].pairs]
        group = group_of(arguments)
        operator = row.type_name.rpartition(".")[2]
        calls: list[tuple[PeerMessage | None, tuple[object, ...]]] = [
            (message, (message.sends, message.peer)) for message in messages(row.type_name, arguments)
        ]
        for message, kind in calls or [(None, (operator, group))]:
            yield _communication(case, row, judged[row.index], message, group, seen[kind])
            seen[kind] += 1


def _communication(
    case: _Case,
    row: TreeRow,
    judged: RowJudgement,
    message: PeerMessage | None,
    group: tuple[int, ...],
    number: int,
) -> Communication:
    """Say what goes in and out of one communication: of a whole operator, or of one message of several."""
    error = case.errors[row.index]
    given_pair, taken, result = error.input_pair, error.input, error.output
    if message is not None and message.key:
        given_pair, taken = _worst_of(case, row, message, Role.INPUT) if message.sends else (None, None)
        result = None if message.sends else _worst_of(case, row, message, Role.OUTPUT)[1]
    level = case.classification.level
    roundoff = error.roundoff or case.classification.roundoff
    limit = level if math.isfinite(level) else case.limits.hidden_floor * roundoff
    given = None
    if taken is not None and taken > limit and given_pair is not None:
        given = _finding(case, row, replace(judged, worst_pair=given_pair))
    return Communication(
        node=row.target[0],
        operator=message.operator if message is not None else row.type_name.rpartition(".")[2],
        group=group,
        peer=message.peer if message is not None else None,
        number=number,
        given=given,
        differs=None if result is None else result > limit,
        agrees=taken is not None and given is None,
    )


def _worst_of(case: _Case, row: TreeRow, message: PeerMessage, role: Role) -> tuple[int | None, float | None]:
    """Return the pair of a message that differs most, and by how much; None where none was compared."""
    known = [
        (error, index)
        for index in case.errors[row.index].pairs
        if (record := case.plan.pairs[index].target).role is role
        and record.is_tensor
        and record.key.startswith(message.key)
        and (error := case.pair_errors[index].value) is not None
    ]
    worst, index = max(known, default=(None, None))
    return index, worst


def _rank_of(case: _Case, row: TreeRow, worst: int | None) -> int | None:
    """Return the one rank that is off in a row of merged ranks: by its worst pair, by others, or inside."""
    inside = range(row.index, row.last + 1)
    pairs = [index for at in inside for index in case.errors[at].pairs]
    ranks = (
        rank_alone(case.measurements[index].by_rank or ()) for index in (worst, *pairs) if index is not None
    )
    return next((rank for rank in ranks if rank is not None), None)


def _golden_ranks(case: _Case) -> tuple[int, ...] | None:
    """Return the ranks from which the golden slice was merged; None if that of the target was too."""
    return None if case.plan.target.coordinates.merged else case.plan.golden.coordinates.merged


def _owner(case: _Case, pair: TensorPair | None) -> str | None:
    """Return the path of the module that owns a weight which an operator was given.

    A dump without a model tree does not say which module an operator ran in; its weights do.
    """
    if pair is None or pair.target.role is not Role.INPUT:
        return None
    wanted = fingerprint(pair.golden, pair.target)
    row_of_match = {row.match: row for row in case.rows}
    for other in case.plan.pairs:
        if other.target.role is Role.PARAMETER and fingerprint(other.golden, other.target) == wanted:
            return row_of_match[other.match].path
    return None


def _coordinates(case: _Case, row: TreeRow) -> Coordinates:
    coordinates = case.plan.target.coordinates
    return replace(coordinates, micro_step=row.micro_step) if row.micro_step is not None else coordinates


def _worst(case: _Case, judged: Sequence[RowJudgement]) -> Finding | None:
    known = [row for row in case.rows if judged[row.index].output_error]
    if not known:
        return None
    worst = max(known, key=lambda row: judged[row.index].output_error or 0.0)
    return _finding(case, worst, judged[worst.index])


def _find_logits(case: _Case) -> int | None:
    """Return the pair of the last logits; failing these, of the last floating output that was compared.

    An output of a module goes before one of an operator: only of a token that was dumped without modules,
    as the graph that a compiler made of it, does the last operator give what the model gives.
    """
    last: tuple[bool, bool, int, int] | None = None
    has_token = case.plan.target.coordinates.token is not None
    for row in case.rows:
        if row.direction is Direction.BACKWARD or row.match is None:
            continue
        for index in case.errors[row.index].pairs:
            pair, error = case.plan.pairs[index], case.pair_errors[index]
            if pair.target.role is not Role.OUTPUT or error.value is None or error.discrete:
                continue
            is_operator = row.kind is NodeKind.API
            if not pair.target.is_tensor or (is_operator and not has_token and not is_logits(pair)):
                continue
            candidate = (is_logits(pair), not is_operator, row.order, -index)
            last = candidate if last is None else max(last, candidate)
    return -last[3] if last is not None else None


def _pair_finding(case: _Case, index: int, judged: PairJudgement) -> Finding:
    pair = case.plan.pairs[index]
    row = next(row for row in case.rows if row.match == pair.match)
    return Finding(
        coordinates=_coordinates(case, row),
        golden=pair.golden_node,
        target=pair.target_node,
        module=row.path or None,
        tensor=pair.target.label,
        node_class=None,
        verdict=judged.verdict,
        reasons=judged.reasons,
        metrics=case.measurements[index].values(),
        row=row.index,
        on_rank=rank_alone(case.measurements[index].by_rank or ()),
        golden_ranks=_golden_ranks(case),
    )


def _token(measurements: Sequence[Measurement], index: int | None, *, of_target: bool) -> int | None:
    logits = measurements[index].logits if index is not None else None
    if logits is None:
        return None
    return logits.last.target_top if of_target else logits.last.golden_top


def _inputs_agree(case: _Case) -> bool | None:
    """Tell whether the token ids are the same; None if none were compared."""
    if case.classification.input_row is not None:
        return False
    for row in case.rows:
        if is_embedding(row) and row.direction is Direction.FORWARD:
            for index in case.errors[row.index].pairs:
                if case.plan.pairs[index].target.role is Role.INPUT and case.pair_errors[index].discrete:
                    return case.pair_errors[index].value == 0.0
    return None


def _positions(case: _Case) -> int | None:
    """Count the tokens that the model was given; None if that does not show, or the two sides differ."""
    for row in case.rows:
        if not embeds_tokens(row):
            continue
        for index in case.errors[row.index].pairs:
            pair = case.plan.pairs[index]
            golden, target = pair.golden.shape, pair.target.shape
            if pair.target.role is Role.OUTPUT and golden and target:
                counts = {math.prod(golden[:-1]), math.prod(target[:-1])}
                return counts.pop() if len(counts) == 1 else None
    return None


def _input_difference(case: _Case) -> InputDifference | None:
    found = case.classification
    if found.input_row is None or found.input_pair is None:
        return None
    row, pair = case.rows[found.input_row], case.plan.pairs[found.input_pair]
    integers = case.measurements[found.input_pair].integers
    if pair.target.role is Role.OUTPUT:
        return InputDifference(
            coordinates=_coordinates(case, row),
            reason=Message.of(
                "input.other_length",
                tensor=pair.target.label,
                node=row.label,
                golden=pair.golden.shape or (),
                target=pair.target.shape or (),
            ),
            golden=pair.golden_node,
            target=pair.target_node,
            tensor=pair.target.label,
        )
    detail = pair.incomparable
    if integers is not None and integers.first_mismatch is not None:
        detail = Message.of(
            "input.first_mismatch",
            golden=integers.golden_at_first,
            target=integers.target_at_first,
            index=integers.first_mismatch,
        )
    else:
        error = case.pair_errors[found.input_pair].value
        if error is not None and math.isfinite(error):
            size = size_of(error, case.measurements[found.input_pair])
            detail = Message.of("input.relative_l2", size=size)
    place = {"tensor": pair.target.label, "node": row.label}
    reason = (
        Message.of("input.differs", **place)
        if detail is None
        else Message.of("input.differs_by", **place, detail=detail)
    )
    return InputDifference(
        coordinates=_coordinates(case, row),
        reason=reason,
        golden=pair.golden_node,
        target=pair.target_node,
        tensor=pair.target.label,
    )
