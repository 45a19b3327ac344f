"""Other experts explain what near ties of a router do, and no more; nothing of a run that drifts is fine."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from library.rollout.rollout_rows import compare_rows

from firstdrift.rollout.report import RolloutReport, RolloutVerdict
from firstdrift.rollout.routing import Routed, Tokens, explained_by_routing, routed
from firstdrift.rollout.statistics import measure
from firstdrift.rollout.thresholds import MOST_LAYERS_OF_TIES, OUT

LENGTH, SEQUENCES = 64, 40


def run(
    folder: Path,
    *,
    layers: int,
    otherwise: float,
    tie: float = 0.0,
    off: dict[tuple[int, int], float] | None = None,
    most: bool = False,
    bias: float = 0.0,
) -> RolloutReport:
    """Compare two engines of a model of so many layers, a share of whose choices are other ones.

    `tie` is how far a token is moved for which a layer chose otherwise, `off` how far single tokens are,
    `most` whether nearly all layers chose otherwise for those, `bias` how far all are.
    """
    random = np.random.default_rng(1)
    ours: list[dict[str, Any]] = []
    theirs: list[dict[str, Any]] = []
    for number in range(SEQUENCES):
        experts = np.zeros((LENGTH + 1, layers, 1), np.int64)
        others = experts + (random.random(experts.shape) < otherwise)
        base = -random.uniform(0.5, 3.0, LENGTH)
        moved = 0.01 * random.standard_normal(LENGTH) + bias
        for at in range(LENGTH):
            apart = (off or {}).get((number, at), 0.0)
            if apart and most:
                others[at, : layers - 1] = 1
            routed = np.any(others[at] != experts[at])
            moved[at] += apart + (tie * random.standard_normal() if routed else 0.0)
        one = {"id": number, "prompts": [1], "responses": list(range(LENGTH))}
        ours.append({**one, "logprobs": base.tolist(), "routed_experts": experts.tolist()})
        theirs.append(
            {**one, "logprobs": np.minimum(base + moved, 0.0).tolist(), "routed_experts": others.tolist()}
        )
    return compare_rows(folder, ours, theirs)


def test_near_ties_of_a_few_layers_are_explained(tmp_path: Path) -> None:
    report = run(tmp_path, layers=4, otherwise=0.01, tie=0.4)
    assert report.verdict is RolloutVerdict.WITHIN
    assert report.counts.out == report.counts.rerouted > 0


def test_a_layer_that_often_chooses_otherwise_excuses_no_token_of_any_sequence(tmp_path: Path) -> None:
    report = run(tmp_path, layers=2, otherwise=0.07, tie=1.0)
    assert report.experts is not None
    assert report.experts.first_layer is not None
    bad = sum(pair.verdict is RolloutVerdict.OFF for pair in report.pairs)
    assert (report.verdict, report.counts.rerouted) == (RolloutVerdict.OFF, 0)
    assert report.summary.arguments["bad"] == bad > SEQUENCES / 2
    assert report.summary.arguments["out"] == sum(int(pair.out.sum()) for pair in report.pairs)


def test_a_token_that_is_off_is_found_in_a_deep_model_where_most_tokens_have_a_tie_somewhere(
    tmp_path: Path,
) -> None:
    report = run(tmp_path, layers=60, otherwise=0.02, off={(3, 20): -2.0})
    assert report.experts is not None
    assert sum(one.share for one in report.experts.routed if one.first) > 0.6
    assert report.experts.first_layer is None
    assert (report.counts.out, report.counts.rerouted) == (1, 0)
    assert report.verdict is RolloutVerdict.OFF
    assert (report.pairs[0].number, report.pairs[0].first_found) == (3, 20)


def test_a_state_for_which_most_layers_choose_otherwise_is_no_tie(tmp_path: Path) -> None:
    off = {(number, 30): -2.0 for number in range(SEQUENCES)}
    report = run(tmp_path, layers=24, otherwise=0.001, tie=0.1, off=off, most=True)
    assert report.counts.rerouted < report.counts.out
    assert report.verdict is RolloutVerdict.OFF


def test_tokens_are_set_side_by_side_by_how_many_layers_chose_otherwise(tmp_path: Path) -> None:
    report = run(tmp_path, layers=8, otherwise=0.02, tie=0.3)
    assert report.experts is not None
    first, second, *_ = report.experts.routed
    assert (first.first, second.first) == (0, 1)
    assert second.statistics.mean_abs is not None
    assert first.statistics.mean_abs is not None
    assert second.statistics.mean_abs > 5 * first.statistics.mean_abs
    assert report.experts.other_share == pytest.approx(0.02, rel=0.2)
    assert sum(one.statistics.tokens for one in report.experts.routed) == LENGTH * SEQUENCES


@pytest.mark.parametrize("bias", [0.005, -0.005])
def test_a_whole_run_that_is_off_drifts_and_so_does_each_sequence(tmp_path: Path, bias: float) -> None:
    """Each token is far within rounding: only all of them together show it."""
    report = run(tmp_path, layers=2, otherwise=0.0, bias=bias)
    assert report.verdict is RolloutVerdict.DRIFTING
    assert report.summary.id == "rollout.summary.biased"
    assert report.bias is not None
    assert report.bias.mean == pytest.approx(bias, rel=0.2)
    assert {pair.verdict for pair in report.pairs} == {RolloutVerdict.DRIFTING}


def test_noise_alone_is_no_drift(tmp_path: Path) -> None:
    report = run(tmp_path, layers=2, otherwise=0.0)
    assert report.bias is None
    assert {pair.verdict for pair in report.pairs} == {RolloutVerdict.WITHIN}


def tokens(layers: list[int], apart: list[float], of: int = 8) -> Tokens:
    """Return tokens of a probability of a half whose log-odds are so far apart."""
    rollout = np.full(len(layers), np.log(0.5))
    trainer = -np.log1p(np.exp(-np.array(apart)))
    return Tokens(rollout, trainer, np.array(layers), of)


def group(first: int, scale: float | None, share: float = 0.01) -> Routed:
    return Routed(first, 2 * first - 1, measure(np.zeros(1), np.zeros(1), (0.5, 2.0)), scale, share)


@pytest.mark.parametrize(
    ("layers", "apart", "groups", "explained"),
    [
        pytest.param(0, 0.5, [group(1, 0.1)], False, id="nothing-was-routed"),
        pytest.param(-1, 0.5, [group(1, 0.1)], False, id="not-known"),
        pytest.param(1, 0.9 * OUT * 0.1, [group(1, 0.1)], True, id="within-the-noise-of-such"),
        pytest.param(1, 1.1 * OUT * 0.1, [group(1, 0.1)], False, id="beyond-it"),
        pytest.param(3, 1.1 * OUT * 0.1, [group(1, 0.1), group(2, 0.2)], True, id="two-and-three-are-one"),
        pytest.param(1, 9.0, [group(1, None)], True, id="too-few-to-have-noise-and-rare"),
        pytest.param(1, 9.0, [group(1, None, share=0.5)], False, id="too-few-and-not-rare"),
        pytest.param(int(8 * MOST_LAYERS_OF_TIES), 0.1, [group(4, 0.1)], True, id="half-of-the-layers"),
        pytest.param(int(8 * MOST_LAYERS_OF_TIES) + 1, 0.1, [group(4, 0.1)], False, id="most-layers"),
    ],
)
def test_routing_explains_a_token(
    layers: int, apart: float, groups: list[Routed], *, explained: bool
) -> None:
    assert explained_by_routing(tokens([layers], [apart]), groups).tolist() == [explained]


def test_tokens_are_grouped_by_the_number_of_bits_of_their_layers() -> None:
    of = tokens([0, 0, 1, 2, 3, 4, 7, -1], [0.0] * 8)
    found = routed([of], [np.ones(8, np.bool_)], (0.5, 2.0))
    assert [(one.first, one.last, one.statistics.tokens) for one in found] == [
        (0, 0, 2),
        (1, 1, 1),
        (2, 3, 2),
        (4, 7, 2),
    ]
    assert sum(one.share for one in found) == pytest.approx(1.0)
    assert routed([], [], (0.5, 2.0)) == ()
