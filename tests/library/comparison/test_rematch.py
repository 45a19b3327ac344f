"""What is promised of reports that are edited by hand."""

from collections.abc import Callable
from pathlib import Path

import pytest
from messages import refuses

import firstdrift
from firstdrift import MatchingRules, Options, Report, compare, match, unmatch
from firstdrift.comparison import stages
from firstdrift.errors import SettingsError
from firstdrift.matching.plan import SlicePlan
from firstdrift.metrics.measurement import Measurement

Unpack = Callable[[str], Path]
MLP, FEED_FORWARD = (
    f"Module.model.layers.{{}}.{name}.LlamaMLP.forward.0" for name in ("mlp", "feed_forward")
)


@pytest.fixture(scope="module")
def by_name(unpacked: Unpack) -> Report:
    """Two renamed modules and what is inside of them have no partner."""
    folder = unpacked("msprobe/d4_renamed")
    return compare(folder / "golden", folder / "target", Options(matching=MatchingRules(structure=False)))


def said(report: Report) -> object:
    """Give all that is said of the slices; printed, for NaN differs from itself."""
    return repr(report.slices), report.counts, report.findings


def test_two_matches_by_hand_change_the_counts_as_previewed_and_are_what_a_fresh_comparison_finds(
    by_name: Report, unpacked: Unpack
) -> None:
    edits = [match(MLP.format(at), FEED_FORWARD.format(at)) for at in (1, 3)]
    effect = by_name.preview(*edits)
    after = by_name.match(edits[0].golden, edits[0].target).match(edits[1].golden, edits[1].target)
    assert (effect.before, effect.after) == (by_name.counts, after.counts)
    assert effect.findings_after == after.findings
    assert len(effect.added) == 46
    assert effect.removed == effect.notes == ()
    assert effect.new_pairs == after.counts.pairs - by_name.counts.pairs > 100
    assert (after.counts.unmatched_golden_nodes, after.counts.unmatched_target_nodes) == (0, 4)
    options = Options(matching=MatchingRules(structure=False, edits=tuple(edits)))
    folder = unpacked("msprobe/d4_renamed")
    fresh = compare(folder / "golden", folder / "target", options)
    assert said(after) == said(fresh)
    assert after.options == options


def test_a_report_is_left_as_it_was_and_taking_apart_leads_back_to_it(by_name: Report) -> None:
    before = said(by_name)
    there = by_name.match(MLP.format(1), FEED_FORWARD.format(1))
    back = there.unmatch(MLP.format(1))
    assert said(by_name) == before
    assert back.counts == by_name.counts
    assert back.findings == by_name.findings
    assert there.options.matching.edits == (match(MLP.format(1), FEED_FORWARD.format(1)),)


def test_only_what_is_new_is_measured(by_name: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []
    really = stages.measure_pairs

    def counting(plan: SlicePlan, start: int, stop: int) -> list[Measurement]:
        measured.append(stop - start)
        return really(plan, start, stop)

    monkeypatch.setattr(stages.measure_missing, "__defaults__", (counting,))
    after = by_name.match(MLP.format(1), FEED_FORWARD.format(1))
    assert measured == [after.counts.pairs - by_name.counts.pairs]
    measured.clear()
    after.unmatch(MLP.format(1))
    assert measured == []


def test_slices_that_lack_the_nodes_are_taken_over_as_they_are(unpacked: Unpack) -> None:
    folder = unpacked("msprobe/dp2_stat_mix")
    report = compare(folder / "golden", folder / "target")
    plan = report.slices[1].plan
    name = next(
        name
        for found in plan.matches
        for name in found.target
        if not any(name in other.target for other in report.slices[0].plan.matches) or len(report.slices) > 1
    )
    after = report.unmatch(target=name)
    for old, new in zip(report.slices, after.slices, strict=True):
        has_it = any(name in found.target for found in old.plan.matches)
        assert (new.judgement is old.judgement) is not has_it


def test_an_edit_that_fits_no_slice_is_refused(by_name: Report) -> None:
    with refuses(SettingsError, "matching.edit.no_node"):
        by_name.match("nothing", FEED_FORWARD.format(1))
    with refuses(SettingsError, "matching.edit.not_matched"):
        by_name.unmatch(target=FEED_FORWARD.format(1))
    with refuses(SettingsError, "matching.edit.not_matched"):
        by_name.preview(unmatch(target=FEED_FORWARD.format(1)))


def test_suggestions_are_asked_of_the_report(by_name: Report) -> None:
    first = by_name.suggest(target=FEED_FORWARD.format(3))[0]
    assert first.golden == (MLP.format(3),)
    after = by_name.match(first.golden, first.target)
    left = after.suggest(target=FEED_FORWARD.format(1))
    assert left[0].golden == (MLP.format(1),)
    assert all(MLP.format(3) not in one.golden for one in left)
    with refuses(SettingsError, "comparison.options.no_slice", number=7):
        by_name.suggest(target=FEED_FORWARD.format(1), at=7)


def test_the_library_offers_the_two_words() -> None:
    assert {"match", "unmatch"} <= set(firstdrift.__all__)
    assert firstdrift.match("a", "b") == match(["a"], ("b",))
