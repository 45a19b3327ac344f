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
from types import ModuleType, SimpleNamespace
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


def sglang_dumper(out: Path, sources: Path) -> None:
    """`dumper.dump(…, dims=…)`: one rank, against four (tensor parallel by two, context parallel by two)."""
    place = SimpleNamespace()
    for name in ("managers.io_struct", "utils", "distributed", "layers.dp_attention"):
        stand_in(f"sglang.srt.{name}")
    vars(sys.modules["sglang.srt.managers.io_struct"]).update(sock_recv=0, sock_send=0, wrap_as_pickle=0)
    vars(sys.modules["sglang.srt.utils"]).update(get_device=lambda: "cpu")
    dp_attention = {"get_moe_cp_size": lambda: 1, "is_dp_attention_enabled": lambda: False}
    vars(sys.modules["sglang.srt.layers.dp_attention"]).update(dp_attention)
    stand_in("zmq")
    stand_in("sglang.srt.layers.logits_processor", LogitsProcessorOutput=Logits)
    stand_in("sglang.srt.model_executor.forward_batch_info", ForwardBatch=Batch, PPProxyTensors=type(None))
    context = {"get_parallel": lambda: place, "get_server_args": None, "get_serving": None}
    stand_in("sglang.srt.runtime_context", **context)
    module = load("sglang_dumper", sources / "sglang/srt/debug_utils/dumper.py")
    for side, sizes in (("golden", (1, 1)), ("target", (2, 2))):
        for rank in range(sizes[0] * sizes[1]):
            _place(place, module, rank, *sizes)
            config = module.DumperConfig(
                enable=True, dir=str(out), exp_name=side, enable_output_console=False
            )
            _dump_layers(module._Dumper(config=config), place, faulty=side == "target")


def _place(place: SimpleNamespace, module: Any, rank: int, tensor: int, context: int) -> None:  # noqa: ANN401
    module._get_rank = lambda: rank
    module._get_world_size = lambda: tensor * context
    names = ("pp", "moe_ep", "moe_tp", "moe_dp", "attn_tp", "attn_dp")
    vars(place).update(
        {f"{name}_{what}": 1 * (what == "size") for name in names for what in ("rank", "size")}
    )
    vars(place).update(tp_rank=rank % tensor, tp_size=tensor)
    vars(place).update(attn_cp_rank=rank // tensor, attn_cp_size=context)


def _dump_layers(dumper: Any, place: SimpleNamespace, *, faulty: bool) -> None:  # noqa: ANN401
    made = torch.Generator().manual_seed(3)
    hidden = torch.randn(2, 8, 16, generator=made)
    for layer in range(3):
        weights = [torch.randn(16, 16, generator=made) / 4 for _ in range(2)]
        attention = torch.tanh(hidden @ weights[0])
        given = _chunks(_zigzag(attention, place), place)
        dumper.dump("attn_out", given.contiguous(), dims="b s[attn_cp:zigzag] h[tp]", layer_id=layer)
        rows = weights[1].chunk(place.tp_size)[place.tp_rank] * (FACTOR if faulty and layer == 1 else 1)
        dumper.dump("mlp_out", given @ rows, dims="b s[attn_cp:zigzag] h[tp:partial]", layer_id=layer)
        hidden = hidden + attention @ weights[1] * (FACTOR if faulty and layer == 1 else 1)
        told = "b s[attn_cp:zigzag] h # tp:replicated"
        dumper.dump("layer_out", _zigzag(hidden, place).contiguous(), dims=told, layer_id=layer)
    dumper.step()


def _zigzag(whole: torch.Tensor, place: SimpleNamespace) -> torch.Tensor:
    pieces = whole.chunk(2 * place.attn_cp_size, 1)
    return torch.cat([pieces[place.attn_cp_rank], pieces[-1 - place.attn_cp_rank]], 1)


def _chunks(whole: torch.Tensor, place: SimpleNamespace) -> torch.Tensor:
    return whole.chunk(place.tp_size, -1)[place.tp_rank]


def debug_mode(out: Path, _sources: Path) -> None:
    """`DebugMode`, with hashes; a healthy run in another order of summation, and one of `hash_tensor`."""
    from torch.utils._debug_mode import DebugMode

    for side in ("golden", "target", "healthy", "bits"):
        model = build(faulty=side == "target")
        hashes = {"hash_fn": "hash_tensor"} if side == "bits" else {}
        batch = Batch(torch.tensor([3, 17, 42, 9, 60]), 0)
        if side == "healthy":
            torch.backends.mkldnn.enabled = False
            torch.set_num_threads(1)
        with (
            DebugMode(record_nn_module=True) as mode,
            DebugMode.log_tensor_hashes(hash_inputs=True, **hashes),
        ):
            model(batch.input_ids, batch.positions, batch).next_token_logits.sum().backward()
        (out / side).mkdir()
        (out / side / "debug.log").write_text(mode.debug_string())


WRITERS = {"debug_mode": debug_mode, "sglang_passes": sglang_passes, "sglang_dumper": sglang_dumper}


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
