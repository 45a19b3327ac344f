"""The same two dumps give the same JSON, byte for byte, however and how often they are compared."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clients import Client
from databases import new_postgresql_database
from running import running
from soak import record, rounds
from sqlalchemy import make_url
from working import wait_until

PAIRS = (
    ("msit/llama4_golden_fp32", "msit/llama4_perturb_L2_T3"),
    ("msprobe/llama_stat_mix_3steps/golden", "msprobe/llama_stat_mix_3steps/target"),
    ("msit/llama12_golden_fp32", "msit/llama12_bf16_bad_L7_T2"),
)
TIMES = rounds(1, 3)
pytestmark = pytest.mark.timeout(rounds(600, 7200))


def one_line(said: dict[str, Any]) -> str:
    """Write an answer in one way; how long it took is no part of it."""
    return json.dumps(said | {"seconds": None}, sort_keys=True)


def from_command(golden: Path, target: Path, processes: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "firstdrift.cli", "compare", str(golden), str(target), "--json"]
    done = subprocess.run([*command, "--jobs", str(processes)], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def from_worker(folder: Path, pair: tuple[Path, Path], url: str | None, processes: int) -> dict[str, Any]:
    """Have a server with its worker compare two dumps; give what its API says."""
    options = [] if url is None else ["--database-url", url]
    roots = [str(dump) for dump in pair]
    folder.mkdir()
    with running(folder, "serve", *roots, "--workers", str(processes), "--no-token", *options) as server:
        client = Client(server.url)
        asked = {"golden": roots[0], "target": roots[1]}
        place = f"/api/v1/comparisons/{client.data('POST', '/api/v1/comparisons', asked)['id']}"
        wait_until(lambda: client.data("GET", place)["state"] in ("done", "failed"), 300)
        found: dict[str, Any] = client.data("GET", place)
    return found


def test_the_same_dumps_give_the_same_answer(
    unpacked: Callable[[str], Path], tmp_path: Path, postgresql: str
) -> None:
    count = 0
    for number, names in enumerate(PAIRS[: rounds(1, len(PAIRS))]):
        golden, target = (unpacked("/".join(name.split("/")[:2])) for name in names)
        pair = (
            golden.joinpath(*names[0].split("/")[2:]),
            target.joinpath(*names[1].split("/")[2:]),
        )
        answers = [from_command(*pair, processes) for processes in (1, 8) for _ in range(TIMES)]
        shape = answers[0].keys()
        for kind in ("sqlite", "postgresql"):
            for processes in (1, 8) if rounds(0, 1) else (1,):
                url = new_postgresql_database(postgresql) if kind == "postgresql" else None
                assert url is None or make_url(url).database
                folder = tmp_path / f"{number}-{kind}-{processes}"
                found = from_worker(folder, pair, url, processes)
                answers.append({name: found[name] for name in shape})
        assert len({one_line(answer) for answer in answers}) == 1
        count += len(answers)
    record(
        "same_verdict",
        f"{count} answers to {number + 1} questions: command line {TIMES} times with 1 and with 8 processes, "
        "worker with 1 and 8 on SQLite and PostgreSQL: the same bytes, but for how long it took",
    )
