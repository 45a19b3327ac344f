"""Members are let in until they are removed; the audit log keeps who did what, and no secret."""

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from messages import refuses
from sqlalchemy import Engine, event, text, update

from firstdrift.catalogue.columns import Now
from firstdrift.catalogue.comparisons.records import create_comparison, delete_comparison
from firstdrift.catalogue.engine import open_engine, reading, writing
from firstdrift.catalogue.matches.match_sets import create_match_set
from firstdrift.catalogue.migrate import upgrade
from firstdrift.catalogue.people.audit import (
    KEPT_DAYS,
    LONGEST_USER,
    MOST_ADDRESSES,
    Act,
    Actor,
    Deed,
    Entered,
    Sought,
    Who,
    at_terminal,
    enter,
    entries,
    purge_audit,
    those_known,
)
from firstdrift.catalogue.people.members import (
    add_member,
    list_members,
    member_of,
    member_of_token,
    note_member_seen,
    remove_member,
)
from firstdrift.catalogue.tables import AuditEntry
from firstdrift.comparison.report import Options
from firstdrift.errors import NotInCatalogueError, SettingsError

OWNER, ANN, STRANGER = Who(Actor.OWNER), Who(Actor.MEMBER, "ann", 1), Who(Actor.STRANGER)
DAY = timedelta(days=1).total_seconds()


def add(engine: Engine, name: str) -> tuple[int, str]:
    with writing(engine) as session:
        return add_member(session, name)


def keep(engine: Engine, *deeds: Deed) -> None:
    for deed in deeds:
        with writing(engine) as session:
            enter(session, deed)


def listed(engine: Engine, sought: Sought | None = None, limit: int = 100) -> tuple[Entered, ...]:
    with reading(engine) as session:
        return entries(session, sought or Sought(), limit)


def test_the_token_of_a_member_is_not_in_the_database(engine: Engine) -> None:
    _, token = add(engine, "ann")
    assert len(token) >= 43, "256 bits"
    with reading(engine) as session:
        (row,) = session.execute(text("SELECT * FROM members")).all()
    assert not any(token in str(cell) or token.encode() in bytes(str(cell), "utf-8") for cell in row)


def test_a_member_is_one_until_removed_and_nobody_else_is(engine: Engine) -> None:
    (ann, token), (bob, other) = add(engine, "ann"), add(engine, "Bob Li")
    with reading(engine) as session:
        assert member_of_token(session, token) == member_of(session, ann)
        found = [member_of_token(session, shown) for shown in (other, "", "guess", token[:-1], "a" * 43)]
        assert [member.name if member else None for member in found] == ["Bob Li", None, None, None, None]
    with writing(engine) as session:
        assert remove_member(session, "ann") == ann
    with reading(engine) as session:
        assert (member_of_token(session, token), member_of(session, ann)) == (None, None)
        assert member_of_token(session, other) is not None
        assert [(one.name, one.removed_at is None) for one in list_members(session)] == [
            ("Bob Li", True),
            ("ann", False),
        ]
    again, new = add(engine, "ann")
    with writing(engine) as session:
        note_member_seen(session, bob)
    with reading(engine) as session:
        assert again not in (ann, bob)
        assert member_of_token(session, token) is None, "a name that comes again brings no token back"
        assert member_of_token(session, new) is not None
        seen = {one.name: one.seen_at is not None for one in list_members(session) if not one.removed_at}
        assert seen == {"ann": False, "Bob Li": True}


def test_two_members_never_have_one_name(engine: Engine) -> None:
    add(engine, "ann")
    with writing(engine) as session, refuses(SettingsError, "catalogue.member.known"):
        add_member(session, "ann")


@pytest.mark.parametrize("name", ["", " ", "ann ", " ann", "a" * 61, "a\nb", "a:b", "<b>", "\x1a", "a/b"])
def test_what_is_no_name_is_refused(engine: Engine, name: str) -> None:
    with writing(engine) as session, refuses(SettingsError, "catalogue.member.no_name"):
        add_member(session, name)


@pytest.mark.parametrize("name", ["ann", "王芳", "j.doe@example.org", "team-2 +x", "_", "a" * 60])
def test_names_of_people_are_taken(engine: Engine, name: str) -> None:
    assert add(engine, name)[0]


def test_whoever_is_no_member_cannot_be_removed(engine: Engine) -> None:
    with writing(engine) as session, refuses(NotInCatalogueError, "catalogue.no_member"):
        remove_member(session, "ann")


def test_an_entry_comes_and_goes_with_its_change(engine: Engine) -> None:
    def compare(*, fails: bool) -> None:
        with writing(engine) as session:
            made = create_comparison(session, Path("/golden"), Path("/target"), Options())
            enter(session, Deed(Act.COMPARED, OWNER, "192.0.2.1", made))
            if fails:
                raise RuntimeError

    with pytest.raises(RuntimeError):
        compare(fails=True)
    assert listed(engine) == ()
    compare(fails=False)
    assert [entry.act for entry in listed(engine)] == ["compared"]


def test_entries_are_found_by_who_what_and_of_which_comparison(engine: Engine) -> None:
    link = Who(Actor.LINK, "for Li", 4)
    keep(
        engine,
        Deed(Act.COMPARED, OWNER, "192.0.2.1", 1),
        Deed(Act.COMPARED, ANN, "192.0.2.2", 2),
        Deed(Act.NOTE_WRITTEN, link, "192.0.2.3", 1, "note", "7"),
        Deed(Act.MEMBER_ADDED, Who(Actor.TERMINAL, "root"), kind="member", subject="ann"),
    )
    assert [entry.id for entry in listed(engine)] == [4, 3, 2, 1]
    found = {
        ("owner", "", None): [1],
        ("member:ann", "", None): [2],
        ("member:bob", "", None): [],
        ("link:4", "", None): [3],
        ("link:ann", "", None): [],
        ("terminal", "", None): [4],
        ("", "compared", None): [2, 1],
        ("", "", 1): [3, 1],
        ("owner", "compared", 1): [1],
        ("nobody", "", None): [],
    }
    for (who, act, comparison), expected in found.items():
        assert [entry.id for entry in listed(engine, Sought(who, act, comparison))] == expected
    assert [entry.id for entry in listed(engine, Sought(before=3), 1)] == [2]
    with reading(engine) as session:
        assert those_known(session) == ("link:4", "member:ann", "owner", "terminal")


def test_an_entry_outlasts_what_it_is_about(engine: Engine) -> None:
    with writing(engine) as session:
        made = create_comparison(session, Path("/golden"), Path("/target"), Options())
        number = create_match_set(session, made, "by hand")
        delete_comparison(session, made)
        enter(session, Deed(Act.SET_RENAMED, ANN, kind="match_set", subject=str(number)))
        enter(session, Deed(Act.SET_RENAMED, ANN, kind="match_set", subject="999"))
        session.execute(text("DELETE FROM comparisons"))
    assert [entry.comparison_id for entry in listed(engine)] == [None, made]


def test_what_is_done_again_and_again_is_counted_hour_by_hour(engine: Engine) -> None:
    sent = Deed(Act.PART_SENT, ANN, "192.0.2.2", kind="upload", subject="u1")
    keep(engine, sent, sent, Deed(Act.PART_SENT, OWNER, "192.0.2.2", kind="upload", subject="u1"), sent)
    assert [entry.times for entry in listed(engine)] == [1, 3]
    with writing(engine) as session:
        session.execute(update(AuditEntry).values(at=Now(-3601)))
    keep(engine, sent)
    assert [entry.times for entry in listed(engine)] == [1, 1, 3]
    deleted = Deed(Act.DELETED, ANN, "192.0.2.2", 1)
    keep(engine, deleted, deleted)
    assert [entry.act for entry in listed(engine)][:2] == ["deleted", "deleted"], "each by itself"


def test_whoever_came_through_a_link_does_not_fill_the_log_by_taking_back_and_forth(engine: Engine) -> None:
    link = Who(Actor.LINK, "for Li", 4)
    deleted, restored = (
        Deed(act, link, "192.0.2.3", 1, "note", "7") for act in (Act.NOTE_DELETED, Act.NOTE_RESTORED)
    )
    keep(engine, *[deleted, restored] * 20)
    assert [(entry.act, entry.times) for entry in listed(engine)] == [
        ("note restored", 20),
        ("note deleted", 20),
    ]


def test_strangers_cannot_fill_the_log_however_many_addresses_they_have(engine: Engine) -> None:
    keep(engine, *(Deed(Act.REFUSED, STRANGER, f"2001:db8::{number:x}") for number in range(MOST_ADDRESSES)))
    keep(engine, *(Deed(Act.REFUSED, STRANGER, f"2001:db8:1::{number:x}") for number in range(30)))
    keep(engine, Deed(Act.REFUSED, STRANGER, "2001:db8::1"))
    found = listed(engine)
    assert len(found) == MOST_ADDRESSES + 1
    assert (found[0].address, found[0].times) == ("", 30)
    assert next(entry.times for entry in found if entry.address == "2001:db8::1") == 2


def test_entries_are_kept_for_more_than_a_year_and_not_for_ever(engine: Engine) -> None:
    keep(engine, *(Deed(Act.DELETED, ANN, comparison=number) for number in (1, 2, 3)))
    with writing(engine) as session:
        for number, days in ((1, KEPT_DAYS + 1), (2, KEPT_DAYS - 1)):
            old = update(AuditEntry).where(AuditEntry.comparison_id == number)
            session.execute(old.values(at=Now(-days * DAY), until=Now(-days * DAY)))
        purge_audit(session)
    assert [entry.comparison_id for entry in listed(engine)] == [3, 2]


@pytest.fixture
def full(database: str) -> Iterator[Engine]:
    """A database, of either kind, whose log has many entries of few."""
    engine = open_engine(database)
    upgrade(engine)
    links = [Who(Actor.LINK, "", number) for number in (7, 2**31 - 1)]
    members = [Who(Actor.MEMBER, name, 1) for name in ("王芳", "ann", "Bob")]
    with writing(engine) as session:
        for one in (OWNER, STRANGER, Who(Actor.TERMINAL, "root"), *links, *members):
            deed = {"actor": one.actor.value, "name": one.name, "number": one.number, "act": "deleted"}
            session.add_all(AuditEntry(**deed) for _ in range(200))
    yield engine
    engine.dispose()


def test_all_who_are_in_the_log_are_found_without_reading_it(full: Engine) -> None:
    asked: list[tuple[str, Any]] = []
    event.listen(full, "before_cursor_execute", lambda *given: asked.append((given[2], given[3])))
    with reading(full) as session:
        known = those_known(session)
        assert len({entry.id for one in known for entry in entries(session, Sought(one), 300)}) == 8 * 200
    links, members = ("link:2147483647", "link:7"), ("member:Bob", "member:ann", "member:王芳")
    assert known == (*links, *members, "owner", "stranger", "terminal")
    if full.dialect.name != "sqlite":
        return  # which reads a table so small as a whole
    found = [one for one in asked if "audit" in one[0]]
    with full.connect() as connection:
        plans = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {one}", given).all() for one, given in found]
    steps = [step.detail for plan in plans for step in plan if "audit" in step.detail]
    assert len(steps) >= len(found) > 8
    assert [step for step in steps if not step.startswith("SEARCH audit USING")] == [], "each by an index"


def test_a_number_that_no_column_can_hold_is_not_found(full: Engine) -> None:
    number = 10**18 - 1
    with reading(full) as session:
        assert entries(session, Sought(f"link:{number}"), 9) == ()
        assert entries(session, Sought(comparison=number), 9) == ()
        assert len(entries(session, Sought(before=number), 9)) == 9
        assert session.get(AuditEntry, number) is None
    with writing(full) as session:
        enter(session, Deed(Act.CANCELLED, OWNER, kind="job", subject=f"{number}"))


def test_the_user_of_a_terminal_is_any_text(full: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(7)  # noqa: S311 (no secret)
    monkeypatch.setenv("LOGNAME", "".join(chr(chance.randrange(0x4E00, 0x9FFF)) for _ in range(4000)))
    with writing(full) as session:
        enter(session, Deed(Act.IMPORTED, at_terminal()))
    assert len(listed(full)[0].name) == LONGEST_USER
