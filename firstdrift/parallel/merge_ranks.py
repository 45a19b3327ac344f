"""Merge the slices of several ranks into that of the model that is spread over them.

    rank 0   embedding, layers.0  ┐ one stage: a node for each of its nodes, each tensor in two shards
    rank 1   embedding, layers.0  ┘
    rank 2   layers.0, norm, head ┐ the next stage: its layers.0 is layers.1 of the model
    rank 3   layers.0, norm, head ┘

Ranks of one stage have the same modules and send each other nothing; stages are in the order in which they
pass on what they computed. Where a layout was said, the tensor-parallel ranks are numbered first, and the
stages last. What stages send each other is what their modules give and take, and is not kept again. A stage
that holds several chunks of layers (`Module.0...`, `Module.1...`: virtual pipeline) is taken apart: all
first chunks come before all second ones.

Ranks may have other experts each, of a mixture that is spread over them; those that number them from 0 all
the same are told by their routers (`expert_ranks.py`).

Where one rank was asked for, its nodes and tensors alone are kept, and what the others hold of these.

What the shards of a tensor are to the whole, side by side, added up or the same, is not asked here: that
shows when they are held against the other dump.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from math import isfinite, prod
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.errors import TensorUnreadableError
from firstdrift.model.names import enclosing_paths
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Layout, Slice, SliceListing
from firstdrift.model.tensor import (
    Role,
    Sharding,
    Shards,
    Statistics,
    TensorRecord,
    is_floating,
    join_statistics,
    shared_location,
)
from firstdrift.operators.properties import runs_after_the_passes, sum_over_ranks
from firstdrift.parallel.expert_parallel import (
    OWN_EXPERTS,
    done_for_own_experts,
    with_own_experts,
    without_experts,
)
from firstdrift.parallel.point_to_point import messages

_NUMBERED: Final = re.compile(r"(?P<list>(?:^|.*?\.)[^.\d][^.]*)\.(?P<number>\d{1,9})(?=\.|$)")
_CHUNK: Final = re.compile(r"(\d{1,9})\.(.+)")
_AFTERWARDS: Final = 2**31

_SAME: Final = 1e-3
"""Difference of statistics, relative to the norm, up to which ranks hold the same tensor."""

_SAMPLE: Final = 1024
_LOOKS_SAME: Final = 1e-2


def merge_ranks(listing: SliceListing, slices: Sequence[Slice]) -> Slice:
    """Merge the slices of the ranks of one model; nodes of later stages say their rank where names clash.

    Args:
        listing: the merged slice; if its coordinates name a rank, what that one has is all that is kept.
        slices: those of its ranks, in the order of `listing.parts`.
    """
    by_rank = {_rank(part): part for part in slices}
    stages = [_align(with_own_experts(stage)) for stage in _stages(by_rank, listing.layout)]
    chunked = [_chunks(stage, listing.layout) for stage in stages]
    most = max(map(len, chunked))
    pieces = [stage[chunk] for chunk in range(most) for stage in chunked if chunk < len(stage)]
    merged = pieces[0] if len(pieces) == 1 else _chain(pieces)
    only = listing.coordinates.rank
    nodes = tuple(_finished(merged, _totals(merged), only))
    problems = tuple(problem for part in slices for problem in part.problems)
    return Slice(listing, nodes, slices[0].order_origin, problems)


def name_on_rank(name: str, rank: int | None, *, first: bool) -> str:
    """Return the name in a merged slice of a node whose name was taken by another stage."""
    return name if first or rank is None else f"{name} (rank {rank})"


class _Merged(Struct, frozen=True):
    """A node of a merged slice before it is finished.

    Attributes:
        held: what each rank has of it; of a module around several stages, what there is of it where the
            data come in and go out.
        parent: index of the node around it; None at the top.
        path: as `Node.path` in the merged slice; likewise call and micro_step.
        alike: whether each of the ranks should have the same tensors.
    """

    held: Mapping[int, Node]
    parent: int | None
    path: str
    call: int
    micro_step: int | None
    alike: bool = True

    @property
    def node(self) -> Node:
        return next(iter(self.held.values()))


def _rank(part: Slice) -> int:
    return part.coordinates.rank or 0


# ---- which ranks are one stage


def _stages(by_rank: Mapping[int, Slice], layout: Layout | None) -> list[dict[int, Slice]]:
    """Deal the ranks out to stages, in the order of the model."""
    ranks = sorted(by_rank)
    if layout is not None:
        size = max(1, len(ranks) // layout.pipeline)
        groups = [ranks[start : start + size] for start in range(0, len(ranks), size)]
    else:
        groups = _found_stages(by_rank)
    return [{rank: by_rank[rank] for rank in group} for group in groups]


def _found_stages(by_rank: Mapping[int, Slice]) -> list[list[int]]:
    links = _links(by_rank)
    modules = {rank: _modules(part) for rank, part in by_rank.items()}
    groups: list[list[int]] = []
    for rank in sorted(by_rank):
        for group in groups:
            linked = any(one in links.get(rank, {}) or rank in links.get(one, {}) for one in group)
            if not linked and modules[group[0]] == modules[rank]:
                group.append(rank)
                break
        else:
            groups.append([rank])
    width = min(map(len, groups))
    parts = [group[start : start + width] for group in groups for start in range(0, len(group), width)]
    return _in_order(parts, links, modules)


def _modules(part: Slice) -> frozenset[str]:
    """Return the modules of a rank; of experts only that it has some: each rank may have others."""
    modules = (node for node in part.nodes if node.kind is not NodeKind.API and node.parent)
    return frozenset(without_experts(node.path) for node in modules)


def _links(by_rank: Mapping[int, Slice]) -> dict[int, dict[int, bool]]:
    """Say for each rank with whom it talks, one to one, and whether it is the first to send."""
    links: dict[int, dict[int, bool]] = {}
    for rank, part in by_rank.items():
        found: dict[int, bool] = {}
        for node in part.nodes:
            if node.type_name.startswith("Distributed."):
                for message in messages(node.type_name, node.tensors):
                    found.setdefault(message.peer, message.sends)
        if found:
            links[rank] = found
    return links


def _in_order(
    groups: list[list[int]], links: Mapping[int, Mapping[int, bool]], modules: Mapping[int, frozenset[str]]
) -> list[list[int]]:
    """Order stages: first who passes on before it receives, then by the numbers of layers, then by rank."""
    after: dict[int, set[int]] = defaultdict(set)
    stage_of = {rank: place for place, group in enumerate(groups) for rank in group}
    for rank, peers in links.items():
        for peer, sends in peers.items():
            if peer in stage_of and stage_of[peer] != stage_of[rank]:
                first, second = (rank, peer) if sends else (peer, rank)
                after[stage_of[second]].add(stage_of[first])
    layers = [_first_layer(modules[group[0]]) for group in groups]
    left = sorted(range(len(groups)), key=lambda place: (layers[place], groups[place]))
    ordered: list[int] = []
    while left:
        ready = [place for place in left if not (after[place] - set(ordered)) & set(left)]
        chosen = ready[0] if ready else left[0]
        ordered.append(chosen)
        left.remove(chosen)
    return [groups[place] for place in ordered]


def _first_layer(paths: Iterable[str]) -> int:
    numbers = [int(match["number"]) for path in paths if (match := _NUMBERED.match(_without_chunk(path)))]
    return min(numbers, default=0)


def _without_chunk(path: str) -> str:
    match = _CHUNK.fullmatch(path)
    return match[2] if match else path


# ---- the ranks of one stage


def _align(stage: Mapping[int, Slice]) -> list[_Merged]:
    """Make one node of the nodes that ranks have at the same place; in execution order."""
    identities: dict[Hashable, int] = {}
    held: dict[int, dict[int, Node]] = defaultdict(dict)
    places: dict[int, tuple[int, int, int]] = {}
    parents: dict[int, int | None] = {}
    leader = min(stage)
    apart = done_for_own_experts(stage)
    for rank, part in sorted(stage.items()):
        own = _identify(part, identities, apart[rank])
        order = [own[node.name] for node in part.nodes]
        anchor = len(stage[leader].nodes)
        for place, (node, identity) in reversed(list(enumerate(zip(part.nodes, order, strict=True)))):
            if not held[identity]:
                places[identity] = (place, 1, 0) if rank == leader else (anchor, 0, place)
            anchor = places[identity][0]
            held[identity][rank] = _left_alone(node) if node.name in apart[rank] else node
            parents[identity] = own.get(node.parent or "")
    ordered = sorted(held, key=places.__getitem__)
    index = {identity: at for at, identity in enumerate(ordered)}
    merged = []
    for identity in ordered:
        nodes = dict(sorted(held[identity].items()))
        first = next(iter(nodes.values()))
        parent = parents[identity]
        merged.append(
            _Merged(
                nodes, None if parent is None else index[parent], first.path, first.call, first.micro_step
            )
        )
    return merged


def _left_alone(node: Node) -> Node:
    """Let nobody compare what a rank did for its own experts."""
    tensors = (
        replace(record, problem=record.problem or OWN_EXPERTS) if record.is_tensor else record
        for record in node.tensors
    )
    return replace(node, tensors=tuple(tensors))


def _identify(part: Slice, identities: dict[Hashable, int], apart: frozenset[str]) -> dict[str, int]:
    """Number the nodes of a slice, so that nodes of two ranks at the same place have the same number.

    The place is that in the tree: the k-th of its name below its parent. Call numbers say nothing, they
    shift where one rank runs an operator more. Nodes that are apart are those of that rank alone.
    """
    found: dict[str, int] = {}
    known = {node.name: node for node in part.nodes}
    seen: Counter[Hashable] = Counter()

    for node in part.nodes:
        chain = [node]
        while chain[-1].parent in known and chain[-1].parent not in found:
            above = known[chain[-1].parent or ""]
            if above in chain:
                break
            chain.append(above)
        for each in reversed(chain):
            if each.name in found:
                continue
            own = part.coordinates.rank if each.name in apart else None
            place = (found.get(each.parent or ""), each.kind, each.path, each.type_name, each.direction, own)
            found[each.name] = identities.setdefault((place, seen[place]), len(identities))
            seen[place] += 1
    return found


# ---- chunks of a stage, and stages one after another


def _chunks(stage: list[_Merged], layout: Layout | None) -> list[list[_Merged]]:
    """Take a stage apart into its chunks; one if it has no more."""
    if layout is not None and layout.virtual == 1:
        return [stage]
    numbers: list[int] = []
    present: list[int] = []
    loose: dict[Hashable, int] = {}  # an operator outside of modules belongs where it first ran
    current = 0
    for each, top in zip(stage, _tops(stage), strict=True):
        match = _CHUNK.fullmatch(stage[top].path) if top is not None else None
        if match:
            current = int(match[1])
            present += [current] if current not in present else []
        kind = each.path, each.node.direction
        numbers.append(current if top is not None else loose.setdefault(kind, current))
    if len(present) < 2:  # noqa: PLR2004
        return [stage]
    found = []
    for number in sorted(present):
        indexes = [at for at, of in enumerate(numbers) if of == number]
        new = {at: place for place, at in enumerate(indexes)}
        found.append([replace(stage[at], parent=new.get(_known(stage[at].parent))) for at in indexes])
    return found


def _known(index: int | None) -> int:
    return -1 if index is None else index


def _tops(piece: list[_Merged]) -> list[int | None]:
    """Give for each node the outermost module around it; None if there is none."""
    tops: list[int | None] = [None] * len(piece)
    for at in _parents_first(piece):
        merged = piece[at]
        above = None if merged.parent is None else tops[merged.parent]
        is_call = merged.node.kind is not NodeKind.API and not runs_after_the_passes(merged.path)
        tops[at] = above if above is not None else at if is_call else None
    return tops


def _parents_first(piece: list[_Merged]) -> list[int]:
    children: dict[int | None, list[int]] = defaultdict(list)
    for at, merged in enumerate(piece):
        children[merged.parent].append(at)
    found = list(children[None])
    for at in found:  # grows while it is gone through
        found += children[at]
    return found


class _Place(Struct, frozen=True, order=True):
    """When a node of a chain runs."""

    micro_step: int
    phase: int
    piece: int
    order: int


def _chain(pieces: list[list[_Merged]]) -> list[_Merged]:
    """Put stages one after another: forward first to last, backward last to first."""
    pieces = _renumbered(pieces)
    containing = _containing(pieces)
    groups: dict[Hashable, list[tuple[int, int]]] = defaultdict(list)
    identities: list[list[Hashable]] = []
    for number, piece in enumerate(pieces):
        keys = _keys(number, piece, containing)
        identities.append(keys)
        for at, key in enumerate(keys):
            groups[key].append((number, at))
    places = [_places(number, piece, len(pieces)) for number, piece in enumerate(pieces)]
    runs = {
        key: max(places[number][at] for number, at in members)
        if _is_container(pieces, members, containing)
        else min(places[number][at] for number, at in members)
        for key, members in groups.items()
    }
    ordered = sorted(groups, key=runs.__getitem__)
    index = {key: at for at, key in enumerate(ordered)}
    several = len({runs[key].micro_step for key in ordered} - {_AFTERWARDS}) > 1
    merged = []
    for key in ordered:
        members = groups[key]
        number, at = members[0]
        first = pieces[number][at]
        parent = None if first.parent is None else index[identities[number][first.parent]]
        around = _is_container(pieces, members, containing)
        held = _held([pieces[number][at] for number, at in members], around)
        if any(True for node in held.values() for _ in messages(node.type_name, node.tensors)):
            held = {rank: replace(node, tensors=()) for rank, node in held.items()}
        micro_step = runs[key].micro_step
        micro = micro_step if several and micro_step != _AFTERWARDS else first.micro_step
        merged.append(replace(first, held=held, parent=parent, micro_step=micro, alike=not around))
    return _recounted(merged, [groups[key][0][0] for key in ordered])


def _renumbered(pieces: list[list[_Merged]]) -> list[list[_Merged]]:
    """Number the layers of stages that each begin at 0 as those of one model, and drop chunk numbers."""
    counts: dict[str, int] = {}
    found = []
    for piece in pieces:
        numbers: dict[str, set[int]] = defaultdict(set)
        for merged in piece:
            if merged.node.kind is not NodeKind.API and (match := _NUMBERED.match(_first_chunk(merged.path))):
                numbers[match["list"]].add(int(match["number"]))
        shifts = {
            name: counts[name] - min(held) if name in counts and min(held) < counts[name] else 0
            for name, held in numbers.items()
        }
        for name, held in numbers.items():
            counts[name] = max(counts.get(name, 0), max(held) + shifts[name] + 1)
        found.append(
            [
                merged
                if merged.node.kind is NodeKind.API
                else replace(merged, path=_shifted(_first_chunk(merged.path), shifts))
                for merged in piece
            ]
        )
    return found


def _first_chunk(path: str) -> str:
    match = _CHUNK.fullmatch(path)
    return f"0.{match[2]}" if match else path


def _shifted(path: str, shifts: Mapping[str, int]) -> str:
    match = _NUMBERED.match(path)
    if match is None or not shifts.get(match["list"]):
        return path
    return f"{match['list']}.{int(match['number']) + shifts[match['list']]}{path[match.end() :]}"


def _keys(number: int, piece: list[_Merged], containing: frozenset[str]) -> list[Hashable]:
    """Identify nodes over stages: modules by path and call, what is in a repeated module by its place."""
    keys: list[Hashable] = [None] * len(piece)
    seen: Counter[Hashable] = Counter()
    repeated = [False] * len(piece)
    for at in _parents_first(piece):
        merged, node = piece[at], piece[at].node
        inside = merged.parent is not None and repeated[merged.parent]
        if inside and merged.parent is not None:
            place = (keys[merged.parent], merged.path, node.type_name, node.direction)
            keys[at] = (place, seen[place])
            seen[place] += 1
            repeated[at] = True
        elif node.kind is not NodeKind.API:
            keys[at] = (merged.path, merged.call, node.type_name, node.direction)
            repeated[at] = merged.path not in containing
        else:
            keys[at] = (number, at)
    return keys


def _containing(pieces: list[list[_Merged]]) -> frozenset[str]:
    """Return the paths of modules that have numbered layers in them, or are one."""
    layers = (
        match[0]
        for piece in pieces
        for merged in piece
        if merged.node.kind is not NodeKind.API and (match := _NUMBERED.match(merged.path))
    )
    return frozenset(path for layer in set(layers) for path in (layer, *enclosing_paths(layer), ""))


def _is_container(
    pieces: list[list[_Merged]], members: list[tuple[int, int]], containing: frozenset[str]
) -> bool:
    return len(members) > 1 and pieces[members[0][0]][members[0][1]].path in containing


def _held(members: list[_Merged], is_container: bool) -> dict[int, Node]:
    """Return what ranks have of a node that is on several stages.

    What goes into a module around them, it gets on the first one; what comes out, it gives on the last.
    """
    if not is_container:
        return {rank: node for merged in members for rank, node in merged.held.items()}
    first, last = members[0], members[-1]
    if first.node.direction is Direction.BACKWARD:
        first, last = last, first
    found: dict[int, Node] = {}
    for merged in members:
        for rank, node in merged.held.items():
            roles = {Role.PARAMETER, Role.GRADIENT}
            roles |= {Role.INPUT} if merged is first else set()
            roles |= {Role.OUTPUT} if merged is last else set()
            kept = tuple(record for record in node.tensors if record.role in roles)
            before = found[rank].tensors if rank in found else ()
            found[rank] = replace(node, tensors=before + kept)
    return found


def _places(number: int, piece: list[_Merged], pieces: int) -> list[_Place]:
    """Say when the nodes of a stage run: micro step, forward or backward, then stage by stage.

    Modules tell the micro step by their calls, as operators outside of modules do that run equally often in
    each: a stage may begin the next micro step before it has finished with the one before.
    """
    tops = _tops(piece)
    steps = 1 + max((piece[top].call for top in tops if top is not None), default=0)
    loose = Counter((each.path, each.node.direction) for at, each in enumerate(piece) if tops[at] is None)
    seen: Counter[tuple[str, Direction]] = Counter()
    places = []
    micro_step, phase = 0, 0
    for at, merged in enumerate(piece):
        top, kind = tops[at], (merged.path, merged.node.direction)
        if top is not None:
            node = piece[top].node
            micro_step, phase = piece[top].call, int(node.direction is Direction.BACKWARD)
        elif merged.node.kind is not NodeKind.API:
            micro_step, phase = _AFTERWARDS, 0
        elif loose[kind] % steps == 0 and not merged.path.startswith("Distributed."):
            micro_step, phase = seen[kind] * steps // loose[kind], int(kind[1] is Direction.BACKWARD)
            seen[kind] += 1
        places.append(_Place(micro_step, phase, pieces - 1 - number if phase else number, at))
    return places


def _recounted(merged: list[_Merged], pieces: list[int]) -> list[_Merged]:
    """Count the calls of operators over all stages; a backward call bears the number of its forward call."""
    counts: Counter[str] = Counter()
    new: dict[tuple[int, str, int], int] = {}
    forward_first = sorted(range(len(merged)), key=lambda at: merged[at].node.direction is Direction.BACKWARD)
    calls = [each.call for each in merged]
    for at in forward_first:
        each = merged[at]
        if each.node.kind is NodeKind.API:
            known = (pieces[at], each.path, each.call)
            if known not in new:
                new[known] = counts[each.path]
                counts[each.path] += 1
            calls[at] = new[known]
    return [replace(each, call=call) for each, call in zip(merged, calls, strict=True)]


# ---- nodes and tensors


def _finished(
    merged: list[_Merged], totals: Mapping[Hashable, TensorRecord], only: int | None
) -> Iterator[Node]:
    merged = merged if only is None else _held_by(merged, only)
    nodes = [each.node if only is None else each.held[only] for each in merged]
    names: list[str] = []
    taken: set[str] = set()
    for each, node in zip(merged, nodes, strict=True):
        name = node.name
        if name in taken:
            name = name_on_rank(name, min(each.held), first=False)
        while name in taken:
            name += "'"
        taken.add(name)
        names.append(name)
    for order, (each, node) in enumerate(zip(merged, nodes, strict=True)):
        yield replace(
            node,
            name=names[order],
            path=each.path,
            type_name=node.type_name,
            call=each.call,
            order=order,
            parent=None if each.parent is None else names[each.parent],
            tensors=tuple(_sharded(each, totals, only)),
            micro_step=each.micro_step,
        )


def _held_by(merged: list[_Merged], rank: int) -> list[_Merged]:
    """Keep the nodes that a rank has; what is around one of them it has as well."""
    new: dict[int | None, int] = {}
    kept: list[int] = []
    for at, each in enumerate(merged):
        if rank in each.held:
            new[at] = len(kept)
            kept.append(at)
    return [replace(merged[at], parent=new.get(merged[at].parent)) for at in kept]


def _sharded(
    merged: _Merged, totals: Mapping[Hashable, TensorRecord], only: int | None
) -> Iterator[TensorRecord]:
    by_label: dict[str, dict[int, TensorRecord]] = defaultdict(dict)
    for rank, node in merged.held.items():
        for record in node.tensors:
            by_label[record.label][rank] = record
    for records in by_label.values():
        if only is not None and only not in records:
            continue
        held = tuple(records.values())
        missing = tuple(rank for rank in merged.held if rank not in records) if merged.alike else ()
        total = totals.get(_values(held))
        shown = _guessed(held) if total is None else _as(total, held[0])
        yield replace(shown, shards=Shards(tuple(records), held, total, missing=missing, only=only))


def _guessed(held: tuple[TensorRecord, ...]) -> TensorRecord:
    """Return what shards look like as a whole, as far as can be told before they are matched.

    Where ranks hold other values each, they are taken to be side by side along the last dimension.
    """
    first = held[0]
    alike = len({record.shape for record in held}) == 1 and bool(first.shape)
    if len(held) == 1 or not alike or not first.shape or not is_floating(first.dtype):
        return first
    same = agree(held)
    if same is None:
        same = _look_alike(held)
    return first if same else replace(first, shape=(*first.shape[:-1], len(held) * first.shape[-1]))


def _look_alike(held: Sequence[TensorRecord]) -> bool:
    """Look at the first values of tensors: are they the same on all ranks? True where they cannot be read."""
    import numpy as np

    from firstdrift.dumps.storage.tensor_data import load_tensor

    samples = []
    for record in held:
        if record.location is None or record.problem is not None:
            return True
        try:
            values = load_tensor(record.location).reshape(-1)[:_SAMPLE]
        except TensorUnreadableError:
            return True
        samples.append(values.astype(np.complex128 if values.dtype.kind == "c" else np.float64))
    if len({sample.shape for sample in samples}) > 1:
        return False
    with np.errstate(all="ignore"):
        apart = [np.linalg.norm(sample - samples[0]) for sample in samples[1:]]
        return not any(apart > _LOOKS_SAME * np.linalg.norm(samples[0]))


def agree(parts: Sequence[TensorRecord]) -> bool | None:
    """Tell whether ranks hold the same tensor, by what was recorded of it; None if nothing was."""
    if all(part.digest is not None for part in parts):
        return len({part.digest for part in parts}) == 1
    known = [part.statistics for part in parts if part.statistics is not None]
    return all(_near(known[0], other) for other in known[1:]) if len(known) == len(parts) else None


def _near(one: Statistics, other: Statistics) -> bool:
    scale = max((abs(value) for value in (one.maximum, one.minimum) if value is not None), default=0.0)
    for first, second, unit in (
        (one.maximum, other.maximum, scale),
        (one.minimum, other.minimum, scale),
        (one.mean, other.mean, scale),
        (one.norm, other.norm, abs(one.norm or 0.0)),
    ):
        if first == second or first is None or second is None:
            continue
        if not (isfinite(first) and isfinite(second)):
            if isfinite(first) or isfinite(second):
                return False
        elif abs(first - second) > _SAME * unit:
            return False
    return True


def _as(total: TensorRecord, part: TensorRecord) -> TensorRecord:
    return replace(total, role=part.role, key=part.key, shape=part.shape)


def _totals(merged: list[_Merged]) -> dict[Hashable, TensorRecord]:
    """Find the sums that all-reduces and reduce-scatters made, by the values that went in."""
    found: dict[Hashable, TensorRecord] = {}
    for each in merged:
        if not sum_over_ranks(each.node.type_name) or len(each.held) < 2 or not _adds_up(each.node):  # noqa: PLR2004
            continue
        given = [_tensor(node, Role.INPUT) for node in each.held.values()]
        known = [record for record in given if record is not None]
        values = _values(known) if len(known) == len(given) else None
        result = _reduced(each) if values is not None else None
        if result is not None:
            found.setdefault(values, result)
    return found


def _reduced(merged: _Merged) -> TensorRecord | None:
    """Return the sum that an operator made: on each rank, or each rank its part of the first dimension."""
    if sum_over_ranks(merged.node.type_name) == "whole":
        return _tensor(merged.node, Role.OUTPUT)
    whole = _tensor(merged.node, Role.INPUT)
    parts = [part for node in merged.held.values() if (part := _tensor(node, Role.OUTPUT)) is not None]
    shapes = {part.shape for part in parts}
    shape = shapes.pop() if len(shapes) == 1 and len(parts) == len(merged.held) else None
    if not shape or whole is None or whole.shape != (len(parts) * shape[0], *shape[1:]):
        return None
    locations = [part.location for part in parts if part.location is not None]
    return replace(
        parts[0],
        shape=whole.shape,
        statistics=join_statistics(parts),
        digest=None,
        location=shared_location(locations, 0) if len(locations) == len(parts) else None,
        problem=next((part.problem for part in parts if part.problem is not None), None),
        shards=Shards(tuple(merged.held), tuple(parts), sharding=Sharding.CONCATENATED, axis=0),
    )


def _tensor(node: Node, role: Role) -> TensorRecord | None:
    return next((record for record in node.tensors if record.role is role and record.is_tensor), None)


def _adds_up(node: Node) -> bool:
    operators = [record.scalar or "" for record in node.tensors if record.dtype.endswith("ReduceOp")]
    return all("SUM" in operator for operator in operators)


def _values(records: Sequence[TensorRecord]) -> Hashable:
    """Return what tells tensors of several ranks from others; None where nothing was recorded."""
    if len(records) < 2 or any(not each.statistics and not each.digest for each in records):  # noqa: PLR2004
        return None
    return tuple((prod(each.shape or ()), each.statistics, each.digest) for each in records)
