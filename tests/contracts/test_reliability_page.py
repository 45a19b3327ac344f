"""docs/reliability.md says what runs have shown, and no more."""

import json
import re

import soak


def test_the_page_is_what_is_made_of_the_figures() -> None:
    kept = json.loads(soak.KEPT.read_text(encoding="utf-8"))
    assert set(kept) <= set(soak.PROMISES)
    assert soak.TABLE.read_text(encoding="utf-8") == soak.table(kept)


def test_each_promise_has_tests_that_record_a_figure_for_it() -> None:
    for name, promise in soak.PROMISES.items():
        said = "".join((soak.HERE / test).read_text(encoding="utf-8") for test in promise.tests)
        assert re.search(rf'record(ed)?\(\s*"{name}"', said), name


def test_what_failed_or_was_not_tried_is_said_so() -> None:
    promise = soak.PROMISES["paths"]
    assert soak.row("paths", promise, {}).endswith("| not tried |  |")
    told = {"figures": ["2 requests"], "held": False, "date": "2026-01-02"}
    assert soak.row("paths", promise, told).endswith("| **not held** | 2026-01-02 |")
    assert soak.told_of(promise, told)[-1] == "- 2 requests"
    assert soak.told_of(promise, {})[-1] == "- no figures"
