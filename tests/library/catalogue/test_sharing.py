"""What is promised of links: the secret is nowhere, and a link opens what it should as long as it should."""

from datetime import timedelta
from pathlib import Path

import pytest
from messages import refuses
from sqlalchemy import Engine, text, update

from firstdrift.catalogue.columns import Now
from firstdrift.catalogue.comparisons.records import (
    create_comparison,
    delete_comparison,
    restore_comparison,
)
from firstdrift.catalogue.engine import reading, writing
from firstdrift.catalogue.matches.match_sets import add_edits, create_match_set, delete_match_set
from firstdrift.catalogue.sharing.links import (
    LONGEST,
    SHORTEST,
    active_links,
    link_to,
    new_link,
    open_links,
    revoke_link,
    shared_comparison,
)
from firstdrift.catalogue.tables import ShareLinkEntry
from firstdrift.comparison.report import Options
from firstdrift.errors import NotInCatalogueError, SettingsError
from firstdrift.matching.manual.edits import match

HOUR = timedelta(hours=1)


@pytest.fixture
def comparison(engine: Engine) -> int:
    with writing(engine) as session:
        return create_comparison(session, Path("/dumps/golden"), Path("/dumps/target"), Options())


def make(engine: Engine, comparison: int, lasts: timedelta | None = HOUR) -> tuple[int, str]:
    with writing(engine) as session:
        return new_link(session, comparison, lasts)


def opens(engine: Engine, *secrets: str) -> list[int]:
    with reading(engine) as session:
        return [link.id for link in open_links(session, secrets)]


def test_the_secret_is_not_in_the_database(engine: Engine, comparison: int) -> None:
    _, secret = make(engine, comparison)
    assert len(secret) >= 43, "256 bits"
    with reading(engine) as session:
        (row,) = session.execute(text("SELECT * FROM share_links")).all()
    assert not any(secret in str(cell) or secret.encode() in bytes(str(cell), "utf-8") for cell in row)


def test_a_link_opens_until_it_is_revoked_and_no_other_does(engine: Engine, comparison: int) -> None:
    (one, secret), (other, other_secret) = make(engine, comparison), make(engine, comparison, None)
    assert sorted(opens(engine, secret, other_secret, "", "guess", secret[:-1])) == [one, other]
    with writing(engine) as session:
        revoke_link(session, comparison, one)
        revoke_link(session, comparison, one)
    assert opens(engine, secret, other_secret) == [other]
    with reading(engine) as session:
        assert [link.id for link in active_links(session, comparison)] == [other]


def test_a_link_expires(engine: Engine, comparison: int) -> None:
    link, secret = make(engine, comparison)
    for seconds, opened in ((60, [link]), (-1, [])):
        with writing(engine) as session:
            session.execute(update(ShareLinkEntry).values(expires_at=Now(seconds)))
        assert opens(engine, secret) == opened
    with reading(engine) as session:
        assert active_links(session, comparison) == ()


def test_a_link_to_a_comparison_in_the_bin_opens_nothing_until_it_is_back(
    engine: Engine, comparison: int
) -> None:
    link, secret = make(engine, comparison)
    with writing(engine) as session:
        delete_comparison(session, comparison)
    assert opens(engine, secret) == []
    with writing(engine) as session:
        restore_comparison(session, comparison)
    assert opens(engine, secret) == [link]


@pytest.mark.parametrize("lasts", [timedelta(0), SHORTEST - timedelta(seconds=1), LONGEST + HOUR])
def test_a_link_lasts_neither_too_short_nor_too_long(
    engine: Engine, comparison: int, lasts: timedelta
) -> None:
    with refuses(SettingsError, "catalogue.link.duration"):
        make(engine, comparison, lasts)


def test_a_link_shows_the_results_of_match_sets_and_no_other_comparison(
    engine: Engine, comparison: int
) -> None:
    with writing(engine) as session:
        other = create_comparison(session, Path("/dumps/a"), Path("/dumps/b"), Options())
        laid = create_match_set(session, comparison, "mine")
        results = add_edits(session, laid, 0, (match("a", "b"),)).results()
    assert results is not None
    link, secret = make(engine, results)

    def shown() -> list[int]:
        with reading(engine) as session:
            links = open_links(session, [secret])
            return [one for one in (comparison, results, other, 99) if link_to(session, one, links)]

    assert shown() == [comparison, results], "a link made on the results belongs to the comparison below"
    with reading(engine) as session:
        assert shared_comparison(session, results) == comparison
        assert [one.id for one in active_links(session, comparison)] == [link]
    with writing(engine) as session:
        delete_match_set(session, laid)
    assert shown() == [comparison]


def test_a_link_of_another_comparison_cannot_be_revoked_by_mistake(engine: Engine, comparison: int) -> None:
    link, secret = make(engine, comparison)
    with writing(engine) as session:
        other = create_comparison(session, Path("/dumps/a"), Path("/dumps/b"), Options())
    with pytest.raises(NotInCatalogueError), writing(engine) as session:
        revoke_link(session, other, link)
    assert opens(engine, secret) == [link]
