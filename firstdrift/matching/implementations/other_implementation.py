"""Whether two runs are of two implementations of one model, and what is left of a run that both may have.

golden   model.layers.0.self_attn.q_proj  Linear      decoder.layers.0.self_attention.linear_qkv  target
         model.layers.0.mlp.act_fn        SiLU                                 ColumnParallelLinear

What they share by chance are names of containers, and classes of the library beneath. An implementation is
told by its leaves: modules with the same name and the same class.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.groups import seconds
from firstdrift.matching.implementations.containers import with_containers
from firstdrift.matching.implementations.thresholds import LEAST_LEAVES, SAME_CLASSES, SAME_CODE
from firstdrift.matching.structure.statistics_similarity import value_key
from firstdrift.matching.tree import SliceTree, holds_gradients, is_operator, tensors_of
from firstdrift.model.node import Direction, Node
from firstdrift.model.slice import Slice, SliceListing
from firstdrift.model.tensor import Role
from firstdrift.operators.kinds import OpKind
from firstdrift.operators.properties import begins_with_norm
from firstdrift.operators.recognise import kind_of


class ModulesAlone(Struct, frozen=True):
    """The modules of the forward pass of a slice.

    Attributes:
        dumped: the same slice without operators, backward pass and gradients, and with the containers that
            paths name and nobody recorded.
        places: the index of each of its nodes in the whole slice; None for a container that was not recorded.
    """

    dumped: Slice
    places: tuple[int | None, ...]


def are_other_implementations(golden: SliceTree, target: SliceTree) -> bool:
    """Tell whether most leaf modules of two runs are not the same by name and class.

    Where a run tells no classes, or has hardly any modules, it is not known, and false.
    """
    leaves = _by_name(golden), _by_name(target)
    fewest = min(side.total() for side in leaves)
    told = [any(seconds(side)) for side in leaves]
    if fewest < LEAST_LEAVES or not all(told) or (leaves[0] & leaves[1]).total() >= SAME_CODE * fewest:
        return False
    return not _were_renamed(golden, target)


def _were_renamed(golden: SliceTree, target: SliceTree) -> bool:
    """Tell whether nearly all leaf modules have the same classes, and lie as deep: they have other names."""
    first, second = map(_by_depth, (golden, target))
    return (first & second).total() >= SAME_CLASSES * max(first.total(), second.total())


def _by_depth(tree: SliceTree) -> Counter[tuple[int, str]]:
    """Count the leaf modules by how many modules are around them, and their class."""
    return Counter(
        (sum(not is_operator(tree.nodes[above]) for above in tree.around(at)), tree.nodes[at].type_name)
        for at in _leaves(tree)
    )


def _by_name(tree: SliceTree) -> Counter[tuple[str, str]]:
    """Count the leaf modules by the last part of their path and their class."""
    nodes = tree.nodes_at(_leaves(tree))
    return Counter((node.path.rpartition(".")[2], node.type_name) for node in nodes)


def _leaves(tree: SliceTree) -> list[int]:
    """Return the modules of the forward pass that hold no others."""
    return [
        at
        for at, node in enumerate(tree.nodes)
        if _is_forward_module(node) and not tree.modules(tree.forward[at])
    ]


def modules_alone(listing: SliceListing, tree: SliceTree) -> ModulesAlone:
    """Leave out what is no module of the forward pass; what hung below it hangs at the module around.

    Containers that were not recorded are put in as the paths of what they hold name them, so that a layer is
    one whether or not somebody recorded it.
    """
    places = {at: node for at, node in enumerate(tree.nodes) if _is_forward_module(node)}
    holding = {tree.nodes[above].name for at in places for above in tree.around(at)}
    vague = _vague_classes(places.values(), holding)
    modules = [
        replace(
            node,
            parent=next((places[around].name for around in tree.around(at) if around in places), None),
            type_name="" if node.type_name in vague and not _is_no_norm(node) else node.type_name,
        )
        for at, node in places.items()
    ]
    whole = with_containers(modules)
    where = {node.name: at for at, node in places.items()}
    return ModulesAlone(Slice(listing, whole), tuple(where.get(node.name) for node in whole))


def _is_forward_module(node: Node) -> bool:
    return not is_operator(node) and node.direction is not Direction.BACKWARD and not holds_gradients(node)


def _is_no_norm(node: Node) -> bool:
    """Tell whether what is called a norm gives what it takes: it stands where others have one."""
    if kind_of(replace(node, type_name="")) is not OpKind.NORM:
        return False
    taken, given = ([*map(value_key, tensors_of(node, role))] for role in (Role.INPUT, Role.OUTPUT))
    return bool(taken) and None not in taken and taken[:1] == given


def _vague_classes(nodes: Iterable[Node], holding: Container[str]) -> set[str]:
    """Return the classes that do not say what a module does; their weights, names and shapes still tell.

    An exporter or a compiler gives all modules one class, whatever they do. Nobody but its author knows a
    class of his own: where its modules hold no others, they do one thing.
    """
    kinds: defaultdict[str, set[OpKind]] = defaultdict(set)
    hold_others: set[str] = set()
    for node in nodes:
        if node.type_name and kind_of(node) is OpKind.OTHER and not begins_with_norm(node.type_name):
            kinds[node.type_name].add(kind_of(replace(node, type_name="")))
            hold_others |= {node.type_name} if node.name in holding else set()
    several = {name for name, found in kinds.items() if len(found - {OpKind.OTHER}) > 1}
    return several | (kinds.keys() - hold_others)
