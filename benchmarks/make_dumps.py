"""Write the 32-layer statistics dumps that the benchmark compares, with the real msprobe.

    python benchmarks/make_dumps.py benchmarks/data/statistics32

About 9,100 rows a side: hidden size 64, modules and operators, forward and backward. In the target the
weight of `model.layers.16.mlp.down_proj` is three times what it should be.
Run it with the Python that has msprobe, torch and transformers (`make interop-venv`).
"""

import subprocess
import sys
from pathlib import Path

DUMP_LLAMA = Path(__file__).resolve().parent.parent / "examples" / "dump_llama.py"
FAULT = {"golden": [], "target": ["--scale-weight", "model.layers.16.mlp.down_proj=3"]}


def main() -> None:
    """Write `golden` and `target` below the directory given, where they are not there yet."""
    directory = Path(sys.argv[1])
    for side, fault in FAULT.items():
        if (directory / side).is_dir():
            continue
        size = ["--layers", "32", "--hidden", "64"]
        subprocess.run([sys.executable, DUMP_LLAMA, directory / side, *size, *fault], check=True)


if __name__ == "__main__":
    main()
