import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_imports_go_down_and_the_web_process_never_loads_torch() -> None:
    lint_imports = Path(sys.executable).with_name("lint-imports")
    answer = subprocess.run(
        [lint_imports, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stdout
