"""Write the dumps of `tests/dumps/engines` with the real dumpers of the engines, each of a tiny torch model.

    python tests/interop/write_engine_dumps.py sglang_passes out --sources site-packages

Each writes `out/golden` and `out/target`; in the target one module is off, as said below. `--sources` is a
folder into which the wheels of the engines were unpacked: what their dumpers import of the rest of the
engine is stood in for, the dumpers themselves are theirs.
"""

import argparse
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

FAULTY = "layers.1.mlp.down_proj"
FACTOR = 1.5


def stand_in(name: str, **members: object) -> None:
    """Put a module with these members where an import looks for it."""
    module = ModuleType(name)
    vars(module).update(members)
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    if parent:
        if parent not in sys.modules:
            stand_in(parent)
        setattr(sys.modules[parent], last, module)


def load(name: str, file: Path) -> ModuleType:
    """Load a file of an engine as a module."""
    found = importlib.util.spec_from_file_location(name, file)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module


class Batch:
    """What the engines hand to their models, as far as the dumpers look at it."""

    def __init__(self, ids: torch.Tensor, first: int) -> None:
        self.input_ids = ids
        self.seq_lens = torch.tensor([first + len(ids)])
        self.positions = torch.arange(first, first + len(ids))


class Logits:
    """What the engines' logits processors give."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.next_token_logits = logits


class Norm(nn.Module):
    """The norm of an engine: it adds the residual stream, and gives the sum as well."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(width))

    def forward(self, hidden: torch.Tensor, residual: torch.Tensor | None = None) -> Any:  # noqa: ANN401
        total = hidden if residual is None else hidden + residual
        normed = total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
        return normed if residual is None else (normed, total)


class Mlp(nn.Module):
    """gate and up in one projection, an activation, down."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate_up_proj = nn.Linear(width, 4 * width, bias=False)
        self.down_proj = nn.Linear(2 * width, width, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up_proj(hidden).chunk(2, -1)
        return self.down_proj(torch.nn.functional.silu(gate) * up)


class Layer(nn.Module):
    """Norms and an MLP on a residual stream."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.input_layernorm = Norm(width)
        self.mixer = nn.Linear(width, width, bias=False)
        self.post_attention_layernorm = Norm(width)
        self.mlp = Mlp(width)

    def forward(self, hidden: torch.Tensor, residual: torch.Tensor | None) -> Any:  # noqa: ANN401
        if residual is None:
            normed, residual = self.input_layernorm(hidden), hidden
        else:
            normed, residual = self.input_layernorm(hidden, residual)
        normed, residual = self.post_attention_layernorm(self.mixer(normed), residual)
        return self.mlp(normed), residual


class Body(nn.Module):
    """Embedding, layers, norm."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(3))
        self.norm = Norm(width)

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, batch: Batch) -> torch.Tensor:  # noqa: ARG002
        hidden, residual = self.embed_tokens(ids), None
        for layer in self.layers:
            hidden, residual = layer(hidden, residual)
        return self.norm(hidden, residual)[0]


class LogitsProcessor(nn.Module):
    """Logits of the last token."""

    def forward(self, hidden: torch.Tensor, head: nn.Linear) -> Logits:
        return Logits(hidden[-1:] @ head.weight.T)


class Model(nn.Module):
    """A language model laid out as SGLang's and vLLM's are."""

    def __init__(self, width: int = 16, vocabulary: int = 64) -> None:
        super().__init__()
        self.model = Body(width, vocabulary)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.logits_processor = LogitsProcessor()

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, batch: Batch) -> Logits:
        return self.logits_processor(self.model(ids, positions, batch), self.lm_head)


def build(*, faulty: bool) -> Model:
    """Make the model from its seed; the faulty one is off in one weight."""
    torch.manual_seed(1234)
    model = Model().eval()
    if faulty:
        with torch.no_grad():
            model.model.get_submodule(FAULTY).weight.mul_(FACTOR)
    return model


@torch.no_grad()
def generate(model: Model, passes: int = 3) -> None:
    """Run a prompt of five tokens and a token each after it; the tokens are fixed."""
    sequence = torch.tensor([3, 17, 42, 9, 60, 11, 5])
    done = 0
    for count in (5, *[1] * (passes - 1)):
        batch = Batch(sequence[done : done + count], done)
        model(batch.input_ids, batch.positions, batch)
        done += count


def sglang_passes(out: Path, sources: Path) -> None:
    """`--debug-tensor-dump-output-folder`."""
    stand_in("sglang.srt.layers.logits_processor", LogitsProcessorOutput=Logits)
    stand_in("sglang.srt.model_executor.forward_batch_info", ForwardBatch=Batch, PPProxyTensors=type(None))
    hook = load("hook", sources / "sglang/srt/debug_utils/tensor_dump_forward_hook.py")
    os.getpid = lambda: 4711
    for side in ("golden", "target"):
        model = build(faulty=side == "target")
        hook.register_forward_hook_for_model(model, str(out / side), None, 1, 0, 0)
        generate(model)


WRITERS = {"sglang_passes": sglang_passes}


def main() -> None:
    """Write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dump", choices=WRITERS)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sources", type=Path, default=Path(sys.prefix))
    options = parser.parse_args()
    options.out.mkdir(parents=True)
    WRITERS[options.dump](options.out, options.sources)


if __name__ == "__main__":
    main()
