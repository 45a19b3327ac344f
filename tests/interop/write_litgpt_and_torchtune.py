"""Write pairs of `tests/dumps/implementations`: a model of transformers, and the same of litgpt or torchtune.

    python tests/interop/write_litgpt_and_torchtune.py out

Weights and tokens are the same, converted by the engine's own code; `golden` is transformers', in some pairs
`target` has one fault. Needs torch, transformers, mindstudio-probe, litgpt and torchtune (with torchao and
torchvision).
"""

import importlib
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from writing import recorded, write_pairs

HIDDEN, HEADS, GROUPS, LAYERS, WORDS, INNER, LENGTH = 32, 4, 2, 3, 67, 48, 7
WIDTH = HIDDEN // HEADS
ROTATION = {"rope_type": "default", "rope_theta": 10000.0}


class Pair(NamedTuple):
    """A pair: both models, what is planted into the target, and how both are dumped."""

    golden: Callable[[], nn.Module]
    target: Callable[[nn.Module], nn.Module]
    plant: Callable[[Any], None]
    level: str
    task: str
    dtype: torch.dtype = torch.float32
    trained: bool = False


def of_transformers(kind: str, attention: str = "sdpa", **settings: object) -> Callable[[], nn.Module]:
    """Return what makes a model of transformers."""

    def made() -> nn.Module:
        from transformers import AutoConfig, AutoModelForCausalLM

        sizes: dict[str, object] = {
            "vocab_size": WORDS,
            "hidden_size": HIDDEN,
            "num_attention_heads": HEADS,
            "num_key_value_heads": GROUPS,
            "num_hidden_layers": LAYERS,
            "intermediate_size": INNER,
            "max_position_embeddings": 64,
            "rope_parameters": ROTATION,
            "pad_token_id": None,
            "use_cache": False,
            "sliding_window": None,
        }
        config = AutoConfig.for_model(kind, **(sizes | settings))
        model: nn.Module = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
        return model

    return made


def checkpoint(model: Any) -> dict[str, Tensor]:  # noqa: ANN401 (a model of transformers)
    """Return the weights of a model of transformers as its checkpoint has them."""
    from safetensors.torch import load_file

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        files = Path(folder).glob("*.safetensors")
        return {name: weight for path in files for name, weight in load_file(path).items()}


def of_litgpt(name: str, converter: str, **settings: object) -> Callable[[nn.Module], nn.Module]:
    """Return what makes litgpt's model of one of transformers."""

    def made(source: nn.Module) -> nn.Module:
        from litgpt.config import Config
        from litgpt.model import GPT
        from litgpt.scripts import convert_hf_checkpoint

        sizes: dict[str, object] = {
            "n_embd": HIDDEN,
            "n_head": HEADS,
            "n_query_groups": GROUPS,
            "head_size": WIDTH,
            "n_layer": LAYERS,
            "padded_vocab_size": WORDS,
            "intermediate_size": INNER,
            "block_size": 64,
            "rope_base": 10000,
            "sliding_window_size": None,
            "sliding_window_indices": None,
        }
        config = Config.from_name(name, **(sizes | settings))
        convert = getattr(convert_hf_checkpoint, f"copy_weights_{converter}")
        state: dict[str, Tensor] = {}
        before = () if converter == "gemma_2" else (config,)
        convert(*before, {}, state, checkpoint(source))
        model = GPT(config)
        model.load_state_dict(state)
        return model

    return made


def of_torchtune(source: nn.Module) -> nn.Module:
    """Make torchtune's Gemma of that of transformers."""
    made = importlib.import_module("torchtune.models.gemma").gemma(
        vocab_size=WORDS,
        num_layers=LAYERS,
        num_heads=HEADS,
        head_dim=WIDTH,
        num_kv_heads=GROUPS,
        embed_dim=HIDDEN,
        intermediate_dim=INNER,
        max_seq_len=64,
    )
    converted = importlib.import_module("torchtune.models.convert_weights").hf_to_tune(
        checkpoint(source), num_heads=HEADS, num_kv_heads=GROUPS, dim=HIDDEN
    )
    made.load_state_dict(converted)
    model: nn.Module = made
    return model


def healthy(_model: nn.Module) -> None:
    """Plant nothing."""


def other_rotation(model: Any) -> None:  # noqa: ANN401 (a model of litgpt)
    """Let litgpt rotate by another base."""
    model.config.rope_base = 500
    model.reset_parameters()


def scaled_up(model: nn.Module) -> None:
    """Scale one weight of litgpt's that is fused with another in transformers."""
    with torch.no_grad():
        model.get_parameter("transformer.h.1.mlp.fc_2.weight").mul_(1.3)


GEMMA = {"head_dim": WIDTH, "hidden_activation": "gelu_pytorch_tanh"}
PAIRS = {
    "litgpt_mixtral_rope": Pair(
        of_transformers("mixtral", num_local_experts=4, rms_norm_eps=1e-5),
        of_litgpt("Mixtral-8x7B-v0.1", "hf_llama", n_expert=4),
        other_rotation,
        "L0",
        "statistics",
    ),
    "litgpt_gemma2_trained": Pair(
        of_transformers(
            "gemma2",
            "eager",
            **GEMMA,
            tie_word_embeddings=False,
            query_pre_attn_scalar=WIDTH,
            sliding_window=64,
        ),
        of_litgpt("Gemma-2-2b", "gemma_2", attention_scores_scalar=WIDTH, norm_eps=1e-6),
        healthy,
        "L0",
        "statistics",
        trained=True,
    ),
    "litgpt_phi3_up": Pair(
        of_transformers("phi3", rms_norm_eps=1e-5),
        of_litgpt("Phi-3-mini-4k-instruct", "phi"),
        scaled_up,
        "mix",
        "tensor",
    ),
    "torchtune_gemma": Pair(
        of_transformers("gemma", **GEMMA, tie_word_embeddings=True),
        of_torchtune,
        healthy,
        "mix",
        "statistics",
    ),
}


def written(pair: Pair, model: nn.Module, dump: str) -> None:
    """Dump one forward pass, and the backward pass if it is to be."""
    with recorded(model, dump, pair.task, pair.level):
        with torch.set_grad_enabled(pair.trained):
            answer = model(torch.randint(3, WORDS, (1, LENGTH), generator=torch.Generator().manual_seed(7)))
        if pair.trained:
            logits = getattr(answer, "logits", answer).flatten(0, 1)
            functional.cross_entropy(logits, torch.arange(len(logits))).backward()


def write_side(name: str, side: str, dump: str) -> None:
    """Write one side of a pair; in a process of its own, for msprobe counts the calls of a process."""
    pair = PAIRS[name]
    torch.manual_seed(3)
    model = pair.golden().eval()
    around = 0.0 if "Gemma" in type(model).__name__ else 1.0
    for weight in model.parameters():
        # Norms near one, as their own code has it, all else so large that each layer counts.
        noise = torch.randn_like(weight)
        weight.data = around + 0.1 * noise if weight.dim() < 2 else noise / math.sqrt(weight.shape[-1])
    if side == "target":
        model = pair.target(model).eval()
        pair.plant(model)
        model = model.to(pair.dtype)
    written(pair, model, dump)


if __name__ == "__main__":
    write_pairs(__doc__, list(PAIRS), write_side)
