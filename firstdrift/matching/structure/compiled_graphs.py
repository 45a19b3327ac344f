"""Match a compiled graph with the one it was compiled from, by what its dump says of the origin of its nodes.

    golden   add ─┐
             sig ─┼─ Add_1Sigmoid_1Mul_1   target, whose sources are add, sig and mul:
             mul ─┘                        it takes what add takes, and gives what mul gives

A source says what a node is, whatever its type is called; order and shapes need not be weighed. What a
compiler put in or left out corresponds to nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct

from firstdrift.groups import alone, grouped, positions
from firstdrift.matching.pairing import INSIDE_CORRESPONDS, Join, Pairing
from firstdrift.matching.plan import Messages, Origin, TensorPair, UnmatchedTensor
from firstdrift.matching.structure.statistics_similarity import bare_shape
from firstdrift.matching.tensors import BY_SHAPE, TensorPairing, relate_shapes
from firstdrift.matching.tree import Place, SliceTree, is_operator, records_by_place
from firstdrift.model.node import Node
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.wording.message import Message

Group: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""Golden nodes and target nodes that are the same."""


class _Link(Struct, frozen=True):
    """A golden and a target node one of which was made from the other.

    Attributes:
        gives: whether they have an output in common.
    """

    golden: int
    target: int
    gives: bool


def match_compiled(work: Pairing) -> bool:
    """Match what is not matched yet, if nodes of one slice are sources of the other; tell whether any are."""
    links = [_Link(source, made, gives) for made, source, gives in _links(work.target, work.golden)]
    links += [_Link(made, source, gives) for made, source, gives in _links(work.golden, work.target)]
    for golden, target in _groups(links):
        reasons = (_reason(work, golden, target),)
        work.add_join(Join(golden, target, Origin.EXACT, 1.0, reasons, compiled=True))
    if links:
        _match_by_name(work)
        _match_around(work)
        work.fresh.clear()
    return bool(links)


def pair_compiled(tensors: TensorPairing, match: int, golden: Sequence[Node], target: Sequence[Node]) -> None:
    """Pair the tensors of a match as the sources of its nodes say, and list what is left over.

    Which input is which follows from positions: inputs of other shapes are not the same, and are left to
    others of the node whose shape fits.
    """
    left = _Left(records_by_place(golden), records_by_place(target))
    told = {(theirs, own) for own, theirs in _told(target, golden)} | set(_told(golden, target))
    order = positions(left.target)
    known = sorted(filter(left.holds, told), key=lambda pair: (order[pair[1]], pair[0]))
    tensors.pairs += [left.take(match, pair) for pair in known if left.holds(pair) and left.fits(pair)]
    tensors.pairs += [
        left.take(match, pair, (BY_SHAPE,)) for pair in left.by_shape(known) if left.holds(pair)
    ]
    tensors.unmatched_golden += _unmatched(match, left.golden)
    tensors.unmatched_target += _unmatched(match, left.target)


_Told: TypeAlias = tuple[Place, Place]
"""A golden and a target tensor that are the same."""


class _Left(Struct):
    """The tensors of a match that are not paired yet."""

    golden: dict[Place, TensorRecord]
    target: dict[Place, TensorRecord]

    def holds(self, pair: _Told) -> bool:
        return pair[0] in self.golden and pair[1] in self.target

    def fits(self, pair: _Told) -> bool:
        """Tell whether two tensors may be the same: of inputs the shapes tell."""
        golden, target = self.golden[pair[0]], self.target[pair[1]]
        return target.role is not Role.INPUT or relate_shapes(golden.shape, target.shape)[1] is None

    def take(self, match: int, pair: _Told, remark: Messages = ()) -> TensorPair:
        """Take two tensors out, and pair them."""
        golden, target = self.golden.pop(pair[0]), self.target.pop(pair[1])
        transform, incomparable = relate_shapes(golden.shape, target.shape)
        return TensorPair(match, pair[0][0], pair[1][0], golden, target, (*remark, *transform), incomparable)

    def by_shape(self, known: Iterable[_Told]) -> list[_Told]:
        """Pair inputs of nodes that are the same, where on both sides only one is left of its shape."""
        pairs: list[_Told] = []
        for golden, target in dict.fromkeys((own[0], theirs[0]) for own, theirs in known):
            first, second = _only_of_shape(self.golden, golden), _only_of_shape(self.target, target)
            pairs += [(first[shape], second[shape]) for shape in first if shape in second]
        return pairs


def _unmatched(match: int, left: dict[Place, TensorRecord]) -> list[UnmatchedTensor]:
    return [UnmatchedTensor(match, node, record) for (node, _), record in left.items()]


def _only_of_shape(left: dict[Place, TensorRecord], node: str) -> dict[tuple[int, ...], Place]:
    """Return the inputs of a node of which no other has the same shape."""
    shapes = {
        place: bare_shape(record.shape)
        for place, record in left.items()
        if place[0] == node and record.role is Role.INPUT and record.shape
    }
    return alone(shapes, shapes.__getitem__)


def _links(made: SliceTree, sources: SliceTree) -> Iterator[tuple[int, int, bool]]:
    """Yield each node of a slice with each node of the other that it was made from."""
    if not any(node.sources for node in made.nodes):
        return
    indexes = range(len(sources.nodes))
    by_place = {_place(sources, index): index for index in reversed(indexes)}
    by_name = alone(indexes, lambda index: _local_name(sources.nodes[index]))
    for index, node in enumerate(made.nodes):
        around = _place(made, index)[0]
        for source in node.sources:
            origin = by_place.get((around, source.node), by_name.get(source.node))
            if origin is not None:
                yield index, origin, any(own.startswith(Role.OUTPUT) for own, _ in source.tensors)


def _place(tree: SliceTree, index: int) -> Place:
    """Return the path of the module around a node, and its name in there."""
    parent = tree.parents[index]
    return "" if parent == tree.root else tree.nodes[parent].path, _local_name(tree.nodes[index])


def _local_name(node: Node) -> str:
    return node.name.removeprefix(f"{node.parent}.") if node.parent else node.name


def _groups(links: Sequence[_Link]) -> Iterator[Group]:
    """Yield the nodes that hang together, if either side has only one.

    Where several share their parts with several, what gives the same decides.
    """
    for together in _hanging_together(links):
        golden, target = {link.golden for link in together}, {link.target for link in together}
        giving = [link for link in together if link.gives]
        if min(len(golden), len(target)) == 1:
            yield tuple(sorted(golden)), tuple(sorted(target))
        elif len(giving) < len(together):
            yield from _groups(giving)


def _hanging_together(links: Sequence[_Link]) -> Iterator[list[_Link]]:
    of_golden = grouped(links, lambda link: link.golden)
    of_target = grouped(links, lambda link: link.target)
    seen: set[_Link] = set()
    for start in links:
        waiting, together = [start], list[_Link]()
        while waiting:
            link = waiting.pop()
            if link not in seen:
                seen.add(link)
                together.append(link)
                waiting += of_golden[link.golden] + of_target[link.target]
        if together:
            yield together


def _reason(work: Pairing, golden: Iterable[int], target: Iterable[int]) -> Message:
    nodes = work.target.nodes_at(target)
    names = tuple(map(_local_name, work.golden.nodes_at(golden)))
    others = tuple(map(_local_name, nodes))
    if any(source.node in names for node in nodes for source in node.sources):
        return Message.of("matching.reason.compiled", made=others, sources=names)
    return Message.of("matching.reason.compiled", made=names, sources=others)


def _match_by_name(work: Pairing) -> None:
    """Match operators of the same name and type: those that the compiler left as they were."""
    golden = {_identity(work.golden, index): index for index in work.free_golden(_operators(work.golden))}
    for index in work.free_target(_operators(work.target)):
        partner = golden.get(_identity(work.target, index))
        if partner is not None and partner not in work.partners:
            work.add_same_place((partner, index))


def _operators(tree: SliceTree) -> list[int]:
    return [index for index, node in enumerate(tree.nodes) if is_operator(node)]


def _identity(tree: SliceTree, index: int) -> tuple[Place, str]:
    return _place(tree, index), tree.nodes[index].type_name


def _match_around(work: Pairing) -> None:
    """Match the modules around what corresponds."""
    for golden, target in list(work.partners.items()):
        around = work.golden.parents[golden], work.target.parents[target]
        at_top = around[0] == work.golden.root or around[1] == work.target.root
        if work.is_free(around) and not at_top:
            work.add_sure(around, Origin.EXACT, (INSIDE_CORRESPONDS,))


def _told(made: Iterable[Node], sources: Iterable[Node]) -> Iterator[_Told]:
    """Yield each tensor of nodes that were made with that of their sources that it is."""
    names = {_local_name(node): node.name for node in sources}
    for node in made:
        for source in node.sources:
            if source.node in names:
                yield from (
                    ((node.name, own), (names[source.node], theirs)) for own, theirs in source.tensors
                )
