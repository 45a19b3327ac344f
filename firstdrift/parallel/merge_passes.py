"""Lay passes of one process one after the other: a prompt in chunks, or prompt and generated tokens.

pass 0   ids [4]   q_proj.output.0 [4, 64]   ┐  ids [9]   q_proj.output.0 [9, 64]
pass 1   ids [5]   q_proj.output.0 [5, 64]   ┘  a row for each token, in the order in which they were given

Weights are those of the first pass. Nodes and tensors are those of any pass, each where it ran. What has no
row for each token, as a cache or a mask, cannot be laid so.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import chain
from math import prod
from typing import Final

from msgspec.structs import replace

from firstdrift.dumps.storage.views import SHAPED
from firstdrift.groups import gathered, known
from firstdrift.model.node import Node
from firstdrift.model.slice import Slice, SliceListing
from firstdrift.model.tensor import Role, TensorRecord, ViewStep, join_statistics, shared_location
from firstdrift.parallel.token_ids import behind_rows
from firstdrift.wording.message import Message

_NO_ROWS: Final = Message.of("dumps.passes.no_rows")
_NOT_IN_ALL: Final = Message.of("dumps.passes.not_in_all")


def merge_passes(listing: SliceListing, passes: Sequence[Slice]) -> Slice:
    """Make one slice of passes, whose nodes go by their names.

    Args:
        listing: the merged slice.
        passes: in the order of `listing.parts`, and of the shapes of their token ids, `listing.rows`.
    """
    by_name = [{node.name: node for node in each.nodes} for each in passes]
    names = reduce(_with_names, by_name, list[str]())
    held = ([nodes.get(name) for nodes in by_name] for name in names)
    nodes = tuple(replace(_merged(each, listing.rows), order=order) for order, each in enumerate(held))
    problems = tuple(problem for each in passes for problem in each.problems)
    return Slice(listing, nodes, passes[0].order_origin, problems)


def _with_names(names: list[str], others: Iterable[str]) -> list[str]:
    """Return names with those that only others have, each behind the one that ran before it."""
    there, last = set(names), ""
    behind: defaultdict[str, list[str]] = defaultdict(list)
    for name in others:
        if name in there:
            last = name
        else:
            behind[last].append(name)
    return list(chain(behind[""], *((name, *behind.get(name, ())) for name in names)))


def _merged(held: Sequence[Node | None], rows: Sequence[tuple[int, ...]]) -> Node:
    there = known(held)
    by_label = [{record.label: record for record in node.tensors} for node in there]
    columns = gathered(chain.from_iterable(records.items() for records in by_label))
    return replace(there[0], tensors=tuple(_laid(column, rows) for column in columns.values()))


def _laid(records: Sequence[TensorRecord], rows: Sequence[tuple[int, ...]]) -> TensorRecord:
    """Lay what the passes have of one tensor one after the other."""
    first = records[0]
    if not first.is_tensor or first.role not in (Role.INPUT, Role.OUTPUT):
        return first
    if len(records) < len(rows):
        return _not_in_all(first)
    parts = [*_flat(records, rows)]
    shapes = [part.shape or () for part in parts]
    kinds = {(part.dtype, shape[1:]) for part, shape in zip(parts, shapes, strict=True)}
    if not all(shapes) or len(kinds) > 1:
        return replace(first, problem=first.problem or _NO_ROWS)
    locations = known(part.location for part in parts)
    return replace(
        first,
        shape=(sum(shape[0] for shape in shapes), *shapes[0][1:]),
        statistics=join_statistics(parts),
        digest=None,
        location=shared_location(locations, 0) if len(locations) == len(parts) else None,
        problem=next(iter(known(part.problem for part in parts)), None),
    )


def _flat(records: Iterable[TensorRecord], rows: Iterable[tuple[int, ...]]) -> Iterator[TensorRecord]:
    """Yield tensors with flat rows; as they are those that have fewer, as logits of last tokens."""
    for record, given in zip(records, rows, strict=True):
        behind = behind_rows(record.shape, given)
        if behind is None or len(given) == 1:
            yield record if behind is not None or len(record.shape or ()) > 1 else replace(record, shape=None)
            continue
        shape = prod(given), *behind
        place = record.location
        if place is not None:
            place = replace(place, view=(*place.view, ViewStep(SHAPED, shape)))
        yield replace(record, shape=shape, location=place)


def _not_in_all(record: TensorRecord) -> TensorRecord:
    is_cut = record.is_tensor and record.role in (Role.INPUT, Role.OUTPUT)
    return replace(record, problem=record.problem or _NOT_IN_ALL) if is_cut else record
