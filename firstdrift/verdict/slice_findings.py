"""A row, or a pair, of a slice as a finding: its names on both sides, its module, its rank, its numbers."""

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import Final, TypeAlias

from firstdrift.matching.plan import TensorPair
from firstdrift.metrics.measurement import RankError
from firstdrift.model.names import parse_name
from firstdrift.model.node import NodeKind
from firstdrift.model.tensor import Role
from firstdrift.verdict.amplified_by import amplified_by
from firstdrift.verdict.case import excess_of_parameter
from firstdrift.verdict.cause import signs_of_row
from firstdrift.verdict.classes import ENTERED, SOURCE
from firstdrift.verdict.classify import Classified
from firstdrift.verdict.confidence import Basis, Confidence, basis_of, confidence_in
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.fixed_thresholds import LEAST_RANK_ERROR, RANK_ALONE
from firstdrift.verdict.judgement import Finding, NodeClass, PairJudgement, Reasons, RowJudgement
from firstdrift.verdict.operator_bounds import is_without_model
from firstdrift.verdict.row_errors import fingerprint
from firstdrift.verdict.token_of_row import worst_token
from firstdrift.verdict.tree import TreeRow
from firstdrift.verdict.worst_part import around_all, is_any_part, named_parts, node_of_worst_part, worst_part

WITHOUT_NUMBER: Final = {
    "class.one_sided_gradient": Basis.GRADIENTS,
    ENTERED.name: Basis.OPERATORS,
    "class.shape": Basis.SHAPES,
    "class.chosen_number": Basis.SHAPES,
}
"""What a finding of another structure rests on, by the rule that decided; of others, what was called."""


def finding_of_row(
    evidence: Evidence, row: TreeRow, judged: RowJudgement, classified: Classified | None = None
) -> Finding:
    """Make a finding of a row that was judged; how sure it is, if it was classified."""
    at = judged.worst_pair
    golden, target, module = _names(evidence, row, at)
    return Finding(
        coordinates=evidence.coordinates(row),
        golden=golden,
        target=target,
        module=module,
        tensor=evidence.plan.pairs[at].target.label if at is not None else None,
        node_class=judged.node_class,
        rule=judged.rule,
        verdict=judged.verdict,
        reasons=judged.reasons if at is None else (*judged.reasons, *_where(evidence, at)),
        metrics=evidence.measurements[at].values() if at is not None else {},
        row=row.index,
        direction=row.direction,
        amplification=judged.amplification,
        amplified_by=amplified_by(judged.input_error, judged.output_error, evidence.rounding),
        on_rank=_rank_of(evidence, row, at),
        epoch=bisect_left(evidence.communications, row.order, key=attrgetter("order")),
        operator=_operator_beside_modules(evidence, row),
        golden_ranks=_golden_ranks(evidence),
        cause=signs_of_row(evidence, row, judged, None if classified is None else classified.entered),
        entered=None if classified is None else classified.entered,
        confidence=None if classified is None else _confidence(evidence, row, at, classified),
    )


def finding_of_pair(evidence: Evidence, index: int, judged: PairJudgement) -> Finding:
    """Make a finding of a pair that was judged."""
    pair, row = evidence.plan.pairs[index], evidence.row_of(index)
    return Finding(
        coordinates=evidence.coordinates(row),
        golden=pair.golden_node,
        target=pair.target_node,
        module=row.path or None,
        tensor=pair.target.label,
        node_class=None,
        verdict=judged.verdict,
        reasons=(*judged.reasons, *_where(evidence, index)),
        metrics=evidence.measurements[index].values(),
        row=row.index,
        direction=row.direction,
        on_rank=rank_alone(evidence.measurements[index].by_rank or ()),
        golden_ranks=_golden_ranks(evidence),
    )


def _where(evidence: Evidence, index: int) -> Reasons:
    """Say which token, and which part, of a pair is off."""
    pair, measured = evidence.plan.pairs[index], evidence.measurements[index]
    return (*worst_token(pair, measured), *worst_part(pair, measured))


def _confidence(evidence: Evidence, row: TreeRow, at: int | None, classified: Classified) -> Confidence:
    """Say how sure the finding of a row is, that a pair shows, or none."""
    kind = evidence.measurements[at].kind if at is not None else None
    excess = classified.excess
    if classified.node_class is NodeClass.WEIGHTS_DIFFER and at is not None:
        by_weight = excess_of_parameter(evidence, at)
        # Where the weight is within its limit, it was the output that decided.
        if excess is None or by_weight is None or by_weight.margin > 1:
            excess = by_weight
    elif classified.node_class is NodeClass.STRUCTURE_DIFFERS:
        return confidence_in(WITHOUT_NUMBER.get(classified.rule or "", Basis.STRUCTURE), None)
    is_modelled = classified.rule != SOURCE.name or not is_without_model(evidence, row)
    return confidence_in(basis_of(kind, by_peers=classified.by_peers, is_modelled=is_modelled), excess)


def worst_finding(evidence: Evidence, judged: Sequence[RowJudgement]) -> Finding | None:
    """Make a finding of the row with the largest output error; None if no output is off."""
    worst = max(evidence.rows, key=lambda row: judged[row.index].output_error or 0.0, default=None)
    if worst is None or not judged[worst.index].output_error:
        return None
    return finding_of_row(evidence, worst, judged[worst.index])


def rank_alone(by_rank: Sequence[RankError]) -> int | None:
    """Return the rank that is off where all others agree, or where there is no other; None otherwise."""
    known = sorted(((each.error, each.rank) for each in by_rank if each.error is not None), reverse=True)
    if len(known) < len(by_rank) or not known:
        return None
    (worst, rank), *others = known
    is_alone = all(error * RANK_ALONE.value < worst for error, _ in others)
    return rank if is_alone and worst > LEAST_RANK_ERROR.value else None


Names: TypeAlias = tuple[str, str, str | None]
"""The golden and the target node of a row, and the path of the module around it."""


def _names(evidence: Evidence, row: TreeRow, at: int | None) -> Names:
    """Name a row in the golden and in the target dump, and the module around it."""
    if at is None:
        return next(iter(row.golden), ""), next(iter(row.target), ""), row.path or None
    pair, measured = evidence.plan.pairs[at], evidence.measurements[at]
    part = node_of_worst_part(pair, measured)
    if part is not None:
        return _names_of_part(evidence, row, pair, part)
    if is_any_part(pair, measured):
        return _names_of_whole(row, pair)
    return _names_of_row(evidence, row, pair)


def _names_of_row(evidence: Evidence, row: TreeRow, pair: TensorPair) -> Names:
    golden, target = _own(row.golden, pair.golden_node), _own(row.target, pair.target_node)
    module = row.path or _owner(evidence, pair)
    is_other = row.kind is not NodeKind.API and target in row.target[1:]
    return golden, target, parse_name(target).path or module if is_other else module


def _own(names: Sequence[str], shown: str) -> str:
    """Name of several nodes the one that a pair is of, of others the first."""
    return shown if shown in names else next(iter(names), shown)


def _names_of_part(evidence: Evidence, row: TreeRow, pair: TensorPair, part: str) -> Names:
    """Name a row of which one part is off."""
    golden, target, module = _names_of_row(evidence, row, pair)
    if pair.golden_parts:
        return part, target, module
    own = _module_of_part(evidence, row, part)
    return golden, part, own or (module and _moved(module, target, part))


def _names_of_whole(row: TreeRow, pair: TensorPair) -> Names:
    """Name a row of which any part may be off: all parts, and what is around them."""
    parts = " + ".join(named_parts(pair))
    if pair.golden_parts:
        return parts, pair.target_node, row.path
    return pair.golden_node, parts, around_all([parse_name(node).path for node in pair.part_nodes])


def _module_of_part(evidence: Evidence, row: TreeRow, part: str) -> str | None:
    """Return the path of one of several target nodes, or of the module around one of several operators."""
    alone = next((other.path for other in evidence.rows if other.target == (part,)), None)
    around = evidence.rows[row.parent].target if row.parent is not None else ()
    if alone or row.kind is not NodeKind.API or len(around) != len(row.target) or part not in row.target:
        return alone
    return parse_name(around[row.target.index(part)]).path


def _moved(path: str, name: str, other: str) -> str:
    """Return the path of a node by that of another whose name is made of it in the same way."""
    before, found, after = name.partition(path)
    if not found or not other.startswith(before):
        return path
    return other[len(before) :].removesuffix(after)


def _owner(evidence: Evidence, pair: TensorPair) -> str | None:
    """Return the path of the module that owns a weight which an operator was given.

    A dump without a model tree does not say which module an operator ran in; its weights do.
    """
    if pair.role is not Role.INPUT:
        return None
    wanted = fingerprint(pair.golden, pair.target)
    owners = (
        evidence.row_of_match[other.match]
        for other in evidence.plan.pairs
        if other.target.role is Role.PARAMETER and fingerprint(other.golden, other.target) == wanted
    )
    return next((owner.path for owner in owners), None)


def _operator_beside_modules(evidence: Evidence, row: TreeRow) -> str | None:
    """Return the short name of an operator of which the module around it says too little: it holds others."""
    if row.kind is not NodeKind.API or row.parent is None:
        return None
    around = evidence.rows[row.parent]
    inside = evidence.rows[around.index + 1 : around.last + 1]
    if around.kind is NodeKind.API or all(other.kind is NodeKind.API for other in inside):
        return None
    return (row.target or row.golden)[0].rpartition("/")[2]


def _rank_of(evidence: Evidence, row: TreeRow, worst: int | None) -> int | None:
    """Return the one rank that is off in a row of merged ranks: by its worst pair, by others, or inside."""
    inside = [index for error in evidence.errors[row.index : row.last + 1] for index in error.pairs]
    pairs = inside if worst is None else [worst, *inside]
    ranks = (rank_alone(evidence.measurements[index].by_rank or ()) for index in pairs)
    return next((rank for rank in ranks if rank is not None), None)


def _golden_ranks(evidence: Evidence) -> tuple[int, ...] | None:
    """Return the ranks from which the golden slice was merged; None if that of the target was too."""
    plan = evidence.plan
    return None if plan.target.coordinates.merged else plan.golden.coordinates.merged
