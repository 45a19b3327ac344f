"""Find out which ranks make up one pipeline stage, and in which order the stages run.

Ranks of one stage have the same modules and send each other nothing, one to one. Stages are in the order in
which they hand on what they computed, else in that of the numbers of their layers.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain

from firstdrift.groups import known
from firstdrift.model.node import NodeKind
from firstdrift.model.slice import Layout, Slice
from firstdrift.parallel.expert_parallel import without_experts
from firstdrift.parallel.layer_numbers import outermost_layer, without_chunk
from firstdrift.parallel.point_to_point import is_communication, messages

Ranks = list[int]
"""The ranks of one stage."""

HandOvers = set[tuple[int, int]]
"""Pairs of ranks that send each other messages: first the one that sends first."""


def find_stages(by_rank: Mapping[int, Slice], layout: Layout | None) -> list[dict[int, Slice]]:
    """Deal the ranks out to stages, in the order of the model; by the layout, if one was said."""
    size = max(1, len(by_rank) // layout.pipeline) if layout is not None else 0
    stages = _cut(sorted(by_rank), size) if size else _recognised(by_rank)
    return [{rank: by_rank[rank] for rank in stage} for stage in stages]


def _recognised(by_rank: Mapping[int, Slice]) -> list[Ranks]:
    hand_overs = _hand_overs(by_rank)
    modules = {rank: _modules(part) for rank, part in by_rank.items()}
    alike: list[Ranks] = []
    for rank in sorted(by_rank):
        group = next((group for group in alike if _belongs(rank, group, modules, hand_overs)), None)
        if group is None:
            alike.append(group := [])
        group.append(rank)
    width = min(map(len, alike))
    stages = chain.from_iterable(_cut(group, width) for group in alike)
    return _in_order(list(stages), hand_overs, modules)


def _cut(ranks: Ranks, size: int) -> list[Ranks]:
    return [ranks[start : start + size] for start in range(0, len(ranks), size)]


def _belongs(rank: int, group: Ranks, modules: Mapping[int, frozenset[str]], hand_overs: HandOvers) -> bool:
    if modules[group[0]] != modules[rank]:
        return False
    return not any({(rank, other), (other, rank)} & hand_overs for other in group)


def _modules(part: Slice) -> frozenset[str]:
    """Return the modules of a rank; of experts only that it has some: each rank may have others."""
    modules = (node for node in part.nodes if node.kind is not NodeKind.API and node.parent)
    return frozenset(without_experts(node.path) for node in modules)


def _hand_overs(by_rank: Mapping[int, Slice]) -> HandOvers:
    sends: dict[tuple[int, int], bool] = {}
    for rank, part in by_rank.items():
        for node in filter(lambda node: is_communication(node.type_name), part.nodes):
            for message in messages(node.type_name, node.tensors):
                sends.setdefault((rank, message.peer), message.sends)
    return {pair if is_first else pair[::-1] for pair, is_first in sends.items()}


def _in_order(
    stages: list[Ranks], hand_overs: HandOvers, modules: Mapping[int, frozenset[str]]
) -> list[Ranks]:
    """Order stages: first who hands on before it receives, then by the numbers of layers, then by rank."""
    stage_of = {rank: place for place, stage in enumerate(stages) for rank in stage}
    senders: dict[int | None, set[int | None]] = defaultdict(set)
    for sender, receiver in hand_overs:
        senders[stage_of.get(receiver)].add(stage_of.get(sender))
    left = sorted(
        range(len(stages)), key=lambda place: (_first_layer(modules[stages[place][0]]), stages[place])
    )
    ordered: list[Ranks] = []
    while left:
        place = next((place for place in left if senders[place].isdisjoint({*left} - {place})), left[0])
        left.remove(place)
        ordered.append(stages[place])
    return ordered


def _first_layer(paths: Iterable[str]) -> int:
    layers = known(map(outermost_layer, map(without_chunk, paths)))
    return min((layer.number for layer in layers), default=0)
