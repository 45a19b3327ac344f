"""Pair the children of two matched nodes.

    golden   q_proj  mul.5  matmul  softmax  matmul  o_proj
               ║       ║                       ~       ║
    target   q_proj  mul.4            scaled_dot     o_proj

First what has the same name, then operators whose outputs agree and agree with nothing else; what is
left between two such pairs is aligned. What corresponds to nothing stays unmatched.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from itertools import groupby, product
from typing import Final, TypeAlias

from msgspec import Struct

from firstdrift.groups import firsts, grouped, positions, seconds
from firstdrift.matching.fused.find_fused import join_siblings
from firstdrift.matching.pairing import Pairing
from firstdrift.matching.plan import Origin
from firstdrift.matching.structure.order_of_calls import calls_that_give_the_same, in_order_of_calls
from firstdrift.matching.structure.sequence_alignment import (
    Pair,
    best_alignment,
    common_subsequence,
    gaps_between,
    longest_chain,
    unique_pairs,
)
from firstdrift.matching.structure.similarity import SAME_NAME, shape_key
from firstdrift.matching.structure.statistics_similarity import fingerprint, have_equal_outputs
from firstdrift.matching.structure.thresholds import (
    CONFIDENT,
    CONTIGUOUS,
    DOUBTFUL,
    FUZZY,
    LARGEST_TABLE,
    MOST_RIVALS,
    SAME_NAME_SCORE,
    TIE,
    TWINS,
    UNSURE,
)
from firstdrift.matching.tree import (
    SliceTree,
    are_of_one_family,
    is_operator,
    operator_family,
    wrapped_modules,
)
from firstdrift.model.node import Direction, Node
from firstdrift.model.tensor import Role
from firstdrift.wording.message import Message

Words: TypeAlias = tuple[str, ...]
"""The strings that a call was given."""


_ONLY_OUTPUTS_THAT_AGREE: Final = Message.of("matching.reason.only_outputs_that_agree")
_ARGUMENTS_UNLIKE: Final = Message.of("matching.reason.arguments_unlike")
_SAME_PATH: Final = Message.of("matching.reason.same_path")


def pair_siblings(work: Pairing, golden: list[int], target: list[int], *, exact: bool) -> None:
    """Pair two lists of siblings in execution order; those already matched serve as anchors.

    `exact` says whether the nodes around them have the same path.
    """
    rules = work.rules
    if not (work.free_golden(golden) and work.free_target(target)):
        return
    are_in_order = _are_called_alike(work, golden, target)
    if not are_in_order:
        golden, target = in_order_of_calls(work.golden, golden), in_order_of_calls(work.target, target)
    if rules.exact and _pair_in_place(work, golden, target, exact=exact):
        return
    if rules.exact and rules.structure and not are_in_order:
        _pair_calls_that_give_the_same(work, golden, target)
    if rules.fuzzy:
        _pair_gaps(work, golden, target, partial(_pair_by_path, work))
    if rules.structure and not (exact and rules.exact):
        _pair_by_name(work, golden, target, exact=False)
    _align_gaps(work, golden, target, exact=exact)


def _pair_calls_that_give_the_same(work: Pairing, golden: list[int], target: list[int]) -> None:
    pairs = calls_that_give_the_same((work.golden, work.target), golden, target)
    for pair in filter(work.is_free, pairs):
        work.add_same_place(pair)


def _align_gaps(work: Pairing, golden: list[int], target: list[int], *, exact: bool) -> None:
    """Align what is left between matched siblings; by structure, what is fused or wrapped as well."""
    align = _Siblings(work, golden, target, exact=exact).pair_gap
    if not work.rules.structure:
        _pair_gaps(work, golden, target, align)
        return
    _pair_gaps(work, golden, target, partial(join_siblings, work))
    _pair_gaps(work, golden, target, align)
    if not work.are_other:
        _pair_gaps(work, golden, target, partial(_look_inside, work))


def _are_called_alike(work: Pairing, golden: list[int], target: list[int]) -> bool:
    """Tell whether two lists hold the same calls in the same order."""
    if len(golden) != len(target):
        return False
    nodes = zip(work.golden.nodes_at(golden), work.target.nodes_at(target), strict=True)
    return all((one.type_name, one.call) == (other.type_name, other.call) for one, other in nodes)


def _pair_gaps(
    work: Pairing, golden: list[int], target: list[int], pair: Callable[[list[int], list[int]], None]
) -> None:
    for left, right in _gaps(work, golden, target):
        pair(left, right)


def _gaps(work: Pairing, golden: list[int], target: list[int]) -> list[tuple[list[int], list[int]]]:
    """Return the runs of siblings between those already matched, where both sides have some left.

    Of what was fused, the first part marks the place: what a part alone is needed for may come before the
    other parts, and always comes after the whole (`gate_proj act up_proj`, `gate_up_proj act`).
    """
    places = {work.partners.get(index): at for at, index in reversed(list(enumerate(golden)))}
    chain = longest_chain((places[index], at) for at, index in enumerate(target) if index in places)
    gaps = [
        (work.free_golden(golden[left.start : left.stop]), work.free_target(target[right.start : right.stop]))
        for left, right in gaps_between(chain, len(golden), len(target))
    ]
    return list(filter(all, gaps))


def _pair_in_place(work: Pairing, golden: list[int], target: list[int], *, exact: bool) -> bool:
    """Pair lists that are equal, else what has the same path; tell whether nothing is left to be paired."""
    if not exact:
        return _pair_equal_lists(work, golden, target, exact=False)
    _pair_by_words(work, golden, target)
    is_done = _pair_equal_lists(work, golden, target, exact=True)
    if not is_done:
        _pair_by_name(work, golden, target, exact=True)
    return is_done


def _pair_equal_lists(work: Pairing, golden: list[int], target: list[int], *, exact: bool) -> bool:
    """Pair two lists of the same names, node by node; this is the path that equal trees take."""
    if _names(work.golden, golden, exact=exact) != _names(work.target, target, exact=exact):
        return False
    pairs = list(zip(golden, target, strict=True))
    if not all(map(work.is_free, pairs)):
        return False
    for pair in pairs:
        if exact or is_operator(work.golden.nodes[pair[0]]):
            work.add_same_place(pair)
        elif work.rules.structure:
            work.add_weighed(pair, SAME_NAME_SCORE)
    return True


def _names(tree: SliceTree, siblings: list[int], *, exact: bool) -> list[Hashable]:
    """Name siblings: operators by their operator, modules by path and call.

    Where the nodes around them are not the same by name, calls are counted anew.
    """
    names: list[Hashable] = []
    seen: Counter[str] = Counter()
    for index in siblings:
        node = tree.nodes[index]
        if is_operator(node):
            names.append(node.type_name)
        elif exact:
            names.append((node.path, node.call, node.direction))
        else:
            name = tree.relative_name(index)
            names.append((name, seen[name], node.direction))
            seen[name] += 1
    return names


def _pair_by_words(work: Pairing, golden: list[int], target: list[int]) -> None:
    """Pair calls of one module that ran in another order, where the words they were given tell them apart.

    A rotary embedding is called once for "full_attention" and once for "sliding_attention", in the order of a
    Python set, which is another one in each process.
    """
    calls = _calls_by_words(work.golden, golden), _calls_by_words(work.target, target)
    for path, others in calls[1].items():
        known = calls[0].get(path, {})
        if known.keys() != others.keys() or list(known) == list(others):
            continue
        for words, index in others.items():
            if work.is_free(pair := (known[words], index)):
                reasons = (SAME_NAME, Message.of("matching.reason.called_with", words=words))
                work.add_sure(pair, Origin.EXACT, reasons)


def _calls_by_words(tree: SliceTree, siblings: list[int]) -> dict[str, dict[Words, int]]:
    """Return the forward calls of each module that was called several times, each time with other words."""
    modules = tree.modules(siblings)
    forward = (index for index in modules if tree.nodes[index].direction is Direction.FORWARD)
    calls = grouped(forward, lambda index: tree.nodes[index].path)
    several = {path: indexes for path, indexes in calls.items() if len(indexes) > 1}
    by_words = {path: {_words(tree.nodes[at]): at for at in indexes} for path, indexes in several.items()}
    return {path: known for path, known in by_words.items() if len(known) == len(several[path])}


def _words(node: Node) -> Words:
    """Return the strings that a call was given, in order."""
    return tuple(record.scalar or "" for record in node.records(Role.INPUT) if record.dtype == "str")


def _pair_by_name(work: Pairing, golden: list[int], target: list[int], *, exact: bool) -> None:
    """Pair modules of the same path and call; if not `exact`, those of the same name that fit."""
    modules = (work.golden.modules(work.free_golden(golden)), work.target.modules(work.free_target(target)))
    names = _names(work.golden, modules[0], exact=exact), _names(work.target, modules[1], exact=exact)
    for left, right in unique_pairs(*names):
        pair = modules[0][left], modules[1][right]
        if not work.may_be_one(pair):
            continue
        if exact:
            work.add_same_place(pair)
        elif work.evidence.score(*pair, neighbours=1) >= CONFIDENT:
            work.add_weighed(pair, SAME_NAME_SCORE)


class _LeftOver(Struct, frozen=True):
    """The siblings of a gap that are in no pair, by their places."""

    siblings: list[int]
    kinds: list[str]
    taken: set[int]

    def of_kind(self, kind: str, before: int, after: int) -> list[int]:
        """Return the first of those of one operator between two places."""
        between = range(before + 1, after)
        places = [at for at in between if at not in self.taken and self.kinds[at] == kind]
        return [self.siblings[at] for at in places[:MOST_RIVALS]]


class _Siblings:
    """Two lists of siblings whose gaps are to be paired."""

    def __init__(self, work: Pairing, golden: list[int], target: list[int], *, exact: bool) -> None:
        self._work = work
        self._exact = exact
        self._beside = _beside(work.golden, golden), _beside(work.target, target)
        self._anchors = dict(self._agreeing_pairs(golden, target)) if work.rules.structure else {}

    def pair_gap(self, golden: list[int], target: list[int]) -> None:
        """Pair what truly corresponds of two runs of siblings that are not matched yet."""
        self._settle(golden, target, self._align(golden, target))

    def _agreeing_pairs(self, golden: list[int], target: list[int]) -> Iterator[Pair]:
        """Yield the siblings whose outputs agree, and agree with those of no other sibling."""
        nodes = self._work.golden.nodes_at(golden), self._work.target.nodes_at(target)
        for left, right in unique_pairs(*(list(map(fingerprint, side)) for side in nodes)):
            pair = golden[left], target[right]
            if self._score(pair) >= CONFIDENT or _are_twins(nodes[0][left], nodes[1][right]):
                yield pair

    def _align(self, golden: list[int], target: list[int]) -> list[Pair]:
        places = positions(target)
        partners = ((at, self._anchors.get(index)) for at, index in enumerate(golden))
        anchors = longest_chain((at, places[partner]) for at, partner in partners if partner in places)
        return _fill(anchors, golden, target, self._align_between)

    def _align_between(self, golden: list[int], target: list[int]) -> list[Pair]:
        operators = _operators(self._work.golden, golden), _operators(self._work.target, target)
        if operators[0] == operators[1] or not self._work.rules.structure:
            return common_subsequence(*operators)
        if len(golden) * len(target) <= LARGEST_TABLE:
            return self._weigh(golden, target)
        common = self._align_by_shape(golden, target)
        return _fill(_undisturbed(common, len(golden), len(target)), golden, target, self._weigh)

    def _align_by_shape(self, golden: list[int], target: list[int]) -> list[Pair]:
        nodes = self._work.golden.nodes_at(golden), self._work.target.nodes_at(target)
        return common_subsequence(*(list(map(shape_key, side)) for side in nodes))

    def _weigh(self, golden: list[int], target: list[int]) -> list[Pair]:
        """Align two runs by all that speaks for each pair."""
        if len(golden) * len(target) > LARGEST_TABLE:
            return self._align_by_shape(golden, target)

        def gain(left: int, right: int) -> float:
            return self._score((golden[left], target[right])) - DOUBTFUL

        return best_alignment(len(golden), len(target), gain, CONTIGUOUS)

    def _score(self, pair: Pair, *, contested: bool = True) -> float:
        if not self._work.may_be_weighed(pair):
            return 0.0
        beside = self._beside[0][pair[0]], self._beside[1][pair[1]]
        neighbours = (beside[0][0] == beside[1][0]) + (beside[0][1] == beside[1][1])
        return self._work.evidence.score(*pair, neighbours, contested=contested)

    def _settle(self, golden: list[int], target: list[int], pairs: list[Pair]) -> None:
        """Record aligned pairs, each with how sure it is.

        Rivals of a pair are siblings that were left over and could have stood in its place: those of the
        same operator between the pairs of other operators before and after it.
        """
        kinds = _kinds(self._work.golden, golden)
        left_over = (
            _LeftOver(golden, kinds, set(firsts(pairs))),
            _LeftOver(target, _kinds(self._work.target, target), set(seconds(pairs))),
        )
        bounds = [(-1, -1), *pairs, (len(golden), len(target))]
        done = 0
        for kind, group in groupby(pairs, key=lambda pair: kinds[pair[0]]):
            run = list(group)
            between = zip(bounds[done], bounds[done + len(run) + 1], strict=True)
            done += len(run)
            rivals = [side.of_kind(kind, *ends) for side, ends in zip(left_over, between, strict=True)]
            for left, right in run:
                pair = golden[left], target[right]
                self._settle_pair(pair, [*product(rivals[0], pair[1:]), *product(pair[:1], rivals[1])])

    def _settle_pair(self, pair: Pair, rivals: list[Pair]) -> None:
        work = self._work
        golden, target = work.golden.nodes[pair[0]], work.target.nodes[pair[1]]
        if is_operator(golden) and not are_of_one_family(golden, target):
            work.add_weighed(pair, TWINS, _ONLY_OUTPUTS_THAT_AGREE)
            return
        score = self._score(pair, contested=bool(rivals))
        if score >= DOUBTFUL:
            self._add(pair, score, rivals)

    def _add(self, pair: Pair, score: float, rivals: list[Pair]) -> None:
        work = self._work
        golden, target = work.golden.nodes[pair[0]], work.target.nodes[pair[1]]
        unlike = not self._exact and work.evidence.is_contradicted(*pair)
        is_same_operator = is_operator(golden) and golden.type_name == target.type_name
        if work.rules.exact and is_same_operator and not (rivals or unlike):
            work.add_same_place(pair)
        elif work.rules.structure:
            remarks = [*self._ties(pair, rivals, score), *[_ARGUMENTS_UNLIKE] * unlike]
            by_name_alone = bool(rivals) and not (golden.tensors and target.tensors)
            work.add_weighed(pair, score, *remarks, doubtful=by_name_alone or bool(remarks))

    def _ties(self, pair: Pair, rivals: list[Pair], score: float) -> Iterator[Message]:
        """Name the first rival that a pair is no better than: the node in which it differs from the pair."""
        for golden, target in rivals:
            if self._score((golden, target)) > score - TIE:
                nodes = self._work.golden.nodes, self._work.target.nodes
                rival = nodes[0][golden] if golden != pair[0] else nodes[1][target]
                yield Message.of("matching.reason.rival", node=rival.name)
                return


def _look_inside(work: Pairing, golden: list[int], target: list[int]) -> None:
    """Pair siblings that are left over with the children of another that wraps their partners."""
    for wrapper in target:
        inside = list(wrapped_modules(work.target, wrapper))
        if inside and _any_fits(work, free := work.free_golden(golden), inside):
            pair_siblings(work, free, work.target.forward[wrapper], exact=False)
    for wrapper in work.free_golden(golden):
        inside = list(wrapped_modules(work.golden, wrapper))
        if inside and _any_fits(work, inside, free := work.free_target(target)):
            pair_siblings(work, work.golden.forward[wrapper], free, exact=False)


def _any_fits(work: Pairing, golden: list[int], target: list[int]) -> bool:
    return any(work.evidence.score(*pair, neighbours=1) >= CONFIDENT for pair in product(golden, target))


def _are_twins(golden: Node, target: Node) -> bool:
    """Tell whether two forward operators, whatever their names, give equal outputs."""
    forward = golden.direction is target.direction is Direction.FORWARD
    return forward and is_operator(golden) and is_operator(target) and have_equal_outputs(golden, target)


def _pair_by_path(work: Pairing, golden: list[int], target: list[int]) -> None:
    nodes = work.golden.nodes_at(golden), work.target.nodes_at(target)
    paths = ([(node.kind, node.path) for node in side] for side in nodes)
    for left, right in common_subsequence(*paths):
        work.add_sure((golden[left], target[right]), Origin.FUZZY, (_SAME_PATH,), FUZZY)


def _fill(
    chain: list[Pair],
    golden: list[int],
    target: list[int],
    align: Callable[[list[int], list[int]], list[Pair]],
) -> list[Pair]:
    """Align what lies between the pairs of a chain; return both, in order."""
    pairs = list(chain)
    for left, right in gaps_between(chain, len(golden), len(target)):
        between = align(golden[left.start : left.stop], target[right.start : right.stop])
        pairs += [(left.start + at, right.start + other) for at, other in between]
    return sorted(pairs)


def _undisturbed(pairs: list[Pair], golden: int, target: int) -> list[Pair]:
    """Return the pairs that lie in the middle of an unbroken run, `UNSURE` pairs from its ends or more.

    The ends of the sequences do not count as ends of a run.
    """
    before = [(at, at) for at in range(-UNSURE, 0)]
    after = [(golden + at, target + at) for at in range(UNSURE)]
    padded = [*before, *pairs, *after]
    width = 2 * UNSURE
    return [
        pair
        for pair, first, last in zip(pairs, padded, padded[width:], strict=False)
        if last[0] - first[0] == width == last[1] - first[1]
    ]


def _beside(tree: SliceTree, siblings: list[int]) -> dict[int, tuple[str, str]]:
    """Return what stands before and after each sibling: an operator, a module, or nothing."""
    nodes = tree.nodes_at(siblings)
    kinds = [operator_family(node.type_name) if is_operator(node) else "module" for node in nodes]
    return dict(zip(siblings, zip(["start", *kinds], [*kinds[1:], "end"], strict=False), strict=False))


def _kinds(tree: SliceTree, siblings: list[int]) -> list[str]:
    """Name siblings by operator; all modules are of one kind."""
    return [node.type_name if is_operator(node) else "" for node in tree.nodes_at(siblings)]


def _operators(tree: SliceTree, siblings: list[int]) -> list[Hashable]:
    """Name siblings by operator; a module is like nothing else."""
    return [kind or (id(tree), index) for kind, index in zip(_kinds(tree, siblings), siblings, strict=True)]
