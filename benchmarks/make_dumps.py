"""Write the dumps that the benchmarks compare, with the real msprobe.

    python benchmarks/make_dumps.py benchmarks/data/statistics32
    python benchmarks/make_dumps.py benchmarks/data/statistics128 --layers 128
    python benchmarks/make_dumps.py benchmarks/data/tensors1750 --tensors

Statistics: 32 layers (or as many as are asked for), about 9,100 rows a side: hidden size 64, modules and
operators, forward and backward.
Tensors: 6 layers of hidden size 1,104, in 1,593 files a side, 1.75 GB in both.
In the target the weight of the `down_proj` in the middle is three times what it should be.
Run it with the Python that has msprobe, torch and transformers (`make interop-venv`).
"""

import argparse
import subprocess
import sys
from pathlib import Path

DUMP_LLAMA = Path(__file__).resolve().parent.parent / "examples" / "dump_llama.py"
STATISTICS = ("--hidden", "64")
TENSORS = ("--task", "tensor", "--hidden", "1104")


def write_dumps(python: Path, folder: Path, *, layers: int, tensors: bool = False) -> Path:
    """Have a Python that has msprobe write dumps, where they are not there yet; return the folder."""
    command = [python, __file__, folder, "--layers", str(layers), *(["--tensors"] if tensors else [])]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


def main() -> None:
    """Write `golden` and `target` below the directory given, where they are not there yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--tensors", action="store_true", help="values of 6 layers instead of statistics")
    parser.add_argument("--layers", type=int, default=32, help="of statistics")
    options = parser.parse_args()
    layers = 6 if options.tensors else options.layers
    size = (*(TENSORS if options.tensors else STATISTICS), "--layers", str(layers))
    fault = ("--scale-weight", f"model.layers.{layers // 2}.mlp.down_proj=3")
    for side, planted in (("golden", ()), ("target", fault)):
        if not (options.directory / side).is_dir():
            command = [sys.executable, DUMP_LLAMA, options.directory / side, *size, *planted]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
