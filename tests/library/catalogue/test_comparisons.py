from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, text, update

from firstdrift.catalogue.comparisons import records
from firstdrift.catalogue.comparisons.records import (
    Comparison,
    cancel_comparison,
    compare_again,
    create_comparison,
    delete_comparison,
    find_comparison,
    get_comparison,
    list_comparisons,
    purge_deleted,
    restore_comparison,
    set_note,
)
from firstdrift.catalogue.comparisons.slice_pairs import get_slice_pair, slice_pairs_of
from firstdrift.catalogue.engine import reading, writing
from firstdrift.catalogue.matches.match_sets import add_edits, create_match_set
from firstdrift.catalogue.tables import ComparisonEntry, JobState
from firstdrift.comparison.report import Options
from firstdrift.errors import NotInCatalogueError, SettingsError
from firstdrift.matching.manual.mapping import MappingEntry, MappingFile, MappingKind
from firstdrift.matching.plan import MatchingRules
from firstdrift.verdict.judgement import Findings
from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of

OPTIONS = Options(MatchingRules(fuzzy=True, token_offset=1), rules="msit", level="layer")


@pytest.fixture
def made(engine: Engine) -> int:
    with writing(engine, durable=True) as session:
        return create_comparison(session, Path("/d/golden"), Path("/d/target"), OPTIONS, note="first try")


def now(engine: Engine, comparison_id: int) -> Comparison:
    with reading(engine) as session:
        return get_comparison(session, comparison_id)


def test_a_comparison_waits_for_a_worker_with_all_that_was_chosen(engine: Engine, made: int) -> None:
    comparison = now(engine, made)
    assert (comparison.golden_path, comparison.target_path) == (Path("/d/golden"), Path("/d/target"))
    assert comparison.options == OPTIONS
    assert comparison.note == "first try"
    assert comparison.state is JobState.QUEUED
    assert comparison.findings is None
    with reading(engine) as session:
        assert slice_pairs_of(session, made) == ()


def test_the_newest_comparison_is_listed_first_and_the_list_can_be_continued(engine: Engine) -> None:
    with writing(engine) as session:
        made = [create_comparison(session, Path("/a"), Path("/b"), Options()) for _ in range(5)]
    with reading(engine) as session:
        first = list_comparisons(session, limit=2)
        rest = list_comparisons(session, before=first[-1].id)
    assert [comparison.id for comparison in (*first, *rest)] == made[::-1]


def test_an_equal_comparison_is_found_however_many_are_newer(engine: Engine, made: int) -> None:
    golden, target = Path("/d/golden"), Path("/d/target")
    with writing(engine) as session:
        for number in range(30):
            create_comparison(session, golden, Path(f"/d/{number}"), OPTIONS)
        assert find_comparison(session, golden, target, OPTIONS) == made
        assert find_comparison(session, golden, target, Options()) is None
        assert find_comparison(session, target, golden, OPTIONS) is None
        newer = create_comparison(session, golden, target, OPTIONS)
        assert find_comparison(session, golden, target, OPTIONS) == newer
        cancel_comparison(session, newer)
        assert find_comparison(session, golden, target, OPTIONS) == made
        compare_again(session, made, "firstdrift")
        assert find_comparison(session, golden, target, OPTIONS) == made
        delete_comparison(session, made)
        assert find_comparison(session, golden, target, OPTIONS) is None


def test_the_results_of_a_match_set_are_not_taken_for_an_equal_comparison(engine: Engine, made: int) -> None:
    mapping = MappingFile("m.yaml", MappingKind.CELL, (MappingEntry(3, "a", ("b",)),))
    mapped = replace(OPTIONS, matching=replace(OPTIONS.matching, mappings=(mapping,)))
    with writing(engine) as session:
        known = add_edits(session, create_match_set(session, made, "mine"), 0, (), (mapping,))
        assert get_comparison(session, known.results() or 0).options == mapped
        assert find_comparison(session, Path("/d/golden"), Path("/d/target"), mapped) is None


@pytest.mark.parametrize(
    ("words", "found"),
    [
        *(("GOLDEN", 1), ("first", 1), ("fir_t", 0), ("%", 0), ("nothing", 0)),
        *(("first golden", 1), ("  golden  FIRST ", 1), ("golden nothing", 0)),
    ],
)
def test_comparisons_are_found_by_path_and_note(engine: Engine, made: int, words: str, found: int) -> None:
    with reading(engine) as session:
        assert [comparison.id for comparison in list_comparisons(session, text=words)] == [made] * found


def test_the_findings_of_the_newest_comparisons_are_searched(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MOST_SEARCHED", 2)
    finding = Findings(summary=Message.of("summary.nothing_yet"))
    with writing(engine) as session:
        made = [create_comparison(session, Path("/a"), Path(name), Options()) for name in ("/b", "/c", "/d")]
        session.execute(update(ComparisonEntry).values(findings=finding))
    words = text_of(finding.summary)
    with reading(engine) as session:
        assert [comparison.id for comparison in list_comparisons(session, text=words)] == made[:0:-1]
        assert [comparison.id for comparison in list_comparisons(session, text="/B")] == made[:1]


def test_a_deleted_comparison_lies_in_the_bin_and_can_be_taken_back(engine: Engine, made: int) -> None:
    with writing(engine, durable=True) as session:
        delete_comparison(session, made)
    with reading(engine) as session:
        assert list_comparisons(session) == ()
        (binned,) = list_comparisons(session, deleted=True)
        assert binned.id == made
        assert binned.state is JobState.CANCELLED
    with writing(engine, durable=True) as session:
        restore_comparison(session, made)
    with reading(engine) as session:
        assert [comparison.id for comparison in list_comparisons(session)] == [made]


def test_the_bin_is_emptied_of_what_is_old_only(engine: Engine, made: int) -> None:
    with writing(engine) as session:
        kept = create_comparison(session, Path("/a"), Path("/b"), Options())
        delete_comparison(session, made)
    with writing(engine) as session:
        assert purge_deleted(session, older_than=timedelta(days=1)) == 0
        assert purge_deleted(session, older_than=timedelta(0)) == 1
    with reading(engine) as session:
        assert [comparison.id for comparison in list_comparisons(session)] == [kept]
        with pytest.raises(NotInCatalogueError):
            get_comparison(session, made)
        assert session.scalar(text("SELECT count(*) FROM jobs")) == 1


def test_a_note_is_kept(engine: Engine, made: int) -> None:
    with writing(engine, durable=True) as session:
        set_note(session, made, "after the fix of <rope>\0")
    assert now(engine, made).note == "after the fix of <rope>\0"


def test_a_comparison_that_waits_is_cancelled_at_once(engine: Engine, made: int) -> None:
    with writing(engine) as session:
        cancel_comparison(session, made)
    assert now(engine, made).state is JobState.CANCELLED


def test_comparing_again_under_other_rules_replaces_the_job(engine: Engine, made: int) -> None:
    with writing(engine) as session:
        job_id = compare_again(session, made, "msprobe")
    comparison = now(engine, made)
    assert comparison.options.rules == "msprobe"
    assert comparison.revision == 2
    assert comparison.job.id == job_id
    assert comparison.state is JobState.QUEUED
    with reading(engine) as session:
        waiting = session.scalar(text("SELECT count(*) FROM jobs WHERE state = 'queued'"))
    assert waiting == 1


def test_rules_that_do_not_exist_are_refused_before_any_work(engine: Engine, made: int) -> None:
    with pytest.raises(SettingsError), writing(engine) as session:
        create_comparison(session, Path("/a"), Path("/b"), Options(rules="strict"))
    with pytest.raises(SettingsError), writing(engine) as session:
        compare_again(session, made, "strict")
    assert now(engine, made).revision == 1


def test_what_is_not_there_is_an_error_of_its_own(engine: Engine, made: int) -> None:
    with reading(engine) as session:
        with pytest.raises(NotInCatalogueError):
            get_comparison(session, made + 1)
        with pytest.raises(NotInCatalogueError):
            get_slice_pair(session, made, 0)
    for change in (delete_comparison, restore_comparison, cancel_comparison, compare_again):
        with pytest.raises(NotInCatalogueError), writing(engine) as session:
            change(session, made + 1)
