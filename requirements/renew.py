"""Write the lists beside this file anew: `make pins`, after constraints.txt or pyproject.toml changed.

    constraints.txt, pyproject.toml ──uv──▶ run.txt  scale.txt  dev.txt  torch.txt  cuda.txt
                          pip-audit ──uv──▶ tools/audit.txt, for an environment of its own
                            wheels ──▶ torch-cpu.txt

The hashes are those of all files that the package index has of a version, so that one list serves every
system and every Python. PyTorch's CPU builds are on few indexes: their wheels are named, and their hashes
added to those that are known of the same version.
"""

import hashlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent
BUILD = "hatchling", "editables"
"""They build firstdrift; installed beforehand, so that no build fetches them unchecked."""
SAID = {
    "run.txt": "What firstdrift needs to be built and to run, but for PyTorch.",
    "scale.txt": "What PostgreSQL and a Dask cluster need besides.",
    "dev.txt": "What its tests and checks need besides.",
    "torch-cpu.txt": "PyTorch's CPU build, which is taken where the package index has it.",
    "torch.txt": "PyTorch as every package index has it.",
    "cuda.txt": "What a PyTorch with CUDA needs besides; the CPU build needs nothing of it.",
    "uv.txt": "What writes these files.",
}


def packages_of(text: str) -> dict[str, str]:
    """Split a requirements file into its packages: name and lines."""
    blocks = re.findall(r"^[a-z0-9][^\n]*(?:\n    --hash=[^\n]*)*", text, re.MULTILINE)
    return {re.split("==", block)[0]: block for block in blocks}


def is_for_cuda(block: str) -> bool:
    """Tell what only PyTorch asks for, where there may be CUDA: nothing else is for Linux alone."""
    return "sys_platform == 'linux'" in block.partition("\n")[0]


def cpu_builds(torch: str, before: str, wheels: Sequence[Path]) -> str:
    """List the CPU builds of a version of PyTorch: those known before, and further wheels."""
    first = f"{torch.partition(' ')[0]}+cpu"
    known = re.findall(r"sha256:[0-9a-f]{64}", before) if before.startswith(f"{first} ") else []
    hashes = sorted({*known, *map(digest, wheels)})
    return " \\\n".join([first, *(f"    --hash={one}" for one in hashes)])


def digest(wheel: Path) -> str:
    """Return the hash of a file as requirements files write it."""
    with wheel.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def compiled(uv: str, *arguments: str, known: str) -> dict[str, str]:
    """Let uv choose versions for every system, and list the hashes of their files."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, written = Path(folder, "wanted.in"), Path(folder, "written.txt")
        wanted.write_text("\n".join([*BUILD, "uv", ""]), "utf-8")
        written.write_text(known, "utf-8")  # what is not in constraints.txt stays as it was
        command = [uv, "pip", "compile", "--quiet", "--universal", "--generate-hashes", "--no-header"]
        command += ["--no-annotate", "--python-version", "3.11", "--constraints", "constraints.txt"]
        command += ["--output-file", str(written), *arguments, "pyproject.toml", str(wanted)]
        subprocess.run(command, cwd=PROJECT, check=True)
        return packages_of(written.read_text("utf-8"))


def renew_audit(uv: str) -> None:
    """Write the list of what audits the others; the newest versions are wanted, whatever firstdrift needs."""
    file = HERE / "tools" / "audit.txt"
    command = [uv, "pip", "compile", "--quiet", "--universal", "--generate-hashes", "--no-header"]
    command += ["--upgrade", "--no-annotate", "--python-version", "3.11", "--output-file", str(file), "-"]
    subprocess.run(command, cwd=PROJECT, input="pip-audit\n", text=True, check=True)
    head = "# What audits these files: `make audit`. Written by `make pins`: do not edit.\n"
    file.write_text(head + file.read_text("utf-8"), "utf-8", newline="\n")


def list_of(name: str, needed: Collection[str], scale: Collection[str]) -> str:
    """Say in which list a package stands."""
    if name in needed:
        return "run.txt"
    return "scale.txt" if name in scale else "dev.txt"


def main(uv: str, wheels: Sequence[Path]) -> None:
    """Write all files."""
    before = {name: (HERE / name).read_text("utf-8") for name in SAID if (HERE / name).exists()}
    known = "\n".join(text for name, text in before.items() if name != "torch-cpu.txt")
    everything = compiled(uv, "--all-extras", known=known)
    needed = compiled(uv, known=known).keys()
    scale = compiled(uv, "--extra", "cluster", "--extra", "postgres", known=known).keys()
    cpu = packages_of(before.get("torch-cpu.txt", "")).get("torch", "")
    files: dict[str, list[str]] = {name: [] for name in SAID}
    files["torch-cpu.txt"].append(cpu_builds(everything["torch"], cpu, wheels))
    for name, block in everything.items():
        if name in {"torch", "uv"}:
            files[f"{name}.txt"].append(block)
        elif is_for_cuda(block):
            files["cuda.txt"].append(block)
        else:
            files[list_of(name, needed, scale)].append(block)
    for name, blocks in files.items():
        head = f"# {SAID[name]} Written by `make pins`: do not edit.\n"
        (HERE / name).write_text(head + "\n".join([*blocks, ""]), "utf-8", newline="\n")
    renew_audit(uv)


if __name__ == "__main__":
    main(sys.argv[1], [Path(wheel) for wheel in sys.argv[2:]])
