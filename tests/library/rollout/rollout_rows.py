"""Rows as engines and trainers write them, for tests."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from firstdrift.rollout.compare import compare_rollout
from firstdrift.rollout.report import RolloutOptions, RolloutReport

SAMPLES = Path(__file__).parents[2] / "dumps" / "rollout"


def row(values: Sequence[float | None], field: str = "logprobs", **more: object) -> dict[str, Any]:
    """Return a row with log-probabilities and tokens 0, 1, 2, …"""
    return {field: list(values), "responses": list(range(len(values))), **more}


def write_rows(file: Path, *rows: Mapping[str, Any]) -> Path:
    """Write JSON lines; NaN as Python writes it."""
    file.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return file


def compare_rows(
    folder: Path,
    rollout: Sequence[Mapping[str, Any]],
    trainer: Sequence[Mapping[str, Any]],
    options: RolloutOptions | None = None,
) -> RolloutReport:
    """Compare two sides that are written into a folder."""
    files = [write_rows(folder / f"{name}.jsonl", *rows) for name, rows in (("r", rollout), ("t", trainer))]
    return compare_rollout(*files, options)
