"""Build a tiny model of an architecture, with random weights, and what it is given."""

from dataclasses import dataclass
from typing import Any, Final

import torch
from catalogue import Architecture
from custom_models import CUSTOM
from own_fields import own_fields
from shrinking import PIXELS, shrink
from torch import Tensor, nn

MOST_PARAMETERS: Final = 3_500_000


@dataclass
class Built:
    """A model and what it is given."""

    model: nn.Module
    batch: dict[str, Any]
    architecture: Architecture


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
    fields = {**shrink(config.to_dict(), width), **own_fields(architecture.name, width)}
    small = type(config).from_dict(fields)
    small._attn_implementation = "eager"  # noqa: SLF001 (what from_config reads)
    maker = getattr(transformers, architecture.maker)
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in maker.from_config(small).parameters())
    if size > MOST_PARAMETERS:
        raise ValueError(f"{size:,} parameters are left")
    return maker.from_config(small)


def _scatter(model: nn.Module) -> None:
    """Move what is all ones or all zeros, so that each parameter matters."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1 and parameter.is_floating_point() and len(parameter) > 1:
                parameter.add_(0.1 * torch.randn_like(parameter))


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
    match name:
        case "whisper":
            length = 2 * config.max_source_positions
            return {"input_features": torch.randn(2, config.num_mel_bins, length), "decoder_input_ids": words}
        case "speech_to_text":
            features = torch.randn(2, 24, config.input_feat_per_channel)
            return {"input_features": features, "decoder_input_ids": words}
        case "moonshine":
            return {"input_values": torch.randn(2, 2000), "decoder_input_ids": words}
        case "wav2vec2-bert":
            return {"input_features": torch.randn(2, 12, config.feature_projection_input_dim)}
        case "parakeet_ctc":
            return {"input_features": torch.randn(2, 48, config.encoder_config.num_mel_bins)}
        case "audio-spectrogram-transformer":
            return {"input_values": torch.randn(2, config.max_length, config.num_mel_bins)}
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
