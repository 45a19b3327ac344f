"""Pair tensors in the views that a person said they are seen in.

- target: [decoder.fc2.RowParallelLinear.forward.0.output.0, decoder.fc2.RowParallelLinear.forward.0.output.1]
  golden: model.down_proj.Linear.forward.0.output.0
  view: [summed, target swapped 0 1]
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from firstdrift.dumps.storage.views import FIRST, LAST, PLUS, ROWS
from firstdrift.groups import known
from firstdrift.matching.implementations.views import Seen, seen, with_steps
from firstdrift.matching.manual.mapping import VIEW
from firstdrift.matching.pairing import SaidView
from firstdrift.matching.plan import Joining, TensorPair
from firstdrift.matching.tensors import BY_MAPPING, TensorPairing, shapes_differ, without
from firstdrift.model.node import Node
from firstdrift.model.tensor import TensorRecord, ViewStep, shared_location
from firstdrift.wording.message import Message


def pair_said_views(
    tensors: TensorPairing, row: int, nodes: tuple[Node, Node], said: Iterable[SaidView]
) -> tuple[Node, Node]:
    """Pair tensors of two nodes as was said; return the nodes with what is left of them."""
    golden, target = nodes
    for one in said:
        sides = _tensors(golden, one.golden), _tensors(target, one.target)
        if len(sides[0]) == len(one.golden) and len(sides[1]) == len(one.target):
            golden, target = without(golden, one.golden), without(target, one.target)
            tensors.pairs.append(_pair(row, nodes, sides, one.view))
    return golden, target


def _tensors(node: Node, labels: Iterable[str]) -> list[TensorRecord]:
    held = {record.label: record for record in node.tensors}
    return known(map(held.get, labels))


def _pair(
    row: int, nodes: tuple[Node, Node], sides: tuple[Sequence[TensorRecord], ...], view: tuple[str, ...]
) -> TensorPair:
    first, second = map(_added_up, sides)
    golden, target = _in_view(first, "golden", view), _in_view(second, "target", view)
    found: Seen | None = Seen(golden, target, (Message.of("matching.transform.said", view=view),))
    if not view:
        found = seen(golden, target, of_vocabulary=True)
    names = nodes[0].name, nodes[1].name
    if found is None:
        why = shapes_differ(golden.shape or (), target.shape or ())
        return TensorPair(row, *names, golden, target, (BY_MAPPING,), incomparable=why)
    pair = TensorPair(row, *names, found.golden, found.target, (BY_MAPPING, *found.transform))
    if Joining.REARRANGED in view:
        return replace(pair, golden_parts=(found.golden,), joining=Joining.REARRANGED)
    return replace(pair, joining=Joining.VIEW)


def _added_up(records: Sequence[TensorRecord]) -> TensorRecord:
    """Return the only tensor, or the sum of two where the values of both were saved: a state, or a bias."""
    first, *others = records
    locations = known(record.location for record in records)
    if not others or len(locations) < len(records):
        return first
    if others[0].shape == first.shape:
        return replace(first, statistics=None, digest=None, location=shared_location(locations, None))
    return replace(with_steps(first, ViewStep(PLUS, other=(locations[1],))), statistics=None)


def _in_view(record: TensorRecord, side: str, view: Iterable[str]) -> TensorRecord:
    matches = map(VIEW.fullmatch, view)
    steps = [
        ViewStep(match["step"], tuple(map(int, match["numbers"].split())))
        for match in matches
        if match is not None and match["side"] == side
    ]
    seen_so = with_steps(record, *steps)
    if {step.name for step in steps}.isdisjoint((FIRST, LAST, ROWS)):
        return seen_so
    return replace(seen_so, statistics=None, shape=None)
