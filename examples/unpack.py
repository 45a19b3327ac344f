"""Unpack the examples that are kept as archives (thousands of small files), each beside its archive.

    python examples/unpack.py

What is there already stays as it is.
"""

import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def unpack(packed: Path, dump: Path) -> None:
    """Unpack one dump; it appears whole or not at all."""
    with tempfile.TemporaryDirectory(dir=packed.parent, prefix=".unpacking-") as folder:
        with tarfile.open(packed) as archive:
            archive.extractall(folder, filter="data")
        (Path(folder) / dump.name).rename(dump)


def main() -> None:
    """Unpack every archive whose dump is not there yet."""
    for packed in sorted(HERE.glob("*/*.tar.xz")):
        dump = packed.with_name(packed.name.removesuffix(".tar.xz"))
        if not dump.is_dir():
            unpack(packed, dump)


if __name__ == "__main__":
    main()
