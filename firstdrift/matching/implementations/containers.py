"""Containers that a dump has not recorded, as the paths of what they hold name them.

recorded     model.layers.3.self_attn.q_proj, model.layers.3.self_attn.o_proj          at the root
put in       model.layers.3.self_attn, model.layers.3, model

A hook misses a module whose forward is called past it; what it holds is recorded all the same. Lists of
modules run nothing and are never recorded; none is put in for them.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from firstdrift.groups import not_in
from firstdrift.model.node import Direction, Node, NodeKind

_PREFIX = "container:"
"""What begins the name of a node that is put in; no dump has such a name beside one that is recorded."""


def with_containers(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Put in the containers that were not recorded, each after the last module that it holds."""
    names = {node.path: node.name for node in reversed(nodes)}
    around = _unrecorded(nodes, names)
    ends = {path: at for at, paths in enumerate(around) for path in paths}
    lists = _lists((*names, *ends))
    put_in = {path: at for path, at in ends.items() if path not in lists}
    names |= {path: _PREFIX + path for path in put_in}
    placed = [
        replace(node, parent=next((names[path] for path in inside if path in put_in), node.parent))
        for node, inside in zip(nodes, around, strict=True)
    ]
    return tuple(_in_order(placed, put_in, names))


def _unrecorded(nodes: Sequence[Node], recorded: Container[str]) -> list[list[str]]:
    """Return for each module the paths between it and the one around it that nobody recorded."""
    paths = {node.name: node.path for node in nodes}
    between = (_around(node.path, paths.get(node.parent or "", "")) for node in nodes)
    return [not_in(of_node, recorded) for of_node in between]


def _around(path: str, above: str) -> list[str]:
    """Return the paths between a module and the one around it, the innermost first."""
    if above and not path.startswith(f"{above}."):
        return []  # a module that layers share is called from another place than its own
    parts = path.split(".")
    first = len(above.split(".")) if above else 0
    return [".".join(parts[:end]) for end in range(len(parts) - 1, first, -1)]


def _lists(paths: Iterable[str]) -> set[str]:
    """Return the paths that hold nothing directly but numbers: they are lists, which run nothing."""
    inside: dict[str, bool] = {}
    for path in paths:
        around, _, last = path.rpartition(".")
        inside[around] = inside.get(around, True) and last.isdigit()
    return {path for path, only_numbers in inside.items() if only_numbers}


def _classes_of_elements(nodes: Iterable[Node]) -> dict[str, str]:
    """Return the class of most elements of each list."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for node in nodes:
        around, _, number = node.path.rpartition(".")
        if number.isdigit():
            counts[around][node.type_name] += 1
    return {around: found.most_common(1)[0][0] for around, found in counts.items()}


def _in_order(placed: Sequence[Node], put_in: Mapping[str, int], names: Mapping[str, str]) -> Iterator[Node]:
    """Yield all nodes in the order in which they finish, numbered anew."""
    classes = _classes_of_elements(placed)
    ends: defaultdict[int, list[str]] = defaultdict(list)
    for path, at in put_in.items():
        ends[at].append(path)
    order = 0
    for at, node in enumerate(placed):
        yield replace(node, order=order)
        order += 1
        for path in sorted(ends[at], key=lambda each: -each.count(".")):
            name, parent = names[path], next(filter(None, map(names.get, _around(path, ""))), None)
            class_name = classes.get(path.rpartition(".")[0], "")
            yield Node(name, path, NodeKind.MODULE, class_name, Direction.FORWARD, 0, order, parent, ())
            order += 1
