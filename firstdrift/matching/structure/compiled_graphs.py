"""Match a compiled graph with the one it was compiled from, by what its dump says of the origin of its nodes.

    golden   add ─┐
             sig ─┼─ Add_1Sigmoid_1Mul_1   target, whose sources are add, sig and mul:
             mul ─┘                        it takes what add takes, and gives what mul gives

A source says what a node is, whatever its type is called; order and shapes need not be weighed. What a
compiler put in or left out corresponds to nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct

from firstdrift.matching.pairing import INSIDE_CORRESPONDS, Found, Join, Pairing
from firstdrift.matching.plan import Messages, Origin, TensorPair, UnmatchedTensor
from firstdrift.matching.structure.statistics_similarity import bare_shape
from firstdrift.matching.tensors import BY_SHAPE, TensorPairing, relate_shapes
from firstdrift.matching.tree import SliceTree, is_operator
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

    Args:
        tensors: what is paired so far; the pairs are added to it.
        match: index of the match.
        golden: golden nodes.
        target: target nodes.
    """
    left = _Left(_records(golden), _records(target))
    said = {(theirs, own) for own, theirs in _said(target, golden)} | set(_said(golden, target))
    order = {place: at for at, place in enumerate(left.target)}
    known = sorted((pair for pair in said if left.holds(pair)), key=lambda pair: (order[pair[1]], pair[0]))
    pairs = [
        pair
        for pair in known
        if left.holds(pair)
        and left.fits(pair, must=left.target[pair[1]].role is Role.INPUT)
        and left.take(pair)
    ]
    by_shape = [pair for pair in left.by_shape(known) if left.take(pair)]
    for remark, chosen in (((), pairs), ((BY_SHAPE,), by_shape)):
        tensors.pairs += [left.pair(match, pair, remark) for pair in chosen]
    for side, rest in (
        (tensors.unmatched_golden, left.golden),
        (tensors.unmatched_target, left.target),
    ):
        side += [UnmatchedTensor(match, place[0], record) for place, record in rest.items()]


Place: TypeAlias = tuple[str, str]
"""A tensor: the name of its node, and its label."""

_Said: TypeAlias = tuple[Place, Place]
"""A golden and a target tensor that are the same."""


class _Left(Struct):
    """The tensors of a match that are not paired yet."""

    golden: dict[Place, TensorRecord]
    target: dict[Place, TensorRecord]
    taken: dict[_Said, tuple[TensorRecord, TensorRecord]] = {}

    def holds(self, pair: _Said) -> bool:
        return pair[0] in self.golden and pair[1] in self.target

    def fits(self, pair: _Said, *, must: bool) -> bool:
        shapes = self.golden[pair[0]].shape, self.target[pair[1]].shape
        return not must or relate_shapes(*shapes)[1] is None

    def take(self, pair: _Said) -> bool:
        """Take the two out, if both are still there."""
        if not self.holds(pair):
            return False
        self.taken[pair] = self.golden.pop(pair[0]), self.target.pop(pair[1])
        return True

    def by_shape(self, known: Iterable[_Said]) -> list[_Said]:
        """Pair inputs of nodes that are the same, where on both sides only one is left of its shape."""
        nodes = dict.fromkeys((one[0], other[0]) for one, other in known)
        found: list[_Said] = []
        for first, second in nodes:
            sides = [
                [
                    (place, bare_shape(record.shape or ()))
                    for place, record in side.items()
                    if place[0] == name and record.role is Role.INPUT and record.shape
                ]
                for name, side in ((first, self.golden), (second, self.target))
            ]
            counts = [Counter(shape for _, shape in side) for side in sides]
            found += [
                (one, other)
                for one, shape in sides[0]
                for other, same in sides[1]
                if shape == same and counts[0][shape] == counts[1][shape] == 1
            ]
        return found

    def pair(self, match: int, pair: _Said, remark: Messages) -> TensorPair:
        golden, target = self.taken[pair]
        transform, incomparable = relate_shapes(golden.shape, target.shape)
        return TensorPair(match, pair[0][0], pair[1][0], golden, target, (*remark, *transform), incomparable)


def _links(made: SliceTree, sources: SliceTree) -> Iterator[tuple[int, int, bool]]:
    """Yield each node of a slice with each node of the other that it was made from."""
    if not any(node.sources for node in made.nodes):
        return
    by_place: dict[Place, int] = {}
    by_name: defaultdict[str, list[int]] = defaultdict(list)
    for index in range(len(sources.nodes)):
        place = _place(sources, index)
        by_place.setdefault(place, index)
        by_name[place[1]].append(index)
    for index, node in enumerate(made.nodes):
        around = _place(made, index)[0]
        for source in node.sources:
            alone = by_name[source.node] if len(by_name[source.node]) == 1 else [None]
            found = by_place.get((around, source.node), alone[0])
            if found is not None:
                yield index, found, any(own.startswith(Role.OUTPUT) for own, _ in source.tensors)


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
    for some in _hanging_together(links):
        golden, target = _nodes(some)
        if len(golden) == 1 or len(target) == 1:
            yield golden, target
        elif not all(link.gives for link in some):
            yield from _groups([link for link in some if link.gives])


def _hanging_together(links: Iterable[_Link]) -> list[list[_Link]]:
    of_node: defaultdict[tuple[str, int], list[_Link]] = defaultdict(list)
    for link in links:
        of_node["golden", link.golden].append(link)
        of_node["target", link.target].append(link)
    found: list[list[_Link]] = []
    seen: set[_Link] = set()
    for start in links:
        waiting, together = [start], list[_Link]()
        while waiting:
            link = waiting.pop()
            if link not in seen:
                seen.add(link)
                together.append(link)
                waiting += of_node["golden", link.golden] + of_node["target", link.target]
        if together:
            found.append(together)
    return found


def _nodes(links: Iterable[_Link]) -> Group:
    links = list(links)
    return (
        tuple(sorted({link.golden for link in links})),
        tuple(sorted({link.target for link in links})),
    )


def _reason(work: Pairing, golden: Iterable[int], target: Iterable[int]) -> Message:
    first = [work.golden.nodes[index] for index in golden]
    second = [work.target.nodes[index] for index in target]
    names = {_local_name(node) for node in first}
    made, sources = (
        (second, first)
        if any(one.node in names for node in second for one in node.sources)
        else (first, second)
    )
    return Message.of("matching.reason.compiled", made=_names(made), sources=_names(sources))


def _names(nodes: Iterable[Node]) -> tuple[str, ...]:
    return tuple(map(_local_name, nodes))


def _match_by_name(work: Pairing) -> None:
    """Match operators of the same name and type: those that the compiler left as they were."""
    golden = {
        (*_place(work.golden, index), node.type_name): index
        for index, node in enumerate(work.golden.nodes)
        if is_operator(node) and index not in work.partners
    }
    for index, node in enumerate(work.target.nodes):
        partner = golden.get((*_place(work.target, index), node.type_name))
        if is_operator(node) and index not in work.found and partner is not None:
            work.add_same_place((partner, index))


def _match_around(work: Pairing) -> None:
    """Match the modules around what corresponds."""
    for golden, target in list(work.partners.items()):
        around = work.golden.parents[golden], work.target.parents[target]
        free = around[0] not in work.partners and around[1] not in work.found
        if free and around[0] != work.golden.root and around[1] != work.target.root:
            reasons = (INSIDE_CORRESPONDS,)
            work.add(around, Found(around[0], Origin.EXACT, 1.0, doubtful=False, reasons=reasons))


def _records(nodes: Iterable[Node]) -> dict[Place, TensorRecord]:
    return {(node.name, record.label): record for node in nodes for record in node.tensors}


def _said(made: Iterable[Node], sources: Iterable[Node]) -> Iterator[_Said]:
    """Yield each tensor of nodes that were made with that of their sources that it is."""
    names = {_local_name(node): node.name for node in sources}
    for node in made:
        for source in node.sources:
            if source.node in names:
                yield from (
                    ((node.name, own), (names[source.node], theirs)) for own, theirs in source.tensors
                )
