"""Put the stages of a pipeline one after another, as one model runs them.

    stage 0   layers.0 (rank 0)  ┐  layers.0, layers.1, norm, head; the model around them takes what it takes
    stage 1   layers.0, norm,    │  on stage 0 and gives what it gives on stage 1
              head (rank 1)      ┘

A stage that holds several chunks of layers (`0.model...`, `1.model...`: virtual pipeline) is taken apart:
all first chunks come before all second ones. What stages send each other is what their modules give and take,
and is not kept again.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from itertools import chain, count, zip_longest
from operator import attrgetter
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.groups import gathered, grouped, known
from firstdrift.model.names import enclosing_paths
from firstdrift.model.node import Direction, Node
from firstdrift.model.slice import Layout
from firstdrift.model.tensor import Role
from firstdrift.parallel.layer_numbers import chunk_of, in_first_chunk, outermost_layer
from firstdrift.parallel.merged_nodes import MergedNode, outermost_modules, parents_first, select
from firstdrift.parallel.point_to_point import is_communication, messages

_AFTERWARDS: Final = 2**31
"""The micro step of what runs after all passes, as the optimizer does."""

Piece = list[MergedNode]
"""A stage, or one chunk of it."""


def chain_stages(stages: Sequence[Piece], layout: Layout | None) -> Piece:
    """Put stages one after another: forward first to last, backward last to first."""
    chunked = [_chunks(stage, layout) for stage in stages]
    pieces = known(chain.from_iterable(zip_longest(*chunked)))
    return pieces[0] if len(pieces) == 1 else _chain(pieces)


# ---- chunks of a stage


def _chunks(stage: Piece, layout: Layout | None) -> list[Piece]:
    """Take a stage apart into its chunks; one if it has no more."""
    if layout is not None and layout.virtual == 1:
        return [stage]
    tops = outermost_modules(stage)
    paths = ("" if top is None else stage[top].path for top in tops)
    chunks = list(map(chunk_of, paths))
    present = sorted(set(known(chunks)))
    if len(present) < 2:  # noqa: PLR2004 (several)
        return [stage]
    places = gathered((chunk, at) for at, chunk in enumerate(_running_chunks(stage, tops, chunks)))
    return [select(stage, places[chunk]) for chunk in present]


def _running_chunks(stage: Piece, tops: Sequence[int | None], chunks: Sequence[int | None]) -> Iterator[int]:
    """Yield the chunk of each node of a stage: that of its module, else the one that ran last."""
    current = 0
    loose: dict[Hashable, int] = {}  # an operator outside of modules belongs where it first ran
    for merged, top, chunk in zip(stage, tops, chunks, strict=True):
        current = current if chunk is None else chunk
        yield loose.setdefault(_kind(merged), current) if top is None else current


# ---- stages one after another


class _Moment(Struct, frozen=True, order=True):
    """When a node runs; phase 1 is the backward pass of its micro step."""

    micro_step: int
    phase: int
    piece: int
    order: int


class _Occurrence(Struct, frozen=True):
    """A node on one stage: on which, when it runs there, and the key of the node around it, if any."""

    piece: int
    merged: MergedNode
    moment: _Moment
    around: tuple[Hashable] | None


class _Group:
    """What is one node of the model: a node of one stage, or a module that several stages have."""

    def __init__(self, occurrences: Sequence[_Occurrence], containing: frozenset[str]) -> None:
        self.first = occurrences[0]
        self.members = [occurrence.merged for occurrence in occurrences]
        self.is_around = len(occurrences) > 1 and self.first.merged.path in containing
        self.moment = (max if self.is_around else min)(occurrence.moment for occurrence in occurrences)

    def held(self) -> dict[int, Node]:
        """What ranks have of it, without what stages send each other."""
        everywhere = chain.from_iterable(merged.held.items() for merged in self.members)
        held = self._on_ends() if self.is_around else dict(everywhere)
        sent = chain.from_iterable(messages(node.type_name, node.tensors) for node in held.values())
        if next(sent, None) is not None:
            return {rank: replace(node, tensors=()) for rank, node in held.items()}
        return held

    def _on_ends(self) -> dict[int, Node]:
        """Return a module around stages: what goes in, it gets on the first; what comes out, on the last."""
        ends = (self.members[0], self.members[-1])
        first, last = ends[::-1] if ends[0].is_backward else ends
        held: dict[int, Node] = {}
        for merged in self.members:
            at_ends = ((Role.INPUT, first), (Role.OUTPUT, last))
            roles = {Role.PARAMETER, Role.GRADIENT, *(role for role, end in at_ends if end is merged)}
            for rank, node in merged.held.items():
                kept = tuple(record for record in node.tensors if record.role in roles)
                before = held[rank].tensors if rank in held else ()
                held[rank] = replace(node, tensors=before + kept)
        return held


def _chain(stages: list[Piece]) -> Piece:
    pieces = _renumbered(stages)
    containing = _containing(pieces)
    occurrences: dict[Hashable, list[_Occurrence]] = defaultdict(list)
    for number, piece in enumerate(pieces):
        keys = _keys(number, piece, containing)
        moments = _moments(number, piece, len(pieces))
        for key, merged, moment in zip(keys, piece, moments, strict=True):
            around = None if merged.parent is None else (keys[merged.parent],)
            occurrences[key].append(_Occurrence(number, merged, moment, around))
    unordered = {key: _Group(members, containing) for key, members in occurrences.items()}
    groups = dict(sorted(unordered.items(), key=lambda entry: entry[1].moment))
    index: dict[tuple[Hashable] | None, int | None] = {None: None}
    index |= {(key,): at for at, key in enumerate(groups)}
    micro_steps = {group.moment.micro_step for group in groups.values()} - {_AFTERWARDS}
    chained = [
        replace(
            group.first.merged,
            held=group.held(),
            parent=index[group.first.around],
            micro_step=_micro_step(group, micro_steps),
            alike=not group.is_around,
        )
        for group in groups.values()
    ]
    return _recounted(chained, [group.first.piece for group in groups.values()])


def _micro_step(group: _Group, micro_steps: Collection[int]) -> int | None:
    micro_step = group.moment.micro_step
    is_one_of_several = len(micro_steps) > 1 and micro_step in micro_steps
    return micro_step if is_one_of_several else group.first.merged.micro_step


def _renumbered(pieces: list[Piece]) -> list[Piece]:
    """Number the layers of stages that each begin at 0 as those of one model, and drop chunk numbers."""
    counts: Counter[str] = Counter()
    renumbered: list[Piece] = []
    for piece in pieces:
        numbers = _layer_numbers(piece)
        shifts = {name: max(0, counts[name] - min(held)) for name, held in numbers.items()}
        for name, held in numbers.items():
            counts[name] = max(counts[name], max(held) + shifts[name] + 1)
        renumbered.append(
            [
                merged if merged.is_operator else replace(merged, path=_shifted(merged.path, shifts))
                for merged in piece
            ]
        )
    return renumbered


def _layer_numbers(piece: Piece) -> dict[str, set[int]]:
    """Return the numbers of the layers of a stage, by the path of their list."""
    paths = (in_first_chunk(merged.path) for merged in piece if not merged.is_operator)
    lists = grouped(known(map(outermost_layer, paths)), attrgetter("list"))
    return {name: {layer.number for layer in layers} for name, layers in lists.items()}


def _shifted(own_path: str, shifts: Mapping[str, int]) -> str:
    path = in_first_chunk(own_path)
    layer = outermost_layer(path)
    if layer is None or not shifts.get(layer.list):
        return path
    return f"{layer.list}.{layer.number + shifts[layer.list]}{path[len(layer.path) :]}"


def _containing(pieces: list[Piece]) -> frozenset[str]:
    """Return the paths of modules that have numbered layers in them, or are one."""
    paths = (merged.path for merged in chain.from_iterable(pieces) if not merged.is_operator)
    layers = {layer.path for layer in known(map(outermost_layer, paths))}
    return frozenset(chain(("",) if layers else (), layers, *map(enclosing_paths, layers)))


def _keys(number: int, piece: Piece, containing: frozenset[str]) -> list[Hashable]:
    """Identify nodes over stages: modules by path and call, what is in a repeated module by its place."""
    keys: dict[int | None, Hashable] = {}
    seen: Counter[Hashable] = Counter()
    repeated: set[int | None] = set()
    for at in parents_first(piece):
        merged, node = piece[at], piece[at].node
        if merged.parent in repeated:
            place = (keys[merged.parent], merged.path, node.type_name, node.direction)
            keys[at] = (place, seen[place])
            seen[place] += 1
            repeated.add(at)
        elif merged.is_operator:
            keys[at] = (number, at)
        else:
            keys[at] = (merged.path, merged.call, node.type_name, node.direction)
            repeated |= set() if merged.path in containing else {at}
    return list(map(keys.get, range(len(piece))))


def _moments(number: int, piece: Piece, pieces: int) -> list[_Moment]:
    """Say when the nodes of a stage run: micro step, forward or backward, then stage by stage.

    Modules tell the micro step by their calls, as operators outside of modules do that run equally often in
    each: a stage may begin the next micro step before it has finished with the one before.
    """
    tops = outermost_modules(piece)
    steps = 1 + max((piece[top].call for top in known(tops)), default=0)
    loose = [merged for merged, top in zip(piece, tops, strict=True) if top is None]
    runs = Counter(map(_kind, loose))
    seen: Counter[tuple[str, Direction]] = Counter()
    moments = []
    micro_step, is_backward = 0, False
    for at, (merged, top) in enumerate(zip(piece, tops, strict=True)):
        kind = _kind(merged)
        if top is not None:
            micro_step, is_backward = piece[top].call, piece[top].is_backward
        elif not merged.is_operator:
            micro_step, is_backward = _AFTERWARDS, False
        elif runs[kind] % steps == 0 and not is_communication(merged.path):
            micro_step, is_backward = seen[kind] * steps // runs[kind], merged.is_backward
            seen[kind] += 1
        place = pieces - 1 - number if is_backward else number
        moments.append(_Moment(micro_step, int(is_backward), place, at))
    return moments


def _kind(merged: MergedNode) -> tuple[str, Direction]:
    return merged.path, merged.node.direction


def _recounted(merged: Piece, pieces: list[int]) -> Piece:
    """Count the calls of operators over all stages; a backward call bears the number of its forward call."""
    recounted = list(merged)
    new: dict[tuple[int, str, int], int] = {}
    counters: dict[str, count[int]] = defaultdict(count)
    for at in sorted(range(len(merged)), key=lambda at: merged[at].is_backward):
        each = merged[at]
        if each.is_operator:
            call = (pieces[at], each.path, each.call)
            new[call] = new[call] if call in new else next(counters[each.path])
            recounted[at] = replace(each, call=new[call])
    return recounted
