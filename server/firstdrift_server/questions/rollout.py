"""A rollout held against a trainer, read and measured in a child process.

What a child has compared last it keeps, as long as the files stay as they were, for the pages of sequences.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from firstdrift.errors import NotInCatalogueError
from firstdrift.groups import gathered
from firstdrift.wording.message import Message

if TYPE_CHECKING:
    from firstdrift.rollout.report import RolloutReport, SequencePair

MOST_SEQUENCES: Final = 200
"""So many sequences are listed, the worst ones; so many prompts; and so many of either side alone."""

MOST_ROWS: Final = 60
MOST_COLUMNS: Final = 120
"""Cells of the heat map: where there are more tokens, a cell stands for several."""

MOST_TOKENS: Final = 500
"""So many tokens of a sequence are listed on a page."""

Stamps = tuple[tuple[str, int, int], ...]


class AskedRollout(Struct, frozen=True):
    """What is compared, and by what it is judged.

    Attributes:
        rollout: real path of the file or folder of the rollout.
        trainer: likewise of the trainer.
        low: lower edge of the band.
        high: upper edge.
        dtype: in which the model was computed.
        stamps: what would change if the files did.
    """

    rollout: Path
    trainer: Path
    low: float
    high: float
    dtype: str
    stamps: tuple[Stamps, Stamps]


def rollout_overview(asked: AskedRollout, roots: Sequence[Path]) -> dict[str, Any]:
    """Return the answer for the whole, the worst sequences, and the heat map of their differences.

    Raises:
        FirstdriftError: what `compare_rollout` raises.
    """
    from firstdrift.exports.rollout import experts_said, left_out, rollout_object
    from firstdrift.rollout.read import placed

    report = _compared(asked, tuple(roots))
    found = rollout_object(report)
    problems = [placed(one) for side in (report.rollout, report.trainer) for one in side.problems]
    return found | {
        "sequences": found["sequences"][:MOST_SEQUENCES],
        "prompts": found["prompts"][:MOST_SEQUENCES],
        "unpaired": {side: names[:MOST_SEQUENCES] for side, names in found["unpaired"].items()},
        "left_out": left_out(report),
        "experts_said": experts_said(report),
        "problems": problems,
        "heat_map": heat_map(report.pairs[:MOST_ROWS]),
    }


def rollout_sequence(
    asked: AskedRollout, roots: Sequence[Path], number: int, first: int | None
) -> dict[str, Any]:
    """Return what is known of a sequence and of its tokens, from one on, or around the one to look at.

    Raises:
        NotInCatalogueError: there is no such sequence.
        FirstdriftError: what `compare_rollout` raises.
    """
    from firstdrift.exports.rollout import sequence_object, token_rows

    report = _compared(asked, tuple(roots))
    pair = next((one for one in report.pairs if one.number == number), None)
    if pair is None:
        raise NotInCatalogueError(Message.of("rollout.nothing_there", number=number))
    tokens = list(token_rows(pair))
    around = max(0, (pair.first_found or 0) - MOST_TOKENS // 2)
    start = min(around if first is None else first, max(0, len(tokens) - 1))
    return sequence_object(pair) | {
        "tokens": tokens[start : start + MOST_TOKENS],
        "start": start,
        "length": len(tokens),
        "differences": [one["difference"] for one in tokens],
        "out_at": pair.compared[pair.out].tolist(),
        "not_finite_at": pair.not_finite_at.tolist(),
        "other_experts": _other_experts(pair),
        "explained": report.options.explained,
    }


def heat_map(pairs: "Sequence[SequencePair]") -> dict[str, Any]:
    """Return the largest |d| in each cell: a row for each sequence, a column for each few tokens."""
    import numpy as np

    from firstdrift.rollout.statistics import differences

    longest = max((int(pair.compared[-1]) + 1 for pair in pairs if len(pair.compared)), default=0)
    width = max(1, -(-longest // MOST_COLUMNS))
    cells = []
    for pair in pairs:
        row = np.full(-(-longest // width), np.nan)
        both = (side.log_probs[pair.compared] for side in (pair.rollout, pair.trainer))
        d = np.abs(differences(*both))
        np.fmax.at(row, pair.compared // width, np.where(np.isnan(d), np.inf, d))
        cells.append([None if np.isnan(one) else float(f"{one:.4g}") for one in row])
    return {
        "width": width,
        "rows": [{"name": pair.name, "number": pair.number, "first": pair.first_found} for pair in pairs],
        "cells": cells,
    }


@lru_cache(maxsize=2)
def _compared(asked: AskedRollout, roots: tuple[Path, ...]) -> "RolloutReport":
    from firstdrift.rollout.compare import compare_rollout
    from firstdrift.rollout.report import options_of

    options = options_of((asked.low, asked.high), asked.dtype)
    return compare_rollout(asked.rollout, asked.trainer, options, within=roots)


def _other_experts(pair: "SequencePair") -> dict[int, list[int]]:
    """Return by place among the generated tokens the layers of which the experts differ."""
    from firstdrift.rollout.experts import ExpertsOfPair

    experts = pair.experts
    if not isinstance(experts, ExpertsOfPair):
        return {}
    begins = max(experts.prompt_length, 0) - 1
    others = zip(*(~experts.equal).nonzero(), strict=True)
    found = gathered((int(row) + experts.first_token - begins, int(layer)) for row, layer in others)
    return {place: layers for place, layers in found.items() if place >= 0}
