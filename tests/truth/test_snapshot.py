"""Whoever changes a rule sees what it changes."""

from pathlib import Path

import pytest
from truth.snapshot import differences, pairs_of_tests, read_snapshot, say_pair


@pytest.mark.timeout(600)
def test_every_pair_of_dumps_is_answered_as_it_is_written_down(tmp_path: Path) -> None:
    pairs = pairs_of_tests(tmp_path)
    known = {name: said for name, said in read_snapshot().items() if not name.startswith("fixtures/")}
    assert len(known) > 150
    found = differences(known, {name: say_pair(pair) for name, pair in pairs.items()})
    assert not found, "\n".join(
        [*found, "If this is meant: python tests/truth/snapshot.py --write --fixtures …"]
    )


def test_a_difference_is_told_with_its_pair_its_place_and_both_values() -> None:
    was = {"one | other": {"exit": 0, "slices": {"token 1": {"classes": "3k"}}}}
    now = {"one | other": {"exit": 0, "slices": {"token 1": {"classes": "2k 1s"}}}}
    assert differences(was, was) == []
    assert differences(was, now) == [
        'one | other: .slices.token 1.classes\n    was "3k"\n    now "2k 1s"',
    ]
    assert differences(was, {}) != []
