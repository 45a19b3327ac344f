import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIRSTDRIFT = Path(sys.executable).with_name("firstdrift")


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples as a fresh clone has them, then unpacked as `make demo` does it."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "examples"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    folder = tmp_path_factory.mktemp("clone")
    for name in filter(None, names.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    for _ in range(2):  # the second time there is nothing left to do
        subprocess.run([sys.executable, folder / "examples" / "unpack.py"], check=True)
    return folder / "examples"


@pytest.mark.parametrize(
    ("golden", "target", "token", "module", "node_class"),
    [
        pytest.param(
            "msit-llama12/llama12_golden_fp32",
            "msit-llama12/llama12_bf16_bad_L7_T2",
            2,
            "model.layers.7.mlp",
            "source",
            id="msit-llama12",
        ),
        pytest.param(
            "msprobe-llama-statistics/golden",
            "msprobe-llama-statistics/target",
            None,
            "model.layers.1.mlp.down_proj",
            "weights differ",
            id="msprobe-llama-statistics",
        ),
        pytest.param(
            "msprobe-llama-tensor/golden",
            "msprobe-llama-tensor/target",
            None,
            "model.layers.1.self_attn.o_proj",
            "source",
            id="msprobe-llama-tensor",
        ),
    ],
)
def test_what_was_planted_in_an_example_is_found(
    examples: Path, golden: str, target: str, token: int | None, module: str, node_class: str
) -> None:
    answer = subprocess.run(
        [FIRSTDRIFT, "compare", examples / golden, examples / target, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 1, answer.stderr
    said = json.loads(answer.stdout)
    found = said["first_bad_node"]
    assert (found["token"], found["module"], found["class"]) == (token, module, node_class)
    if token is not None:
        assert said["first_bad_token"]["token"] == token
