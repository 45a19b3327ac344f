"""A run as one line of operators, with the layers it repeats, for comparing dumps of different frameworks.

torch    embed_tokens   layers.0: [input_layernorm q_proj k_proj v_proj o_proj ...]   ...   norm   lm_head
ATB      WordEmbedding  Prefill_layer.0: [RmsNorm Linear Split Rope Attention Linear Add ...]   ...

An `Op` is an operator, or the outermost module that does one thing. Layers are the outermost modules that are
repeated, or that are numbered elements of a list; the experts in them are operators of the layer.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from itertools import chain, pairwise, repeat
from math import prod

from msgspec import Struct, field
from msgspec.structs import replace

from firstdrift.matching.structure.statistics_similarity import bare_shape, bare_shape_of
from firstdrift.matching.tree import SliceTree, tensors_of
from firstdrift.model.tensor import Role, TensorRecord, is_floating, possible_shapes
from firstdrift.operators.kinds import CHARACTERISTIC, OpKind
from firstdrift.operators.paths import is_layer_class, is_layer_list, part_of_layer
from firstdrift.operators.recognise import kind_of, may_gate


class Op(Struct, frozen=True):
    """An operator, or a module that does one thing.

    Attributes:
        node: index of the node.
        kind: what it does.
        block: which part of a layer it lies in: "attention", "cross attention", "mlp"; "" if not known.
        shape: shape of its first output without dimensions of size 1; None where unknown.
        parts: indices of the nodes it consists of, where several are looked at as one; else `node` alone.
        experts: numbers of the experts whose rows lie one after another, where the parts are theirs: first
            those of all experts by the first of their linear operators, then by the second.
        of_expert: whether it is an operator of one expert, which runs on the rows alone that it was given.
        other_widths: sizes that the last dimension may have as well, where ranks hold parts of the output.
    """

    node: int
    kind: OpKind
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
        return None if self.shape is None else (1, *self.shape)[-1]

    @property
    def size(self) -> int | None:
        """How many elements its first output has; None where unknown."""
        return None if self.shape is None else prod(self.shape)

    @property
    def possible_widths(self) -> set[int]:
        """Sizes that the last dimension of its first output may have; none where unknown."""
        return set() if self.width is None else {self.width, *self.other_widths}

    @property
    def possible_sizes(self) -> set[int]:
        """How many elements its first output may have; none where unknown."""
        return {prod((self.shape or ())[:-1]) * width for width in self.possible_widths}

    @property
    def is_of_experts(self) -> bool:
        """True if it runs on rows of experts alone."""
        return self.kind is OpKind.GROUPED or self.of_expert or bool(self.experts)


class Layer(Struct, frozen=True):
    """A layer and its operators in execution order; its shape and widths as those of an operator."""

    node: int
    ops: tuple[Op, ...]
    shape: tuple[int, ...] | None
    other_widths: tuple[int, ...] = ()

    @property
    def possible_widths(self) -> set[int]:
        """Sizes that the last dimension of its output may have."""
        return {*(self.shape or ())[-1:], *self.other_widths}

    @property
    def norms(self) -> int:
        """How many norms it holds."""
        return sum(op.kind is OpKind.NORM for op in self.ops)


class Line(Struct, frozen=True):
    """A run as a line of layers, and of operators outside of them, in execution order.

    Attributes:
        units: its layers and operators.
        known_following: the operator after each operator, once one was asked for.
        known_layers: its layers by their nodes, likewise.
    """

    units: tuple[Op | Layer, ...]
    known_following: dict[int, int] = field(default_factory=dict)
    known_layers: dict[int, Layer] = field(default_factory=dict)

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

    def layer(self, node: int) -> Layer | None:
        """Return the layer that a node is; None if it is none."""
        if not self.known_layers:
            self.known_layers.update((unit.node, unit) for unit in self.units if isinstance(unit, Layer))
        return self.known_layers.get(node)


def lay_out(tree: SliceTree) -> Line:
    """Lay out the forward pass of a slice."""
    return Line(tuple(_units(tree)))


def first_output(tree: SliceTree, node: int) -> TensorRecord | None:
    """Return the first tensor that a node gives; None if none was recorded."""
    return next(iter(outputs_of(tree, node)), None)


def first_input(tree: SliceTree, node: int) -> TensorRecord | None:
    """Return the first tensor that a node takes; None if none was recorded."""
    return next(iter(tensors_of(tree.nodes[node], Role.INPUT)), None)


def outputs_of(tree: SliceTree, node: int) -> list[TensorRecord]:
    """Return the tensors that a node gives."""
    return tensors_of(tree.nodes[node], Role.OUTPUT)


def _units(tree: SliceTree) -> Iterator[Op | Layer]:
    layers = layer_nodes(tree)
    for node, _ in _outermost(tree, tree.root, layers):
        if node in layers:
            output = first_output(tree, node)
            yield Layer(node, tuple(_ops_in(tree, node)), bare_shape_of(output), _other_widths(output))
        else:
            yield _op(tree, node)


def ops_below(tree: SliceTree, module: int) -> list[Op]:
    """Return the operators in a module in execution order; none if it is an operator itself."""
    return [] if is_op(tree, module) else list(_ops_in(tree, module))


def _ops_in(tree: SliceTree, module: int) -> Iterator[Op]:
    """Yield the operators in a module; an activation that halves what it is given multiplies as well.

    One that is named does what it is called: a model may hand it one half of what the operator before gave.
    """
    ops = [_op(tree, node, block) for node, block in _outermost(tree, module)]
    for before, op in zip([*ops[:1], *ops], ops, strict=False):
        gates = op.kind is OpKind.ACTIVATE and _halves(op, before) and may_gate(tree.nodes[op.node])
        yield replace(op, kind=OpKind.GATE) if gates else op


def _halves(op: Op, before: Op) -> bool:
    is_product = before.kind in (OpKind.LINEAR, OpKind.GROUPED)
    return is_product and op.size is not None and before.size == 2 * op.size


def _outermost(
    tree: SliceTree, module: int, layers: Collection[int] = frozenset()
) -> Iterator[tuple[int, str]]:
    """Yield the operators, and layers, in a module in execution order, each with its part of a layer."""
    waiting = list(zip(reversed(tree.forward[module]), repeat("")))
    while waiting:
        node, block = waiting.pop()
        if node in layers or is_op(tree, node):
            yield node, block
        else:
            waiting += zip(reversed(tree.forward[node]), repeat(block or block_of(tree, node)))


def _op(tree: SliceTree, node: int, block: str = "") -> Op:
    output = first_output(tree, node)
    return Op(node, _kind(tree, node), block, bare_shape_of(output), other_widths=_other_widths(output))


def _kind(tree: SliceTree, node: int) -> OpKind:
    """Return what an operator does; what is named after a table of positions may be what applies one."""
    kind = kind_of(tree.nodes[node])
    if kind is not OpKind.POSITIONS:
        return kind
    given, taken = (
        [record.shape for record in tensors_of(tree.nodes[node], role) if is_floating(record.dtype)]
        for role in (Role.OUTPUT, Role.INPUT)
    )
    applies_it = len(given) > 1 and set(taken).issuperset(given)
    return OpKind.ROTATE if applies_it or OpKind.ROTATE in _characteristic(tree, node) else kind


def _other_widths(record: TensorRecord | None) -> tuple[int, ...]:
    others = () if record is None else possible_shapes(record)[1:]
    return tuple((1, *bare_shape(shape))[-1] for shape in others)


def block_of(tree: SliceTree, node: int) -> str:
    """Say which part of a layer a module is called: "attention", "cross attention", "mlp" or ""."""
    return part_of_layer(tree.relative_name(node)) or part_of_layer(tree.nodes[node].type_name)


def is_op(tree: SliceTree, node: int) -> bool:
    """Tell an operator, or a module that does one thing, from a module that holds several of these."""
    if not tree.forward[node]:
        return True
    kind = kind_of(tree.nodes[node])
    return kind is OpKind.POSITIONS or (kind in CHARACTERISTIC and len(_characteristic(tree, node)) <= 1)


def _characteristic(tree: SliceTree, node: int) -> list[OpKind]:
    """Return what the innermost nodes below a module do, of what is characteristic."""
    leaves = (kind_of(tree.nodes[below]) for below in tree.inside(node) if not tree.forward[below])
    return [kind for kind in leaves if kind in CHARACTERISTIC]


def layer_nodes(tree: SliceTree) -> set[int]:
    """Return the modules that are layers where they are the outermost such.

    They are repeated elements of a list, or called so; what is called so and holds repeated ones is a stack.
    """
    forward = list(chain.from_iterable(tree.forward))
    called = {node for node in forward if _is_called_layer(tree, node)}
    classes = Counter((tree.parents[node], tree.nodes[node].type_name) for node in forward)
    repeated = {
        node
        for node in forward
        if tree.relative_name(node).rpartition(".")[2].isdigit()
        and (
            node in called
            or (classes[tree.parents[node], tree.nodes[node].type_name] > 1 and _holds_several(tree, node))
        )
    }
    return repeated | called.difference(*map(tree.around, repeated))


def _is_called_layer(tree: SliceTree, index: int) -> bool:
    """Tell whether the class of a module says that it is a layer; where it is unknown, that of what list."""
    node = tree.nodes[index]
    around, _, number = node.path.rpartition(".")
    is_called = (
        is_layer_class(node.type_name)
        if node.type_name
        else number.isdigit() and is_layer_list(around.rpartition(".")[2])
    )
    is_hidden = not tree.forward[index] and kind_of(node) is OpKind.OTHER
    return is_called and (is_hidden or _holds_several(tree, index))


def _holds_several(tree: SliceTree, node: int) -> bool:
    return not is_op(tree, node) and len(_characteristic(tree, node)) > 1
