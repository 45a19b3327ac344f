"""Run scripts of the peer, each in a process forked from this one, which has imported what they need.

    python standby.py < commands

A command is a line of JSON, the script and its arguments; for each a line of JSON says how the process ended
and what it has written. To import torch and msprobe takes most of the time of such a script.
Needs a system that can fork.
"""

import json
import os
import runpy
import sys
import tempfile
import traceback
from importlib import import_module
from typing import IO, NoReturn

NEEDED = (
    "msprobe.msprobe",
    "msprobe.pytorch",
    "transformers.model_debugging_utils",
    "transformers.models.llama.modeling_llama",
)


def run(command: list[str]) -> tuple[int, str]:
    """Run a script in a process of its own; give its exit code and what it has written."""
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            become(command, said)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        return os.waitstatus_to_exitcode(status), said.read().decode(errors="replace")


def become(command: list[str], said: IO[bytes]) -> NoReturn:
    """Run a script in place of what this process is, and end."""
    code = 1
    try:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(said.fileno(), stream.fileno())
        with open(os.devnull) as nothing:  # noqa: PTH123 (a stream, not a file of ours)
            os.dup2(nothing.fileno(), sys.stdin.fileno())
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 (a script of others ends here)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Run what standard input says, one command after another."""
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # msprobe speaks when it is imported
        for name in NEEDED:
            import_module(name)
        for line in sys.stdin:
            print(json.dumps(run(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
