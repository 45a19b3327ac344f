"""Whether the two runs were given the same input: token ids, their number, and what differs first."""

import math
from collections.abc import Iterator

from msgspec.structs import replace

from firstdrift.matching.plan import TensorPair
from firstdrift.model.node import Direction
from firstdrift.model.tensor import Role
from firstdrift.verdict.cause import tells_cause
from firstdrift.verdict.classify import Classification
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.judgement import InputDifference, Reasons
from firstdrift.verdict.pair_error import size_of
from firstdrift.verdict.row_errors import embeds_tokens
from firstdrift.verdict.tree import TreeRow, is_embedding
from firstdrift.wording.message import Message


def inputs_agree(evidence: Evidence, classification: Classification) -> bool | None:
    """Tell whether the token ids are the same; None if none were compared."""
    if classification.input_row is not None:
        return False
    embeddings = (row for row in evidence.rows if is_embedding(row) and row.direction is Direction.FORWARD)
    given = (evidence.pair_errors[at] for at in _pairs(evidence, embeddings, Role.INPUT))
    return next((error.value == 0.0 for error in given if error.discrete), None)


def positions(evidence: Evidence) -> int | None:
    """Count the tokens that the model was given; None if that does not show, or the two sides differ."""
    vectors = _pairs(evidence, filter(embeds_tokens, evidence.rows), Role.OUTPUT)
    shapes = ((evidence.plan.pairs[at].golden.shape, evidence.plan.pairs[at].target.shape) for at in vectors)
    for golden, target in shapes:
        if golden and target:
            count = math.prod(golden[:-1])
            return count if count == math.prod(target[:-1]) else None
    return None


def _pairs(evidence: Evidence, rows: Iterator[TreeRow], role: Role) -> Iterator[int]:
    return (at for row in rows for at in evidence.pairs_of(evidence.errors[row.index], role))


def input_difference(evidence: Evidence, classification: Classification) -> InputDifference | None:
    """Say what differs in what the model was given; None if that agrees."""
    if classification.input_row is None or classification.input_pair is None:
        return None
    row, pair = evidence.rows[classification.input_row], evidence.plan.pairs[classification.input_pair]
    return InputDifference(
        coordinates=evidence.coordinates(row),
        reason=_reason(evidence, row, classification.input_pair),
        golden=pair.golden_node,
        target=pair.target_node,
        tensor=pair.target.label,
        pair=classification.input_pair if pair.role is not Role.OUTPUT else None,
    )


def with_shown(difference: InputDifference, shown: Reasons) -> InputDifference:
    """Let the difference of an input say what its values show of how one became the other."""
    if not tells_cause(shown):
        return difference
    return replace(difference, reason=Message.of("input.shown", reason=difference.reason, shown=shown))


def _reason(evidence: Evidence, row: TreeRow, index: int) -> Message:
    pair = evidence.plan.pairs[index]
    tensor, node = pair.target.label, row.label
    if pair.role is Role.OUTPUT:
        golden, target = pair.golden.shape or (), pair.target.shape or ()
        if golden == target:
            return Message.of("input.other_rows", tensor=tensor, node=node)
        by_statistics = pair.golden.statistics is not None and pair.golden.location is None
        said = "input.other_rows_untold" if by_statistics else "input.other_length"
        return Message.of(said, tensor=tensor, node=node, golden=golden, target=target)
    detail = _detail(evidence, pair, index)
    if detail is None:
        return Message.of("input.differs", tensor=tensor, node=node)
    return Message.of("input.differs_by", tensor=tensor, node=node, detail=detail)


def _detail(evidence: Evidence, pair: TensorPair, index: int) -> Message | None:
    """Say where an input differs first, or by how much."""
    measured, error = evidence.measurements[index], evidence.pair_errors[index].value
    integers = measured.integers
    if integers is not None and integers.first_mismatch is not None:
        golden, target = integers.golden_at_first, integers.target_at_first
        where = integers.first_mismatch
        return Message.of("input.first_mismatch", golden=golden, target=target, index=where)
    if error is not None and math.isfinite(error):
        return Message.of("input.relative_l2", size=size_of(error, measured))
    return pair.incomparable
