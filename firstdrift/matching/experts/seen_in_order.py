"""The target as it would be if it stored its experts as the golden run does: names stay as they were dumped.

    mlp.experts.2.up_proj         is matched as mlp.experts.0.up_proj
    mlp.gate.weight [4, 16]       its rows are taken in the order 2 0 3 1; so are the scores of each token
    chosen experts  [[2, 1]]      are called [[0, 3]]

What runs between two experts runs for one of them, and adds to a running sum of those before: it has no
partner where they run in another order.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.storage.views import RENUMBERED, ROWS, SWAPPED
from firstdrift.groups import known
from firstdrift.matching.experts.blocks import stacks_of
from firstdrift.matching.experts.find_order import Moved, find_moved
from firstdrift.matching.experts.thresholds import DIMENSIONS_OF_MASK
from firstdrift.matching.fused.thresholds import NAMED_EXPERTS
from firstdrift.matching.implementations.views import with_steps
from firstdrift.matching.pairing import Pairing
from firstdrift.matching.plan import Joining, Messages, TensorPair
from firstdrift.matching.tree import SliceTree, is_operator
from firstdrift.model.node import Direction, Node
from firstdrift.model.slice import Slice
from firstdrift.model.tensor import Role, TensorRecord, ViewStep, is_floating
from firstdrift.operators.paths import expert_of_block, is_shared_expert
from firstdrift.operators.properties import last_part, parameter_positions
from firstdrift.parallel.expert_parallel import done_for_experts
from firstdrift.wording.message import Message

SAME_EXPERT: Final = "matching.reason.same_expert"
"""Id of the reason of a match of experts of other numbers."""

_NUMBERED: Final = Message.of("matching.incomparable.experts_numbered")


class ExpertsInOrder(Struct, frozen=True):
    """The mixtures of experts of two slices that lie in another order.

    Attributes:
        moved: those whose router lies in that order too, by the path of the block in the target.
        notes: what is said of all.
    """

    moved: dict[str, Moved]
    notes: Messages

    def renumber(self, target: Slice) -> Slice:
        """Return the target with its experts numbered as those of the golden run."""
        if not self.moved:
            return target
        return replace(target, nodes=tuple(map(self._renumbered, target.nodes)))

    def _renumbered(self, node: Node) -> Node:
        moved, match = _moved_around(node, self.moved), expert_of_block(node.path)
        if moved is None or match is None or int(match["number"]) >= len(moved.order):
            return node
        number = moved.order.index(int(match["number"]))
        return replace(node, path=f"{match['list']}.{number}{match['rest']}")


def experts_in_order(golden: Slice, target: Slice) -> ExpertsInOrder:
    """Find out which experts of two slices lie in another order."""
    found = find_moved(golden, target)
    moved = {one.target: one for one in found if one.router_moved}
    alone = [one for one in found if not one.router_moved]
    return ExpertsInOrder(
        moved, (*_said("experts_moved", [*moved.values()]), *_said("experts_swapped", alone))
    )


def _said(how: str, moved: Sequence[Moved]) -> Iterator[Message]:
    if moved:
        first = moved[0]
        # As causes say it: which golden one each of the target's is.
        held = [first.order.index(number) for number in range(len(first.order))]
        order = (*map(str, held[:NAMED_EXPERTS]), *("…",) * (len(held) > NAMED_EXPERTS))
        yield Message.of(f"matching.note.{how}", blocks=len(moved), first=first.target, order=order)


def leave_loops(work: Pairing) -> None:
    """Take what ran between experts out of its matches, and say of experts why they are the same."""
    if not work.moved:
        return
    for index in _loops(work.target, work.moved):
        for node in known((index, work.target.backward_of(index))):
            work.release(node)
    for index, found in work.found.items():
        if _moved_around(work.target.nodes[index], work.moved):
            work.found[index] = replace(found, reasons=(*found.reasons, Message.of(SAME_EXPERT)))


def _moved_around(node: Node, moved: Mapping[str, Moved]) -> Moved | None:
    """Return the mixture of which a module lies in an expert; None if that is none that was moved."""
    match = None if is_operator(node) else expert_of_block(node.path)
    return moved.get(match["list"].rpartition(".")[0]) if match else None


def _loops(tree: SliceTree, moved: Mapping[str, Moved]) -> Iterator[int]:
    """Yield the operators that ran between experts, or in the module that has the weights of all."""
    between = done_for_experts(tree.nodes, moved)
    for index, node in enumerate(tree.nodes):
        if is_operator(node) and (node.name in between or _is_in_stack(tree, index, moved)):
            yield index


def _is_in_stack(tree: SliceTree, index: int, moved: Mapping[str, Moved]) -> bool:
    node = next(map(tree.nodes.__getitem__, tree.around(index)), None)
    return node is not None and node.path.rpartition(".")[0] in moved and any(stacks_of(node))


def in_order(pairs: Iterable[TensorPair], tree: SliceTree, moved: Mapping[str, Moved]) -> list[TensorPair]:
    """See what a router and stacks of experts have in the order of the golden experts."""
    of_node = {tree.nodes[index].name: (tree.nodes[index], order) for index, order in _beside(tree, moved)}
    return [
        _seen(pair, *of_node[pair.target_node]) if pair.target_node in of_node else pair for pair in pairs
    ]


def _beside(tree: SliceTree, moved: Mapping[str, Moved]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the nodes in a block but in no expert, and the order of its experts."""
    for index in range(tree.root) if moved else ():
        around = tree.nodes_at((index, *tree.around(index)))
        paths = [node.path for node in around if not is_operator(node)]
        block = next(filter(None, map(moved.get, paths)), None)
        if block is not None and not any(map(_is_in_expert, paths)):
            yield index, block.order


def _is_in_expert(path: str) -> bool:
    return expert_of_block(path) is not None or is_shared_expert(path)


def _seen(pair: TensorPair, node: Node, order: tuple[int, ...]) -> TensorPair:
    record = pair.target
    if pair.joining is not None or not _may_be_seen(record):
        return pair
    axis = _axis_of_experts(record, node, len(order))
    if axis is not None:
        return _in_view(pair, with_steps(record, *_along(axis, order)))
    if not _may_number(record, len(order)):
        return pair
    if record.location is None:
        return replace(pair, incomparable=_NUMBERED)
    named = ViewStep(RENUMBERED, tuple(map(order.index, range(len(order)))))
    return _in_view(pair, with_steps(replace(record, statistics=None), named))


def _may_be_seen(record: TensorRecord) -> bool:
    return record.is_tensor and bool(record.shape) and record.shards is None


def _in_view(pair: TensorPair, seen: TensorRecord) -> TensorPair:
    said = (Message.of("matching.transform.experts_in_order"), *pair.transform)
    return replace(pair, target=seen, transform=said, joining=None if seen.location is None else Joining.VIEW)


def _axis_of_experts(record: TensorRecord, node: Node, experts: int) -> int | None:
    """Return the dimension that has a place for each expert: the first of weights, the last of scores.

    Masks may have it first: `[experts, chosen, tokens]`; gradients of weights last, transposed. There may be
    as many tokens as experts.
    """
    shape = record.shape or ()
    is_mask = not is_floating(record.dtype) and len(shape) >= DIMENSIONS_OF_MASK
    is_weight = _is_weight(record, node)
    axes = (0, len(shape) - 1) if is_weight else (len(shape) - 1, *((0,) if is_mask else ()))
    return next((axis for axis in axes if shape[axis] == experts), None)


def _is_weight(record: TensorRecord, node: Node) -> bool:
    """Tell whether a tensor is a weight, the gradient of one, or one that an operator was handed."""
    handed = Role.OUTPUT if node.direction is Direction.BACKWARD else Role.INPUT
    if record.role is handed and is_operator(node):
        return record.key in parameter_positions(last_part(node.type_name))
    return record.role in (Role.PARAMETER, Role.GRADIENT)


def _along(axis: int, order: Sequence[int]) -> tuple[ViewStep, ...]:
    rows = ViewStep(ROWS, tuple(chain.from_iterable((number, 1) for number in order)))
    turn = ViewStep(SWAPPED, (0, axis))
    return (turn, rows, turn) if axis else (rows,)


def _may_number(record: TensorRecord, experts: int) -> bool:
    """Tell whether whole numbers may be those of experts."""
    if is_floating(record.dtype) or record.dtype == "bool":
        return False
    told = record.statistics
    ends = () if told is None else known((told.minimum, told.maximum))
    return all(0 <= end < experts for end in ends)
