"""A dump without a partner: its tree, the statistics of its tensors, its call stacks, NaN and infinities.

Statistics are those that were recorded; where values were saved and no statistics, they are computed.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from operator import attrgetter
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.detect import open_dump
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import DumpUnreadableError, SettingsError
from firstdrift.groups import gathered
from firstdrift.matching.plan import MatchingRules
from firstdrift.matching.slice_selection import is_chosen
from firstdrift.metrics.comparability import IncomparableError
from firstdrift.metrics.measurement import SideSummary
from firstdrift.metrics.statistics import as_recorded
from firstdrift.model.node import Node
from firstdrift.model.slice import Coordinates, Dump, Slice, SliceListing
from firstdrift.model.tensor import TensorRecord
from firstdrift.parallel.slices import read_slice, read_stacks
from firstdrift.verdict.judgement import Overflow
from firstdrift.verdict.overflow_single import find_overflow_alone
from firstdrift.wording.message import Message, verbatim


class TensorView(Struct, frozen=True):
    """A tensor and what is known of its values.

    Attributes:
        record: the tensor.
        values: its statistics, NaN and infinities included; None if none are known.
        origin: where they are from: "statistics" (recorded), "data" (computed), "" (none).
        problem: why none are known, where they should be.
    """

    record: TensorRecord
    values: SideSummary | None = None
    origin: str = ""
    problem: Message | None = None


class NodeView(Struct, frozen=True):
    """A node in its place in the tree.

    Attributes:
        node: the node.
        depth: number of nodes around it.
        tensors: its tensors, in the dump's order.
        stack: its call stack, innermost frame first; empty if none was recorded.
        overflow: its level; None if it has no non-finite values that a healthy model has not.
    """

    node: Node
    depth: int
    tensors: tuple[TensorView, ...]
    stack: tuple[str, ...] = ()
    overflow: str | None = None


class SliceView(Struct, frozen=True):
    """One slice: its nodes as a tree, and what overflows.

    Attributes:
        coordinates: which slice.
        nodes: parents before what is inside them, siblings in execution order.
        overflow: nodes with non-finite values, in execution order.
        unknown: number of tensors whose values were saved and could not be read.
        looked_at: number of tensors whose values are known.
        no_stacks: why its call stacks cannot be read; None if they can be, or none were recorded.
    """

    coordinates: Coordinates
    nodes: tuple[NodeView, ...]
    overflow: tuple[Overflow, ...]
    unknown: int
    looked_at: int
    no_stacks: Message | None = None

    @property
    def first_from_finite(self) -> Overflow | None:
        """The first node of which non-finite values come out though none go in, nor lie inside it.

        None if there is none: where weights, or the inputs of the model, are not finite.
        """
        parents = {view.node.name: view.node.parent for view in self.nodes}
        around: set[str] = set()
        for found in self.overflow:
            if found.level == "critical" and found.node not in around:
                return found
            parent = parents.get(found.node)
            while parent is not None and parent not in around:
                around.add(parent)
                parent = parents.get(parent)
        return None


def view_dump(
    path: Path, step: int | None = None, rank: int | None = None, token: int | None = None
) -> Iterator[SliceView]:
    """Yield the slices of a dump, or only those of a step, rank or token; damaged ones are left out.

    Raises:
        DumpError: the dump as a whole cannot be used.
        SettingsError: it has no slice of that step, rank and token.
    """
    dump = open_dump(path)
    rules = MatchingRules(step=step, rank=rank, token=token)
    for listing in _chosen(path, dump, rules):
        try:
            yield view_slice(dump, listing)
        except DumpUnreadableError:  # `inspect_dump` names it
            continue


def _chosen(path: Path, dump: Dump, rules: MatchingRules) -> list[SliceListing]:
    if not dump.slices:
        return []
    places = [listing.coordinates for listing in dump.slices]
    for name in ("step", "rank", "token"):
        wanted = getattr(rules, name)
        if wanted and {getattr(place, name) for place in places} == {None}:
            why = Message.of("comparison.options.not_told_apart", coordinate=name, number=wanted)
            raise SettingsError(why, path=path)
    chosen = [listing for listing in dump.slices if is_chosen(listing.coordinates, rules, 0)]
    if not chosen:
        asked = Coordinates(rules.step, rules.rank, rules.token).name()
        there = {"first": places[0].name(), "last": places[-1].name()}
        why = Message.of("comparison.options.no_such_slice", asked=asked, **there)
        raise SettingsError(why, path=path)
    return chosen


def view_slice(dump: Dump, listing: SliceListing) -> SliceView:
    """Read a slice with the statistics of its tensors.

    Raises:
        DumpUnreadableError: the slice is damaged.
    """
    read = read_slice(dump, listing)
    stacks, no_stacks = _stacks(dump, listing)
    tensors = {node.name: tuple(map(_view, node.tensors)) for node in read.nodes}
    values = [(node, list(map(attrgetter("values"), tensors[node.name]))) for node in read.nodes]
    overflow = tuple(find_overflow_alone(values, read.coordinates))
    levels = {found.node: found.level for found in overflow}
    nodes = tuple(
        NodeView(node, depth, tensors[node.name], stacks.get(node.name, ()), levels.get(node.name))
        for node, depth in _in_tree_order(read)
    )
    views = list(chain.from_iterable(view.tensors for view in nodes))
    return SliceView(
        coordinates=read.coordinates,
        nodes=nodes,
        overflow=overflow,
        unknown=sum(each.problem is not None for each in views),
        looked_at=sum(each.values is not None for each in views),
        no_stacks=no_stacks,
    )


def _stacks(dump: Dump, listing: SliceListing) -> tuple[Mapping[str, tuple[str, ...]], Message | None]:
    """Return the call stacks of a slice, or why they cannot be read: that spoils nothing else."""
    try:
        return read_stacks(dump, listing), None
    except DumpUnreadableError as error:
        name = error.path.name if error.path else ""
        return {}, Message.of("dumps.file.problem", file=name, problem=error.message)


def view_recorded(record: TensorRecord) -> TensorView | None:
    """Say what is known of a tensor without its values; None if they have to be read for that."""
    if not record.is_tensor or record.problem is not None:
        return TensorView(record, problem=record.problem)
    if (recorded := record.statistics) is not None:
        found = SideSummary(None, recorded.maximum, recorded.minimum, recorded.mean, recorded.norm)
        return TensorView(record, found, "statistics")
    return TensorView(record) if record.location is None else None


def view_values(record: TensorRecord) -> TensorView:
    """Compute the statistics of a tensor from its values, or say why they cannot be read."""
    from firstdrift.metrics.arrays import summarise_values

    if record.location is None:
        return TensorView(record)
    try:
        return TensorView(record, as_recorded(summarise_values(record.location, "", load_tensor)), "data")
    except IncomparableError as error:
        problem = verbatim(str(error))
        return TensorView(replace(record, problem=problem), problem=problem)


def _view(record: TensorRecord) -> TensorView:
    return view_recorded(record) or view_values(record)


def _in_tree_order(read: Slice) -> Iterator[tuple[Node, int]]:
    """Yield parents before what is inside them, siblings in execution order, each with its depth."""
    names = {node.name for node in read.nodes}
    inside = gathered((node.parent if node.parent in names else None, node) for node in read.nodes)
    left = [(node, 0) for node in reversed(inside.pop(None, []))]
    while left:
        node, depth = left.pop()
        yield node, depth
        left += [(child, depth + 1) for child in reversed(inside.pop(node.name, []))]
