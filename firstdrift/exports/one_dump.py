"""A dump without a partner as text for a terminal and as JSON: its tree, and where it overflows."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from firstdrift.comparison.single_dump import NodeView, SliceView, TensorView
from firstdrift.exports.report_json import coordinates_object, placed_object
from firstdrift.paths import printable
from firstdrift.plurals import counted
from firstdrift.verdict.judgement import Overflow
from firstdrift.verdict.overflow_single import LEVELS, has_nonfinite
from firstdrift.wording.text import text_of

_SHOWN = 20
_FRAMEWORK = "torch/nn/modules/module.py"  # through which every module is called
_STATISTICS = ("maximum", "minimum", "mean", "norm")
_COUNTS = ("nan", "positive_infinity", "negative_infinity")


def overflow_text(view: SliceView) -> str:
    """Say which nodes of a slice overflow, the first hand in execution order."""
    where = text_of(view.coordinates.name())
    levels = Counter(found.level for found in view.overflow)
    said = ", ".join(f"{levels[level]} {level}" for level in reversed(LEVELS))
    lines = [f"{where}: overflow in {counted(len(view.overflow), 'node')} ({said})"]
    if not view.looked_at:
        lines = [f"{where}: no values are known: nothing can be said of overflow"]
    if view.unknown:
        lines.append(f"  not looked at: {counted(view.unknown, 'tensor')} that cannot be read")
    if view.overflow:
        first = view.first_from_finite
        said = "none: it comes with weights or inputs" if first is None else _overflow_line(first)
        lines.append(f"  first from finite inputs: {said}")
    lines += [f"  {_overflow_line(found)}" for found in view.overflow[:_SHOWN]]
    if (left := len(view.overflow) - _SHOWN) > 0:
        lines.append(f"  ... and {left} more (--json has all)")
    return "\n".join(map(printable, lines))


def _overflow_line(found: Overflow) -> str:
    return f"{found.node} ({found.level}): {text_of(found.reason)}"


def tree_lines(view: SliceView) -> Iterator[str]:
    """Yield the tree of a slice, a line for each node and each of its tensors."""
    yield f"{text_of(view.coordinates.name())}:"
    if view.no_stacks:
        yield printable(f"  call stacks cannot be read: {text_of(view.no_stacks)}")
    yield from (printable(line) for node in view.nodes for line in _node_lines(node))


def _node_lines(view: NodeView) -> Iterator[str]:
    indent = "  " * (view.depth + 1)
    overflow = f"  overflow: {view.overflow}" if view.overflow else ""
    yield f"{indent}{view.node.name} ({view.node.type_name}){overflow}"
    yield from (f"{indent}    {_tensor_line(tensor)}" for tensor in view.tensors)
    if view.stack:
        caller = next((frame for frame in view.stack if _FRAMEWORK not in frame), view.stack[0])
        yield f"{indent}    at {' '.join(caller.split())}"


def _tensor_line(tensor: TensorView) -> str:
    record, values = tensor.record, tensor.values
    if not record.is_tensor:
        return f"{record.label}  {record.dtype} {record.scalar}"
    shape = "" if record.shape is None else str(list(record.shape))
    parts = [f"{record.label}  {record.dtype} {shape}".rstrip()]
    if tensor.problem is not None:
        parts.append(text_of(tensor.problem))
    elif values is not None:
        known = ((name, getattr(values, name)) for name in _STATISTICS)
        parts.append(", ".join(f"{name} {value:.4g}" for name, value in known if value is not None))
        parts += ["not finite"] * has_nonfinite(values)
    return "  ".join(parts)


def overflows_object(views: Sequence[SliceView]) -> dict[str, Any]:
    """Return what `firstdrift inspect --overflow --json` adds to the object."""
    overflow = [placed_object(found) for view in views for found in view.overflow]
    finite = filter(None, (view.first_from_finite for view in views))
    return {
        "overflow": overflow,
        "first_overflow": next(iter(overflow), None),
        "first_from_finite_inputs": next(map(placed_object, finite), None),
        "values_known": sum(view.looked_at for view in views),
        "values_unreadable": sum(view.unknown for view in views),
    }


def tree_object(view: SliceView) -> dict[str, Any]:
    """Return a slice with its nodes: parents before what is inside them, siblings in execution order."""
    return coordinates_object(view.coordinates) | {
        "stacks_unreadable": view.no_stacks,
        "nodes": list(map(_node, view.nodes)),
    }


def _node(view: NodeView) -> dict[str, Any]:
    node = view.node
    return {
        "name": node.name,
        "path": node.path,
        "kind": node.kind.value,
        "type": node.type_name,
        "direction": node.direction.value,
        "call": node.call,
        "order": node.order,
        "parent": node.parent,
        "depth": view.depth,
        "overflow": view.overflow,
        "stack": list(view.stack),
        "tensors": list(map(_tensor, view.tensors)),
    }


def _tensor(view: TensorView) -> dict[str, Any]:
    record, values = view.record, view.values
    return {
        "tensor": record.label,
        "dtype": record.dtype,
        "shape": None if record.shape is None else list(record.shape),
        "scalar": record.scalar,
        **{name: getattr(values, name, None) for name in (*_STATISTICS, *_COUNTS)},
        "known_from": view.origin or None,
        "problem": view.problem,
    }
