"""Run the command as a user does: in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

COMMAND = (sys.executable, "-m", "firstdrift.cli")


@dataclass(frozen=True)
class Finished:
    """What a command left behind."""

    status: int
    out: str
    err: str


@pytest.fixture(scope="session")
def firstdrift() -> Callable[..., Finished]:
    """Return a function that runs `firstdrift` with arguments and waits for it."""

    def run(*arguments: str | Path, **environment: str) -> Finished:
        finished = subprocess.run(
            [*COMMAND, *map(os.fspath, arguments)],
            capture_output=True,
            check=False,
            env=os.environ | environment,
            timeout=60,
        )
        return Finished(
            finished.returncode,
            finished.stdout.decode(errors="replace"),
            finished.stderr.decode(errors="replace"),
        )

    return run
