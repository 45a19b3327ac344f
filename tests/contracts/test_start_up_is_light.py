import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HEAVY = {"torch", "numba", "pandas", "sqlalchemy", "alembic", "fastapi", "plotly", "uvicorn"}


def run_and_list_imports(script: str, *arguments: str | Path) -> tuple[str, set[str]]:
    """Run a script in a fresh Python; return what it printed and the top-level packages it imported."""
    answer = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = answer.stderr.splitlines()
    imports = {
        line.rpartition("|")[2].strip().partition(".")[0] for line in lines if line.startswith("import time:")
    }
    assert not [line for line in lines if line.startswith("Traceback")], answer.stderr[-2000:]
    return answer.stdout, imports


def test_the_command_starts_without_a_heavy_package() -> None:
    _, imports = run_and_list_imports("import firstdrift.cli")
    assert "firstdrift" in imports
    assert not imports & HEAVY


@pytest.mark.parametrize("name", ["msprobe/llama_stat_mix_perturb", "msprobe/llama_tensor_mix_perturb"])
def test_comparing_small_dumps_loads_no_heavy_package(unpacked: Callable[[str], Path], name: str) -> None:
    dumps = unpacked(name)
    script = "import sys; from firstdrift.cli import main; main(sys.argv[1:])"
    printed, imports = run_and_list_imports(script, "compare", dumps / "golden", dumps / "target", "--json")
    assert json.loads(printed)["counts"]["pairs"] > 1000
    assert not imports & HEAVY


def test_the_web_process_is_ready_without_arithmetic() -> None:
    _, imports = run_and_list_imports("import firstdrift_server.app")
    assert "fastapi" in imports
    assert not imports & {"numpy", "numba", "pandas", "torch", "plotly", "alembic"}
