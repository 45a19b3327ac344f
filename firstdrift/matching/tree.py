"""The nodes of a slice by number, as a forward tree and a backward tree.

root ─┬─ 4 model ─┬─ 1 embed          children of one pass in execution order
      │           └─ 3 mlp ── 2 linear
      └─ 5 loss
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from math import prod
from typing import Final, TypeAlias

from msgspec import Struct, field

from firstdrift.groups import positions
from firstdrift.matching.thresholds import DEEPEST_WRAPPER, MOST_PARAMETERS
from firstdrift.model.names import PARAMETERS_GRAD
from firstdrift.model.node import API, BACKWARD, FORWARD, Direction, Node, NodeKind
from firstdrift.model.slice import Slice
from firstdrift.model.tensor import GRADIENT, INPUT, OUTPUT, PARAMETER, Role, TensorRecord

CallKey = tuple[NodeKind, str, int]
"""What the forward and the backward node of one call share: kind, path and call number."""


Place: TypeAlias = tuple[str, str]
"""A tensor: the name of its node, and its label."""


class Contents(Struct, frozen=True):
    """What a module is made of.

    Attributes:
        parts: how many of each operator it runs and how many parameters of each shape it has.
        parameters: its parameters and those of the modules in it, the first of them if they are many.
    """

    parts: Counter[Hashable]
    parameters: tuple[TensorRecord, ...]


class SliceTree(Struct, frozen=True):
    """A slice laid out for matching; nodes go by their index in the slice, the root by `root`.

    Attributes:
        nodes: the nodes of the slice.
        parents: index of the parent of each node.
        forward: children of each node (and of the root) that are no backward nodes, in execution order.
        backward: children that are backward nodes.
        gradients: nodes that hold the gradients of a module's parameters; they hang in neither tree.
        forward_calls: forward node of each call.
        backward_calls: backward node of each call.
        recomputed: forward nodes that ran below a backward node (activation checkpointing).
        known_contents: contents of the modules that were asked for.
        known_weights: size and norm of the weights in them, likewise.
    """

    nodes: tuple[Node, ...]
    parents: tuple[int, ...]
    forward: tuple[list[int], ...]
    backward: tuple[list[int], ...]
    gradients: tuple[int, ...]
    forward_calls: dict[CallKey, int]
    backward_calls: dict[CallKey, int]
    recomputed: frozenset[int]
    known_contents: dict[int, Contents] = field(default_factory=dict)
    known_weights: dict[int, frozenset[tuple[int, int]]] = field(default_factory=dict)

    @property
    def root(self) -> int:
        """Index of the root, which is no node of the slice."""
        return len(self.nodes)

    def nodes_at(self, indexes: Iterable[int]) -> list[Node]:
        """Return nodes by their indexes."""
        return [self.nodes[index] for index in indexes]

    def modules(self, indexes: Iterable[int]) -> list[int]:
        """Return those of some nodes that are modules."""
        return [index for index in indexes if self.nodes[index].kind is not API]

    def backward_of(self, index: int) -> int | None:
        """Return the backward node of a forward node's call."""
        return self.backward_calls.get(call_key(self.nodes[index]))

    def around(self, index: int) -> Iterator[int]:
        """Yield the nodes around a node, the innermost first."""
        while (index := self.parents[index]) != self.root:
            yield index

    def inside(self, index: int) -> Iterator[int]:
        """Yield the nodes of the forward pass inside a node."""
        waiting = list(self.forward[index])
        while waiting:
            node = waiting.pop()
            waiting += self.forward[node]
            yield node

    def relative_name(self, index: int) -> str:
        """Return a node's path without that of its parent: "down_proj"."""
        path, parent = self.nodes[index].path, self.parents[index]
        above = "" if parent == self.root else self.nodes[parent].path
        return path.removeprefix(f"{above}.") if above else path

    def contents(self, index: int) -> Contents:
        """Return what a module is made of, itself and all below it."""
        waiting = [] if index in self.known_contents else [index]
        while waiting:
            current = waiting[-1]
            unknown = [child for child in self._below(current) if child not in self.known_contents]
            if unknown:
                waiting += unknown
            else:
                self.known_contents[waiting.pop()] = self._combine_contents(current)
        return self.known_contents[index]

    def _below(self, index: int) -> list[int]:
        return (self.backward if self.nodes[index].direction is BACKWARD else self.forward)[index]

    def _combine_contents(self, index: int) -> Contents:
        node = self.nodes[index]
        parameters = node.records(PARAMETER)
        below = self._below(index)
        if not parameters and not below:
            return _contents_of_leaf(operator_family(node.type_name) if is_operator(node) else None)
        operators = [operator_family(node.type_name)] if is_operator(node) else []
        parts: Counter[Hashable] = Counter([*(tensor.shape for tensor in parameters), *operators])
        for child in below:
            contents = self.known_contents[child]
            for part, count in contents.parts.items():  # ten times as fast as an update
                parts[part] += count
            parameters += contents.parameters
        return Contents(parts, tuple(parameters[:MOST_PARAMETERS]))


@lru_cache(1024)
def _contents_of_leaf(operator: str | None) -> Contents:
    return Contents(Counter() if operator is None else Counter({operator: 1}), ())


def build_tree(dumped: Slice) -> SliceTree:
    """Lay out a slice. A node whose parent is missing, or lies below the node itself, hangs at the root."""
    nodes = dumped.nodes
    parents = _parents(nodes)
    forward: tuple[list[int], ...] = tuple([] for _ in range(len(nodes) + 1))
    backward: tuple[list[int], ...] = tuple([] for _ in range(len(nodes) + 1))
    gradients: list[int] = []
    calls: dict[Direction, dict[CallKey, int]] = {direction: {} for direction in Direction}
    for index, node in enumerate(nodes):
        if holds_gradients(node):
            gradients.append(index)
            continue
        (backward if node.direction is BACKWARD else forward)[parents[index]].append(index)
        calls[node.direction].setdefault(call_key(node), index)
    return SliceTree(
        nodes=nodes,
        parents=tuple(parents),
        forward=forward,
        backward=backward,
        gradients=tuple(gradients),
        forward_calls=calls[FORWARD],
        backward_calls=calls[BACKWARD],
        recomputed=_recomputed(nodes, forward),
    )


def _recomputed(nodes: tuple[Node, ...], forward: tuple[list[int], ...]) -> frozenset[int]:
    backward = (index for index, node in enumerate(nodes) if node.direction is BACKWARD)
    recomputed = list(chain.from_iterable(forward[index] for index in backward))
    for index in recomputed:  # grows while it is gone through
        recomputed += forward[index]
    return frozenset(recomputed)


def _parents(nodes: tuple[Node, ...]) -> list[int]:
    root = len(nodes)
    numbers = indexes_by_name(nodes)
    parents = [root if node.parent is None else numbers.get(node.parent, root) for node in nodes]
    hangs = [False] * root + [True]
    for index in range(root):
        chain: list[int] = []
        current = index
        while not hangs[current]:
            hangs[current] = True
            chain.append(current)
            current = parents[current]
        if chain and current in chain:
            parents[current] = root
    return parents


def indexes_by_name(nodes: Iterable[Node]) -> dict[str, int]:
    """Return the index of each node by its name."""
    return positions(node.name for node in nodes)


def holds_gradients(node: Node) -> bool:
    """Tell whether a node stands for the gradients of a module's parameters."""
    if node.type_name == PARAMETERS_GRAD:
        return True
    if not node.tensors or node.tensors[0].role is not GRADIENT:
        return False
    return all(tensor.role is GRADIENT for tensor in node.tensors)


def pass_of(node: Node) -> tuple[bool, bool]:
    """Tell whether a node is of the backward pass, and whether it holds gradients of parameters."""
    return node.direction is BACKWARD, holds_gradients(node)


FORWARD_PASS: Final = (False, False)
"""The pass of what is neither."""


def tensors_of(node: Node, role: Role) -> list[TensorRecord]:
    """Return what is a tensor, and no other argument, among the records of a role."""
    return [record for record in node.records(role) if record.is_tensor]


def records_by_place(nodes: Iterable[Node]) -> dict[Place, TensorRecord]:
    """Return the tensors of nodes by the name of the node and their label."""
    return {(node.name, record.label): record for node in nodes for record in node.tensors}


def call_key(node: Node) -> CallKey:
    """Return what the forward and the backward node of one call share."""
    return node.kind, node.path, node.call


@lru_cache(4096)
def operator_family(type_name: str) -> str:
    """Return an operator's name without library and spelling: "Tensor.__add__" and "Torch.add" are "add"."""
    return type_name.rpartition(".")[2].strip("_").removeprefix("npu_").lower()


def is_operator(node: Node) -> bool:
    """Tell an operator call from a module."""
    return node.kind is API


def modules_among(nodes: Iterable[Node]) -> list[Node]:
    """Return those of some nodes that are modules."""
    return [node for node in nodes if node.kind is not API]


def are_of_one_family(golden: Node, target: Node) -> bool:
    """Tell whether operators are the same but for library and spelling ("Tensor.__add__", "Torch.add")."""
    return golden.type_name == target.type_name or (
        operator_family(golden.type_name) == operator_family(target.type_name)
    )


def do_other_work(golden: Node, target: Node) -> bool:
    """Tell whether one of two modules without weights gives fewer elements for each that it takes.

    An activation gives as many as it takes; one that multiplies by the other half as well, half as many.
    """
    shares = list(map(_share_given, (golden, target)))
    return None not in shares and shares[0] != shares[1]


def _share_given(node: Node) -> Fraction | None:
    """Return how many elements a module without weights gives for each it takes; None if not known."""
    if is_operator(node) or node.direction is BACKWARD or node.records(PARAMETER):
        return None
    match tensors_of(node, INPUT), tensors_of(node, OUTPUT):
        case [TensorRecord(shape=taken)], [TensorRecord(shape=given)] if taken and given and prod(taken):
            return Fraction(prod(given), prod(taken))
    return None


def wrapped_modules(tree: SliceTree, index: int, *, all_in_one: bool = False) -> Iterator[int]:
    """Yield the modules directly below a module, and further down as long as there is only one.

    Where all is to be in one module, those that have others beside them are left out.
    """
    for _ in range(DEEPEST_WRAPPER):
        inner = tree.modules(tree.forward[index])
        if len(inner) != 1:
            yield from () if all_in_one else inner
            return
        index = inner[0]
        yield index
