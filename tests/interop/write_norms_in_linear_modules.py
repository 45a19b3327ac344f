"""Write pairs of `tests/dumps/implementations` with a norm inside of the linear layers of the target.

    python tests/interop/write_norms_in_linear_modules.py out

`golden` is a model of transformers. `target` is the same as Megatron-core lays it out where it is built of
TransformerEngine's modules: with their names, classes and parameters, and what they take and give. What they
compute is written here, for the engine itself needs a GPU. Needs torch, transformers and mindstudio-probe.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from writing import recorded, write_pairs

HIDDEN, HEADS, GROUPS, LAYERS, WORDS, INNER, LENGTH, BATCH = 32, 4, 2, 3, 67, 48, 7, 2
WIDTH = HIDDEN // HEADS
LINEAR, LAYER_NORM, RMS_NORM = functional.linear, torch.layer_norm, torch.rms_norm
"""As they are before msprobe wraps them: what runs inside such a module is one kernel, and not recorded."""


class Norm(nn.Module):
    """What the norms of either kind compute."""

    def __init__(self, source: Any) -> None:  # noqa: ANN401 (a norm of transformers)
        super().__init__()
        self.weight = nn.Parameter(source.weight.data.clone())
        if (bias := getattr(source, "bias", None)) is not None:
            self.bias = nn.Parameter(bias.data.clone())
        self.eps = getattr(source, "variance_epsilon", getattr(source, "eps", 0.0))

    def forward(self, x: Tensor) -> Tensor:
        return normed(x, self.weight, getattr(self, "bias", None), self.eps)


class RMSNorm(Norm):
    """The final norm of a Llama."""


class LayerNorm(Norm):
    """The final norm of a GPT-2."""


def normed(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """Divide by the root of the mean square; with a bias, of the deviation from the mean."""
    if bias is None:
        return RMS_NORM(x, x.shape[-1:], weight, eps)
    return LAYER_NORM(x, x.shape[-1:], weight, bias, eps)


class TELayerNormColumnParallelLinear(nn.Module):
    """A norm, and the linear layer after it."""

    def __init__(self, norm: Any, weight: Tensor, bias: Tensor | None, *, hands_on: bool) -> None:  # noqa: ANN401
        super().__init__()
        inner = Norm(norm)
        self.layer_norm_weight, self.eps = inner.weight, inner.eps
        if hasattr(inner, "bias"):
            self.layer_norm_bias = inner.bias
        self.weight, self.hands_on = nn.Parameter(weight.data.clone()), hands_on
        if bias is not None:
            self.bias = nn.Parameter(bias.data.clone())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        bias = getattr(self, "bias", None)
        x = normed(x, self.layer_norm_weight, getattr(self, "layer_norm_bias", None), self.eps)
        given = LINEAR(x, self.weight, None if self.hands_on else bias)
        return given, bias if self.hands_on else None


class TERowParallelLinear(nn.Module):
    """A linear layer that hands its bias on."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.data.clone())
        if bias is not None:
            self.bias = nn.Parameter(bias.data.clone())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        return LINEAR(x, self.weight), getattr(self, "bias", None)


class TEColumnParallelLinear(TERowParallelLinear):
    """The head."""


class IdentityOp(nn.Module):
    """What does nothing, in the place of a norm."""

    def forward(self, x: Tensor, *_given: object, **_named: object) -> Tensor:
        return x


class TEDotProductAttention(nn.Module):
    """Attention as one kernel."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.scale, self.repeat = 1 / math.sqrt(WIDTH), HEADS // groups

    def forward(self, query: Tensor, key: Tensor, value: Tensor, attention_mask: None) -> Tensor:
        del attention_mask
        query, key, value = (one.permute(1, 2, 0, 3) for one in (query, key, value))
        key, value = (one.repeat_interleave(self.repeat, 1) for one in (key, value))
        length = query.shape[2]
        scores = query @ key.transpose(2, 3) * self.scale
        shares = (scores + torch.full((length, length), -math.inf).triu(1)).softmax(-1)
        return (shares @ value).permute(2, 0, 1, 3).reshape(length, query.shape[0], -1)


def rotated(states: Tensor, at: Tensor) -> Tensor:
    """Rotate each head by halves."""
    half = states.shape[-1] // 2
    other = torch.cat([-states[..., half:], states[..., :half]], -1)
    return states * at.cos() + other * at.sin()


class RotaryEmbedding(nn.Module):
    """The angles of all positions."""

    def __init__(self) -> None:
        super().__init__()
        self.base = 10000.0

    def forward(self, length: int) -> Tensor:
        rates = self.base ** (-torch.arange(0, WIDTH, 2).float() / WIDTH)
        angles = torch.outer(torch.arange(length).float(), rates)
        return torch.cat([angles, angles], -1)[:, None, None]


class SelfAttention(nn.Module):
    """Query, key and value in turn by group of heads."""

    def __init__(self, source: Any) -> None:  # noqa: ANN401 (parts of a layer of transformers)
        super().__init__()
        self.groups = source.groups
        self.linear_qkv = TELayerNormColumnParallelLinear(
            source.norm_1, source.qkv_weight, source.qkv_bias, hands_on=False
        )
        self.core_attention = TEDotProductAttention(source.groups)
        self.linear_proj = TERowParallelLinear(source.proj_weight, source.proj_bias)
        self.q_layernorm, self.k_layernorm = IdentityOp(), IdentityOp()

    def forward(self, hidden_states: Tensor, rotary_pos_emb: Tensor | None) -> tuple[Tensor, Tensor | None]:
        mixed, _ = self.linear_qkv(hidden_states)
        mixed = mixed.view(*mixed.shape[:2], self.groups, -1)
        of_group = HEADS // self.groups * WIDTH
        query, key, value = mixed.split([of_group, WIDTH, WIDTH], -1)
        query = self.q_layernorm(query.reshape(*mixed.shape[:2], HEADS, WIDTH))
        key = self.k_layernorm(key)
        if rotary_pos_emb is not None:
            query, key = rotated(query, rotary_pos_emb), rotated(key, rotary_pos_emb)
        return self.linear_proj(self.core_attention(query, key, value, None))


class MLP(nn.Module):
    """Gate and up one after another, or one projection with a bias that is added outside of it."""

    def __init__(self, source: Any) -> None:  # noqa: ANN401
        super().__init__()
        self.gated = source.gated
        self.linear_fc1 = TELayerNormColumnParallelLinear(
            source.norm_2, source.fc1_weight, source.fc1_bias, hands_on=True
        )
        self.linear_fc2 = TERowParallelLinear(source.fc2_weight, source.fc2_bias)
        self.act = functional.silu if source.gated else gelu

    def forward(self, hidden_states: Tensor) -> tuple[Tensor, Tensor | None]:
        given, bias = self.linear_fc1(hidden_states)
        given = given if bias is None else given + bias
        if self.gated:
            gate, up = given.chunk(2, -1)
            return self.linear_fc2(self.act(gate) * up)
        return self.linear_fc2(self.act(given))


def gelu(x: Tensor) -> Tensor:
    """Be GELU as GPT-2 has it."""
    return functional.gelu(x, approximate="tanh")


class TransformerLayer(nn.Module):
    """A layer whose norms are inside of the linear layers."""

    def __init__(self, source: Any) -> None:  # noqa: ANN401
        super().__init__()
        self.input_layernorm, self.pre_mlp_layernorm = IdentityOp(), IdentityOp()
        self.self_attention, self.mlp = SelfAttention(source), MLP(source)
        self.loses = False

    def forward(self, hidden_states: Tensor, rotary_pos_emb: Tensor | None) -> tuple[Tensor, None]:
        given, bias = self.self_attention(self.input_layernorm(hidden_states), rotary_pos_emb=rotary_pos_emb)
        given = given if bias is None else given + bias
        hidden_states = given if self.loses else hidden_states + given
        given, bias = self.mlp(self.pre_mlp_layernorm(hidden_states))
        return hidden_states + (given if bias is None else given + bias), None


class LayerNormMLP(nn.Module):
    """A norm and a gated feed-forward block as one kernel."""

    def __init__(self, source: Any) -> None:  # noqa: ANN401
        super().__init__()
        inner = Norm(source.norm_2)
        self.layer_norm_weight, self.eps = inner.weight, inner.eps
        self.fc1_weight = nn.Parameter(source.fc1_weight.data.clone())
        self.fc2_weight = nn.Parameter(source.fc2_weight.data.clone())

    def forward(self, x: Tensor) -> Tensor:
        gate, up = LINEAR(normed(x, self.layer_norm_weight, None, self.eps), self.fc1_weight).chunk(2, -1)
        return LINEAR(functional.silu(gate) * up, self.fc2_weight)


class WholeLayer(nn.Module):
    """A layer as TransformerEngine has it by itself."""

    def __init__(self, source: Any) -> None:  # noqa: ANN401
        super().__init__()
        self.self_attention, self.layernorm_mlp = SelfAttention(source), LayerNormMLP(source)

    def forward(self, hidden_states: Tensor, rotary_pos_emb: Tensor | None) -> tuple[Tensor, None]:
        hidden_states = hidden_states + self.self_attention(hidden_states, rotary_pos_emb)[0]
        return hidden_states + self.layernorm_mlp(hidden_states), None


class VocabParallelEmbedding(nn.Embedding):
    """The embedding of words."""


class LanguageModelEmbedding(nn.Module):
    """Words, and positions where the model has them, as [sequence, batch, hidden]."""

    def __init__(self, words: Tensor, positions: Tensor | None) -> None:
        super().__init__()
        self.word_embeddings = VocabParallelEmbedding.from_pretrained(words.clone(), freeze=False)
        if positions is not None:
            self.position_embeddings = nn.Embedding.from_pretrained(positions.clone(), freeze=False)
        self.embedding_dropout = nn.Dropout(0.0)

    def forward(self, input_ids: Tensor, position_ids: Tensor) -> Tensor:
        given = self.word_embeddings(input_ids)
        if hasattr(self, "position_embeddings"):
            given = given + self.position_embeddings(position_ids)
        return self.embedding_dropout(given.transpose(0, 1).contiguous())


class TransformerBlock(nn.Module):
    """All layers and the final norm."""

    def __init__(self, layers: list[Any], norm: nn.Module, layer: type[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(map(layer, layers))
        self.final_layernorm = norm

    def forward(self, hidden_states: Tensor, rotary_pos_emb: Tensor | None) -> Tensor:
        for layer in self.layers:
            hidden_states, _ = layer(hidden_states=hidden_states, rotary_pos_emb=rotary_pos_emb)
        return self.final_layernorm(hidden_states)


class GPTModel(nn.Module):
    """The whole model."""

    def __init__(self, source: Any, layer: type[nn.Module]) -> None:  # noqa: ANN401 (what `of_llama` reads)
        super().__init__()
        self.embedding = LanguageModelEmbedding(source.words, source.positions)
        self.decoder = TransformerBlock(source.layers, source.norm, layer)
        if source.positions is None:
            self.rotary_pos_emb = RotaryEmbedding()
        self.output_layer = TEColumnParallelLinear(source.head, None)

    def forward(self, input_ids: Tensor) -> Tensor:
        places = torch.arange(input_ids.shape[1])[None].expand(input_ids.shape)
        hidden = self.embedding(input_ids=input_ids, position_ids=places)
        at = self.rotary_pos_emb(input_ids.shape[1]) if hasattr(self, "rotary_pos_emb") else None
        logits, _ = self.output_layer(self.decoder(hidden_states=hidden, rotary_pos_emb=at))
        return logits.transpose(0, 1).contiguous()


class Parts(NamedTuple):
    """What a layer of transformers has, as Megatron-core lays it out."""

    norm_1: Any
    norm_2: Any
    qkv_weight: Tensor
    qkv_bias: Tensor | None
    proj_weight: Tensor
    proj_bias: Tensor | None
    fc1_weight: Tensor
    fc1_bias: Tensor | None
    fc2_weight: Tensor
    fc2_bias: Tensor | None
    groups: int
    gated: bool


class Source(NamedTuple):
    """What a model of transformers has."""

    words: Tensor
    positions: Tensor | None
    layers: list[Parts]
    norm: nn.Module
    head: Tensor


def by_group(query: Tensor, key: Tensor, value: Tensor, groups: int) -> Tensor:
    """Lay query, key and value in turn for each group of heads."""
    parts = [one.reshape(groups, -1, *one.shape[1:]) for one in (query, key, value)]
    return torch.cat(parts, 1).reshape(-1, *query.shape[1:])


def layer_of_llama(layer: Any) -> Parts:  # noqa: ANN401
    """Read a layer of a Llama, or of a Qwen 2."""
    linear = layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj
    biases = [one.bias for one in linear]
    return Parts(
        layer.input_layernorm,
        layer.post_attention_layernorm,
        by_group(*(one.weight for one in linear), GROUPS),
        None if biases[0] is None else by_group(*biases, GROUPS),
        layer.self_attn.o_proj.weight,
        None,
        torch.cat([layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight]),
        None,
        layer.mlp.down_proj.weight,
        None,
        GROUPS,
        gated=True,
    )


def of_llama(model: Any) -> Source:  # noqa: ANN401
    """Read a Llama."""
    inner = model.model
    layers = [layer_of_llama(layer) for layer in inner.layers]
    return Source(inner.embed_tokens.weight, None, layers, RMSNorm(inner.norm), model.lm_head.weight)


def layer_of_gpt2(layer: Any) -> Parts:  # noqa: ANN401
    """Read a layer of a GPT-2."""
    both = layer.attn.c_attn
    return Parts(
        layer.ln_1,
        layer.ln_2,
        by_group(*both.weight.T.chunk(3), HEADS),
        by_group(*both.bias.chunk(3), HEADS),
        layer.attn.c_proj.weight.T,
        layer.attn.c_proj.bias,
        layer.mlp.c_fc.weight.T,
        layer.mlp.c_fc.bias,
        layer.mlp.c_proj.weight.T,
        layer.mlp.c_proj.bias,
        HEADS,
        gated=False,
    )


def of_gpt2(model: Any) -> Source:  # noqa: ANN401
    """Read a GPT-2."""
    inner = model.transformer
    layers = [layer_of_gpt2(layer) for layer in inner.h]
    return Source(inner.wte.weight, inner.wpe.weight, layers, LayerNorm(inner.ln_f), model.lm_head.weight)


def llama() -> nn.Module:
    """Make a Llama of transformers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=GROUPS, attn_implementation="eager"))


def qwen2() -> nn.Module:
    """Make a Qwen 2 of transformers, whose query, key and value have biases."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    sizes = SIZES | {"num_key_value_heads": GROUPS, "tie_word_embeddings": False}
    return Qwen2ForCausalLM(Qwen2Config(**sizes, attn_implementation="eager"))


def gpt2() -> nn.Module:
    """Make a GPT-2 of transformers."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_embd": HIDDEN, "n_head": HEADS, "n_layer": LAYERS, "n_inner": INNER, "vocab_size": WORDS}
    config = GPT2Config(**sizes, tie_word_embeddings=False, attn_implementation="eager", n_positions=64)
    return GPT2LMHeadModel(config)


SIZES: dict[str, Any] = {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
SIZES |= {"intermediate_size": INNER, "vocab_size": WORDS, "bos_token_id": 1, "eos_token_id": 2}
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], Source]]] = {
    "llama": (llama, of_llama),
    "qwen2": (qwen2, of_llama),
    "gpt2": (gpt2, of_gpt2),
}


def healthy(_model: nn.Module) -> None:
    """Plant nothing."""


def scaled(name: str, factor: float, rows: slice = slice(None)) -> Callable[[nn.Module], None]:
    """Return a fault: rows of one weight times a factor."""

    def plant(model: nn.Module) -> None:
        model.get_parameter(name).data[rows].mul_(factor)

    return plant


class Pair(NamedTuple):
    """A pair: the model, what is planted into the target, and how both are dumped."""

    model: str
    plant: Callable[[Any], None]
    task: str
    level: str = "L0"
    trained: bool = False
    layer: type[nn.Module] = TransformerLayer


PAIRS = {
    "norm_inside_healthy": Pair("llama", healthy, "statistics", trained=True),
    "norm_inside_bias": Pair("gpt2", healthy, "statistics", "mix", trained=True),
    "norm_inside_weight": Pair(
        "llama", scaled("decoder.layers.1.self_attention.linear_qkv.layer_norm_weight", 1.3), "statistics"
    ),
    "norm_inside_mlp": Pair(
        "llama", scaled("decoder.layers.1.layernorm_mlp.fc2_weight", 1.3), "statistics", layer=WholeLayer
    ),
    "norm_inside_gate": Pair(
        "qwen2", scaled("decoder.layers.1.mlp.linear_fc1.weight", 1.3, slice(INNER)), "statistics"
    ),
}


def written(pair: Pair, model: nn.Module, dump: str) -> None:
    """Dump one forward pass, and the backward pass if it is to be."""
    given = torch.randint(3, WORDS, (BATCH, LENGTH), generator=torch.Generator().manual_seed(7))
    with recorded(model, dump, pair.task, pair.level, "all" if pair.trained else "forward"):
        with torch.set_grad_enabled(pair.trained):
            answer = model(given)
        logits = getattr(answer, "logits", answer).flatten(0, 1)
        if pair.trained:
            functional.cross_entropy(logits, torch.arange(len(logits))).backward()


def sides_of(pair: Pair, side: str) -> nn.Module:
    """Make one side of a pair."""
    make, read = MODELS[pair.model]
    torch.manual_seed(3)
    model: Any = make().eval()
    for name, weight in model.named_parameters():
        # Norms near one, all else so large that each layer counts.
        noise = torch.randn_like(weight)
        is_norm = weight.dim() < 2 and name.endswith("weight")
        weight.data = is_norm + 0.1 * noise if weight.dim() < 2 else noise / math.sqrt(weight.shape[-1])
    if side == "target":
        model = GPTModel(read(model), pair.layer).eval()
        pair.plant(model)
    made: nn.Module = model
    return made


def write_side(name: str, side: str, dump: str) -> None:
    """Write one side of a pair; in a process of its own, for msprobe counts the calls of a process."""
    pair = PAIRS[name]
    written(pair, sides_of(pair, side), dump)


if __name__ == "__main__":
    write_pairs(__doc__, list(PAIRS), write_side)
