"""What another site can do with a page that it opens. To browsers, two names of one machine are two sites."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect


@pytest.fixture
def elsewhere(browser: Browser, address: str) -> Iterator[Page]:
    """A page under another name than the address."""
    page = browser.new_page()
    page.goto(address.replace("127.0.0.1", "localhost"))
    yield page
    page.close()


def test_a_page_that_another_site_opened_is_out_of_its_hands(elsewhere: Page, address: str) -> None:
    with elsewhere.expect_popup() as opened:
        elsewhere.evaluate("address => { window.opened = window.open(address) }", address)
    expect(opened.value.get_by_role("heading").first).to_be_visible()
    elsewhere.wait_for_function("window.opened.closed")
    assert opened.value.evaluate("window.opener") is None


def test_a_page_that_we_opened_stays_in_ours(elsewhere: Page) -> None:
    with elsewhere.expect_popup() as opened:
        elsewhere.evaluate("window.opened = window.open(location.href)")
    expect(opened.value.get_by_role("heading").first).to_be_visible()
    assert elsewhere.evaluate("window.opened.closed") is False
