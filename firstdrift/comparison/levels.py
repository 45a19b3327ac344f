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

_LAYER: Final = re.compile(r"(^|\.)\d+$")


def level_of(kind: NodeKind, path: str | None) -> str:
    """Say of which level a node is: a layer is a module that is a numbered element of a list."""
    if kind is NodeKind.API:
        return "api"
    return "layer" if _LAYER.search(path or "") else "module"


_KEEPS: Final[Mapping[str, Callable[[Node], bool]]] = {
    "layer": lambda node: level_of(node.kind, node.path) == "layer",
    "module": lambda node: node.kind is not NodeKind.API,
    "api": lambda node: node.kind is NodeKind.API,
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
    alone = plan.unmatched_golden
    if level is None:
        return replace(plan, to_compare=what_to_compare(golden, target, lambda _: True, alone))
    if level not in LEVELS:
        no_level = Message.of("comparison.options.no_level", level=level)
        raise SettingsError(no_level, hint=Message.of("error.choose_one", names=LEVELS))
    if level == "logits":
        return _with_logits(plan, golden, target)
    keeps = _KEEPS[level]
    names = {node.name for node in target.nodes if keeps(node)}
    kept = tuple(pair for pair in plan.pairs if pair.target_node in names)
    return replace(plan, pairs=kept, to_compare=what_to_compare(golden, target, keeps, alone))


def _with_logits(plan: SlicePlan, golden: Slice, target: Slice) -> SlicePlan:
    """Keep the logits. What runs inside the head gives the same, so that one node of it tells."""
    kept = tuple(filter(is_logits, plan.pairs))
    names = {pair.golden_node for pair in kept}
    there = what_to_compare(
        golden,
        target,
        lambda node: node.name in names if names else runs_through_head(node.name),
        plan.unmatched_golden,
    )
    alike = len({pair.target_node for pair in kept})
    return replace(plan, pairs=kept, to_compare=replace(there, target_nodes=alike))
