"""What a node does, from its class, its weight, its name and its shapes.

Linear, LinearOperation, LinearRowParallelNoAdd, ColumnParallelLinear, Conv1D (of GPT-2)     linear
GroupedMatmulOperation, integrated_gmm                                              linear of all experts
RmsNormOperation, LlamaRMSNorm, LayerNorm                                                     norm
ElewiseOperation with elewiseType 8, Tensor.__add__                                           add
ActivationOperation with activationType 6                              activation of the gate times the rest
GemmaNormEmbeddings, which turns whole numbers into rows of its weight                      lookup

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

from firstdrift.groups import seconds
from firstdrift.model.node import Node
from firstdrift.model.tensor import Role, TensorRecord, is_floating
from firstdrift.operators.kinds import OpKind, snake_case
from firstdrift.operators.registry import operators_named, registry

_ANY_ELEMENTWISE: Final = "Elewise"
_ANY_ACTIVATION: Final = "ActivationOperation"
"""Operators of ATB that do several things: a parameter says which."""

_NORM: Final = OpKind.NORM
"""By itself, as it is asked of every node: Python 3.11 looks up slowly what an enum holds."""


def kind_of(node: Node) -> OpKind:
    """Say what a node does, from its type and from what it was told."""
    if node.type_name.startswith(_ANY_ELEMENTWISE):
        return _told_kinds("elewise_types").get(_told(node, "elewiseType") or "", OpKind.OTHER)
    if node.type_name == _ANY_ACTIVATION:
        told = _told_kinds("activation_types").get(_told(node, "activationType") or "")
        return told or kind_of_type(node.type_name)
    if not node.type_name:
        return _kind_of_unclassed(node)
    kind = kind_of_type(node.type_name)
    return OpKind.LOOKUP if kind is _NORM and _looks_up(node) else kind


def may_gate(node: Node) -> bool:
    """Tell whether an operator may multiply after its activation: nothing says which activation it is."""
    return node.type_name == _ANY_ACTIVATION and _told(node, "activationType") is None


def _told(node: Node, key: str) -> str | None:
    return next((record.scalar for record in node.tensors if record.key == key), None)


@cache
def _told_kinds(key: str) -> dict[str, OpKind]:
    """Return the kinds of operators by what a parameter of ATB says."""
    return {value: entry.kind for entry in registry().operators.values() for value in getattr(entry, key)}


@lru_cache(maxsize=4096)
def kind_of_type(type_name: str) -> OpKind:
    """Say what an operator or a module does by its type alone."""
    name = snake_case(type_name.rpartition(".")[2])
    alias = registry().by_alias.get(name)
    if alias is not None:
        return alias.kind
    kinds = (entry.kind for entry in operators_named(name))
    return next((kind for kind in kinds if kind is not OpKind.OTHER), OpKind.OTHER)


def _kind_of_unclassed(node: Node) -> OpKind:
    """Say what a module does whose class is not known: by its weight, else by its name if its shapes fit."""
    label = node.path.rpartition(".")[2]
    inputs, outputs = _sized(node, Role.INPUT), _sized(node, Role.OUTPUT)
    if not inputs or not outputs:
        return kind_of_label(label)
    taken, given = inputs[0], outputs[0]
    if (weighed := _kind_by_weight(node, taken, given)) is not None:
        return weighed
    is_linear = _is_bare(snake_case(label)) and len(outputs) == 1
    kind = OpKind.LINEAR if is_linear else kind_of_label(label)
    if kind is OpKind.ACTIVATE and _size(taken) == 2 * _size(given):
        return OpKind.GATE
    return kind if _may_do(kind, taken, given) else OpKind.OTHER


def _kind_by_weight(node: Node, taken: TensorRecord, given: TensorRecord) -> OpKind | None:
    """Say what a module does by its weight, if it has one alone."""
    weights = [record for record in _sized(node, Role.PARAMETER) if record.key.endswith("weight")]
    return _kind_of_weight(weights[0].shape or (), taken, given) if len(weights) == 1 else None


def _looks_up(node: Node) -> bool:
    """Tell whether a module turns whole numbers into rows of its weight, whatever its class is called."""
    inputs, outputs = _sized(node, Role.INPUT), _sized(node, Role.OUTPUT)
    if not inputs or not outputs or is_floating(inputs[0].dtype):
        return False
    return _kind_by_weight(node, inputs[0], outputs[0]) is OpKind.LOOKUP


def _sized(node: Node, role: Role) -> list[TensorRecord]:
    """Return the tensors of a role whose shapes are known and no scalars."""
    return [record for record in node.tensors if record.role is role and record.is_tensor and record.shape]


def _kind_of_weight(weight: tuple[int, ...], taken: TensorRecord, given: TensorRecord) -> OpKind | None:
    """Say what is done with a weight, if its shape leaves no doubt."""
    widths = _width(taken), _width(given)
    if len(weight) == 1 and (*weight, *weight) == widths and _may_do(OpKind.NORM, taken, given):
        return OpKind.NORM
    if len(weight) != 2:  # noqa: PLR2004
        return None
    if weight in (widths, widths[::-1]) and _may_do(OpKind.LINEAR, taken, given):
        return OpKind.LINEAR
    is_lookup = not is_floating(taken.dtype) and (*(taken.shape or ()), weight[1]) == given.shape
    return OpKind.LOOKUP if is_lookup else None


def _may_do(kind: OpKind, taken: TensorRecord, given: TensorRecord) -> bool:
    """Tell whether the shapes of what a module takes and gives allow that it does something."""
    if kind is OpKind.LOOKUP:
        return not is_floating(taken.dtype)
    if kind in (OpKind.NORM, OpKind.ACTIVATE):
        return (_size(taken), _width(taken)) == (_size(given), _width(given))
    if kind is OpKind.LINEAR:
        return _size(taken) // _width(taken) == _size(given) // _width(given)
    return True


def _size(record: TensorRecord) -> int:
    return prod(record.shape or ())


def _width(record: TensorRecord) -> int:
    return max(1, (record.shape or (1,))[-1])


@lru_cache(maxsize=4096)
def kind_of_label(label: str) -> OpKind:
    """Say what a module does by the last part of its name alone; `OpKind.OTHER` if that is not clear."""
    name = snake_case(label)
    if _is_bare(name):
        return OpKind.OTHER
    unclear, *patterns = _name_patterns()
    if unclear[1].fullmatch(name):
        return OpKind.OTHER
    known = registry().by_name.get(name)
    if known is not None:
        return known.kind
    return next((kind for kind, pattern in patterns if pattern.fullmatch(name)), OpKind.OTHER)


def is_known_label(label: str) -> bool:
    """Tell whether the last part of a path is what some module of the registry is called."""
    name = snake_case(label)
    patterns = seconds(_name_patterns())
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
def _name_patterns() -> tuple[tuple[OpKind, re.Pattern[str]], ...]:
    """Return what names are like that say what a module does, in the order of the registry."""
    entries = registry().modules.values()
    return tuple((entry.kind, re.compile(entry.names_like)) for entry in entries if entry.names_like)
