"""What one run recorded of its mixtures of experts: the weights of the experts and of the router.

mlp.gate.weight             [4, 16]        the router, a row for each expert
mlp.experts.0.up_proj       [24, 16]       experts one by one
mlp.experts.gate_up_proj    [4, 48, 16]    or all in one tensor
"""

from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct

from firstdrift.matching.tree import is_operator
from firstdrift.model.node import Direction, Node
from firstdrift.model.slice import Slice
from firstdrift.model.tensor import Role, TensorRecord, is_floating
from firstdrift.operators.paths import (
    expert_of_block,
    is_router,
    is_shared,
    may_speak_of_experts,
    stacked_weight,
)

Weights: TypeAlias = dict[str, TensorRecord]
"""Weights by what they are called in an expert."""


class Block(Struct):
    """A mixture of experts.

    Attributes:
        path: that of the module around experts and router.
        single: the weights of each expert that has some of its own, by its number.
        stacked: the weights that all experts have in one tensor.
        router: the weights of the router.
        given: what each expert was given first.
    """

    path: str
    single: dict[int, Weights] = {}
    stacked: Weights = {}
    router: Weights = {}
    given: dict[int, TensorRecord] = {}

    @property
    def size(self) -> int:
        """How many experts there are: the router has a row for each, whichever ran."""
        rows = [record.shape[0] for record in (*self.router.values(), *self.stacked.values()) if record.shape]
        return max([*rows, *(number + 1 for number in self.single)], default=0)


def blocks_of(dumped: Slice) -> dict[str, Block]:
    """Return the mixtures of experts of which weights were recorded, by their paths."""
    nodes = list(filter(_may_have_weights, dumped.nodes))
    blocks: dict[str, Block] = {}
    for node in nodes:
        if may_speak_of_experts(node.path):
            _enter_expert(blocks, node)
            _enter_stacks(blocks, node)
    for node in nodes if blocks else ():
        _enter_router(blocks, node)
    return blocks


def _may_have_weights(node: Node) -> bool:
    return not is_operator(node) and node.direction is not Direction.BACKWARD


def _enter_router(blocks: dict[str, Block], node: Node) -> None:
    for path, record in _router_weights(node):
        block = next(filter(None, map(blocks.get, _paths_around(path))), None)
        if block is not None:
            block.router.setdefault(path.removeprefix(block.path), record)


def _enter_expert(blocks: dict[str, Block], node: Node) -> None:
    match = expert_of_block(node.path)
    if match is None or is_shared(match["list"].rpartition(".")[2]):
        return
    path, number = match["list"].rpartition(".")[0], int(match["number"])
    for record in node.records(Role.PARAMETER):
        weights = blocks.setdefault(path, Block(path)).single.setdefault(number, {})
        weights.setdefault(f"{match['rest']}.{record.key}", record)
    given = next((each for each in node.records(Role.INPUT) if is_floating(each.dtype)), None)
    if given is not None and not match["rest"]:
        blocks.setdefault(path, Block(path)).given.setdefault(number, given)


def _enter_stacks(blocks: dict[str, Block], node: Node) -> None:
    for path, record in stacks_of(node):
        blocks.setdefault(path, Block(path)).stacked.setdefault(record.key, record)


def stacks_of(node: Node) -> Iterator[tuple[str, TensorRecord]]:
    """Yield the weights of a module that are of all experts, with the path of their block."""
    for record in node.records(Role.PARAMETER):
        match = stacked_weight(f"{node.path}.{record.key}")
        if match is not None and len(record.shape or ()) == 3 - bool(match["bias"]):
            yield match["list"].rpartition(".")[0], record


def _router_weights(node: Node) -> Iterator[tuple[str, TensorRecord]]:
    for record in node.records(Role.PARAMETER):
        path = f"{node.path}.{record.key}"
        if record.shape and is_router(path) and expert_of_block(path) is None:
            yield path, record


def _paths_around(path: str) -> Iterator[str]:
    """Yield the paths of the modules around what lies at a path, the innermost first."""
    while path:
        path = path.rpartition(".")[0]
        yield path
