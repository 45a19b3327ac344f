"""The nodes of indexed slices, with their tensors: some hundreds in a block."""

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from operator import attrgetter
from typing import TypeAlias
from zlib import crc32

from msgspec import Struct
from msgspec.structs import asdict, replace
from sqlalchemy import select
from sqlalchemy.orm import Session

from firstdrift.catalogue.blocks import Reader, contents, contents_at, split
from firstdrift.catalogue.bulk import insert_in_batches
from firstdrift.catalogue.packing import Block, pack, unpack, unpack_fields
from firstdrift.catalogue.tables import NodeBlockEntry
from firstdrift.groups import gathered, known
from firstdrift.model.node import Node
from firstdrift.model.tensor import TensorRecord

Place: TypeAlias = tuple[int, int]
"""Where a tensor is in its slice: order of the node, and place among its tensors."""

_LENGTH = 256
_BLOCKS = NodeBlockEntry.__table__


class PackedNodes(Struct, frozen=True):
    """The nodes of a slice in blocks: the columns of their table."""

    first: tuple[int, ...]
    names: tuple[bytes, ...]
    dtypes: tuple[tuple[str, ...], ...]
    problems: tuple[int, ...]
    content: tuple[bytes, ...]


def pack_nodes(nodes: Iterable[Node]) -> PackedNodes:
    """Pack the nodes of a slice."""
    ordered = list(map(_kept, sorted(nodes, key=attrgetter("order"))))
    blocks = [block for _, block in split(ordered, _LENGTH)]
    records = [[*chain.from_iterable(node.tensors for node in block)] for block in blocks]
    return PackedNodes(
        first=tuple(block[0].order for block in blocks),
        names=tuple(_pack_checks([_check(node.name) for node in block]) for block in blocks),
        dtypes=tuple(tuple(dict.fromkeys(record.dtype for record in here)) for here in records),
        problems=tuple(len(known(record.problem for record in here)) for here in records),
        content=tuple(pack(Node, block) for block in blocks),
    )


def add_blocks(
    writing: Callable[[], AbstractContextManager[Session]], slice_id: int, packed: PackedNodes
) -> None:
    """Keep the nodes of a slice, in several transactions that may be repeated."""
    insert_in_batches(
        writing, NodeBlockEntry, asdict(packed), on_conflict="ON CONFLICT DO NOTHING", slice_id=slice_id
    )


def has_nodes(session: Session, slice_id: int) -> bool:
    """Tell whether nodes of a slice were kept, though they may not be all, as of a worker that died."""
    return session.scalar(select(_BLOCKS.c.first).where(_BLOCKS.c.slice_id == slice_id).limit(1)) is not None


def _kept(node: Node) -> Node:
    """Leave out what each rank holds of a tensor: whoever asks for it merges the ranks again."""
    if not any(record.shards for record in node.tensors):
        return node
    return replace(node, tensors=tuple(replace(record, shards=None) for record in node.tensors))


def _check(name: str) -> int:
    return crc32(name.encode(errors="surrogatepass"))


def _pack_checks(checks: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(checks)}I", *checks)


def _checks(packed: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(packed) // 4}I", packed)


def all_nodes(session: Session, slice_id: int) -> Iterator[Node]:
    """Give the nodes of a slice in the order of execution."""
    for _, content in contents(session, _BLOCKS, slice_id):
        yield from unpack(Node, content)


def types_of(session: Session, slice_id: int) -> dict[str, str]:
    """Say of what type the nodes of a slice are, by their names."""
    return _by_name(session, slice_id, "type_name")


def paths_of(session: Session, slice_id: int) -> dict[str, str]:
    """Give the paths of the nodes of a slice, by their names."""
    return _by_name(session, slice_id, "path")


def _by_name(session: Session, slice_id: int, field: str) -> dict[str, str]:
    blocks = (
        unpack_fields(Node, content, ("name", field)) for _, content in contents(session, _BLOCKS, slice_id)
    )
    return {name: value for names, values in blocks for name, value in zip(names, values, strict=True)}


def reader(session: Session, slice_id: int) -> Reader[Node]:
    """Give what looks up nodes of a slice by their order."""
    return Reader(session, _BLOCKS, slice_id, _Ordered)


class _Ordered:
    """A block of nodes, which are found by their order."""

    def __init__(self, _first: int, content: bytes) -> None:
        self._block = Block(Node, content)
        self._places = {order: place for place, order in enumerate(self._block.field("order"))}

    def at(self, places: Sequence[int]) -> Mapping[int, Node]:
        here = [order for order in places if order in self._places]
        return dict(zip(here, self._block.at([self._places[order] for order in here]), strict=True))


def nodes_named(session: Session, slice_id: int, names: Collection[str]) -> dict[str, Node]:
    """Look up nodes of a slice by their names; those that it lacks are left out."""
    checks = set(map(_check, names))
    columns = _BLOCKS.c
    listed = session.execute(select(columns.first, columns.names).where(columns.slice_id == slice_id))
    likely = [first for first, known in listed if not checks.isdisjoint(_checks(known))]
    here = (columns.slice_id == slice_id, columns.first.in_(likely))
    found = session.scalars(select(columns.content).where(*here).order_by(columns.first)) if likely else ()
    nodes = chain.from_iterable(unpack(Node, content) for content in found)
    wanted = frozenset(names)
    return {node.name: node for node in nodes if node.name in wanted}


def blocks_at(session: Session, slice_id: int, places: Iterable[int]) -> Iterator[Node]:
    """Give the nodes of the blocks of a slice in which nodes of some orders are."""
    for _, content in contents_at(session, _BLOCKS, slice_id, places):
        yield from unpack(Node, content)


def nodes_at(session: Session, slice_id: int, orders: Collection[int]) -> list[Node]:
    """Look up nodes of a slice by their order."""
    wanted = frozenset(orders)
    return [node for node in blocks_at(session, slice_id, wanted) if node.order in wanted]


def blocks_with_problems(session: Session, slice_ids: Collection[int]) -> dict[int, list[int]]:
    """Say in which blocks of slices are tensors that cannot be compared: their first places, by slice."""
    columns = _BLOCKS.c
    here = (columns.slice_id.in_(slice_ids), columns.problems > 0)
    return gathered(session.execute(select(columns.slice_id, columns.first).where(*here)))


def dtypes_of_slices(session: Session, slice_ids: Collection[int]) -> frozenset[str]:
    """List the dtypes of the tensors of slices."""
    found = session.scalars(select(_BLOCKS.c.dtypes).where(_BLOCKS.c.slice_id.in_(slice_ids)).distinct())
    return frozenset(chain.from_iterable(found))


def tensors_of(nodes: Iterable[Node]) -> Iterator[tuple[Place, Node, TensorRecord]]:
    """Give the tensors of nodes, each with its place and its node."""
    for node in nodes:
        for position, record in enumerate(node.tensors):
            yield (node.order, position), node, record
