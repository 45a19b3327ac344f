"""Match what a dump knows by name alone with a dump that recorded modules and their calls.

    plain   layers.0.mlp.down_proj.npy       tree   Module.model.layers.0.mlp.down_proj.Linear.forward.0
            layers_0_mlp_out_1.pt                   Module.model.layers.0.mlp.LlamaMLP.forward.1

A value that bears a module's name is what the module gave; of several calls the first, unless the name ends
in the number of another. All names of a dump may lack, or have, the same words at their beginning. Then the
nodes take pass, class and place from their namesakes, so that what was fused is found beside them; whatever
else has no namesake is left over: without class or inputs, likeness would be a guess.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, product
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.groups import alone, fields_of, grouped
from firstdrift.matching.pairing import SAME_PLACE, Pairing
from firstdrift.matching.plan import Messages, Origin
from firstdrift.matching.structure.sequence_alignment import Pair, common_beginning
from firstdrift.matching.structure.similarity import SAME_NAME
from firstdrift.matching.structure.thresholds import NAMES_LOOKED_AT
from firstdrift.matching.tensors import relate_shapes
from firstdrift.matching.tree import indexes_by_name, is_operator
from firstdrift.model.node import Direction, Node
from firstdrift.model.slice import Slice
from firstdrift.operators.fused import fused_names
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named

_SEPARATORS: Final = re.compile(r"[./_\-]+")
_CALL: Final = re.compile(r"(?P<base>.+?)[._](?:(?:call|forward|fwd)[._]?)?(?P<call>[0-9]{1,9})", re.ASCII)
_MARKED: Final = re.compile(r"(?P<base>.+)[._](?:out|act|activations?|hook|forward|fwd)", re.ASCII)
"""Ways to say that a value is what a module gave, besides "output", which its reader knows."""


_ONLY_CALL: Final = Message.of("matching.reason.only_call")

Shift = tuple[tuple[str, ...], tuple[str, ...]]
"""Words that names of one dump begin with, and those of the other in their place; one of them is empty."""

_NO_SHIFT: Final[Shift] = (), ()
_TOLD_BY_NAMESAKES: Final = ("path", "kind", "type_name", "direction", "call")


class Namesakes(Struct, frozen=True):
    """Two slices as they are to be matched, and what is matched by name already.

    Attributes:
        golden: the golden slice; nodes known by name alone have taken what their namesakes tell.
        target: likewise.
        pairs: indices of the nodes of the same name, with what spoke for each.
        notes: what was assumed, one clause each.
    """

    golden: Slice
    target: Slice
    pairs: tuple[tuple[Pair, Messages], ...] = ()
    notes: Messages = ()

    def match(self, work: Pairing) -> None:
        """Record the pairs of which neither node is matched yet."""
        for pair, reasons in self.pairs if work.rules.exact else ():
            if work.is_free(pair):
                work.add_sure(pair, Origin.EXACT, reasons)


def find_namesakes(golden: Slice, target: Slice) -> Namesakes:
    """Find the nodes of two slices that bear one name, where one of the slices knows little but names.

    Where no value has a namesake the slices stay as they are.
    """
    sides = _resolve(golden, target, "golden"), _resolve(target, golden, "target")
    pairs = [((at, partner), reasons) for at, partner, reasons in sides[0].pairs]
    pairs += [((partner, at), reasons) for at, partner, reasons in sides[1].pairs]
    pairs += [(pair, SAME_PLACE) for pair in _same_operators(golden, target)]
    return Namesakes(sides[0].adopted, sides[1].adopted, tuple(pairs), sides[0].notes + sides[1].notes)


class _Resolved(Struct, frozen=True):
    """What was found of the nodes of one slice: index here, index there, what spoke for it."""

    adopted: Slice
    pairs: tuple[tuple[int, int, Messages], ...] = ()
    notes: Messages = ()


def _is_nameonly(node: Node) -> bool:
    """Tell whether nothing but its name is known of a node: no pass, no class."""
    return not is_operator(node) and node.direction is Direction.NONE and not node.type_name


def _resolve(own: Slice, other: Slice, side: str) -> _Resolved:
    """Find the namesakes of the nodes of a slice, which stays as it is if no value has any."""
    nameonly = [at for at, node in enumerate(own.nodes) if _is_nameonly(node)]
    if not nameonly:
        return _Resolved(own)
    modules = _Modules(other)
    if not modules.calls and _is_spelled_otherwise(own, other):
        modules = _Modules(other, Direction.NONE)
    valued = [at for at in nameonly if own.nodes[at].tensors]
    modules.shift = _common_shift([own.nodes[at].path for at in valued], modules)
    calls = _named_calls(own, modules, valued, nameonly)
    if calls.keys().isdisjoint(valued):
        return _Resolved(own)
    partners = {at: partner for at, (partner, _) in calls.items()}
    return _Resolved(
        adopted=replace(own, nodes=_adopt(own.nodes, other.nodes, partners, set(valued))),
        pairs=tuple((at, *calls[at]) for at in sorted(calls)),
        notes=tuple(_notes(own, modules, side, calls)),
    )


def _named_calls(
    own: Slice, modules: "_Modules", valued: list[int], nameonly: list[int]
) -> dict[int, tuple[int, Messages]]:
    """Return the call that each node is named after, and what spoke for it."""
    calls: dict[int, tuple[int, Messages]] = {}
    taken: set[int] = set()
    # Values first: a folder around them is no rival. A name as it is comes before one that had to be read.
    rounds = product((True,), valued), product((False,), valued), product((True,), nameonly)
    for only_as_it_is, at in chain(*rounds):
        call = None if at in calls else modules.find(own.nodes[at], only_as_it_is=only_as_it_is)
        if call is not None and call[0] not in taken:
            calls[at] = call
            taken.add(call[0])
    return calls


def _is_spelled_otherwise(own: Slice, other: Slice) -> bool:
    """Tell whether names that have no parts stand for those of another slice that knows names alone."""
    names = [node.path for node in own.nodes if node.tensors]
    others = {node.path for node in other.nodes}
    return (
        all(map(_is_nameonly, (*own.nodes, *other.nodes)))
        and "." in "".join(others)
        and "." not in "".join(names)
        and 2 * sum(map(others.__contains__, names)) < len(names)
    )


class _Modules:
    """The forward calls of the modules of a slice, by path; of one that tells no pass, all that it holds."""

    def __init__(self, dumped: Slice, direction: Direction = Direction.FORWARD) -> None:
        calls: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for at, node in enumerate(dumped.nodes):
            if not is_operator(node) and node.direction is direction:
                calls[node.path].setdefault(node.call, at)
        self.calls = dict(calls)
        self.shift: Shift = ((), ())
        self._paths = alone(self.calls, _words)
        self.words = tuple(dict.fromkeys(map(_words, self.calls)))

    def find(self, node: Node, *, only_as_it_is: bool) -> tuple[int, Messages] | None:
        """Return the call that a node is named after, and what spoke for it; None if there is none."""
        readings = () if only_as_it_is else _readings(node)
        for name, call in chain([(node.path, node.call or None)], readings):
            path = self._path(name)
            if path is not None:
                calls = self.calls[path]
                number = min(calls) if call is None else call
                reasons = _reason(node.path, path), self._which(path, number)
                return (calls[number], reasons) if number in calls else None
        return None

    def _which(self, path: str, number: int) -> Message:
        calls = len(self.calls[path])
        return _ONLY_CALL if calls == 1 else Message.of("matching.reason.call", number=number, calls=calls)

    def _path(self, name: str) -> str | None:
        """Return the path that a name is: as it stands, with other words in front, with other separators."""
        if name in self.calls:
            return name
        words = _words(name)
        here, there = self.shift
        shifted = None
        if words[: len(here)] == here and (here or there):
            shifted = self._paths.get((*there, *words[len(here) :]))
        return self._paths.get(words) if words and shifted is None else shifted


def _readings(node: Node) -> Iterator[tuple[str, int | None]]:
    """Yield what a name may be without the marks at its end: the name of a module, and the number of a call.

    A number that is the place of a tensor in what was saved is no call: the first is what a module gave.
    """
    is_place = _is_place_in_file(node)
    numbered = _CALL.fullmatch(node.path)
    if numbered and not (is_place and int(numbered["call"])):
        call = None if is_place else int(numbered["call"])
        yield numbered["base"], call
        if inner := _MARKED.fullmatch(numbered["base"]):
            yield inner["base"], call
    if marked := _MARKED.fullmatch(node.path):
        yield marked["base"], None
        if inner := _CALL.fullmatch(marked["base"]):
            yield inner["base"], int(inner["call"])


def _reason(name: str, path: str) -> Message:
    return SAME_NAME if name == path else Message.of("matching.reason.names", name=name, path=path)


def _is_place_in_file(node: Node) -> bool:
    """Tell whether the end of a name is where a tensor of it lies in its file."""
    entries = (record.location.entry for record in node.tensors if record.location is not None)
    return any(f".{node.path}".endswith(f".{entry}") for entry in entries if entry)


@lru_cache(maxsize=1 << 16)  # each name is asked for several times
def _words(path: str) -> tuple[str, ...]:
    return tuple(filter(None, _SEPARATORS.split(path)))


def _common_shift(paths: Sequence[str], modules: _Modules) -> Shift:
    """Find the words that most names lack, or have in excess, in front; none if that is not clear."""
    unknown = [words for path in paths if path not in modules.calls and (words := _words(path))]
    if 2 * len(unknown) <= len(paths):
        return _NO_SHIFT
    every = max(1, len(unknown) // NAMES_LOOKED_AT)
    looked_at = unknown[::every][:NAMES_LOOKED_AT]
    endings = grouped(filter(None, modules.words), lambda words: words[-1])
    votes = Counter(chain.from_iterable(_shifts(words, endings) for words in looked_at))
    ranks = {shift: (count, -len(shift[0]) - len(shift[1])) for shift, count in votes.items()}
    best = max(ranks, key=ranks.__getitem__, default=_NO_SHIFT)
    is_tie = list(ranks.values()).count(ranks.get(best, (0, 0))) > 1
    return _NO_SHIFT if is_tie or 2 * votes[best] < len(looked_at) else best


def _shifts(words: tuple[str, ...], endings: Mapping[str, list[tuple[str, ...]]]) -> set[Shift]:
    """Return the shifts by which a name, or what stands before its mark, would be one that ends alike."""
    read = (words[:end] for end in range(len(words), max(0, len(words) - 3), -1))
    shifts = {_shift(name, other) for name in read for other in endings.get(name[-1], ())}
    return {shift for shift in shifts if () in shift}


def _shift(words: tuple[str, ...], other: tuple[str, ...]) -> Shift:
    same = common_beginning(reversed(words), reversed(other))
    return words[: len(words) - same], other[: len(other) - same]


def _adopt(
    nodes: tuple[Node, ...], others: tuple[Node, ...], partners: dict[int, int], valued: set[int]
) -> tuple[Node, ...]:
    """Give nodes pass, class and place of their namesakes; those without hang at the nearest that has one."""
    numbers, by_name = indexes_by_name(nodes), indexes_by_name(others)
    here = {partner: nodes[at].name for at, partner in partners.items()}
    own = {at: nodes[at].name for at in partners}
    adopted = list(nodes)
    for at, partner in partners.items():
        parents = map(here.get, _around(by_name, others, partner))
        told = fields_of(others[partner], _TOLD_BY_NAMESAKES)
        adopted[at] = replace(nodes[at], parent=next(filter(None, parents), None), **told)
    for at in valued - partners.keys():
        if nodes[at].path.rpartition(".")[2].lower() in fused_names():
            parents = map(own.get, _around(numbers, nodes, at))
            parent = next(filter(None, parents), None)
            adopted[at] = replace(nodes[at], direction=Direction.FORWARD, parent=parent)
    return tuple(adopted)


def _around(numbers: dict[str, int], nodes: tuple[Node, ...], at: int) -> Iterator[int]:
    """Yield the nodes around a node, innermost first."""
    seen = {at}
    while (parent := nodes[at].parent) is not None and (at := numbers.get(parent, at)) not in seen:
        seen.add(at)
        yield at


def _notes(own: Slice, modules: _Modules, side: str, named: Iterable[int]) -> Iterator[Message]:
    here, there = modules.shift
    if there:
        yield Message.of("matching.note.prefix_absent", side=side_named(side), prefix=".".join(there))
    elif here:
        yield Message.of("matching.note.prefix_more", side=side_named(side), prefix=".".join(here))
    valued = (own.nodes[at].path for at in named if own.nodes[at].tensors)
    several = sum(len(modules.calls.get(path, ())) > 1 for path in valued)
    if several:
        yield Message.of("matching.note.no_call_numbers", side=side_named(side), nodes=several)


def _same_operators(golden: Slice, target: Slice) -> Iterator[Pair]:
    """Yield the operator calls of one name, if a dump does not tell in which modules and when they ran.

    Call numbers shift where an operator was inserted: they are trusted where both sides called an operator
    equally often, each time with tensors of the same shapes.
    """
    if golden.tells_order and target.tells_order:
        return
    sides = _operators(golden), _operators(target)
    for key, first in sides[0].items():
        second = sides[1].get(key, {})
        pairs = [(first[call], second.get(call, -1)) for call in first]
        if first.keys() == second.keys() and all(
            _have_same_shapes(golden.nodes[at], target.nodes[partner]) for at, partner in pairs
        ):
            yield from pairs


def _operators(dumped: Slice) -> dict[tuple[str, Direction], dict[int, int]]:
    found: defaultdict[tuple[str, Direction], dict[int, int]] = defaultdict(dict)
    for at, node in enumerate(dumped.nodes):
        if is_operator(node) and any(record.is_tensor for record in node.tensors):
            found[node.path, node.direction].setdefault(node.call, at)
    return found


def _have_same_shapes(golden: Node, target: Node) -> bool:
    known = {record.label: record.shape for record in golden.tensors if record.is_tensor}
    return all(
        relate_shapes(known[record.label], record.shape)[1] is None
        for record in target.tensors
        if record.is_tensor and record.label in known
    )
