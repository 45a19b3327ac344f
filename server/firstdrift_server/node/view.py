"""One node: the verdict in words, its tensors, how it was matched, and where it was called from."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict, replace
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.records import Comparison, get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import (
    SliceLabel,
    get_slice_label,
    judgement_of,
    left_over_of,
)
from firstdrift.catalogue.comparisons.tree import Pair, Row, get_row, pairs_of_row, path_to_row
from firstdrift.catalogue.dumps.records import IndexedSlice, get_slice, load_dump, load_node
from firstdrift.errors import FirstdriftError
from firstdrift.groups import fields_of, known_items
from firstdrift.matching.plan import TensorPair
from firstdrift.metrics.measurement import Measurement, MeasurementKind, SideSummary
from firstdrift.model.node import Direction, NodeKind
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.operators.properties import role_of_argument
from firstdrift.parallel.slices import read_stacks
from firstdrift.paths import inside
from firstdrift.verdict.judgement import NodeClass, PairJudgement
from firstdrift.verdict.rule_book import ENTRIES
from firstdrift.verdict.token_of_row import token_of_row
from firstdrift.wording.message import Message
from firstdrift_frontend.metric_names import METRICS, Metric
from firstdrift_server.context import Context
from firstdrift_server.node.from_rank import FromRank, from_rank
from firstdrift_server.node.over_slices import OverSlices, over_slices
from firstdrift_server.node.whiskers import Whiskers, whiskers_of
from firstdrift_server.notes.view import notes_view
from firstdrift_server.parts.addresses import (
    comparison_address,
    graph_address,
    node_address,
    rules_address,
    tensor_address,
    tree_address,
)
from firstdrift_server.parts.flow import Flow, flow_of
from firstdrift_server.parts.tree_row import RowView, row_view

FIRST = ("relative_l2", "worst_row_relative_l2", "cosine_similarity", "max_absolute_error")
FIRST_OF_STATISTICS = ("error_bound", "relative_norm", "relative_maximum")
"""The metrics that get a column; the others are listed below each tensor."""

STATISTICS = ("maximum", "minimum", "mean", "norm")
COUNTS = ("nan", "positive_infinity", "negative_infinity", "zeros")
"""What is known of the values of a tensor."""


class Decided(Struct, frozen=True):
    """The rule that decided what a row is called, or that excuses its error, and where it is described.

    Attributes:
        is_class: it decided the class of the row.
    """

    is_class: bool
    name: str
    how: Message
    why: Message
    address: str


class NodeAbove(Struct, frozen=True):
    """A node around another, and the address of its page."""

    label: str
    address: str


class TensorSide(Struct, frozen=True, kw_only=True):
    """A tensor of one side; statistics come from what was measured, else from what was recorded."""

    label: str
    role: Role
    dtype: str
    shape: tuple[int, ...] | None
    digest: str | None
    scalar: str | None
    file: str | None
    entry: str
    maximum: float | None
    minimum: float | None
    mean: float | None
    norm: float | None
    nan: int | None
    positive_infinity: int | None
    negative_infinity: int | None
    zeros: int | None
    problem: Message | None


class PairView(PairJudgement, frozen=True, kw_only=True):
    """A pair of tensors of a node, and what is said of it.

    Attributes:
        argument: what an operator calls it, such as "weight" for `input.1` of linear; empty if not known.
        remark: why it was not compared, or how.
        details: what has no column.
        whiskers: its statistics as a picture, where no values were saved on both sides.
        key: by which it can be asked for; `closer` is the address that shows it from near.
    """

    index: int
    golden_node: str
    target_node: str
    golden: TensorSide
    target: TensorSide
    argument: str
    transform: Sequence[Message]
    kind: MeasurementKind
    remark: Message | None
    metrics: Mapping[str, float | int | None]
    details: Sequence[tuple[Message, Any]]
    whiskers: Whiskers | None
    key: str
    closer: str


class Stack(Struct, frozen=True):
    """A call stack, innermost frame first: all of it, what the user wrote, and what libraries did."""

    frames: Sequence[str]
    own: Sequence[str]
    library: Sequence[str]
    problem: Message | None


class NodeView(RowView, frozen=True, kw_only=True):
    """A node with its tensors, as its page and the panel beside the tree show it.

    Attributes:
        from_rank: from where the error of a communication came; None if not from another rank.
        closeup: one of its pairs from near, if that was asked for.
        over: its error over slices, which its page shows; None where there is one slice.
        worst_tensor: key of the pair that is looked at if nobody says.
        above: the nodes around it, the outermost first.
        columns: the metrics that get a column; the others stand below each tensor.
        unmatched_tensors: by side; likewise stacks.
        rules: the rule set that gives the verdicts; the class is of our own rules.
        roundoff: no factor is given for an input error that is not above it.
    """

    decided: Decided | None
    certainty: Message | None
    from_rank: FromRank | None
    comparison: int
    slice: int
    slice_name: Message
    address: str
    closeup: Mapping[str, Any] | None = None
    over: OverSlices | None = None
    worst_tensor: str | None
    tree: str
    graph: str
    comparison_address: str
    above: Sequence[NodeAbove]
    flow: Flow
    columns: Sequence[tuple[str, Metric]]
    pairs: Sequence[PairView]
    unmatched_tensors: Mapping[str, Sequence[TensorSide]]
    noted: Mapping[str, Any]
    stacks: Mapping[str, Stack]
    rules: str
    roundoff: float


def node_view(session: Session, context: Context, comparison: int, position: int, index: int) -> NodeView:
    """Lay a node out for its page."""
    return node_of(session, context, get_slice_label(session, comparison, position), index)


def node_page(
    session: Session, context: Context, comparison: int, position: int, index: int, along: str | None
) -> NodeView:
    """Lay a node out for its page, with its error over slices."""
    pair = get_slice_label(session, comparison, position)
    view = node_of(session, context, pair, index)
    return replace(view, over=over_slices(session, pair, index, along))


def node_of(session: Session, context: Context, slice_pair: SliceLabel, index: int) -> NodeView:
    """Lay a node of a known slice pair out for its page."""
    comparison, position = slice_pair.comparison_id, slice_pair.position
    known = get_comparison(session, comparison)
    row = get_row(session, slice_pair.id, index)
    pairs = pairs_of_row(session, slice_pair.id, index)
    address = node_address(comparison, position, index)
    is_called = row.tree.kind is NodeKind.API and row.tree.direction is not Direction.BACKWARD
    tensors = [
        _pair_view(pair, key, address, row.tree.type_name if is_called else "")
        for pair, key in zip(pairs, tensor_keys(pairs), strict=True)
    ]
    worst = worst_tensor(row, pairs)
    return NodeView(
        **asdict(row_view(row, frozenset(pair.measurement.kind for pair in pairs))),
        decided=_decided(row, comparison),
        certainty=_certainty(known, slice_pair, index),
        rules=known.options.rules,
        roundoff=judgement_of(session, slice_pair.id).roundoff,
        from_rank=from_rank(session, slice_pair, row),
        comparison=comparison,
        slice=position,
        slice_name=slice_pair.target.name(),
        address=address,
        worst_tensor=None if worst is None else tensors[worst].key,
        tree=tree_address(comparison, position, row=index),
        graph=graph_address(comparison, position, row=index),
        comparison_address=comparison_address(comparison, slice=position),
        flow=flow_of(session, slice_pair, row.tree),
        above=[
            NodeAbove(above.tree.label, node_address(comparison, position, above.tree.index))
            for above in path_to_row(session, slice_pair.id, index)
        ],
        columns=[(name, METRICS[name]) for name in _columns(tensors)],
        pairs=tensors,
        unmatched_tensors=_unmatched(session, slice_pair, row),
        noted=notes_view(session, slice_pair, row.tree),
        stacks={
            "golden": _stack(session, context, slice_pair.golden_slice_id, row.tree.golden),
            "target": _stack(session, context, slice_pair.target_slice_id, row.tree.target),
        },
    )


def tensor_keys(pairs: Sequence[Pair]) -> list[str]:
    """Name the pairs of a node so that each can be asked for: "output.0", and "output.0~2" for a second."""
    seen: Counter[str] = Counter()
    keys = []
    for pair in pairs:
        label = pair.plan.target.label
        seen[label] += 1
        keys.append(label if seen[label] == 1 else f"{label}~{seen[label]}")
    return keys


def worst_tensor(row: Row, pairs: Sequence[Pair]) -> int | None:
    """Return which pair is looked at if nobody says: the worst with values, or the first; None of none."""
    with_data = [number for number, pair in enumerate(pairs) if pair.measurement.kind is MeasurementKind.DATA]
    for number in with_data:
        if pairs[number].index == row.judgement.worst_pair:
            return number
    outputs = [number for number in with_data if pairs[number].plan.target.role is Role.OUTPUT]
    return next(iter([*outputs, *with_data, *range(len(pairs))]), None)


def _certainty(comparison: Comparison, pair: SliceLabel, row: int) -> Message | None:
    """Say how sure the finding is, and what its limit is, of the first bad node; None of any other."""
    found = comparison.findings.first_bad_node if comparison.findings is not None else None
    if found is None or found.confidence is None or (found.coordinates, found.row) != (pair.target, row):
        return None
    return found.confidence.said


def _decided(row: Row, comparison: int) -> Decided | None:
    """Say by which rule a row is called what it is, or what excuses its error; None if none is known."""
    entry = ENTRIES.get(row.judgement.rule or "")
    if entry is None or row.match is None or entry.node_class is NodeClass.CLEAN:
        return None
    is_class = entry.node_class is not None
    how = Message.of(f"rule.table.{'called' if is_class else 'excused'}")
    return Decided(is_class, entry.name, how, entry.why, f"{rules_address(comparison)}#{entry.name}")


def _columns(pairs: Sequence[PairView]) -> tuple[str, ...]:
    known = {name for pair in pairs for name, value in pair.metrics.items() if value is not None}
    return FIRST if known & {"relative_l2"} or not known & {"error_bound"} else FIRST_OF_STATISTICS


def _pair_view(pair: Pair, key: str, address: str, type_name: str) -> PairView:
    plan, measured = pair.plan, pair.measurement
    golden, target = _tensor(plan.golden, measured.golden), _tensor(plan.target, measured.target)
    of_statistics = measured.kind is MeasurementKind.STATISTICS
    return PairView(
        **asdict(pair.judgement),
        index=pair.index,
        golden_node=plan.golden_node,
        target_node=plan.target_node,
        golden=golden,
        target=target,
        argument=role_of_argument(type_name, plan.target.key) if plan.target.role is Role.INPUT else "",
        whiskers=whiskers_of(golden, target) if of_statistics else None,
        transform=plan.transform,
        kind=measured.kind,
        remark=plan.incomparable or measured.reason,
        metrics=measured.values(),
        details=[*_details(measured), *_token(plan, measured)],
        key=key,
        closer=tensor_address(address, key),
    )


def _tensor(record: TensorRecord, summary: SideSummary | None) -> TensorSide:
    statistics = summary or record.statistics
    return TensorSide(
        label=record.label,
        **recorded(record),
        **fields_known(statistics, STATISTICS),
        **fields_known(summary, COUNTS),
        problem=record.problem,
    )


def fields_known(record: object, names: Iterable[str]) -> dict[str, Any]:
    """Return fields of a record by their names; None those that it lacks."""
    return {name: getattr(record, name, None) for name in names}


def recorded(record: TensorRecord) -> dict[str, Any]:
    """Describe a tensor as its dump records it, but for its statistics."""
    return {
        **fields_of(record, ("role", "dtype", "shape", "digest", "scalar")),
        "file": record.location and str(record.location.file),
        "entry": record.location.entry if record.location else "",
    }


_DETAILS: Final[Mapping[str, Mapping[str, str]]] = {
    "errors": {
        "largest_error_at": "max_absolute_at",
        "golden_value_there": "max_absolute_golden",
        "target_value_there": "max_absolute_target",
        "worst_row_at": "worst_row",
    },
    "integers": {
        "first_mismatch_at": "first_mismatch",
        "golden_value_there": "golden_at_first",
        "target_value_there": "target_at_first",
        "same_values_other_order": "same_set",
    },
    "logits": {
        "golden_top_token": "golden_top",
        "target_top_token": "target_top",
        "golden_margin": "golden_margin",
        "target_margin": "target_margin",
        "golden_probability": "golden_top_probability",
        "target_probability": "target_probability_of_golden_top",
        "rounding_tie": "tie_flip",
    },
}
"""What of a measurement has no column, by what was measured: how it is called, and where it stands."""


def _details(measured: Measurement) -> list[tuple[Message, Any]]:
    """List what has no column: places, values and top tokens."""
    last = measured.logits.last if measured.logits is not None else None
    parts = known_items({"errors": measured.errors, "integers": measured.integers, "logits": last})
    found = [
        (Message.of(f"server.{name}"), getattr(said, field))
        for part, said in parts.items()
        for name, field in _DETAILS[part].items()
    ]
    return [(name, value) for name, value in found if value is not None]


def _token(plan: TensorPair, measured: Measurement) -> list[tuple[Message, str]]:
    """Say of which token the worst row is, where rows were compared by token: "1, 2"."""
    row = measured.errors.worst_row if measured.errors is not None else None
    at = None if row is None else token_of_row(plan, row)
    return [] if at is None else [(Message.of("server.worst_row_token"), f"{at[0]}, {at[1]}")]


def _unmatched(session: Session, pair: SliceLabel, row: Row) -> dict[str, list[TensorSide]]:
    """List the tensors without partner: all of an unmatched node, or those left over of a matched one."""
    names = {"golden": row.tree.golden, "target": row.tree.target}
    if row.match is not None:
        left_over = left_over_of(session, pair.id)
        return {
            side: [_tensor(left.record, None) for left in left_over[side] if left.node in names[side]]
            for side in names
        }
    slices = {"golden": pair.golden_slice_id, "target": pair.target_slice_id}
    return {
        side: [
            _tensor(record, None)
            for name in names[side]
            for record in load_node(session, slices[side], name).tensors
        ]
        for side in names
    }


def _stack(session: Session, context: Context, slice_id: int, names: Sequence[str]) -> Stack:
    if not names:
        return _stack_of_frames(())
    return stack_of(session, context, get_slice(session, slice_id), names[0])


def stack_of(session: Session, context: Context, known: IndexedSlice, name: str) -> Stack:
    """Read the call stack of a node from its dump, which may be gone, or outside the roots, by now."""

    def read() -> Mapping[str, tuple[str, ...]]:
        inside(context.roots, known.directory)
        return context.ask(read_stacks, load_dump(session, known.dump_id), known.listing)

    try:
        return _stack_of_frames(context.stacks.get(known.id, read).get(name, ()))
    except FirstdriftError as error:
        return _stack_of_frames((), error.message)


def _stack_of_frames(frames: Sequence[str], problem: Message | None = None) -> Stack:
    """Take a call stack, innermost frame first, apart into what the user wrote and what libraries did."""
    library = list(filter(_LIBRARY.search, frames))
    own = [frame for frame in frames if not _LIBRARY.search(frame)]
    return Stack(frames, own, library, problem)


_LIBRARY = re.compile(
    r"[/\\ ](site-packages|dist-packages|python\d(\.\d+)?|torch|transformers|msprobe|mindspore)[/\\]|<frozen "
)
"""In the path of a file that a user did not write."""
