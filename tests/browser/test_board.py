import re

from dashboard import Dashboard
from playwright.sync_api import Page, expect


def test_a_cell_of_the_board_leads_to_the_tree_by_keyboard(dashboard: Dashboard, page: Page) -> None:
    for comparison in (1, 2):
        dashboard.open(f"/c/{comparison}")
        dashboard.wait_for_comparison()
    dashboard.open("/")
    page.locator("a[href='/board']").click()
    page.wait_for_url(re.compile("/board"))
    dashboard.open("/board?c=1&c=2")
    expect(page.locator("[data-comparison]")).to_have_count(2)
    page.keyboard.press("ArrowDown")
    first = page.locator('[data-comparison="2"] th a')
    expect(first).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator('[data-comparison="1"] th a')).to_be_focused()
    page.keyboard.press("End")
    cell = page.locator('[data-comparison="1"] .board-cell.v-error').last
    expect(cell).to_be_focused()
    expect(cell).to_be_in_viewport()
    node = cell.locator(".name").inner_text().strip().rpartition(".")[2]
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/c/1/s/\d+/tree"))
    expect(page.locator('[role="row"][aria-selected="true"]')).to_have_class(re.compile("v-error"))
    expect(page.locator("#panel")).to_contain_text(node)
    dashboard.settle()


def test_choosing_rows_and_differences_is_written_into_the_address(dashboard: Dashboard, page: Page) -> None:
    dashboard.open("/c/2")
    dashboard.wait_for_comparison()
    dashboard.open("/board")
    page.locator("[name=c][value='1']").check()
    page.locator("[data-for-chosen]").click()
    page.wait_for_url(re.compile("c=1"))
    expect(page.locator("[data-comparison]")).to_have_count(1)
    dashboard.open("/board?c=1&c=1&c=2")
    page.locator("[name=differences]").check()
    page.wait_for_url(re.compile("differences=1"))
    expect(page.locator("[name=differences]")).to_be_checked()
    expect(page.locator("[data-comparison]")).to_have_count(2)
    page.locator("[name=new]").check()
    page.wait_for_url(re.compile("new=1"))
    expect(page.locator("[data-says=run-before]")).to_be_visible()
    dashboard.settle()
