"""Write the call tree of a tiny, randomly initialised Llama with the model debugger of transformers.

    python tests/interop/write_debug_tree.py out/golden
    python tests/interop/write_debug_tree.py out/target --scale-weight model.layers.1.mlp.down_proj=3
    python tests/interop/write_debug_tree.py out/msprobe --msprobe

The weights and the batch are the same in every call. With `--msprobe`, msprobe dumps the same forward pass.
Needs torch, transformers and mindstudio-probe.
"""

import argparse
import json
import tempfile
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.model_debugging_utils import model_addition_debugger_context


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dump", type=Path, help="directory to write")
    parser.add_argument("--msprobe", action="store_true", help="dump with msprobe in place of transformers")
    parser.add_argument("--text", action="store_true", help="values as text, not as files")
    parser.add_argument("--prune", action="store_true", help="leave out all layers but the first and last")
    parser.add_argument("--scale-weight", metavar="MODULE=FACTOR")
    return parser.parse_args()


def build_model(options: argparse.Namespace) -> LlamaForCausalLM:
    """Make the model from its seed, then plant the fault that was asked for."""
    torch.manual_seed(1234)
    config = LlamaConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
        initializer_range=0.2,
        attn_implementation="eager",
        use_cache=False,
    )
    model = LlamaForCausalLM(config).eval()
    if options.scale_weight:
        module, _, factor = options.scale_weight.rpartition("=")
        with torch.no_grad():
            model.get_submodule(module).weight.mul_(float(factor))
    return model


def run_under_msprobe(model: LlamaForCausalLM, batch: torch.Tensor, dump: Path) -> None:
    """Dump the modules of one forward pass with msprobe."""
    from msprobe.pytorch import PrecisionDebugger

    said = {
        "task": "tensor",
        "dump_path": str(dump.resolve()),
        "rank": [],
        "step": [],
        "level": "L0",
        "tensor": {"scope": [], "list": [], "data_mode": ["forward"]},
    }
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(said), encoding="utf-8")
        debugger = PrecisionDebugger(config_path=str(config))
        debugger.start(model=model)
        with torch.no_grad():
            model(input_ids=batch)
        debugger.stop()
        debugger.step()


def main() -> None:
    """Write the dump that the command line describes."""
    options = parse_arguments()
    model = build_model(options)
    batch = torch.randint(0, 64, (2, 8), generator=torch.Generator().manual_seed(1))
    if options.msprobe:
        run_under_msprobe(model, batch, options.dump)
        return
    with (
        model_addition_debugger_context(
            model, debug_path=str(options.dump), do_prune_layers=options.prune, use_repr=options.text
        ),
        torch.no_grad(),
    ):
        model(input_ids=batch)


if __name__ == "__main__":
    main()
