"""Where in a model something lies, and when it runs among its siblings, by its path and its name."""

import re
from functools import cache, lru_cache
from typing import Final

from firstdrift.operators.kinds import snake_case
from firstdrift.operators.registry import path_pattern, registry

PARTS_OF_LAYER: Final = ("attention", "cross attention", "mlp")
"""What a layer consists of, besides norms and additions."""

_PARTS: Final = (
    ("part_of_layer.cross_attention", "cross attention"),
    ("part_of_layer.attention", "attention"),
    ("part_of_layer.feed_forward", "mlp"),
)
"""By what tells them in a name, the most particular first."""


def part_of_layer(name: str) -> str:
    """Say which part of a layer a name or a class is: "attention", "cross attention", "mlp" or ""."""
    said = snake_case(name)
    return next((part for key, part in _PARTS if path_pattern(key).search(said)), "")


def is_feed_forward(name: str) -> bool:
    """Tell whether a name or a class is that of a feed-forward block, which treats each token by itself."""
    return path_pattern("feed_forward.row_by_row").search(name) is not None


def is_layer_class(type_name: str) -> bool:
    """Tell whether a class is called a layer or a block."""
    return path_pattern("layer.class").search(snake_case(type_name)) is not None


def is_layer_list(label: str) -> bool:
    """Tell whether the last part of a path is what lists of layers are called."""
    return path_pattern("layer.list").fullmatch(snake_case(label)) is not None


def numbered_layer(path: str) -> tuple[str, int] | None:
    """Return the outermost list of layers that a path runs through, and the number in it; None if none."""
    found = path_pattern("layer.numbered").match(path)
    return (found[1], int(found[2])) if found else None


def runs_through_head(path: str) -> bool:
    """Tell whether a path runs through the head of a language model, which gives logits."""
    return _heads().search(path) is not None


@cache
def _heads() -> re.Pattern[str]:
    modules = (module for module in registry().modules.values() if module.gives_logits)
    names = "|".join(name for module in modules for name in module.names)
    return re.compile(rf"(^|[._/])({names})($|[./])")


def is_container(type_name: str) -> bool:
    """Tell whether a class only holds other modules, or is a part of a layer that holds several."""
    name = snake_case(type_name)
    said = path_pattern("container.class").search(name) or path_pattern("layer.class").search(name)
    return said is not None or part_of_layer(name) != ""


def is_router(path: str) -> bool:
    """Tell whether a path is that of what chooses experts."""
    return path_pattern("router.anywhere").search(path) is not None


def is_of_chosen_experts(path: str) -> bool:
    """Tell whether something is one of experts that are chosen, or sorts tokens by them."""
    chosen, shared = path_pattern("expert.chosen"), path_pattern("shared_expert.named_after")
    return chosen.search(path) is not None and shared.search(path) is None


def may_speak_of_experts(names: str) -> bool:
    """Tell whether one of many names, in lower case, can be that of an expert; faster than one by one."""
    return path_pattern("expert.words").search(names) is not None


def holds_experts(path: str, start: int = 0) -> bool:
    """Tell whether a module on a path holds experts; looked for from a position in it."""
    return path_pattern("expert.holder").search(path, start) is not None


def is_shared_expert(path: str) -> bool:
    """Tell whether a path runs through an expert that every token goes through."""
    return path_pattern("shared_expert.itself").search(path) is not None


def is_named_after_experts(label: str) -> bool:
    """Tell whether the last part of a path speaks of experts, shared ones included."""
    return path_pattern("shared_expert.or_chosen").search(label) is not None


def is_expert_list(label: str) -> bool:
    """Tell whether a part of a path may be what lists of experts are called; so may a shared one."""
    return path_pattern("expert.list").search(label) is not None


def is_shared(label: str) -> bool:
    """Tell whether a list of experts is one that every token goes through."""
    return path_pattern("shared_expert.list").search(label.lower()) is not None


def numbered_expert(path: str) -> re.Match[str] | None:
    """Find the expert in a list that a path runs through: its `number`, and the `name` of what lies in it."""
    return path_pattern("expert.numbered").search(path)


def numbered_chosen_expert(path: str) -> re.Match[str] | None:
    """Find it likewise, if it is not named after a shared one."""
    return None if path_pattern("shared_expert.named_after").search(path) else numbered_expert(path)


def runs_through_experts(path: str) -> bool:
    """Tell whether a path may be that of a weight of experts."""
    return path_pattern("expert.weights").search(path) is not None


def is_one_expert(path: str) -> bool:
    """Tell whether a path is that of one expert as a whole."""
    return path_pattern("expert.whole").search(path) is not None


def expert_of_block(path: str) -> re.Match[str] | None:
    """Take a path in an expert apart: `list`, the `block` around it, its `number`, and the `rest`."""
    return path_pattern("expert.of_block").fullmatch(path)


def stacked_weight(path: str) -> re.Match[str] | None:
    """Take the path of a weight of all experts apart: their `list`, its `name`, whether it is a `bias`."""
    return path_pattern("expert.stacked_weight").fullmatch(path)


def single_weight(path: str) -> re.Match[str] | None:
    """Take the path of a weight of one expert apart: as of all of them, and its `number`."""
    return path_pattern("expert.single_weight").fullmatch(path)


OPERATOR: Final = "<operator>"
"""Stands for the last name of an operator call: after projections, before what ends the module."""

_NUMBER: Final = re.compile(r"[0-9]{1,18}")


@lru_cache(1 << 12)
def stage_of(label: str) -> tuple[int, int] | None:
    """Return the place of a name among those of its siblings; None if it does not tell when it runs."""
    known = registry()
    if label == OPERATOR:
        return known.stages[known.stage_of_operators], 0
    if _NUMBER.fullmatch(label):
        return known.stages[known.stage_of_numbers], int(label)
    module = known.by_name.get(label)
    if module is not None and module.stage and label not in module.unordered_names:
        return known.stages[module.stage], 0
    return next(((place, 0) for pattern, place in _further_names() if pattern.fullmatch(label)), None)


@cache
def _further_names() -> tuple[tuple[re.Pattern[str], int], ...]:
    known = registry()
    entries = (entry for entry in known.modules.values() if entry.order_like)
    return tuple((re.compile(entry.order_like), known.stages[entry.stage]) for entry in entries)


def parameter_of_norm_inside(key: str) -> str:
    """Return what a parameter is of the norm that its module begins with ("weight"); "" if it is of none."""
    found = path_pattern("norm_inside.parameter").search(key)
    return "" if found is None else found["name"]
