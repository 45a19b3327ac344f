"""The architectures of a sample: what they are called, of which class, and how a tiny one of each is built."""

from dataclasses import dataclass
from typing import Any, Final

import torch
from custom_models import CUSTOM
from shrinking import PIXELS, shrink
from torch import Tensor, nn

TABLE: Final[dict[tuple[str, str], str]] = {
    ("decoder", "AutoModelForCausalLM"): (
        "apertus arcee biogpt bitnet bloom codegen cohere cohere2 cpmant ctrl cwm diffllama doge emu3 ernie4_5 exaone4"
        " falcon gemma gemma2 gemma3_text gemma3n_text gemma4_text glm glm4 gpt2 gpt_bigcode gpt_neo gpt_neox"
        " gpt_neox_japanese gptj granite granite_swa helium hrm_text hunyuan_v1_dense hyperclovax internlm3 iquestcoder"
        " jais2 llama minicpm3 ministral ministral3 mistral modernbert-decoder mpt nanochat nemotron olmo olmo2 olmo3"
        " openai-gpt opt persimmon phi phi3 qwen2 qwen3 seed_oss smollm3 stablelm starcoder2 trocr vaultgemma xglm"
        " youtu xlnet"
    ),
    ("mixture of experts", "AutoModelForCausalLM"): (
        "afmoe aria_text axk1 bailing_hybrid cohere2_moe dbrx deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 dots1"
        " ernie4_5_moe exaone_moe flex_olmo glm4_moe glm4_moe_lite glm_moe_dsa gpt_oss granitemoe granitemoe_swa"
        " granitemoeshared hunyuan_v1_moe hy_v3 jetmoe laguna lfm2_moe llama4_text longcat_flash mellum mimo_v2_flash"
        " minimax minimax_m2 mixtral olmoe phimoe qwen2_moe qwen3_moe solar_open zaya"
    ),
    ("state space", "AutoModelForCausalLM"): (
        "bamba falcon_h1 falcon_mamba granitemoehybrid jamba kimi_linear lfm2 mamba mamba2 nemotron_h olmo_hybrid"
        " qwen3_5_text qwen3_5_moe_text qwen3_next recurrent_gemma rwkv xlstm zamba zamba2"
    ),
    ("encoder", "AutoModelForMaskedLM"): (
        "albert bert big_bird camembert convbert data2vec-text deberta deberta-v2 distilbert electra ernie esm eurobert"
        " flaubert fnet funnel gte ibert layoutlm longformer luke megatron-bert mobilebert modernbert mpnet mra nomic_bert"
        " nystromformer rembert roberta roberta-prelayernorm roc_bert roformer squeezebert tapas xlm xlm-roberta"
        " xlm-roberta-xl xmod yoso"
    ),
    ("encoder", "AutoModel"): "canine lilt markuplm dpr bridgetower splinter",
    ("encoder-decoder", "AutoModelForSeq2SeqLM"): (
        "bart bigbird_pegasus blenderbot blenderbot-small fsmt led longt5 m2m_100 marian mbart mt5 mvp nllb-moe pegasus"
        " pegasus_x plbart prophetnet switch_transformers t5 t5gemma umt5"
    ),
    ("vision", "AutoModelForImageClassification"): (
        "beit bit convnext convnextv2 cvt data2vec-vision deit dinov2 dinov2_with_registers donut-swin efficientnet"
        " focalnet hgnet_v2 hiera ijepa levit mobilenet_v1 mobilenet_v2 mobilevit mobilevitv2 poolformer pp_lcnet pvt"
        " pvt_v2 regnet resnet segformer swiftformer swin swinv2 textnet vit vit_msn"
    ),
    ("vision", "AutoModel"): "clip_vision_model siglip_vision_model dinov3_vit dinov3_convnext vit_mae dpt glpn yolos swin2sr",
    ("audio", "AutoModelForCTC"): (
        "data2vec-audio hubert sew sew-d unispeech unispeech-sat wav2vec2 wav2vec2-bert wav2vec2-conformer wavlm"
        " parakeet_ctc"
    ),
    ("audio", "AutoModelForAudioClassification"): "audio-spectrogram-transformer",
    ("audio", "AutoModelForSpeechSeq2Seq"): "whisper speech_to_text moonshine",
    ("audio", "AutoModel"): "clap_audio_model encodec dac univnet vits mimi",
    ("series", "AutoModel"): "patchtst patchtsmixer autoformer informer time_series_transformer",
    ("diffusion and others", "custom"): " ".join(CUSTOM),
}
_SOUND: Final = {
    "conv_dim": [16, 16, 16],
    "conv_stride": [5, 4, 2],
    "conv_kernel": [10, 4, 3],
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
}
_SWIN: Final = {"image_size": 56, "patch_size": 4, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 7}
_AHEAD: Final = {"prediction_length": 4, "context_length": 8, "lags_sequence": [1, 2, 3], "num_time_features": 2}
_ROPE: Final = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
_ALL_HEADS: Final = {"num_key_value_heads": 4}
OWN_FIELDS: Final[dict[str, dict[str, Any]]] = {
    **dict.fromkeys(
        "axk1 bailing_hybrid deepseek_v2 deepseek_v3 deepseek_v32 glm4_moe_lite glm_moe_dsa kimi_linear minicpm3 youtu"
        " moonshine nemotron".split(),
        _ALL_HEADS,
    ),
    **dict.fromkeys(
        "data2vec-audio hubert sew sew-d unispeech unispeech-sat wav2vec2 wav2vec2-conformer wavlm".split(), _SOUND
    ),
    **dict.fromkeys(("swin", "donut-swin", "swinv2"), _SWIN),
    **dict.fromkeys(("autoformer", "informer", "time_series_transformer"), _AHEAD),
    **dict.fromkeys(("hunyuan_v1_dense", "hunyuan_v1_moe", "ministral"), {**_ROPE, "head_dim": 8}),
    "gemma3n_text": {"intermediate_size": 64, "activation_sparsity_pattern": None, "num_kv_shared_layers": 0},
    "gemma4_text": {"per_layer_config": None},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": 2},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv"]},
    "jamba": {"attn_layer_offset": 1, "attn_layer_period": 2, "layers_block_type": None, "layer_types": None},
    "esm": {"vocab_size": 96, "pad_token_id": 1, "mask_token_id": 2},
    "mobilebert": {"intra_bottleneck_size": 32, "embedding_size": 32, "true_hidden_size": 32, "hidden_size": 32},
    "mpnet": {"relative_attention_num_buckets": 32},
    "xmod": {"default_language": "en_XX"},
    "lilt": {"hidden_size": 48, "intermediate_size": 96},
    "efficientnet": {"width_coefficient": 0.25, "depth_coefficient": 0.2, "hidden_dim": 64},
    "mobilenet_v1": {"depth_multiplier": 0.25},
    "mobilevitv2": {"width_multiplier": 0.25},
    "yolos": {"image_size": [32, 32], "num_detection_tokens": 4, "patch_size": 8},
    "dinov3_vit": {"image_size": 32, "patch_size": 8},
}
_INNER_HEADS: Final = {
    "bamba": ("mamba_n_heads", "mamba_d_head"),
    "falcon_h1": ("mamba_n_heads", "mamba_d_head"),
    "granitemoehybrid": ("mamba_n_heads", "mamba_d_head"),
    "mamba2": ("num_heads", "head_dim"),
}
"""State-space models of which heads times their size must be twice the width."""
MOST_PARAMETERS: Final = 3_500_000


@dataclass(frozen=True)
class Architecture:
    """What is known of an architecture before it is built."""

    name: str
    kind: str
    maker: str

    @property
    def generates(self) -> bool:
        """Whether it can go on word by word, with a cache."""
        return self.maker == "AutoModelForCausalLM"


@dataclass
class Built:
    """A model and what it is given."""

    model: nn.Module
    batch: dict[str, Any]
    architecture: Architecture


def architectures() -> dict[str, Architecture]:
    """Return all architectures by name."""
    return {
        name: Architecture(name, kind, maker)
        for (kind, maker), names in TABLE.items()
        for name in names.split()
    }


def build(architecture: Architecture, seed: int) -> Built:
    """Build a tiny model with random weights and a batch; the same for the same seed."""
    torch.manual_seed(seed)
    if architecture.maker == "custom":
        make, given = CUSTOM[architecture.name]
        built = Built(make(), given(), architecture)
    else:
        model = _from_transformers(architecture, width=(32, 48, 64)[seed % 3])
        built = Built(model, _batch(architecture, model.config), architecture)
    _scatter(built.model)
    built.model.eval()
    return built


def _from_transformers(architecture: Architecture, width: int) -> nn.Module:
    import transformers

    config = transformers.AutoConfig.for_model(architecture.name)
    fields = {**shrink(config.to_dict(), width), **_fields(architecture.name, width)}
    small = type(config).from_dict(fields)
    small._attn_implementation = "eager"  # noqa: SLF001 (what from_config reads)
    maker = getattr(transformers, architecture.maker)
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in maker.from_config(small).parameters())
    if size > MOST_PARAMETERS:
        raise ValueError(f"{size:,} parameters are left")
    return maker.from_config(small)


def _fields(name: str, width: int) -> dict[str, Any]:
    """Return the fields that no rule for all knows, some of them in terms of the width."""
    if name in _INNER_HEADS:
        heads, size = _INNER_HEADS[name]
        return {heads: 8, size: width // 4, "mamba_expand": 2, "expand": 2, "mamba_d_ssm": 2 * width}
    return OWN_FIELDS.get(name, {})


def _scatter(model: nn.Module) -> None:
    """Move what is all ones or all zeros, so that each parameter matters."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1 and parameter.is_floating_point() and len(parameter) > 1:
                parameter += 0.1 * torch.randn_like(parameter)


def _batch(architecture: Architecture, config: Any) -> dict[str, Any]:  # noqa: ANN401
    words = torch.randint(3, 90, (2, 8))
    match architecture.kind:
        case "vision":
            size = getattr(config, "image_size", PIXELS) or PIXELS
            height, wide = size if isinstance(size, list | tuple) else (size, size)
            return {"pixel_values": torch.randn(2, getattr(config, "num_channels", 3), height, wide)}
        case "audio":
            return _sound(architecture.name, config)
        case "encoder-decoder":
            return {"input_ids": words, "decoder_input_ids": torch.randint(3, 90, (2, 6))}
        case "series":
            return _series(architecture.name, config)
        case "encoder":
            mask = torch.ones_like(words)
            mask[1, -2:] = 0
            return {"input_ids": words, "attention_mask": mask}
    return {"input_ids": words}


def _sound(name: str, config: Any) -> dict[str, Any]:  # noqa: ANN401
    words = torch.randint(3, 90, (2, 5))
    if name == "whisper":
        return {"input_features": torch.randn(2, config.num_mel_bins, 2 * config.max_source_positions), "decoder_input_ids": words}
    if name == "speech_to_text":
        return {"input_features": torch.randn(2, 24, config.input_feat_per_channel), "decoder_input_ids": words}
    if name == "moonshine":
        return {"input_values": torch.randn(2, 2000), "decoder_input_ids": words}
    if name == "wav2vec2-bert":
        return {"input_features": torch.randn(2, 12, config.feature_projection_input_dim)}
    if name == "parakeet_ctc":
        return {"input_features": torch.randn(2, 48, config.encoder_config.num_mel_bins)}
    if name == "audio-spectrogram-transformer":
        return {"input_values": torch.randn(2, config.max_length, config.num_mel_bins)}
    if name in {"encodec", "dac", "mimi"}:
        return {"input_values": torch.randn(2, 1, 1000)}
    if name == "vits":
        return {"input_ids": torch.randint(1, 30, (2, 8))}
    return {"input_values": torch.randn(2, 1200)}


def _series(name: str, config: Any) -> dict[str, Any]:  # noqa: ANN401
    if name.startswith("patch"):
        return {"past_values": torch.randn(2, config.context_length, config.num_input_channels)}
    length = config.context_length + max(config.lags_sequence)
    return {
        "past_values": torch.randn(2, length),
        "past_time_features": torch.randn(2, length, config.num_time_features),
        "past_observed_mask": torch.ones(2, length),
        "future_values": torch.randn(2, config.prediction_length),
        "future_time_features": torch.randn(2, config.prediction_length, config.num_time_features),
    }


def output_of(answer: Any) -> Tensor:  # noqa: ANN401
    """Return the tensor that a model answers with: logits, or what comes first."""
    if isinstance(answer, Tensor):
        return answer
    logits = getattr(answer, "logits", None)
    values = [logits] if isinstance(logits, Tensor) else list(answer.values())
    return next(one for one in values if isinstance(one, Tensor) and one.is_floating_point())
