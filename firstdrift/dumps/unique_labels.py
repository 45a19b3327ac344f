"""Names of their own for what a dump calls by one name: "output.0", "output.0#1"."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from itertools import chain, count

from msgspec.structs import replace

from firstdrift.model.tensor import Role, TensorRecord


def occurrences(labels: Iterable[Hashable]) -> Iterator[int]:
    """Yield of each label how often it came before."""
    seen: Counter[Hashable] = Counter()
    for label in labels:
        yield seen[label]
        seen[label] += 1


def numbered(key: str, occurrence: int) -> str:
    """Return the key of what came so often before: "0", then "0#1"."""
    return f"{key}#{occurrence}" if occurrence else key


def distinct(name: str, taken: set[str]) -> str:
    """Return a name that is not taken yet, if need be with a number at its end, and take it."""
    free = next(
        free for free in chain([name], (f"{name}#{number}" for number in count(1))) if free not in taken
    )
    taken.add(free)
    return free


def with_distinct_keys(records: Iterable[TensorRecord]) -> tuple[TensorRecord, ...]:
    """Give the tensors of a node keys of their own; the first of a key keeps it."""
    records = tuple(records)
    if len({(record.role, record.key) for record in records}) == len(records):
        return records
    taken: defaultdict[Role, set[str]] = defaultdict(set)
    keys = [distinct(record.key, taken[record.role]) for record in records]
    return tuple(
        record if record.key == key else replace(record, key=key)
        for record, key in zip(records, keys, strict=True)
    )
