"""A node of one dump: its tensors, where it was called from, and how a statistic develops over slices."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from firstdrift.catalogue.dumps.records import IndexedSlice, get_dump, load_dump, load_node
from firstdrift.catalogue.dumps.single_dump import DumpTree, TrendPoint, tensors_of_nodes, trend
from firstdrift.comparison.single_dump import TensorView, view_values
from firstdrift.errors import FirstdriftError, NotInCatalogueError, SettingsError
from firstdrift.model.slice import Coordinates
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.parallel.slices import read_stacks
from firstdrift.paths import inside
from firstdrift.wording.message import Message
from firstdrift_server.context import Context
from firstdrift_server.dumps.slices import dump_summary, slice_at
from firstdrift_server.node.view import stack_object
from firstdrift_server.parts.addresses import dump_node_address, dump_tree_address, tensor_address
from firstdrift_server.tree.state import Parameters

STATISTICS = ("norm", "mean", "maximum", "minimum")
"""What a trend can show."""

AXES = ("token", "step", "rank", "micro_step")
"""Along which coordinate a trend runs, the first that tells slices apart unless a visitor chooses."""

SECONDS = 2.0
"""After that, values that are left are not read for a page."""

MOST_LINES = 12
MOST_POINTS = 2000

Point = tuple[int | None, float | None]
"""A coordinate, and the value there."""


def dump_node_view(
    session: Session, context: Context, dump_id: int, position: int, index: int, tree: DumpTree
) -> dict[str, Any]:
    """Describe a node.

    Raises:
        NotInCatalogueError: there is no such row.
    """
    if index >= len(tree.rows):
        raise NotInCatalogueError(Message.of("server.no_row", row=index))
    known, row = slice_at(session, dump_id, position), tree.rows[index]
    order = tree.orders[index]
    until = time.monotonic() + SECONDS
    found = tensors_of_nodes(session, known.id, [order]).get(order, [])
    views = [_computed(context, (known.id, order, place), each, until) for place, each in enumerate(found)]
    address = dump_node_address(dump_id, position, index)
    reasons = [each.reason for each in tree.overflow if each.node == row.target[0]]
    level = next((each.level for each in tree.overflow if each.node == row.target[0]), None)
    node = load_node(session, known.id, row.target[0])
    return {
        "dump": dump_summary(get_dump(session, dump_id)),
        "slice": position,
        "slice_name": known.coordinates.describe(),
        "row": index,
        "name": node.name,
        "path": node.path,
        "label": row.label,
        "kind": str(node.kind),
        "type_name": node.type_name,
        "direction": str(node.direction),
        "call": node.call,
        "order": node.order,
        "micro_step": node.micro_step,
        "address": address,
        "tree": dump_tree_address(dump_id, position, row=index),
        "above": [
            {"label": tree.rows[each].label, "address": dump_node_address(dump_id, position, each)}
            for each in _above(tree, index)
        ],
        "overflow": level,
        "reasons": reasons,
        "tensors": [_tensor(view) | {"trend": _trend_address(address, view)} for view in views],
        "stack": _stack(session, context, known, node.name),
    }


def dump_node_page(
    session: Session, context: Context, place: tuple[int, int, int], tree: DumpTree, parameters: Parameters
) -> dict[str, Any]:
    """Describe a node with the trend of one of its tensors, as `tensor`, `statistic` and `along` choose.

    Raises:
        NotInCatalogueError: there is no such row.
        SettingsError: the node has no such tensor, or there is no such statistic.
    """
    dump_id, position, index = place
    view = dump_node_view(session, context, dump_id, position, index, tree)
    names = [tensor["tensor"] for tensor in view["tensors"] if tensor["scalar"] is None]
    outputs = [name for name in names if name.startswith(f"{Role.OUTPUT}.")]
    wanted = parameters.get("tensor") or next(iter([*outputs, *names]), None)
    statistic = parameters.get("statistic") or STATISTICS[0]
    if wanted is not None and wanted not in names:
        raise SettingsError(
            Message.of("server.no_tensor", tensor=wanted),
            hint=Message.of("server.choose", names=tuple(names)),
        )
    if statistic not in STATISTICS:
        raise SettingsError(
            Message.of("server.no_such_statistic", name=statistic),
            hint=Message.of("server.choose_one_of", names=STATISTICS),
        )
    shown = None
    if wanted is not None:
        role, _, key = wanted.partition(".")
        points = trend(session, dump_id, view["name"], role, key)
        shown = _trend(context, points, (dump_id, index, view["name"]), statistic, parameters.get("along"))
    return view | {
        "tensor": wanted,
        "statistic": statistic,
        "choices": {"tensors": list(dict.fromkeys(names)), "statistics": list(STATISTICS)},
        "trend": shown,
    }


def _trend(
    context: Context,
    points: Sequence[TrendPoint],
    node: tuple[int, int, str],
    statistic: str,
    along: str | None,
) -> dict[str, Any]:
    """Give a line for each combination of the other coordinates, and all points as a table."""
    dump_id, _, name = node
    axes = [axis for axis in AXES if len({getattr(point.coordinates, axis) for point in points}) > 1]
    if along is not None and along not in AXES:
        raise SettingsError(
            Message.of("server.no_such_coordinate", name=along),
            hint=Message.of("server.choose_one_of", names=AXES),
        )
    axis = along or next(iter(axes), AXES[0])
    until = time.monotonic() + SECONDS
    table = []
    lines: dict[str, list[Point]] = {}
    for point in points[:MOST_POINTS]:
        view = point.view
        if view is None and point.record is not None and point.place is not None:
            view = _computed(context, (point.slice_id, *point.place), point.record, until)
        value = None if view is None or view.values is None else getattr(view.values, statistic)
        at = getattr(point.coordinates, axis)
        line = _without(point.coordinates, axis)
        lines.setdefault(line, []).append((at, value))
        table.append(
            {
                "slice": point.position,
                "slice_name": point.coordinates.describe(),
                "at": at,
                "line": line,
                "value": value,
                "known_from": (view.origin if view is not None else "") or None,
                "problem": _why_not(point, view) if value is None else None,
                "address": dump_tree_address(dump_id, point.position, q=name),
            }
        )
    return {
        "axis": axis,
        "axes": axes,
        "points": table,
        "hidden": max(0, len(points) - MOST_POINTS),
        "lines": [
            {"name": line, "points": sorted(found, key=_first)}
            for line, found in list(lines.items())[:MOST_LINES]
        ],
        "hidden_lines": max(0, len(lines) - MOST_LINES),
        "known": sum(entry["value"] is not None for entry in table),
    }


def _first(point: Point) -> int:
    return -1 if point[0] is None else point[0]


def _why_not(point: TrendPoint, view: TensorView | None) -> Message | str:
    if point.record is None:
        return Message.of("server.no_tensor_in_slice")
    return (view and view.problem) or Message.of("server.no_statistics")


def _without(where: Coordinates, axis: str) -> str:
    """Say what the slices of a line have in common."""
    rest = Coordinates(**{name: getattr(where, name) for name in AXES if name != axis})
    return "" if rest == Coordinates() else rest.describe()


def _computed(
    context: Context, key: tuple[int, int, int], tensor: TensorView | TensorRecord, until: float
) -> TensorView:
    """Give what is known of a tensor; its values are read if that is needed, and there is time."""
    if isinstance(tensor, TensorView):
        return tensor
    if time.monotonic() > until:
        return TensorView(tensor, problem=Message.of("dumps.tensor.not_read_in_time"))

    def read() -> TensorView:
        if tensor.location is not None:
            inside(context.roots, tensor.location.file)
        return context.look(view_values, tensor)

    try:
        return context.computed.get(key, read)
    except FirstdriftError as error:
        return TensorView(tensor, problem=error.message)


def _trend_address(node: str, view: TensorView) -> str:
    return f"{tensor_address(node, view.record.label)}#trend"


def _tensor(view: TensorView) -> dict[str, Any]:
    record, values = view.record, view.values
    return {
        "tensor": record.label,
        "role": str(record.role),
        "dtype": record.dtype,
        "shape": None if record.shape is None else list(record.shape),
        "scalar": record.scalar,
        **{name: getattr(values, name, None) for name in ("maximum", "minimum", "mean", "norm")},
        **{
            name: getattr(values, name, None)
            for name in ("nan", "positive_infinity", "negative_infinity", "zeros")
        },
        "known_from": view.origin or None,
        "digest": record.digest,
        "requires_grad": record.requires_grad,
        "problem": view.problem,
        "file": record.location and str(record.location.file),
        "entry": record.location.entry if record.location else "",
    }


def _above(tree: DumpTree, index: int) -> list[int]:
    found: list[int] = []
    above = tree.rows[index].parent
    while above is not None:
        found.insert(0, above)
        above = tree.rows[above].parent
    return found


def _stack(session: Session, context: Context, known: IndexedSlice, name: str) -> dict[str, Any]:
    """Read the call stack of a node from its dump, which may be gone, or outside the roots, by now."""

    def read() -> Mapping[str, tuple[str, ...]]:
        inside(context.roots, known.directory)
        return context.ask(read_stacks, load_dump(session, known.dump_id), known.listing)

    try:
        return stack_object(context.stacks.get(known.id, read).get(name, ()))
    except FirstdriftError as error:
        return stack_object(()) | {"problem": error.message}
