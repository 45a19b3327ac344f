"""Help: by the key ?, by the marks beside terms, and in the legends."""

import re

from dashboard import Dashboard
from playwright.sync_api import Page, expect


def test_the_key_leads_to_the_page_and_in_a_tree_through_the_list_of_keys(
    dashboard: Dashboard, page: Page
) -> None:
    dashboard.open("/c/1")
    dashboard.wait_for_comparison()
    page.keyboard.press("?")
    page.wait_for_url("**/help")
    expect(page.locator(".help-link")).to_have_attribute("aria-current", "page")
    dashboard.open("/c/1/s/0/tree")
    page.keyboard.press("?")
    page.locator("#help a[href='/help']").click()
    page.wait_for_url("**/help")


def test_a_mark_beside_a_term_leads_to_its_place(dashboard: Dashboard, page: Page) -> None:
    dashboard.open("/c/1")
    dashboard.wait_for_comparison()
    dashboard.open("/c/1/s/0/tree")
    page.locator(".row.head .output-cell .question").click()
    page.wait_for_url(re.compile("/help#term-output_error$"))
    expect(page.locator("#term-output_error")).to_be_in_viewport()


def test_legends_show_every_verdict_and_class_of_the_page(dashboard: Dashboard, page: Page) -> None:
    dashboard.open("/c/1")
    dashboard.wait_for_comparison()
    shown = page.locator(".places .class").evaluate_all("all => all.map((one) => one.className)")
    known = page.locator(".side-column .meanings .class").evaluate_all(
        "all => all.map((one) => one.className)"
    )
    assert set(shown) <= set(known)
    assert len(known) == 13
    dashboard.open("/c/1/s/0/tree")
    page.locator(".legend-menu summary").click()
    menu = page.locator(".legend-menu .menu-body")
    expect(menu).to_be_in_viewport(ratio=1)
    expect(menu.locator("dt .verdict")).to_have_count(5)
    page.keyboard.press("Escape")
    expect(menu).to_be_hidden()
