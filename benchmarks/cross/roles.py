"""What a module of a known implementation is in its model: the truth that matches are held against.

    model.layers.3.self_attn.q_proj          (3, "q")
    decoder.layers.3.self_attention.linear_qkv   (3, "q+k+v")
    transformer.h.3.attn.proj                (3, "o")

This table is part of the measuring, never of the product: there no name of an implementation stands.
"""

import re
from typing import Final, NamedTuple


class Role(NamedTuple):
    """Which layer a module is in (-1 outside), and what it is; parts of something fused are joined by "+"."""

    layer: int
    parts: frozenset[str]


_LAYER: Final = re.compile(r"(?:^|\.)(?:layers|h|blocks|block)\.(\d+)(?:\.|$)")
_ATTENTION: Final = r"(self_attn|self_attention|attn|attention|layer\.0\.SelfAttention)"
_MLP: Final = r"(mlp|layer\.1\.DenseReluDense)"

_INSIDE: Final = (
    (r"input_layernorm|ln_1|norm_1|sa_norm|ln_attn|layer_norm1|layer\.0\.layer_norm", "norm1"),
    (_ATTENTION, "attention"),
    (_ATTENTION + r"\.(q_proj|q)", "q"),
    (_ATTENTION + r"\.(k_proj|k)", "k"),
    (_ATTENTION + r"\.(v_proj|v)", "v"),
    (_ATTENTION + r"\.(qkv_proj|c_attn|linear_qkv|qkv|query_key_value)", "q+k+v"),
    (_ATTENTION + r"\.(o_proj|c_proj|linear_proj|proj|output_proj|out_proj|dense|o)", "o"),
    (_ATTENTION + r"\.(q_norm|norm_q|q_layernorm)", "q norm"),
    (_ATTENTION + r"\.(k_norm|norm_k|k_layernorm)", "k norm"),
    (
        r"pre_feedforward_layernorm|ln_2|norm_2|mlp_norm|pre_mlp_layernorm|ln_mlp|layer_norm2|layer\.1\.layer_norm",
        "norm2",
    ),
    (r"post_attention_norm|sa_scale", "norm after attention"),
    (r"post_feedforward_layernorm|post_mlp_norm|mlp_scale", "norm after mlp"),
    (_MLP, "mlp"),
    (_MLP + r"\.(gate_proj|fc_1|w1|wi_0)", "gate"),
    (_MLP + r"\.(up_proj|fc_2|w3|wi_1)", "up"),
    (_MLP + r"\.(gate_up_proj|linear_fc1)", "gate+up"),
    (_MLP + r"\.(c_fc|fc|fc1|dense_h_to_4h)", "gate"),
    (_MLP + r"\.(down_proj|w2|proj|c_proj|linear_fc2|fc2|dense_4h_to_h|wo)", "down"),
    (_MLP + r"\.(act_fn|act|activation|activation_fn)", "activation"),
    (r"mlp\.(gate|router)", "router"),
    (r"mlp\.experts", "experts"),
    (r"", "layer"),
)
_OUTSIDE: Final = (
    (
        r"(\w+\.)?(embed_tokens|wte|tok_embeddings|embed_in|token_embedding|word_embeddings)|shared",
        "embedding",
    ),
    (r"(transformer\.)?wpe|embedding\.position_embeddings", "positions"),
    (
        r"(model\.|encoder\.|gpt_neox\.|decoder\.)?(norm|final_layernorm|final_layer_norm|final_norm)|transformer\.ln_f",
        "final norm",
    ),
    (r"lm_head|output_layer|output|embed_out", "head"),
    (r"", "whole"),
)
_GATED: Final = re.compile(r"gated|SiluAndMul|GeluAndMul", re.IGNORECASE)


def role_of(path: str, *, layer: int | None, has_four_norms: bool, gated: bool) -> Role | None:
    """Return what a module is; None where this table does not say.

    Args:
        path: without the wrapper of an exported model.
        layer: that of the module that called it, for modules that layers share.
        has_four_norms: whether a layer norms what attention gives as well, under the second norm's name.
        gated: whether "gate" and "up" are one module of a fused name.
    """
    path = path.removeprefix("m.") if path.startswith("m.") else path
    path = "" if path == "m" else path
    found = _LAYER.search(path)
    table, name, number = _OUTSIDE, path, -1
    if found is not None:
        table, name = _INSIDE, path[found.end() :]
        number = int(found[1]) if layer is None else layer
    if name == "post_attention_layernorm":
        return Role(number, frozenset({"norm after attention" if has_four_norms else "norm2"}))
    role = next((role for pattern, role in table if re.fullmatch(pattern, name)), None)
    if role is None:
        return None
    if role == "gate+up" and not gated:
        role = "gate"
    return Role(number, frozenset(role.split("+")))


def is_gated(type_name: str) -> bool:
    """Tell whether an activation multiplies as well."""
    return _GATED.search(type_name) is not None
