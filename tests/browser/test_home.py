"""The front page by mouse and by keyboard."""

import re

from dashboard import Dashboard
from playwright.sync_api import Page, expect


def test_comparisons_are_searched_sorted_and_walked_through_with_keys(
    dashboard: Dashboard, page: Page
) -> None:
    dashboard.open("/c/2")
    dashboard.wait_for_comparison()
    dashboard.open("/")
    page.locator("select[name=sort]").select_option("oldest")
    page.wait_for_url(re.compile("sort=oldest"))
    rows = page.locator(".comparisons > li")
    expect(rows.first.locator(".what > a")).to_have_attribute("href", "/c/1")
    page.keyboard.press("/")
    page.keyboard.type("down_proj")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("q=down_proj"))
    expect(page.get_by_role("searchbox")).to_have_value("down_proj")
    expect(rows.first.locator(".what")).to_contain_text("down_proj")
    page.locator("main").click(position={"x": 5, "y": 5})
    page.keyboard.press("ArrowDown")
    expect(rows.first.locator(".what > a")).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/c/\d+$"))


def test_a_comparison_is_deleted_and_taken_back_with_keys(dashboard: Dashboard, page: Page) -> None:
    dashboard.open("/c/1")
    dashboard.wait_for_comparison()
    dashboard.open("/?sort=oldest")
    page.locator('.comparisons a[href="/c/1"]').focus()
    page.keyboard.press("Delete")
    expect(page.locator("[data-says=deleted-1]")).to_be_visible()
    expect(page.locator('.comparisons a[href="/c/1"]')).to_have_count(0)
    expect(page.locator(".banner button")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".banner")).to_have_count(0)
    dashboard.open("/?sort=oldest")
    expect(page.locator('.comparisons a[href="/c/1"]')).to_have_count(1)


def test_a_dump_that_was_compared_is_the_golden_one_of_the_next_comparison(
    dashboard: Dashboard, page: Page
) -> None:
    dashboard.open("/c/1")
    dashboard.wait_for_comparison()
    dashboard.open("/")
    page.locator("nav a[href='/?show=dumps']").click()
    page.wait_for_url("**/?show=dumps")
    row = page.locator(".dump-list > li", has_text="perturbed/golden").last
    expect(row).to_contain_text("msprobe")
    row.locator(".start a").first.click()
    expect(page.locator("#golden")).to_have_value(re.compile("/perturbed/golden$"))


def test_comparisons_are_filtered_by_verdict_and_ticked_for_the_board(
    dashboard: Dashboard, page: Page
) -> None:
    for comparison in (1, 2):
        dashboard.open(f"/c/{comparison}")
        dashboard.wait_for_comparison()
    dashboard.open("/")
    to_board = page.locator("[data-for-chosen]")
    expect(to_board).to_be_visible()  # what the boxes are for
    expect(to_board).to_have_css("pointer-events", "none")
    expect(page.locator(".comparisons input[name=c]").first).to_have_attribute("title", "For the board")
    page.locator("select[name=verdict]").select_option("error")
    page.wait_for_url(re.compile("verdict=error"))
    expect(page.locator(".comparisons > li:not(.v-error)")).to_have_count(0)
    first = page.locator(".comparisons > li").first
    expect(first.locator(".what > a .name")).to_have_count(2)  # which two dumps
    for number in (1, 2):
        page.locator(f".comparisons input[name=c][value='{number}']").check()
    to_board.click()
    page.wait_for_url(re.compile(r"/board\?c=[12]&c=[12]$"))
    expect(page.locator("[data-comparison]")).to_have_count(2)
    expect(page.locator("[data-comparison] .number")).to_have_text(["1", "2"])
    dashboard.settle()
