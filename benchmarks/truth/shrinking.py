"""Make any configuration of transformers that of a tiny model, by the names of its fields."""

import re
from typing import Any, Final

WIDTH: Final = 32
HEADS: Final = 4
LAYERS: Final = 3
WORDS: Final = 96
PIXELS: Final = 32

_RULES: Final[tuple[tuple[str, Any], ...]] = (
    (r"(attention|attn|head|key_value|kv|query)_?dim|d_kv|kv_channels|d_head|qk_nope_head_dim|v_head_dim", 8),
    (r"rotary_dim", 4),
    (r".*head_dim", 8),
    (r"head_size", 8),
    (r"(q|kv)_lora_rank", 16),
    (r"num_(key_value|kv|query)_(heads|groups)|num_key_value_heads|num_kv_heads", 2),
    (r".*(attention_heads|num_heads|n_heads?|mamba_n_heads|encoder_heads|decoder_heads)|n_head", HEADS),
    (r"first_k_dense_replace|num_dense_layers|moe_layer_start_index", 1),
    (r"moe_layer_end_index", -1),
    (r"num_nextn_predict_layers|num_mtp_layers", 0),
    (r"(num_)?(hidden_)?layers|.*(num_hidden_layers|n_layers?|_layers|num_layers)", LAYERS),
    (r"(n|num)_groups?|topk_group|n_group|expert_groups|mamba_n_groups|num_expert_group", 1),
    (r".*(num_experts_per_tok|experts_per_token|moe_topk|top_k|moe_k|num_selected_experts)|moe_top_k", 2),
    (r".*(n_routed_experts|num_experts|num_local_experts|moe_num_experts|n_experts)", 4),
    (r".*(n_shared_experts|num_shared_experts|moe_num_shared_experts)", 1),
    (
        r".*(ffn_dim|intermediate_size|intermediate_dim|ffn_hidden_size|d_ff|n_inner|inner_dim|d_inner)",
        2 * WIDTH,
    ),
    (
        r".*(hidden_size|d_model|n_embd|hidden_dim|embed_dim|embedding_size|embedding_dim|emb_dim|model_dim)",
        WIDTH,
    ),
    (
        r"(word_embed_proj_dim|dim|encoder_dim|decoder_dim|projection_dim|attention_hidden_size|lru_width)",
        WIDTH,
    ),
    (r".*vocab_size.*|vocabulary_size", WORDS),
    (
        r"max_(target|source)_positions|max_(length|seq_len|sequence_length)|n_positions|.*max_position_embeddings",
        64,
    ),
    (r"(sliding|local|attention)_window(_size)?|attention_chunk_size", 4),
    (r"image_size|input_size", PIXELS),
    (r"patch_size", 8),
    (r"num_labels", 4),
    (r"num_mel_bins|feature_size|num_mel_bin", 16),
    (r".*(initializer_range|init_std|initializer_factor|init_factor|init_method_std)", 0.1),
    (
        r".*(dropout|dropout_rate|drop_rate|pdrop|dropout_prob|layerdrop|drop_path_rate|drop_path|_drop)|dropout.*",
        0.0,
    ),
    (r".*noise.*|router_jitter.*", 0.0),
    (r"(mamba_)?d_state|state_size|ssm_state_size|mamba_d_state", 8),
    (r"(mamba_)?(num_heads|n_heads)", 8),
    (r"(mamba_)?chunk_size", 4),
    (r"relative_attention_num_buckets|num_buckets|position_buckets", 8),
    (r"(max_relative_position|relative_attention_max_distance|max_relative_positions)", 16),
    (r"(linear_)?num_(key|value)_heads|linear_num_(key|value)_heads", 4),
    (r"linear_(key|value)_head_dim", 8),
)
_LISTS: Final[tuple[tuple[str, tuple[Any, ...]], ...]] = (
    (r"hidden_sizes|encoder_hidden_sizes|embed_dims?|neck_hidden_sizes", (16, 24, 32, 48, 64, 64, 64)),
    (r"depths?|num_encoder_blocks_depths|layer_depths", (1, 1, 1, 1, 1)),
    (r"(num_heads|num_attention_heads)", (2, 2, 4, 4, 4)),
)
_STAGES: Final = {"out_features", "out_indices", "_out_features", "_out_indices", "stage_names"}
"""They name layers that a smaller model has not."""
_TOKEN: Final = re.compile(r".*(token_id|token_index|_token|pad_idx|_idx|_index)s?$")


def shrink(fields: dict[str, Any], width: int = WIDTH) -> dict[str, Any]:
    """Return the fields of a configuration, those of configurations inside it too, with small numbers."""
    small = {name: _field(name, value, width) for name, value in fields.items() if name not in _STAGES}
    layers = next(
        (small[name] for name in ("num_hidden_layers", "num_layers", "n_layer") if name in small), 0
    )
    return {name: _per_layer(name, value, fields[name], layers) for name, value in small.items()}


def _field(name: str, value: Any, width: int) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        is_config = all(isinstance(key, str) for key in value) and not name.startswith(
            ("rope", "id2label", "label2id")
        )
        return shrink(value, width) if is_config else value
    if isinstance(value, list | tuple):
        return _list(name, value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if _TOKEN.fullmatch(name):
        return min(value, WORDS - 3) if value > 0 else value
    for pattern, small in _RULES:
        if re.fullmatch(pattern, name):
            return _smaller(value, small * width // WIDTH if small in {WIDTH, 2 * WIDTH} else small)
    return value


def _smaller(value: float, small: float) -> float:
    if isinstance(small, float):
        return type(value)(small) if small == 0.0 else small
    return min(value, small) if value > 0 else value


def _list(name: str, value: Any) -> Any:  # noqa: ANN401
    for pattern, small in _LISTS:
        if re.fullmatch(pattern, name) and all(isinstance(one, int) for one in value):
            return list(small[: len(value)])
    if _TOKEN.fullmatch(name):
        return [min(one, WORDS - 3) if isinstance(one, int) else one for one in value]
    return value


def _per_layer(name: str, small: Any, given: Any, layers: int) -> Any:  # noqa: ANN401
    """Leave each kind of layer in a list that has an entry for each layer."""
    is_list = re.fullmatch(
        r".*(layer_types|layers_block_type|mlp_layer_types|_per_layer|no_rope_layers|layer_pattern)", name
    )
    if not is_list or not isinstance(given, list) or layers < 1 or len(given) <= layers:
        return small
    kinds = list(dict.fromkeys(str(one) for one in given))
    firsts = [next(one for one in given if str(one) == kind) for kind in kinds][:layers]
    return (given[: layers - len(firsts)] + firsts)[:layers] if len(firsts) > 1 else given[:layers]
