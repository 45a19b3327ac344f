"""Write pairs of `tests/dumps/implementations`: Whisper, CLIP and Swin by transformers and by others.

    python tests/interop/write_sound_and_vision.py out

Weights and inputs are the same; `golden` is transformers', `target` that of openai-whisper, open_clip (its
vision tower) or timm. Needs torch, transformers, mindstudio-probe, openai-whisper, open_clip_torch and timm.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from writing import recorded, write_pairs

HIDDEN, HEADS, LAYERS, WORDS, INNER = 48, 4, 2, 120, 192
PROJECTIONS = ("q_proj", "k_proj", "v_proj")

Weights = dict[str, Tensor]


class Pair(NamedTuple):
    """A pair: both models, what they are given, and what is planted into the target."""

    golden: Callable[[], nn.Module]
    target: Callable[[Weights], nn.Module]
    given: Callable[[], tuple[Tensor, ...]]
    plant: Callable[[nn.Module], None] = lambda _: None
    task: str = "statistics"


def whisper_of_transformers() -> nn.Module:
    """Make a small Whisper of transformers."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    sizes = {"layers": LAYERS, "attention_heads": HEADS, "ffn_dim": INNER}
    of_sides = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()}
    words = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = WhisperConfig(
        d_model=HIDDEN,
        vocab_size=WORDS,
        num_mel_bins=8,
        max_source_positions=30,
        max_target_positions=32,
        attn_implementation="eager",
        use_cache=False,
        **of_sides,
        **words,
    )
    model: nn.Module = WhisperForConditionalGeneration(config)
    return model


WHISPER_NAMES = (
    ("encoder.layer_norm", "encoder.ln_post"),
    ("decoder.layer_norm", "decoder.ln"),
    ("embed_positions.weight", "positional_embedding"),
    ("embed_tokens", "token_embedding"),
    ("layers", "blocks"),
    ("encoder_attn_layer_norm", "cross_attn_ln"),
    ("self_attn_layer_norm", "attn_ln"),
    ("final_layer_norm", "mlp_ln"),
    ("encoder_attn", "cross_attn"),
    ("self_attn", "attn"),
    ("q_proj", "query"),
    ("k_proj", "key"),
    ("v_proj", "value"),
    ("out_proj", "out"),
    ("fc1", "mlp.0"),
    ("fc2", "mlp.2"),
)


def whisper_of_openai(weights: Weights) -> nn.Module:
    """Make the same Whisper by its authors' code."""
    from whisper.model import ModelDimensions, MultiHeadAttention, Whisper

    MultiHeadAttention.use_sdpa = False
    sizes = ModelDimensions(8, 30, HIDDEN, HEADS, LAYERS, WORDS, 32, HIDDEN, HEADS, LAYERS)
    renamed = {}
    for name, weight in weights.items():
        new = name.removeprefix("model.")
        for theirs, ours in WHISPER_NAMES:
            new = new.replace(theirs, ours)
        renamed[new] = weight
    model: nn.Module = Whisper(sizes)
    model.load_state_dict({name: renamed[name] for name in model.state_dict()})
    return model


def sound_and_words() -> tuple[Tensor, ...]:
    """Return a spectrogram and the words said so far."""
    dice = torch.Generator().manual_seed(5)
    return torch.randn(2, 8, 60, generator=dice), torch.randint(3, WORDS, (2, 7), generator=dice)


def clip_of_transformers() -> nn.Module:
    """Make a small vision tower of transformers."""
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    config = CLIPVisionConfig(
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        image_size=32,
        patch_size=8,
        projection_dim=24,
        hidden_act="gelu",
        attn_implementation="eager",
    )
    model: nn.Module = CLIPVisionModelWithProjection(config)
    return model


CLIP_NAMES = (
    ("visual_projection.weight", "proj"),
    ("embeddings.class_embedding", "class_embedding"),
    ("embeddings.position_embedding.weight", "positional_embedding"),
    ("embeddings.patch_embedding", "conv1"),
    ("pre_layrnorm", "ln_pre"),
    ("post_layernorm", "ln_post"),
    ("encoder.layers", "transformer.resblocks"),
    ("self_attn.out_proj", "attn.out_proj"),
    ("layer_norm", "ln_"),
    ("mlp.fc1", "mlp.c_fc"),
    ("mlp.fc2", "mlp.c_proj"),
)


def clip_of_open_clip(weights: Weights) -> nn.Module:
    """Make the same vision tower by open_clip."""
    from open_clip.transformer import VisionTransformer

    model: nn.Module = VisionTransformer(32, 8, HIDDEN, LAYERS, HEADS, INNER / HIDDEN, output_dim=24)
    renamed = {}
    for name, weight in weights.items():
        new = name.removeprefix("vision_model.")
        for theirs, ours in CLIP_NAMES:
            new = new.replace(theirs, ours)
        renamed[new] = weight.t() if new == "proj" else weight
    for layer in range(LAYERS):
        attention = f"transformer.resblocks.{layer}"
        for kind in ("weight", "bias"):
            parts = [renamed[f"{attention}.self_attn.{part}.{kind}"] for part in PROJECTIONS]
            renamed[f"{attention}.attn.in_proj_{kind}"] = torch.cat(parts)
    model.load_state_dict({name: renamed[name] for name in model.state_dict()})
    return model


def swin_of_transformers() -> nn.Module:
    """Make a small Swin of transformers, whose second block shifts its windows."""
    from transformers import SwinConfig, SwinForImageClassification

    model: nn.Module = SwinForImageClassification(
        SwinConfig(
            image_size=16,
            patch_size=2,
            embed_dim=8,
            depths=[2, 1],
            num_heads=[2, 2],
            window_size=4,
            num_labels=5,
        )
    )
    return model


SWIN_NAMES = (
    ("embeddings.patch_embeddings.projection", "patch_embed.proj"),
    ("embeddings.norm", "patch_embed.norm"),
    ("encoder.layers.0.downsample", "layers.1.downsample"),
    ("encoder.layers", "layers"),
    ("relative_position_bias.relative_position_bias_table", "relative_position_bias_table"),
    ("attention.o_proj", "attn.proj"),
    ("attention.", "attn."),
    ("layernorm_before", "norm1"),
    ("layernorm_after", "norm2"),
    ("layernorm", "norm"),
    ("classifier", "head.fc"),
)


def swin_of_timm(weights: Weights) -> nn.Module:
    """Make the same Swin by timm, which merges patches at the beginning of a stage."""
    from timm.layers import set_fused_attn
    from timm.models.swin_transformer import SwinTransformer

    set_fused_attn(enable=False)
    model: nn.Module = SwinTransformer(
        16, 2, embed_dim=8, depths=(2, 1), num_heads=(2, 2), window_size=4, num_classes=5
    )
    renamed = {}
    for name, weight in weights.items():
        new = name.removeprefix("swin.")
        for theirs, ours in SWIN_NAMES:
            new = new.replace(theirs, ours)
        renamed[new] = weight
    for name in model.state_dict():
        attention, _, kind = name.partition(".qkv.")
        if kind:
            renamed[name] = torch.cat([renamed[f"{attention}.{part}.{kind}"] for part in PROJECTIONS])
        renamed.setdefault(name, model.state_dict()[name])
    model.load_state_dict({name: renamed[name] for name in model.state_dict()})
    return model


def small_picture() -> tuple[Tensor, ...]:
    """Return a small picture."""
    return (torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(3)),)


def picture() -> tuple[Tensor, ...]:
    """Return two pictures."""
    return (torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(3)),)


def wrong_activation(model: nn.Module) -> None:
    """Let the second block of the encoder activate by another function."""
    model.get_submodule("encoder.blocks.1.mlp.1").forward = functional.silu  # type: ignore[method-assign]


PAIRS = {
    "whisper_healthy": Pair(whisper_of_transformers, whisper_of_openai, sound_and_words),
    "whisper_silu": Pair(whisper_of_transformers, whisper_of_openai, sound_and_words, wrong_activation),
    "clip_healthy": Pair(clip_of_transformers, clip_of_open_clip, picture),
    "swin_healthy": Pair(swin_of_transformers, swin_of_timm, small_picture, task="tensor"),
}


def written(model: nn.Module, given: tuple[Tensor, ...], task: str, dump: str) -> None:
    """Dump statistics of one forward and backward pass, or the values of a forward pass."""
    with recorded(model, dump, task, "mix", "all" if task == "statistics" else "forward"):
        names = ("input_features", "decoder_input_ids") if len(given) > 1 else ("pixel_values",)
        is_of_transformers = type(model).__module__.startswith("transformers")
        answer = model(**dict(zip(names, given, strict=True))) if is_of_transformers else model(*given)
        output = answer if isinstance(answer, Tensor) else answer[0]
        functional.mse_loss(output, torch.full_like(output, 0.3)).backward()


def write_side(name: str, side: str, dump: str) -> None:
    """Write one side of a pair; in a process of its own, for msprobe counts the calls of a process."""
    pair = PAIRS[name]
    torch.manual_seed(3)
    model = pair.golden().eval()
    for weight in model.parameters():
        noise = torch.randn_like(weight)
        weight.data = 1.0 + 0.1 * noise if weight.dim() < 2 else noise / weight[0].numel() ** 0.5
    if side == "target":
        model = pair.target(model.state_dict()).eval()
        pair.plant(model)
    written(model, pair.given(), pair.task, dump)


if __name__ == "__main__":
    write_pairs(__doc__, list(PAIRS), write_side)
