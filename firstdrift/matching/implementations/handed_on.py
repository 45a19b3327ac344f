"""What one run alone records, and hands on as it is: the other run has it where that is given.

golden   rotary_emb ── cosine, sine ─▶  self_attn
target     (buffers, no module)         attn(x, cosine, sine)

What `rotary_emb` gives is what `self_attn` is given, so it is compared with what `attn` is given. Where what
has a partner gives it too (what a container holds, what a dropout was given), that is compared instead.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from firstdrift.matching.cross_framework.thresholds import INFERRED
from firstdrift.matching.fused.joined_tensors import golden_first
from firstdrift.matching.implementations.views import floating, with_steps
from firstdrift.matching.pairing import Pairing
from firstdrift.matching.plan import NodeMatch, Origin, TensorPair
from firstdrift.matching.structure.statistics_similarity import value_key
from firstdrift.matching.tensors import TensorPairing, left_over, merge
from firstdrift.matching.tree import is_operator
from firstdrift.model.node import Direction, Node
from firstdrift.model.tensor import Role, TensorRecord, ViewStep
from firstdrift.wording.message import Message

_Taken: TypeAlias = tuple[TensorRecord, TensorPair]
"""What a node is given, and the pair that compares it."""


def add_handed_on(
    work: Pairing, matches: list[NodeMatch], tensors: TensorPairing
) -> tuple[frozenset[int], frozenset[int]]:
    """Add to a plan the modules without partner whose values others are given; return which they are.

    Nothing is added if the two dumps are of one implementation.
    """
    if not work.are_other:
        return frozenset(), frozenset()
    pairs = tuple(tensors.pairs)
    golden = _add(work, matches, tensors, pairs, of_target=False)
    return golden, _add(work, matches, tensors, pairs, of_target=True)


def _add(
    work: Pairing,
    matches: list[NodeMatch],
    tensors: TensorPairing,
    pairs: Sequence[TensorPair],
    *,
    of_target: bool,
) -> frozenset[int]:
    nodes = (work.golden, work.target)[of_target].nodes
    left = (tensors.unmatched_golden, tensors.unmatched_target)[of_target]
    taken = _taken(pairs, of_target=of_target)
    added = []
    for index, given in _handing_on(nodes, (work.partners, work.found)[of_target], taken):
        row, node = len(matches), nodes[index]
        tensors.pairs += [_handed_on(*one, row, node, of_target=of_target) for one in given]
        left += left_over(row, [node], {(node.name, record.label) for record, _ in given})
        taker = (given[0][1].golden_node, given[0][1].target_node)[of_target]
        reason = Message.of("matching.reason.input_of", node=taker)
        sides = golden_first((node.name,), (), own_is_golden=not of_target)
        matches.append(NodeMatch(*sides, Origin.STRUCTURE, INFERRED, reasons=(reason,)))
        added.append(index)
    return frozenset(added)


def _handing_on(
    nodes: Sequence[Node], matched: Collection[int], taken: Mapping[Hashable, _Taken]
) -> Iterator[tuple[int, list[tuple[TensorRecord, TensorPair]]]]:
    """Yield the modules without partner that alone made what is taken, each output with who takes it."""
    made = {value_key(record) for index in matched for record in nodes[index].records(Role.OUTPUT)}
    alone = {key: own for key, own in taken.items() if key not in made}
    for index in range(len(nodes)):
        given = list(_given(nodes[index], alone)) if index not in matched else []
        if given:
            yield index, given


def _given(node: Node, taken: Mapping[Hashable, _Taken]) -> Iterator[tuple[TensorRecord, TensorPair]]:
    """Yield what a module of the forward pass gives that others take, laid out as they take it."""
    if is_operator(node) or node.direction is Direction.BACKWARD:
        return
    records = floating(node.records(Role.OUTPUT))
    found = [(record, *taken[key]) for record in records if (key := value_key(record)) in taken]
    alike = (one for one in found if _lies_as(*one[:2]))
    yield from ((with_steps(record, *_steps(own)), pair) for record, own, pair in alike)


def _lies_as(record: TensorRecord, own: TensorRecord) -> bool:
    """Tell whether what is given lies as what is taken: equal statistics do not say so.

    What merges patches is given the elements of a block in another order.
    """
    first, second = record.shape or (), own.shape or ()
    return first == second or (not _steps(own) and merge(first, second))


def _steps(record: TensorRecord) -> tuple[ViewStep, ...]:
    return () if record.location is None else record.location.view


def _taken(pairs: Iterable[TensorPair], *, of_target: bool) -> dict[Hashable, _Taken]:
    """Return by what tells a value the first pair of inputs that has it, and is compared as it lies."""
    taken: dict[Hashable, _Taken] = {}
    for pair in pairs:
        own = (pair.golden, pair.target)[of_target]
        key = value_key(own)
        if own.role is Role.INPUT and pair.incomparable is None and not pair.is_joined and key is not None:
            taken.setdefault(key, (own, pair))
    return taken


def _handed_on(
    record: TensorRecord, pair: TensorPair, row: int, node: Node, *, of_target: bool
) -> TensorPair:
    """Return what a node gives, against what the other run is given in its place."""
    if of_target:
        return replace(pair, match=row, target_node=node.name, target=record)
    return replace(pair, match=row, golden_node=node.name, golden=record)
