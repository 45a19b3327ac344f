"""Merge the slices of several ranks into that of the model that is spread over them.

    rank 0   embedding, layers.0  ┐ one stage: a node for each of its nodes, each tensor in two shards
    rank 1   embedding, layers.0  ┘
    rank 2   layers.0, norm, head ┐ the next stage: its layers.0 is layers.1 of the model
    rank 3   layers.0, norm, head ┘

Where one rank was asked for, its nodes and tensors alone are kept, and what the others hold of these.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from firstdrift.model.node import Node
from firstdrift.model.slice import Slice, SliceListing
from firstdrift.parallel.expert_parallel import with_own_experts
from firstdrift.parallel.merged_nodes import MergedNode, merge_stage, select
from firstdrift.parallel.pipeline import chain_stages
from firstdrift.parallel.shards_of_tensors import find_totals, tensors_of
from firstdrift.parallel.stages import find_stages

_ON_RANK: Final = re.compile(r" \(rank [0-9]+\)$")


def merge_ranks(listing: SliceListing, slices: Sequence[Slice]) -> Slice:
    """Merge the slices of the ranks of one model; nodes of later stages say their rank where names clash.

    Args:
        listing: the merged slice; if its coordinates name a rank, what that one has is all that is kept.
        slices: those of its ranks, in the order of `listing.parts`.
    """
    by_rank = {part.coordinates.rank or 0: part for part in slices}
    stages = [merge_stage(with_own_experts(stage)) for stage in find_stages(by_rank, listing.layout)]
    merged = chain_stages(stages, listing.layout)
    nodes = tuple(_finished(merged, listing.coordinates.rank))
    problems = tuple(problem for part in slices for problem in part.problems)
    return Slice(listing, nodes, slices[0].order_origin, problems)


def name_on_rank(name: str, rank: int | None, *, first: bool) -> str:
    """Return the name in a merged slice of a node whose name was taken by another stage."""
    return name if first or rank is None else f"{name} (rank {rank})"


def rank_of_name(name: str) -> str:
    """Return what `name_on_rank` has added to a name; "" of a name as it was recorded."""
    added = _ON_RANK.search(name)
    return "" if added is None else added[0]


def _finished(merged: list[MergedNode], only: int | None) -> Iterator[Node]:
    totals = find_totals(merged)
    if only is not None:
        merged = select(merged, [at for at, each in enumerate(merged) if only in each.held])
    nodes = [each.node if only is None else each.held[only] for each in merged]
    names = _names(merged, nodes)
    for order, (each, node) in enumerate(zip(merged, nodes, strict=True)):
        yield replace(
            node,
            name=names[order],
            path=each.path,
            call=each.call,
            order=order,
            parent=None if each.parent is None else names[each.parent],
            tensors=tuple(tensors_of(each, totals, only)),
            micro_step=each.micro_step,
        )


def _names(merged: list[MergedNode], nodes: list[Node]) -> list[str]:
    """Give each node a name of its own: one that is taken is followed by the rank."""
    names: dict[str, None] = {}
    for each, node in zip(merged, nodes, strict=True):
        name = name_on_rank(node.name, min(each.held), first=node.name not in names)
        while name in names:
            name += "'"
        names[name] = None
    return list(names)
