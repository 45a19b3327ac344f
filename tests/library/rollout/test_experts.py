"""Experts as sets, whichever rows an engine writes."""

from pathlib import Path
from typing import Any

import pytest
from library.rollout.rollout_rows import compare_rows

from firstdrift.rollout.experts import ExpertsOfPair
from firstdrift.rollout.report import RolloutReport

PROMPT = [1, 2, 3]
WHOLE = [[[token, token + 1], [token + 2, token + 3]] for token in range(7)]
"""Of three tokens of the prompt and four of the answer, in two layers."""


def side(experts: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "id": 1,
        "prompts": PROMPT,
        "responses": [4, 5, 6, 7],
        "logprobs": [-1.0] * 4,
        "routed_experts": experts,
    }


def compared(folder: Path, ours: object, theirs: object) -> RolloutReport:
    return compare_rows(folder, [side(ours)], [side(theirs)])


@pytest.mark.parametrize(
    ("ours", "theirs", "first", "rows"),
    [
        pytest.param(WHOLE, WHOLE, 0, 7, id="whole, whole"),
        pytest.param(WHOLE[:-1], WHOLE, 0, 6, id="without the last token, whole"),
        pytest.param(WHOLE[3:], WHOLE, 3, 4, id="answer, whole"),
        pytest.param(WHOLE[3:], WHOLE[:-1], 3, 3, id="answer, without the last token"),
        pytest.param(WHOLE[:2], WHOLE[:2], 0, 2, id="rows that cannot be placed, but as many"),
    ],
)
def test_rows_of_the_same_token_are_compared(
    tmp_path: Path, ours: object, theirs: object, first: int, rows: int
) -> None:
    found = compared(tmp_path, ours, theirs).pairs[0].experts
    assert isinstance(found, ExpertsOfPair)
    assert (found.first_token, len(found.equal), found.first) == (first, rows, None)


def test_the_order_of_experts_does_not_matter(tmp_path: Path) -> None:
    turned = [[layer[::-1] for layer in token] for token in WHOLE]
    found = compared(tmp_path, WHOLE, turned).experts
    assert found is not None
    assert (found.first, [one.other for one in found.layers]) == (None, [0, 0])


def test_the_first_other_set_is_found_with_its_token_and_layer(tmp_path: Path) -> None:
    changed = [[list(layer) for layer in token] for token in WHOLE]
    changed[5][1] = [90, 91]
    changed[6][0] = [90, 91]
    report = compared(tmp_path, WHOLE[3:], changed)
    assert report.experts is not None
    assert report.experts.first == (0, 5, 1)
    assert [(one.sets, one.other) for one in report.experts.layers] == [(4, 1), (4, 1)]
    assert report.experts.first_layer == 0


@pytest.mark.parametrize(
    ("theirs", "reason"),
    [
        pytest.param(None, "one_side", id="none"),
        pytest.param([[[1, 2, 3]] * 2] * 7, "shapes", id="more experts"),
        pytest.param(WHOLE[:2], "rows", id="rows that cannot be placed"),
    ],
)
def test_what_is_not_compared_is_counted_with_the_reason(tmp_path: Path, theirs: object, reason: str) -> None:
    found = compared(tmp_path, WHOLE, theirs).experts
    assert found is not None
    assert [(why.id, count) for why, count in found.not_compared.items()] == [
        (f"rollout.experts.{reason}", 1)
    ]
