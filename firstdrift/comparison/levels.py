"""Compare only part of a model: its layers, its modules, its operators or its logits."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from firstdrift.errors import SettingsError
from firstdrift.matching.plan import SlicePlan
from firstdrift.matching.to_compare import what_to_compare
from firstdrift.model.node import Node, NodeKind
from firstdrift.model.slice import Slice
from firstdrift.operators.paths import runs_through_head
from firstdrift.verdict.logits import is_logits
from firstdrift.wording.message import Message

LEVELS = ("layer", "module", "api", "logits")

_LAYER = re.compile(r"(^|\.)\d+$")


def _is_layer(node: Node) -> bool:
    return node.kind is NodeKind.MODULE and _LAYER.search(node.path) is not None


_KEEPS: Final[Mapping[str, Callable[[Node], bool]]] = {
    "layer": _is_layer,
    "module": lambda node: node.kind is not NodeKind.API,
    "api": lambda node: node.kind is NodeKind.API,
    "logits": lambda node: runs_through_head(node.name),
}


def at_level(plan: SlicePlan, golden: Slice, target: Slice, level: str | None) -> SlicePlan:
    """Keep the pairs of one level, and say what there is to compare; all else stays as it is.

    | level  | pairs kept                                                        |
    | ------ | ----------------------------------------------------------------- |
    | layer  | of modules that are a numbered element of a list (`model.layers.7`) |
    | module | of modules                                                        |
    | api    | of operators                                                      |
    | logits | of the head's output                                              |

    Raises:
        SettingsError: there is no such level.
    """
    if level is None:
        return replace(plan, to_compare=what_to_compare(golden, target, lambda _: True))
    if level not in LEVELS:
        no_level = Message.of("comparison.options.no_level", level=level)
        raise SettingsError(no_level, hint=Message.of("error.choose_one", names=LEVELS))
    nodes = {node.name: node for node in target.nodes}
    kept = (
        pair
        for pair in plan.pairs
        if (is_logits(pair) if level == "logits" else _KEEPS[level](nodes[pair.target_node]))
    )
    there = what_to_compare(golden, target, _KEEPS[level])
    return replace(plan, pairs=tuple(kept), to_compare=there)
