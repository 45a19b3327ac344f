"""`firstdrift rules`: by what nodes are judged."""

import json
from collections.abc import Callable
from typing import Any

from firstdrift.verdict.rule_book import ENTRIES, TABLES

Run = Callable[..., Any]


def test_the_rules_are_listed_in_the_order_in_which_they_are_asked(firstdrift: Run) -> None:
    done = firstdrift("rules")
    words = done.out.split()
    named = [word for word in words if word in ENTRIES]
    assert named == [entry.name for table in TABLES.values() for entry in table]
    assert "factor=3" in done.out
    assert (done.status, done.err) == (0, "")


def test_the_rules_are_data_as_well(firstdrift: Run) -> None:
    tables = json.loads(firstdrift("rules", "--json").out)
    assert list(tables) == list(TABLES)
    source = next(one for one in tables["classes"] if one["name"] == "class.source")
    assert (source["class"], source["thresholds"]) == ("source", {"factor": 3, "floor": 32})
    assert source["why"]["id"] == "rule.class.source"
