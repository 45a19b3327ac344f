"""What the registry says of an operator or a class of modules, asked by its type.

A type may say several operators ("LayerNormLinear"): a property holds if one of them has it.
"""

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Final

from firstdrift.operators.kinds import ErrorModel, snake_case
from firstdrift.operators.registry import PARAMETERS, Operator, operators_named, registry

_MOST_REMEMBERED: Final = 1 << 12
BETWEEN_RANKS: Final = "Distributed."
"""What begins the names of calls between ranks."""

_ATEN_CALL: Final = re.compile(r"-aten\.([A-Za-z0-9_]+)(?=\.|$)")


def last_part(type_name: str) -> str:
    """Return a call, a class or a module without what it lies in: "Functional.linear" is "linear"."""
    return type_name.rpartition(".")[2]


@lru_cache(_MOST_REMEMBERED)
def error_model(type_name: str) -> ErrorModel:
    """Say how the errors of its inputs become that of an operator's output: the first model of its names."""
    named = operators_named(snake_case(last_part(type_name)))
    if any(entry.begins_with_norm for entry in named):
        return ErrorModel.NONE  # neither that of the norm, nor that of what follows
    return next((entry.error for entry in named if entry.error), ErrorModel.NONE)


@lru_cache(_MOST_REMEMBERED)
def begins_with_norm(type_name: str) -> bool:
    """Tell whether a module norms what it takes before it does what its kind says."""
    return any(entry.begins_with_norm for entry in operators_named(snake_case(last_part(type_name))))


@lru_cache(_MOST_REMEMBERED)
def is_product(type_name: str) -> bool:
    """Tell whether something multiplies by a matrix, in a format that may be coarser than its dtype."""
    return any(entry.is_product for entry in operators_named(type_name.lower()))


@lru_cache(_MOST_REMEMBERED)
def may_be_product(label: str) -> bool:
    """Tell whether a module whose class is not known may do so, by the last part of its path."""
    name = label.lower()
    return any(word in name for module in registry().modules.values() for word in module.product_words)


@lru_cache(_MOST_REMEMBERED)
def parameter_positions(type_name: str) -> frozenset[str]:
    """Return the keys of the arguments of a call that are weights, as those of `linear(x, weight, bias)`."""
    return frozenset(key for key, role in _roles_of_arguments(type_name).items() if role in PARAMETERS)


def role_of_argument(type_name: str, key: str) -> str:
    """Return what an argument of a call, or a parameter of a module, is ("weight"): its key, if a name."""
    return _roles_of_arguments(type_name).get(key, "") if key.isdigit() else key


@lru_cache(_MOST_REMEMBERED)
def _roles_of_arguments(type_name: str) -> Mapping[str, str]:
    known = _arguments()
    return known.get(type_name.lower()) or known.get(last_part(type_name)) or {}


@cache
def _arguments() -> Mapping[str, Mapping[str, str]]:
    """Return roles by key, by call: a function of torch by its name, others with their framework before."""
    found: dict[str, Mapping[str, str]] = {}
    for entry in registry().operators.values():
        for framework, roles in entry.arguments.items():
            before = "" if framework == "torch" else f"{framework}."
            by_key = {str(at): role for at, role in enumerate(roles)}
            calls = (alias for alias in entry.aliases[framework] if alias.islower())
            found |= {f"{before}{alias}": by_key for alias in calls}
    return found


def embeds(type_name: str) -> bool:
    """Tell whether something is called an embedding: of tokens, or of positions."""
    return any(entry.embeds for entry in operators_named(type_name.lower()))


def is_about_positions(type_name: str) -> bool:
    """Tell whether something is called after positions."""
    return any(entry.of_positions for entry in operators_named(type_name.lower()))


@lru_cache(_MOST_REMEMBERED)
def is_commutative(family: str) -> bool:
    """Tell whether the two arguments of an operator may be exchanged, by its name without library."""
    entry = registry().by_alias.get(family)
    return entry is not None and entry.commutative


def adds_as_well(type_name: str) -> bool:
    """Tell whether something adds a second input to what it is called after."""
    return any(entry.adds_as_well for entry in operators_named(snake_case(type_name)))


def leaves_unwritten(type_name: str) -> bool:
    """Tell whether what a call gives was written by nobody yet."""
    return any(entry.unwritten for entry in _called(type_name))


def overwrites(type_name: str) -> bool:
    """Tell whether a call writes over what its first input holds."""
    return any(entry.overwrites for entry in _called(type_name))


def fills(type_name: str) -> bool:
    """Tell whether a call writes values such as -infinity on purpose."""
    return any(entry.fills for entry in _called(type_name))


@lru_cache(_MOST_REMEMBERED)
def is_dropout(type_name: str) -> bool:
    """Tell whether what is called leaves out numbers by chance, and does nothing else that its name says."""
    named = operators_named(snake_case(last_part(type_name)))
    return bool(named) and all(entry.drops for entry in named)


@lru_cache(_MOST_REMEMBERED)
def drops_elements(type_name: str) -> bool:
    """Tell whether a dropout leaves out each element by itself and scales the others by 1 / (1 - p)."""
    return is_dropout(type_name) and operators_named(snake_case(last_part(type_name)))[0].drops_elements


def is_received(type_name: str) -> bool:
    """Tell whether what a call gives comes from other ranks, if it is one between ranks."""
    return any(entry.receives for entry in _called(type_name))


def message_of(operator: str) -> str:
    """Say what a call exchanges with one other rank: it "sends", "receives", or has "several" messages."""
    entry = registry().by_alias.get(operator)
    return entry.message if entry is not None else ""


def sum_over_ranks(type_name: str) -> str:
    """Say which part of a sum over all ranks each is given: the "whole", a "part", or "" if it is none."""
    entry = registry().by_alias.get(type_name.removeprefix(BETWEEN_RANKS))
    return entry.sum_over_ranks if entry is not None and type_name.startswith(BETWEEN_RANKS) else ""


def runs_after_the_passes(path: str) -> bool:
    """Tell whether an operator runs after the last pass of a step, as the optimizer does."""
    entry = registry().by_alias.get(path)
    return entry is not None and entry.after_passes


def _called(type_name: str) -> tuple[Operator, ...]:
    return operators_named(last_part(type_name))


def calls_only() -> frozenset[str]:
    """Return what operators are called that no module is."""
    return _names_of("call_only", "torch")


@cache
def _names_of(flag: str, framework: str) -> frozenset[str]:
    """Return the names in a framework of all operators with a flag."""
    entries = (entry for entry in registry().operators.values() if getattr(entry, flag))
    return frozenset(alias for entry in entries for alias in entry.aliases.get(framework, ()))


def passes_on(type_name: str) -> bool:
    """Tell whether an operator of a compiled graph gives the values that it takes, arranged otherwise."""
    return type_name in _names_of("passes_on", "ge")


def is_given(type_name: str) -> bool:
    """Tell whether an operator of a compiled graph stands for an input or a constant of it."""
    return type_name in _names_of("is_given", "ge")


def transposes(type_name: str) -> bool:
    """Tell whether an operator of a compiled graph gives what it takes in another order of dimensions."""
    return any(entry.transposes for entry in operators_named(snake_case(type_name)))


def hands_on(fx_node: str) -> bool:
    """Tell whether a node of an FX graph is an operator of aten that gives the values that it takes."""
    known = _names_of("passes_on", "aten")
    return not known.isdisjoint(_ATEN_CALL.findall(fx_node))


_DEVICES: Final = (
    *("cpu", "cuda", "hip", "hpu", "ipu", "lazy", "meta", "mlu"),
    *("mps", "mtia", "musa", "npu", "privateuseone", "vulkan", "xla", "xpu"),
)
"""Types of devices, as PyTorch and its extensions call them."""


def names_device(argument: str) -> bool:
    """Tell whether an argument that is text is a device ("npu:0"), and says nothing of what is computed."""
    kind, _, number = argument.partition(":")
    return kind in _DEVICES and (not number or number.isdigit())
