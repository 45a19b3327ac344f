"""A process that writes a dump as a tool does, a stage of a slice at a time, each when it is told to.

begun      the folder of the slice and its tensors, and nothing that tells what they are
empty      JSON files that hold no record yet, as msprobe writes them when a step begins
half       its JSON files, which are rewritten now, and end in the middle
whole      all of it

with Writer(source, target, ["step0/rank0", "step1/rank0"]) as writer:
    writer.write("step0/rank0")
    writer.write("step1/rank0", "half")
"""

import shutil
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

STAGES = ("begun", "empty", "half", "whole")


class Writer(AbstractContextManager["Writer"]):
    """The process, from where it is needed."""

    def __init__(self, source: Path, target: Path) -> None:
        self.source, self.target = source, target
        command = [sys.executable, "-S", __file__, str(source), str(target)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, **pipes)

    def __exit__(self, *_: object) -> None:
        self.kill()

    def write(self, place: str, stage: str = "whole") -> None:
        """Bring a slice to a stage, from wherever it is."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        for each in STAGES[: STAGES.index(stage) + 1]:
            self.process.stdin.write(f"{each} {place}\n")
            self.process.stdin.flush()
            assert self.process.stdout.readline() == f"{each} {place}\n"

    def kill(self) -> None:
        """End it at once, whatever it is at."""
        self.process.kill()
        self.process.communicate()


def _write(source: Path, target: Path, stage: str) -> None:
    if stage == "begun":
        target.mkdir(parents=True, exist_ok=True)
        tensors = source / "dump_tensor_data"
        if tensors.is_dir() and not (target / tensors.name).exists():
            shutil.copytree(tensors, target / tensors.name, copy_function=shutil.copyfile)
        return
    for file in sorted(source.iterdir()):
        if file.is_file():
            content = file.read_bytes()
            if stage == "empty":
                content = (
                    b'{"task": "statistics", "level": "mix", "data": {}}'
                    if file.name == "dump.json"
                    else b"{}"
                )
            (target / file.name).write_bytes(content[: len(content) // 2] if stage == "half" else content)
        elif file.name != "dump_tensor_data":
            shutil.copytree(file, target / file.name, copy_function=shutil.copyfile, dirs_exist_ok=True)


if __name__ == "__main__":
    for line in sys.stdin:
        stage_asked, _, place_asked = line.rstrip("\n").partition(" ")
        _write(Path(sys.argv[1], place_asked), Path(sys.argv[2], place_asked), stage_asked)
        sys.stdout.write(line)
        sys.stdout.flush()
