"""The module tree of an msprobe slice: construct.json, repaired, and the order in which its nodes finished.

    construct.json   {"Functional.linear.0.forward": "Module.lm_head.Linear.forward.0", ...}

What is wrong or missing in it, and what is done about it:

| construct.json says                                       | the parent taken                            |
| --------------------------------------------------------- | ------------------------------------------- |
| `[parent, micro step]` (Megatron)                         | the parent                                  |
| of a backward node: another one than its forward node has | the backward of the forward node's parent   |
| ... whose parent has no backward pass                     | that of the next module around it that has  |
| of a module run again by activation checkpointing: null   | the backward of the parent of its first run |
| nothing of a module (there may be no construct.json)      | the nearest module by path, same pass       |
| nothing of anything, and the model is called `__root__`   | failing that, the model                     |
| nothing of the gradients of a module (it never does)      | the backward of the module                  |
| nothing of an operator (cut short by checkpointing)       | the module that finished next, same pass    |
| a circle                                                  | the circle is cut                           |

Backward nodes are misplaced where a hook fires too early (a module whose inputs need no gradient) or never
(a module that works in place): what runs later then lies at the top, or in the wrong module.

Files of 2025-02 to 2026-05 say what activation checkpointing ran again:

    Module.mlp.MLP.forward.0                          call 0
    Module.mlp.MLP.forward.1  "is_recompute": true    call 0, run again
    Module.mlp.MLP.forward.2                          call 1

What is run again is no further call of its module: the next call has the number that it would have without.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, filterfalse, pairwise
from typing import Any, Final, TypeGuard

from msgspec import DecodeError, Struct, field
from msgspec.json import Decoder
from msgspec.structs import replace

from firstdrift.dumps.execution_order import after_children, children_of
from firstdrift.dumps.storage.json_file import JsonFile
from firstdrift.groups import known, positions
from firstdrift.model.names import NameParts, enclosing_paths, holds_gradients, parse_name, with_direction
from firstdrift.model.slice import RECORDED_ORDER, OrderOrigin, OrderSource
from firstdrift.wording.message import Message

Stacks = Mapping[str, tuple[str, ...]]

WHOLE_MODEL: Final = "__root__"
"""What the model itself is called where an ACL graph was dumped; all else ran in it."""

_MICRO_STEP_COUNT: Final = "megatron_micro_step_number"
_LAST_MICRO_STEP: Final = 2**31 - 1

_ALIKE: Final = 2
"""Trees that are remembered: slices of a dump have mostly one, and another dump may have another."""


class Construct(Struct, frozen=True, eq=False):
    """What construct.json says; each is equal to itself alone.

    Attributes:
        parents: parent of each node, in the order in which the nodes began; None at the top.
        micro_steps: micro step of each node, where Megatron recorded it.
        problems: entries that make no sense.
    """

    parents: dict[str, str | None] = field(default_factory=dict)
    micro_steps: dict[str, int] = field(default_factory=dict)
    problems: tuple[Message, ...] = ()


@lru_cache(maxsize=_ALIKE)
def _strict_construct(content: bytes) -> Construct | None:
    try:
        recorded = Decoder(dict[str, Any]).decode(content)
    except (DecodeError, UnicodeDecodeError):
        return None
    return parse_construct(recorded) if content.count(b'":') == len(recorded) else None


def quick_construct(content: bytearray) -> JsonFile | None:
    """Read the contents of construct.json, once those that are the same; None if they are odd JSON."""
    construct = _strict_construct(bytes(content))
    return None if construct is None else JsonFile(construct, ())


def parse_construct(recorded: object) -> Construct:
    """Take the contents of construct.json apart."""
    if not isinstance(recorded, dict):
        return Construct(problems=(Message.of("dumps.json.no_object"),))
    entries = {name: _entry(value) for name, value in recorded.items() if name != _MICRO_STEP_COUNT}
    parents: dict[str, str | None] = {}
    problems: list[Message] = []
    for name, (parent, _) in entries.items():
        parents[name] = parent if isinstance(parent, str) and parent else None
        if not isinstance(parent, str | None):
            problems.append(Message.of("dumps.msprobe.bad_parent", node=name))
    micro_steps = {name: step for name, (_, step) in entries.items() if _is_micro_step(step)}
    return Construct(parents, micro_steps, tuple(problems))


def _entry(value: object) -> tuple[object, object]:
    """Return parent and micro step."""
    match value:
        case [parent, micro_step]:
            return parent, micro_step
    return value, None


def _is_micro_step(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= _LAST_MICRO_STEP


def repair_parents(
    names: Mapping[str, NameParts],
    construct: Construct,
    recorded: Iterable[str],
    read_stacks: Callable[[], Stacks],
    recomputed: Collection[str] = (),
) -> tuple[dict[str, str | None], tuple[Message, ...]]:
    """Give every node a parent that is a node of the slice, or None at the top; say which circles were cut.

    `recorded` are the nodes of dump.json in its order. Which of them ran again is said by their records
    (`recomputed`), else by the stacks, which are read where a module may have run twice.
    """
    parents = dict(construct.parents)
    _place_recomputed(parents, names, read_stacks, recomputed)
    _mirror_forward(parents, names)
    if parents:
        _place_cut_short(parents, names, recorded)
    _place_unrecorded(parents, names)
    return parents, _cut_circles(parents)


def _place_recomputed(
    parents: dict[str, str | None],
    names: Mapping[str, NameParts],
    read_stacks: Callable[[], Stacks],
    recomputed: Collection[str],
) -> None:
    at_top, inside = _forward_runs(parents, names)
    suspects = at_top.keys() & inside.keys()
    stacks = read_stacks() if suspects and not recomputed else {}
    asked = chain.from_iterable(at_top[path] for path in suspects)
    again = {*recomputed, *(name for name in asked if _runs_inside_backward(stacks.get(name, ())))}
    for path in suspects:
        first_runs = filterfalse(recomputed.__contains__, inside[path])
        for name, first_run in zip(filter(again.__contains__, at_top[path]), first_runs, strict=False):
            around = parents[first_run]
            backward = around and with_direction(around, "backward")
            parents[name] = backward if backward in names else None


def _forward_runs(
    parents: Mapping[str, str | None], names: Mapping[str, NameParts]
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the forward runs of each module: those at the top, and those in a forward pass."""
    at_top: dict[str, list[str]] = defaultdict(list)
    inside: dict[str, list[str]] = defaultdict(list)
    for name, parent in parents.items():
        parts = names[name]
        if parts.kind != "module" or parts.direction != "forward":
            continue
        if parent is None:
            at_top[parts.path].append(name)
        elif names[parent].direction == "forward":
            inside[parts.path].append(name)
    return at_top, inside


def _runs_inside_backward(stack: tuple[str, ...]) -> bool:
    """Tell whether a call stack passes through activation checkpointing."""
    for frame, caller in zip(stack, (*stack[1:], ""), strict=False):
        if "torch/utils/checkpoint.py" in frame and "in recompute_fn," in frame:
            return True
        if "in backward," in frame and "torch/autograd/function.py" in caller:
            return True
    return False


def _mirror_forward(parents: dict[str, str | None], names: Mapping[str, NameParts]) -> None:
    """Put backward nodes where their forward nodes are, in the innermost module with a backward pass."""
    for name in [name for name in parents if names[name].direction == "backward"]:
        forward = with_direction(name, "forward")
        if forward not in parents:
            continue
        around = (with_direction(module, "backward") for module in _modules_around(parents, forward))
        recorded = next(filter(names.__contains__, around), None)
        if recorded is not None or parents[forward] in (None, forward):
            parents[name] = recorded


def _modules_around(parents: Mapping[str, str | None], name: str) -> Iterator[str]:
    """Go through the modules around a node, the innermost first; a circle is gone through once."""
    seen = {name}
    around = parents.get(name)
    while around is not None and around not in seen:
        yield around
        seen.add(around)
        around = parents.get(around)


def _place_cut_short(
    parents: dict[str, str | None], names: Mapping[str, NameParts], recorded: Iterable[str]
) -> None:
    for name, following in pairwise(recorded):
        parts, after = names[name], names[following]
        is_lost_operator = name not in parents and parts.kind == "api"
        if is_lost_operator and after.kind == "module" and after.direction == parts.direction:
            parents[name] = following


def _place_unrecorded(parents: dict[str, str | None], names: Mapping[str, NameParts]) -> None:
    calls: dict[tuple[str, str], list[str]] = defaultdict(list)
    gradients: Counter[str] = Counter()
    for name, parts in names.items():
        if parts.holds_gradients:
            gradients[parts.path] += 1
        elif parts.kind == "module":
            calls[parts.path, parts.direction].append(name)
    for name, parts in names.items():
        if name in parents:
            continue
        backwards = calls.get((parts.path, "backward"))
        if parts.holds_gradients and backwards:
            each_has_its_own = len(backwards) == gradients[parts.path]
            parents[name] = backwards[min(parts.call, len(backwards) - 1) if each_has_its_own else -1]
        else:
            parents[name] = _module_around(parts, calls)


def _module_around(parts: NameParts, calls: Mapping[tuple[str, str], list[str]]) -> str | None:
    if parts.kind == "module" and parts.direction != "none":
        for path in enclosing_paths(parts.path):
            around = calls.get((path, parts.direction))
            if around:
                return around[min(parts.call, len(around) - 1)]
    whole = calls.get((WHOLE_MODEL, parts.direction), ())
    # Operators are counted over all calls of the model: which call one belongs to is known of a single one.
    return whole[0] if len(whole) == 1 and parts.path != WHOLE_MODEL else None


def _cut_circles(parents: dict[str, str | None]) -> tuple[Message, ...]:
    cut: list[Message] = []
    sound: set[str] = set()
    for name in parents:
        walked: dict[str, None] = {}
        at: str | None = name
        while at is not None and at not in sound:
            walked[at] = None
            around = parents[at]
            if around in walked:
                parents[at] = around = None
                cut.append(Message.of("dumps.msprobe.circle", node=at))
            at = around
        sound.update(walked)
    return tuple(cut)


def last_positions(parents: Mapping[str, str | None], positions: dict[str, int]) -> dict[str, int]:
    """Return when each node finished: the last position in `dump.json` of the node and all that it contains.

    Nodes of which nothing was recorded, neither themselves nor what they contain, are left out. The gradients
    of parameters say nothing of their module: those of shared weights are ready when all that share them are.
    """
    last: dict[str, int] = {}
    for name, position in reversed(positions.items()):
        if holds_gradients(name):
            last[name] = position
            continue
        at: str | None = name
        while at is not None and at not in last:
            last[at] = position
            at = parents[at]
    return last


def finish_order(parents: Mapping[str, str | None], last: Mapping[str, int]) -> list[str]:
    """Order nodes by when they finished: what a module contains directly before it.

    Nodes under one parent are given in the order in which they began; one of which it is not recorded when it
    finished follows the one that began before it.
    """
    return after_children(children_of(parents, parents), lambda siblings: _by_finish(siblings, last))


def _by_finish(siblings: Sequence[str], last: Mapping[str, int]) -> list[str]:
    key, keys = -1, dict[str, int]()
    for name in siblings:
        key = keys[name] = last.get(name, key)
    return sorted(siblings, key=keys.__getitem__)


def micro_steps(
    order: Iterable[str],
    parents: Mapping[str, str | None],
    names: Mapping[str, NameParts],
    recorded: Mapping[str, int],
) -> Mapping[str, int]:
    """Return the micro step of each node; {} where there is only one.

    Where the dump does not tell, a new one begins at a top-level forward module after a backward module.
    """
    ordered = list(order)
    at_top = recorded or _count_at_top(ordered, parents, names)
    if len(set(at_top.values())) <= 1:
        return {}
    steps: dict[str | None, int] = {None: 0}
    for name in reversed(ordered):
        steps[name] = at_top.get(name, steps[parents[name]])
    return {name: steps[name] for name in ordered}


def _count_at_top(
    order: Iterable[str], parents: Mapping[str, str | None], names: Mapping[str, NameParts]
) -> dict[str, int]:
    found: dict[str, int] = {}
    micro_step, before = 0, "none"
    for name in order:
        if parents[name] is not None:
            continue
        parts = names[name]
        if parts.kind == "module" and parts.direction != "none":
            micro_step += (before, parts.direction) == ("backward", "forward")
            before = parts.direction
        found[name] = micro_step
    return found


RECOMPUTED: Final = "is_recompute"


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


class Tree(Struct, frozen=True):
    """Where and when the nodes of a slice ran.

    Attributes:
        names: each taken apart.
        parents: the parent of each node; None at the top.
        order: the nodes, as they finished.
        micro_steps: that of each node; empty where there is one alone.
        circles: what was wrong with the parents.
        origin: how the order is known.
    """

    names: Mapping[str, NameParts]
    parents: Mapping[str, str | None]
    order: Sequence[str]
    micro_steps: Mapping[str, int]
    circles: tuple[Message, ...]
    origin: OrderOrigin


def tree_of(
    construct: Construct,
    recorded: Sequence[str],
    recomputed: frozenset[str],
    read_stacks: Callable[[], Stacks],
) -> Tree:
    """Put the nodes of construct.json and of dump.json, `recorded` in its order, into a tree."""
    known_parents = known(construct.parents.values())
    names = {name: parse_name(name) for name in chain(construct.parents, recorded, known_parents)}
    parents, circles = repair_parents(names, construct, recorded, read_stacks, recomputed)
    at = positions(recorded)
    last = last_positions(parents, at)
    order = finish_order(parents, last)
    steps = micro_steps(order, parents, names, construct.micro_steps)
    origin = _order_origin(names, at, last)
    return Tree(without_recomputed(names, recomputed), parents, order, steps, circles, origin)


@lru_cache(maxsize=_ALIKE)
def tree_without_stacks(
    construct: Construct, recorded: tuple[str, ...], recomputed: frozenset[str]
) -> Tree | None:
    """Do the same, once for slices that are alike; None where call stacks have to tell."""
    asked: list[Stacks] = []

    def no_stacks() -> Stacks:
        asked.append({})
        return {}

    tree = tree_of(construct, recorded, recomputed, no_stacks)
    return None if asked else tree


def _order_origin(
    names: Mapping[str, NameParts], positions: Mapping[str, int], last: Mapping[str, int]
) -> OrderOrigin:
    if not positions:
        return OrderOrigin(OrderSource.DERIVED, Message.of("dumps.order.from_beginnings"))
    if any(last[name] != at and names[name].direction == "forward" for name, at in positions.items()):
        return OrderOrigin(OrderSource.RECORDED, Message.of("dumps.order.recorded_at_beginning"))
    return RECORDED_ORDER
