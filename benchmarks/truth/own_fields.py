"""Fields of configurations that no rule for all architectures makes small in the right way."""

from typing import Any, Final

_SOUND: Final = {
    "conv_dim": [16, 16, 16],
    "conv_stride": [5, 4, 2],
    "conv_kernel": [10, 4, 3],
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
}
_SWIN: Final = {
    "image_size": 56,
    "patch_size": 4,
    "embed_dim": 16,
    "depths": [1, 1],
    "num_heads": [2, 2],
    "window_size": 7,
}
_ROPE: Final = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "head_dim": 8}
_ALL_HEADS: Final = {"num_key_value_heads": 4}
_SHARED: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    (
        "axk1 bailing_hybrid deepseek_v3 deepseek_v32 glm4_moe_lite glm_moe_dsa kimi_linear minicpm3",
        _ALL_HEADS,
    ),
    ("youtu nemotron", _ALL_HEADS),
    ("data2vec-audio hubert sew sew-d unispeech unispeech-sat wav2vec2 wav2vec2-conformer wavlm", _SOUND),
    ("swin donut-swin swinv2", _SWIN),
    ("hunyuan_v1_dense hunyuan_v1_moe ministral", _ROPE),
)
_OWN: Final[dict[str, dict[str, Any]]] = {
    "gemma3n_text": {"intermediate_size": 64, "activation_sparsity_pattern": None, "num_kv_shared_layers": 0},
    "gemma4_text": {"per_layer_config": None},
    "gpt_neo": {
        "attention_types": [[["global", "local"], 1]],
        "num_layers": 2,
        "attention_layers": ["global", "local"],
    },
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "deepseek_v2": {**_ALL_HEADS, "num_experts_per_tok": 2, "n_routed_experts": 4},
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv"]},
    "jamba": {"attn_layer_offset": 1, "attn_layer_period": 2},
    "esm": {"vocab_size": 96, "pad_token_id": 1, "mask_token_id": 2},
    "mobilebert": {
        "intra_bottleneck_size": 32,
        "embedding_size": 32,
        "true_hidden_size": 32,
        "hidden_size": 32,
    },
    "mpnet": {"relative_attention_num_buckets": 32},
    "xmod": {"default_language": "en_XX"},
    "lilt": {"hidden_size": 48, "intermediate_size": 96},
    "mobilenet_v1": {"depth_multiplier": 0.25},
    "yolos": {"image_size": [32, 32], "num_detection_tokens": 4, "patch_size": 8},
    "dinov3_vit": {"image_size": 32, "patch_size": 8},
    "moonshine": {"encoder_num_key_value_heads": 4, "decoder_num_key_value_heads": 4},
    "bamba": {"attn_layer_indices": [1]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention", "mamba"]},
    "wav2vec2-bert": {"vocab_size": 96},
    "wav2vec2-conformer": {**_SOUND, "vocab_size": 96},
}
_INNER_HEADS: Final = {
    "bamba": ("mamba_n_heads", "mamba_d_head"),
    "falcon_h1": ("mamba_n_heads", "mamba_d_head"),
    "granitemoehybrid": ("mamba_n_heads", "mamba_d_head"),
    "mamba2": ("num_heads", "head_dim"),
}
"""State-space models of which heads times their size must be twice the width."""


def own_fields(name: str, width: int) -> dict[str, Any]:
    """Return the fields of an architecture that are its own, some of them in terms of the width."""
    fields = dict(_OWN.get(name, {}))
    for names, shared in _SHARED:
        if name in names.split():
            fields = {**shared, **fields}
    if name in _INNER_HEADS:
        heads, size = _INNER_HEADS[name]
        fields |= {heads: 8, size: width // 4, "mamba_expand": 2, "expand": 2, "mamba_d_ssm": 2 * width}
    return fields
