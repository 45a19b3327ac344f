"""One node: the verdict in words, its tensors, how it was matched, and where it was called from."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.slice_pairs import SliceLabel, get_slice_label, left_over_of
from firstdrift.catalogue.comparisons.tree import Pair, Row, get_row, pairs_of_row, path_to_row
from firstdrift.catalogue.dumps.records import IndexedSlice, get_slice, load_dump, load_node
from firstdrift.errors import FirstdriftError
from firstdrift.metrics.measurement import Measurement, SideSummary
from firstdrift.model.tensor import TensorRecord
from firstdrift.parallel.slices import read_stacks
from firstdrift.paths import inside
from firstdrift.verdict.judgement import NodeClass
from firstdrift.verdict.rule_book import ENTRIES
from firstdrift.wording.message import Message
from firstdrift_frontend.metric_names import METRICS
from firstdrift_server.context import Context
from firstdrift_server.node.tensor_choice import tensor_keys, worst_tensor
from firstdrift_server.notes.view import notes_view
from firstdrift_server.parts.addresses import (
    comparison_address,
    node_address,
    rules_address,
    tensor_address,
    tree_address,
)
from firstdrift_server.parts.tree_row import row_object

FIRST = ("relative_l2", "cosine_similarity", "max_absolute_error")
FIRST_OF_STATISTICS = ("error_bound", "relative_norm", "relative_maximum")
"""The metrics that get a column; the others are listed below each tensor."""

STATISTICS = ("maximum", "minimum", "mean", "norm")
COUNTS = ("nan", "positive_infinity", "negative_infinity", "zeros")
"""What is known of the values of a tensor."""


def node_view(
    session: Session, context: Context, comparison: int, position: int, index: int
) -> dict[str, Any]:
    """Lay a node out for its page."""
    return node_of(session, context, get_slice_label(session, comparison, position), index)


def node_of(session: Session, context: Context, slice_pair: SliceLabel, index: int) -> dict[str, Any]:
    """Lay a node of a known slice pair out for its page."""
    comparison, position = slice_pair.comparison_id, slice_pair.position
    row = get_row(session, slice_pair.id, index)
    pairs = pairs_of_row(session, slice_pair.id, index)
    address = node_address(comparison, position, index)
    tensors = [
        _pair_object(pair) | {"key": key, "closer": tensor_address(address, key)}
        for pair, key in zip(pairs, tensor_keys(pairs), strict=True)
    ]
    worst = worst_tensor(row, pairs)
    return row_object(row, frozenset(pair.measurement.kind for pair in pairs)) | {
        "decided": _decided(row, comparison),
        "comparison": comparison,
        "slice": position,
        "slice_name": slice_pair.target.name(),
        "address": address,
        "closeup": None,
        "worst_tensor": None if worst is None else tensors[worst]["key"],
        "tree": tree_address(comparison, position, row=index),
        "comparison_address": comparison_address(comparison, slice=position),
        "above": [
            {"label": above.tree.label, "address": node_address(comparison, position, above.tree.index)}
            for above in path_to_row(session, slice_pair.id, index)
        ],
        "columns": [(name, METRICS[name]) for name in _columns(tensors)],
        "pairs": tensors,
        "unmatched_tensors": _unmatched(session, slice_pair, row),
        "noted": notes_view(session, slice_pair, row.tree),
        "stacks": {
            "golden": _stack(session, context, slice_pair.golden_slice_id, row.tree.golden),
            "target": _stack(session, context, slice_pair.target_slice_id, row.tree.target),
        },
    }


def _decided(row: Row, comparison: int) -> dict[str, Any] | None:
    """Say by which rule a row is called what it is, or what excuses its error; None if none is known."""
    entry = ENTRIES.get(row.judgement.rule or "")
    if entry is None or row.match is None or entry.node_class is NodeClass.CLEAN:
        return None
    return {
        "name": entry.name,
        "how": Message.of(f"rule.table.{'excused' if entry.node_class is None else 'called'}"),
        "why": entry.why,
        "address": f"{rules_address(comparison)}#{entry.name}",
    }


def _columns(pairs: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    known = {name for pair in pairs for name, value in pair["metrics"].items() if value is not None}
    return FIRST if known & {"relative_l2"} or not known & {"error_bound"} else FIRST_OF_STATISTICS


def _pair_object(pair: Pair) -> dict[str, Any]:
    plan, measured = pair.plan, pair.measurement
    return {
        "index": pair.index,
        "golden_node": plan.golden_node,
        "target_node": plan.target_node,
        "golden": _tensor(plan.golden, measured.golden),
        "target": _tensor(plan.target, measured.target),
        "verdict": str(pair.judgement.verdict),
        "error": pair.judgement.error,
        "reasons": list(pair.judgement.reasons),
        "transform": plan.transform,
        "kind": str(measured.kind),
        "remark": plan.incomparable or measured.reason,
        "metrics": measured.values(),
        "details": _details(measured),
    }


def _tensor(record: TensorRecord, summary: SideSummary | None) -> dict[str, Any]:
    """Describe one side; statistics come from what was measured, else from what was recorded."""
    statistics = summary or record.statistics
    return {
        "label": record.label,
        **recorded(record),
        **{name: getattr(statistics, name, None) for name in STATISTICS},
        **{name: getattr(summary, name, None) for name in COUNTS},
        "problem": record.problem,
    }


def recorded(record: TensorRecord) -> dict[str, Any]:
    """Describe a tensor as its dump records it, but for its statistics."""
    return {
        "role": str(record.role),
        "dtype": record.dtype,
        "shape": None if record.shape is None else list(record.shape),
        "digest": record.digest,
        "scalar": record.scalar,
        "file": record.location and str(record.location.file),
        "entry": record.location.entry if record.location else "",
    }


def _details(measured: Measurement) -> list[tuple[Message, Any]]:
    """List what has no column: places, values and top tokens."""
    found: list[tuple[Message, Any]] = []
    if measured.errors is not None:
        found += [
            (Message.of("server.largest_error_at"), measured.errors.max_absolute_at),
            (Message.of("server.golden_value_there"), measured.errors.max_absolute_golden),
            (Message.of("server.target_value_there"), measured.errors.max_absolute_target),
            (Message.of("server.worst_row_at"), measured.errors.worst_row),
        ]
    if measured.integers is not None:
        found += [
            (Message.of("server.first_mismatch_at"), measured.integers.first_mismatch),
            (Message.of("server.golden_value_there"), measured.integers.golden_at_first),
            (Message.of("server.target_value_there"), measured.integers.target_at_first),
            (Message.of("server.same_values_other_order"), measured.integers.same_set),
        ]
    if measured.logits is not None:
        last = measured.logits.last
        found += [
            (Message.of("server.golden_top_token"), last.golden_top),
            (Message.of("server.target_top_token"), last.target_top),
            (Message.of("server.golden_margin"), last.golden_margin),
            (Message.of("server.target_margin"), last.target_margin),
            (Message.of("server.golden_probability"), last.golden_top_probability),
            (Message.of("server.target_probability"), last.target_probability_of_golden_top),
            (Message.of("server.rounding_tie"), last.tie_flip),
        ]
    return [(name, value) for name, value in found if value is not None]


def _unmatched(session: Session, pair: SliceLabel, row: Row) -> dict[str, list[dict[str, Any]]]:
    """List the tensors without partner: all of an unmatched node, or those left over of a matched one."""
    sides = {
        "golden": (row.tree.golden, pair.golden_slice_id),
        "target": (row.tree.target, pair.target_slice_id),
    }
    left_over = left_over_of(session, pair.id) if row.match else {}
    found: dict[str, list[dict[str, Any]]] = {}
    for side, (names, slice_id) in sides.items():
        if row.match is None:
            records = [record for name in names for record in load_node(session, slice_id, name).tensors]
        else:
            records = [left.record for left in left_over[side] if left.node in names]
        found[side] = [_tensor(record, None) for record in records]
    return found


def _stack(session: Session, context: Context, slice_id: int, names: Sequence[str]) -> dict[str, Any]:
    return stack_of(session, context, get_slice(session, slice_id), names[0]) if names else stack_object(())


def stack_of(session: Session, context: Context, known: IndexedSlice, name: str) -> dict[str, Any]:
    """Read the call stack of a node from its dump, which may be gone, or outside the roots, by now."""

    def read() -> Mapping[str, tuple[str, ...]]:
        inside(context.roots, known.directory)
        return context.ask(read_stacks, load_dump(session, known.dump_id), known.listing)

    try:
        return stack_object(context.stacks.get(known.id, read).get(name, ()))
    except FirstdriftError as error:
        return stack_object(()) | {"problem": error.message}


def stack_object(frames: Sequence[str]) -> dict[str, Any]:
    """Take a call stack, innermost frame first, apart into what the user wrote and what libraries did."""
    own = [frame for frame in frames if not _LIBRARY.search(frame)]
    return {
        "frames": frames,
        "own": own,
        "library": [frame for frame in frames if _LIBRARY.search(frame)],
        "problem": None,
    }


_LIBRARY = re.compile(
    r"[/\\ ](site-packages|dist-packages|python\d(\.\d+)?|torch|transformers|msprobe|mindspore)[/\\]|<frozen "
)
"""In the path of a file that a user did not write."""
