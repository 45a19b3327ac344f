"""Two dumps that the real msprobe writes now, compared by msprobe and by firstdrift."""

import csv
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
WRITER = ROOT / "examples" / "dump_llama.py"
FIRSTDRIFT = Path(sys.executable).with_name("firstdrift")
PLANTED = "model.layers.2.mlp.down_proj"


@dataclass(frozen=True)
class Dumps:
    golden: Path
    target: Path


@dataclass(frozen=True)
class Peer:
    """What `msprobe compare` says, row by row.

    Rows for an argument or a gradient that is None are left out: neither side holds anything there, and
    msprobe calls them all "pass".
    """

    rows: list[dict[str, str]]

    @classmethod
    def read(cls, report: Path) -> "Peer":
        csv.field_size_limit(2**24)  # its column of call stacks is longer than Python's default allows
        with report.open(encoding="utf-8", newline="") as file:
            return cls([row for row in csv.DictReader(file) if row["NPU Dtype"] != "None"])

    @property
    def matched(self) -> list[dict[str, str]]:
        return [row for row in self.rows if row["Bench Name"] != "N/A"]

    @property
    def verdicts(self) -> Counter[str]:
        return Counter(row["Result"] for row in self.rows)


@pytest.fixture(scope="module", params=["statistics", "tensor"])
def dumps(
    request: pytest.FixtureRequest, run_peer: Callable[..., None], tmp_path_factory: pytest.TempPathFactory
) -> Dumps:
    folder = tmp_path_factory.mktemp(request.param)
    made = Dumps(folder / "golden", folder / "target")
    task = ["--task", request.param]
    run_peer(WRITER, made.golden, *task)
    run_peer(WRITER, made.target, *task, "--scale-weight", f"{PLANTED}=3")
    return made


@pytest.fixture(scope="module")
def peer(dumps: Dumps, msprobe: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Peer:
    output = tmp_path_factory.mktemp("peer")
    sides = ["-tp", dumps.target / "step0", "-gp", dumps.golden / "step0"]
    msprobe("compare", *sides, "-o", output)
    (report,) = output.glob("compare_result_rank0_*.csv")
    return Peer.read(report)


def firstdrift_compare(dumps: Dumps, *options: str) -> dict[str, Any]:
    answer = subprocess.run(
        [FIRSTDRIFT, "compare", dumps.golden, dumps.target, "--json", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stdout, answer.stderr
    assert answer.returncode == 1  # the fault is found
    return json.loads(answer.stdout)


@pytest.fixture(scope="module")
def ours(dumps: Dumps) -> dict[str, Any]:
    return firstdrift_compare(dumps)


def test_the_planted_module_is_named(ours: dict[str, Any]) -> None:
    assert ours["first_bad_node"]["module"] == PLANTED
    assert ours["first_bad_node"]["class"] == "weights differ"


def test_every_record_of_the_dump_is_a_node(dumps: Dumps, ours: dict[str, Any]) -> None:
    for side in ("golden", "target"):
        written = json.loads((getattr(dumps, side) / "step0/rank0/dump.json").read_text(encoding="utf-8"))
        assert ours[side]["nodes"] >= len(written["data"])


def test_everything_is_matched_where_only_a_weight_differs(ours: dict[str, Any]) -> None:
    counts = ours["counts"]
    assert [counts[key] for key in counts if key.startswith("unmatched")] == [0, 0, 0, 0]


def test_no_row_that_msprobe_matches_is_left_out(ours: dict[str, Any], peer: Peer) -> None:
    assert ours["counts"]["pairs"] >= len(peer.matched) > 1000


def test_rule_set_msprobe_comes_to_the_verdicts_of_msprobe(dumps: Dumps, peer: Peer) -> None:
    counts = firstdrift_compare(dumps, "--rules", "msprobe")["counts"]
    ours = {verdict: counts[verdict] for verdict in ("pass", "warning", "error")}
    assert ours == {verdict: peer.verdicts[verdict] for verdict in ours}
