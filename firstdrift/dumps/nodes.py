"""Make nodes of what the names in a dump say; what a dump calls by one name gets names of its own.

"output.0", then "output.0#1"
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import chain, count
from typing import Final, TypeVar

from msgspec.structs import replace

from firstdrift.model.names import NameParts, enclosing_paths
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.tensor import Role, TensorRecord

_KINDS: Final = {kind.value: kind for kind in NodeKind}
_DIRECTIONS: Final = {direction.value: direction for direction in Direction}

Tensors = tuple[TensorRecord, ...]
Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def counted(items: Iterable[Item], label: Callable[[Item], Hashable]) -> Iterator[tuple[Item, int]]:
    """Yield items, each with how often its label came before."""
    seen: Counter[Hashable] = Counter()
    for item in items:
        of_item = label(item)
        yield item, seen[of_item]
        seen[of_item] += 1


def numbered(key: str, occurrence: int) -> str:
    """Return the key of what came so often before: "0", then "0#1"."""
    return f"{key}#{occurrence}" if occurrence else key


def distinct(name: str, taken: set[str]) -> str:
    """Return a name that is not taken yet, if need be with a number at its end, and take it."""
    names = chain([name], (f"{name}#{number}" for number in count(1)))
    free = next(free for free in names if free not in taken)
    taken.add(free)
    return free


def with_distinct_keys(records: Iterable[TensorRecord]) -> Tensors:
    """Give the tensors of a node keys of their own; the first of a key keeps it."""
    records = tuple(records)
    if len(records) <= 1 or len({(record.role._value_, record.key) for record in records}) == len(records):
        return records
    taken: defaultdict[Role, set[str]] = defaultdict(set)
    return tuple(replace(record, key=distinct(record.key, taken[record.role])) for record in records)


def module_around(name: str) -> str | None:
    """Return the nearest module around what has a dotted name; None at the top."""
    return next(enclosing_paths(name), None) or None


def of_role(records: Iterable[TensorRecord], role: Role) -> Tensors:
    """Return the tensors of a role."""
    return tuple(record for record in records if record.role is role)


def inputs_first(records: Iterable[TensorRecord], others: Iterable[TensorRecord]) -> Tensors:
    """Return the tensors of a node in their order: inputs, what else it has, outputs."""
    records = tuple(records)
    return (*of_role(records, Role.INPUT), *others, *of_role(records, Role.OUTPUT))


def call_node(
    name: str,
    parts: NameParts,
    order: int,
    parent: str | None,
    tensors: Tensors,
    micro_step: int | None = None,
) -> Node:
    """Make the node of a call from its name, taken apart."""
    return Node(
        name=name,
        path=parts.path,
        kind=_KINDS[parts.kind],
        type_name=parts.type_name,
        direction=_DIRECTIONS[parts.direction],
        call=parts.call,
        order=order,
        parent=parent,
        tensors=tensors,
        micro_step=micro_step,
    )


def module_node(
    name: str,
    path: str,
    order: int,
    parent: str | None,
    tensors: Tensors,
    *,
    direction: Direction = Direction.NONE,
    call: int = 0,
) -> Node:
    """Make the node of a module of which little more is known than its path."""
    return Node(name, path, NodeKind.MODULE, "", direction, call, order, parent, tensors)
