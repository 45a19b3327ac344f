"""Write the msprobe examples again, from nothing.

    make examples        # or: .venv-interop/bin/python examples/generate.py

Run it with the Python that has msprobe, torch and transformers. `README.md` beside this file says what
each example is.
"""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
STATISTICS = ["--task", "statistics", "--layers", "3"]
TENSOR = ["--task", "tensor", "--level", "L0", "--layers", "3", "--forward-only"]
DUMPS = {
    "msprobe-llama-statistics/golden": STATISTICS,
    "msprobe-llama-statistics/target": [*STATISTICS, "--scale-weight", "model.layers.1.mlp.down_proj=3"],
    "msprobe-llama-tensor/golden": TENSOR,
    "msprobe-llama-tensor/target": [
        *(*TENSOR, "--dtype", "bfloat16"),
        *("--scale-output", "model.layers.1.self_attn.o_proj=1.5"),
    ],
}
PACKED = ("msprobe-llama-tensor/golden", "msprobe-llama-tensor/target")


def write(name: str, options: list[str]) -> None:
    """Write one dump in place of the one that is there."""
    shutil.rmtree(HERE / name, ignore_errors=True)
    subprocess.run([sys.executable, HERE / "dump_llama.py", HERE / name, *options], check=True)


def pack(name: str) -> None:
    """Pack a dump of many small files into the archive that is kept."""
    with tarfile.open(HERE / f"{name}.tar.xz", "w:xz") as archive:
        archive.add(HERE / name, arcname=Path(name).name, filter=without_owner)


def without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out who wrote the file and when."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def main() -> None:
    """Write every dump, then pack those that are kept packed."""
    for name, options in DUMPS.items():
        write(name, options)
    for name in PACKED:
        pack(name)


if __name__ == "__main__":
    main()
