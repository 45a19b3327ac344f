"""Which operators and modules of a dump the registry does not know, and how often each occurs."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from firstdrift.model.names import PARAMETERS_GRAD
from firstdrift.model.node import Node, NodeKind
from firstdrift.operators.kinds import snake_case
from firstdrift.operators.paths import is_container
from firstdrift.operators.properties import last_part
from firstdrift.operators.recognise import is_known_label
from firstdrift.operators.registry import operators_named
from firstdrift.wording.message import Argument, Message

_OF_RANK: Final = re.compile(r"_rank[0-9]{1,9}$")
"""What msprobe adds to the name of a call of another rank, where it merged ranks."""

_SHOWN: Final = 8


class UnknownName(Struct, frozen=True):
    """A name that the registry does not know.

    Attributes:
        name: the operator, the class of a module, or the last part of its path where its class is not known.
        is_operator: whether it is one; else a module.
        count: how many nodes have it.
    """

    name: str
    is_operator: bool
    count: int


def unknown_names(nodes: Iterable[Node]) -> tuple[UnknownName, ...]:
    """Return the names of nodes that the registry does not know, the most frequent first."""
    counts: Counter[tuple[str, bool]] = Counter()
    for node in nodes:
        name, is_operator = _name(node), node.kind is NodeKind.API
        if name and not _is_known(name, node, is_operator=is_operator):
            counts[name, is_operator] += 1
    return _ordered(counts)


def added_up(slices: Iterable[tuple[UnknownName, ...]]) -> tuple[UnknownName, ...]:
    """Add up the unknown names of several slices."""
    counts: Counter[tuple[str, bool]] = Counter()
    for names in slices:
        counts.update({(one.name, one.is_operator): one.count for one in names})
    return _ordered(counts)


def _ordered(counts: Mapping[tuple[str, bool], int]) -> tuple[UnknownName, ...]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(UnknownName(name, is_operator, count) for (name, is_operator), count in ordered)


def unknown_messages(names: Iterable[UnknownName]) -> Iterator[Message]:
    """Say which names are not known: first those of operators, then those of modules."""
    known = list(names)
    if operators := [one for one in known if one.is_operator]:
        yield Message.of("operators.unknown_operators", **_listed(operators))
    if modules := [one for one in known if not one.is_operator]:
        yield Message.of("operators.unknown_modules", **_listed(modules))


def _listed(names: list[UnknownName]) -> dict[str, Argument]:
    """Return the first names with their counts, and how many more there are."""
    shown = [Message.of("operators.name_and_count", name=one.name, count=one.count) for one in names[:_SHOWN]]
    more = [Message.of("operators.more_names", count=len(names) - _SHOWN)] if len(names) > _SHOWN else []
    return {"nodes": sum(one.count for one in names), "names": (*shown, *more)}


def _name(node: Node) -> str:
    if node.kind is NodeKind.MODEL or node.type_name == PARAMETERS_GRAD:
        return ""
    return node.type_name or last_part(node.path)


def _is_known(name: str, node: Node, *, is_operator: bool) -> bool:
    last = last_part(_OF_RANK.sub("", name))
    last = name if last.isdigit() and node.type_name else last
    if not is_operator and not node.type_name:
        return last.isdigit() or is_known_label(last) or is_container(last)
    if operators_named(snake_case(last)):
        return True
    return not is_operator and is_container(last)
