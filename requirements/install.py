"""Install what firstdrift needs for the Python that runs this, every file held against its hash.

python requirements/install.py [--scale] [--dev] [--any-torch]

--scale      also what PostgreSQL and a Dask cluster need
--dev        also that, and what tests and checks need
--any-torch  take the build of PyTorch that the index offers, whatever its hash is
"""

import os
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

HERE = Path(__file__).resolve().parent
OTHER_BUILD = """\
The package index offers a CPU build of PyTorch whose hash is not in requirements/torch-cpu.txt.
If you know where it comes from, write the hash that pip got into that file, or take the build as it is:
--any-torch (make TORCH=--any-torch ..., docker build --build-arg TORCH=--any-torch ...)."""


def pip(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pip in this environment."""
    # Constraints of somebody's own could hold hashes too, which would be demanded besides.
    environment = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, env=environment, check=False, stderr=subprocess.PIPE, text=True)


def install(name: str) -> str:
    """Install what a list says, if it has the hashes that stand there; return what pip complains of."""
    # What is not written there is not fetched: together the files are the whole list. And nothing is built
    # from source, for which pip would fetch whatever that asks for.
    strictly = ("--require-hashes", "--no-deps", "--only-binary", ":all:")
    done = pip("install", *strictly, "--requirement", str(HERE / name))
    return done.stderr if done.returncode else ""


def install_torch() -> str:
    """Install PyTorch's CPU build if the index has it, else the other; return what pip complains of."""
    complaint = install("torch-cpu.txt")
    if not complaint:
        return ""
    if "DO NOT MATCH THE HASHES" in complaint:
        return f"{complaint}\n{OTHER_BUILD}"
    return install("torch.txt")


def install_any_torch() -> str:
    """Install whichever build of the wanted version the index prefers; return what pip complains of."""
    lines = (HERE / "torch.txt").read_text("utf-8").splitlines()
    wanted = next(line.partition(" ")[0] for line in lines if line.startswith("torch=="))
    done = pip("install", "--no-deps", "--only-binary", ":all:", wanted)
    return done.stderr if done.returncode else ""


def main(*options: str) -> str:
    """Install everything; return why it could not be done, or nothing."""
    if unknown := {*options} - {"--scale", "--dev", "--any-torch"}:
        return f"unknown: {' '.join(unknown)}"
    complaint = install("run.txt")
    if "--scale" in options or "--dev" in options:
        complaint = complaint or install("scale.txt")
    if "--dev" in options:
        complaint = complaint or install("dev.txt")
    complaint = complaint or (install_any_torch() if "--any-torch" in options else install_torch())
    if not complaint and any(one.startswith(("nvidia-", "cuda-")) for one in requires("torch") or ()):
        complaint = install("cuda.txt")
    return complaint


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) or 0)
