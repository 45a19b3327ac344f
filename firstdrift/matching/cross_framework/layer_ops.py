"""A run as one line of operators, with the layers it repeats, for comparing dumps of different frameworks.

torch    embed_tokens   layers.0: [input_layernorm q_proj k_proj v_proj o_proj ...]   ...   norm   lm_head
ATB      WordEmbedding  Prefill_layer.0: [RmsNorm Linear Split Rope Attention Linear Add ...]   ...

An `Op` is an operator, or the outermost module that does one thing. Layers are the outermost modules that are
repeated, or that are numbered elements of a list; the experts in them are operators of the layer.
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from itertools import pairwise
from math import prod

from msgspec import Struct, field
from msgspec.structs import replace

from firstdrift.matching.structure.statistics_similarity import bare_shape
from firstdrift.matching.tree import SliceTree
from firstdrift.model.node import Node
from firstdrift.model.tensor import Role, TensorRecord, is_floating, possible_shapes
from firstdrift.operators.kinds import CHARACTERISTIC, Work
from firstdrift.operators.paths import is_layer_class, is_layer_list, part_of_layer
from firstdrift.operators.recognise import may_gate, work_of


class Op(Struct, frozen=True):
    """An operator, or a module that does one thing.

    Attributes:
        node: index of the node.
        work: what it does.
        block: which part of a layer it lies in: "attention", "cross attention", "mlp"; "" if not known.
        shape: shape of its first output without dimensions of size 1; None where unknown.
        parts: indices of the nodes it consists of, where several are looked at as one; else `node` alone.
        experts: numbers of the experts whose rows lie one after another, where the parts are theirs: first
            those of all experts by the first of their linear operators, then by the second.
        of_expert: whether it is an operator of one expert, which runs on the rows alone that it was given.
        other_widths: sizes that the last dimension may have as well, where ranks hold parts of the output.
    """

    node: int
    work: Work
    block: str
    shape: tuple[int, ...] | None
    parts: tuple[int, ...] = ()
    experts: tuple[int, ...] = ()
    of_expert: bool = False
    other_widths: tuple[int, ...] = ()

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes it stands for."""
        return self.parts or (self.node,)

    @property
    def width(self) -> int | None:
        """Size of the last dimension of its first output; None where unknown."""
        if self.shape is None:
            return None
        return self.shape[-1] if self.shape else 1

    def may_be_as_wide_as(self, other: "Op") -> bool:
        """Tell whether two outputs may be of one width."""
        return not {self.width, *self.other_widths}.isdisjoint((other.width, *other.other_widths))

    def may_be_as_large_as(self, other: "Op") -> bool:
        """Tell whether two outputs may have as many elements."""
        return not self.possible_sizes.isdisjoint(other.possible_sizes)

    @property
    def possible_sizes(self) -> set[int | None]:
        """How many elements its first output may have."""
        rows = prod((self.shape or ())[:-1])
        return {self.size, *(rows * width for width in self.other_widths)}

    @property
    def size(self) -> int | None:
        """How many elements its first output has; None where unknown."""
        return None if self.shape is None else prod(self.shape)


class Layer(Struct, frozen=True):
    """A layer and its operators in execution order; its shape and widths as those of an operator."""

    node: int
    ops: tuple[Op, ...]
    shape: tuple[int, ...] | None
    other_widths: tuple[int, ...] = ()


class Line(Struct, frozen=True):
    """A run as a line of layers, and of operators outside of them, in execution order.

    Attributes:
        units: its layers and operators.
        known_following: the operator after each operator, once one was asked for.
    """

    units: tuple[Op | Layer, ...]
    known_following: dict[int, int] = field(default_factory=dict)

    @property
    def ops(self) -> Iterator[Op]:
        """All operators, those of layers included."""
        for unit in self.units:
            yield from unit.ops if isinstance(unit, Layer) else (unit,)

    def following(self, node: int) -> int | None:
        """Return the operator after an operator; None if it is the last, or no operator of the line."""
        if not self.known_following:
            for op, other in pairwise(self.ops):
                self.known_following.setdefault(op.node, other.node)
        return self.known_following.get(node)


def lay_out(tree: SliceTree) -> Line:
    """Lay out the forward pass of a slice."""
    return Line(tuple(_units(tree)))


def first_output(tree: SliceTree, node: int) -> TensorRecord | None:
    """Return the first tensor that a node gives; None if none was recorded."""
    of_node = (record for record in tree.nodes[node].tensors if record.role is Role.OUTPUT)
    return next((record for record in of_node if record.is_tensor), None)


def first_input(tree: SliceTree, node: int) -> TensorRecord | None:
    """Return the first tensor that a node takes; None if none was recorded."""
    of_node = (record for record in tree.nodes[node].tensors if record.role is Role.INPUT)
    return next((record for record in of_node if record.is_tensor), None)


def value_key(record: TensorRecord | None) -> Hashable | None:
    """Return what tells the values of a tensor from others of the same dump; None if nothing does."""
    if record is None or record.shape is None:
        return None
    if record.digest is not None:
        return prod(record.shape), record.digest
    known = record.statistics
    if known is None or known.norm is None or known.maximum == known.minimum:
        return None
    return prod(record.shape), known.maximum, known.minimum, known.mean, known.norm


def _units(tree: SliceTree) -> Iterator[Op | Layer]:
    waiting = [(child, "") for child in reversed(tree.forward[tree.root])]
    layers = layer_nodes(tree)
    while waiting:
        node, block = waiting.pop()
        if node in layers:
            output = first_output(tree, node)
            yield Layer(node, tuple(_ops_in(tree, node)), _shape(output), _other_widths(output))
        elif is_op(tree, node):
            yield _op(tree, node, block)
        else:
            waiting += [(child, block) for child in reversed(tree.forward[node])]


def ops_below(tree: SliceTree, module: int) -> list[Op]:
    """Return the operators in a module in execution order; none if it is an operator itself."""
    return [] if is_op(tree, module) else list(_ops_in(tree, module))


def _ops_in(tree: SliceTree, module: int) -> Iterator[Op]:
    """Yield the operators in a module; an activation that halves what it is given multiplies as well.

    One that is named does what it is called: a model may hand it one half of what the operator before gave.
    """
    before: Op | None = None
    for op in _ops(tree, module):
        halves = (
            before is not None
            and before.work in (Work.LINEAR, Work.GROUPED)
            and op.size is not None
            and before.size == 2 * op.size
        )
        gates = halves and op.work is Work.ACTIVATE and may_gate(tree.nodes[op.node])
        before = replace(op, work=Work.GATE) if gates else op
        yield before


def _ops(tree: SliceTree, layer: int) -> Iterator[Op]:
    waiting = [(child, "") for child in reversed(tree.forward[layer])]
    while waiting:
        node, block = waiting.pop()
        if is_op(tree, node):
            yield _op(tree, node, block)
        else:
            inside = block or block_of(tree, node)
            waiting += [(child, inside) for child in reversed(tree.forward[node])]


def _op(tree: SliceTree, node: int, block: str) -> Op:
    output = first_output(tree, node)
    return Op(node, _work(tree, node), block, _shape(output), other_widths=_other_widths(output))


def _work(tree: SliceTree, node: int) -> Work:
    """Return what an operator does; what is named after a table of positions may be what applies one."""
    work = work_of(tree.nodes[node])
    if work is not Work.POSITIONS:
        return work
    inside = Work.ROTATE in _characteristic(tree, node)
    tensors = [
        record for record in tree.nodes[node].tensors if record.is_tensor and is_floating(record.dtype)
    ]
    given = [record.shape for record in tensors if record.role is Role.OUTPUT]
    taken = {record.shape for record in tensors if record.role is Role.INPUT}
    return Work.ROTATE if inside or (len(given) > 1 and taken.issuperset(given)) else work


def _shape(record: TensorRecord | None) -> tuple[int, ...] | None:
    return None if record is None or record.shape is None else bare_shape(record.shape)


def _other_widths(record: TensorRecord | None) -> tuple[int, ...]:
    if record is None or record.shards is None:
        return ()
    return tuple((bare_shape(shape) or (1,))[-1] for shape in possible_shapes(record)[1:])


def block_of(tree: SliceTree, node: int) -> str:
    """Say which part of a layer a module is called: "attention", "cross attention", "mlp" or ""."""
    for name in (tree.relative_name(node), tree.nodes[node].type_name):
        if part := part_of_layer(name):
            return part
    return ""


def is_op(tree: SliceTree, node: int) -> bool:
    """Tell an operator, or a module that does one thing, from a module that holds several of these."""
    children = tree.forward[node]
    if not children:
        return True
    work = work_of(tree.nodes[node])
    if work is Work.POSITIONS:
        return True
    return work in CHARACTERISTIC and len(_characteristic(tree, node)) <= 1


def _characteristic(tree: SliceTree, node: int) -> list[Work]:
    """Return what the innermost nodes below a module do, of what is characteristic."""
    found: list[Work] = []
    waiting = list(tree.forward[node])
    while waiting:
        child = waiting.pop()
        if tree.forward[child]:
            waiting += tree.forward[child]
        elif (work := work_of(tree.nodes[child])) in CHARACTERISTIC:
            found.append(work)
    return found


def layer_nodes(tree: SliceTree) -> set[int]:
    """Return the modules that are layers where they are the outermost such.

    They are repeated elements of a list, or called so; what is called so and holds repeated ones is a stack.
    """
    repeated: set[int] = set()
    called: set[int] = set()
    for children in tree.forward:
        counts = Counter(tree.nodes[child].type_name for child in children)
        for child in children:
            numbered = tree.relative_name(child).rpartition(".")[2].isdigit()
            named = _is_called_layer(tree.nodes[child])
            if not _may_be_layer(tree, child, named=named):
                continue
            if numbered and (named or counts[tree.nodes[child].type_name] > 1):
                repeated.add(child)
            elif named:
                called.add(child)
    stacks = {above for child in repeated for above in _around(tree, child)}
    return repeated | (called - stacks)


def _is_called_layer(node: Node) -> bool:
    """Tell whether the class of a module says that it is a layer; where it is unknown, that of what list."""
    if node.type_name:
        return is_layer_class(node.type_name)
    around, _, number = node.path.rpartition(".")
    return number.isdigit() and is_layer_list(around.rpartition(".")[2])


def _around(tree: SliceTree, node: int) -> Iterator[int]:
    while (node := tree.parents[node]) != tree.root:
        yield node


def _may_be_layer(tree: SliceTree, node: int, *, named: bool) -> bool:
    if not tree.forward[node]:
        return named and work_of(tree.nodes[node]) is Work.OTHER
    return not is_op(tree, node) and len(_characteristic(tree, node)) > 1
