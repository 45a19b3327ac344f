"""Write the dumps that the benchmarks compare, with the real msprobe.

    python benchmarks/make_dumps.py benchmarks/data/statistics32
    python benchmarks/make_dumps.py benchmarks/data/tensors1750 --tensors

Statistics: 32 layers, about 9,100 rows a side: hidden size 64, modules and operators, forward and backward.
Tensors: 6 layers of hidden size 1,104, in 1,593 files a side, 1.75 GB in both.
In the target the weight of the `down_proj` in the middle is three times what it should be.
Run it with the Python that has msprobe, torch and transformers (`make interop-venv`).
"""

import argparse
import subprocess
import sys
from pathlib import Path

DUMP_LLAMA = Path(__file__).resolve().parent.parent / "examples" / "dump_llama.py"
STATISTICS = ("--layers", "32", "--hidden", "64")
TENSORS = ("--task", "tensor", "--layers", "6", "--hidden", "1104")
FAULT = {
    STATISTICS: ("--scale-weight", "model.layers.16.mlp.down_proj=3"),
    TENSORS: ("--scale-weight", "model.layers.3.mlp.down_proj=3"),
}


def main() -> None:
    """Write `golden` and `target` below the directory given, where they are not there yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--tensors", action="store_true", help="values instead of statistics")
    options = parser.parse_args()
    size = TENSORS if options.tensors else STATISTICS
    for side, fault in (("golden", ()), ("target", FAULT[size])):
        if not (options.directory / side).is_dir():
            command = [sys.executable, DUMP_LLAMA, options.directory / side, *size, *fault]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
