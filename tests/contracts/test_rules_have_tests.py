"""Every rule of the tables is tried by name, in the file where those of its table are."""

from pathlib import Path

import pytest

from firstdrift.verdict.rule_book import ENTRIES

VERDICT = Path(__file__).parents[1] / "library" / "verdict"
TRIED_IN = {
    "explanation": "test_tables.py",
    "class": "test_tables.py",
    "systematic": "test_systematic.py",
}
"""By kind of rule. Taken out of its table, a rule is named by none of the answers that these tests expect."""


@pytest.mark.parametrize("name", ENTRIES)
def test_a_rule_is_named_by_a_test(name: str) -> None:
    kind, _, rule = name.partition(".")
    assert f'"{rule}"' in (VERDICT / TRIED_IN[kind]).read_text("utf-8")
