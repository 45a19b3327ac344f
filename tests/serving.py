"""firstdrift as people start it: a server with its worker, as processes."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def serving(
    root: Path, data_dir: Path, pairs: Sequence[tuple[Path, Path]], token: str | None = None
) -> Iterator[str]:
    """Run a server for what lies under a root while the block runs; give its address.

    It has been asked to compare the pairs; without a token it stands open.
    """
    command = [sys.executable, "-m", "firstdrift.cli", "serve", str(root), "--port", "0", "--workers", "1"]
    command += ["--data-dir", str(data_dir), *([] if token else ["--no-token"])]
    for golden, target in pairs:
        command += ["--compare", str(golden), str(target)]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"} | ({"FIRSTDRIFT_TOKEN": token} if token else {})
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        try:
            assert server.stdout is not None
            found = None
            while found is None and (line := server.stdout.readline()):
                found = re.search(r"http://127\.0\.0\.1:\d+", line)
            assert found is not None, "the server said no address"
            yield found[0]
        finally:
            server.terminate()
