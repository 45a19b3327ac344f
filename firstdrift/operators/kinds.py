"""What an operator or a module does, whatever its framework calls it.

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
from enum import StrEnum
from functools import lru_cache
from math import prod
from typing import Final

from firstdrift.model.node import Node
from firstdrift.model.tensor import Role, TensorRecord, is_floating
from firstdrift.operators.fused import FUSED_NAMES


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
        (Work.CONVOLVE, r"conv[123]d|convolution"),
        (Work.GROUPED, r"group(ed)?_?mat_?mul|group(ed)?_?gemm|gmm"),
        (Work.LINEAR, r"linear|dense|lm_?head|gemm|addmm|conv1_d"),  # Conv1D, which is no Conv1d
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
_UNCLEAR: Final = re.compile(r"drop|quant|mask|bias|index|cache|(^|_)scale")
_BY_LABEL: Final = tuple(
    (work, re.compile(pattern))
    for work, pattern in (
        (Work.POSITIONS, r"(.+_)?rotary(_pos)?_emb(ed|edding)?s?"),
        (Work.NORM, r"(.+_)?([a-z]*norm\d*|normalization)(_.+)?|ln(\d*|_.+)"),
        (Work.LOOKUP, r"(word|tok(en)?|token_type)_embeddings?|embedding|embed_(in|tokens)|wte|wpe"),
        (Work.ATTEND, r"core_att(entio)?n|flash_att(entio)?n|dot_product_attention"),
        (Work.ACTIVATE, r"(.+_)?(act|activation)(\d*|_fn|_func(tion)?)|(silu|swish|gelu|relu)(_impl)?"),
        (Work.LINEAR, r"w[qkvo123]|fc(\d*|_in|_out)|c_fc|lm_head|output_layer|embed_out"),
        (Work.LINEAR, r"(?!act_|.*(conv|relu))(.+_)?(proj|lin|linear|dense)_?\d*|dense_4?h_to_4?h"),
        (Work.LINEAR, r"(?!.*(conv|att))(.+_)?(proj|linear)_.+"),
    )
)
"""What modules do that are called so, by the last part of their names, where nothing else tells."""

_SEVERAL_MEANINGS: Final = re.compile(
    r"[qkvo]|kv|query|key|value|key_value|up|down|proj|out|output|(?!lm_)(.+_)?(gate|head|project(ion)?)"
)
"""Names of linear modules that others bear as well."""

_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def work_of(node: Node) -> Work:
    """Say what a node does, from its type and from what it was told."""
    if node.type_name.startswith("Elewise"):
        return _ELEMENTWISE.get(_told(node, "elewiseType") or "", Work.OTHER)
    if _is_any_activation(node) and _told(node, "activationType") == _GATING:
        return Work.GATE
    return work_of_type(node.type_name) if node.type_name else _work_of_unclassed(node)


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
    is_linear = _SEVERAL_MEANINGS.fullmatch(snake_case(label)) is not None and len(outputs) == 1
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
    if _UNCLEAR.search(name) or _SEVERAL_MEANINGS.fullmatch(name):
        return Work.OTHER
    if name in FUSED_NAMES:
        return Work.LINEAR
    return next((work for work, pattern in _BY_LABEL if pattern.fullmatch(name)), Work.OTHER)


@lru_cache(maxsize=4096)
def snake_case(name: str) -> str:
    """Return a class name in the spelling of operators: "RmsNormOperation" as "rms_norm_operation"."""
    return _HUMP.sub("_", name).lower()
