"""Rank what may correspond to a node that has no partner.

    feed_forward   ?   mlp        0.83   parents correspond · between the same neighbours · same output shapes
                       norm       0.31   parents correspond

Scores only order candidates: nothing is matched by them. What was left over was left over by the rules, so
here everything of the same pass is considered, also operators of other names and modules elsewhere.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from firstdrift.errors import SettingsError
from firstdrift.matching.fused.find_fused import possible_joins
from firstdrift.matching.pairing import Join, Pairing
from firstdrift.matching.plan import Messages
from firstdrift.matching.structure.similarity import (
    SAME_CONTENTS,
    SAME_NAME,
    SAME_SHAPES,
    VALUES_AGREE,
    Evidence,
    class_similarity,
    name_similarity,
    shape_similarity,
)
from firstdrift.matching.structure.statistics_similarity import agreement
from firstdrift.matching.structure.thresholds import ALIKE, LOWEST, OTHER_LAYER, VALUES_COUNT
from firstdrift.matching.tree import SliceTree, is_operator, operator_family
from firstdrift.model.node import Direction, Node
from firstdrift.model.tensor import Role
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named

_WEIGHTS: Final = {
    "name": 2.0,
    "type": 1.5,
    "output shapes": 2.5,
    "input shapes": 1.0,
    "parameter shapes": 1.5,
    "contents": 1.5,
    "parent": 2.5,
    "position": 1.5,
    "layer": 1.0,
    "around": 1.0,
}
"""What each likeness counts for, where it is known."""


_PLACE: Final = frozenset({"parent", "position", "layer", "around"})
"""Likenesses of where two nodes stand, not of what they are."""


_SAME_LAYER: Final = Message.of("matching.reason.same_layer")
_PARENTS_CORRESPOND: Final = Message.of("matching.reason.parents_correspond")
_SAME_NEIGHBOURS: Final = Message.of("matching.reason.same_neighbours")
_SAME_PARENT_NAME: Final = Message.of("matching.reason.same_parent_name")
_SAME: Final = {
    "output shapes": SAME_SHAPES[Role.OUTPUT],
    "input shapes": SAME_SHAPES[Role.INPUT],
    "parameter shapes": SAME_SHAPES[Role.PARAMETER],
    "contents": SAME_CONTENTS,
}
_NAMED: Final = {
    "name": (SAME_NAME, "matching.reason.similar_name"),
    "type": (Message.of("matching.reason.same_type"), "matching.reason.similar_type"),
}
"""What is said of equal names or types, and the id of what is said of similar ones."""


class Suggestion(Struct, frozen=True):
    """What a node may correspond to.

    Attributes:
        golden: names of golden nodes; several where they may have been fused.
        target: names of target nodes; one of the two sides has one node.
        score: how much speaks for it, 0 to 1; it orders candidates, and is no probability.
        reasons: what speaks for it, one clause each, the weightiest first.
        doubtful: whether it is matched so already, but not compared until a person confirms it.
    """

    golden: tuple[str, ...]
    target: tuple[str, ...]
    score: float
    reasons: Messages
    doubtful: bool = False


def suggest(
    work: Pairing, *, golden: str | None = None, target: str | None = None, most: int = 10
) -> tuple[Suggestion, ...]:
    """Rank the partners that a node may have, the likeliest first.

    Args:
        work: what is matched of the two slices.
        golden: name of a golden node whose partner is sought; or else
        target: name of a target node.
        most: how many to give at most.

    Raises:
        SettingsError: not exactly one node is named, or there is no such node.
    """
    if (golden is None) is (target is None):
        raise SettingsError(Message.of("matching.suggestion.one_node"))
    tree, name = (work.golden, golden) if golden is not None else (work.target, target)
    index = next((at for at, node in enumerate(tree.nodes) if node.name == name), None)
    if index is None:
        side = side_named("golden" if golden is not None else "target")
        raise SettingsError(Message.of("matching.edit.no_node", side=side, node=name))
    around = _Neighbours(work)
    pairs = _candidates(work, index, of_golden=golden is not None)
    found: list[_Weighed | Suggestion] = [
        one for pair in pairs if (one := _weigh(work, around, pair)) is not None
    ]
    found += [_fused(work, join) for join in possible_joins(work, index, of_golden=golden is not None)]
    found.sort(key=lambda one: -one.score)
    said = (one if isinstance(one, Suggestion) else _explained(work, one) for one in found[:most])
    return tuple(one for one in said if one.score >= LOWEST and one.reasons)


def _candidates(work: Pairing, index: int, *, of_golden: bool) -> Iterator[tuple[int, int]]:
    """Yield the pairs of a node with each free node of the other side, of the same pass."""
    tree, others = (work.golden, work.target) if of_golden else (work.target, work.golden)
    is_backward = tree.nodes[index].direction is Direction.BACKWARD
    is_gradient, gradients = index in tree.gradients, frozenset(others.gradients)
    taken: Container[int] = work.found if of_golden else work.partners
    doubtful = _doubtful_partner(work, index, of_golden=of_golden)
    for at in range(others.root):
        if at in taken and at != doubtful:
            continue
        same_pass = (others.nodes[at].direction is Direction.BACKWARD) is is_backward
        if same_pass and (at in gradients) is is_gradient:
            yield (index, at) if of_golden else (at, index)


def _doubtful_partner(work: Pairing, index: int, *, of_golden: bool) -> int | None:
    """Return what a node is matched with until a person confirms it; None if that is nothing, or is sure."""
    target = work.partners.get(index) if of_golden else index
    match = work.found.get(target) if target is not None else None
    if match is None or not match.doubtful:
        return None
    return target if of_golden else match.golden


def _fused(work: Pairing, join: Join) -> Suggestion:
    """Suggest that nodes were fused; with those of another layer last, for names and shapes are the same."""
    same = _are_same(_layer(work.golden, join.golden[0]), _layer(work.target, join.target[0]))
    return Suggestion(
        tuple(work.golden.nodes[at].name for at in join.golden),
        tuple(work.target.nodes[at].name for at in join.target),
        join.score if same else join.score * OTHER_LAYER,
        (*join.reasons, *([_SAME_LAYER] if same else [])),
    )


class _Neighbours:
    """Where the matched siblings beside a node lead to."""

    def __init__(self, work: Pairing) -> None:
        found = work.found
        self.golden = _Beside(work.golden, work.partners.get)
        self.target = _Beside(work.target, lambda index, other: index if index in found else other)

    def likeness(self, pair: tuple[int, int]) -> float:
        """Return the share of the two matched neighbours, before and after, that correspond."""
        first, second = self.golden.of(pair[0]), self.target.of(pair[1])
        return ((first[0] == second[0]) + (first[1] == second[1])) / 2


class _Beside:
    """The target nodes of the nearest matched siblings of each node that is asked about."""

    def __init__(self, tree: SliceTree, target_of: Callable[[int, int], int]) -> None:
        self.tree, self.target_of = tree, target_of
        self.known: dict[int, tuple[int, int]] = {}
        self.looked_at: set[tuple[int, bool]] = set()

    def of(self, index: int) -> tuple[int, int]:
        """Return those before and after a node, -1 and -2 at the ends; of what holds gradients -1 twice."""
        place = self.tree.parents[index], self.tree.nodes[index].direction is Direction.BACKWARD
        if place not in self.looked_at:
            self.looked_at.add(place)
            self._look((self.tree.backward if place[1] else self.tree.forward)[place[0]])
        return self.known.get(index, (-1, -1))

    def _look(self, siblings: Sequence[int]) -> None:
        before: list[int] = []
        last = -1
        for index in siblings:
            before.append(last)
            last = self.target_of(index, last)
        following = -2
        for index, earlier in zip(reversed(siblings), reversed(before), strict=True):
            self.known[index] = (earlier, following)
            following = self.target_of(index, following)


class _Weighed(Struct, frozen=True):
    """A pair of nodes and what speaks for it.

    Attributes:
        known: likenesses that are known, by what is alike.
        values: how far output values agree.
    """

    pair: tuple[int, int]
    score: float
    known: Mapping[str, float]
    values: float


def _weigh(work: Pairing, around: _Neighbours, pair: tuple[int, int]) -> _Weighed | None:
    """Say how much speaks for a pair; None for an operator and a module of which only places are alike."""
    first, second = work.golden.nodes[pair[0]], work.target.nodes[pair[1]]
    likeness = {**_likeness_of_nodes(work.evidence, pair), **_likeness_of_places(work, around, pair)}
    known = {what: value for what, value in likeness.items() if value is not None}
    score = sum(_WEIGHTS[what] * value for what, value in known.items())
    score /= sum(_WEIGHTS[what] for what in known)
    values = agreement(first, second, Role.OUTPUT) or 0.0
    if is_operator(first) is not is_operator(second):
        of_themselves = [value for what, value in known.items() if what not in _PLACE]
        if max([values, *of_themselves]) < ALIKE:
            return None
    score += (1 - score) * VALUES_COUNT * values
    return _Weighed(pair, round(score, 4), known, values)


def _explained(work: Pairing, one: _Weighed) -> Suggestion:
    """Say what speaks for a pair."""
    pair, match = one.pair, work.found.get(one.pair[1])
    return Suggestion(
        (work.golden.nodes[pair[0]].name,),
        (work.target.nodes[pair[1]].name,),
        one.score,
        tuple(_reasons(work, pair, one.known, one.values)),
        doubtful=match is not None and match.golden == pair[0],
    )


def _likeness_of_nodes(evidence: Evidence, pair: tuple[int, int]) -> dict[str, float | None]:
    first, second = evidence.golden.nodes[pair[0]], evidence.target.nodes[pair[1]]
    said = {
        "output shapes": shape_similarity(first, second, Role.OUTPUT),
        "input shapes": shape_similarity(first, second, Role.INPUT),
        "parameter shapes": shape_similarity(first, second, Role.PARAMETER),
    }
    if is_operator(first) and is_operator(second):
        families = operator_family(first.type_name), operator_family(second.type_name)
        return said | {"type": name_similarity(*families), "around": _likeness_around(evidence, pair)}
    names = _bare_name(evidence.golden, pair[0]), _bare_name(evidence.target, pair[1])
    said |= {"name": name_similarity(*names), "type": class_similarity(first, second)}
    if not is_operator(first) and not is_operator(second):
        said["contents"] = evidence.contents_similarity(*pair)
    return said


def _likeness_around(evidence: Evidence, pair: tuple[int, int]) -> float | None:
    """Compare the names of the modules around two operators; None where one is in no module."""
    above = evidence.golden.parents[pair[0]], evidence.target.parents[pair[1]]
    if above[0] == evidence.golden.root or above[1] == evidence.target.root:
        return None
    return name_similarity(evidence.golden.relative_name(above[0]), evidence.target.relative_name(above[1]))


def _bare_name(tree: SliceTree, index: int) -> str:
    node = tree.nodes[index]
    return operator_family(node.type_name) if is_operator(node) else tree.relative_name(index)


def _likeness_of_places(work: Pairing, around: _Neighbours, pair: tuple[int, int]) -> dict[str, float | None]:
    above = work.golden.parents[pair[0]], work.target.parents[pair[1]]
    roots = above == (work.golden.root, work.target.root)
    same = roots or work.partners.get(above[0], -1) == above[1]
    layers = _layer(work.golden, pair[0]), _layer(work.target, pair[1])
    return {
        "parent": float(same),
        "position": around.likeness(pair) if same else 0.0,
        "layer": float(_are_same(*layers)) if all(layers) else None,
    }


def _are_same(golden: list[str], target: list[str]) -> bool:
    """Tell whether the numbers of two layers are the same; one side may have more of them in front."""
    shared = min(len(golden), len(target))
    return golden[len(golden) - shared :] == target[len(target) - shared :]


def _layer(tree: SliceTree, index: int) -> list[str]:
    """Return the numbers in the path of a module, or of the one around an operator."""
    if is_operator(tree.nodes[index]):
        index = tree.parents[index]
    path = "" if index == tree.root else tree.nodes[index].path
    return [part for part in path.split(".") if part.isdigit()]


def _reasons(
    work: Pairing, pair: tuple[int, int], known: Mapping[str, float], values: float
) -> Iterator[Message]:
    """Say what speaks for a pair, one clause each."""
    first, second = work.golden.nodes[pair[0]], work.target.nodes[pair[1]]
    if values >= ALIKE:
        yield VALUES_AGREE[Role.OUTPUT]
    if known.get("parent"):
        yield _PARENTS_CORRESPOND
    if known.get("position") == 1.0:
        yield _SAME_NEIGHBOURS
    if known.get("around") == 1.0 and not known.get("parent"):
        yield _SAME_PARENT_NAME
    if known.get("layer"):
        yield _SAME_LAYER
    yield from _said_of_names(work, pair, first, second, known)
    yield from (said for what, said in _SAME.items() if known.get(what) == 1.0)


def _said_of_names(
    work: Pairing, pair: tuple[int, int], first: Node, second: Node, known: Mapping[str, float]
) -> Iterator[Message]:
    names = _bare_name(work.golden, pair[0]), _bare_name(work.target, pair[1])
    for what, words in (("name", names), ("type", (first.type_name, second.type_name))):
        same, alike = _NAMED[what]
        if words[0] == words[1] and what in known:
            yield same
        elif known.get(what, 0.0) >= ALIKE:
            yield Message.of(alike, golden=words[0], target=words[1])
