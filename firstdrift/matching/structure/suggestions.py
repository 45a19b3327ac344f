"""Rank what may correspond to a node that has no partner.

    feed_forward   ?   mlp        0.83   parents correspond · between the same neighbours · same output shapes
                       norm       0.31   parents correspond

Scores only order candidates: nothing is matched by them. What was left over was left over by the rules, so
here everything of the same pass is considered, also operators of other names and modules elsewhere.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import accumulate
from typing import Final

from msgspec import Struct

from firstdrift.errors import SettingsError
from firstdrift.groups import known, known_items
from firstdrift.matching.cross_framework.layer_ops import block_of, is_op
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
    shape_similarities,
    weighted_mean,
)
from firstdrift.matching.structure.statistics_similarity import agreement
from firstdrift.matching.structure.thresholds import ALIKE, LOWEST, OTHER_LAYER, VALUES_COUNT
from firstdrift.matching.tree import SliceTree, indexes_by_name, is_operator, operator_family, pass_of
from firstdrift.model.tensor import Role
from firstdrift.operators.kinds import OpKind
from firstdrift.operators.recognise import kind_of
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
    "work": 2.5,
    "block": 1.5,
}
"""What each likeness counts for, where it is known."""


_SAME_PLACES: Final = {
    "parent": Message.of("matching.reason.parents_correspond"),
    "position": Message.of("matching.reason.same_neighbours"),
    "around": Message.of("matching.reason.same_parent_name"),
    "layer": Message.of("matching.reason.same_layer"),
}
_SAME: Final = {
    "output shapes": SAME_SHAPES[Role.OUTPUT],
    "input shapes": SAME_SHAPES[Role.INPUT],
    "parameter shapes": SAME_SHAPES[Role.PARAMETER],
    "contents": SAME_CONTENTS,
}
"""What is said of two nodes whose places, or which themselves, are the same in a way."""

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
    """Rank the partners that a golden node, or else a target node, may have; the likeliest first.

    Raises:
        SettingsError: not exactly one node is named, or there is no such node.
    """
    if (golden is None) is (target is None):
        raise SettingsError(Message.of("matching.suggestion.one_node"))
    of_golden = golden is not None
    index = _node_named(work, golden if of_golden else target, of_golden=of_golden)
    pairs = _candidates(work, index, of_golden=of_golden)
    joins = possible_joins(work, index, of_golden=of_golden)
    candidates: list[_Weighed | Suggestion] = [*known(map(partial(_weigh, work, _Neighbours(work)), pairs))]
    candidates += map(partial(_fused, work), joins)
    candidates.sort(key=lambda candidate: -candidate.score)
    suggestions = map(partial(_explained, work), candidates[:most])
    return tuple(each for each in suggestions if each.score >= LOWEST and each.reasons)


def _node_named(work: Pairing, name: str | None, *, of_golden: bool) -> int:
    tree, side = (work.golden, "golden") if of_golden else (work.target, "target")
    index = indexes_by_name(tree.nodes).get(name or "")
    if index is None:
        raise SettingsError(Message.of("matching.edit.no_node", side=side_named(side), node=name))
    return index


def _candidates(work: Pairing, index: int, *, of_golden: bool) -> Iterator[tuple[int, int]]:
    """Yield the pairs of a node with each free node of the other side, of the same pass."""
    tree, others = (work.golden, work.target) if of_golden else (work.target, work.golden)
    matched = (work.found if of_golden else work.partners).keys()
    taken = matched - {_doubtful_partner(work, index, of_golden=of_golden)}
    own_pass = pass_of(tree.nodes[index])
    for at, node in enumerate(others.nodes):
        if at not in taken and pass_of(node) == own_pass:
            yield (index, at) if of_golden else (at, index)


def _doubtful_partner(work: Pairing, index: int, *, of_golden: bool) -> int | None:
    """Return what a node is matched with until a person confirms it; None if that is nothing, or is sure."""
    target = work.partners.get(index, -1) if of_golden else index
    match = work.found.get(target)
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
        (*join.reasons, *([_SAME_PLACES["layer"]] if same else [])),
    )


class _Neighbours:
    """Where the matched siblings beside a node lead to."""

    def __init__(self, work: Pairing) -> None:
        found = work.found
        self.golden = _beside(work.golden, work.partners.get)
        self.target = _beside(work.target, lambda index, other: index if index in found else other)

    def likeness(self, pair: tuple[int, int]) -> float:
        """Return the share of the two matched neighbours, before and after, that correspond."""
        first, second = self.golden.get(pair[0], _NOWHERE), self.target.get(pair[1], _NOWHERE)
        return ((first[0] == second[0]) + (first[1] == second[1])) / 2


_NOWHERE: Final = (-1, -1)
"""Beside what holds gradients, which hangs in no tree."""


def _beside(tree: SliceTree, target_of: Callable[[int, int], int]) -> dict[int, tuple[int, int]]:
    """Return for each node the target nodes of the nearest matched siblings; -1 and -2 at the ends."""
    beside: dict[int, tuple[int, int]] = {}
    for siblings in filter(None, (*tree.forward, *tree.backward)):
        before = accumulate(siblings, lambda nearest, index: target_of(index, nearest), initial=-1)
        after = accumulate(siblings[::-1], lambda nearest, index: target_of(index, nearest), initial=-2)
        beside.update(zip(siblings, zip(before, [*after][-2::-1], strict=False), strict=True))
    return beside


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
    likeness = {
        **_likeness_of_nodes(work.evidence, pair),
        **_likeness_of_places(work, around, pair),
        **_likeness_of_work(work, pair),
    }
    known = known_items(likeness)
    values = agreement(first, second, Role.OUTPUT) or 0.0
    if is_operator(first) is not is_operator(second):
        of_themselves = (value for what, value in known.items() if what not in (*_SAME_PLACES, "block"))
        if max(values, *of_themselves, 0.0) < ALIKE:
            return None
    score = weighted_mean(known, _WEIGHTS)
    score += (1 - score) * VALUES_COUNT * values
    return _Weighed(pair, round(score, 4), known, values)


def _explained(work: Pairing, candidate: _Weighed | Suggestion) -> Suggestion:
    """Say what speaks for a pair."""
    if isinstance(candidate, Suggestion):
        return candidate
    pair, match = candidate.pair, work.found.get(candidate.pair[1])
    return Suggestion(
        (work.golden.nodes[pair[0]].name,),
        (work.target.nodes[pair[1]].name,),
        candidate.score,
        tuple(_reasons(work, pair, candidate.known, candidate.values)),
        doubtful=match is not None and match.golden == pair[0],
    )


def _likeness_of_nodes(evidence: Evidence, pair: tuple[int, int]) -> dict[str, float | None]:
    first, second = evidence.golden.nodes[pair[0]], evidence.target.nodes[pair[1]]
    shapes = shape_similarities(first, second)
    names = _bare_name(evidence.golden, pair[0]), _bare_name(evidence.target, pair[1])
    are_operators = is_operator(first), is_operator(second)
    if all(are_operators):
        return {**shapes, "type": name_similarity(*names), "around": _likeness_around(evidence, pair)}
    likeness = {**shapes, "name": name_similarity(*names), "type": class_similarity(first, second)}
    if not any(are_operators):
        likeness["contents"] = evidence.contents_similarity(*pair)
    return likeness


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
        "layer": float(all(layers) and _are_same(*layers)) if any(layers) else None,
    }


def _likeness_of_work(work: Pairing, pair: tuple[int, int]) -> dict[str, float | None]:
    """Compare what two nodes do, and in which part of a layer; nothing where that is not known."""
    kinds = _kind(work.golden, pair[0]), _kind(work.target, pair[1])
    blocks = _block(work.golden, pair[0]), _block(work.target, pair[1])
    return {
        "work": None if OpKind.OTHER in kinds else float(kinds[0] is kinds[1]),
        "block": float(blocks[0] == blocks[1]) if all(blocks) else None,
    }


def _kind(tree: SliceTree, index: int) -> OpKind | None:
    """Return what a node does; None if it holds several that do different things."""
    return kind_of(tree.nodes[index]) if is_op(tree, index) else None


def _block(tree: SliceTree, index: int) -> str:
    """Return which part of a layer a module is, or an operator lies in; "" where that is not known."""
    places = tree.around(index) if is_op(tree, index) else (index, *tree.around(index))
    return next(filter(None, (block_of(tree, at) for at in places)), "")


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
    same = {what for what, value in known.items() if value == 1.0}
    same -= {"around"} if "parent" in same else set()
    if values >= ALIKE:
        yield VALUES_AGREE[Role.OUTPUT]
    yield from (reason for what, reason in _SAME_PLACES.items() if what in same)
    yield from _reasons_of_names(work, pair, known)
    yield from (reason for what, reason in _SAME.items() if what in same)


def _reasons_of_names(work: Pairing, pair: tuple[int, int], known: Mapping[str, float]) -> Iterator[Message]:
    names = _bare_name(work.golden, pair[0]), _bare_name(work.target, pair[1])
    types = work.golden.nodes[pair[0]].type_name, work.target.nodes[pair[1]].type_name
    for what, words in (("name", names), ("type", types)):
        same, alike = _NAMED[what]
        if words[0] == words[1] and what in known:
            yield same
        elif known.get(what, 0.0) >= ALIKE:
            yield Message.of(alike, golden=words[0], target=words[1])
