"""What somebody who sees firstdrift for the first time expects of its pages."""

import re
from pathlib import Path

import pytest
from dashboard import Dashboard
from playwright.sync_api import Browser, Locator, Page, expect


@pytest.fixture(scope="module")
def tokens(browser: Browser, address: str, dumps: Path) -> int:
    """A comparison of eight tokens."""
    golden, target = (dumps / "tokens" / name for name in ("llama4_golden_fp32", "llama4_perturb_L2_T3"))
    with browser.new_context() as context:
        asked = {"golden": str(golden), "target": str(target)}
        return int(context.request.post(f"{address}/api/v1/comparisons", data=asked).json()["id"])


def compared(dashboard: Dashboard, number: int) -> None:
    dashboard.open(f"/c/{number}")
    dashboard.wait_for_comparison()


def chosen(select: Locator) -> str:
    return str(select.evaluate("select => select.selectedOptions[0].textContent.trim().split(' ·')[0]"))


@pytest.mark.parametrize("kind", ["tree", "graph", "match"])
def test_after_going_back_the_menu_of_slices_names_the_slice_of_the_address(
    dashboard: Dashboard, page: Page, tokens: int, kind: str
) -> None:
    compared(dashboard, tokens)
    dashboard.open(f"/c/{tokens}/s/3/{kind}")
    menu = page.locator("select[data-goto]")
    here, other = chosen(menu), menu.locator("option").nth(5)
    menu.select_option(value=other.get_attribute("value") or "")
    page.wait_for_url(re.compile(f"/s/5/{kind}"))
    dashboard.settle()
    page.go_back()
    page.wait_for_url(re.compile(f"/s/3/{kind}"))
    dashboard.settle()
    page.wait_for_function("document.readyState === 'complete'")
    assert chosen(page.locator("select[data-goto]")) == here


def test_a_page_that_comes_back_as_it_was_says_where_it_is(
    dashboard: Dashboard, page: Page, tokens: int
) -> None:
    compared(dashboard, tokens)
    dashboard.open(f"/c/{tokens}/s/3/tree")
    menu = page.locator("select[data-goto]")
    here = chosen(menu)
    menu.evaluate(
        "select => { select.selectedIndex = 5; dispatchEvent(new PageTransitionEvent('pageshow')) }"
    )
    assert chosen(menu) == here


def test_j_and_k_move_down_and_up_and_enter_selects_the_first_row_that_is_found(
    dashboard: Dashboard, page: Page
) -> None:
    compared(dashboard, 1)
    dashboard.open("/c/1/s/0/tree")
    selected = page.locator('[role="row"][aria-selected="true"]')
    before = int(selected.get_attribute("data-place") or -1)
    page.keyboard.press("j")
    expect(selected).to_have_attribute("data-place", str(before + 1))
    page.keyboard.press("k")
    expect(selected).to_have_attribute("data-place", str(before))
    page.keyboard.press("/")
    page.keyboard.type("down_proj")
    page.keyboard.press("Enter")  # before it was looked for by itself
    first = page.locator("#rows [data-row]:not(.is-context)").first
    expect(first).to_contain_text("down_proj")
    expect(first).to_have_attribute("aria-selected", "true")
    expect(first).to_be_focused()


@pytest.mark.parametrize("kind", ["tree", "graph"])
def test_the_next_unmatched_node_of_a_module_is_one_inside_it(
    dashboard: Dashboard, page: Page, kind: str
) -> None:
    compared(dashboard, 2)
    every = page.request.get("/api/v1/comparisons/2/slices/0/rows?unfold=all&count=1000").json()["rows"]
    inside = [row for row in every if row["verdict"] == "unmatched" and row["depth"] > 1]
    holder = next(row for row in every if row["row"] == inside[-1]["parent"])
    first = next(row["row"] for row in inside if row["row"] > holder["row"])
    dashboard.open(f"/c/2/s/0/{kind}?row={holder['row']}")
    page.keyboard.press("u")
    page.wait_for_url(re.compile(rf"row={first}\b"))


def test_a_slice_of_the_strip_leads_to_its_card_and_nothing_stays_highlighted(
    dashboard: Dashboard, page: Page, tokens: int
) -> None:
    compared(dashboard, tokens)
    page.locator(".strip .cell-link").nth(5).click()
    page.wait_for_url(re.compile("#selected$"))
    card = page.locator("#selected")
    expect(card).to_contain_text("5")
    expect(page.locator("#selected-title")).to_be_in_viewport()
    expect(card).to_be_focused()
    same = (
        "card => [card, document.querySelector('#layers')].map(one => getComputedStyle(one).backgroundColor)"
    )
    assert len(set(card.evaluate(same))) == 1


def test_what_zoom_shows_is_brought_into_view(dashboard: Dashboard, page: Page, tokens: int) -> None:
    compared(dashboard, tokens)
    page.locator("#heat-map").scroll_into_view_if_needed()
    page.locator("#heat-map[data-drawn]").wait_for()
    page.set_viewport_size({"width": 1280, "height": 400})
    page.locator("[data-zoom]").click()
    expect(page.locator("#heat-zoom h3")).to_be_in_viewport()


def test_another_rule_set_is_one_click_and_one_click_back(dashboard: Dashboard, page: Page) -> None:
    compared(dashboard, 2)
    page.locator("#rules").select_option("msprobe")
    notice = page.locator("[data-says=judged-again]")
    expect(notice).to_contain_text("msprobe")
    dashboard.wait_for_comparison()
    expect(notice).to_be_visible()
    notice.get_by_role("button").click()
    expect(notice).to_have_count(0)
    expect(page.locator("#rules")).to_have_value("firstdrift")
    dashboard.wait_for_comparison()
