"""The first sentence names the cause of most planted faults, and of nothing healthy: counted over all pairs.

The sentences are those of the snapshot, which `test_snapshot.py` holds to be what is said.
"""

import tomllib
from pathlib import Path

import pytest
from truth.snapshot import Said, read_snapshot

PLANTED: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_name("planted_causes.toml").read_text(encoding="utf-8")
)
LINE = {"cause.line", "cause.line_by_statistics", "hint.line"}
NAMED_BY = {
    "factor": LINE,
    "factor and operators": {"cause.calls", "cause.calls_more"},
    "factor on one rank": {"cause.only_rank"},
    "part": {"hint.in_index", "hint.in_indexes"},
    "order": {"hint.reordered"},
    "constant": {"hint.constant", "hint.zero"},
    "not finite": {"cause.contains"},
    "another operator": {"cause.other_operator"},
    "operator of one run alone": {"reason.runs_alone_golden", "reason.runs_alone_target"},
    "argument": {"reason.argument", "reason.argument_times"},
    "optimizer": {"finding.optimizer", "finding.optimizer_of_others"},
    "frozen": {"reason.one_sided_gradient_tensor_golden"},
}
"""By which messages a sentence names what was planted."""

CAUSES = ("cause.", "shown.", "hint.")
PLACES = {"cause.after_inside", "cause.changed_after", "cause.between"}
"""They say where inside a node the difference arises, of faults without a pattern, too."""

LEAST_SHARE = 0.9


@pytest.fixture(scope="module")
def said() -> dict[str, Said]:
    return read_snapshot()


def test_of_each_pair_that_differs_the_table_knows_what_was_planted(said: dict[str, Said]) -> None:
    listed = [pair for pairs in PLANTED.values() for pair in pairs]
    assert len(listed) == len(set(listed))
    assert set(listed) == {pair for pair, told in said.items() if told.get("exit") == 1}


def test_most_causes_are_named(said: dict[str, Said]) -> None:
    named = {
        pair: not named_by.isdisjoint(said[pair].get("why", []))
        for kind, named_by in NAMED_BY.items()
        for pair in PLANTED[kind]
    }
    missed = [pair for pair, is_named in named.items() if not is_named]
    share = 1 - len(missed) / len(named)
    assert len(named) > 100
    assert share >= LEAST_SHARE, f"{share:.1%} of {len(named)}; missed are {missed}"


def test_what_does_not_differ_and_what_has_no_pattern_has_no_cause(said: dict[str, Said]) -> None:
    healthy = [pair for pair, told in said.items() if told.get("exit") != 1]
    without = [pair for kind, pairs in PLANTED.items() if kind not in NAMED_BY for pair in pairs]
    assert len(healthy) > 300
    with_cause = [
        pair
        for pair in (*healthy, *without)
        if any(id_.startswith(CAUSES) and id_ not in PLACES for id_ in said[pair].get("why", []))
    ]
    assert with_cause == []
    assert [pair for pair in healthy if not PLACES.isdisjoint(said[pair].get("why", []))] == []
