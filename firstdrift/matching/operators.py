"""What an operator or a module does, whatever its framework calls it.

Linear, LinearOperation, LinearRowParallelNoAdd, ColumnParallelLinear, Conv1D (of GPT-2)     linear
GroupedMatmulOperation, integrated_gmm                                              linear of all experts
RmsNormOperation, LlamaRMSNorm, LayerNorm                                                     norm
ElewiseOperation with elewiseType 8, Tensor.__add__                                           add
ActivationOperation with activationType 6                              activation of the gate times the rest
"""

import re
from enum import StrEnum
from functools import lru_cache
from typing import Final

from firstdrift.dumps.dump import Node


class Work(StrEnum):
    """What an operator does."""

    LOOKUP = "lookup"
    POSITIONS = "table of positions"
    NORM = "norm"
    LINEAR = "linear"
    GROUPED = "linear of all experts"
    ROTATE = "rotation by position"
    ATTEND = "attention"
    ACTIVATE = "activation"
    GATE = "activation of the gate times the rest"
    CONVOLVE = "convolution"
    ADD = "add"
    MULTIPLY = "multiply"
    SPLIT = "split"
    REDUCE = "reduction over ranks"
    ROUTE = "routing"
    STORE = "cache"
    OTHER = "other"


CHARACTERISTIC: Final = frozenset(
    {
        Work.LOOKUP,
        Work.NORM,
        Work.LINEAR,
        Work.GROUPED,
        Work.ROTATE,
        Work.ATTEND,
        Work.ACTIVATE,
        Work.GATE,
        Work.CONVOLVE,
    }
)
"""What a model is made of; a module that does one of these things is looked at as a whole."""

_ELEMENTWISE: Final = {"2": Work.MULTIPLY, "8": Work.ADD, "9": Work.MULTIPLY}
"""By `elewiseType` of ATB's ElewiseOperation; the others (casts, quantisation, ...) say nothing."""

_GATING: Final = "6"
"""The `activationType` of ATB's ActivationOperation that multiplies as well: SwiGLU."""

_TABLE: Final = re.compile(r"(rotary|rope|positional).*(embed|gather|table|cache)|cos_?sin|cosine|sine")
_BY_NAME: Final = tuple(
    (work, re.compile(pattern))
    for work, pattern in (
        (Work.STORE, r"reshape_?and_?cache|kv_?cache"),
        (Work.REDUCE, r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast"),
        (Work.ROTATE, r"rope|rotary|rotate"),
        (
            Work.ATTEND,
            r"(self|paged|core|ring|multi_?latent)_?attention|flash_?att|dot_product|fused_?infer",
        ),
        (Work.ROUTE, r"router|top_?k|gating|routing|token_?(un)?permute"),
        (Work.NORM, r"norm"),
        (Work.LOOKUP, r"embedding|gather"),
        (Work.SPLIT, r"split|chunk|slice"),
        (Work.GATE, r"(swi|ge|re)_?glu|(si|ge)_?lu_?and_?mul"),
        (Work.ACTIVATE, r"si_?lu|swish|ge_?lu|re_?lu|activation|softplus|mish"),
        (Work.CONVOLVE, r"conv[23]d|convolution"),
        (Work.GROUPED, r"group(ed)?_?mat_?mul|group(ed)?_?gemm|gmm"),
        (Work.LINEAR, r"linear|dense|lm_?head|gemm|addmm|conv1d"),
    )
)
_OPERATORS: Final = {
    "add": Work.ADD,
    "iadd": Work.ADD,
    "radd": Work.ADD,
    "mul": Work.MULTIPLY,
    "imul": Work.MULTIPLY,
    "rmul": Work.MULTIPLY,
    "matmul": Work.OTHER,
}
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def work_of(node: Node) -> Work:
    """Say what a node does, from its type and from what it was told."""
    if node.type_name.startswith("Elewise"):
        return _ELEMENTWISE.get(_told(node, "elewiseType") or "", Work.OTHER)
    if _is_any_activation(node) and _told(node, "activationType") == _GATING:
        return Work.GATE
    return work_of_type(node.type_name)


def may_gate(node: Node) -> bool:
    """Tell whether an operator may multiply after its activation: nothing says which activation it is."""
    return _is_any_activation(node) and _told(node, "activationType") is None


def _is_any_activation(node: Node) -> bool:
    return node.type_name == "ActivationOperation"


def _told(node: Node, key: str) -> str | None:
    return next((record.scalar for record in node.tensors if record.key == key), None)


@lru_cache(maxsize=4096)
def work_of_type(type_name: str) -> Work:
    """Say what an operator or a module does by its type alone."""
    name = snake_case(type_name.rpartition(".")[2])
    if _TABLE.search(name):
        return Work.POSITIONS
    known = _OPERATORS.get(name.strip("_"))
    if known is not None:
        return known
    return next((work for work, pattern in _BY_NAME if pattern.search(name)), Work.OTHER)


@lru_cache(maxsize=4096)
def snake_case(name: str) -> str:
    """Return a class name in the spelling of operators: "RmsNormOperation" as "rms_norm_operation"."""
    return _HUMP.sub("_", name).lower()
