"""A dump without a partner as text for a terminal and as JSON: its tree, and where it overflows."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from firstdrift.comparison.single_dump import NodeView, SliceView, TensorView
from firstdrift.exports.report_json import coordinates_object
from firstdrift.exports.text import printable
from firstdrift.plurals import counted
from firstdrift.verdict.judgement import Overflow
from firstdrift.verdict.overflow_single import LEVELS, has_nonfinite
from firstdrift.wording.plain import message_object, message_or_none
from firstdrift.wording.text import text_of

_SHOWN = 20
_FRAMEWORK = "torch/nn/modules/module.py"  # through which every module is called
_STATISTICS = ("maximum", "minimum", "mean", "norm")
_COUNTS = ("nan", "positive_infinity", "negative_infinity")


def overflow_text(view: SliceView) -> str:
    """Say which nodes of a slice overflow, the first hand in execution order."""
    where = view.coordinates.describe()
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
    left = len(view.overflow) - _SHOWN
    lines += [f"  ... and {left} more (--json has all)"] if left > 0 else []
    return "\n".join(map(printable, lines))


def _overflow_line(found: Overflow) -> str:
    return f"{found.node} ({found.level}): {text_of(found.reason)}"


def tree_lines(view: SliceView) -> Iterator[str]:
    """Yield the tree of a slice, a line for each node and each of its tensors."""
    yield f"{view.coordinates.describe()}:"
    if view.no_stacks:
        yield printable(f"  call stacks cannot be read: {view.no_stacks}")
    for each in view.nodes:
        indent = "  " * (each.depth + 1)
        overflow = f"  overflow: {each.overflow}" if each.overflow else ""
        yield printable(f"{indent}{each.node.name} ({each.node.type_name}){overflow}")
        for tensor in each.tensors:
            yield printable(f"{indent}    {_tensor_line(tensor)}")
        if each.stack:
            caller = next((frame for frame in each.stack if _FRAMEWORK not in frame), each.stack[0])
            yield printable(f"{indent}    at {' '.join(caller.split())}")


def _tensor_line(tensor: TensorView) -> str:
    record = tensor.record
    if not record.is_tensor:
        return f"{record.label}  {record.dtype} {record.scalar}"
    shape = "" if record.shape is None else str(list(record.shape))
    parts = [f"{record.label}  {record.dtype} {shape}".rstrip()]
    values = tensor.values
    if tensor.problem is not None:
        parts.append(text_of(tensor.problem))
    elif values is not None:
        known = [(name, getattr(values, name)) for name in _STATISTICS]
        parts.append(", ".join(f"{name} {value:.4g}" for name, value in known if value is not None))
        parts += ["not finite"] if has_nonfinite(values) else []
    return "  ".join(parts)


def overflow_object(views: Sequence[SliceView]) -> dict[str, Any]:
    """Return what `firstdrift inspect --overflow --json` adds to the object."""
    first = next((view.first_overflow for view in views if view.overflow), None)
    finite = next((view.first_from_finite for view in views if view.first_from_finite is not None), None)
    return {
        "overflow": [_overflow(found) for view in views for found in view.overflow],
        "first_overflow": _overflow(first),
        "first_from_finite_inputs": _overflow(finite),
        "values_known": sum(view.looked_at for view in views),
        "values_unreadable": sum(view.unknown for view in views),
    }


def _overflow(found: Overflow | None) -> dict[str, Any] | None:
    if found is None:
        return None
    own = {"node": found.node, "level": found.level, "reason": message_object(found.reason)}
    return coordinates_object(found.coordinates) | own


def tree_object(view: SliceView) -> dict[str, Any]:
    """Return a slice with its nodes: parents before what is inside them, siblings in execution order."""
    return coordinates_object(view.coordinates) | {
        "stacks_unreadable": view.no_stacks or None,
        "nodes": [_node(each) for each in view.nodes],
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
        "tensors": [_tensor(tensor) for tensor in view.tensors],
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
        "problem": message_or_none(view.problem),
    }
