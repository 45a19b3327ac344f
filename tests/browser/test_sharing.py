"""A link is made in one browser and opened in another until it is revoked; a report opens from a disk."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from dashboard import Dashboard
from messages import like
from playwright.sync_api import Browser, Page, expect
from serving import serving

DEAD = re.compile(like("server.dead_link"), re.IGNORECASE)
TOKEN = "correct horse battery staple"  # noqa: S105


@pytest.fixture(scope="module")
def locked(dumps: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a server is that asks for a token, with one comparison made."""
    pair = (dumps / "renamed/golden", dumps / "renamed/target")
    with serving(dumps, tmp_path_factory.mktemp("locked"), [pair], TOKEN) as found:
        yield found


@pytest.fixture
def windows(browser: Browser, locked: str) -> Iterator[tuple[Dashboard, Dashboard]]:
    """The browser of somebody with the token, and that of a visitor."""
    contexts = [browser.new_context(viewport={"width": 1280, "height": 800}, base_url=locked) for _ in "ov"]
    for context in contexts:
        context.set_default_timeout(30_000)
    owner, visitor = (Dashboard(context.new_page(), locked) for context in contexts)
    owner.open(f"/c/1?token={TOKEN}")
    owner.wait_for_comparison()
    yield owner, visitor
    for context in contexts:
        context.close()
    assert owner.complaints == []


def make_link(page: Page, *, may_write: bool = False) -> str:
    page.locator("[data-share]").click()
    page.locator("[name=lasts]").select_option("1h")
    page.locator("[name=label]").fill("kernel team")
    if may_write:
        page.locator("[name=may_write]").check()
    page.locator("form[action$='/share'] button").click()
    return page.locator("#made-address").input_value()


def test_a_link_is_made_opened_elsewhere_and_revoked(windows: tuple[Dashboard, Dashboard]) -> None:
    owner, visitor = windows
    address = make_link(owner.page)
    owner.page.reload()
    expect(owner.page.locator("#made-address")).to_have_count(0)

    visitor.open(address)
    assert visitor.page.url == f"{visitor.address}/c/1"
    expect(visitor.page.locator(".finding .sentence")).to_be_visible()
    expect(visitor.page.locator("form[action$='/delete']")).to_be_hidden()
    expect(visitor.page.locator("[data-says=read-only]")).to_be_visible()
    pages = visitor.page.locator(".tab-list")
    expect(pages.get_by_role("link")).to_have_count(6)
    expect(pages.locator("a[href*='/match']")).to_have_count(0)
    pages.locator("a[href*='/graph']").click()
    box = visitor.page.locator('[role="treeitem"][aria-selected="true"]')
    expect(box).to_be_focused()
    row = box.get_attribute("data-row")
    visitor.page.keyboard.press("n")
    expect(box).not_to_have_attribute("data-row", row or "")
    visitor.open("/c/1")
    pages.locator("a[href*='/tree']").click()
    expect(visitor.page.locator("#panel .node")).to_be_visible()
    expect(visitor.page.locator("#notes form")).to_have_count(0)
    assert visitor.page.context.cookies()[0]["httpOnly"]
    visitor.settle()
    visitor.open("/c/1/rules")
    visitor.page.get_by_role("radio", name="msit").check()
    expect(visitor.page.locator("[data-says=tried-0]")).to_be_visible()
    expect(visitor.page.locator("#part-apply button")).to_have_count(0)
    visitor.settle()
    visitor.page.locator(".help-link").click()
    expect(visitor.page.locator("#class-source")).to_be_visible()
    visitor.page.locator("#next a[href='/c/1']").click()
    visitor.open("/c/1/rules")
    visitor.settle()
    assert visitor.complaints == [], "nothing that the pages ask for is refused"
    visitor.page.goto("/")
    expect(visitor.page.locator(".notice-status")).to_have_text("404")
    visitor.page.locator(".notice a[href='/c/1']").click()
    expect(visitor.page.locator(".finding")).to_be_visible()
    visitor.open("/c/1/rules")

    owner.page.locator("form[action$='/revoke'] button").click()
    expect(owner.page.locator("[data-says=no-link]")).to_be_visible()
    visitor.page.locator("#t-factor").fill("9")
    expect(visitor.page.locator(".toast button")).to_be_visible()
    visitor.page.reload()
    expect(visitor.page.locator(".notice")).to_be_visible()
    visitor.page.goto(address)
    expect(visitor.page.locator(".notice")).to_contain_text(DEAD)


def test_what_is_shared_is_the_view_as_it_is(windows: tuple[Dashboard, Dashboard]) -> None:
    owner, visitor = windows
    owner.open("/c/1/s/0/tree?row=1")
    owner.page.keyboard.press("ArrowDown")
    owner.page.wait_for_url(re.compile(r"row=(?!1\b)"))
    view = owner.page.url
    visitor.open(make_link(owner.page))
    assert visitor.page.url == view
    visitor.settle()
    assert visitor.complaints == []


def test_a_note_is_written_through_a_link_seen_by_the_owner_deleted_and_taken_back(
    windows: tuple[Dashboard, Dashboard],
) -> None:
    owner, visitor = windows
    visitor.open(make_link(owner.page, may_write=True))
    visitor.open("/c/1/s/0/tree?row=1")
    notes = visitor.page.locator("#panel #notes")
    notes.locator("summary").click()
    notes.locator("[name=author]").fill("Li")
    notes.locator("[name=text]").fill("n p u: not keys of the tree\nsee run 12")
    notes.locator("button.primary").click()
    expect(visitor.page).to_have_url(re.compile(r"/c/1/s/0/tree\?row=1"))
    expect(notes.locator(".node-note")).to_contain_text("see run 12")
    expect(notes.locator(".node-note .saved")).to_be_visible()
    expect(visitor.page.locator('[data-row="1"] .noted-mark')).to_be_visible()
    expect(visitor.page.locator(".noted-mark")).to_have_count(1)
    expect(notes.locator("[name=author]")).to_have_value("Li")
    visitor.settle()
    assert visitor.complaints == []

    owner.open("/c/1")
    owner.page.locator(".noted a").click()
    note = owner.page.locator(".node-note")
    expect(note).to_contain_text("Li")
    note.get_by_role("button").click()
    expect(note).to_have_count(0)
    owner.page.locator("form[action$='/restore'] button").click()
    expect(note).to_have_count(1)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_report_opens_from_a_disk_without_any_network(
    windows: tuple[Dashboard, Dashboard], browser: Browser, tmp_path: Path, scheme: Literal["light", "dark"]
) -> None:
    owner, _ = windows
    owner.page.locator(".for-files summary").click()
    with owner.page.expect_download() as download:
        owner.page.locator(".for-files a[href$='format=html']").click()
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    assert file.stat().st_size < 2_000_000
    context = browser.new_context(offline=True, java_script_enabled=False, color_scheme=scheme)
    page = context.new_page()
    asked: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.goto(file.as_uri())
    expect(page.locator(".finding .sentence")).to_be_visible()
    expect(page.locator("#worst-title")).to_be_visible()
    assert (asked, complaints) == ([file.as_uri()], [])
    context.close()


def test_who_is_logged_in_logs_out_with_the_keyboard_and_a_visitor_has_no_button_for_it(
    windows: tuple[Dashboard, Dashboard],
) -> None:
    owner, visitor = windows
    visitor.open(make_link(owner.page))
    expect(visitor.page.locator("form[action='/logout'] button")).to_have_count(0)
    owner.open("/c/1")
    cookies = owner.page.context.cookies()
    button = owner.page.locator("form[action='/logout'] button")
    button.focus()
    owner.page.keyboard.press("Enter")
    owner.page.wait_for_url("**/login?left=yes")
    expect(owner.page.locator("[data-says=logged-out]")).to_be_visible()
    expect(button).to_have_count(0)
    owner.page.context.add_cookies(cookies)
    assert owner.page.request.get(f"{owner.address}/c/1").status == 401
    assert visitor.page.request.get(f"{visitor.address}/c/1").status == 200
    owner.complaints.clear()  # the browser notes that the form comes with status 401


def test_an_open_tree_says_that_its_reader_is_no_longer_logged_in_and_leads_back(
    windows: tuple[Dashboard, Dashboard],
) -> None:
    owner, _ = windows
    page = owner.page
    owner.open("/c/1/s/0/tree")
    expect(page.locator("#panel .node")).to_be_visible()
    page.context.clear_cookies()  # as when firstdrift was started again with another token
    page.keyboard.press("n")
    expect(page.locator(".toast button")).to_be_visible()
    expect(page.locator("#panel .node")).to_have_count(0)  # nothing of a node that is not the picked one
    page.locator(".toast button").click()
    page.locator("#token").fill(f"{owner.address}/?token={TOKEN}")
    page.locator(".notice form button").click()
    expect(page.locator("#panel .node")).to_be_visible()
    owner.complaints.clear()  # the browser notes each answer with status 401
