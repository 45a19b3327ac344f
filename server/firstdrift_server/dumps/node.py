"""A node of one dump: its tensors, where it was called from, and how a statistic develops over slices."""

import time
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy.orm import Session

from firstdrift.catalogue.dumps.records import get_dump, load_node
from firstdrift.catalogue.dumps.single_dump import DumpTree, TrendPoint, tensors_of_nodes, trend
from firstdrift.catalogue.lookup import record_of
from firstdrift.comparison.single_dump import TensorView, view_values
from firstdrift.errors import FirstdriftError, NotInCatalogueError, SettingsError
from firstdrift.groups import grouped
from firstdrift.model.node import Direction, NodeKind
from firstdrift.model.slice import Coordinates
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.paths import inside
from firstdrift.wording.message import Message
from firstdrift_server.context import Context
from firstdrift_server.dumps.slices import DumpSummary, dump_summary, slice_at
from firstdrift_server.node.view import COUNTS, NodeAbove, Stack, fields_known, recorded, stack_of
from firstdrift_server.node.view import STATISTICS as OF_VALUES
from firstdrift_server.parts.addresses import dump_node_address, dump_tree_address, tensor_address
from firstdrift_server.tree.state import Parameters
from firstdrift_server.validation import require_known

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


class TensorOfDump(Struct, frozen=True, kw_only=True):
    """A tensor of a node.

    Attributes:
        known_from: where its statistics come from; None if there are none.
        trend: the address that shows how it develops.
    """

    tensor: str
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
    known_from: str | None
    requires_grad: bool | None
    problem: Message | None
    trend: str


class DumpNodeView(Struct, frozen=True, kw_only=True):
    """A node of one dump with its tensors, as its page and the panel beside the tree show it.

    Attributes:
        above: the nodes around it, the outermost first.
        overflow: how badly it overflows; None if it does not.
    """

    dump: DumpSummary
    slice: int
    slice_name: Message
    row: int
    name: str
    path: str
    label: str
    kind: NodeKind
    type_name: str
    direction: Direction
    call: int
    order: int
    micro_step: int | None
    address: str
    tree: str
    above: list[NodeAbove]
    overflow: str | None
    reasons: list[Message]
    tensors: list[TensorOfDump]
    stack: Stack


class SeenPoint(Struct, frozen=True):
    """A slice in a trend: where it is, on which line, and its value, or why it has none."""

    slice: int
    slice_name: Message
    at: int | None
    line: Message | None
    value: float | None
    known_from: str | None
    problem: Message | None
    address: str


class Line(Struct, frozen=True):
    """What one combination of the other coordinates has, in the order of the one that a trend runs along."""

    name: Message | None
    points: list[Point]


class TrendView(Struct, frozen=True, kw_only=True):
    """How a statistic of a tensor develops over the slices of a dump.

    Attributes:
        axis: the coordinate that it runs along, of those that can be chosen.
        known: how many points have a value.
        hidden_lines: how many lines are not drawn; `hidden` how many points are not looked at.
    """

    axis: str
    axes: list[str]
    points: list[SeenPoint]
    lines: list[Line]
    hidden_lines: int
    known: int
    hidden: int


class DumpNodePage(DumpNodeView, frozen=True, kw_only=True):
    """A node with the trend of one of its tensors, and what else can be chosen."""

    tensor: str | None
    statistic: str
    choices: Mapping[str, list[str]]
    trend: TrendView | None


def dump_node_view(
    session: Session, context: Context, dump_id: int, position: int, index: int, tree: DumpTree
) -> DumpNodeView:
    """Describe a node."""
    if index >= len(tree.rows):
        raise NotInCatalogueError(Message.of("server.no_row", row=index))
    known, row = slice_at(session, dump_id, position), tree.rows[index]
    order = tree.orders[index]
    until = time.monotonic() + SECONDS
    found = tensors_of_nodes(session, known.id, [order]).get(order, [])
    views = [_computed(context, (known.id, order, place), each, until) for place, each in enumerate(found)]
    address = dump_node_address(dump_id, position, index)
    overflow = [each for each in tree.overflow if each.node == row.target[0]]
    node = load_node(session, known.id, row.target[0])
    return record_of(
        DumpNodeView,
        node,
        dump=dump_summary(get_dump(session, dump_id)),
        slice=position,
        slice_name=known.coordinates.name(),
        row=index,
        label=row.label,
        address=address,
        tree=dump_tree_address(dump_id, position, row=index),
        above=[
            NodeAbove(tree.rows[each].label, dump_node_address(dump_id, position, each))
            for each in _above(tree, index)
        ],
        overflow=overflow[0].level if overflow else None,
        reasons=[each.reason for each in overflow],
        tensors=[_tensor(view, address) for view in views],
        stack=stack_of(session, context, known, node.name),
    )


def dump_node_page(
    session: Session, context: Context, place: tuple[int, int, int], tree: DumpTree, parameters: Parameters
) -> DumpNodePage:
    """Describe a node with the trend of one of its tensors, as `tensor`, `statistic` and `along` choose."""
    dump_id, position, index = place
    view = dump_node_view(session, context, dump_id, position, index, tree)
    names = [tensor.tensor for tensor in view.tensors if tensor.scalar is None]
    wanted = _tensor_of_trend(names, parameters.get("tensor"))
    statistic = parameters.get("statistic") or STATISTICS[0]
    require_known(statistic, STATISTICS, Message.of("server.no_such_statistic", name=statistic))
    shown = None
    if wanted is not None:
        role, _, key = wanted.partition(".")
        points = trend(session, dump_id, view.name, role, key)
        axes, axis = _axes(points, parameters.get("along"))
        found = list(_points(context, points[:MOST_POINTS], axis, statistic, dump_id, view.name))
        shown = _trend(found, axes, axis, hidden=max(0, len(points) - MOST_POINTS))
    return DumpNodePage(
        **asdict(view),
        tensor=wanted,
        statistic=statistic,
        choices={"tensors": list(dict.fromkeys(names)), "statistics": list(STATISTICS)},
        trend=shown,
    )


def _tensor_of_trend(names: Sequence[str], asked: str | None) -> str | None:
    """Choose the tensor that is asked for, else the first output, else the first; None if there is none."""
    if asked and asked not in names:
        raise SettingsError(
            Message.of("server.no_tensor", tensor=asked),
            hint=Message.of("server.choose", names=tuple(names)),
        )
    outputs = [name for name in names if name.startswith(f"{Role.OUTPUT}.")]
    return asked or next(iter([*outputs, *names]), None)


def _axes(points: Sequence[TrendPoint], along: str | None) -> tuple[list[str], str]:
    """List the coordinates that tell slices apart, and the one along which a trend runs."""
    axes = [axis for axis in AXES if len({getattr(point.coordinates, axis) for point in points}) > 1]
    if along is not None:
        require_known(along, AXES, Message.of("server.no_such_coordinate", name=along))
    return axes, along or next(iter(axes), AXES[0])


def _points(
    context: Context, points: Sequence[TrendPoint], axis: str, statistic: str, dump_id: int, name: str
) -> Iterator[SeenPoint]:
    until = time.monotonic() + SECONDS
    for point in points:
        view = point.view
        if view is None and point.record is not None and point.place is not None:
            view = _computed(context, (point.slice_id, *point.place), point.record, until)
        value = getattr(view.values, statistic, None) if view is not None else None
        yield SeenPoint(
            slice=point.position,
            slice_name=point.coordinates.name(),
            at=getattr(point.coordinates, axis),
            line=_without(point.coordinates, axis),
            value=value,
            known_from=(view.origin or None) if view is not None else None,
            problem=_why_not(point, view) if value is None else None,
            address=dump_tree_address(dump_id, point.position, q=name),
        )


def _trend(found: Sequence[SeenPoint], axes: list[str], axis: str, *, hidden: int) -> TrendView:
    """Give a line for each combination of the other coordinates, and all points as a table."""
    lines = grouped(found, lambda seen: seen.line)
    return TrendView(
        axis=axis,
        axes=axes,
        points=list(found),
        lines=[
            Line(name, sorted(((seen.at, seen.value) for seen in on_line), key=_along))
            for name, on_line in list(lines.items())[:MOST_LINES]
        ],
        hidden_lines=max(0, len(lines) - MOST_LINES),
        known=sum(seen.value is not None for seen in found),
        hidden=hidden,
    )


def _along(point: Point) -> int:
    return -1 if point[0] is None else point[0]


def _why_not(point: TrendPoint, view: TensorView | None) -> Message:
    if point.record is None:
        return Message.of("server.no_tensor_in_slice")
    return (view and view.problem) or Message.of("server.no_statistics")


def _without(where: Coordinates, axis: str) -> Message | None:
    """Say what the slices of a line have in common."""
    rest = Coordinates(**{name: getattr(where, name) for name in AXES if name != axis})
    return None if rest == Coordinates() else rest.name()


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


def _tensor(view: TensorView, node: str) -> TensorOfDump:
    return TensorOfDump(
        tensor=view.record.label,
        **recorded(view.record),
        **fields_known(view.values, (*OF_VALUES, *COUNTS)),
        known_from=view.origin or None,
        requires_grad=view.record.requires_grad,
        problem=view.problem,
        trend=f"{tensor_address(node, view.record.label)}#trend",
    )


def _above(tree: DumpTree, index: int) -> list[int]:
    found: list[int] = []
    above = tree.rows[index].parent
    while above is not None:
        found.insert(0, above)
        above = tree.rows[above].parent
    return found
