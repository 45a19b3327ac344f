"""What a node does, from its class, its weight, its name and its shapes.

Linear, LinearOperation, LinearRowParallelNoAdd, ColumnParallelLinear, Conv1D (of GPT-2)     linear
GroupedMatmulOperation, integrated_gmm                                              linear of all experts
RmsNormOperation, LlamaRMSNorm, LayerNorm                                                     norm
ElewiseOperation with elewiseType 8, Tensor.__add__                                           add
ActivationOperation with activationType 6                              activation of the gate times the rest

Of a module whose class a dump does not tell, its weight says what it does, else its name, unless the shapes
of what it takes and gives speak against that. Where neither is clear, it is not known.

q_proj, w1, dense_h_to_4h; any that turns 64 columns into 32 by a weight [32, 64]           linear
input_layernorm, ln_1, ffn_norm                                                               norm
proj                                       linear where it gives as many rows as it takes, else not known
"""

import re
from functools import cache, lru_cache
from math import prod
from typing import Final

from firstdrift.model.node import Node
from firstdrift.model.tensor import Role, TensorRecord, is_floating
from firstdrift.operators.kinds import Work, snake_case
from firstdrift.operators.registry import operators_named, registry

_ANY_ELEMENTWISE: Final = "Elewise"
_ANY_ACTIVATION: Final = "ActivationOperation"
"""Operators of ATB that do several things: a parameter says which."""


def work_of(node: Node) -> Work:
    """Say what a node does, from its type and from what it was told."""
    if node.type_name.startswith(_ANY_ELEMENTWISE):
        return _told_kinds("elewise_types").get(_told(node, "elewiseType") or "", Work.OTHER)
    if node.type_name == _ANY_ACTIVATION:
        told = _told_kinds("activation_types").get(_told(node, "activationType") or "")
        return told or work_of_type(node.type_name)
    return work_of_type(node.type_name) if node.type_name else _work_of_unclassed(node)


def may_gate(node: Node) -> bool:
    """Tell whether an operator may multiply after its activation: nothing says which activation it is."""
    return node.type_name == _ANY_ACTIVATION and _told(node, "activationType") is None


def _told(node: Node, key: str) -> str | None:
    return next((record.scalar for record in node.tensors if record.key == key), None)


@cache
def _told_kinds(key: str) -> dict[str, Work]:
    """Return the kinds of operators by what a parameter of ATB says."""
    return {value: entry.kind for entry in registry().operators.values() for value in getattr(entry, key)}


@lru_cache(maxsize=4096)
def work_of_type(type_name: str) -> Work:
    """Say what an operator or a module does by its type alone."""
    name = snake_case(type_name.rpartition(".")[2])
    alias = registry().by_alias.get(name)
    if alias is not None:
        return alias.kind
    kinds = (entry.kind for entry in operators_named(name))
    return next((kind for kind in kinds if kind is not Work.OTHER), Work.OTHER)


def _work_of_unclassed(node: Node) -> Work:
    """Say what a module does whose class is not known: by its weight, else by its name if its shapes fit."""
    label = node.path.rpartition(".")[2]
    inputs, outputs = _sized(node, Role.INPUT), _sized(node, Role.OUTPUT)
    if not inputs or not outputs:
        return work_of_label(label)
    taken, given = inputs[0], outputs[0]
    weights = [record for record in _sized(node, Role.PARAMETER) if record.key.endswith("weight")]
    weighed = _work_of_weight(weights[0].shape or (), taken, given) if len(weights) == 1 else None
    if weighed is not None:
        return weighed
    is_linear = _is_bare(snake_case(label)) and len(outputs) == 1
    work = Work.LINEAR if is_linear else work_of_label(label)
    if work is Work.ACTIVATE and _size(taken) == 2 * _size(given):
        return Work.GATE
    return work if _may_do(work, taken, given) else Work.OTHER


def _sized(node: Node, role: Role) -> list[TensorRecord]:
    """Return the tensors of a role whose shapes are known and no scalars."""
    return [record for record in node.tensors if record.role is role and record.is_tensor and record.shape]


def _work_of_weight(weight: tuple[int, ...], taken: TensorRecord, given: TensorRecord) -> Work | None:
    """Say what is done with a weight, if its shape leaves no doubt."""
    widths = _width(taken), _width(given)
    if len(weight) == 1 and (*weight, *weight) == widths and _may_do(Work.NORM, taken, given):
        return Work.NORM
    if len(weight) != 2:  # noqa: PLR2004
        return None
    if weight in (widths, widths[::-1]) and _may_do(Work.LINEAR, taken, given):
        return Work.LINEAR
    is_lookup = not is_floating(taken.dtype) and (*(taken.shape or ()), weight[1]) == given.shape
    return Work.LOOKUP if is_lookup else None


def _may_do(work: Work, taken: TensorRecord, given: TensorRecord) -> bool:
    """Tell whether the shapes of what a module takes and gives allow that it does something."""
    if work is Work.LOOKUP:
        return not is_floating(taken.dtype)
    if work in (Work.NORM, Work.ACTIVATE):
        return (_size(taken), _width(taken)) == (_size(given), _width(given))
    if work is Work.LINEAR:
        return _size(taken) // _width(taken) == _size(given) // _width(given)
    return True


def _size(record: TensorRecord) -> int:
    return prod(record.shape or ())


def _width(record: TensorRecord) -> int:
    return max(1, (record.shape or (1,))[-1])


@lru_cache(maxsize=4096)
def work_of_label(label: str) -> Work:
    """Say what a module does by the last part of its name alone; `Work.OTHER` if that is not clear."""
    name = snake_case(label)
    if _is_bare(name):
        return Work.OTHER
    unclear, *patterns = _name_patterns()
    if unclear[1].fullmatch(name):
        return Work.OTHER
    known = registry().by_name.get(name)
    if known is not None:
        return known.kind
    return next((kind for kind, pattern in patterns if pattern.fullmatch(name)), Work.OTHER)


def is_known_label(label: str) -> bool:
    """Tell whether the last part of a path is what some module of the registry is called."""
    name = snake_case(label)
    patterns = (pattern for _, pattern in _name_patterns())
    return label in registry().by_name or _is_bare(name) or any(each.fullmatch(name) for each in patterns)


def _is_bare(name: str) -> bool:
    """Tell whether modules that are linear bear a name, and others too."""
    known = registry().by_name.get(name)
    bare = known is not None and name in known.bare_names
    return bare or any(pattern.fullmatch(name) is not None for pattern in _bare_patterns())


@cache
def _bare_patterns() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(entry.bare_like) for entry in registry().modules.values() if entry.bare_like)


@cache
def _name_patterns() -> tuple[tuple[Work, re.Pattern[str]], ...]:
    """Return what names are like that say what a module does, in the order of the registry."""
    entries = registry().modules.values()
    return tuple((entry.kind, re.compile(entry.names_like)) for entry in entries if entry.names_like)
