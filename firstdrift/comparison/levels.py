"""Compare only part of a model: its layers, its modules, its operators or its logits."""

import re
from collections.abc import Callable

from msgspec.structs import replace

from firstdrift.errors import SettingsError
from firstdrift.matching.plan import SlicePlan, TensorPair
from firstdrift.model.node import Node, NodeKind
from firstdrift.model.slice import Slice
from firstdrift.verdict.logits import is_logits

LEVELS = ("layer", "module", "api", "logits")

_LAYER = re.compile(r"(^|\.)\d+$")


def at_level(plan: SlicePlan, target: Slice, level: str | None) -> SlicePlan:
    """Keep the pairs of one level; matches and everything left over stay as they are.

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
        return plan
    if level not in LEVELS:
        raise SettingsError(f"there is no level {level!r}", hint=f"Choose one of {', '.join(LEVELS)}")
    nodes = {node.name: node for node in target.nodes}
    keep = _keeper(level, nodes)
    return replace(plan, pairs=tuple(pair for pair in plan.pairs if keep(pair)))


def _keeper(level: str, nodes: dict[str, Node]) -> Callable[[TensorPair], bool]:
    if level == "logits":
        return is_logits
    if level == "api":
        return lambda pair: nodes[pair.target_node].kind is NodeKind.API
    if level == "module":
        return lambda pair: nodes[pair.target_node].kind is not NodeKind.API
    return lambda pair: (
        nodes[pair.target_node].kind is NodeKind.MODULE
        and _LAYER.search(nodes[pair.target_node].path) is not None
    )
