"""What holds for most layers holds for all: the parts of layers are matched by their majority.

layers.0   q_proj ══ linear_q      norm_2 ══ pre_mlp_norm
layers.1   q_proj ══ linear_q      norm_2 ~~ (one faulty weight: taken for another)
layers.2   q_proj ══ linear_q      norm_2 ══ pre_mlp_norm
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from typing import Final, TypeAlias, TypeVar

from msgspec import Struct

from firstdrift.groups import known, seconds
from firstdrift.matching.implementations.thresholds import MAJORITY
from firstdrift.matching.pairing import Nodes
from firstdrift.matching.structure.sequence_alignment import Pair
from firstdrift.matching.tree import SliceTree

_NUMBER: Final = re.compile(r"\d+")

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

Place: TypeAlias = str
"""Where in the layers of a stack a module lies: what it and those around it are called; which call it is."""

Places: TypeAlias = tuple[tuple[Place, ...], tuple[Place, ...]]
"""Golden and target modules of a layer that are the same; one of them may be several."""


class LayerPair(Struct, frozen=True):
    """Two layers that are the same: the modules in each by their places, and their places by the modules."""

    golden: Mapping[Place, int]
    target: Mapping[Place, int]
    golden_places: Mapping[int, Place]
    target_places: Mapping[int, Place]

    def nodes(self, places: Places) -> Nodes | None:
        """Return the nodes at some places; None if one of them is not there."""
        golden, target = _all_of(self.golden, places[0]), _all_of(self.target, places[1])
        return None if golden is None or target is None else (golden, target)

    def places(self, nodes: Nodes) -> Places | None:
        """Return the places of some nodes; None if they are not all in these two layers."""
        golden, target = _all_of(self.golden_places, nodes[0]), _all_of(self.target_places, nodes[1])
        return None if golden is None or target is None else (golden, target)


def _all_of(known: Mapping[Key, Value], keys: Iterable[Key]) -> tuple[Value, ...] | None:
    """Return what is known by each of some keys; None if one is not known."""
    try:
        return tuple(map(known.__getitem__, keys))
    except KeyError:
        return None


def layer_pair(trees: tuple[SliceTree, SliceTree], layers: Pair) -> LayerPair:
    """Lay out two layers by the places in them."""
    golden, target = (dict(_places(tree, layer)) for tree, layer in zip(trees, layers, strict=True))
    turned = ({node: place for place, node in side.items()} for side in (golden, target))
    return LayerPair(golden, target, *turned)


def _places(tree: SliceTree, layer: int) -> Iterator[tuple[Place, int]]:
    """Yield the modules in a layer with their places; calls of one module are numbered in each layer."""
    # Layers of an encoder vote for none of the decoder.
    waiting = [(layer, _NUMBER.sub("", tree.nodes[layer].path))]
    calls: Counter[str] = Counter()
    while waiting:
        node, around = waiting.pop()
        for child in tree.forward[node]:
            name = tree.relative_name(child)
            # A module that layers share is called as the first of them has it.
            name = name.rpartition(".")[2] if name == tree.nodes[child].path else name
            place = f"{around}/{name}"
            calls[place] += 1
            numbered = f"{place}#{calls[place]}"
            yield numbered, child
            waiting.append((child, place))


def by_majority(layers: Sequence[LayerPair], matches: Iterable[Nodes]) -> list[tuple[Nodes, bool]]:
    """Return the matches inside layers: first those that most layers have, in all layers; then all others.

    Args:
        layers: the pairs of layers.
        matches: what was matched in them.

    Returns:
        Each match with whether most layers have it; no node is in two of them.
    """
    voted = _voted(layers, matches)
    elected = _elected(layers, Counter(known(seconds(voted))))
    everywhere = known(layer.nodes(places) for places in elected for layer in layers)
    settled = [set(chain.from_iterable(side)) for side in zip(*elected, strict=True)] or [set(), set()]
    others = (nodes for nodes, places in voted if places is None or _are_apart(places, settled))
    taken: tuple[set[int], set[int]] = set(), set()
    chosen: list[tuple[Nodes, bool]] = []
    for nodes, is_elected in chain(product(everywhere, (True,)), product(others, (False,))):
        if _are_apart(nodes, taken):
            chosen.append((nodes, is_elected))
            taken[0].update(nodes[0])
            taken[1].update(nodes[1])
    return chosen


def _elected(layers: Sequence[LayerPair], votes: Counter[Places]) -> list[Places]:
    """Return what more than half of the layers say is the same, of those that have both.

    Where some layers lack the one and others the other, several may be: then those of most layers count.
    """
    elected: list[Places] = []
    for places, count in votes.most_common():
        possible = sum(layer.nodes(places) is not None for layer in layers)
        if count > MAJORITY * possible and not any(_contradict(places, other) for other in elected):
            elected.append(places)
    return elected


def _contradict(first: Places, second: Places) -> bool:
    """Tell whether what is the same on one side is another thing on the other."""
    shared = [not set(own).isdisjoint(other) for own, other in zip(first, second, strict=True)]
    return shared[0] is not shared[1]


def _are_apart(sides: tuple[tuple[Key, ...], tuple[Key, ...]], known: Sequence[set[Key]]) -> bool:
    """Tell whether nothing on either side is known."""
    return known[0].isdisjoint(sides[0]) and known[1].isdisjoint(sides[1])


def _voted(layers: Sequence[LayerPair], matches: Iterable[Nodes]) -> list[tuple[Nodes, Places | None]]:
    """Return each match with the places it is at; None outside of layers."""
    of_golden = {node: layer for layer in layers for node in layer.golden_places}
    found = ((nodes, of_golden.get(nodes[0][0])) for nodes in matches)
    return [(nodes, None if layer is None else layer.places(nodes)) for nodes, layer in found]
