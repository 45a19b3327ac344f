"""Thresholds are chosen on two folds and scored on the third, without measuring anything again."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "truth"))

from fit import judged_again
from fitting import AXES, Judged, Tally, chosen, fitted_table, moved, settings_of, tally

from firstdrift import compare
from firstdrift.verdict.movable_thresholds import ABOUT, DEFAULTS, Thresholds

ONE = ("factor",)


def test_each_setting_makes_sense() -> None:
    axes = tuple(AXES)
    shipped = {name: getattr(DEFAULTS, name) for name in ABOUT}
    for setting in settings_of(axes):
        values = moved(setting, axes, shipped)
        assert not any(ABOUT[name].refuses(value) for name, value in values.items())
    assert moved((2.0,), ONE, {"factor": 3.0}) == {"factor": 6.0}


@pytest.mark.parametrize(
    ("healthy", "faults", "counted", "cost"),
    [
        ((), (), (0, 0, 0, 0), 0.0),
        ((True, False), (True,), (2, 1, 1, 1), 0.5),
        ((), (False,), (0, 0, 1, 0), 1.0),
    ],
)
def test_false_findings_and_missed_faults_cost(
    healthy: tuple[bool, ...], faults: tuple[bool, ...], counted: tuple[int, ...], cost: float
) -> None:
    pairs = [Judged(0, healthy=True, right=(one,)) for one in healthy]
    pairs += [Judged(0, healthy=False, right=(one,)) for one in faults]
    assert tally(pairs, 0) == Tally(*counted)
    assert tally(pairs, 0).cost == cost


def test_of_equally_good_settings_the_shipped_one_is_chosen() -> None:
    settings = settings_of(ONE)
    assert settings[chosen([Judged(0, healthy=True, right=(True,) * 5)], settings)] == (1.0,)


def test_a_fold_is_scored_by_what_was_chosen_without_it() -> None:
    """The setting that is right for fold 0 alone is chosen for the others, and answers them wrongly."""
    best, shipped = (True, False, False, False, False), (False, False, True, False, False)
    pairs = [Judged(0, healthy=False, right=best)] * 3 + [Judged(1, healthy=False, right=shipped)]
    rows = [[cell.strip() for cell in line.split("|")] for line in fitted_table(pairs, ONE).splitlines()[2:]]
    told = [(row[1], row[2], row[4].partition(" ")[0], row[6].partition(" ")[0]) for row in rows]
    assert told == [
        ("0", "as shipped", "0/3", "0/3"),
        ("1", "factor times 0.5", "0/1", "1/1"),
        ("**all**", "", "0/4", "1/4"),
    ]


def test_judging_again_says_what_a_comparison_with_those_thresholds_says(
    unpacked: Callable[[str], Path],
) -> None:
    pair = unpacked("experts/listed_off")
    report = compare(pair / "golden", pair / "target")
    again = judged_again(report, DEFAULTS)
    assert again.counts == report.counts
    assert again.findings.first_bad_node is not None
    assert report.findings.first_bad_node is not None
    assert again.findings.first_bad_node.target == report.findings.first_bad_node.target
    blind = judged_again(
        report, Thresholds(floor=1e6, bounded_floor=1e6, peer_floor=1e6, parameter_floor=1e6)
    )
    assert blind.findings.first_bad_node is None
