"""Compare only part of a model: its layers, its modules, its operators or its logits."""

import re
from typing import Final

from msgspec.structs import replace

from firstdrift.errors import SettingsError
from firstdrift.matching.plan import SlicePlan
from firstdrift.model.node import NodeKind
from firstdrift.model.slice import Slice
from firstdrift.verdict.logits import is_logits
from firstdrift.wording.message import Message

LEVELS = ("layer", "module", "api", "logits")

_LAYER: Final = re.compile(r"(^|\.)\d+$")


def level_of(kind: NodeKind, path: str | None) -> str:
    """Say of which level a node is: a layer is a module that is a numbered element of a list."""
    if kind is NodeKind.API:
        return "api"
    return "layer" if _LAYER.search(path or "") else "module"


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
        no_level = Message.of("comparison.options.no_level", level=level)
        raise SettingsError(no_level, hint=Message.of("error.choose_one", names=LEVELS))
    if level == "logits":
        return replace(plan, pairs=tuple(filter(is_logits, plan.pairs)))
    levels = {node.name: level_of(node.kind, node.path) for node in target.nodes}
    kept = ("module", "layer") if level == "module" else (level,)
    return replace(plan, pairs=tuple(pair for pair in plan.pairs if levels[pair.target_node] in kept))
