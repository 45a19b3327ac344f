"""What activation checkpointing ran again, where a dump says so: files of 2025-02 to 2026-05 do.

    Module.mlp.MLP.forward.0                          call 0
    Module.mlp.MLP.forward.1  "is_recompute": true    call 0, run again
    Module.mlp.MLP.forward.2                          call 1

What is run again is no further call of its module: the next call has the number that it would have without.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Final

from msgspec.structs import replace

from firstdrift.model.names import NameParts

RECOMPUTED: Final = "is_recompute"


def recomputed_in(data: Mapping[str, object]) -> frozenset[str]:
    """Return the names of the nodes of which their records say that they ran again."""
    records = ((name, record) for name, record in data.items() if isinstance(record, dict))
    return frozenset(name for name, record in records if record.get(RECOMPUTED) is True)


def without_recomputed(
    names: Mapping[str, NameParts], recomputed: Collection[str]
) -> Mapping[str, NameParts]:
    """Number the calls of modules as if nothing had run again; what did has the number of what it repeats."""
    if not recomputed:
        return names
    numbers = _numbers(names, recomputed)
    return {
        name: replace(parts, call=numbers[parts.path].get(parts.call, parts.call))
        if parts.kind == "module" and parts.path in numbers and not parts.holds_gradients
        else parts
        for name, parts in names.items()
    }


def _numbers(names: Mapping[str, NameParts], recomputed: Collection[str]) -> dict[str, dict[int, int]]:
    """Return by the path of each module, and by the number of a call, which one it is without those."""
    runs: defaultdict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for name, parts in names.items():
        if parts.kind == "module" and parts.direction == "forward":
            runs[parts.path][name in recomputed].append(parts.call)
    return {
        path: {call: at for calls in both for at, call in enumerate(sorted(calls))}
        for path, both in runs.items()
        if both[1]
    }
