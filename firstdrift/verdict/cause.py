"""What makes a node differ, as far as was recorded: one clause for each sign, the most telling first.

| sign                                        | clause                                          |
| ------------------------------------------- | ----------------------------------------------- |
| the two runs call different operators       | golden calls silu, the target calls gelu        |
| the two runs have modules of other classes  | the module is a GELU in golden, a SiLU in the target |
| a weight that is not finite                 | weight of the target contains NaN               |
| a weight that stands in another one's place | the target has the weight of q_proj here        |
| a weight that one run alone has twice       | golden has the weight of embed_tokens here, too |
| values that follow from golden by a pattern | weight = -golden; only index 3 of 8 differs     |
| operators that one run alone calls inside   | only the target run calls mul and add in mlp    |
| no such, and all that runs inside matches   | every node compared inside it matches, up to …  |

What the first sentence says already, such as an argument that differs, is not said again.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from firstdrift.matching.tree import operator_family
from firstdrift.metrics.measurement import Measurement, SideSummary
from firstdrift.model.names import parse_name
from firstdrift.model.node import API
from firstdrift.operators.properties import role_of_argument
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.exchanged_weights import exchanged
from firstdrift.verdict.judgement import Finding, NodeClass, Reasons, RowJudgement, SliceJudgement
from firstdrift.verdict.left_out_terms import left_out_term
from firstdrift.verdict.tied_weights import tied_on_one_side
from firstdrift.verdict.tree import TreeRow, classes_of
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named

_SHOWN: Final = 6
"""More operators than this that one run alone calls inside a node are another implementation of it."""

_PLACES: Final = (
    *("cause.calls", "cause.calls_more"),
    *("cause.after_inside", "cause.changed_after", "cause.between"),
)
_PLACE: Final = {
    **dict.fromkeys(("cause.other_operator", "cause.other_class"), 0),
    **dict.fromkeys(_PLACES, 2),
}
"""Where a sign stands among the others, which stand between."""


def signs_of_row(
    evidence: Evidence, row: TreeRow, judged: RowJudgement, entered: int | None = None
) -> Reasons:
    """Say of a row at which an error begins what its operators and its weights tell of the cause.

    The error may have entered through an input, of the row or of one inside it, that nothing recorded made.
    """
    match judged.node_class:
        case NodeClass.SOURCE:
            left_out = tuple(left_out_term(evidence, evidence.errors[row.index]))
            called = left_out or tuple(_called_inside(evidence.rows, row))
            return (
                *_other_operator(row),
                *_other_class(evidence, row),
                *(called or _where_inside(evidence, row, judged, entered)),
            )
        case NodeClass.NON_FINITE:
            return tuple(_non_finite_weights(evidence, row))
        case NodeClass.WEIGHTS_DIFFER if judged.worst_pair is not None:
            at = judged.worst_pair
            return tuple(exchanged(evidence, at)) or tuple(tied_on_one_side(evidence, at))
    return ()


def tells_cause(shown: Reasons) -> bool:
    """Tell whether values show more than how large a difference is."""
    return not all(map(_is_size_alone, shown))


def most_telling(one: Reasons, other: Reasons) -> Reasons:
    """Return which of what two tensors show tells the cause; the first that shows anything if none does."""
    return other if tells_cause(other) else one or other


def with_values(origin: Finding, shown: Reasons) -> Finding:
    """Let a finding say what the values of its tensor show (`firstdrift.comparison.shown`) as well.

    How large the difference is, and no more, is evidence, but no cause.
    """
    telling = (one for one in shown if not _is_size_alone(one) and _may_be_the_cause(origin, one))
    signs = (*origin.cause, *(_as_line(origin, one) or _of_weight(origin, one) for one in telling))
    cause = tuple(sorted(signs, key=lambda sign: _PLACE.get(sign.id, 1)))
    reasons = (*_settled(origin.reasons, cause), *filter(_is_size_alone, shown))
    return replace(origin, shown=shown, cause=cause, reasons=reasons)


def _may_be_the_cause(origin: Finding, shown: Message) -> bool:
    """Tell whether what values show is a cause: outputs, and trained weights, differ in a low rank anyway."""
    of_rank = any(isinstance(hint, Message) and hint.id == "hint.low_rank" for hint in _hints(shown))
    is_loaded = origin.node_class is NodeClass.WEIGHTS_DIFFER and not origin.coordinates.step
    return is_loaded or not of_rank


def _hints(shown: Message) -> Sequence[object]:
    """Return what values, or statistics, show."""
    hints = shown.arguments.get("hints") or (shown.arguments.get("hint"),)
    return hints if isinstance(hints, tuple) else ()


def _settled(reasons: Reasons, cause: Reasons) -> Reasons:
    """Leave out what might be, where the cause is known."""
    return tuple(reason for reason in reasons if not (cause and reason.id == "reason.order_of_weights"))


def _is_size_alone(shown: Message) -> bool:
    """Tell whether values show nothing but how large the difference is, which is no cause."""
    match _hints(shown):
        case (Message(id="hint.like_rounding" | "hint.like_rounding_by_statistics"),):
            return True
    return False


def seen_from(origin: Finding, pair: int, shown: Reasons, node: str) -> Reasons:
    """Say of what values show whose tensor they are, where that is another node's than the finding's."""
    if pair != origin.entered:  # which of the two is off, and by how much, the input tells better
        return shown if origin.entered is None or tells_cause(shown) else ()
    return tuple(Message.of(one.id, **{**one.arguments, "tensor": _of_node(one, node)}) for one in shown)


def _of_node(shown: Message, node: str) -> Message:
    return Message.of("shown.tensor_of", tensor=shown.arguments["tensor"], node=node)


def with_causes(judged: SliceJudgement) -> SliceJudgement:
    """Let the rows at which an error begins say why, as the findings do."""
    known = {origin.row: (*filter(_is_size_alone, origin.shown), *origin.cause) for origin in judged.origins}
    signs = {row: said for row, said in known.items() if said}
    if not signs:
        return judged
    rows = list(judged.rows)
    for index, cause in signs.items():
        rows[index] = replace(rows[index], reasons=(*_settled(rows[index].reasons, cause), *cause))
    return replace(judged, rows=tuple(rows))


def _as_line(origin: Finding, shown: Message) -> Message | None:
    """Write that a tensor is a multiple of golden where a factor, and nothing else, is shown."""
    match _hints(shown):
        case (Message(id="hint.line", arguments={"line": line}),):
            by = "_by_statistics" if "hint" in shown.arguments else ""
            tensor = _named(origin) if origin.entered is None else shown.arguments["tensor"]
            return Message.of(f"cause.line{by}", tensor=tensor, line=line)
    return None


def _of_weight(origin: Finding, shown: Message) -> Message:
    """Call a weight one where it is an input of an operator, as the reasons do."""
    tensor = origin.tensor or ""
    if origin.node_class is not NodeClass.WEIGHTS_DIFFER or tensor.startswith("parameter."):
        return shown
    known = _role_of_weight(origin)
    named = f"{known} ({tensor})" if known else Message.of("shown.weight", name=tensor)
    return Message.of(shown.id, **{**shown.arguments, "tensor": named})


def _named(origin: Finding) -> Message | str:
    """Name the tensor of a finding: "weight" where it is one of an operator, which numbers its inputs."""
    role, _, key = (origin.tensor or "").partition(".")
    if origin.node_class is not NodeClass.WEIGHTS_DIFFER:
        return origin.tensor or ""
    if role == "parameter":
        return key
    return _role_of_weight(origin) or Message.of("cause.weight")


def _role_of_weight(origin: Finding) -> str:
    """Return what an operator calls the weight of a finding ("bias"); empty where that is its weight."""
    _, _, key = (origin.tensor or "").partition(".")
    known = role_of_argument(parse_name(origin.target or origin.golden).type_name, key)
    return "" if known in {"weight", key} else known


def _other_operator(row: TreeRow) -> Iterator[Message]:
    names = row.golden[:1], row.target[:1]
    if row.kind is not API or not all(names):
        return
    golden, target = (parse_name(side[0]) for side in names)
    families = operator_family(golden.type_name), operator_family(target.type_name)
    if golden.kind == target.kind == API and families[0] != families[1]:
        yield Message.of("cause.other_operator", golden=families[0], target=families[1])


def _other_class(evidence: Evidence, row: TreeRow) -> Iterator[Message]:
    """Say of which classes a module is, where nearly all others are of the same in both runs."""
    classes = classes_of(row)
    if evidence.has_same_classes and classes is not None and classes[0] != classes[1]:
        yield Message.of("cause.other_class", golden=classes[0], target=classes[1])


def _called_inside(rows: Sequence[TreeRow], row: TreeRow) -> Iterator[Message]:
    """Say which operators one run calls alone, or more often, inside a node that both have by one name."""
    alone = _alone_inside(rows, row) if row.golden and row.golden == row.target else []
    if len(alone) > _SHOWN or not any(map(_is_matched_operator, rows)):  # one run recorded none
        return
    in_both = _families(filter(_is_matched_operator, rows[row.index + 1 : row.last + 1]))
    golden, target = (_families(one for one in alone if one.side == side) for side in ("golden", "target"))
    yield from _calls("target", target, golden, in_both, row.label)
    yield from _calls("golden", golden, target, in_both, row.label)


def _calls(
    side: str, called: Sequence[str], by_other: Sequence[str], in_both: Sequence[str], node: str
) -> Iterator[Message]:
    own, other = side_named(side), side_named("golden" if side == "target" else "target")
    if new := tuple(one for one in called if one not in {*by_other, *in_both}):
        yield Message.of("cause.calls", side=own, operators=new, node=node)
    if more := tuple(one for one in called if one in in_both and one not in by_other):
        yield Message.of("cause.calls_more", side=own, other=other, operators=more, node=node)


def _families(operators: Iterable[TreeRow]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(operator_family(one.type_name) for one in operators))


def _is_matched_operator(row: TreeRow) -> bool:
    return row.match is not None and row.kind is API


def _where_inside(
    evidence: Evidence, row: TreeRow, judged: RowJudgement, entered: int | None
) -> Iterator[Message]:
    """Say between which of the nodes inside a node it goes wrong, or after all of them, if they match."""
    rows, errors = evidence.rows[row.index + 1 : row.last + 1], evidence.errors
    after = None if entered is None else evidence.row_of(entered)
    inside = [
        one
        for one in rows
        if one.direction is row.direction
        and errors[one.index].output is not None
        and (after is None or one.order < after.order)
    ]
    worst = max((errors[one.index].output or 0.0 for one in inside), default=math.inf)
    limits, given = evidence.limits, judged.input_error or 0.0
    matches = max(limits.floor * evidence.rounding, limits.factor * given)
    if worst > matches or worst * limits.factor >= (judged.output_error or 0.0):
        return
    last = max(inside, key=attrgetter("order"))
    if after is None:
        how = "changed_after" if _golden_hands_on(evidence, row, last) else "after_inside"
        yield Message.of(f"cause.{how}", last=last.label, node=row.label)
    elif after is not row:
        yield Message.of("cause.between", before=last.label, after=after.label)


def _golden_hands_on(evidence: Evidence, row: TreeRow, last: TreeRow) -> bool:
    """Tell whether golden's module gives what the last node inside it gave, and the target's does not."""
    pairs = evidence.errors[row.index].output_pair, evidence.errors[last.index].output_pair
    ours, inner = (None if at is None else evidence.measurements[at] for at in pairs)
    if ours is None or inner is None or ours.golden is None or ours.golden.norm is None:
        return False
    return ours.golden == inner.golden and ours.target != inner.target


def _alone_inside(rows: Sequence[TreeRow], row: TreeRow) -> list[TreeRow]:
    return [
        other
        for other in rows[row.index + 1 : row.last + 1]
        if other.match is None and other.kind is API and other.direction is row.direction
    ]


def _non_finite_weights(evidence: Evidence, row: TreeRow) -> Iterator[Message]:
    for index in evidence.errors[row.index].parameters:
        pair, measured = evidence.plan.pairs[index], evidence.measurements[index]
        what = _not_finite(measured)
        if what is not None:
            key = pair.target.key if pair.target.role == "parameter" else Message.of("cause.weight")
            yield Message.of("cause.contains", tensor=key, what=what)


def _not_finite(measured: Measurement) -> Message | None:
    """Say what a target tensor contains beside numbers, if golden has none of it."""
    found = _kinds(measured.target) - _kinds(measured.golden)
    return next((Message(kind) for kind in ("hint.nan", "hint.infinities") if kind in found), None)


def _kinds(side: SideSummary | None) -> set[str]:
    if side is None:
        return set()
    return {
        kind for kind, there in (("hint.nan", side.has_nan), ("hint.infinities", side.has_infinity)) if there
    }
