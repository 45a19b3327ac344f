"""A member who only looks sees every page, and is told what they may not do; the audit log by keyboard."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboard import Dashboard
from messages import like
from playwright.sync_api import Browser, expect
from serving import serving

from firstdrift.catalogue.engine import database_url, open_engine, writing
from firstdrift.catalogue.people.members import add_member

TOKEN = "correct horse battery staple"  # noqa: S105
REFUSED = re.compile(like("server.changes_nothing"), re.IGNORECASE)


@pytest.fixture(scope="module")
def locked(dumps: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Where a server is with one comparison made, and the token of a member who only looks."""
    pair = (dumps / "renamed/golden", dumps / "renamed/target")
    data = tmp_path_factory.mktemp("members")
    with serving(dumps, data, [pair], TOKEN) as found:
        engine = open_engine(database_url(data))
        with writing(engine) as session:
            _, token = add_member(session, "vera", may_write=False)
        engine.dispose()
        yield found, token


@pytest.fixture
def viewer(browser: Browser, locked: tuple[str, str]) -> Iterator[Dashboard]:
    address, token = locked
    context = browser.new_context(viewport={"width": 1280, "height": 800}, base_url=address)
    context.set_default_timeout(30_000)
    opened = Dashboard(context.new_page(), address)
    opened.open(f"/c/1?token={token}")
    opened.wait_for_comparison()
    yield opened
    context.close()


def test_a_viewer_is_shown_what_there_is_and_offered_nothing_that_changes_it(viewer: Dashboard) -> None:
    page = viewer.page
    expect(page.locator("[data-says=only-looks]")).to_be_visible()
    for form in page.locator("form[method=post]:not(.languages, [action='/logout'])").all():
        expect(form).to_be_hidden()
    for path, shown in (("/c/1/s/0/match", "#match"), ("/c/1/share", "#links-title"), ("/new", "#new")):
        assert viewer.open(path) == 200
        expect(page.locator(shown)).to_be_visible()
    expect(page.locator("form[action='/logout']")).to_be_visible()
    assert viewer.complaints == []
    viewer.open("/new")
    page.evaluate("document.querySelector('#new').submit()")
    expect(page.locator("main")).to_contain_text(REFUSED)


def test_the_audit_log_is_narrowed_and_every_view_is_an_address(viewer: Dashboard) -> None:
    page = viewer.page
    viewer.open("/")
    page.locator(".foot a").click()
    page.wait_for_url("**/audit")
    page.locator("select[name=who]").select_option("member:vera")
    page.wait_for_url("**who=member%3Avera**")
    expect(page.locator(".audit tbody tr").first).to_contain_text("vera")
    page.keyboard.press("/")
    page.keyboard.type("1")
    page.keyboard.press("Enter")
    page.wait_for_url("**comparison=1**")
    expect(page.locator("[data-says=nothing-found]")).to_be_visible()
    page.locator(".find a.button").click()
    page.wait_for_url("**/audit")
    expect(page.locator(".audit tbody tr").last).to_contain_text("#1")
    assert viewer.complaints == []
