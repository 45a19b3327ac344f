"""Items by what they have in common, by where they stand, and those that are known."""

from collections import defaultdict
from collections.abc import Callable, Container, Hashable, Iterable, Mapping
from typing import Any, TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items of each key, in their order; the keys in the order of their first items."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def gathered(pairs: Iterable[tuple[Key, Item]]) -> defaultdict[Key, list[Item]]:
    """Gather what belongs to each key, in the order given."""
    groups: defaultdict[Key, list[Item]] = defaultdict(list)
    for key, item in pairs:
        groups[key].append(item)
    return groups


def alone(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, Item]:
    """Return the items whose key no other has, by their keys."""
    return {own: group[0] for own, group in grouped(items, key).items() if len(group) == 1}


def positions(items: Iterable[Key]) -> dict[Key, int]:
    """Return where each item stands; of equal ones the last."""
    return {item: at for at, item in enumerate(items)}


def known(values: Iterable[Item | None]) -> list[Item]:
    """Return the values that are known: all but None."""
    return [value for value in values if value is not None]


def known_items(values: Mapping[Key, Item | None]) -> dict[Key, Item]:
    """Return the values that are known, by their keys: all but None."""
    return {key: value for key, value in values.items() if value is not None}


def fields_of(record: object, names: Iterable[str]) -> dict[str, Any]:
    """Return fields of a record by their names."""
    return {name: getattr(record, name) for name in names}


def firsts(pairs: Iterable[tuple[Item, object]]) -> list[Item]:
    """Return the first of each pair."""
    return [first for first, _ in pairs]


def seconds(pairs: Iterable[tuple[object, Item]]) -> list[Item]:
    """Return the second of each pair."""
    return [second for _, second in pairs]


def not_in(items: Iterable[Item], taken: Container[object]) -> list[Item]:
    """Return the items that are not taken."""
    return [item for item in items if item not in taken]
