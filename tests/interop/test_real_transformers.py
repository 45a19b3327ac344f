"""Call trees that the real transformers writes now, held against the same run dumped by msprobe."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WRITER = Path(__file__).with_name("write_debug_tree.py")
FIRSTDRIFT = Path(sys.executable).with_name("firstdrift")
PLANTED = "model.layers.1.mlp.down_proj"
FAULT = ("--scale-weight", f"{PLANTED}=3")


@pytest.fixture(scope="module")
def dumps(run_peer: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("transformers")
    for name, options in {
        "golden": (),
        "target": FAULT,
        "text": ("--text",),
        "text_target": ("--text", *FAULT),
        "msprobe": ("--msprobe",),
    }.items():
        run_peer(WRITER, folder / name, *options)
    return folder


def compare(golden: Path, target: Path) -> dict[str, Any]:
    answer = subprocess.run(
        [FIRSTDRIFT, "compare", golden, target, "--json"], capture_output=True, text=True, check=False
    )
    assert answer.stdout, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


@pytest.mark.parametrize(
    ("golden", "target"), [("golden", "target"), ("text", "text_target"), ("msprobe", "target")]
)
def test_the_planted_module_is_named_whatever_wrote_the_dumps(dumps: Path, golden: str, target: str) -> None:
    assert compare(dumps / golden, dumps / target)["first_bad_node"]["module"] == PLANTED


def test_one_run_dumped_by_two_tools_agrees(dumps: Path) -> None:
    found = compare(dumps / "msprobe", dumps / "golden")
    assert found["first_bad_node"] is None
    assert found["counts"]["pass"] == found["counts"]["pairs"] > 100
