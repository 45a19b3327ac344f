"""The verdict of each pair of tensors, under our own rules: what its row is called, and what reached it."""

from collections.abc import Iterator

from msgspec.structs import replace

from firstdrift.matching.plan import TensorPair
from firstdrift.metrics.measurement import SCALAR
from firstdrift.model.tensor import INPUT, PARAMETER
from firstdrift.operators.properties import overwrites
from firstdrift.verdict.after_ties import FOLLOWS, with_other_rows
from firstdrift.verdict.classify import Classification, affects_output
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.judgement import ORIGINS, NodeClass, PairJudgement, Reasons, Verdict
from firstdrift.verdict.pair_error import PairError, why_incomparable
from firstdrift.verdict.row_errors import fingerprint, role_of
from firstdrift.verdict.tree import TreeRow
from firstdrift.wording.message import Message

_PASSED, _INCOMPARABLE, _WARNING, _ERROR = Verdict
"""By themselves, as they are asked of every pair: Python 3.11 looks up slowly what an enum holds."""


def judge_pairs(evidence: Evidence, classification: Classification) -> list[PairJudgement]:
    """Judge each pair of a slice whose rows have been classified."""
    by_tie = with_other_rows(evidence, classification)
    judged = [
        _judge(evidence, classification, index, by_tie=index in by_tie)
        for index in range(len(evidence.plan.pairs))
    ]
    for index, origin in _of_same_weight(evidence, classification):
        if judged[index].verdict is _PASSED:
            said = (Message.of("pair.same_weight", node=origin.label),)
            judged[index] = replace(judged[index], verdict=_ERROR, reasons=said)
    return judged


def _of_same_weight(evidence: Evidence, classification: Classification) -> Iterator[tuple[int, TreeRow]]:
    """Give the pairs of weights at which an error begins, wherever they are recorded, each with where."""
    plan, off = evidence.plan, dict(_weights_off(evidence, classification))
    for index, pair in enumerate(plan.pairs if off else ()):
        is_off = bool(evidence.pair_errors[index].value) and _is_told(pair)
        origin = off.get(fingerprint(pair.golden, pair.target)) if is_off else None
        if origin is not None and role_of(pair, evidence.row_of(index), frozenset()) is PARAMETER:
            yield index, origin


def _weights_off(evidence: Evidence, classification: Classification) -> Iterator[tuple[object, TreeRow]]:
    """Give what tells the weights at which an error begins, each with where; the first place last."""
    rows = zip(reversed(evidence.rows), reversed(classification.rows), strict=True)
    for row, own in rows:
        if own.node_class is NodeClass.WEIGHTS_DIFFER and own.worst_pair is not None:
            pair = evidence.plan.pairs[own.worst_pair]
            if _is_told(pair):
                yield fingerprint(pair.golden, pair.target), row


def _is_told(pair: TensorPair) -> bool:
    """Tell whether statistics or digests of both tensors were recorded, which tell them from others."""
    return all(one.statistics is not None or one.digest is not None for one in (pair.golden, pair.target))


def _judge(evidence: Evidence, classification: Classification, index: int, *, by_tie: bool) -> PairJudgement:
    error = evidence.pair_errors[index]
    if error.value is None:
        reason = why_incomparable(evidence.plan.pairs[index], evidence.measurements[index])
        reason = Message.of(FOLLOWS) if by_tie else reason
        return PairJudgement(_INCOMPARABLE, None, (reason,))
    row = evidence.row_of(index)
    own, outside = classification.rows[row.index], classification.input_row
    if outside is not None and row.order >= evidence.rows[outside].order:
        verdict, reasons = _with_other_input(evidence, error)
    elif own.worst_pair == index and own.node_class in ORIGINS:
        is_fault = affects_output(own, evidence.errors[row.index])
        verdict, reasons = _ERROR if is_fault else _WARNING, own.reasons
    elif index in evidence.systematic_pairs:
        verdict, reasons = _ERROR, (Message.of("pair.as_all_weights"),)
    elif error.value and error.discrete and _is_written_over(evidence, index, row):
        verdict, reasons = _PASSED, (Message("pair.written_over"),)
    else:
        verdict, reasons = _of_follower(evidence, classification, index, row)
    return PairJudgement(verdict, error.value, reasons)


_PASS: tuple[Verdict, Reasons] = _PASSED, ()


def _is_off(evidence: Evidence, error: PairError) -> bool:
    return (error.value or 0.0) > evidence.limits.floor * error.roundoff


def _with_other_input(evidence: Evidence, error: PairError) -> tuple[Verdict, Reasons]:
    is_off = _is_off(evidence, error)
    return (_WARNING, (Message.of("pair.input_differs"),)) if is_off else _PASS


def _of_follower(
    evidence: Evidence, classification: Classification, index: int, row: TreeRow
) -> tuple[Verdict, Reasons]:
    """Judge a pair of a row at which nothing begins, or of which another pair shows what does."""
    error = evidence.pair_errors[index]
    if not error.value:
        return _PASS
    if evidence.measurements[index].kind is SCALAR:
        matters = evidence.errors[row.index].scalar_pair is not None
        return (_WARNING, (Message.of("pair.argument"),)) if matters else _PASS
    if error.non_finite:
        return _ERROR, (Message.of("pair.non_finite"),)
    if _is_reached(evidence, classification, error, row):
        return _ERROR, (Message.of("pair.above_rounding"),)
    if error.discrete:
        return _WARNING, (Message.of("pair.other_numbers"),)
    if index in evidence.choice_pairs and not _is_off(evidence, error):
        return _WARNING, (Message.of("pair.router_tie"),)
    if is_hidden(evidence, classification, index):
        return _INCOMPARABLE, (Message.of("pair.masked"),)
    return _PASS


def _is_written_over(evidence: Evidence, index: int, row: TreeRow) -> bool:
    """Tell whether a pair is what a row writes over: it may be memory that nobody wrote yet."""
    tensor = evidence.plan.pairs[index].golden
    return tensor.role is INPUT and tensor.key == "0" and overwrites(row.type_name)


def is_hidden(evidence: Evidence, classification: Classification, index: int) -> bool:
    """Tell whether masked values of a pair hide what a fault that ran before may have done to the others."""
    first = classification.reached_from
    is_after = first is not None and evidence.places[evidence.row_of(index).index] > first
    is_small = (evidence.pair_errors[index].value or 0.0) <= classification.level
    return is_after and is_small and evidence.is_masked(index)


def _is_reached(evidence: Evidence, classification: Classification, error: PairError, row: TreeRow) -> bool:
    """Tell whether a fault before a row, or at it, has reached a pair of it."""
    first = classification.reached_from
    if (
        first is None
        or evidence.places[row.index] < first
        or (error.discrete and classification.rows[row.index].is_tie)
    ):
        return False
    if (error.value or 0.0) <= classification.level:
        return False
    noise = max(evidence.noise.of_input(row), evidence.noise.of_output(row))
    return (error.value or 0.0) > evidence.limits.excess * noise
