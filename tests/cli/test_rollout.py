"""`firstdrift rollout`: the answer, its exit status, and what it writes."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from library.rollout.rollout_rows import SAMPLES, row, write_rows
from messages import like, says

Run = Callable[..., Any]
ROLLOUT = SAMPLES / "rollout.jsonl"


@pytest.mark.parametrize(
    ("trainer", "options", "status"),
    [
        ("trainer", [], 0),
        ("shifted", [], 1),
        ("temperature", [], 1),
        ("temperature", ["--fail-on", "drifting"], 1),
        ("shifted", ["--fail-on", "drifting"], 0),
        ("trainer", ["--fail-on", "band"], 1),
        ("trainer", ["--fail-on", "band", "--band", "0.1", "10"], 0),
        ("missing", [], 2),
        ("trainer", ["--band", "1.2", "0.8"], 2),
    ],
)
def test_the_exit_status_says_what_was_found(
    firstdrift: Run, trainer: str, options: list[str], status: int
) -> None:
    assert firstdrift("rollout", ROLLOUT, SAMPLES / f"{trainer}.jsonl", *options).status == status


def test_lines_that_cannot_be_read_are_shown_and_leave_it_open(firstdrift: Run, tmp_path: Path) -> None:
    lines = (SAMPLES / "trainer.jsonl").read_text()
    (tmp_path / "t.jsonl").write_text(f"{lines}{{\n")
    found = firstdrift("rollout", ROLLOUT, tmp_path / "t.jsonl")
    assert found.status == 2
    assert re.search(like("rollout.in_line"), found.out)
    assert re.search(r"t\.jsonl\D+13\b", found.out)


def test_text_has_the_finding_first_and_spells_out_what_cannot_be_printed(
    firstdrift: Run, tmp_path: Path
) -> None:
    sides = [row([-1.0] * 3, id="\x1b[2Jx"), row([-1.0, -1.0, -9.0], id="\x1b[2Jx")]
    files = [write_rows(tmp_path / f"{place}.jsonl", one) for place, one in enumerate(sides)]
    found = firstdrift("rollout", *files)
    assert found.status == 1
    assert says(found.out.splitlines()[0], "rollout.summary.off")
    assert "\x1b" not in found.out


def test_json_is_strict_and_has_everything(firstdrift: Run) -> None:
    found = firstdrift("rollout", ROLLOUT, SAMPLES / "not_finite.jsonl", "--json")

    def refuse(name: str) -> None:
        raise AssertionError(name)

    answer = json.loads(found.out, parse_constant=refuse)
    assert answer["verdict"] == "tokens off"
    assert answer["statistics"]["max_abs"] == "Infinity"
    assert answer["counts"]["sequences"] == len(answer["sequences"]) == 12
    assert answer["sequences"][0]["first_token"] == 30
    assert answer["experts"]["layers"][0]["sets"] == 672


def test_csv_has_a_line_for_each_token_and_no_formula(firstdrift: Run, tmp_path: Path) -> None:
    sides = [row([-1.0, None], id="=1+1"), row([-1.5, -1.0, -1.0], id="=1+1")]
    files = [write_rows(tmp_path / f"{place}.jsonl", one) for place, one in enumerate(sides)]
    firstdrift("rollout", *files, "--csv", tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert [one["state"] for one in rows] == ["out", "missing", "not compared"]
    assert {one["sequence"] for one in rows} == {"'=1+1"}
    assert float(rows[0]["difference"]) == -0.5


def test_both_sides_can_come_from_one_file(firstdrift: Run, tmp_path: Path) -> None:
    both = row([-1.0], "rollout_log_probs", old_log_probs=[-1.0])
    assert firstdrift("rollout", write_rows(tmp_path / "a.jsonl", both)).status == 0
    only = write_rows(tmp_path / "b.jsonl", row([-1.0], "rollout_log_probs"))
    assert firstdrift("rollout", only).status == 2


def test_dumps_are_compared_at_the_token_that_left_the_noise(
    firstdrift: Run, unpacked: Callable[[str], Path], tmp_path: Path
) -> None:
    dumps = unpacked("msit/llama4_golden_fp32"), unpacked("msit/llama4_perturb_L2_T3")
    sides = [row([-1.0] * 5, id=1), row([-1.0] * 3 + [-9.0] * 2, id=1)]
    files = [write_rows(tmp_path / f"{place}.jsonl", one) for place, one in enumerate(sides)]
    answer = json.loads(firstdrift("rollout", *files, "--dumps", *dumps, "--json").out)
    assert answer["sequences"][0]["first_token"] == 3
    assert answer["dumps"]["first_bad_token"]["token"] == 3
