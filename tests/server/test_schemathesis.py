"""schemathesis, which was made to break APIs by their own description, breaks this one nowhere.

It runs as a process of its own against a server as people start it; `make soak` installs it.
"""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from serving import serving
from soak import record, rounds
from working import wait_until

PROGRAM = Path(__file__).parents[2] / ".venv-schemathesis/bin/schemathesis"
EXAMPLES = rounds(0, 100)
LEFT_OUT = "positive_data_acceptance"
"""Some of what a name or a rule set may be no schema can say: that values which fit it are taken."""


@pytest.mark.skipif(not EXAMPLES or not PROGRAM.exists(), reason="a part of `make soak`")
def test_schemathesis_finds_nothing(unpacked: Callable[[str], Path], tmp_path: Path) -> None:
    root = unpacked("msprobe/llama_stat_mix_perturb")
    with serving(root, tmp_path / "data", [(root / "golden", root / "target")]) as address:
        wait_until(lambda: httpx2.get(f"{address}/api/v1/comparisons/1").json()["state"] == "done")
        options = [
            "--seed",
            "1",
            "--max-examples",
            str(EXAMPLES),
            "--no-color",
            "--suppress-health-check",
            "all",
        ]
        command = [str(PROGRAM), "run", f"{address}/openapi.json", *options]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    passed = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    tested = re.search(r"Tested: (\d+)", done.stdout)
    assert passed is not None
    assert tested is not None
    record("error_shape", f"schemathesis: {int(passed[1]):,} requests to {tested[1]} operations, 0 failures")
