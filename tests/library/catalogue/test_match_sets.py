"""What is promised of match sets in the catalogue: versions stay, undo is exact, nobody is overrun."""

import threading
from datetime import timedelta
from pathlib import Path

import pytest
from messages import refuses
from msgspec.structs import replace
from sqlalchemy import Engine, text

from firstdrift.catalogue.comparisons.records import (
    create_comparison,
    delete_comparison,
    get_comparison,
    list_comparisons,
    purge_deleted,
)
from firstdrift.catalogue.engine import reading, writing
from firstdrift.catalogue.matches.match_sets import (
    MatchSet,
    add_edits,
    create_match_set,
    delete_match_set,
    get_match_set,
    judge_again,
    laid_over,
    list_match_sets,
    redo,
    rename_match_set,
    restore_match_set,
    undo,
)
from firstdrift.comparison.report import Options
from firstdrift.errors import ConflictError, NotInCatalogueError, SettingsError
from firstdrift.matching.manual.edits import Edit, match, unmatch
from firstdrift.matching.manual.mapping import MappingEntry, MappingFile, MappingKind
from firstdrift.matching.plan import MatchingRules
from firstdrift.wording.message import Message

A, B = Path("/dumps/golden"), Path("/dumps/target")
SAID = Options(matching=MatchingRules(structure=False, edits=(match("first", "said"),)), level="module")
ONE, TWO, THREE = match("a", "b"), unmatch(target="c", descendants=False), match(["d", "e"], "f\ud800\n'")
MAPPING = MappingFile("m.yaml", MappingKind.CELL, (MappingEntry(3, "a", ("b",)),))


@pytest.fixture
def match_set(engine: Engine) -> int:
    """An empty match set over comparison 1."""
    with writing(engine) as session:
        comparison = create_comparison(session, A, B, SAID, note="look here")
        return create_match_set(session, comparison, " renamed MLPs ")


def add(engine: Engine, match_set: int, seen: int, *edits: Edit) -> MatchSet:
    with writing(engine) as session:
        return add_edits(session, match_set, seen, edits)


def there(engine: Engine, match_set: int) -> MatchSet:
    with reading(engine) as session:
        return get_match_set(session, match_set)


def test_a_new_match_set_decides_nothing_and_shows_the_comparison_it_is_laid_over(
    engine: Engine, match_set: int
) -> None:
    known = there(engine, match_set)
    assert (known.name, known.version, known.versions, known.edits()) == ("renamed MLPs", 0, (), ())
    assert (known.undone, known.redone, known.results()) == (None, None, known.comparison_id)
    with reading(engine) as session:
        assert list_match_sets(session, known.comparison_id) == (known,)


def test_each_step_is_a_version_with_results_of_its_own(engine: Engine, match_set: int) -> None:
    first = add(engine, match_set, 0, ONE)
    second = add(engine, match_set, 1, TWO, THREE)
    assert second == there(engine, match_set)
    assert (second.version, second.edits(), second.edits(1), second.edits(0)) == (
        2,
        (ONE, TWO, THREE),
        (ONE,),
        (),
    )
    assert second.versions[0] == first.versions[0]
    made = [one.results_id for one in second.versions]
    assert len({None, *made}) == 3
    with reading(engine) as session:
        results = get_comparison(session, made[1] or 0)
        assert results.options.matching.edits == (*SAID.matching.edits, ONE, TWO, THREE)
        assert (results.options.level, results.options.matching.structure) == ("module", False)
        assert (results.golden_path, results.target_path, results.note) == (A, B, "look here")
        assert results.job.priority > get_comparison(session, second.comparison_id).job.priority
        assert laid_over(session, results.id) == second
        assert laid_over(session, second.comparison_id) is None


def test_undo_and_redo_move_between_versions_that_stay_as_they_are(engine: Engine, match_set: int) -> None:
    add(engine, match_set, 0, ONE)
    before = add(engine, match_set, 1, TWO)
    with writing(engine) as session:
        assert (undo(session, match_set, 2).version, undo(session, match_set, 1).version) == (1, 0)
    with writing(engine) as session, refuses(SettingsError, "catalogue.match_set.nothing_to_undo"):
        undo(session, match_set, 0)
    with writing(engine) as session:
        assert (redo(session, match_set, 0).version, redo(session, match_set, 1).version) == (1, 2)
    assert there(engine, match_set) == before
    with writing(engine) as session, refuses(SettingsError, "catalogue.match_set.nothing_to_redo"):
        redo(session, match_set, 2)
    with reading(engine) as session:
        assert session.scalar(text("SELECT count(*) FROM comparisons")) == 3
        assert session.scalar(text("SELECT count(*) FROM jobs")) == 3


def test_an_edit_after_undo_cuts_redo_and_keeps_the_history(engine: Engine, match_set: int) -> None:
    add(engine, match_set, 0, ONE)
    add(engine, match_set, 1, TWO)
    with writing(engine) as session:
        undo(session, match_set, 2)
    known = add(engine, match_set, 1, THREE)
    assert (known.version, known.edits(), known.edits(2)) == (3, (ONE, THREE), (ONE, TWO))
    assert (known.undone, known.redone) == (1, None)
    with writing(engine) as session:
        assert undo(session, match_set, 3).redone == 3
        assert redo(session, match_set, 1).edits() == (ONE, THREE)


def test_who_has_seen_another_version_is_told_what_changed(engine: Engine, match_set: int) -> None:
    add(engine, match_set, 0, ONE)
    for change in (
        lambda session: add_edits(session, match_set, 0, (TWO,)),
        lambda session: undo(session, match_set, 0),
        lambda session: redo(session, match_set, 0),
    ):
        with writing(engine) as session, pytest.raises(ConflictError) as caught:
            change(session)
        (change_made,) = caught.value.message.arguments["changes"]
        assert change_made == ONE.message()
    with writing(engine) as session:
        undo(session, match_set, 1)
    with pytest.raises(ConflictError) as conflict:
        add(engine, match_set, 1, TWO)
    assert conflict.value.message.arguments["changes"] == (
        Message.of("matching.version.undone", change=ONE.message()),
    )
    with pytest.raises(ConflictError) as caught:
        add(engine, match_set, 77, TWO)
    assert caught.value.message == Message.of("matching.version.moved", version=0, seen=77)
    assert there(engine, match_set).version == 0


def test_of_many_who_edit_at_once_one_wins_each_version(engine: Engine, match_set: int) -> None:
    won: list[str] = []
    lost: list[ConflictError] = []

    def edit(name: str) -> None:
        while True:
            seen = there(engine, match_set).version
            try:
                add(engine, match_set, seen, match(name, name))
            except ConflictError as error:
                lost.append(error)
            else:
                won.append(name)
                return

    threads = [threading.Thread(target=edit, args=(f"node {at}",)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    known = there(engine, match_set)
    assert known.version == 8
    assert sorted(edit.golden[0] for edit in known.edits()) == sorted(won)
    assert len(won) == len(set(won)) == 8


def test_mapping_files_are_kept_with_the_version_that_read_them(engine: Engine, match_set: int) -> None:
    with writing(engine) as session:
        known = add_edits(session, match_set, 0, (), (MAPPING,))
    assert (known.mappings(), known.edits(), known.mappings(0)) == ((MAPPING,), (), ())
    assert known.versions[0].message() == Message.of("matching.version.reads", file="m.yaml")
    with reading(engine) as session:
        results = get_comparison(session, known.results() or 0)
    assert results.options.matching.mappings == (MAPPING,)


def test_results_of_match_sets_are_no_comparisons_of_the_list(engine: Engine, match_set: int) -> None:
    add(engine, match_set, 0, ONE)
    with reading(engine) as session:
        assert [found.id for found in list_comparisons(session)] == [1]


def test_other_rules_hold_for_the_versions_in_force_and_for_others_when_they_are(
    engine: Engine, match_set: int
) -> None:
    add(engine, match_set, 0, ONE)
    known = add(engine, match_set, 1, TWO)
    with writing(engine) as session:
        judge_again(session, 1, "msprobe")
    with reading(engine) as session:
        rules = [get_comparison(session, known.results(at) or 0).options.rules for at in (0, 1, 2)]
    assert rules == ["msprobe", "firstdrift", "msprobe"]
    with writing(engine) as session:
        undo(session, match_set, 2)
    with reading(engine) as session:
        assert get_comparison(session, known.results(1) or 0).options.rules == "msprobe"


def test_what_is_removed_for_good_takes_its_match_sets_along(engine: Engine, match_set: int) -> None:
    add(engine, match_set, 0, ONE)
    with writing(engine) as session:
        other = create_comparison(session, A, B, Options())
        delete_comparison(session, 1)
    with writing(engine) as session:
        purge_deleted(session, older_than=timedelta(seconds=-10))
    with reading(engine) as session:
        assert [found.id for found in list_comparisons(session)] == [other]
        for table, left in (("comparisons", 1), ("match_sets", 0), ("match_set_versions", 0), ("jobs", 1)):
            assert session.scalar(text(f"SELECT count(*) FROM {table}")) == left, table  # noqa: S608
        with pytest.raises(NotInCatalogueError):
            get_match_set(session, match_set)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "bad_name"),
        ("  ", "bad_name"),
        ("x" * 201, "bad_name"),
        ("renamed MLPs", "name_taken"),
        (" renamed MLPs", "name_taken"),
    ],
)
def test_a_name_is_needed_and_is_given_once(engine: Engine, match_set: int, name: str, said: str) -> None:
    del match_set
    with writing(engine) as session, refuses(SettingsError, f"catalogue.match_set.{said}"):
        create_match_set(session, 1, name)


def test_a_match_set_gets_another_name_that_no_other_has(engine: Engine, match_set: int) -> None:
    before = add(engine, match_set, 0, ONE)
    with writing(engine) as session:
        create_match_set(session, 1, "another")
        renamed = rename_match_set(session, match_set, "  whole model ")
        assert renamed == replace(before, name="whole model")
        assert rename_match_set(session, match_set, "whole model") == renamed
    for name, complaint in (("", "bad_name"), ("another", "name_taken")):
        with writing(engine) as session, refuses(SettingsError, f"catalogue.match_set.{complaint}"):
            rename_match_set(session, match_set, name)
    assert there(engine, match_set) == renamed


def test_a_deleted_match_set_leaves_no_results_and_comes_back_as_it_was(
    engine: Engine, match_set: int
) -> None:
    add(engine, match_set, 0, ONE)
    add(engine, match_set, 1, TWO)
    with writing(engine) as session:
        before = undo(session, match_set, 2)
        delete_match_set(session, match_set)
        (deleted,) = list_match_sets(session, 1, deleted=True)
        assert [one.results_id for one in deleted.versions] == [None, None]
    with writing(engine) as session:
        assert list_match_sets(session, 1) == ()
        assert session.scalar(text("SELECT count(*) FROM comparisons")) == 1
        assert session.scalar(text("SELECT count(*) FROM jobs")) == 1
        for forbidden in (get_match_set, delete_match_set, lambda *of: undo(*of, 1)):
            with pytest.raises(NotInCatalogueError):
                forbidden(session, match_set)
        with refuses(SettingsError, "catalogue.match_set.name_deleted"):
            create_match_set(session, 1, "renamed MLPs")
    with writing(engine) as session:
        restored = restore_match_set(session, match_set)
        assert laid_over(session, restored.results() or 0) == restored
        assert get_comparison(session, restored.results() or 0).options.matching.edits[-1] == ONE
        with pytest.raises(NotInCatalogueError):
            restore_match_set(session, match_set)
    assert (restored.name, restored.version, restored.edits(), restored.undone, restored.redone) == (
        before.name,
        before.version,
        before.edits(),
        before.undone,
        before.redone,
    )
    with writing(engine) as session:
        assert redo(session, match_set, 1).edits() == (ONE, TWO)


def test_a_match_set_that_was_deleted_long_ago_is_removed_for_good(engine: Engine, match_set: int) -> None:
    add(engine, match_set, 0, ONE)
    with writing(engine) as session:
        kept = create_match_set(session, 1, "kept")
        delete_match_set(session, match_set)
        purge_deleted(session, older_than=timedelta(days=1))
        assert len(list_match_sets(session, 1, deleted=True)) == 1
        purge_deleted(session, older_than=timedelta(seconds=-10))
        assert list_match_sets(session, 1, deleted=True) == ()
        assert [known.id for known in list_match_sets(session, 1)] == [kept]
        assert session.scalar(text("SELECT count(*) FROM match_set_versions")) == 0


def test_nothing_is_laid_over_what_is_laid_over(engine: Engine, match_set: int) -> None:
    results = add(engine, match_set, 0, ONE).results()
    with writing(engine) as session, refuses(SettingsError, "catalogue.match_set.made_by_one"):
        create_match_set(session, results or 0, "another")


def test_an_edit_that_makes_no_sense_is_not_kept(engine: Engine, match_set: int) -> None:
    with refuses(SettingsError, "catalogue.match_set.no_change"):
        add(engine, match_set, 0)
    nonsense = Edit(ONE.kind, ("a", "a"), ("b",))
    with refuses(SettingsError, "matching.edit.named_twice"):
        add(engine, match_set, 0, ONE, nonsense)
    assert there(engine, match_set).versions == ()
    with pytest.raises(NotInCatalogueError):
        add(engine, match_set + 1, 0, ONE)
    with pytest.raises(NotInCatalogueError):
        there(engine, match_set).edits(5)
