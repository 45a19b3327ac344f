"""The peer, which is started once for all that it shall do."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PEER = Path(__file__).resolve().parents[2] / ".venv-interop" / "bin"
STANDBY = Path(__file__).with_name("standby.py")

Run = Callable[..., None]


@pytest.fixture(scope="session")
def run_peer() -> Iterator[Run]:
    """Return a function that runs a script, or a command, of the peer's Python in a process of its own."""
    command = [PEER / "python", STANDBY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as standby:
        asked, answers = standby.stdin, standby.stdout
        assert asked is not None
        assert answers is not None

        def run(script: Path | str, *arguments: Path | str) -> None:
            try:
                print(json.dumps([str(word) for word in (script, *arguments)]), file=asked, flush=True)
                answer = answers.readline()
            except BaseException:  # the time is over: what is answered later is for nobody
                standby.kill()
                raise
            assert answer, "the peer could not be started, or has ended"
            code, said = json.loads(answer)
            assert code == 0, said

        yield run
        standby.kill()


@pytest.fixture(scope="session")
def msprobe(run_peer: Run) -> Run:
    """Return a function that runs msprobe, as its users do."""
    return lambda *arguments: run_peer(PEER / "msprobe", *arguments)
