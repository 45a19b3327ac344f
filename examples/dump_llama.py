"""Write one dump of a tiny, randomly initialised Llama with the real msprobe.

    python examples/dump_llama.py out/golden
    python examples/dump_llama.py out/target --scale-weight model.layers.2.mlp.down_proj=3

The weights and the batch depend on `--seed` alone, so two runs differ only by what was planted.
Needs torch, transformers and mindstudio-probe (`make interop-venv` sets them up).
msprobe keeps one debugger per process: one call of this script writes one dump.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import torch
from msprobe.pytorch import PrecisionDebugger
from transformers import LlamaConfig, LlamaForCausalLM


def named_factor(text: str) -> tuple[str, float]:
    """Read `MODULE=FACTOR`."""
    module, _, factor = text.rpartition("=")
    return module, float(factor)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dump", type=Path, help="directory to write; step0/rank0 is made below it")
    parser.add_argument("--task", choices=["statistics", "tensor"], default="statistics")
    parser.add_argument("--level", choices=["L0", "L1", "mix"], default="mix")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--forward-only", action="store_true", help="leave the backward pass out")
    parser.add_argument("--scale-weight", type=named_factor, metavar="MODULE=FACTOR")
    parser.add_argument("--scale-output", type=named_factor, metavar="MODULE=FACTOR")
    return parser.parse_args()


def build_model(options: argparse.Namespace) -> LlamaForCausalLM:
    """Make the model from its seed, then plant the fault that was asked for."""
    torch.manual_seed(options.seed)
    config = LlamaConfig(
        hidden_size=options.hidden,
        intermediate_size=2 * options.hidden,
        num_hidden_layers=options.layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=128,
        initializer_range=0.2,
        attn_implementation="eager",
        use_cache=False,
    )
    model = LlamaForCausalLM(config).to(getattr(torch, options.dtype))
    if options.scale_weight:
        module, factor = options.scale_weight
        with torch.no_grad():
            model.get_submodule(module).weight.mul_(factor)
    if options.scale_output:
        module, factor = options.scale_output
        scale_output(model.get_submodule(module), factor)
    return model


def scale_output(module: torch.nn.Module, factor: float) -> None:
    """Make a module return `factor` times the right value, as a broken kernel would.

    It is done inside `forward`, so that the dump holds the wrong output and the right inputs and parameters.
    """
    correct = module.forward
    module.forward = lambda *args, **kwargs: correct(*args, **kwargs) * factor


def write_dump(model: LlamaForCausalLM, options: argparse.Namespace) -> None:
    """Run one training step of the model under msprobe."""
    batch = torch.randint(0, 128, (2, 8), generator=torch.Generator().manual_seed(options.seed))
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(msprobe_config(options)), encoding="utf-8")
        debugger = PrecisionDebugger(config_path=str(config))
        debugger.start(model=model, rank_id=0)
        answer = model(input_ids=batch, labels=batch)
        if not options.forward_only:
            answer.loss.backward()
        debugger.stop()
        debugger.step()


def msprobe_config(options: argparse.Namespace) -> dict[str, object]:
    """Say in msprobe's own words what it shall dump."""
    return {
        "task": options.task,
        "dump_path": str(options.dump.resolve()),
        "rank": [],
        "step": [],
        "level": options.level,
        options.task: {
            "scope": [],
            "list": [],
            "data_mode": ["forward"] if options.forward_only else ["all"],
        },
    }


def shorten_paths(dump: Path) -> None:
    """Take this machine's directories out of the dump, so that it is the same wherever it is written.

    Call stacks keep file names from the package on ("transformers/models/...").
    """
    places = sorted(
        {*sys.path, str(Path(__file__).resolve().parent), str(dump.resolve())}, key=len, reverse=True
    )
    for file in dump.rglob("*.json"):
        text = file.read_text(encoding="utf-8")
        for place in filter(None, places):
            text = text.replace(f"{place}/", "")
        file.write_text(text, encoding="utf-8")


def main() -> None:
    """Write the dump that the command line describes."""
    options = parse_arguments()
    write_dump(build_model(options), options)
    shorten_paths(options.dump)


if __name__ == "__main__":
    main()
