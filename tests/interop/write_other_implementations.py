"""Write the pairs of `tests/dumps/implementations`: a model of transformers, and the same written otherwise.

    python tests/interop/write_other_implementations.py out

Weights and batch are the same; `golden` is transformers', `target` the other code, in some pairs with one
fault. Needs torch, transformers and mindstudio-probe.
"""

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTForImageClassification,
)
from writing import recorded, write_pairs

HIDDEN, HEADS, LAYERS, WORDS, LENGTH = 32, 4, 3, 67, 7
WIDTH = HIDDEN // HEADS


def linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """Make a linear module of a weight [out, in]."""
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    made.weight.data.copy_(weight)
    if bias is not None:
        made.bias.data.copy_(bias)
    return made


def attend(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Attend causally: [batch, heads, sequence, width] each, to [batch, sequence, hidden]."""
    batch, _, length, _ = query.shape
    scores = query @ key.transpose(2, 3) / math.sqrt(WIDTH) * scale
    shares = (scores + torch.full((length, length), -math.inf).triu(1)).softmax(-1)
    return (shares @ value).transpose(1, 2).reshape(batch, length, -1)


def angles(length: int, width: int) -> Tensor:
    """Return the angle of each position and frequency."""
    return torch.outer(torch.arange(length).float(), 10000.0 ** (-torch.arange(0, width, 2).float() / width))


class Scaled(nn.Module):
    """An RMS norm whose weight is called `scale`."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.scale, self.eps = nn.Parameter(norm.weight.data.clone()), norm.variance_epsilon

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


class ComplexAttention(nn.Module):
    """Attention that rotates pairs of neighbours as complex numbers: query and key lie in that order."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        self.wq, self.wk = (linear(in_pairs(one.weight)) for one in (source.q_proj, source.k_proj))
        self.wv, self.wo, self.scale = linear(source.v_proj.weight), linear(source.o_proj.weight), 1.0

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        query, key, value = (one(x).view(*x.shape[:2], -1, WIDTH) for one in (self.wq, self.wk, self.wv))
        turned = (
            torch.view_as_real(torch.view_as_complex(one.reshape(*one.shape[:-1], -1, 2)) * turns).flatten(3)
            for one in (query, key)
        )
        query, key, value = (one.transpose(1, 2) for one in (*turned, value))
        repeated = (one.repeat_interleave(HEADS // one.shape[1], 1) for one in (key, value))
        return self.wo(attend(query, *repeated, self.scale))


def in_pairs(weight: Tensor) -> Tensor:
    """Let the two halves of each head take turns."""
    return weight.view(-1, 2, WIDTH // 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


class FeedForward(nn.Module):
    """A gated MLP, its activation a function."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        self.w1, self.w2, self.w3 = (
            linear(one.weight) for one in (source.gate_proj, source.down_proj, source.up_proj)
        )
        self.act = functional.silu

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(self.act(self.w1(x)) * self.w3(x))


class LlamaBlock(nn.Module):
    """A layer of the Llama below."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        self.attention, self.feed_forward = ComplexAttention(source.self_attn), FeedForward(source.mlp)
        self.attention_norm, self.ffn_norm = (
            Scaled(one) for one in (source.input_layernorm, source.post_attention_layernorm)
        )

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), turns)
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(nn.Module):
    """A Llama with complex rotation and norms of its own class."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        inner = source.model
        self.tok_embeddings, self.norm = deepcopy(inner.embed_tokens), Scaled(inner.norm)
        self.layers = nn.ModuleList(map(LlamaBlock, inner.layers))
        self.output = linear(source.lm_head.weight)

    def forward(self, ids: Tensor) -> Tensor:
        at = angles(ids.shape[1], WIDTH)
        x, turns = self.tok_embeddings(ids), torch.polar(torch.ones_like(at), at)[None, :, None]
        for layer in self.layers:
            x = layer(x, turns)
        return self.output(self.norm(x))


class LatentAttention(nn.Module):
    """Attention by latent states: one linear module leads into those of query, key and value."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        parts = source.q_a_proj, source.kv_a_proj_with_mqa
        self.widths = source.q_lora_rank, source.kv_lora_rank, source.qk_rope_head_dim
        self.of_head, self.scale = (source.qk_nope_head_dim, source.v_head_dim), source.scaling
        self.fused_qkv_a_proj = linear(torch.cat([one.weight for one in parts]))
        self.q_a_layernorm, self.kv_a_layernorm = Scaled(source.q_a_layernorm), Scaled(source.kv_a_layernorm)
        self.q_b_proj, self.kv_b_proj, self.o_proj = (
            linear(one.weight) for one in (source.q_b_proj, source.kv_b_proj, source.o_proj)
        )

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        query, both, turned = self.fused_qkv_a_proj(x).split(self.widths, -1)
        query, both = self.q_a_layernorm(query), self.kv_a_layernorm(both)
        query, both = self.q_b_proj(query), self.kv_b_proj(both)
        width, own = self.widths[2], self.of_head[0]
        query = query.view(*x.shape[:2], HEADS, own + width).transpose(1, 2)
        key, value = both.view(*x.shape[:2], HEADS, -1).transpose(1, 2).split(self.of_head, -1)
        query = torch.cat([query[..., :own], rotated(in_halves(query[..., own:]), at)], -1)
        shared = rotated(in_halves(turned[:, None]), at).expand(-1, HEADS, -1, -1)
        scores = query @ torch.cat([key, shared], -1).transpose(2, 3) * self.scale
        shares = (scores + torch.full(scores.shape[-2:], -math.inf).triu(1)).softmax(-1)
        return self.o_proj((shares @ value).transpose(1, 2).reshape(*x.shape[:2], -1))


def in_halves(states: Tensor) -> Tensor:
    """Lay pairs of neighbours out as two halves."""
    return torch.cat([states[..., ::2], states[..., 1::2]], -1)


class LatentBlock(nn.Module):
    """A layer of the model with latent attention."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        self.attention, self.feed_forward = LatentAttention(source.self_attn), FeedForward(source.mlp)
        self.attention_norm, self.ffn_norm = (
            Scaled(one) for one in (source.input_layernorm, source.post_attention_layernorm)
        )

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), at)
        return x + self.feed_forward(self.ffn_norm(x))


class Latent(nn.Module):
    """A model with latent attention as engines write it."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        inner = source.model
        self.tok_embeddings, self.norm = deepcopy(inner.embed_tokens), Scaled(inner.norm)
        self.layers = nn.ModuleList(map(LatentBlock, inner.layers))
        self.output = linear(source.lm_head.weight)
        self.width = source.config.qk_rope_head_dim

    def forward(self, ids: Tensor) -> Tensor:
        x, at = self.tok_embeddings(ids), angles(ids.shape[1], self.width).repeat(1, 2)
        for layer in self.layers:
            x = layer(x, at)
        return self.output(self.norm(x))


def calls(name: str, **said: str) -> Callable[[Tensor], Tensor]:
    """Return an activation that is called by its name, so that its call is recorded."""
    return lambda x: getattr(functional, name)(x, **said)


class CalledLlama(Llama):
    """A Llama that calls its activation."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__(source)
        for layer in self.layers:
            layer.feed_forward.act = calls("silu")


class TurnedLlama(CalledLlama):
    """The same, with what the feed-forward block holds inside in another order."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__(source)
        for layer in self.layers:
            inner = layer.feed_forward
            for one in (inner.w1, inner.w3):
                one.weight.data = in_pairs(one.weight.data)
            inner.w2.weight.data = in_pairs(inner.w2.weight.data.T).T.contiguous()


class NeoXBlock(nn.Module):
    """A layer with attention and MLP side by side, without modules for either; its sums in another order."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        both = source.attention.query_key_value
        weight, bias = both.weight.view(HEADS, 3, WIDTH, -1), both.bias.view(HEADS, 3, WIDTH)
        self.wq, self.wk, self.wv = (
            linear(weight[:, at].reshape(HIDDEN, -1), bias[:, at].reshape(-1)) for at in range(3)
        )
        self.wo, self.ln1, self.ln2, self.up, self.down = map(
            deepcopy,
            (
                source.attention.dense,
                source.input_layernorm,
                source.post_attention_layernorm,
                source.mlp.dense_h_to_4h,
                source.mlp.dense_4h_to_h,
            ),
        )
        self.act = functional.gelu

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        normed = self.ln1(x)
        query, key, value = (
            one(normed).view(*x.shape[:2], HEADS, WIDTH).transpose(1, 2)
            for one in (self.wq, self.wk, self.wv)
        )
        attended = self.wo(attend(rotated(query, at), rotated(key, at), value, 1.0))
        return x + attended + self.down(self.act(self.up(self.ln2(x))))


def rotated(states: Tensor, at: Tensor) -> Tensor:
    """Rotate the first quarter of each head by halves."""
    turned, kept = states[..., : at.shape[1]], states[..., at.shape[1] :]
    half = at.shape[1] // 2
    other = torch.cat([-turned[..., half:], turned[..., :half]], -1)
    return torch.cat([turned * at.cos() + other * at.sin(), kept], -1)


class NeoX(nn.Module):
    """A GPT-NeoX with query, key and value apart."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        inner = source.gpt_neox
        self.embed, self.ln_f = deepcopy(inner.embed_in), deepcopy(inner.final_layer_norm)
        self.blocks, self.unembed = nn.ModuleList(map(NeoXBlock, inner.layers)), linear(source.lm_head.weight)

    def forward(self, ids: Tensor) -> Tensor:
        x, at = self.embed(ids), angles(ids.shape[1], WIDTH // 4).repeat(1, 2)
        for block in self.blocks:
            x = block(x, at)
        return self.unembed(self.ln_f(x))


class CalledNeoX(NeoX):
    """The same calling its activation."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__(source)
        for block in self.blocks:
            block.act = calls("gelu")


class FusedAttention(nn.Module):
    """Attention of images with one linear module for query, key and value."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        parts = source.q_proj, source.k_proj, source.v_proj
        self.qkv = linear(*(torch.cat([getattr(one, name) for one in parts]) for name in ("weight", "bias")))
        self.proj = deepcopy(source.o_proj)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(x).reshape(*x.shape[:2], 3, HEADS, WIDTH).permute(2, 0, 3, 1, 4)
        return self.proj(functional.scaled_dot_product_attention(*parts).transpose(1, 2).reshape(x.shape))


class Mlp(nn.Module):
    """An MLP whose activation is a module."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        self.fc1, self.act, self.fc2 = deepcopy(source.fc1), nn.GELU(), deepcopy(source.fc2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x)))


class ImageBlock(nn.Module):
    """A layer of the ViT below."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        self.norm1, self.norm2 = deepcopy(source.layernorm_before), deepcopy(source.layernorm_after)
        self.attn, self.mlp = FusedAttention(source.attention), Mlp(source.mlp)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Patches(nn.Module):
    """Turns the patches of an image into vectors."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        self.proj = deepcopy(source)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x).flatten(2).transpose(1, 2)


class ImageTransformer(nn.Module):
    """A ViT that adds its positions itself."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        inner = source.vit
        self.first = nn.Parameter(inner.embeddings.cls_token.data.clone())
        self.positions = nn.Parameter(inner.embeddings.position_embeddings.data.clone())
        self.patch_embed = Patches(inner.embeddings.patch_embeddings.projection)
        self.blocks = nn.Sequential(*map(ImageBlock, inner.layers))
        self.norm, self.head = deepcopy(inner.layernorm), deepcopy(source.classifier)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patch_embed(images)
        x = torch.cat([self.first.expand(len(patches), -1, -1), patches], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


class JoinedAttention(nn.MultiheadAttention):
    """Attention of images whose weights of query, key and value are one parameter."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__(HIDDEN, HEADS, batch_first=True)
        parts = source.q_proj, source.k_proj, source.v_proj
        self.in_proj_weight.data = torch.cat([one.weight.data for one in parts])
        self.in_proj_bias.data = torch.cat([one.bias.data for one in parts])
        self.out_proj.load_state_dict(source.o_proj.state_dict())

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x, x, x, need_weights=False)[0]


class JoinedImageTransformer(ImageTransformer):
    """A ViT whose attention is that of the library."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__(source)
        for block, layer in zip(self.blocks, source.vit.layers, strict=True):
            block.attn = JoinedAttention(layer.attention)


class ImageLayer(nn.Module):
    """Two convolutions and what goes past them."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        first, second = source.layer
        self.conv1, self.bn1 = deepcopy(first.convolution), deepcopy(first.normalization)
        self.conv2, self.bn2 = deepcopy(second.convolution), deepcopy(second.normalization)
        past = source.shortcut
        parts = (past.convolution, past.normalization) if hasattr(past, "convolution") else ()
        self.relu, self.downsample = nn.ReLU(), nn.Sequential(*map(deepcopy, parts))

    def forward(self, x: Tensor) -> Tensor:
        made = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(made + (self.downsample(x) if len(self.downsample) else x))


class ResNet(nn.Module):
    """A ResNet without stages of its own."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        first = source.resnet.embedder.embedder
        self.conv1, self.bn1 = deepcopy(first.convolution), deepcopy(first.normalization)
        self.relu, self.maxpool, self.avgpool = nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.AdaptiveAvgPool2d(1)
        stages = source.resnet.encoder.stages
        self.layer1, self.layer2 = (nn.Sequential(*map(ImageLayer, stage.layers)) for stage in stages)
        self.fc = deepcopy(source.classifier[1])

    def forward(self, images: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        return self.fc(torch.flatten(self.avgpool(self.layer2(self.layer1(x))), 1))


def scaled(name: str, factor: float) -> Callable[[nn.Module], None]:
    """Return a fault: one weight times a factor."""

    def plant(model: nn.Module) -> None:
        model.get_parameter(name).data.mul_(factor)

    return plant


def rows_scaled(name: str, rows: slice, factor: float) -> Callable[[nn.Module], None]:
    """Return a fault: some rows of a weight times a factor."""

    def plant(model: nn.Module) -> None:
        model.get_parameter(name).data[rows].mul_(factor)

    return plant


def ones(name: str) -> Callable[[nn.Module], None]:
    """Return a fault: one weight was not loaded."""

    def plant(model: nn.Module) -> None:
        model.get_parameter(name).data.fill_(1.0)

    return plant


def activated(name: str, activation: Callable[[Tensor], Tensor]) -> Callable[[nn.Module], None]:
    """Return a fault: another activation."""

    def plant(model: nn.Module) -> None:
        model.get_submodule(name).act = activation

    return plant


def healthy(_: nn.Module) -> None:
    """Plant nothing."""


SIZES = {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
SIZES |= {"intermediate_size": 56, "attn_implementation": "eager"}
QUERY, BOTH = 20, 12
LATENT = {"q_lora_rank": QUERY, "kv_lora_rank": BOTH, "first_k_dense_replace": LAYERS}
LATENT |= {"qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "num_key_value_heads": HEADS}
OF_WORDS = {"vocab_size": WORDS, "bos_token_id": 1, "eos_token_id": 2}


def llama() -> nn.Module:
    """Make a Llama."""
    return LlamaForCausalLM(LlamaConfig(**SIZES, **OF_WORDS, num_key_value_heads=2))


def tied() -> nn.Module:
    """Make a Llama whose head has the weight of the embedding; the other code has a copy of it."""
    return LlamaForCausalLM(LlamaConfig(**SIZES, **OF_WORDS, num_key_value_heads=2, tie_word_embeddings=True))


def neox() -> nn.Module:
    """Make a GPT-NeoX."""
    return GPTNeoXForCausalLM(GPTNeoXConfig(**SIZES, **OF_WORDS))


MODELS: dict[str, tuple[Callable[[], nn.Module], type[nn.Module], bool]] = {
    "llama": (llama, Llama, False),
    "llama_tied": (tied, Llama, False),
    "llama_called": (llama, CalledLlama, False),
    "llama_turned": (llama, TurnedLlama, False),
    "latent": (
        lambda: DeepseekV3ForCausalLM(DeepseekV3Config(**SIZES, **OF_WORDS, **LATENT)),
        Latent,
        False,
    ),
    "neox": (neox, NeoX, False),
    "neox_called": (neox, CalledNeoX, False),
    "vit": (
        lambda: ViTForImageClassification(ViTConfig(**SIZES, image_size=16, patch_size=4)),
        ImageTransformer,
        True,
    ),
    "vit_joined": (
        lambda: ViTForImageClassification(ViTConfig(**SIZES, image_size=16, patch_size=4)),
        JoinedImageTransformer,
        True,
    ),
    "resnet": (
        lambda: ResNetForImageClassification(
            ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[2, 2], layer_type="basic")
        ),
        ResNet,
        True,
    ),
}
KEY = slice(HIDDEN, 2 * HIDDEN)
"""The rows of the key in a weight of query, key and value."""
DOWN = "layers.1.attention.fused_qkv_a_proj.weight"
PAIRS: dict[str, tuple[str, Callable[[nn.Module], None], str, str]] = {
    "llama_healthy": ("llama", healthy, "mix", "statistics"),
    "llama_healthy_values": ("llama", healthy, "mix", "tensor"),
    "llama_gradients": ("llama", healthy, "L0", "tensor"),
    "llama_tied_gradients": ("llama_tied", healthy, "mix", "statistics"),
    "llama_wo": ("llama", scaled("layers.1.attention.wo.weight", 1.3), "mix", "statistics"),
    "llama_norm": ("llama", ones("layers.1.ffn_norm.scale"), "L0", "statistics"),
    "llama_called": ("llama_called", healthy, "mix", "statistics"),
    "llama_called_gelu": (
        "llama_called",
        activated("layers.1.feed_forward", calls("gelu")),
        "mix",
        "statistics",
    ),
    "llama_turned_relu": ("llama_turned", activated("layers.1.feed_forward", calls("relu")), "mix", "tensor"),
    "neox_called": ("neox_called", healthy, "mix", "statistics"),
    "neox_called_tanh": (
        "neox_called",
        activated("blocks.1", calls("gelu", approximate="tanh")),
        "mix",
        "statistics",
    ),
    "latent_healthy": ("latent", healthy, "L0", "tensor"),
    "latent_query": ("latent", rows_scaled(DOWN, slice(QUERY), 1.3), "L0", "tensor"),
    "latent_both": ("latent", rows_scaled(DOWN, slice(QUERY, None), 1.3), "L0", "tensor"),
    "neox_healthy": ("neox", healthy, "mix", "statistics"),
    "neox_down": ("neox", scaled("blocks.1.down.weight", 1.3), "mix", "statistics"),
    "vit_healthy": ("vit", healthy, "mix", "statistics"),
    "resnet_healthy": ("resnet", healthy, "mix", "statistics"),
    "resnet_conv": ("resnet", scaled("layer2.0.conv1.weight", 1.3), "L0", "statistics"),
    "vit_fused_key": ("vit", rows_scaled("blocks.1.attn.qkv.weight", KEY, 1.3), "L0", "tensor"),
    "vit_joined": ("vit_joined", healthy, "L0", "tensor"),
    "vit_joined_key": ("vit_joined", rows_scaled("blocks.1.attn.in_proj_weight", KEY, 1.3), "L0", "tensor"),
    "vit_patches": ("vit", scaled("patch_embed.proj.weight", 1.1), "L0", "statistics"),
}
"""By name: the model, what is planted, and msprobe's level and task."""
TRAINED = "gradients"
"""How the names of pairs end that have a backward pass."""


def written(model: nn.Module, given: Tensor, dump: str, level: str, task: str, *, trained: bool) -> None:
    """Dump one forward pass, and the backward pass if it is to be."""
    with recorded(model, dump, task, level):
        with torch.set_grad_enabled(trained):
            answer = model(given)
        if trained:
            logits = getattr(answer, "logits", answer).flatten(0, 1)
            functional.cross_entropy(logits, torch.arange(len(logits))).backward()


def write_side(name: str, side: str, dump: str) -> None:
    """Write one side of a pair; in a process of its own, for msprobe counts the calls of a process."""
    kind, plant, level, task = PAIRS[name]
    make, other, is_of_images = MODELS[kind]
    torch.manual_seed(3)
    model: Any = make().eval()
    for weight in model.parameters():
        # Norms near one, all else so large that each layer counts.
        weight.data = (
            1 + 0.1 * torch.randn_like(weight)
            if weight.dim() < 2
            else torch.randn_like(weight) / math.sqrt(weight[0].numel())
        )
    given = torch.randn(2, 3, 16, 16) if is_of_images else torch.randint(3, WORDS, (2, LENGTH))
    if side == "target":
        model = other(model).eval()
        plant(model)
    written(model, given, dump, level, task, trained=name.endswith(TRAINED))


if __name__ == "__main__":
    write_pairs(__doc__, list(PAIRS), write_side)
